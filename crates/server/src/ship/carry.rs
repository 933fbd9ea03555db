//! What does a client say to its session, and the session to it? Bytes, both ways, until one of them has ended.

use super::links::Refusal;
use crate::link::mux::Pipe;
use crate::pgwire::startup::{self, Opening};
use ::pgwire::messages::Message;
use ::pgwire::messages::response::ErrorResponse;
use bytes::BytesMut;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio_util::either::Either;

/// A client's connection: TCP, or the socket file.
pub type Client = Either<TcpStream, UnixStream>;

/// How long a client may take to fetch the last answers of a session that has ended, or to hear that it gets none.
const FAREWELL: Duration = Duration::from_secs(5);

/// Carries until the session or the client has ended.
pub async fn carry(mut socket: Client, pipe: Pipe) {
    let mut client_ended = false;
    let carried = poll_fn(|cx| poll_carry(&mut socket, &pipe, &mut client_ended, cx)).await;
    if carried.is_ok() {
        // The session has ended: what it said last is for the client to fetch.
        let fetched = async {
            while poll_fn(|cx| poll_to_client(&mut socket, &pipe, cx)).await? > 0 {}
            socket.shutdown().await
        };
        // Whether it was fetched or not, the connection ends here.
        let _: Result<io::Result<()>, _> = tokio::time::timeout(FAREWELL, fetched).await;
    }
}

/// Ready when the session has ended, or with the error that ended the client.
fn poll_carry(socket: &mut Client, pipe: &Pipe, client_ended: &mut bool, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
    while let Poll::Ready(delivered) = poll_to_client(socket, pipe, cx) {
        if delivered? == 0 {
            return Poll::Ready(Ok(()));
        }
    }
    if pipe.has_ended() {
        return Poll::Ready(Ok(()));
    }
    while !*client_ended {
        let filled = pipe.poll_fill(cx, |cx, buffer| Pin::new(&mut *socket).poll_read(cx, buffer));
        match filled {
            Poll::Pending => break,
            Poll::Ready(Ok(0)) => {
                pipe.finish();
                *client_ended = true;
            }
            Poll::Ready(Ok(_)) => {}
            Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
        }
    }
    Poll::Pending
}

fn poll_to_client(socket: &mut Client, pipe: &Pipe, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
    pipe.poll_deliver(cx, |cx, bytes| Pin::new(&mut *socket).poll_write(cx, bytes))
}

/// Tells a client why it gets no session, once it has said who it is: before that it would not understand.
pub async fn refuse(mut socket: Client, refusal: Refusal) {
    let told = async {
        let mut input = BytesMut::with_capacity(1024);
        loop {
            match startup::next(&mut input) {
                Ok(Opening::NeedInput) => {
                    if socket.read_buf(&mut input).await? == 0 {
                        return Ok(());
                    }
                }
                Ok(Opening::Encrypt | Opening::RefuseEncryption) => socket.write_all(b"N").await?,
                // There is nothing to cancel, and nobody to whom a link could go.
                Ok(Opening::Cancel(_) | Opening::Link(_)) => return Ok(()),
                Ok(Opening::Hello(_)) | Err(_) => break,
            }
        }
        let Refusal { sqlstate, message } = refusal;
        let fatal = || "FATAL".to_owned();
        let fields = vec![(b'S', fatal()), (b'V', fatal()), (b'C', sqlstate), (b'M', message)];
        let mut output = BytesMut::new();
        ErrorResponse::new(fields).encode(&mut output).map_err(io::Error::other)?;
        socket.write_all(&output).await?;
        socket.shutdown().await
    };
    // Whether it was heard or not, the connection ends here.
    let _: Result<io::Result<()>, _> = tokio::time::timeout(FAREWELL, told).await;
}
