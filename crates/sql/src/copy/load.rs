//! How do threads fill an empty table? Each takes a chunk, makes rows of it and appends them; the session finishes and commits.
//!
//! 1. Chunks are taken in their order, and after an error none is taken: so the error with the lowest line is the first of the data.
//! 2. Who drops the loading stops its threads; none of them outlives the chunk in its hands for long.

use super::convert::{Skipped, at_column, at_line, check_count, check_header, is_of_value, line_of, value_of};
use super::fields::Fields;
use super::options::{Format, Header};
use super::plain::Plain;
use super::split::Chunk;
use crate::error::SqlError;
use crate::load::null_violation;
use crate::value::zone::Clock;
use crate::value::{self, check_text};
use freshet_engine::catalog::Table;
use freshet_engine::io::urgency::{Long, Served, start_thread};
use freshet_engine::schema::{Row, Type, Value};
use freshet_engine::txn::{Appender, Error, Load, Stop};
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, Waker};

/// Bytes that are worth a thread's turn.
pub const CHUNK_BYTES: usize = 256 << 10;
const THREADS_MAX: usize = 8;

/// What every thread needs to know.
#[derive(Debug)]
pub struct Target {
    pub name: String,
    pub columns: Vec<u16>,
    pub format: Format,
    /// Columns that take no null and are given none.
    pub missing: Option<usize>,
    /// The session's, at the beginning of the transaction.
    pub clock: Clock,
}

#[derive(Default)]
struct State {
    chunks: VecDeque<Chunk>,
    /// Those that are loaded, for their memory: no more than there were at once.
    spent: Vec<Chunk>,
    is_closed: bool,
    is_dropped: bool,
    threads: usize,
    error: Option<(u64, SqlError)>,
    skipped: Skipped,
    waker: Option<Waker>,
}

struct Shared {
    state: Mutex<State>,
    work: Condvar,
    target: Target,
    chunks_max: usize,
}

impl Shared {
    /// Keeps the memory of a chunk that is loaded, if it is no more than usual.
    fn keep(&self, chunk: Chunk) {
        if chunk.data.capacity() <= 4 * CHUNK_BYTES {
            self.state.lock().spent.push(chunk);
        }
    }

    fn wake(state: &mut State) {
        if let Some(waker) = state.waker.take() {
            waker.wake();
        }
    }
}

/// A load in progress.
pub struct Loading {
    shared: Arc<Shared>,
    pub load: Load,
}

impl Drop for Loading {
    fn drop(&mut self) {
        self.shared.state.lock().is_dropped = true;
        self.shared.work.notify_all();
    }
}

impl Loading {
    /// Chunks that wait for a thread or are in its hands.
    pub const QUEUED_BYTES_MAX: u64 = (3 * THREADS_MAX * CHUNK_BYTES) as u64;

    pub fn start(load: Load, target: Target, threads: Threads) -> Result<Loading, Error> {
        let Threads(threads) = threads;
        let appenders = threads.iter().map(|_| load.appender()).collect::<Result<Vec<_>, _>>()?;
        let state = Mutex::new(State { threads: threads.len(), ..State::default() });
        let chunks_max = 2 * threads.len();
        let shared = Arc::new(Shared { state, work: Condvar::new(), target, chunks_max });
        for (thread, appender) in threads.into_iter().zip(appenders) {
            let worker = Worker { shared: shared.clone(), table: load.table().clone(), appender };
            // It waits for nothing else.
            thread.send(worker).expect("invariant: a thread takes its work");
        }
        Ok(Loading { shared, load })
    }

    /// A chunk whose memory may be used again.
    pub fn spent(&self) -> Option<Chunk> {
        self.shared.state.lock().spent.pop()
    }

    /// There must be room.
    pub fn push(&self, chunk: Chunk) {
        let mut state = self.shared.state.lock();
        if state.error.is_none() {
            state.chunks.push_back(chunk);
        }
        drop(state);
        self.shared.work.notify_one();
    }

    pub fn close(&self) {
        self.shared.state.lock().is_closed = true;
        self.shared.work.notify_all();
    }

    /// Ready when a chunk can be pushed, or there is an error to take.
    pub fn room(&self) -> Progress {
        Progress { shared: self.shared.clone(), to_end: false }
    }

    /// Ready when all threads are done. It must be closed.
    pub fn end(&self) -> Progress {
        Progress { shared: self.shared.clone(), to_end: true }
    }

    /// The first error, once no thread can find an earlier one.
    pub fn take_error(&self) -> Option<SqlError> {
        let mut state = self.shared.state.lock();
        if state.threads > 0 {
            return None;
        }
        state.error.take().map(|(_, error)| error)
    }

    pub fn take_skipped(&self) -> Skipped {
        std::mem::take(&mut self.shared.state.lock().skipped)
    }
}

/// Threads that wait for their work; dropped, they end. They come before the appenders: a load ends with all that it has.
pub struct Threads(Vec<mpsc::Sender<Worker>>);

impl Threads {
    /// One for each core, or as many as the system gives; `None` without any.
    pub fn start() -> Option<Threads> {
        let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
        let threads: Vec<_> = (0..cores.min(THREADS_MAX)).map_while(|_| start_worker()).collect();
        (!threads.is_empty()).then_some(Threads(threads))
    }
}

fn start_worker() -> Option<mpsc::Sender<Worker>> {
    let (give, given) = mpsc::channel::<Worker>();
    let thread = std::thread::Builder::new().name("freshet-copy".to_owned());
    let run = move || given.into_iter().take(1).for_each(Worker::run);
    start_thread(thread, Served::AfterOthers, run).ok().map(|_| give)
}

/// Waits for threads of a load.
pub struct Progress {
    shared: Arc<Shared>,
    to_end: bool,
}

impl Progress {
    pub fn is_ready(&self) -> bool {
        self.is_ready_in(&self.shared.state.lock())
    }

    fn is_ready_in(&self, state: &State) -> bool {
        let is_over = state.threads == 0;
        is_over || !self.to_end && state.error.is_none() && state.chunks.len() < self.shared.chunks_max
    }
}

impl Future for Progress {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut state = self.shared.state.lock();
        if self.is_ready_in(&state) {
            return Poll::Ready(());
        }
        state.waker = Some(context.waker().clone());
        Poll::Pending
    }
}

/// One thread.
struct Worker {
    shared: Arc<Shared>,
    table: Arc<Table>,
    appender: Appender,
}

/// Counts the thread out, whatever ended it.
struct Leaving(Arc<Shared>);

impl Drop for Leaving {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.threads -= 1;
        if std::thread::panicking() {
            let error = SqlError::new("XX000", "a thread of the load broke");
            state.error.get_or_insert((0, error));
        }
        Shared::wake(&mut state);
        // The others end too where this one met an error.
        drop(state);
        self.0.work.notify_all();
    }
}

impl Worker {
    fn run(mut self) {
        let _long = Long::begins();
        let leaving = Leaving(self.shared.clone());
        let mut reader = Reader { plain: Plain::of(&self.table, &self.shared.target), ..Reader::default() };
        while let Some(chunk) = self.next() {
            if let Err(failure) = self.load(&chunk, &mut reader) {
                let (line, error) = *failure;
                return self.failed(line, error);
            }
            self.shared.keep(chunk);
        }
        let is_good = {
            let mut state = self.shared.state.lock();
            state.skipped.merge(std::mem::take(&mut reader.skipped));
            state.error.is_none() && !state.is_dropped
        };
        if is_good && let Err(error) = until_done(|| self.appender.finish()) {
            self.failed(u64::MAX, error.into());
        }
        drop(leaving);
    }

    fn failed(&self, line: u64, error: SqlError) {
        let mut state = self.shared.state.lock();
        if state.error.as_ref().is_none_or(|(first, _)| line < *first) {
            state.error = Some((line, error));
        }
    }

    fn next(&self) -> Option<Chunk> {
        let mut state = self.shared.state.lock();
        loop {
            if state.is_dropped || state.error.is_some() {
                return None;
            }
            if let Some(chunk) = state.chunks.pop_front() {
                Shared::wake(&mut state);
                return Some(chunk);
            }
            if state.is_closed {
                return None;
            }
            let _waits = Long::waits();
            self.shared.work.wait(&mut state);
        }
    }

    fn load(&mut self, chunk: &Chunk, reader: &mut Reader) -> Result<(), Box<(u64, SqlError)>> {
        let target = &self.shared.target;
        let format = &target.format;
        let is_text = !format.is_binary() && check_text(&chunk.data).is_ok();
        let has_header = format.header != Header::No && chunk.line == 1;
        for (at, record) in chunk.records().enumerate() {
            let place = |error| {
                let line = line_of(chunk, at, format);
                Box::new((line, at_line(error, &target.name, line, (!format.is_binary()).then_some(record))))
            };
            if at == 0 && has_header {
                check_header(record, format).map_err(place)?;
                continue;
            }
            let made = reader.is_plain(&self.table, target, record, is_text)
                || reader.row(&self.table, target, record, is_text, || line_of(chunk, at, format)).map_err(place)?;
            if made {
                until_done(|| self.appender.append(&mut reader.row)).map_err(|error| place(error.into()))?;
            }
        }
        Ok(())
    }
}

/// Makes rows; keeps its memory.
#[derive(Default)]
struct Reader {
    plain: Option<Plain>,
    fields: Fields,
    row: Row,
    skipped: Skipped,
}

impl Reader {
    /// Makes the row if it is one of the usual ones.
    fn is_plain(&mut self, table: &Table, target: &Target, record: &[u8], is_text: bool) -> bool {
        self.plain.as_ref().is_some_and(|plain| plain.read(record, table, target, is_text, &mut self.row))
    }

    /// False: the row is left out.
    fn row(
        &mut self,
        table: &Table,
        target: &Target,
        record: &[u8],
        is_text: bool,
        line: impl Fn() -> u64,
    ) -> Result<bool, SqlError> {
        let format = &target.format;
        self.fields.read(record, format)?;
        check_count(&self.fields, format)?;
        self.row.reset(&table.layout);
        for (field, &column) in target.columns.iter().enumerate() {
            let column = usize::from(column);
            let def = &table.def.columns[column];
            let Some(text) = self.fields.get(record, field) else {
                if def.not_null {
                    return Err(null_violation(table, column));
                }
                continue;
            };
            let is_text = is_text && !self.fields.is_made(field);
            let Err(error) = set(table, column, text, target, is_text, &mut self.row) else {
                continue;
            };
            if format.ignores_errors && is_of_value(&error) {
                self.skipped.add(line(), &def.name, &error);
                return Ok(false);
            }
            let shown = (!format.is_binary()).then_some(text);
            return Err(match shown {
                Some(_) => at_column(error, &target.name, line(), &def.name, shown),
                None => error.with_context(format!("COPY {}, line {}, column {}", target.name, line(), def.name)),
            });
        }
        match target.missing {
            Some(column) => Err(null_violation(table, column)),
            None => Ok(true),
        }
    }
}

#[inline]
pub(super) fn set(
    table: &Table,
    column: usize,
    text: &[u8],
    target: &Target,
    is_text: bool,
    row: &mut Row,
) -> Result<(), SqlError> {
    let ty = table.def.columns[column].ty;
    match ty {
        // What is text already goes from the chunk into the row.
        Type::Text | Type::Varchar(_) | Type::Char(_) => {
            if !is_text {
                value::check_text(text)?;
            }
            let kept = value::limit_length(ty, text, false)?;
            row.set(&table.layout, column, &Value::Bytes(kept));
        }
        _ => row.set(&table.layout, column, &value_of(ty, text, &target.format, &target.clock)?.as_value()),
    }
    Ok(())
}

fn until_done(mut step: impl FnMut() -> Result<(), Stop>) -> Result<(), Error> {
    loop {
        match step() {
            Ok(()) => return Ok(()),
            Err(Stop::Wait(mut token)) => _ = token.block(None),
            Err(Stop::Error(error)) => return Err(error),
        }
    }
}
