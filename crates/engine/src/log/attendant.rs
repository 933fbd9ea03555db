//! Who serves sessions? A thread that tells the log when it looks up from them ([`super::attendance`]).

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use super::Log;
use super::attendance::LooksUp;

/// A thread that serves sessions, of which it has more than one, and does not wait for the log itself: between two looks at them it is at work.
/// Dropped, it rests. It keeps no log open.
pub struct Attendant {
    /// None where the log is never patient: nothing is counted then, and nobody shares a word.
    log: Option<Weak<Log>>,
    is_at_work: AtomicBool,
}

impl Attendant {
    pub(super) fn new(log: &Arc<Log>) -> Attendant {
        let log = (log.patience_us > 0).then(|| Arc::downgrade(log));
        Attendant { log, is_at_work: AtomicBool::new(false) }
    }

    fn log(&self) -> Option<Arc<Log>> {
        self.log.as_ref().and_then(Weak::upgrade)
    }

    /// There is something to do.
    pub fn works(&self) {
        if let Some(log) = self.log()
            && !self.is_at_work.swap(true, Ordering::Relaxed)
        {
            log.attendance.come();
        }
    }

    /// So many sessions were served, and more is to be done perhaps.
    pub fn turns(&self, served: u64) {
        if let Some(log) = self.log() {
            if served > 0 {
                log.attendance.add_served(served);
            }
            log.attended(LooksUp::Turns);
        }
    }

    /// There is nothing more to do.
    pub fn rests(&self) {
        if let Some(log) = self.log()
            && self.is_at_work.swap(false, Ordering::Relaxed)
        {
            let is_last = log.attendance.leave();
            log.attended(if is_last { LooksUp::RestsLast } else { LooksUp::Rests });
        }
    }
}

impl Drop for Attendant {
    fn drop(&mut self) {
        self.rests();
    }
}
