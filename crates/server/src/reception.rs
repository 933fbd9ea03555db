//! Who comes in, and has to prove it how? One thread: accept, TLS, startup packet, rules, SCRAM, cancel requests.
//!
//! ```text
//! accept ─▶ TLS at once? ─▶ SSLRequest? ─▶ startup packet ─▶ rule ─┬─ trust ──────────────────────────▶ worker
//!                              └─ cancel request: served             └─ SCRAM ─┬─ the password ──────────▶ worker
//!                                                                              └─ delay, 28P01 (the next password waits as long)
//! ```
//!
//! While the database recovers clients are turned away with 57P03 and the time that is left.
//!
//! Invariants:
//! 1. A client has [`Limits::authentication`] for all of this; who takes longer is dropped without a word, as in PostgreSQL.
//! 2. Who waits for the answer to a wrong password takes nobody's place: neither among those who come nor among the sessions. Who waits with the next
//!    one makes room for newcomers first.
//! 3. What came in clear before TLS began is not read after it.

use crate::admission::{Guest, Method, Origin, RulesInForce};
use crate::delay::{self, Failed, LoginDelay};
use crate::link::frame::LINK_VERSION;
use crate::link::host::{LinkPlace, Opened};
use crate::local::LocalListener;
use crate::pgwire::registry::{Membership, Registry};
use crate::pgwire::reply::{Output, Severity};
use crate::pgwire::scram::{self, Exchange};
use crate::pgwire::startup::{self, Hello, Opening};
use crate::pgwire::stream::{Socket, Stream};
use crate::recovery::Recovery;
use crate::starting::{StartingPlaces, Whence};
use crate::tls::{ALPN, Shown, Tls};
use ::pgwire::messages::startup::Authentication;
use bytes::{Buf, Bytes, BytesMut};
use freshet_db::sql::role;
use freshet_db::{Database, SqlError};
use rustix::process::{Resource, getrlimit};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::net::IpAddr;
use std::os::fd::AsRawFd;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::{mpsc, watch};
use tokio_rustls::TlsAcceptor;

/// Connections that have not said who they are, beyond which the oldest makes room.
const STARTING_MAX: usize = 256;

/// Wrong passwords whose answers wait at the same time; beyond that they get none.
const DELAYED_MAX: usize = 256;

/// After a failed accept (out of descriptors, mostly) the next try waits this long.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// How often the certificate's files are looked at.
const CERTIFICATE_CHECK: Duration = Duration::from_secs(2);

/// How long a refused client may take to fetch the reason.
const REFUSAL_LIMIT: Duration = Duration::from_secs(2);

/// The first byte of a TLS connection.
const TLS_HANDSHAKE: u8 = 0x16;

/// A session on its way from the reception to its worker.
pub(crate) struct Arrival {
    pub stream: Stream,
    /// What came behind the startup packet.
    pub input: BytesMut,
    pub hello: Hello,
    pub membership: Membership,
    pub place: Place,
}

/// A link on its way from the reception to its worker.
pub(crate) struct LinkArrival {
    pub stream: Stream,
    /// What came behind the greeting.
    pub input: BytesMut,
    pub origin: Origin,
    pub place: LinkPlace,
}

/// A worker as the reception sees it.
pub(crate) struct Worker {
    pub arrivals: mpsc::UnboundedSender<Arrival>,
    pub sessions: Arc<AtomicUsize>,
    pub link_arrivals: mpsc::UnboundedSender<LinkArrival>,
    pub links: Arc<AtomicUsize>,
}

/// A session's place on a worker and among those of its role, given back when dropped.
pub(crate) struct Place {
    sessions: Arc<AtomicUsize>,
    role: u32,
    by_role: Arc<ByRole>,
}

/// How many sessions each role has.
type ByRole = Mutex<HashMap<u32, usize>>;

impl Drop for Place {
    fn drop(&mut self) {
        self.sessions.fetch_sub(1, Ordering::Relaxed);
        let mut by_role = self.by_role.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = by_role.get_mut(&self.role) {
            *count -= 1;
            if *count == 0 {
                by_role.remove(&self.role);
            }
        }
    }
}

/// Whom sessions are handed to, and whose names count, once there is a database.
pub(crate) struct Serving {
    pub workers: Vec<Worker>,
    pub database: Database,
    /// Makes the salts of users who are not there: the same after a restart, as the others' are.
    pub secret: [u8; 32],
}

/// What the reception goes by.
pub(crate) struct Limits {
    pub authentication: Duration,
    pub delay: LoginDelay,
}

/// What becomes of who comes, as it is at that moment.
pub(crate) struct Door {
    pub registry: Arc<Registry>,
    pub recovery: Arc<Recovery>,
    pub serving: Arc<OnceLock<Serving>>,
    pub rules: Arc<RulesInForce>,
    pub tls: Option<Arc<Tls>>,
    pub limits: Limits,
    pub failed: Rc<RefCell<Failed>>,
    pub delayed: Cell<usize>,
    pub by_role: Arc<ByRole>,
    pub links: Arc<AtomicUsize>,
}

pub(crate) struct Reception {
    pub listener: TcpListener,
    pub local: Option<LocalListener>,
    /// Sessions that links bring.
    pub opened: mpsc::Receiver<Opened>,
    pub door: Rc<Door>,
    pub first_kept_descriptor: u64,
    pub stopped: watch::Receiver<bool>,
}

/// Descriptors that clients leave to the database's own files beside the log's segments, at most a quarter of all.
const DESCRIPTORS_KEPT: u64 = 64;
/// Descriptors below which a server is none: it has twenty of its own.
const DESCRIPTORS_MIN: u64 = 48;

/// The first descriptor that is no client's, with a log that has so many files open; an error where that leaves clients hardly any.
pub(crate) fn first_kept_descriptor(log_files: u64) -> Result<u64, String> {
    first_kept_of(getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX), log_files)
}

fn first_kept_of(all: u64, log_files: u64) -> Result<u64, String> {
    let kept = log_files + DESCRIPTORS_KEPT.min(all / 4);
    all.checked_sub(kept).filter(|left| *left >= DESCRIPTORS_MIN).ok_or_else(|| {
        format!(
            "the limit of {all} open files is too low for clients beside the log's {log_files}: raise it (ulimit -n, LimitNOFILE)"
        )
    })
}

impl Reception {
    pub async fn run(mut self) {
        let starting = StartingPlaces::new(STARTING_MAX);
        let (kept, mut closed) = (self.first_kept_descriptor, 0u64);
        if let Some(tls) = self.door.tls.clone() {
            tokio::task::spawn_local(watch_certificate(tls));
        }
        loop {
            let accepted = tokio::select! {
                accepted = accept(&self.listener, self.local.as_ref()) => accepted,
                Some(opened) = self.opened.recv() => Ok(Came::Linked(opened)),
                _ = self.stopped.wait_for(|stopped| *stopped) => break,
            };
            let came = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            if came.descriptor().is_some_and(|number| number >= kept) {
                closed += 1;
                if closed.is_power_of_two() {
                    tracing::warn!(
                        "{closed} connections were closed: the limit on open files leaves clients {kept} descriptors"
                    );
                }
                continue;
            }
            let door = self.door.clone();
            let mut place = starting.enter(came.whence());
            tokio::task::spawn_local(async move {
                let received = tokio::time::timeout(door.limits.authentication, receive(came, &door));
                let received = tokio::select! {
                    received = received => received.ok().flatten(),
                    () = place.lost() => None,
                };
                drop(place);
                if let Some(refused) = received {
                    refused.tell(&door).await;
                }
            });
        }
        // Those that have not said who they are go with the LocalSet.
    }
}

async fn accept(listener: &TcpListener, local: Option<&LocalListener>) -> std::io::Result<Came> {
    let through_file = async {
        match local {
            Some(local) => local.listener.accept().await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        accepted = listener.accept() => accepted.map(|(socket, address)| Came::Tcp(socket, address.ip())),
        accepted = through_file => accepted.map(|(socket, _)| Came::Local(socket)),
    }
}

/// Takes up another certificate when its files change.
async fn watch_certificate(tls: Arc<Tls>) {
    loop {
        tokio::time::sleep(CERTIFICATE_CHECK).await;
        match tls.reload(false) {
            Ok(true) => tracing::info!("the TLS certificate was read again"),
            Ok(false) => {}
            Err(error) => tracing::error!("{error}; the certificate in force stays"),
        }
    }
}

/// Who was accepted.
enum Came {
    Tcp(TcpStream, IpAddr),
    Local(UnixStream),
    Linked(Opened),
}

impl Came {
    /// The system gives the lowest that is free.
    fn descriptor(&self) -> Option<u64> {
        let number = match self {
            Came::Tcp(socket, _) => socket.as_raw_fd(),
            Came::Local(socket) => socket.as_raw_fd(),
            Came::Linked(_) => return None,
        };
        u64::try_from(number).ok()
    }

    fn whence(&self) -> Whence {
        match self {
            Came::Tcp(_, address) => (Origin::At(*address), false),
            Came::Local(_) => (Origin::Local, false),
            Came::Linked(opened) => (opened.origin, true),
        }
    }
}

/// Where a client is, and the worker that it must have, if it has one already.
#[derive(Clone, Copy)]
struct Coming {
    origin: Origin,
    worker: Option<usize>,
}

/// A client that is told why it does not come in.
struct Refused {
    stream: Stream,
    error: SqlError,
    /// Before it is told.
    delay: Duration,
}

impl Refused {
    fn new(stream: Stream, error: SqlError) -> Refused {
        Refused { stream, error, delay: Duration::ZERO }
    }

    async fn tell(self, door: &Door) {
        if !self.delay.is_zero() {
            if door.delayed.get() >= DELAYED_MAX {
                return;
            }
            door.delayed.set(door.delayed.get() + 1);
            tokio::time::sleep(self.delay).await;
            door.delayed.set(door.delayed.get() - 1);
        }
        refuse(self.stream, &self.error).await;
    }
}

/// Ends a connection that never became a session.
pub(crate) async fn refuse(mut stream: Stream, error: &SqlError) {
    let mut output = Output::default();
    output.error(Severity::Fatal, error);
    let told = async {
        stream.write_all(output.releasable()).await?;
        stream.shutdown().await
    };
    // Whether it was heard or not, the connection ends here.
    let _ = tokio::time::timeout(REFUSAL_LIMIT, told).await;
}

/// Reads who comes, and hands a session to a worker. `None`: it is one, or it is gone.
async fn receive(came: Came, door: &Door) -> Option<Refused> {
    let (mut shown, mut worker) = (None, None);
    // What does not leave the machine is not encrypted, as in PostgreSQL.
    let (mut stream, origin, tls) = match came {
        Came::Local(socket) => (Stream::Plain(Socket::local(socket)), Origin::Local, None),
        Came::Linked(Opened { pipe, origin, worker: of_link, is_encrypted }) => {
            worker = Some(of_link);
            (Stream::Linked(pipe, is_encrypted), origin, None)
        }
        Came::Tcp(socket, address) => {
            if let Err(error) = socket.set_nodelay(true) {
                tracing::debug!(%error, "a connection without TCP_NODELAY");
            }
            let mut first = [0];
            if !matches!(socket.peek(&mut first).await, Ok(1)) {
                return None;
            }
            let mut stream = Stream::Plain(Socket::new(socket));
            if let (TLS_HANDSHAKE, Some(tls)) = (first[0], &door.tls) {
                let certificate = tls.shown();
                stream = encrypt(stream, &certificate, true).await?;
                shown = Some(certificate);
            }
            (stream, Origin::At(address), door.tls.as_ref())
        }
    };
    let mut input = BytesMut::with_capacity(1024);
    loop {
        match startup::next(&mut input) {
            Ok(Opening::NeedInput) => match stream.read_buf(&mut input).await {
                Ok(count) if count > 0 => {}
                _ => return None,
            },
            Ok(Opening::Encrypt) if shown.is_some() => {
                let error = SqlError::new("08P01", "a request for TLS on a connection that has it");
                return Some(Refused::new(stream, error));
            }
            Ok(Opening::Encrypt) if tls.is_some() => {
                if !input.is_empty() {
                    let error = SqlError::new("08P01", "received unencrypted data after SSL request").with_detail(
                        "This could be either a client-software bug or evidence of an attempted man-in-the-middle attack.",
                    );
                    return Some(Refused::new(stream, error));
                }
                stream.write_all(b"S").await.ok()?;
                let certificate = tls.map(|tls| tls.shown())?;
                stream = encrypt(stream, &certificate, false).await?;
                shown = Some(certificate);
            }
            Ok(Opening::Encrypt | Opening::RefuseEncryption) => stream.write_all(b"N").await.ok()?,
            Ok(Opening::Cancel(key)) => {
                door.registry.cancel(key);
                return None;
            }
            Ok(Opening::Link(version)) => return link(stream, input, origin, version, door),
            Ok(Opening::Hello(hello)) => {
                return admit(stream, input, hello, Coming { origin, worker }, shown, door).await;
            }
            Err(error) => return Some(Refused::new(stream, error)),
        }
    }
}

/// TLS on the connection. Who begins with it at once must say what for.
async fn encrypt(stream: Stream, certificate: &Arc<Shown>, at_once: bool) -> Option<Stream> {
    let Stream::Plain(socket) = stream else { return None };
    let acceptor = TlsAcceptor::from(certificate.config.clone());
    match acceptor.accept(socket).await {
        Ok(stream) if at_once && stream.get_ref().1.alpn_protocol() != Some(ALPN) => {
            tracing::info!("a TLS connection was dropped: it did not name the protocol postgresql");
            None
        }
        Ok(stream) => Some(Stream::Tls(Box::new(stream))),
        Err(error) => {
            tracing::info!("a TLS connection failed: {error}");
            None
        }
    }
}

async fn admit(
    mut stream: Stream,
    mut input: BytesMut,
    mut hello: Hello,
    from: Coming,
    shown: Option<Arc<Shown>>,
    door: &Door,
) -> Option<Refused> {
    let Some(serving) = door.serving.get() else {
        return Some(Refused::new(stream, door.recovery.refusal()));
    };
    let origin = from.origin;
    let negotiate = hello.negotiate.take();
    let encryption = if stream.is_tls() { "TLS" } else { "none" };
    let fails = |error: &SqlError| {
        tracing::warn!(
            target: "audit",
            user = hello.user,
            database = hello.database,
            address = %origin,
            encryption,
            sqlstate = error.sqlstate,
            reason = error.message,
            "audit: login failed"
        );
    };
    let guest = Guest { origin, is_tls: stream.is_tls(), user: &hello.user, database: &hello.database };
    let schema = serving.database.engine().schema();
    let method = match door.rules.get().method(&guest, &schema) {
        Ok(method) => method,
        Err(error) => {
            fails(&error);
            return Some(Refused::new(stream, error));
        }
    };
    if method == Method::Scram {
        let login = role::login(&schema, &hello.user, freshet_db::sql::session::now());
        let binding = shown.map(|shown| shown.end_point.clone());
        let mut exchange = Exchange::new(&hello.user, login.verifier.as_deref(), &serving.secret, binding);
        let guesser = door.failed.borrow().guesser(origin.address(), &hello.user);
        let turn = delay::turn(&door.failed, guesser, door.limits.delay);
        let negotiate = negotiate.as_ref().map(|negotiate| negotiate.message());
        match authenticate(&mut stream, &mut input, &mut exchange, negotiate, turn).await {
            Ok(()) => door.failed.borrow_mut().forget(guesser),
            Err(None) => return None,
            Err(Some(error)) => {
                fails(&error);
                let now = Instant::now();
                let delay = match error.sqlstate {
                    "28P01" => door.failed.borrow_mut().note(guesser, door.limits.delay, now),
                    _ => Duration::ZERO,
                };
                return Some(Refused { stream, error, delay });
            }
        }
    }
    let joined = role::admit(&schema, &hello.user, &hello.database).and_then(|role| {
        let joined = join(door, serving, &schema, role, &hello.user, from.worker)?;
        // A database without roles has its first one, which may do everything.
        let is_superuser = schema.role(role).is_none_or(|role| role.def.is_superuser);
        Ok((joined, door.registry.join(is_superuser)?))
    });
    let ((worker, place), membership) = match joined {
        Ok(joined) => joined,
        Err(error) => {
            fails(&error);
            return Some(Refused::new(stream, error));
        }
    };
    tracing::info!(
        target: "audit",
        user = hello.user,
        database = hello.database,
        address = %origin,
        encryption,
        method = if method == Method::Scram { "scram-sha-256" } else { "trust" },
        pid = membership.key.pid,
        "audit: login"
    );
    if method != Method::Scram {
        hello.negotiate = negotiate;
    }
    if let Err(error) = stream.leave() {
        tracing::warn!(%error, "a connection was lost");
    } else if worker.arrivals.send(Arrival { stream, input, hello, membership, place }).is_err() {
        tracing::error!("a worker is gone: a connection is dropped");
    }
    None
}

/// Hands a link to the worker with the fewest of them.
fn link(mut stream: Stream, input: BytesMut, origin: Origin, version: u32, door: &Door) -> Option<Refused> {
    let taken = match (&stream, door.serving.get()) {
        (Stream::Linked(..), _) => Err(SqlError::new("08P01", "a link within a link")),
        (_, None) => Err(door.recovery.refusal()),
        _ if version != LINK_VERSION => {
            Err(SqlError::new("0A000", format!("unsupported link version {version}: server supports {LINK_VERSION}")))
        }
        (_, Some(serving)) => {
            let fewest = serving.workers.iter().min_by_key(|w| w.links.load(Ordering::Relaxed));
            let worker = fewest.expect("there is at least one worker");
            let place = LinkPlace::take(&door.links, &worker.links);
            place.map(|place| (worker, place)).ok_or_else(|| SqlError::new("53300", "sorry, too many links already"))
        }
    };
    let (worker, place) = match taken {
        Ok(taken) => taken,
        Err(error) => return Some(Refused::new(stream, error)),
    };
    if let Err(error) = stream.leave() {
        tracing::warn!(%error, "a link was lost");
    } else if worker.link_arrivals.send(LinkArrival { stream, input, origin, place }).is_err() {
        tracing::error!("a worker is gone: a link is dropped");
    }
    None
}

/// A place on this worker, or the one with the fewest sessions, if the role may have one more.
fn join<'w>(
    door: &Door,
    serving: &'w Serving,
    schema: &freshet_engine::catalog::Schema,
    role: freshet_engine::catalog::RoleId,
    user: &str,
    worker: Option<usize>,
) -> Result<(&'w Worker, Place), SqlError> {
    let mut by_role = door.by_role.lock().unwrap_or_else(PoisonError::into_inner);
    let count = by_role.get(&role.0).copied().unwrap_or_default();
    if role::connections_max(schema, role).is_some_and(|max| count >= max) {
        return Err(SqlError::new("53300", format!("too many connections for role \"{user}\"")));
    }
    *by_role.entry(role.0).or_default() += 1;
    let fewest = || serving.workers.iter().min_by_key(|w| w.sessions.load(Ordering::Relaxed));
    let worker = worker.map(|at| &serving.workers[at]).or_else(fewest).expect("there is at least one worker");
    worker.sessions.fetch_add(1, Ordering::Relaxed);
    let place = Place { sessions: worker.sessions.clone(), role: role.0, by_role: door.by_role.clone() };
    Ok((worker, place))
}

// ---- SCRAM

/// The exchange; the password is looked at when it is its `turn`. `Err(None)`: the client is gone, or to be dropped.
async fn authenticate(
    stream: &mut Stream,
    input: &mut BytesMut,
    exchange: &mut Exchange,
    negotiate: Option<::pgwire::messages::startup::NegotiateProtocolVersion>,
    turn: impl Future<Output = bool>,
) -> Result<(), Option<SqlError>> {
    let mut output = Output::default();
    if let Some(negotiate) = &negotiate {
        output.message(negotiate);
    }
    output.message(&Authentication::SASL(exchange.mechanisms()));
    send(stream, &mut output).await?;
    let mut begin = password_message(stream, input).await?;
    let (mechanism, data) = initial_response(&mut begin)?;
    let data = match data {
        Some(data) => data,
        // It wants to be asked first.
        None => {
            output.message(&Authentication::SASLContinue(Bytes::new()));
            send(stream, &mut output).await?;
            password_message(stream, input).await?
        }
    };
    let challenge = exchange.first(&mechanism, &data)?;
    output.message(&Authentication::SASLContinue(challenge.into()));
    send(stream, &mut output).await?;
    let proof = password_message(stream, input).await?;
    if !turn.await {
        return Err(None);
    }
    let signature = exchange.last(&proof)?;
    output.message(&Authentication::SASLFinal(signature.into()));
    send(stream, &mut output).await
}

async fn send(stream: &mut Stream, output: &mut Output) -> Result<(), Option<SqlError>> {
    let sent = async {
        stream.write_all(output.releasable()).await?;
        stream.flush().await
    };
    sent.await.map_err(|_: std::io::Error| None::<SqlError>)?;
    let count = output.releasable().len();
    output.consume(count);
    Ok(())
}

fn malformed(message: impl Into<String>) -> Option<SqlError> {
    Some(SqlError::new("08P01", message))
}

/// The body of the next message, which must be one of those that answer an authentication request.
async fn password_message(stream: &mut Stream, input: &mut BytesMut) -> Result<BytesMut, Option<SqlError>> {
    const HEADER_BYTES: usize = 5;
    loop {
        if let Some(&kind) = input.first()
            && kind != b'p'
        {
            return Err(malformed(format!("expected SASL response, got message type {kind}")));
        }
        if let Some(header) = input.first_chunk::<HEADER_BYTES>() {
            let length = i32::from_be_bytes([header[1], header[2], header[3], header[4]]);
            let length = usize::try_from(length).ok().filter(|length| (4..=scram::MESSAGE_BYTES_MAX).contains(length));
            let Some(length) = length else { return Err(malformed("invalid message length")) };
            if input.len() > length {
                let mut frame = input.split_to(length + 1);
                frame.advance(HEADER_BYTES);
                return Ok(frame);
            }
        }
        match stream.read_buf(input).await {
            Ok(count) if count > 0 => {}
            _ => return Err(None),
        }
    }
}

/// SASLInitialResponse: the mechanism, and the client's first message if it comes along.
fn initial_response(body: &mut BytesMut) -> Result<(String, Option<BytesMut>), Option<SqlError>> {
    let wrong = || malformed("invalid SASLInitialResponse message");
    let end = body.iter().position(|&byte| byte == 0).ok_or_else(wrong)?;
    let name = body.split_to(end);
    let mechanism = std::str::from_utf8(&name).map_err(|_| wrong())?.to_owned();
    body.advance(1);
    if body.len() < 4 {
        return Err(wrong());
    }
    match body.get_i32() {
        -1 if body.is_empty() => Ok((mechanism, None)),
        length if usize::try_from(length).is_ok_and(|length| length == body.len()) => {
            Ok((mechanism, Some(body.split())))
        }
        _ => Err(wrong()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_leave_descriptors_to_the_log() {
        assert_eq!(first_kept_of(1024, 0), Ok(960));
        assert_eq!(first_kept_of(1024, 400), Ok(560));
        assert_eq!(first_kept_of(160, 8), Ok(112));
        assert!(first_kept_of(100, 400).is_err_and(|why| why.contains("the log's 400")));
        assert!(first_kept_of(1024, 930).is_err());
    }

    #[test]
    fn first_messages_that_lie_about_their_length_are_refused() {
        let read = |bytes: &[u8]| initial_response(&mut BytesMut::from(bytes));
        let (mechanism, data) = read(b"SCRAM-SHA-256\0\0\0\0\x03n,,").unwrap();
        assert_eq!((mechanism.as_str(), data.as_deref()), ("SCRAM-SHA-256", Some(&b"n,,"[..])));
        assert_eq!(read(b"X\0\xff\xff\xff\xff").unwrap().1, None);
        for bytes in [
            &b""[..],
            b"SCRAM",
            b"X\0",
            b"X\0\0\0\0",
            b"X\0\0\0\0\x04n,,",
            b"X\0\0\0\0\x02n,,",
            b"X\0\xff\xff\xff\xffn,,",
            b"X\0\x80\0\0\0",
            b"\xff\0\0\0\0\0",
        ] {
            assert!(read(bytes).is_err(), "{bytes:?}");
        }
    }
}
