//! Is the simulator itself to be trusted?
//!
//! | module | question |
//! |---|---|
//! | `schedules` | does a seed repeat, does it try things, is nothing found |
//! | `planted` | is each planted bug found by the seed that found it first |

#[cfg(feature = "planted")]
mod planted;
mod schedules;
