//! What does the log lie on? Directories of this machine, tmpfs among them, or log devices that one machine does not have: modelled ones.
//!
//! | part | answers |
//! |---|---|
//! | [`model`] | when would a device with this seek, bandwidth and cache have answered |
//! | [`files`] | real files behind such a device |

pub mod model;
pub mod files;

pub use files::ModelledIo;
pub use model::{Cache, Model};
