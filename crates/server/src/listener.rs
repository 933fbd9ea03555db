//! Who accepts connections, and where do sessions live? One reception thread, and one worker thread per core.
//!
//! ```text
//! reception: accept, TLS, who it is, cancel requests ---> worker with the fewest sessions
//! worker:    one current-thread runtime; a session stays with it until its end, but for long statements,
//!            which run on a pool of threads. A link stays with it too, and so do the sessions on it.
//! ```
//!
//! The reception accepts from the beginning, and once there are workers it hands sessions to them. It serves cancel requests itself, so that one
//! gets through while every worker is busy with a long statement.
//!
//! Invariants:
//! 1. Beyond loopback we listen with authentication only, and with TLS or an explicit consent to do without (see `admission`).
//! 2. [`Server::stop`] returns when every session has ended and rolled back what it had open.

use crate::admission::{Rules, RulesInForce};
use crate::delay::LoginDelay;
use crate::link::host::Host;
use crate::local::LocalListener;
use crate::logging;
use crate::pgwire::choice::Together;
use crate::pgwire::connection::{self, Connection, Shared};
use crate::pgwire::long::LongStatements;
use crate::pgwire::registry::Registry;
use crate::pgwire::scram;
use crate::pgwire::turn;
use crate::pgwire::warm::Warmed;
use crate::reception::{self, Arrival, Door, Limits, LinkArrival, Reception, Serving, Worker, refuse};
use crate::recovery::Recovery;
use crate::tls::{Tls, TlsFiles};
use crate::watched::Watched;
use freshet_db::Database;
use freshet_engine::io::urgency::Urgency;
use freshet_engine::log::Attendant;
use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::net::TcpSocket;
use tokio::sync::{mpsc, watch};
use tokio::task::LocalSet;

/// How long a client may take to say and prove who it is.
const AUTHENTICATION_LIMIT: Duration = Duration::from_secs(60);

/// Connections the kernel holds for us.
const BACKLOG: u32 = 1024;

/// How often it is looked whether sessions are gone.
const DRAIN_CHECK: Duration = Duration::from_millis(10);

/// Statements run on it, deeply nested ones too.
const WORKER_STACK_BYTES: usize = 8 << 20;

#[derive(Clone, Debug)]
pub struct Options {
    pub listen: SocketAddr,
    /// Directory of the socket file for clients of the same machine.
    pub socket: Option<PathBuf>,
    pub workers: usize,
    pub connections_max: usize,
    /// Of these, for superusers.
    pub connections_reserved: usize,
    /// The longest message of a client.
    pub message_bytes_max: usize,
    /// Statements on threads of their own, and those that wait for one before more are refused.
    pub long_statements_max: usize,
    pub long_statements_waiting_max: usize,
    /// Who may come in, and how.
    pub rules: Rules,
    pub tls: Option<TlsFiles>,
    /// Clients of other machines may do without TLS.
    pub allow_plain: bool,
    pub authentication_timeout: Duration,
    /// Files that the database's log has open at most: clients leave it their descriptors, too.
    pub log_files: u64,
    pub login_delay: LoginDelay,
    /// Bytes of a worker's sessions.
    pub together: Together,
}

impl Options {
    pub fn new(listen: SocketAddr) -> Options {
        let workers = std::thread::available_parallelism().map_or(1, |n| n.get());
        Options {
            listen,
            socket: None,
            workers,
            connections_max: 1000,
            connections_reserved: 3,
            message_bytes_max: 256 << 20,
            long_statements_max: (4 * workers).max(16),
            long_statements_waiting_max: 256,
            rules: Rules::default(),
            tls: None,
            allow_plain: false,
            authentication_timeout: AUTHENTICATION_LIMIT,
            log_files: 0,
            login_delay: LoginDelay::default(),
            together: Together::default(),
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
    socket_file: Option<PathBuf>,
    options: Options,
    watched: Arc<Watched>,
    rules: Arc<RulesInForce>,
    serving: Arc<OnceLock<Serving>>,
    tls: Option<Arc<Tls>>,
    stop: watch::Sender<bool>,
    host: Host,
    reception: Option<JoinHandle<()>>,
}

/// Listens, and tells clients how far the recovery is. A port in use is so known before a long one.
pub fn start(options: Options, recovery: Arc<Recovery>) -> Result<Starting, ListenError> {
    let first_kept_descriptor = reception::first_kept_descriptor(options.log_files).map_err(ListenError)?;
    let socket = bind(&options)?;
    let tls = options.tls.clone().map(Tls::load).transpose().map_err(|error| ListenError(error.to_string()))?;
    let tls = tls.map(Arc::new);
    let failed = |error| cannot_listen(options.listen, error);
    let runtime = current_thread().map_err(failed)?;
    let (listener, address, local) = {
        let _inside = runtime.enter();
        let listener = socket.listen(BACKLOG).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let local = options.socket.as_ref().map(|dir| LocalListener::bind(dir, address.port())).transpose();
        (listener, address, local.map_err(ListenError)?)
    };
    let socket_file = local.as_ref().map(|local| local.path().to_owned());
    let registry = Registry::new(options.connections_max, options.connections_reserved);
    let (stop, stopped) = watch::channel(false);
    let serving = Arc::new(OnceLock::new());
    let (door_of, tls_of, limits) = (serving.clone(), tls.clone(), options.clone());
    let rules = Arc::new(RulesInForce::new(options.rules.clone()));
    let door_rules = rules.clone();
    let (door_registry, door_recovery) = (registry.clone(), recovery.clone());
    let (running_max, waiting_max) = (options.long_statements_max.max(1), options.long_statements_waiting_max);
    let long = LongStatements::start(running_max, waiting_max, WORKER_STACK_BYTES);
    let long = long.map_err(|error| ListenError(format!("no thread for long statements: {error}")))?;
    let watched = Arc::new(Watched { recovery, registry, long, database: OnceLock::new() });
    let (host, opened) = Host::new(stopped.clone(), options.connections_max, options.workers.max(1));
    let thread = std::thread::Builder::new()
        .name("reception".to_owned())
        .spawn(move || {
            let door = Door {
                registry: door_registry,
                recovery: door_recovery,
                serving: door_of,
                rules: door_rules,
                tls: tls_of,
                limits: Limits { authentication: limits.authentication_timeout, delay: limits.login_delay },
                failed: Rc::default(),
                delayed: Cell::new(0),
                by_role: Arc::default(),
                links: Arc::default(),
            };
            let door = Rc::new(door);
            let reception = Reception { listener, local, opened, door, first_kept_descriptor, stopped };
            LocalSet::new().block_on(&runtime, reception.run());
        })
        .map_err(failed)?;
    Ok(Starting { address, socket_file, options, watched, rules, serving, tls, stop, host, reception: Some(thread) })
}

fn bind(options: &Options) -> Result<TcpSocket, ListenError> {
    let listen = options.listen;
    let allowed = options.rules.check_listen(listen, options.tls.is_some(), options.allow_plain);
    allowed.map_err(|why| ListenError(format!("cannot listen on {listen}: {why}")))?;
    bound(listen).map_err(|error| cannot_listen(listen, error))
}

/// A socket that has the address and does not listen yet.
pub(crate) fn bound(address: SocketAddr) -> std::io::Result<TcpSocket> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    socket.set_reuseaddr(true)?;
    // Accepted sockets inherit it: a client whose machine vanished is noticed in the end.
    socket.set_keepalive(true)?;
    socket.bind(address)?;
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

/// A running server; dropped, it stops.
pub struct Server {
    address: SocketAddr,
    socket_file: Option<PathBuf>,
    watched: Arc<Watched>,
    rules: Arc<RulesInForce>,
    allow_plain: bool,
    tls: Option<Arc<Tls>>,
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
            let (worker, thread) =
                start_worker(number, database, &shared, &self.host, self.options.together).map_err(failed)?;
            workers.push(worker);
            threads.push(thread);
        }
        let secret = scram::mock_secret(database.engine().database_id().0);
        let opened = self.serving.set(Serving { workers, database: database.clone(), secret }).is_ok();
        assert!(opened, "invariant: a listener begins to serve once");
        threads.extend(self.reception.take());
        let is_first = self.watched.database.set(database.clone()).is_ok();
        assert!(is_first, "invariant: a listener begins to serve once");
        let (watched, tls, stop) = (self.watched.clone(), self.tls.clone(), self.stop.clone());
        let (rules, allow_plain) = (self.rules.clone(), self.options.allow_plain);
        Ok(Server {
            address: self.address,
            socket_file: self.socket_file.take(),
            watched,
            rules,
            allow_plain,
            tls,
            stop,
            threads,
        })
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

    /// Where clients of the same machine come in.
    pub fn socket_file(&self) -> Option<&Path> {
        self.socket_file.as_deref()
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

    /// Puts other rules into force, for those who come from now on.
    pub fn take_rules(&self, rules: Rules) -> Result<(), ListenError> {
        rules.check_listen(self.address, self.tls.is_some(), self.allow_plain).map_err(ListenError)?;
        self.rules.set(rules);
        Ok(())
    }

    /// What can be read again, whatever becomes of the server.
    pub fn certificate(&self) -> Certificate {
        Certificate(self.tls.clone())
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

/// The server's TLS certificate, if it has one.
#[derive(Clone)]
pub struct Certificate(Option<Arc<Tls>>);

impl Certificate {
    /// Reads it again, though its files may look the same. Connections that are there keep theirs.
    pub fn reload(&self) {
        let Some(tls) = &self.0 else { return };
        match tls.reload(true) {
            Ok(_) => tracing::info!("the TLS certificate was read again"),
            Err(error) => tracing::error!("{error}; the certificate in force stays"),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shut();
    }
}

fn current_thread() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}

// ---- workers

/// An event loop that tells the log whether it has something to do.
fn worker_runtime(attendant: &Arc<Attendant>) -> std::io::Result<tokio::runtime::Runtime> {
    let (rests, works) = (attendant.clone(), attendant.clone());
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.on_thread_park(move || rests.rests()).on_thread_unpark(move || works.works());
    builder.enable_all().build()
}

fn start_worker(
    number: usize,
    database: &Database,
    shared: &Shared,
    host: &Host,
    together: Together,
) -> std::io::Result<(Worker, JoinHandle<()>)> {
    let (sender, receiver) = mpsc::unbounded_channel();
    let (link_sender, link_receiver) = mpsc::unbounded_channel();
    let host = host.clone();
    let attendant = Arc::new(shared.engine.attendant());
    let runtime = worker_runtime(&attendant)?;
    let database = database.clone();
    let shared = shared.clone();
    let activity = shared.activity.clone();
    let thread = std::thread::Builder::new().name(format!("worker-{number}")).stack_size(WORKER_STACK_BYTES).spawn(
        move || {
            let sessions = LocalSet::new();
            sessions.spawn_local(take_arrivals(receiver, database, shared));
            sessions.spawn_local(take_links(link_receiver, host, number));
            turn::begin(together, move |arrived| activity.latency.add(arrived.elapsed()));
            // Ends once the reception is gone and every session and link has ended.
            runtime.block_on(turns(sessions, &attendant));
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

/// One turn after the other. Sessions for which something came at the end of one have theirs before the reactor looks at the sockets again.
async fn turns(mut sessions: LocalSet, attendant: &Attendant) {
    let _stop = StopOnPanic;
    let mut urgency = Urgency::default();
    poll_fn(|cx| {
        urgency.turns();
        let mut polled = Pin::new(&mut sessions).poll(cx);
        if turn::end() && polled.is_pending() {
            polled = Pin::new(&mut sessions).poll(cx);
            turn::end();
        }
        attendant.turns(connection::take_served());
        polled
    })
    .await;
}

async fn take_links(mut arrivals: mpsc::UnboundedReceiver<LinkArrival>, host: Host, number: usize) {
    while let Some(arrival) = arrivals.recv().await {
        let host = host.clone();
        tokio::task::spawn_local(async move {
            let _stop = StopOnPanic;
            let LinkArrival { mut stream, input, origin, place } = arrival;
            if let Err(error) = stream.arrive() {
                return tracing::warn!(%error, "a link was lost");
            }
            let is_encrypted = stream.is_tls();
            host.serve(stream, input, origin, number, is_encrypted).await;
            drop(place);
        });
    }
}

async fn take_arrivals(mut arrivals: mpsc::UnboundedReceiver<Arrival>, database: Database, shared: Shared) {
    while let Some(arrival) = arrivals.recv().await {
        let (database, shared) = (database.clone(), shared.clone());
        tokio::task::spawn_local(Warmed::new(async move {
            let _stop = StopOnPanic;
            let Arrival { mut stream, input, hello, membership, place } = arrival;
            if let Err(error) = stream.arrive() {
                return tracing::warn!(%error, "a connection was lost");
            }
            // In boxes: the task itself is what each of its turns begins with, and small.
            match database.sql_session().map(Box::new) {
                Ok(session) => Connection::new(shared, stream, membership, session, input).run(&hello).await,
                Err(error) => refuse(stream, &error).await,
            }
            drop(place);
        }));
    }
}

/// A panic in a session is a broken invariant, and what it held of the engine is in doubt: the process stops, and a
/// restart recovers.
struct StopOnPanic;

impl Drop for StopOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            tracing::error!("a session broke an invariant: the process stops");
            logging::finish();
            std::process::abort();
        }
    }
}
