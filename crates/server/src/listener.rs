//! Who accepts connections, and where do sessions live? One reception thread, and one worker thread per core.
//!
//! ```text
//! reception: accept, startup packet, cancel requests ---> worker with the fewest sessions
//! worker:    one current-thread runtime; a session stays with it until its end, but for long statements,
//!            which run on a pool of threads. A link stays with it too, and so do the sessions on it.
//! ```
//!
//! The reception accepts from the beginning. While the database recovers it turns clients away with 57P03 and the time that is left;
//! once there are workers it hands sessions to them.
//!
//! Startup packets and cancel requests are served by the reception, so that a cancel gets through while every worker is
//! busy with a long statement.
//!
//! Invariants:
//! 1. Without authentication we listen on loopback only.
//! 2. [`Server::stop`] returns when every session has ended and rolled back what it had open.

use crate::link::frame::LINK_VERSION;
use crate::link::host::{Host, LinkPlace, Opened};
use crate::pgwire::connection::Connection;
use crate::pgwire::registry::{Membership, Registry};
use crate::pgwire::reply::{Output, Severity};
use crate::pgwire::startup::{self, Hello, Opening};
use crate::pgwire::stream::{Socket, Stream};
use crate::recovery::Recovery;
use bytes::BytesMut;
use freshet_db::{Database, SqlError};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio::task::LocalSet;

/// How long a client may take to say who it is (PostgreSQL's authentication_timeout).
const STARTUP_LIMIT: Duration = Duration::from_secs(60);

/// Connections that have not said who they are, beyond which new ones wait in the kernel's queue.
const STARTING_MAX: usize = 256;

/// Connections the kernel holds for us.
const BACKLOG: u32 = 1024;

/// After a failed accept (out of descriptors, mostly) the next try waits this long.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Statements run on it, deeply nested ones too.
const WORKER_STACK_BYTES: usize = 8 << 20;

#[derive(Clone, Debug)]
pub struct Options {
    pub listen: SocketAddr,
    pub workers: usize,
    pub connections_max: usize,
    /// The longest message of a client.
    pub message_bytes_max: usize,
}

impl Options {
    pub fn new(listen: SocketAddr) -> Options {
        Options {
            listen,
            workers: std::thread::available_parallelism().map_or(1, |n| n.get()),
            connections_max: 1000,
            message_bytes_max: 256 << 20,
        }
    }
}

/// Why we do not listen: one clear line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListenError(pub String);

impl std::fmt::Display for ListenError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ListenError {}

/// A listener whose database still opens: clients are turned away until [`Starting::serve`].
pub struct Starting {
    address: SocketAddr,
    options: Options,
    registry: Arc<Registry>,
    workers: Arc<Workers>,
    stop: watch::Sender<bool>,
    host: Host,
    reception: Option<JoinHandle<()>>,
}

/// Listens, and tells clients how far the recovery is. A port in use is so known before a long one.
pub fn start(options: Options, recovery: Arc<Recovery>) -> Result<Starting, ListenError> {
    let socket = bind(&options)?;
    let failed = |error| cannot_listen(options.listen, error);
    let runtime = current_thread().map_err(failed)?;
    let listener = {
        let _inside = runtime.enter();
        socket.listen(BACKLOG).map_err(failed)?
    };
    let address = listener.local_addr().map_err(failed)?;
    let registry = Registry::new(options.connections_max);
    let (stop, stopped) = watch::channel(false);
    let workers = Arc::new(Workers::new());
    let (host, opened) = Host::new(stopped.clone(), options.connections_max, options.workers.max(1));
    let door = Door { registry: registry.clone(), recovery, workers: workers.clone(), links: Arc::default() };
    let thread = std::thread::Builder::new()
        .name("reception".to_owned())
        .spawn(move || {
            let reception = Reception { listener, opened, door: Rc::new(door), stopped };
            LocalSet::new().block_on(&runtime, reception.run());
        })
        .map_err(failed)?;
    Ok(Starting { address, options, registry, workers, stop, host, reception: Some(thread) })
}

fn bind(options: &Options) -> Result<TcpSocket, ListenError> {
    let listen = options.listen;
    if !listen.ip().to_canonical().is_loopback() {
        return Err(ListenError(format!(
            "cannot listen on {listen}: without authentication only loopback addresses are served (127.0.0.1, [::1])"
        )));
    }
    let socket = if listen.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() };
    let failed = |error| cannot_listen(listen, error);
    let socket = socket.map_err(failed)?;
    socket.set_reuseaddr(true).map_err(failed)?;
    // Accepted sockets inherit it: a client whose machine vanished is noticed in the end.
    socket.set_keepalive(true).map_err(failed)?;
    socket.bind(listen).map_err(failed)?;
    Ok(socket)
}

fn cannot_listen(listen: SocketAddr, error: std::io::Error) -> ListenError {
    ListenError(match error.kind() {
        std::io::ErrorKind::AddrInUse => {
            format!("cannot listen on {listen}: the port is in use")
        }
        _ => format!("cannot listen on {listen}: {error}"),
    })
}

/// Listens on the address for clients of the database, until stopped or dropped.
pub fn listen(database: &Database, options: Options) -> Result<Server, ListenError> {
    start(options, Recovery::new(false))?.serve(database)
}

/// A session on its way from the reception to its worker.
struct Arrival {
    stream: Stream,
    /// What came behind the startup packet.
    input: BytesMut,
    hello: Hello,
    membership: Membership,
    place: Place,
}

/// A link on its way from the reception to its worker.
struct LinkArrival {
    stream: Stream,
    /// What came behind the greeting.
    input: BytesMut,
    address: SocketAddr,
    place: LinkPlace,
}

/// A worker as the reception sees it.
struct Worker {
    arrivals: mpsc::UnboundedSender<Arrival>,
    sessions: Arc<AtomicUsize>,
    link_arrivals: mpsc::UnboundedSender<LinkArrival>,
    links: Arc<AtomicUsize>,
}

/// A session's place on a worker, given back when dropped.
struct Place(Arc<AtomicUsize>);

impl Place {
    fn take(sessions: &Arc<AtomicUsize>) -> Place {
        sessions.fetch_add(1, Ordering::Relaxed);
        Place(sessions.clone())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A running server; dropped, it stops.
pub struct Server {
    address: SocketAddr,
    registry: Arc<Registry>,
    stop: watch::Sender<bool>,
    threads: Vec<JoinHandle<()>>,
}

impl Starting {
    /// The address that clients connect to, with the port that the system chose where 0 was asked for.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// The database is open: from now on clients get sessions.
    pub fn serve(mut self, database: &Database) -> Result<Server, ListenError> {
        let failed = |error| cannot_listen(self.address, error);
        let mut workers = Vec::new();
        let mut threads = Vec::new();
        for number in 0..self.options.workers.max(1) {
            let (worker, thread) = start_worker(number, database, &self.options, &self.host).map_err(failed)?;
            workers.push(worker);
            threads.push(thread);
        }
        let opened = self.workers.set(workers).is_ok();
        assert!(opened, "invariant: a listener begins to serve once");
        threads.extend(self.reception.take());
        Ok(Server { address: self.address, registry: self.registry.clone(), stop: self.stop.clone(), threads })
    }
}

impl Drop for Starting {
    fn drop(&mut self) {
        // Without a database there is nothing to serve. A reception that serves was taken.
        if let Some(reception) = self.reception.take() {
            self.stop.send_replace(true);
            // A panic there has already been told.
            let _ = reception.join();
        }
    }
}

impl Server {
    /// The address that clients connect to, with the port that the system chose where 0 was asked for.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    pub fn sessions(&self) -> usize {
        self.registry.count()
    }

    /// Ends all sessions with 57P01 and returns when they have.
    pub fn stop(mut self) {
        self.shut();
    }

    fn shut(&mut self) {
        self.registry.stop();
        self.stop.send_replace(true);
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a thread of the server panicked");
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shut();
    }
}

fn current_thread() -> std::io::Result<tokio::runtime::Runtime> {
    // Its pool runs the statements that take long.
    tokio::runtime::Builder::new_current_thread().enable_all().thread_stack_size(WORKER_STACK_BYTES).build()
}

// ---- workers

fn start_worker(
    number: usize,
    database: &Database,
    options: &Options,
    host: &Host,
) -> std::io::Result<(Worker, JoinHandle<()>)> {
    let (sender, receiver) = mpsc::unbounded_channel();
    let (link_sender, link_receiver) = mpsc::unbounded_channel();
    let host = host.clone();
    let runtime = current_thread()?;
    let database = database.clone();
    let message_bytes_max = options.message_bytes_max;
    let thread = std::thread::Builder::new().name(format!("worker-{number}")).stack_size(WORKER_STACK_BYTES).spawn(
        move || {
            let sessions = LocalSet::new();
            sessions.spawn_local(take_arrivals(receiver, database, message_bytes_max));
            sessions.spawn_local(take_links(link_receiver, host, number));
            // Ends once the reception is gone and every session and link has ended.
            runtime.block_on(sessions);
        },
    )?;
    let worker = Worker {
        arrivals: sender,
        sessions: Arc::new(AtomicUsize::new(0)),
        link_arrivals: link_sender,
        links: Arc::new(AtomicUsize::new(0)),
    };
    Ok((worker, thread))
}

async fn take_links(mut arrivals: mpsc::UnboundedReceiver<LinkArrival>, host: Host, number: usize) {
    while let Some(arrival) = arrivals.recv().await {
        let host = host.clone();
        tokio::task::spawn_local(async move {
            let _stop = StopOnPanic;
            let LinkArrival { mut stream, input, address, place } = arrival;
            if let Err(error) = stream.arrive() {
                return tracing::warn!(%error, "a link was lost");
            }
            let is_encrypted = stream.is_tls();
            host.serve(stream, input, address, number, is_encrypted).await;
            drop(place);
        });
    }
}

async fn take_arrivals(mut arrivals: mpsc::UnboundedReceiver<Arrival>, database: Database, message_bytes_max: usize) {
    while let Some(arrival) = arrivals.recv().await {
        let database = database.clone();
        tokio::task::spawn_local(async move {
            let _stop = StopOnPanic;
            let Arrival { mut stream, input, hello, membership, place } = arrival;
            if let Err(error) = stream.arrive() {
                return tracing::warn!(%error, "a connection was lost");
            }
            match database.sql_session() {
                Ok(session) => {
                    Connection::new(database.engine().clone(), stream, membership, session, input, message_bytes_max)
                        .run(&hello)
                        .await;
                }
                Err(error) => refuse(stream, &error).await,
            }
            drop(place);
        });
    }
}

/// A panic in a session is a broken invariant, and what it held of the engine is in doubt: the process stops, and a
/// restart recovers.
struct StopOnPanic;

impl Drop for StopOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            tracing::error!("a session broke an invariant: the process stops");
            std::process::abort();
        }
    }
}

// ---- reception

struct Reception {
    listener: TcpListener,
    /// Sessions that links bring.
    opened: mpsc::Receiver<Opened>,
    door: Rc<Door>,
    stopped: watch::Receiver<bool>,
}

/// Whom sessions are handed to, once there is someone.
type Workers = OnceLock<Vec<Worker>>;

/// What becomes of who says hello, as it is at that moment.
struct Door {
    registry: Arc<Registry>,
    recovery: Arc<Recovery>,
    workers: Arc<Workers>,
    links: Arc<AtomicUsize>,
}

/// Who comes: on a connection of its own, or on a link, whose worker is then its own.
struct Newcomer {
    stream: Stream,
    address: SocketAddr,
    worker: Option<usize>,
}

impl Reception {
    async fn run(mut self) {
        let starting = Arc::new(Semaphore::new(STARTING_MAX));
        loop {
            let accepted = tokio::select! {
                accepted = accept(&self.listener, &starting) => accepted,
                opened = accept_opened(&mut self.opened, &starting) => Ok(opened),
                _ = self.stopped.wait_for(|stopped| *stopped) => break,
            };
            let (newcomer, permit) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            let door = self.door.clone();
            tokio::task::spawn_local(async move {
                let received = receive(newcomer, &door);
                // A client that says nothing in time is dropped without a word, as in PostgreSQL.
                let _ = tokio::time::timeout(STARTUP_LIMIT, received).await;
                drop(permit);
            });
        }
        // Those that have not said who they are go with the LocalSet.
    }
}

/// The permit bounds how many have not said who they are.
async fn accept(
    listener: &TcpListener,
    starting: &Arc<Semaphore>,
) -> std::io::Result<(Newcomer, OwnedSemaphorePermit)> {
    let permit = starting.clone().acquire_owned().await;
    let permit = permit.expect("the semaphore is never closed");
    let (socket, address) = listener.accept().await?;
    if let Err(error) = socket.set_nodelay(true) {
        tracing::debug!(%error, "a connection without TCP_NODELAY");
    }
    Ok((Newcomer { stream: Stream::Plain(Socket::new(socket)), address, worker: None }, permit))
}

async fn accept_opened(
    opened: &mut mpsc::Receiver<Opened>,
    starting: &Arc<Semaphore>,
) -> (Newcomer, OwnedSemaphorePermit) {
    let permit = starting.clone().acquire_owned().await;
    let permit = permit.expect("the semaphore is never closed");
    match opened.recv().await {
        Some(Opened { pipe, address, worker, is_encrypted }) => {
            (Newcomer { stream: Stream::Linked(pipe, is_encrypted), address, worker: Some(worker) }, permit)
        }
        // No link can come any more.
        None => std::future::pending().await,
    }
}

/// Reads who comes, and hands a session to a worker.
async fn receive(newcomer: Newcomer, door: &Door) {
    let Newcomer { mut stream, address, worker } = newcomer;
    let mut input = BytesMut::with_capacity(1024);
    loop {
        match startup::next(&mut input) {
            Ok(Opening::NeedInput) => match stream.read_buf(&mut input).await {
                Ok(count) if count > 0 => {}
                _ => return,
            },
            Ok(Opening::RefuseEncryption) => {
                if stream.write_all(b"N").await.is_err() {
                    return;
                }
            }
            Ok(Opening::Cancel(key)) => return door.registry.cancel(key),
            Ok(Opening::Link(version)) => return link(stream, input, address, version, door).await,
            Ok(Opening::Hello(hello)) => {
                let Some(workers) = door.workers.get() else {
                    return refuse(stream, &door.recovery.refusal()).await;
                };
                return match door.registry.join() {
                    Ok(membership) => {
                        hand_over(stream, input, hello, membership, worker.map(|at| &workers[at]), workers)
                    }
                    Err(error) => refuse(stream, &error).await,
                };
            }
            Err(error) => return refuse(stream, &error).await,
        }
    }
}

/// A link goes to the worker with the fewest of them.
async fn link(mut stream: Stream, input: BytesMut, address: SocketAddr, version: u32, door: &Door) {
    let taken = match (&stream, door.workers.get()) {
        (Stream::Linked(..), _) => Err(SqlError::new("08P01", "a link within a link")),
        (_, None) => Err(door.recovery.refusal()),
        _ if version != LINK_VERSION => {
            Err(SqlError::new("0A000", format!("unsupported link version {version}: server supports {LINK_VERSION}")))
        }
        (_, Some(workers)) => {
            let fewest = workers.iter().min_by_key(|w| w.links.load(Ordering::Relaxed));
            let worker = fewest.expect("there is at least one worker");
            let place = LinkPlace::take(&door.links, &worker.links);
            place.map(|place| (worker, place)).ok_or_else(|| SqlError::new("53300", "sorry, too many links already"))
        }
    };
    let (worker, place) = match taken {
        Ok(taken) => taken,
        Err(error) => return refuse(stream, &error).await,
    };
    if let Err(error) = stream.leave() {
        tracing::warn!(%error, "a link was lost");
    } else if worker.link_arrivals.send(LinkArrival { stream, input, address, place }).is_err() {
        tracing::error!("a worker is gone: a link is dropped");
    }
}

/// `worker`: the one that it must be.
fn hand_over(
    mut stream: Stream,
    input: BytesMut,
    hello: Hello,
    membership: Membership,
    worker: Option<&Worker>,
    workers: &[Worker],
) {
    let fewest = || workers.iter().min_by_key(|w| w.sessions.load(Ordering::Relaxed));
    let worker = worker.or_else(fewest).expect("there is at least one worker");
    if let Err(error) = stream.leave() {
        return tracing::warn!(%error, "a connection was lost");
    }
    let arrival = Arrival { stream, input, hello, membership, place: Place::take(&worker.sessions) };
    if worker.arrivals.send(arrival).is_err() {
        tracing::error!("a worker is gone: a connection is dropped");
    }
}

/// Ends a connection that never became a session.
async fn refuse(mut stream: Stream, error: &SqlError) {
    let mut output = Output::default();
    output.error(Severity::Fatal, error);
    // The client may have left already; then there is nobody to tell.
    let _ = stream.write_all(output.releasable()).await;
    let _ = stream.shutdown().await;
}
