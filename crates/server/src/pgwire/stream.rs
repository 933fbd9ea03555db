//! How do bytes travel? In clear or through TLS, on a socket that can go from one thread's runtime to another's.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

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
    Tls(Box<TlsStream<Socket>>),
}

impl Stream {
    fn socket(&mut self) -> &mut Socket {
        match self {
            Stream::Plain(socket) => socket,
            Stream::Tls(stream) => stream.get_mut().0,
        }
    }

    pub fn leave(&mut self) -> io::Result<()> {
        self.socket().leave()
    }

    pub fn arrive(&mut self) -> io::Result<()> {
        self.socket().arrive()
    }

    pub fn is_tls(&self) -> bool {
        matches!(self, Stream::Tls(_))
    }
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Plain(socket) => Pin::new(socket).poll_read(cx, buffer),
            Stream::Tls(stream) => Pin::new(stream.as_mut()).poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Stream::Plain(socket) => Pin::new(socket).poll_write(cx, bytes),
            Stream::Tls(stream) => Pin::new(stream.as_mut()).poll_write(cx, bytes),
        }
    }

    /// In clear nothing is kept back; TLS may hold a record that the socket had no room for.
    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Plain(_) => Poll::Ready(Ok(())),
            Stream::Tls(stream) => Pin::new(stream.as_mut()).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Plain(socket) => Pin::new(socket).poll_shutdown(cx),
            Stream::Tls(stream) => Pin::new(stream.as_mut()).poll_shutdown(cx),
        }
    }
}
