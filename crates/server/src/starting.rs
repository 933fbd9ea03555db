//! Who has come and not said yet who it is? At most so many; who comes when all places are taken gets that of the one that has had it for longest.
//!
//! So clients that open connections and never speak keep nobody out: the longer they are silent, the sooner they go.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// Nobody loses a place before it has had this long to speak, unless twice as many have come.
const GRACE: Duration = Duration::from_secs(1);

struct Guest {
    number: u64,
    since: Instant,
    /// Dropped, it tells the guest to go.
    _stays: oneshot::Sender<()>,
}

#[derive(Default)]
struct Guests {
    /// The one that has been here for longest is in front.
    here: VecDeque<Guest>,
    last: u64,
    dropped: u64,
}

/// The places. Of one thread.
#[derive(Clone)]
pub struct StartingPlaces {
    guests: Rc<RefCell<Guests>>,
    places: usize,
}

/// A place, until dropped.
pub struct StartingPlace {
    starting: StartingPlaces,
    number: u64,
    is_lost: oneshot::Receiver<()>,
}

impl StartingPlaces {
    pub fn new(places: usize) -> StartingPlaces {
        StartingPlaces { guests: Rc::default(), places }
    }

    pub fn enter(&self) -> StartingPlace {
        let mut guests = self.guests.borrow_mut();
        let is_full = guests.here.len() >= self.places;
        let has_had_time = |guest: &Guest| guest.since.elapsed() >= GRACE;
        if is_full && (guests.here.len() >= 2 * self.places || guests.here.front().is_some_and(has_had_time)) {
            guests.here.pop_front();
            guests.dropped += 1;
            if guests.dropped.is_power_of_two() {
                tracing::warn!("{} connections that did not say who they are made room for others", guests.dropped);
            }
        }
        guests.last += 1;
        let number = guests.last;
        let (stays, is_lost) = oneshot::channel();
        guests.here.push_back(Guest { number, since: Instant::now(), _stays: stays });
        StartingPlace { starting: self.clone(), number, is_lost }
    }

    #[cfg(test)]
    fn count(&self) -> usize {
        self.guests.borrow().here.len()
    }
}

impl StartingPlace {
    /// Returns when the place is another's.
    pub async fn lost(&mut self) {
        let _ = (&mut self.is_lost).await;
    }
}

impl Drop for StartingPlace {
    fn drop(&mut self) {
        self.starting.guests.borrow_mut().here.retain(|guest| guest.number != self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;

    #[test]
    fn the_oldest_makes_room() {
        let starting = StartingPlaces::new(2);
        let mut places: Vec<StartingPlace> = (0..4).map(|_| starting.enter()).collect();
        assert!(places[0].lost().now_or_never().is_none(), "it has just come");
        let fifth = starting.enter();
        assert!(places[0].lost().now_or_never().is_some());
        assert!(places[1].lost().now_or_never().is_none());
        assert_eq!(starting.count(), 4);
        places.truncate(1);
        drop(fifth);
        assert_eq!(starting.count(), 0, "one that has lost its place takes no other's with it");
    }
}
