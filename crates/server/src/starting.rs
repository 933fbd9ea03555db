//! Who has come and not said yet who it is? At most so many; who comes when all places are taken gets that of the one that has had it for longest,
//! among those from where the most have come.
//!
//! So clients that open connections and never speak keep nobody out: the longer they are silent, the sooner they go, and a flood takes its own
//! places.

use crate::admission::Origin;
use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// Nobody loses a place before it has had this long to speak, unless twice as many have come.
const GRACE: Duration = Duration::from_secs(1);

/// From where, and whether on links.
pub type Whence = (Origin, bool);

struct Guest {
    number: u64,
    whence: Whence,
    since: Instant,
    /// Dropped, it tells the guest to go.
    _stays: oneshot::Sender<()>,
}

#[derive(Default)]
struct Guests {
    /// The one that has been here for longest is in front.
    here: VecDeque<Guest>,
    /// How many of them are from where.
    from: HashMap<Whence, usize>,
    last: u64,
    dropped: u64,
}

impl Guests {
    /// Where the oldest stands of those from where the most have come.
    fn first_to_go(&self) -> Option<usize> {
        let most = self.from.values().max()?;
        self.here.iter().position(|guest| self.from[&guest.whence] == *most)
    }

    fn remove(&mut self, at: usize) {
        let guest = self.here.remove(at).expect("it was just found");
        let count = self.from.get_mut(&guest.whence).expect("invariant: every guest is counted");
        *count -= 1;
        if *count == 0 {
            self.from.remove(&guest.whence);
        }
    }
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

    pub fn enter(&self, whence: Whence) -> StartingPlace {
        let mut guests = self.guests.borrow_mut();
        let is_full = guests.here.len() >= self.places;
        let has_had_time = |at: usize| guests.here[at].since.elapsed() >= GRACE;
        let first = if is_full { guests.first_to_go() } else { None };
        if let Some(first) = first.filter(|&at| guests.here.len() >= 2 * self.places || has_had_time(at)) {
            guests.remove(first);
            guests.dropped += 1;
            if guests.dropped.is_power_of_two() {
                tracing::warn!("{} connections that did not say who they are made room for others", guests.dropped);
            }
        }
        guests.last += 1;
        let number = guests.last;
        let (stays, is_lost) = oneshot::channel();
        *guests.from.entry(whence).or_default() += 1;
        guests.here.push_back(Guest { number, whence, since: Instant::now(), _stays: stays });
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
        let mut guests = self.starting.guests.borrow_mut();
        // Numbers rise; one that has lost its place is not there.
        if let Ok(at) = guests.here.binary_search_by_key(&self.number, |guest| guest.number) {
            guests.remove(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;

    const HERE: Whence = (Origin::Local, false);

    #[test]
    fn the_oldest_makes_room() {
        let starting = StartingPlaces::new(2);
        let mut places: Vec<StartingPlace> = (0..4).map(|_| starting.enter(HERE)).collect();
        assert!(places[0].lost().now_or_never().is_none(), "it has just come");
        let fifth = starting.enter(HERE);
        assert!(places[0].lost().now_or_never().is_some());
        assert!(places[1].lost().now_or_never().is_none());
        assert_eq!(starting.count(), 4);
        places.truncate(1);
        drop(fifth);
        assert_eq!(starting.count(), 0, "one that has lost its place takes no other's with it");
    }

    #[test]
    fn a_flood_takes_its_own_places() {
        let starting = StartingPlaces::new(2);
        let mut other = starting.enter((Origin::Local, true));
        let mut flood: Vec<StartingPlace> = (0..100).map(|_| starting.enter(HERE)).collect();
        assert!(other.lost().now_or_never().is_none(), "the oldest, but not of the flood");
        let lost = flood.iter_mut().filter_map(|place| place.lost().now_or_never()).count();
        assert_eq!((lost, starting.count()), (97, 4));
        drop((other, flood));
        assert!(starting.guests.borrow().from.is_empty());
    }
}
