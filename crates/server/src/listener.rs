//! Who accepts connections, and where do sessions live? One reception thread, and one worker thread per core.
//!
//! ```text
//! reception: accept, startup packet, cancel requests ---> worker with the fewest sessions
//! worker:    one current-thread runtime; a session stays with it until its end, but for long statements,
//!            which run on a pool of threads
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

use crate::pgwire::connection::{Connection, Shared};
use crate::pgwire::long::LongStatements;
use crate::pgwire::registry::{Membership, Registry};
use crate::pgwire::reply::{Output, Severity};
use crate::pgwire::startup::{self, Hello, Opening};
use crate::recovery::Recovery;
use crate::starting::Starting as StartingPlaces;
use crate::watched::Watched;
use bytes::BytesMut;
use freshet_db::{Database, SqlError};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::LocalSet;

/// How long a client may take to say who it is (PostgreSQL's authentication_timeout).
const STARTUP_LIMIT: Duration = Duration::from_secs(60);

/// Connections that have not said who they are, beyond which the oldest makes room.
const STARTING_MAX: usize = 256;

/// Connections the kernel holds for us.
const BACKLOG: u32 = 1024;

/// After a failed accept (out of descriptors, mostly) the next try waits this long.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// How often it is looked whether sessions are gone.
const DRAIN_CHECK: Duration = Duration::from_millis(10);

/// Statements run on it, deeply nested ones too.
const WORKER_STACK_BYTES: usize = 8 << 20;

#[derive(Clone, Debug)]
pub struct Options {
    pub listen: SocketAddr,
    pub workers: usize,
    pub connections_max: usize,
    /// The longest message of a client.
    pub message_bytes_max: usize,
    /// Statements on threads of their own, and those that wait for one before more are refused.
    pub long_statements_max: usize,
    pub long_statements_waiting_max: usize,
}

impl Options {
    pub fn new(listen: SocketAddr) -> Options {
        let workers = std::thread::available_parallelism().map_or(1, |n| n.get());
        Options {
            listen,
            workers,
            connections_max: 1000,
            message_bytes_max: 256 << 20,
            long_statements_max: (4 * workers).max(16),
            long_statements_waiting_max: 256,
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
    watched: Arc<Watched>,
    workers: Arc<Workers>,
    stop: watch::Sender<bool>,
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
    let door = Door { registry: registry.clone(), recovery: recovery.clone(), workers: workers.clone() };
    let long = LongStatements::new(options.long_statements_max.max(1), options.long_statements_waiting_max);
    let watched = Arc::new(Watched { recovery, registry, long, database: OnceLock::new() });
    let thread = std::thread::Builder::new()
        .name("reception".to_owned())
        .spawn(move || {
            let reception = Reception { listener, door: Rc::new(door), stopped };
            LocalSet::new().block_on(&runtime, reception.run());
        })
        .map_err(failed)?;
    Ok(Starting { address, options, watched, workers, stop, reception: Some(thread) })
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
    socket: std::net::TcpStream,
    /// What came behind the startup packet.
    input: BytesMut,
    hello: Hello,
    membership: Membership,
    place: Place,
}

/// A worker as the reception sees it.
struct Worker {
    arrivals: mpsc::UnboundedSender<Arrival>,
    sessions: Arc<AtomicUsize>,
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
    watched: Arc<Watched>,
    stop: watch::Sender<bool>,
    threads: Vec<JoinHandle<()>>,
}

impl Starting {
    /// The address that clients connect to, with the port that the system chose where 0 was asked for.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// For who tells of the server from the beginning.
    pub fn watched(&self) -> Arc<Watched> {
        self.watched.clone()
    }

    /// The database is open: from now on clients get sessions.
    pub fn serve(mut self, database: &Database) -> Result<Server, ListenError> {
        let shared = Shared {
            engine: database.engine().clone(),
            activity: database.activity().clone(),
            long: self.watched.long.clone(),
            message_bytes_max: self.options.message_bytes_max,
        };
        let failed = |error| cannot_listen(self.address, error);
        let mut workers = Vec::new();
        let mut threads = Vec::new();
        for number in 0..self.options.workers.max(1) {
            let (worker, thread) = start_worker(number, database, &shared).map_err(failed)?;
            workers.push(worker);
            threads.push(thread);
        }
        let opened = self.workers.set(workers).is_ok();
        assert!(opened, "invariant: a listener begins to serve once");
        threads.extend(self.reception.take());
        let is_first = self.watched.database.set(database.clone()).is_ok();
        assert!(is_first, "invariant: a listener begins to serve once");
        Ok(Server { address: self.address, watched: self.watched.clone(), stop: self.stop.clone(), threads })
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
        self.watched.registry.count()
    }

    /// For who tells of the server.
    pub fn watched(&self) -> Arc<Watched> {
        self.watched.clone()
    }

    /// Lets nobody in, ends who has no transaction open with 57P01, and the others once theirs is over. Returns when all are gone or the time is
    /// up: how many are left.
    pub fn drain(&self, limit: Duration) -> usize {
        self.watched.registry.leave();
        let end = Instant::now() + limit;
        while self.sessions() > 0 && Instant::now() < end {
            std::thread::sleep(DRAIN_CHECK);
        }
        self.sessions()
    }

    /// Ends all sessions with 57P01 and returns when they have.
    pub fn stop(mut self) {
        self.shut();
    }

    fn shut(&mut self) {
        self.watched.registry.stop();
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

fn start_worker(number: usize, database: &Database, shared: &Shared) -> std::io::Result<(Worker, JoinHandle<()>)> {
    let (sender, receiver) = mpsc::unbounded_channel();
    let runtime = current_thread()?;
    let database = database.clone();
    let shared = shared.clone();
    let thread = std::thread::Builder::new().name(format!("worker-{number}")).stack_size(WORKER_STACK_BYTES).spawn(
        move || {
            let sessions = LocalSet::new();
            sessions.spawn_local(take_arrivals(receiver, database, shared));
            // Ends once the reception is gone and every session has ended.
            runtime.block_on(sessions);
        },
    )?;
    let worker = Worker { arrivals: sender, sessions: Arc::new(AtomicUsize::new(0)) };
    Ok((worker, thread))
}

async fn take_arrivals(mut arrivals: mpsc::UnboundedReceiver<Arrival>, database: Database, shared: Shared) {
    while let Some(arrival) = arrivals.recv().await {
        let (database, shared) = (database.clone(), shared.clone());
        tokio::task::spawn_local(async move {
            let _stop = StopOnPanic;
            let Arrival { socket, input, hello, membership, place } = arrival;
            let socket = match TcpStream::from_std(socket) {
                Ok(socket) => socket,
                Err(error) => return tracing::warn!(%error, "a connection was lost"),
            };
            match database.sql_session() {
                Ok(session) => {
                    Connection::new(shared, socket, membership, session, input).run(&hello).await;
                }
                Err(error) => refuse(socket, &error).await,
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
}

impl Reception {
    async fn run(mut self) {
        let starting = StartingPlaces::new(STARTING_MAX);
        loop {
            let accepted = tokio::select! {
                accepted = self.listener.accept() => accepted,
                _ = self.stopped.wait_for(|stopped| *stopped) => break,
            };
            let (socket, _) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            let door = self.door.clone();
            let mut place = starting.enter();
            tokio::task::spawn_local(async move {
                let received = receive(socket, &door);
                // A client that says nothing in time is dropped without a word, as in PostgreSQL.
                tokio::select! {
                    _ = tokio::time::timeout(STARTUP_LIMIT, received) => {}
                    () = place.lost() => {}
                }
            });
        }
        // Those that have not said who they are go with the LocalSet.
    }
}

/// Reads who comes, and hands a session to a worker.
async fn receive(mut socket: TcpStream, door: &Door) {
    if let Err(error) = socket.set_nodelay(true) {
        tracing::debug!(%error, "a connection without TCP_NODELAY");
    }
    let mut input = BytesMut::with_capacity(1024);
    loop {
        match startup::next(&mut input) {
            Ok(Opening::NeedInput) => match socket.read_buf(&mut input).await {
                Ok(count) if count > 0 => {}
                _ => return,
            },
            Ok(Opening::RefuseEncryption) => {
                if socket.write_all(b"N").await.is_err() {
                    return;
                }
            }
            Ok(Opening::Cancel(key)) => return door.registry.cancel(key),
            Ok(Opening::Hello(hello)) => {
                let Some(workers) = door.workers.get() else {
                    return refuse(socket, &door.recovery.refusal()).await;
                };
                return match door.registry.join() {
                    Ok(membership) => hand_over(socket, input, hello, membership, workers),
                    Err(error) => refuse(socket, &error).await,
                };
            }
            Err(error) => return refuse(socket, &error).await,
        }
    }
}

fn hand_over(socket: TcpStream, input: BytesMut, hello: Hello, membership: Membership, workers: &[Worker]) {
    let worker =
        workers.iter().min_by_key(|w| w.sessions.load(Ordering::Relaxed)).expect("there is at least one worker");
    match socket.into_std() {
        Ok(socket) => {
            let arrival = Arrival { socket, input, hello, membership, place: Place::take(&worker.sessions) };
            if worker.arrivals.send(arrival).is_err() {
                tracing::error!("a worker is gone: a connection is dropped");
            }
        }
        Err(error) => tracing::warn!(%error, "a connection was lost"),
    }
}

/// Ends a connection that never became a session.
async fn refuse(mut socket: TcpStream, error: &SqlError) {
    let mut output = Output::default();
    output.error(Severity::Fatal, error);
    // The client may have left already; then there is nobody to tell.
    let _ = socket.write_all(output.releasable()).await;
    let _ = socket.shutdown().await;
}
