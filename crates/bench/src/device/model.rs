//! When would a log device have answered that this machine does not have? A medium that does one thing at a time, and perhaps a cache before it.
//!
//! ```text
//!  write-through   write: the medium is busy for bytes / bandwidth      sync: and for one flush (seek and rotation)
//!  write-behind    write: the bytes enter the cache, at once while it has room; then as fast as the medium drains it
//!                  sync:  the controller's answer
//! ```
//!
//! 1. The medium is busy with one request at a time; requests queue in the order in which they come, whoever sends them.
//! 2. A write into the cache that does not go on where the medium's last one ended costs a seek when it is drained. So a log alone is drained at
//!    full bandwidth, and one that shares the cache with random writes falls to the speed of the medium once the cache is full (REFERENCE.md A3).
//! 3. Time comes from outside, in microseconds: the model is a function of what was asked when.

use std::collections::VecDeque;
use std::time::Duration;

/// A log device.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Model {
    /// Seek and rotation: what a durable write costs beside its bytes.
    pub flush: Duration,
    /// What the medium writes; none: as much as comes.
    pub bandwidth_bytes_per_s: Option<u64>,
    pub cache: Option<Cache>,
}

/// A cache that answers before the medium has written, and keeps its content without power.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Cache {
    pub bytes: u64,
    /// What the controller takes to answer a flush.
    pub answer: Duration,
}

impl Model {
    /// What a lone durable write takes, beside its bytes.
    pub fn answer(&self) -> Duration {
        self.cache.map_or(self.flush, |cache| cache.answer)
    }
}

/// What the medium and its cache are doing.
#[derive(Debug)]
pub struct Medium {
    model: Model,
    free_at_us: u64,
    /// The controller in front of the cache answers one flush at a time.
    answers_at_us: u64,
    /// Where the last write ended: file and offset.
    head: (u64, u64),
    /// What is in the cache: when it will be drained, and how much it is.
    cached: VecDeque<(u64, u64)>,
    cached_bytes: u64,
}

fn us(time: Duration) -> u64 {
    time.as_micros() as u64
}

impl Medium {
    pub fn new(model: Model) -> Medium {
        let cached = VecDeque::new();
        Medium { model, free_at_us: 0, answers_at_us: 0, head: (0, 0), cached, cached_bytes: 0 }
    }

    /// A write begins now; when it has been taken.
    pub fn write(&mut self, now_us: u64, file: u64, offset: u64, bytes: u64) -> u64 {
        let transfer_us = self.model.bandwidth_bytes_per_s.map_or(0, |rate| bytes * 1_000_000 / rate);
        let goes_on = std::mem::replace(&mut self.head, (file, offset + bytes)) == (file, offset);
        match self.model.cache {
            None => self.occupy(now_us, transfer_us),
            Some(cache) => {
                let seek_us = if goes_on { 0 } else { us(self.model.flush) };
                let drained_us = self.occupy(now_us, seek_us + transfer_us);
                self.cached.push_back((drained_us, bytes));
                self.cached_bytes += bytes;
                self.room_at(now_us, cache.bytes)
            }
        }
    }

    /// A sync of what has been written begins now; when it is durable.
    pub fn sync(&mut self, now_us: u64) -> u64 {
        match self.model.cache {
            None => self.occupy(now_us, us(self.model.flush)),
            Some(cache) => {
                self.answers_at_us = self.answers_at_us.max(now_us) + us(cache.answer);
                self.answers_at_us
            }
        }
    }

    fn occupy(&mut self, now_us: u64, time_us: u64) -> u64 {
        self.free_at_us = self.free_at_us.max(now_us) + time_us;
        self.free_at_us
    }

    /// When the cache holds no more than it can.
    fn room_at(&mut self, now_us: u64, capacity_bytes: u64) -> u64 {
        let mut at_us = now_us;
        while let Some(&(drained_us, bytes)) = self.cached.front() {
            if drained_us > now_us && self.cached_bytes <= capacity_bytes {
                break;
            }
            at_us = at_us.max(drained_us);
            self.cached.pop_front();
            self.cached_bytes -= bytes;
        }
        at_us
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DISK: Model = Model { flush: Duration::from_millis(8), bandwidth_bytes_per_s: Some(40_000_000), cache: None };

    #[test]
    fn a_write_through_device_takes_transfer_and_flush_one_after_the_other() {
        let mut disk = Medium::new(DISK);
        assert_eq!(disk.write(0, 1, 0, 400_000), 10_000);
        assert_eq!(disk.sync(10_000), 18_000);
        // Who comes while it is busy waits for it.
        assert_eq!(disk.sync(11_000), 26_000);
        assert_eq!(disk.sync(100_000), 108_000);
    }

    #[test]
    fn a_cache_answers_at_once_until_it_is_full_and_then_as_the_medium_does() {
        let cache = Cache { bytes: 1_000_000, answer: Duration::from_micros(200) };
        let mut device = Medium::new(Model { cache: Some(cache), ..DISK });
        assert_eq!(device.write(0, 1, 0, 800_000), 0);
        assert_eq!(device.sync(0), 200);
        // 600 KB too many: the first write has to be on the medium, behind its seek.
        assert_eq!(device.write(1_000, 1, 800_000, 800_000), 8_000 + 20_000);
        // Drained again, and empty.
        assert_eq!(device.write(1_000_000, 1, 1_600_000, 800_000), 1_000_000);
    }

    #[test]
    fn random_writes_cost_a_sequential_neighbour_its_seeks() {
        let cache = Cache { bytes: 8192, answer: Duration::from_micros(200) };
        let mut device = Medium::new(Model { cache: Some(cache), bandwidth_bytes_per_s: None, ..DISK });
        let mut now = 0;
        for n in 0..100 {
            now = device.write(now, 1, n * 4096, 4096);
        }
        assert_eq!(now, 8_000, "alone only the first write seeks");
        for n in 0..100 {
            now = device.write(now, 2, n * 1_000_000, 4096);
            now = device.write(now, 1, (100 + n) * 4096, 4096);
        }
        assert!(now >= 198 * 8_000, "shared each write seeks: {now}");
    }
}
