//! Where is what a session will touch when its turn comes? Where it was the last times: those lines of memory are asked for all at once.
//!
//! Of a thousand sessions that take turns each is cold when its turn comes: its task, its buffers, its statements are some seventy lines in twenty
//! places, and each that is only asked for when it is wanted is waited for by itself.
//!
//! A session that is [`noting`](is_noting) notes places as it goes on; it does so in its first turns, more and more seldom, and then in one of
//! [`NOTED_EVERY`], as buffers grow and go. A place that is noted is only an address: what was there may be gone, and loading it does no harm.

use freshet_engine::index::prefetch_address;
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// To note them takes longer than they save in one turn.
const NOTED_EVERY: u32 = 64;

/// A select by key touches 67.
const PLACES_MAX: usize = 78;

const LINE_BYTES: usize = 64;

/// Of the task: where it is in what it does, which is what it looks at first.
const TASK_BYTES_MAX: usize = 512;

/// Lines, each once, as they were noted. With the task: a list elsewhere would be a line to wait for.
struct Places {
    count: usize,
    lines: [usize; PLACES_MAX],
}

impl Places {
    const NONE: Places = Places { count: 0, lines: [0; PLACES_MAX] };

    fn all(&self) -> &[usize] {
        &self.lines[..self.count]
    }

    fn add(&mut self, address: usize, bytes: usize) {
        let lines = address / LINE_BYTES..=(address + bytes.max(1) - 1) / LINE_BYTES;
        for line in lines.map(|line| line * LINE_BYTES) {
            if self.count < PLACES_MAX && !self.all().contains(&line) {
                self.lines[self.count] = line;
                self.count += 1;
            }
        }
    }

    fn load(&self) {
        self.all().iter().for_each(|&line| prefetch_address(line));
    }
}

thread_local! {
    static IS_NOTING: Cell<bool> = const { Cell::new(false) };
    static NOTED: RefCell<Places> = const { RefCell::new(Places::NONE) };
}

/// Whether the session whose turn it is notes places.
pub fn is_noting() -> bool {
    IS_NOTING.get()
}

/// Notes the lines of a value.
pub fn note<T: ?Sized>(value: &T) {
    note_bytes(std::ptr::from_ref(value).addr(), size_of_val(value));
}

/// Notes the lines of so many bytes from there on.
pub fn note_bytes(address: usize, bytes: usize) {
    if is_noting() {
        NOTED.with_borrow_mut(|noted| noted.add(address, bytes));
    }
}

/// A session's task, which begins each turn by asking for what it noted.
pub struct Warmed<F> {
    places: Places,
    task: Pin<Box<F>>,
    /// Turns until places are noted, and from then until they are once more.
    turns: u32,
    turns_then: u32,
}

impl<F: Future<Output = ()>> Warmed<F> {
    pub fn new(task: F) -> Warmed<F> {
        Warmed { places: Places::NONE, task: Box::pin(task), turns: 0, turns_then: 1 }
    }

    /// A turn in which nothing is noted, as no statement began, is not counted.
    fn poll_noting(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let own = NOTED.with_borrow_mut(|noted| {
            noted.count = 0;
            noted.add(std::ptr::from_ref(&*self.task).addr(), size_of::<F>().min(TASK_BYTES_MAX));
            noted.count
        });
        IS_NOTING.set(true);
        let polled = self.task.as_mut().poll(cx);
        IS_NOTING.set(false);
        NOTED.with_borrow_mut(|noted| {
            if noted.count > own {
                self.places.count = noted.count;
                self.places.lines = noted.lines;
                self.turns = self.turns_then;
                self.turns_then = (2 * self.turns_then).min(NOTED_EVERY);
            }
        });
        polled
    }
}

impl<F: Future<Output = ()>> Future for Warmed<F> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        this.places.load();
        if this.turns == 0 {
            return this.poll_noting(cx);
        }
        this.turns -= 1;
        this.task.as_mut().poll(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;
    use std::rc::Rc;
    use std::task::Waker;

    fn poll<F: Future<Output = ()>>(warmed: &mut Warmed<F>) {
        assert!(Pin::new(warmed).poll(&mut Context::from_waker(Waker::noop())).is_pending());
    }

    #[test]
    fn a_task_notes_its_places_more_and_more_seldom() {
        let (noting, value) = (Rc::new(RefCell::new(Vec::new())), Box::new([0u8; 300]));
        let address = value.as_ptr().addr();
        let mut warmed = Warmed::new({
            let noting = noting.clone();
            poll_fn(move |_| {
                noting.borrow_mut().push(is_noting());
                note(&*value);
                Poll::Pending
            })
        });
        (0..300).for_each(|_| poll(&mut warmed));
        assert!(!is_noting());
        let at: Vec<usize> = noting.borrow().iter().enumerate().filter(|(_, is)| **is).map(|(at, _)| at).collect();
        assert_eq!(at, [0, 2, 5, 10, 19, 36, 69, 134, 199, 264]);
        // The task's own lines first.
        let lines = warmed.places.all();
        assert!(lines.contains(&(address / LINE_BYTES * LINE_BYTES)));
        assert!(lines.contains(&((address + 299) / LINE_BYTES * LINE_BYTES)));
        assert_eq!(lines[0], std::ptr::from_ref(&*warmed.task).addr() / LINE_BYTES * LINE_BYTES);
    }

    #[test]
    fn a_turn_without_a_statement_changes_nothing() {
        let (value, begins) = (Box::new(0), Rc::new(Cell::new(true)));
        let mut warmed = Warmed::new({
            let begins = begins.clone();
            poll_fn(move |_| {
                if begins.get() {
                    note(&*value);
                }
                Poll::Pending
            })
        });
        poll(&mut warmed);
        let count = warmed.places.count;
        assert!(count >= 1);
        begins.set(false);
        (0..10).for_each(|_| poll(&mut warmed));
        assert_eq!((warmed.places.count, warmed.turns), (count, 0), "it is still to note");
        begins.set(true);
        poll(&mut warmed);
        assert_eq!(warmed.turns, 2);
    }

    #[test]
    fn there_are_no_more_places_than_fit_and_each_line_is_once() {
        let mut places = Places::NONE;
        places.add(64, 1);
        places.add(70, 58);
        assert_eq!(places.all(), [64]);
        places.add(0, 1 << 20);
        assert_eq!(places.count, PLACES_MAX);
        places.load();
    }
}
