//! How do a table's rows become bytes while those before them are sent? The session writes the first piece itself; of a longer table a thread writes
//! the others, and waits where too many of them are not taken yet.
//!
//! 1. Pieces come in the order of the table's slots, as one writer writes them.
//! 2. What waits to be taken is bounded: [`WAITING_BYTES_MAX`], and the piece that is being written.
//! 3. Who drops the unloading stops its thread, which outlives it by no more than the piece in its hands; when the statement is over it touches no
//!    row any more (`freshet_engine::txn::Reader`).

use super::encode::{Cells, Writer};
use freshet_engine::catalog::Table;
use freshet_engine::io::urgency::{Long, Served, start_thread};
use freshet_engine::schema::{IntegerWord, Row, Value};
use freshet_engine::txn::{LeaseEnded, PageCursor, Reader, RowPicks};
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, Waker};

/// What is written, or sent, in one go.
pub const PIECE_BYTES: usize = 256 << 10;
/// Slots that are visited for one piece at most: there may be rows in none of them, and the session waits for it when it is cancelled.
const PIECE_SLOTS: u64 = 16 << 10;
/// Enough to wake the thread, or who waits for it, once for several pieces.
const WAITING_BYTES_MAX: usize = 4 * PIECE_BYTES;

/// A part of what is copied.
#[derive(Default)]
pub struct Piece {
    pub bytes: Vec<u8>,
    pub rows: u64,
    pub is_last: bool,
}

/// Writes a table's rows as a statement sees them.
pub struct TableWriter {
    table: Arc<Table>,
    reader: Reader,
    columns: Vec<Column>,
    /// Those whose values may lie elsewhere than in the row.
    long: Vec<usize>,
    picks: RowPicks,
    cursor: PageCursor,
    end: u64,
    row: Row,
    writer: Writer,
}

struct Column {
    number: usize,
    integer: Option<IntegerWord>,
}

struct TableRow<'r> {
    table: &'r Table,
    columns: &'r [Column],
    row: &'r Row,
}

impl Cells for TableRow<'_> {
    #[inline]
    fn integer(&self, column: usize) -> Option<i64> {
        match self.columns[column].integer {
            Some(at) => self.row.integer(at),
            None => match self.value(column) {
                Value::Int(v) => Some(v),
                _ => None,
            },
        }
    }

    #[inline]
    fn value(&self, column: usize) -> Value<'_> {
        self.row.get(&self.table.layout, self.columns[column].number)
    }
}

impl TableWriter {
    /// `columns`: those of the table that are written, in their order.
    pub fn new(table: &Arc<Table>, columns: &[u16], reader: Reader, writer: Writer) -> TableWriter {
        let column = |&c: &u16| Column { number: usize::from(c), integer: table.layout.integer_word(c) };
        let numbers = columns.iter().map(|&c| usize::from(c));
        TableWriter {
            reader,
            columns: columns.iter().map(column).collect(),
            long: numbers.filter(|&c| table.layout.lies_elsewhere(c)).collect(),
            picks: RowPicks::of(table, columns.iter().copied()),
            cursor: PageCursor::at(0),
            // What comes later nobody sees who reads at the statement's snapshot.
            end: table.slots(),
            row: Row::default(),
            table: table.clone(),
            writer,
        }
    }

    /// Appends the next piece to its bytes.
    pub fn write(&mut self, piece: &mut Piece) -> Result<(), LeaseEnded> {
        let TableWriter { table, reader, columns, long, picks, cursor, end, row, writer } = self;
        let until = (*end).min(cursor.position() + PIECE_SLOTS);
        let limit = piece.bytes.len() + PIECE_BYTES;
        writer.head(&mut piece.bytes);
        reader.batch(|batch| {
            while piece.bytes.len() < limit && batch.scan_next(table, cursor, until, picks, row).is_some() {
                long.iter().for_each(|&column| batch.fetch_long(table, row, column));
                writer.row(&TableRow { table, columns, row }, &mut piece.bytes);
                piece.rows += 1;
            }
        })?;
        piece.is_last = cursor.position() >= *end;
        if piece.is_last {
            writer.tail(&mut piece.bytes);
        }
        Ok(())
    }
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Piece>,
    waiting_bytes: usize,
    /// Memory of what was taken.
    spent: Vec<Vec<u8>>,
    is_dropped: bool,
    /// The thread has written all it will.
    is_over: bool,
    waker: Option<Waker>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    has_room: Condvar,
}

impl Shared {
    fn update(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.state.lock();
        change(&mut state);
        if let Some(waker) = state.waker.take() {
            waker.wake();
        }
    }

    /// Memory for the next piece, once there is room for it; nothing if nobody wants it any more.
    fn room(&self) -> Option<Vec<u8>> {
        let mut state = self.state.lock();
        while state.waiting_bytes >= WAITING_BYTES_MAX && !state.is_dropped {
            let _waits = Long::waits();
            self.has_room.wait(&mut state);
        }
        (!state.is_dropped).then(|| state.spent.pop().unwrap_or_default())
    }
}

/// A thread that writes a table's rows.
pub struct Unloading(Arc<Shared>);

impl Drop for Unloading {
    fn drop(&mut self) {
        self.0.state.lock().is_dropped = true;
        self.0.has_room.notify_one();
    }
}

/// What an unloading has.
pub enum Taken {
    Piece(Piece),
    /// Nothing yet.
    Nothing(Written),
    /// No more than was taken, though the last piece was not among it: the rows cannot be read any more, or the thread broke.
    Ended,
}

impl Unloading {
    /// Gives the writer back where a thread gains nothing, or the system has none.
    pub fn start(writer: Box<TableWriter>) -> Result<Unloading, Box<TableWriter>> {
        if std::thread::available_parallelism().map_or(1, |cores| cores.get()) == 1 {
            return Err(writer);
        }
        let (give, given) = mpsc::channel::<(Box<TableWriter>, Arc<Shared>)>();
        let thread = std::thread::Builder::new().name("freshet-copy".to_owned());
        let run = move || {
            let _long = Long::begins();
            given.into_iter().take(1).for_each(|(writer, shared)| unload(writer, shared));
        };
        if start_thread(thread, Served::AfterOthers, run).is_err() {
            return Err(writer);
        }
        let shared = Arc::new(Shared::default());
        // It waits for nothing else.
        give.send((writer, shared.clone())).expect("invariant: a thread takes its work");
        Ok(Unloading(shared))
    }

    /// The next piece. `spent`: memory that may be used again.
    pub fn take(&self, spent: Vec<u8>) -> Taken {
        let mut state = self.0.state.lock();
        // That of a row which was larger than all others is not kept.
        if spent.capacity() > 0 && spent.capacity() <= 2 * PIECE_BYTES {
            state.spent.push(spent);
        }
        let Some(piece) = state.waiting.pop_front() else {
            return if state.is_over { Taken::Ended } else { Taken::Nothing(Written(self.0.clone())) };
        };
        state.waiting_bytes -= piece.bytes.len();
        // The other half is left to take until the thread has written more.
        if state.waiting_bytes <= WAITING_BYTES_MAX / 2 {
            drop(state);
            self.0.has_room.notify_one();
        }
        Taken::Piece(piece)
    }
}

/// Waits for the next piece.
pub struct Written(Arc<Shared>);

impl Future for Written {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut state = self.0.state.lock();
        if state.is_over || !state.waiting.is_empty() {
            return Poll::Ready(());
        }
        state.waker = Some(context.waker().clone());
        Poll::Pending
    }
}

/// Tells that the thread has ended, whatever ended it.
struct Leaving(Arc<Shared>);

impl Drop for Leaving {
    fn drop(&mut self) {
        self.0.update(|state| state.is_over = true);
    }
}

fn unload(mut writer: Box<TableWriter>, shared: Arc<Shared>) {
    let leaving = Leaving(shared);
    while let Some(mut bytes) = leaving.0.room() {
        bytes.clear();
        let mut piece = Piece { bytes, ..Piece::default() };
        if writer.write(&mut piece).is_err() {
            return;
        }
        let is_last = piece.is_last;
        if piece.bytes.is_empty() && !is_last {
            leaving.0.state.lock().spent.push(piece.bytes);
            continue;
        }
        leaving.0.update(|state| {
            state.waiting_bytes += piece.bytes.len();
            state.waiting.push_back(piece);
        });
        if is_last {
            return;
        }
    }
}
