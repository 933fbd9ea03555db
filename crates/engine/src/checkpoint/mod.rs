//! What replaces the log? Page images as of a timestamp, and the manifest that says which are in force.
//!
//! | file | in | content |
//! |---|---|---|
//! | `manifest` | the data directory | the images in force and where the needed log begins; replaced by atomic rename |
//! | `images-N` | the backup directories | a segment of images, appended to |
//!
//! | module | question |
//! |---|---|
//! | [`image`] | what is an image, how is it read back |
//! | [`manifest`] | which images and which log are in force |
//! | [`segment`] | which files do images go to |
//! | [`removal`] | how is the space of those given back that nobody needs |
//! | [`attempt`] | what does one checkpoint do |
//! | [`pace`] | how fast |
//! | [`control`] | when, and what if it fails |
//!
//! Invariants:
//!
//! 1. An image as of S contains exactly the deltas with cts <= S: newer and uncommitted versions are taken off the copy (DESIGN invariant 5).
//! 2. S is the end of a durable epoch, so an image is usable as soon as it is written.
//! 3. A page's mark (`mem::mark`) is at or below every durable change that its published image lacks. The log's start is at or below the
//!    lowest of: the epoch after the durable one, read first; all marks, read then, as they will be once the manifest is in force; and the
//!    first fragment of every commit that lies at or above those, read last. So every delta that an image lacks is in the log.
//! 4. What a manifest names is durable before it, names of files included. The manifest is durable before marks rise, before log is
//!    recycled, and before segments are removed.
//! 5. What a manifest names is never written again, and no number of a segment is used twice.
//! 6. A page is imaged only once its allocation is at or below S: the log has all of it until then, or neither has anything.
//!
//! Formats byte by byte, and the proofs: `docs/internals/checkpoint.md`. After HyPer's and CALC's observation that a version chain makes a
//! checkpoint a snapshot read per page.

mod image;
mod manifest;
mod segment;
mod removal;
mod attempt;
mod pace;
mod control;

/// A file in the data directory: somebody makes this database of another one's remains, or gave up doing so. Nobody opens it.
pub(crate) const IN_MAKING: &str = "unfinished";

pub use control::{CheckpointFailure, CheckpointProgress, CheckpointReport};
pub(crate) use control::{Checkpointer, Settings, Turn};
pub(crate) use image::{BadImages, ImagePlace, Images};
pub(crate) use manifest::{Manifest, ManifestError};

use crate::ids::{Epoch, PageNo};
use crate::mem::Pages;
use std::io;
use std::path::{Path, PathBuf};

/// What went wrong, and where.
#[derive(Debug)]
pub(crate) struct Failure {
    pub action: &'static str,
    pub path: PathBuf,
    pub error: io::Error,
}

impl Failure {
    fn new(action: &'static str, path: &Path, error: io::Error) -> Failure {
        Failure { action, path: path.to_path_buf(), error }
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "cannot {} {}: {}", self.action, self.path.display(), self.error)
    }
}

/// After a replay of the log from `log_start`, which noted the pages that it changed: a page without an image of its own has nothing but
/// the log.
pub(crate) fn restore_marks(pages: &Pages, images: Option<&Images>, log_start: Epoch) {
    let mut imaged = vec![false; pages.high_water() as usize];
    for image in images.iter().flat_map(|i| &i.images) {
        if let Some(imaged) = imaged.get_mut(image.head.page.0 as usize) {
            *imaged = pages.meta(image.head.page) == Some(image.head.meta);
        }
    }
    for (page, _) in imaged.iter().enumerate().filter(|(_, imaged)| !**imaged) {
        let page = PageNo(page as u32);
        if pages.meta(page).is_some() {
            pages.note_change(page, log_start);
        }
    }
}
