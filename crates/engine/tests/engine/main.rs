//! What the engine promises, tried from outside.
//!
//! | module | question |
//! |---|---|
//! | `world` | what do the tests share |
//! | `transactions` | what do one and two sessions see |
//! | `locks` | who may hold what beside whom |
//! | `histories` | do many transactions leave a history that their level allows |
//! | `ids` | is an id given twice |
//! | `serial` | does SERIALIZABLE hold beside a transaction's own DDL and after errors |
//! | `columns` | is a column added without a row being touched |
//! | `model` | do many sessions agree with a map of versions |
//! | `snapshots` | what does a snapshot keep that is held for long |
//! | `held` | what does memory keep beside it |
//! | `newest` | what does a read see that looks at no older version
//! | `once` | is a row inserted or deleted in one go as in many steps |
//! | `fast` | do single statements beside whole transactions leave a history that one at a time could have left |
//! | `threads` | does it hold with real threads on real files |
//! | `faults` | what happens when a device, a disk or the memory gives out |
//! | `crash` | what does a power cut leave |
//! | `recovery` | do deltas commute |
//! | `checkpoint` | which pages are imaged, what happens to the files |
//! | `descriptors` | how many files are open |
//! | `format` | can old files be read |
//! | `damaged` | what do checks and salvages damage |
//! | `inspect` | is damage found, and only damage |
//! | `salvage` | what is saved of a damaged database |
//! | `memory` | what does the memory limit refuse, and what goes on |
//! | `moved` | whose is a directory that is moved or replaced while it is served |
//! | `races` | do the orders hold that protocols get wrong |
//! | `promise` | does the engine hold the time that a restart may take |
//! | `load` | is a bulk load all or nothing |
//! | `layering` | do the sources keep the rules of the house |

mod world;

mod checkpoint;
mod columns;
mod crash;
mod cuts;
mod cycles;
mod damaged;
mod descriptors;
mod fast;
mod faults;
mod format;
mod held;
mod hotspot;
mod ids;
mod inspect;
mod histories;
mod layering;
mod locks;
mod load;
mod memory;
mod model;
mod moved;
mod newest;
mod once;
mod promise;
mod races;
mod recovery;
mod salvage;
mod serial;
mod snapshots;
mod threads;
mod transactions;
