//! What things are called: identifiers with one meaning each.
//!
//! | id | bits | meaning |
//! |---|---|---|
//! | [`PageNo`] | 28 | position of a 64 KiB page in the reserved range |
//! | [`RowId`] | 40 | page 28, slot 12 |
//! | [`Epoch`] | 44 | what one flush of all devices makes durable together |
//! | [`Cts`] | 64 | commit timestamp: epoch 44, sequence 20 |
//! | [`StorageId`] | 32 | one incarnation of a table's pages (TRUNCATE gives a table a new one) |

use std::fmt;

/// A 64 KiB page's position in the reserved address range (28 bits).
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PageNo(pub u32);

/// A row's physical identity: page 28 bits, slot 12 bits. Stable from insert until the slot is reused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RowId(pub u64);

impl RowId {
    pub const BITS: u32 = 40;
    pub const MAX: RowId = RowId((1 << Self::BITS) - 1);

    pub fn new(page: PageNo, slot: u16) -> RowId {
        debug_assert!(page.0 < 1 << 28 && slot < 1 << 12);
        RowId(u64::from(page.0) << 12 | u64::from(slot))
    }

    pub fn page(self) -> PageNo {
        PageNo((self.0 >> 12) as u32)
    }

    pub fn slot(self) -> u16 {
        (self.0 & 0xfff) as u16
    }
}

impl fmt::Debug for RowId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.page().0, self.slot())
    }
}

/// An epoch: the commits that become durable together. Never repeats over the life of a database.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Epoch(pub u64);

/// A commit timestamp: `epoch << 20 | sequence`. Zero is older than every commit.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Cts(pub u64);

impl Cts {
    pub const SEQUENCE_BITS: u32 = 20;
    pub const ZERO: Cts = Cts(0);
    pub const MAX: Cts = Cts(u64::MAX);

    pub fn first_of(epoch: Epoch) -> Cts {
        Cts(epoch.0 << Self::SEQUENCE_BITS)
    }

    /// The largest timestamp of `epoch`; the end of the durable epoch D is `Cts::last_of(D)`.
    #[inline]
    pub fn last_of(epoch: Epoch) -> Cts {
        Cts((epoch.0 << Self::SEQUENCE_BITS) | ((1 << Self::SEQUENCE_BITS) - 1))
    }

    pub fn epoch(self) -> Epoch {
        Epoch(self.0 >> Self::SEQUENCE_BITS)
    }
}

impl fmt::Debug for Cts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.epoch().0, self.0 & 0xfffff)
    }
}

/// One incarnation of a table's pages. A table keeps its id through TRUNCATE and gets a new storage.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct StorageId(pub u32);

/// A log device (a log directory): its position in the device set, stable over the life of a database.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct DeviceId(pub u16);
