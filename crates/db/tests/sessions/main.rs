//! Sessions beside each other, driven in steps, so that every run is the same.

mod blocks;
mod boundaries;
mod constraints;
mod copying;
mod deadlocks;
mod embedded;
mod enums;
mod histories;
mod locks;
#[cfg(feature = "query")]
mod plans;
mod public;
#[cfg(feature = "query")]
mod query;
mod queue;
mod rights;
mod temporary;
mod world;
