//! Who asks to be shipped? One thread: it accepts clients, and has a task for each and for each link.

use super::carry::{Client, carry, refuse};
use super::links::Links;
use super::tls::Security;
use crate::link::driver::Heartbeat;
use crate::listener::bound;
use crate::local::LocalListener;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::LocalSet;
use tokio_util::either::Either;

/// Connections the kernel holds for us.
const BACKLOG: u32 = 1024;
/// After a failed accept (out of descriptors, mostly) the next try waits this long.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

#[derive(Clone, Debug)]
pub struct Options {
    pub listen: SocketAddr,
    /// The server, as HOST:PORT.
    pub server: String,
    /// `None`: as the number of clients asks for, within reason.
    pub links: Option<usize>,
    pub heartbeat: Heartbeat,
    pub security: Security,
    /// Directory of the socket file for clients.
    pub socket: Option<PathBuf>,
}

impl Options {
    pub fn new(listen: SocketAddr, server: impl Into<String>) -> Options {
        let (server, heartbeat, security) = (server.into(), Heartbeat::usual(true), Security::default());
        Options { listen, server, links: None, heartbeat, security, socket: None }
    }
}

/// A running multiplexer; dropped, it closes all its connections.
pub struct Ship {
    address: SocketAddr,
    socket_file: Option<PathBuf>,
    stop: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
}

/// Accepts clients until stopped or dropped. The server may come later.
pub fn start(options: Options) -> Result<Ship, String> {
    let failed = |error: std::io::Error| format!("cannot listen on {}: {error}", options.listen);
    if !options.listen.ip().to_canonical().is_loopback() {
        return Err(format!(
            "cannot listen on {}: to the server every client comes from this host, so that only this host's are served (127.0.0.1, [::1])",
            options.listen
        ));
    }
    options.security.check()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
    let (listener, address, local) = {
        let _inside = runtime.enter();
        let listener = bound(options.listen).and_then(|socket| socket.listen(BACKLOG)).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let local = options.socket.as_ref().map(|dir| LocalListener::bind(dir, address.port())).transpose()?;
        (listener, address, local)
    };
    let socket_file = local.as_ref().map(|local| local.path().to_owned());
    let (stop, stopped) = watch::channel(false);
    let running = options.clone();
    let thread = std::thread::Builder::new()
        .name("ship".to_owned())
        .spawn(move || LocalSet::new().block_on(&runtime, accept_clients(listener, local, running, stopped)))
        .map_err(failed)?;
    Ok(Ship { address, socket_file, stop, thread: Some(thread) })
}

async fn accept_clients(
    listener: TcpListener,
    local: Option<LocalListener>,
    options: Options,
    mut stopped: watch::Receiver<bool>,
) {
    // The links end with their tasks: a server that is asked for nothing needs no farewell.
    let (_never, never) = watch::channel(false);
    let links = Rc::new(Links::new(options.server, options.security, options.links, options.heartbeat, never));
    loop {
        let accepted = tokio::select! {
            accepted = accept(&listener, local.as_ref()) => accepted,
            _ = stopped.wait_for(|stopped| *stopped) => return,
        };
        let socket = match accepted {
            Ok(socket) => socket,
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let links = links.clone();
        tokio::task::spawn_local(async move {
            match links.open().await {
                Ok(pipe) => carry(socket, pipe).await,
                Err(refusal) => refuse(socket, refusal).await,
            }
        });
    }
    // Clients and links go with the LocalSet.
}

async fn accept(listener: &TcpListener, local: Option<&LocalListener>) -> std::io::Result<Client> {
    let through_file = async {
        match local {
            Some(local) => local.listener.accept().await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        accepted = listener.accept() => {
            let (socket, _) = accepted?;
            if let Err(error) = socket.set_nodelay(true) {
                tracing::debug!(%error, "a connection without TCP_NODELAY");
            }
            Ok(Either::Left(socket))
        }
        accepted = through_file => accepted.map(|(socket, _)| Either::Right(socket)),
    }
}

impl Ship {
    /// The address that clients connect to, with the port that the system chose where 0 was asked for.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Where clients come in that need no TCP.
    pub fn socket_file(&self) -> Option<&Path> {
        self.socket_file.as_deref()
    }

    /// Closes all connections, and returns when they are.
    pub fn stop(mut self) {
        self.shut();
    }

    fn shut(&mut self) {
        self.stop.send_replace(true);
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the multiplexer panicked");
        }
    }
}

impl Drop for Ship {
    fn drop(&mut self) {
        self.shut();
    }
}
