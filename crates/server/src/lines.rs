//! How do lines get to stderr? Through a queue with a thread of its own: who has something to tell never waits for who reads it.
//!
//! A pipe that nobody empties (a pager, a hung log driver) or a stopped terminal takes no more lines. What is told meanwhile waits here:
//!
//! 1. Nobody waits for the reader but the thread; at the end of the process what is left gets [`FLUSH_LIMIT`].
//! 2. [`QUEUE_BYTES_MAX`] wait, whatever is told: beyond it lines are dropped, beyond half of it those that are not [`Rank::Kept`]. So audit lines,
//!    warnings and errors are the last to go.
//! 3. What was dropped is counted, and told once there is room.
//! 4. Lines leave whole and in their order. One that cannot be written (a closed pipe, a full disk) is nobody's error.
//!
//! Of its own, because a queue that a library has (tracing-appender's) is bounded by lines, and one audit line may have a megabyte; and it is
//! flushed by its guard alone, at one end of the process of several.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// What waits at most.
const QUEUE_BYTES_MAX: usize = 8 << 20;
/// How long the end of the process waits for who reads.
const FLUSH_LIMIT: Duration = Duration::from_secs(2);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rank {
    Plain,
    Kept,
}

impl Rank {
    fn bytes_max(self) -> usize {
        match self {
            Rank::Plain => QUEUE_BYTES_MAX / 2,
            Rank::Kept => QUEUE_BYTES_MAX,
        }
    }
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Box<[u8]>>,
    /// Of what waits and of what is being written.
    bytes: usize,
    /// How many, and how many of them nobody was told of.
    dropped: u64,
    untold: u64,
}

#[derive(Default)]
struct Queue {
    state: Mutex<State>,
    pushed: Condvar,
    emptied: Condvar,
}

#[derive(Clone)]
pub struct Lines(Arc<Queue>);

impl Lines {
    /// `tell` says of how many lines were dropped: to these lines.
    pub fn start(to: impl Write + Send + 'static, tell: fn(u64)) -> io::Result<Lines> {
        let queue = Arc::new(Queue::default());
        let taken = queue.clone();
        std::thread::Builder::new().name("lines".to_owned()).spawn(move || taken.write(to, tell))?;
        Ok(Lines(queue))
    }

    pub fn push(&self, line: &[u8], rank: Rank) {
        let mut state = self.0.lock();
        if state.bytes > 0 && state.bytes + line.len() > rank.bytes_max() {
            state.dropped += 1;
            state.untold += 1;
            return;
        }
        state.bytes += line.len();
        state.waiting.push_back(line.into());
        drop(state);
        self.0.pushed.notify_one();
    }

    pub fn dropped(&self) -> u64 {
        self.0.lock().dropped
    }

    /// Returns when everything is written, or [`FLUSH_LIMIT`] is over.
    pub fn flush(&self) {
        let state = self.0.lock();
        let waited = self.0.emptied.wait_timeout_while(state, FLUSH_LIMIT, |state| state.bytes > 0 || state.untold > 0);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }
}

/// What is to be done next.
enum Next {
    Write(Box<[u8]>),
    Tell(u64),
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self, mut to: impl Write, tell: fn(u64)) {
        loop {
            match self.next() {
                Next::Write(line) => {
                    let _ = to.write_all(&line).and_then(|()| to.flush());
                    self.lock().bytes -= line.len();
                }
                Next::Tell(dropped) => {
                    tell(dropped);
                    self.lock().untold -= dropped;
                }
            }
        }
    }

    fn next(&self) -> Next {
        let mut state = self.lock();
        loop {
            if let Some(line) = state.waiting.pop_front() {
                return Next::Write(line);
            }
            if state.untold > 0 {
                return Next::Tell(state.untold);
            }
            self.emptied.notify_all();
            state = self.pushed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    type Gate = Arc<(Mutex<bool>, Condvar)>;

    /// Writes once it may.
    struct Stalled {
        may_write: Gate,
        written: mpsc::Sender<Vec<u8>>,
    }

    impl Write for Stalled {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let (may, changed) = &*self.may_write;
            drop(changed.wait_while(may.lock().unwrap(), |may| !*may).unwrap());
            self.written.send(bytes.to_vec()).unwrap();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn stalled(tell: fn(u64)) -> (Lines, Gate, mpsc::Receiver<Vec<u8>>) {
        let (written, read) = mpsc::channel();
        let may_write = Arc::new((Mutex::new(false), Condvar::new()));
        let to = Stalled { may_write: may_write.clone(), written };
        (Lines::start(to, tell).unwrap(), may_write, read)
    }

    fn let_write(may_write: &Gate) {
        *may_write.0.lock().unwrap() = true;
        may_write.1.notify_all();
    }

    #[test]
    fn nobody_waits_for_who_does_not_read_and_what_is_dropped_is_told() {
        static TOLD: Mutex<Vec<u64>> = Mutex::new(Vec::new());
        let (lines, may_write, read) = stalled(|dropped| TOLD.lock().unwrap().push(dropped));
        let mebibyte = vec![b'x'; 1 << 20];
        (0..6).for_each(|_| lines.push(&mebibyte, Rank::Plain));
        assert_eq!(lines.dropped(), 2, "half of the queue is for them");
        (0..6).for_each(|_| lines.push(&mebibyte, Rank::Kept));
        assert_eq!(lines.dropped(), 4);
        lines.push(b"a last one that is dropped too", Rank::Kept);
        let_write(&may_write);
        lines.flush();
        assert_eq!(read.try_iter().map(|line| line.len()).collect::<Vec<_>>(), vec![1 << 20; 8]);
        assert_eq!(*TOLD.lock().unwrap(), [5]);
        lines.push(b"and on", Rank::Plain);
        lines.flush();
        assert_eq!(read.try_iter().collect::<Vec<_>>(), [b"and on"]);
    }

    #[test]
    fn a_flush_has_an_end_and_one_line_may_be_long() {
        let (lines, may_write, read) = stalled(|_| ());
        lines.push(&vec![b'x'; 2 * QUEUE_BYTES_MAX], Rank::Plain);
        lines.flush();
        assert!(read.try_recv().is_err());
        let_write(&may_write);
        lines.flush();
        assert_eq!(read.try_iter().map(|line| line.len()).sum::<usize>(), 2 * QUEUE_BYTES_MAX);
    }
}
