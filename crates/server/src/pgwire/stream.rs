//! How do bytes travel? In clear or through TLS, over TCP or on the machine itself, on a socket that can go from one thread's runtime to another's;
//! or as one session of a link.

use crate::link::mux::Pipe;
use futures::FutureExt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
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

    /// The socket's, where what is written is what travels, by a socket of its own.
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Stream::Plain(Socket(Place::Tcp(socket))) => Some(socket.as_fd()),
            Stream::Plain(Socket(Place::Local(socket))) => Some(socket.as_fd()),
            _ => None,
        }
    }

    /// Whether bytes may be there of a socket that has a [`descriptor`](Stream::descriptor), or its end.
    pub fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Stream::Plain(Socket(Place::Tcp(socket))) => socket.poll_read_ready(cx),
            Stream::Plain(Socket(Place::Local(socket))) => socket.poll_read_ready(cx),
            _ => Poll::Ready(Ok(())),
        }
    }

    /// Whether the client has ended its side, perhaps behind bytes that nobody has read. A link's client is the link's to watch.
    pub fn has_hung_up(&self) -> bool {
        let socket = match self {
            Stream::Plain(socket) => socket,
            Stream::Tls(stream) => stream.get_ref().0,
            Stream::Linked(..) => return false,
        };
        let ready = match &socket.0 {
            Place::Tcp(socket) => socket.ready(Interest::READABLE).now_or_never(),
            Place::Local(socket) => socket.ready(Interest::READABLE).now_or_never(),
            _ => None,
        };
        matches!(ready, Some(Ok(ready)) if ready.is_read_closed())
    }

    /// Somebody else has read all that was there since the reactor last told of it.
    pub fn was_emptied(&self) {
        let nothing = || Err::<(), _>(io::ErrorKind::WouldBlock.into());
        // It answers as it was told to.
        let _ = match self {
            Stream::Plain(Socket(Place::Tcp(socket))) => socket.try_io(Interest::READABLE, nothing),
            Stream::Plain(Socket(Place::Local(socket))) => socket.try_io(Interest::READABLE, nothing),
            _ => Ok(()),
        };
    }

    /// Writes to a socket that has a [`descriptor`](Stream::descriptor) what there is room for now.
    pub fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Plain(Socket(Place::Tcp(socket))) => socket.try_write(bytes),
            Stream::Plain(Socket(Place::Local(socket))) => socket.try_write(bytes),
            _ => Err(io::ErrorKind::WouldBlock.into()),
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
