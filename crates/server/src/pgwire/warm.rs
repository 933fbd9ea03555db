//! Where is what a session will touch when its turn comes? Where it was the last times: those lines of memory are asked for all at once.
//!
//! Of a thousand sessions that take turns each is cold when its turn comes: its task, its buffers, its statements are some seventy lines in twenty
//! places, and each that is only asked for when it is wanted is waited for by itself.
//!
//! A session notes what it [touches](freshet_engine::mem::touched) in its first turns, more and more seldom, and then in one of [`NOTED_EVERY`], as
//! buffers grow and go.

use freshet_engine::mem::touched::{Touched, noting};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// To note them takes longer than they save in one turn.
const NOTED_EVERY: u32 = 64;

/// Of the task: where it is in what it does, which is what it looks at first.
const TASK_BYTES_MAX: usize = 512;

/// A session's task, which begins each turn by asking for what it noted.
pub struct Warmed<F> {
    touched: Touched,
    task: Pin<Box<F>>,
    /// Turns until touches are noted, and from then until they are once more.
    turns: u32,
    turns_then: u32,
}

impl<F: Future<Output = ()>> Warmed<F> {
    pub fn new(task: F) -> Warmed<F> {
        Warmed { touched: Touched::NONE, task: Box::pin(task), turns: 0, turns_then: 1 }
    }

    /// A turn in which nothing is noted, as no statement began, is not counted.
    fn poll_noting(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let mut own = Touched::NONE;
        own.add(std::ptr::from_ref(&*self.task).addr(), size_of::<F>().min(TASK_BYTES_MAX));
        let (polled, touched) = noting(own, || self.task.as_mut().poll(cx));
        if let Some(touched) = touched {
            self.touched = touched;
            self.turns = self.turns_then;
            self.turns_then = (2 * self.turns_then).min(NOTED_EVERY);
        }
        polled
    }
}

impl<F: Future<Output = ()>> Future for Warmed<F> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        this.touched.load();
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
    use freshet_engine::mem::touched::{is_noting, note};
    use std::cell::{Cell, RefCell};
    use std::future::poll_fn;
    use std::rc::Rc;
    use std::task::Waker;

    fn poll<F: Future<Output = ()>>(warmed: &mut Warmed<F>) {
        assert!(Pin::new(warmed).poll(&mut Context::from_waker(Waker::noop())).is_pending());
    }

    const LINE_BYTES: usize = 64;

    #[test]
    fn a_task_notes_what_it_touches_more_and_more_seldom() {
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
        let lines = warmed.touched.lines();
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
        let count = warmed.touched.lines().len();
        assert!(count >= 1);
        begins.set(false);
        (0..10).for_each(|_| poll(&mut warmed));
        assert_eq!((warmed.touched.lines().len(), warmed.turns), (count, 0), "it is still to note");
        begins.set(true);
        poll(&mut warmed);
        assert_eq!(warmed.turns, 2);
    }
}
