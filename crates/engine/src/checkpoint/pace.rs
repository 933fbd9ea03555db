//! How fast does a checkpoint go when nobody waits for it? Fast enough for the log, for the restart promise, and no faster.
//!
//! | wish | bytes of images per second |
//! |---|---|
//! | the floor | as set: it ends in reasonable time although nothing hurries it |
//! | the log | what is left, over the time until the log is [`LOG_GOAL_PERCENT`] full as it has been filling |
//! | a deadline | what is left, over the time until then |
//!
//! The largest wish counts, with a margin, because what is left is an estimate. A log that is fuller than the goal, a request, and a session
//! that waits for log space end the pacing.

/// A checkpoint is over before the log is so full.
pub(super) const LOG_GOAL_PERCENT: u64 = 70;
const MARGIN: f64 = 1.3;

/// What the rate depends on.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Load {
    pub floor_bytes_per_s: u64,
    /// Images still to be written.
    pub left_bytes: u64,
    pub log_used_bytes: u64,
    pub log_capacity_bytes: u64,
    /// How fast the log has been filling.
    pub log_bytes_per_s: f64,
    /// Until the deadline, if there is one.
    pub due_in_us: Option<u64>,
}

/// Bytes per second; `None`: as fast as it goes.
pub(super) fn rate(load: &Load) -> Option<u64> {
    let goal_bytes = load.log_capacity_bytes / 100 * LOG_GOAL_PERCENT;
    let room_bytes = goal_bytes.saturating_sub(load.log_used_bytes);
    if room_bytes == 0 || load.due_in_us == Some(0) {
        return None;
    }
    let left = load.left_bytes as f64 * MARGIN;
    let for_log = left * load.log_bytes_per_s / room_bytes as f64;
    let for_deadline = load.due_in_us.map_or(0.0, |us| left * 1e6 / us as f64);
    Some((for_log.max(for_deadline) as u64).max(load.floor_bytes_per_s).max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn quiet() -> Load {
        Load {
            floor_bytes_per_s: 32 * MIB,
            left_bytes: 1000 * MIB,
            log_used_bytes: 2000 * MIB,
            log_capacity_bytes: 4000 * MIB,
            log_bytes_per_s: 0.0,
            due_in_us: None,
        }
    }

    #[test]
    fn the_largest_wish_counts() {
        assert_eq!(rate(&quiet()), Some(32 * MIB));
        // 800 MiB of log until the goal at 80 MiB/s are 10 s for 1000 MiB of images.
        let busy = Load { log_bytes_per_s: 80.0 * MIB as f64, ..quiet() };
        assert_eq!(rate(&busy), Some(130 * MIB));
        let promised = Load { due_in_us: Some(5_000_000), ..busy };
        assert_eq!(rate(&promised), Some(260 * MIB));
    }

    #[test]
    fn a_full_log_and_a_deadline_that_has_passed_end_the_pacing() {
        assert_eq!(rate(&Load { log_used_bytes: 2800 * MIB, ..quiet() }), None);
        assert_eq!(rate(&Load { due_in_us: Some(0), ..quiet() }), None);
    }
}
