//! Who serves sessions, and has more to do than to wait for the log? Then commits may come together, and the driver is woken once for all of them.
//!
//! A flush takes about 50 us of a processor, whoever it is for, and to wake the driver takes one from whoever works. Where few processors do
//! everything, thousands of flushes a second for a commit or two each take a quarter of them: from readers beside a feed, say. Where everybody commits,
//! on the other hand, many come while a flush goes on, and each flush that begins later keeps them from going on. So the log is patient on few
//! processors while there is much else to do: while sessions are served [`SERVED_A_WAIT`] times as often as one waits. Then, as long as attendants are at
//! work, neither what they stage nor what they wait for wakes the driver. They look up now and then:
//!
//! | an attendant | wakes the driver, if it sleeps, for |
//! |---|---|
//! | ends a turn | what has been asked for as long as [`patience_us`]; what is staged and was not told, if nobody waits for it |
//! | goes to rest | what is asked for, or staged: it will not look up again, and the driver knows how long it may wait |
//! | goes to rest, the last one | what is asked for: it is flushed, unless somebody is at work again when the driver looks |
//!
//! So a session whose server has nothing else to do waits for no one; where clients share the processors all rest now and then without having
//! nothing to do, and to end the patience for that took the gain away (39 k forms a second instead of 47 k). Each epoch's driver is woken once for
//! the first two, and once for the third.
//!
//! Measured, market on two processors beside its feed at 8 times (7,220 commits a second, 64 customers): 36 to 40 k forms a second before, 43 to 47 k
//! with it; where it was patient with everybody: pgbench's TPC-B of 8 clients lost 8 %, pipelined updates of 8 clients 15 %.
//!
//! 1. `at_work` counts the attendants that said [`works`](super::Attendant::works) and not [`rests`](super::Attendant::rests) since.
//! 2. Whoever leaves it to the attendants has stored what there is to do before it reads `at_work`, and the last attendant counts itself out before it
//!    looks: it finds that, or whoever left it found nobody at work and wakes the driver itself.
//! 3. A driver that is about to sleep can be seen before it looks ([`super::parking`], 1).
//! 4. What is asked for waits for [`patience_us`], and beyond that at most for the end of a turn: of the attendant that asked, which looks up then. What others
//!    ask for and nobody looks up for, waits at most as long as a driver sleeps by itself.

use crate::ids::Epoch;
use crate::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

fn is_raised(to: &AtomicU64, epoch: Epoch) -> bool {
    to.load(Ordering::SeqCst) < epoch.0 && to.fetch_max(epoch.0, Ordering::SeqCst) < epoch.0
}

/// For flushes of 50 us each this leaves them an eighth of two processors, and less of more of them.
const PATIENCE_US_OF_ONE: u64 = 600;

/// As short as a flush: it would bring nobody together who is not together anyway.
const PATIENCE_US_MIN: u64 = 100;

/// How long commits that are waited for may come together on a machine with so many processors.
pub(super) fn patience_us(processors: usize) -> u64 {
    let each = PATIENCE_US_OF_ONE / processors.max(2) as u64;
    if each < PATIENCE_US_MIN { 0 } else { each }
}

/// A feed beside its readers has 16 or so; a transaction of seven statements 8, and one of one statement 2.
const SERVED_A_WAIT: u64 = 12;

/// How an attendant looks up from its work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum LooksUp {
    /// It goes on.
    Turns,
    Rests,
    /// And so do all others.
    RestsLast,
}

/// What sessions were served and waited for lately: of the last closing, and of those before it a sixteenth less each.
#[derive(Default)]
pub(super) struct Mix {
    served_before: u64,
    waits_before: u64,
    served: u64,
    waits: u64,
}

impl Mix {
    /// Of what was served before a closing so much counts: whatever went on for hours without a commit, is soon past.
    const SERVED_MAX: u64 = 1_024;

    /// An epoch is closed, so many having been served and so many waits begun in all. Whether there is much else to do.
    pub fn add(&mut self, served: u64, waits: u64) -> bool {
        self.served = self.served - self.served / 16 + (served - self.served_before).min(Mix::SERVED_MAX);
        self.waits = self.waits - self.waits / 16 + (waits - self.waits_before);
        (self.served_before, self.waits_before) = (served, waits);
        self.served > SERVED_A_WAIT * self.waits
    }
}

#[derive(Default)]
pub(super) struct Attendance {
    at_work: AtomicUsize,
    /// Sessions that attendants have served, each as often as it had something to do.
    served: AtomicU64,
    /// There is much else to do than to wait for the log.
    is_patient: AtomicBool,
    /// Something was staged, and no driver has looked since.
    is_untold: AtomicBool,
    /// The last epoch of which a driver was told that it is waited for.
    told: AtomicU64,
    /// The last epoch that was waited for while all rested.
    rested: AtomicU64,
}

impl Attendance {
    /// Whether attendants see to it that what is staged and asked for is done.
    pub fn is_patient(&self) -> bool {
        self.is_patient.load(Ordering::SeqCst) && self.at_work.load(Ordering::SeqCst) > 0
    }

    pub fn served(&self) -> u64 {
        self.served.load(Ordering::Relaxed)
    }

    pub fn add_served(&self, count: u64) {
        self.served.fetch_add(count, Ordering::Relaxed);
    }

    pub fn set_patient(&self, is_patient: bool) {
        if self.is_patient.load(Ordering::SeqCst) != is_patient {
            self.is_patient.store(is_patient, Ordering::SeqCst);
        }
    }

    /// Something was staged. Whether attendants tell the driver.
    pub fn leave_telling(&self) -> bool {
        if !self.is_patient() {
            return false;
        }
        if !self.is_untold.load(Ordering::SeqCst) {
            self.is_untold.store(true, Ordering::SeqCst);
        }
        // The last one may have gone to rest in between.
        self.is_patient()
    }

    /// Whether a driver is to be told of something staged; only once.
    pub fn is_to_tell_of_frames(&self) -> bool {
        self.is_untold.load(Ordering::SeqCst) && self.is_untold.swap(false, Ordering::SeqCst)
    }

    /// Whether no driver was told that this epoch is waited for; only once. Who is told of it closes it, or
    /// whoever looks again does: a driver by itself, or one that ends what a slow device writes.
    pub fn is_first_to_tell_of(&self, epoch: Epoch) -> bool {
        is_raised(&self.told, epoch)
    }

    /// Whether all rest for the first time since this epoch is waited for.
    pub fn is_first_rest_in(&self, epoch: Epoch) -> bool {
        is_raised(&self.rested, epoch)
    }

    /// An epoch is closed by who looks again before it sleeps.
    pub fn has_looked(&self) {
        if self.is_untold.load(Ordering::SeqCst) {
            self.is_untold.store(false, Ordering::SeqCst);
        }
    }

    pub fn come(&self) {
        self.at_work.fetch_add(1, Ordering::SeqCst);
    }

    /// Whether nobody is left.
    pub fn leave(&self) -> bool {
        self.at_work.fetch_sub(1, Ordering::SeqCst) == 1
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn many_processors_need_no_patience() {
        assert_eq!([1, 2, 4, 6, 7, 64].map(patience_us), [300, 300, 150, 100, 0, 0]);
    }

    #[test]
    fn there_is_much_else_to_do_where_few_wait() {
        let mut mix = Mix::default();
        assert!(!mix.add(0, 0), "of nobody nothing is known");
        let mut total = (0, 0);
        let mut after = |served: u64, waits: u64, closings: usize| {
            (0..closings).fold(false, |_, _| {
                total = (total.0 + served, total.1 + waits);
                mix.add(total.0, total.1)
            })
        };
        // A feed beside its readers; transactions of seven statements; updates.
        assert!(after(32, 2, 1));
        assert!(after(32, 2, 100));
        assert!(!after(16, 2, 100));
        assert!(after(32, 2, 100));
        assert!(!after(8, 4, 4), "it is known soon");
        assert!(!after(0, 4, 100));
        assert!(!after(0, 0, 100));
        // A day of nothing but readers, then updates.
        assert!(after(1 << 40, 1, 1));
        assert!(!after(8, 4, 30));
    }
}

/// Not by loom, to which sequentially consistent accesses are no more than acquire and release.
#[cfg(all(test, shuttle))]
mod models {
    use super::*;
    use crate::parking::Parking;
    use crate::sync::{Arc, thread};
    use std::time::Duration;

    struct Log {
        parking: Parking,
        attendance: Attendance,
        is_asked_for: AtomicBool,
    }

    impl Log {
        /// As `Log::request`.
        fn request(&self) {
            self.is_asked_for.store(true, Ordering::SeqCst);
            if !self.attendance.is_patient() && self.parking.is_anyone_parked() {
                self.parking.wake();
            }
        }

        /// As `Log::wake_for_frames`, and a driver that does what is staged.
        fn stage(&self) {
            self.is_asked_for.store(true, Ordering::SeqCst);
            if self.parking.is_anyone_parked() && !self.attendance.leave_telling() {
                self.parking.wake();
            }
        }

        /// As `Log::attended` for whoever was the last.
        fn all_rest(&self) {
            let is_due = || self.is_asked_for.load(Ordering::SeqCst) || self.attendance.is_to_tell_of_frames();
            if self.parking.is_anyone_parked() && is_due() {
                self.parking.wake();
            }
        }
    }

    /// A driver that sleeps, an attendant that goes to rest, and somebody who leaves it to the attendants: nobody sleeps beside what there is to do.
    fn nobody_relies_on_who_rests(leaves: fn(&Log), looks_first: bool) {
        let attendance = Attendance::default();
        attendance.set_patient(true);
        attendance.come();
        let log = Arc::new(Log { parking: Parking::default(), attendance, is_asked_for: AtomicBool::new(false) });
        let driver = {
            let log = log.clone();
            thread::spawn(move || {
                while !log.is_asked_for.load(Ordering::SeqCst) {
                    log.parking.park(Duration::from_secs(1), || log.is_asked_for.load(Ordering::SeqCst));
                }
            })
        };
        let attendant = {
            let log = log.clone();
            thread::spawn(move || {
                if looks_first {
                    log.all_rest();
                }
                if log.attendance.leave() && !looks_first {
                    log.all_rest();
                }
            })
        };
        leaves(&log);
        attendant.join().expect("an attendant does not panic");
        driver.join().expect("a driver does not panic");
    }

    #[test]
    fn shuttle_what_is_asked_for_is_done_though_the_last_attendant_goes() {
        shuttle::check_random(|| nobody_relies_on_who_rests(Log::request, false), 100_000);
    }

    #[test]
    fn shuttle_what_is_staged_is_told_though_the_last_attendant_goes() {
        shuttle::check_random(|| nobody_relies_on_who_rests(Log::stage, false), 100_000);
    }

    /// The model finds it.
    #[test]
    #[should_panic(expected = "deadlock")]
    fn shuttle_looking_before_counting_oneself_out_loses_a_wake_up() {
        shuttle::check_dfs(|| nobody_relies_on_who_rests(Log::request, true), None);
    }
}
