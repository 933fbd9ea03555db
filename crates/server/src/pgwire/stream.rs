//! How do bytes travel? In clear or through TLS, over TCP or on the machine itself, on a socket that can go from one thread's runtime to another's;
//! or as one session of a link.

use crate::link::mux::Pipe;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::server::TlsStream;

/// A socket, of this thread's runtime or on its way to another one.
pub struct Socket(Place);

enum Place {
    Tcp(TcpStream),
    TcpBetween(std::net::TcpStream),
    Local(UnixStream),
    LocalBetween(std::os::unix::net::UnixStream),
    Lost,
}

impl Socket {
    pub fn new(socket: TcpStream) -> Socket {
        Socket(Place::Tcp(socket))
    }

    pub fn local(socket: UnixStream) -> Socket {
        Socket(Place::Local(socket))
    }

    /// Leaves this runtime.
    pub fn leave(&mut self) -> io::Result<()> {
        self.0 = match std::mem::replace(&mut self.0, Place::Lost) {
            Place::Tcp(socket) => Place::TcpBetween(socket.into_std()?),
            Place::Local(socket) => Place::LocalBetween(socket.into_std()?),
            elsewhere => elsewhere,
        };
        Ok(())
    }

    /// Joins the runtime of this thread.
    pub fn arrive(&mut self) -> io::Result<()> {
        self.0 = match std::mem::replace(&mut self.0, Place::Lost) {
            Place::TcpBetween(socket) => Place::Tcp(TcpStream::from_std(socket)?),
            Place::LocalBetween(socket) => Place::Local(UnixStream::from_std(socket)?),
            here => here,
        };
        Ok(())
    }
}

fn not_here<T>() -> Poll<io::Result<T>> {
    Poll::Ready(Err(io::ErrorKind::NotConnected.into()))
}

impl AsyncRead for Socket {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match &mut self.0 {
            Place::Tcp(socket) => Pin::new(socket).poll_read(cx, buffer),
            Place::Local(socket) => Pin::new(socket).poll_read(cx, buffer),
            _ => not_here(),
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match &mut self.0 {
            Place::Tcp(socket) => Pin::new(socket).poll_write(cx, bytes),
            Place::Local(socket) => Pin::new(socket).poll_write(cx, bytes),
            _ => not_here(),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.0 {
            Place::Tcp(socket) => Pin::new(socket).poll_flush(cx),
            Place::Local(socket) => Pin::new(socket).poll_flush(cx),
            _ => not_here(),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.0 {
            Place::Tcp(socket) => Pin::new(socket).poll_shutdown(cx),
            Place::Local(socket) => Pin::new(socket).poll_shutdown(cx),
            _ => not_here(),
        }
    }
}

/// A client's connection.
pub enum Stream {
    Plain(Socket),
    Tls(Box<TlsStream<Socket>>),
    /// A session of a link, encrypted or not as the link is.
    Linked(Pipe, bool),
}

impl Stream {
    /// Leaves this thread's runtime. A link's session is on its link's thread already.
    pub fn leave(&mut self) -> io::Result<()> {
        match self {
            Stream::Plain(socket) => socket.leave(),
            Stream::Tls(stream) => stream.get_mut().0.leave(),
            Stream::Linked(..) => Ok(()),
        }
    }

    /// The session begins here.
    pub fn arrive(&mut self) -> io::Result<()> {
        match self {
            Stream::Plain(socket) => socket.arrive(),
            Stream::Tls(stream) => stream.get_mut().0.arrive(),
            Stream::Linked(pipe, _) => {
                pipe.widen();
                Ok(())
            }
        }
    }

    /// The socket, where it is one of TCP.
    pub fn tcp(&self) -> Option<&TcpStream> {
        let socket = match self {
            Stream::Plain(socket) => socket,
            Stream::Tls(stream) => stream.get_ref().0,
            Stream::Linked(..) => return None,
        };
        match &socket.0 {
            Place::Tcp(socket) => Some(socket),
            _ => None,
        }
    }

    pub fn is_tls(&self) -> bool {
        matches!(self, Stream::Tls(_) | Stream::Linked(_, true))
    }
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Plain(socket) => Pin::new(socket).poll_read(cx, buffer),
            Stream::Tls(stream) => Pin::new(stream.as_mut()).poll_read(cx, buffer),
            Stream::Linked(pipe, _) => Pin::new(pipe).poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Stream::Plain(socket) => Pin::new(socket).poll_write(cx, bytes),
            Stream::Tls(stream) => Pin::new(stream.as_mut()).poll_write(cx, bytes),
            Stream::Linked(pipe, _) => Pin::new(pipe).poll_write(cx, bytes),
        }
    }

    /// In clear nothing is kept back; TLS may hold a record that the socket had no room for.
    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Plain(_) => Poll::Ready(Ok(())),
            Stream::Tls(stream) => Pin::new(stream.as_mut()).poll_flush(cx),
            Stream::Linked(pipe, _) => Pin::new(pipe).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Plain(socket) => Pin::new(socket).poll_shutdown(cx),
            Stream::Tls(stream) => Pin::new(stream.as_mut()).poll_shutdown(cx),
            Stream::Linked(pipe, _) => Pin::new(pipe).poll_shutdown(cx),
        }
    }
}
