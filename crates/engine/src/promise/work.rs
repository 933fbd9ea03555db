//! What does a restart read and make? Amounts by kind of work.

/// A kind of work whose time grows with its amount.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Work {
    /// Bytes of log read and checked: whole segments.
    Log,
    /// Bytes of images read, checked and put in place.
    Images,
    /// Deltas applied.
    Deltas,
    /// Slots looked at for their rows and for free ones.
    Slots,
    HashEntries,
    TreeEntries,
}

impl Work {
    pub const COUNT: usize = 6;
    pub const ALL: [Work; Work::COUNT] =
        [Work::Log, Work::Images, Work::Deltas, Work::Slots, Work::HashEntries, Work::TreeEntries];

    pub fn name(self) -> &'static str {
        match self {
            Work::Log => "log scan",
            Work::Images => "image load",
            Work::Deltas => "delta replay",
            Work::Slots => "row restore",
            Work::HashEntries => "hash index rebuild",
            Work::TreeEntries => "btree index rebuild",
        }
    }

    pub fn unit(self) -> &'static str {
        match self {
            Work::Log | Work::Images => "bytes",
            Work::Deltas => "deltas",
            Work::Slots => "slots",
            Work::HashEntries | Work::TreeEntries => "entries",
        }
    }

    /// Of less than this the time says more about what surrounds the work than about the work.
    pub(super) fn worth_measuring(self) -> u64 {
        match self {
            Work::Log | Work::Images => 4 << 20,
            Work::Deltas | Work::Slots | Work::HashEntries | Work::TreeEntries => 20_000,
        }
    }
}

/// Amounts by kind of work, each in its unit.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Workload([u64; Work::COUNT]);

impl std::ops::Index<Work> for Workload {
    type Output = u64;

    fn index(&self, work: Work) -> &u64 {
        &self.0[work as usize]
    }
}

impl std::ops::IndexMut<Work> for Workload {
    fn index_mut(&mut self, work: Work) -> &mut u64 {
        &mut self.0[work as usize]
    }
}
