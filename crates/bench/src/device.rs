//! What does the log lie on, if not on directories of this machine? On devices that it does not have, or on disks without a file system.
//!
//! | part | answers |
//! |---|---|
//! | [`model`] | when would a device with this seek, bandwidth and cache have answered |
//! | [`files`] | real files behind such a device |
//! | [`raw`] | a block device that shows itself as a directory |

pub mod model;
pub mod files;
pub mod raw;

pub use files::ModelledIo;
pub use model::{Cache, Model};
pub use raw::{RawDevice, RawIo};

use freshet_engine::io::Io;
use std::sync::Arc;

/// The files of a log that lies on one or the other.
#[derive(Clone, Debug)]
pub enum LogFiles {
    Modelled(Arc<ModelledIo>),
    Raw(Arc<RawIo>),
}

impl LogFiles {
    pub fn io(&self) -> Arc<dyn Io> {
        match self {
            LogFiles::Modelled(io) => io.clone(),
            LogFiles::Raw(io) => io.clone(),
        }
    }
}
