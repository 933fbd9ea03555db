//! Is the simulator itself to be trusted?
//!
//! | module | question |
//! |---|---|
//! | `schedules` | does a seed repeat, does it try things, is nothing found |
//! | `histories` | does what threads see have an order, and is it seen where it has none |
//! | `planted` | is each planted bug found by the seed that found it first |

mod histories;
#[cfg(feature = "planted")]
mod planted;
mod schedules;
