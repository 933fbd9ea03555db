//! How do bytes travel? On a socket that can go from one thread's runtime to another's, or as one session of a link.

use crate::link::mux::Pipe;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// A socket, of this thread's runtime or on its way to another one.
pub struct Socket(Place);

enum Place {
    Here(TcpStream),
    Between(std::net::TcpStream),
    Lost,
}

impl Socket {
    pub fn new(socket: TcpStream) -> Socket {
        Socket(Place::Here(socket))
    }

    /// Leaves this runtime.
    pub fn leave(&mut self) -> io::Result<()> {
        if let Place::Here(socket) = std::mem::replace(&mut self.0, Place::Lost) {
            self.0 = Place::Between(socket.into_std()?);
        }
        Ok(())
    }

    /// Joins the runtime of this thread.
    pub fn arrive(&mut self) -> io::Result<()> {
        if let Place::Between(socket) = std::mem::replace(&mut self.0, Place::Lost) {
            self.0 = Place::Here(TcpStream::from_std(socket)?);
        }
        Ok(())
    }

    fn here(&mut self) -> io::Result<Pin<&mut TcpStream>> {
        match &mut self.0 {
            Place::Here(socket) => Ok(Pin::new(socket)),
            Place::Between(_) | Place::Lost => Err(io::ErrorKind::NotConnected.into()),
        }
    }
}

impl AsyncRead for Socket {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.here()?.poll_read(cx, buffer)
    }
}

impl AsyncWrite for Socket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.here()?.poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.here()?.poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.here()?.poll_shutdown(cx)
    }
}

/// A client's connection.
pub enum Stream {
    Plain(Socket),
    /// A session of a link, encrypted or not as the link is.
    Linked(Pipe, bool),
}

impl Stream {
    pub fn leave(&mut self) -> io::Result<()> {
        match self {
            Stream::Plain(socket) => socket.leave(),
            Stream::Linked(..) => Ok(()),
        }
    }

    /// The session begins here.
    pub fn arrive(&mut self) -> io::Result<()> {
        match self {
            Stream::Plain(socket) => socket.arrive(),
            Stream::Linked(pipe, _) => {
                pipe.widen();
                Ok(())
            }
        }
    }

    pub fn is_tls(&self) -> bool {
        match self {
            Stream::Plain(_) => false,
            Stream::Linked(_, is_encrypted) => *is_encrypted,
        }
    }
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Plain(socket) => Pin::new(socket).poll_read(cx, buffer),
            Stream::Linked(pipe, _) => Pin::new(pipe).poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Stream::Plain(socket) => Pin::new(socket).poll_write(cx, bytes),
            Stream::Linked(pipe, _) => Pin::new(pipe).poll_write(cx, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Plain(socket) => Pin::new(socket).poll_flush(cx),
            Stream::Linked(pipe, _) => Pin::new(pipe).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Plain(socket) => Pin::new(socket).poll_shutdown(cx),
            Stream::Linked(pipe, _) => Pin::new(pipe).poll_shutdown(cx),
        }
    }
}
