//! What replaces the log? Page images as of a timestamp, and the manifest that says which are in force.
//!
//! | file in the data directory | content |
//! |---|---|
//! | `manifest` | the images in force and where the needed log begins; replaced by atomic rename |
//! | `images-N` | one checkpoint: every page's image, then every page's generation |
//!
//! Invariants:
//!
//! 1. An image as of S contains exactly the deltas with cts <= S: newer and uncommitted versions are taken off the copy (DESIGN invariant 5).
//! 2. S is the end of a durable epoch, so an image is usable as soon as it is written.
//! 3. The log's start is fixed from what was durable *before* the first page was copied, and from fragments of commits that were not: every
//!    delta that an image may lack lies at or above it.
//! 4. The images, their name included, are durable before the manifest names them; the manifest is durable before the log below its start is
//!    recycled and before older images are removed. A number of images is never used twice.
//! 5. A page whose allocation was not durable when the checkpoint began has no image: the log has all of it, or neither has anything.
//!
//! Formats byte by byte: `docs/internals/checkpoint.md`. After HyPer's and CALC's observation that a version chain makes a checkpoint a snapshot
//! read per page.

mod image;
mod manifest;

pub(crate) use image::{BadImages, ImageFile, ImageHead, ImagePlace};
pub(crate) use manifest::{Manifest, ManifestError};

use crate::ids::{Cts, Epoch, PageNo};
use crate::io::Io;
use crate::txn::core::Core;
use image::ImageWriter;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Pages imaged by one step: a few hundred microseconds.
const PAGES_PER_STEP: u32 = 8;

/// What a step of a checkpoint did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Progress {
    Working,
    Done,
}

/// A checkpoint under way: a state machine, stepped from outside.
pub(crate) struct Checkpoint {
    core: Arc<Core>,
    io: Arc<dyn Io>,
    dir: PathBuf,
    manifest: Manifest,
    writer: ImageWriter,
    next_page: u32,
    /// What was durable before the first page was copied.
    durable: Epoch,
    log_from: Epoch,
    relied_on: Epoch,
}

/// What is durable, and where the log would begin that a checkpoint started now would need.
pub(crate) fn needed_from(core: &Core) -> (Epoch, Epoch) {
    // In this order (module invariant 3): first what is durable, then whose fragments are not yet.
    let durable = core.log.durable();
    let after = Epoch(durable.0 + 1);
    let fragment = core.first_fragment_after(Cts::last_of(durable));
    (durable, fragment.map_or(after, |epoch| epoch.min(after)))
}

impl Checkpoint {
    /// Starts a checkpoint that will replace what `manifest` names. Its `number` was never used before, not even by one that failed: the
    /// manifest on disk may name that one's images all the same.
    pub fn start(
        core: &Arc<Core>,
        io: &Arc<dyn Io>,
        dir: &Path,
        manifest: &Manifest,
        number: u64,
    ) -> io::Result<Checkpoint> {
        let (durable, log_from) = needed_from(core);
        let mut manifest = manifest.clone();
        manifest.checkpoint = number;
        let writer = ImageWriter::create(io, &dir.join(manifest.images_name()))?;
        Ok(Checkpoint {
            core: core.clone(),
            io: io.clone(),
            dir: dir.to_path_buf(),
            manifest,
            writer,
            next_page: 0,
            durable,
            log_from,
            relied_on: Epoch(0),
        })
    }

    /// Images some pages, or finishes.
    pub fn step(&mut self) -> io::Result<Progress> {
        let end = self.core.pages.high_water();
        if self.next_page < end {
            let until = end.min(self.next_page + PAGES_PER_STEP);
            self.image_pages(until)?;
            return Ok(Progress::Working);
        }
        self.publish()?;
        Ok(Progress::Done)
    }

    fn image_pages(&mut self, until: u32) -> io::Result<()> {
        let core = self.core.clone();
        let place = core.sessions.place(core.checkpoint_reader);
        let snapshot = place.register_durable(&core.log, Cts::ZERO).expect("nothing is below zero");
        self.relied_on = self.relied_on.max(snapshot.epoch());
        let mut written = Ok(());
        while written.is_ok() && self.next_page < until {
            written = self.image_page(PageNo(self.next_page), snapshot);
            self.next_page += 1;
        }
        place.unregister();
        written
    }

    fn image_page(&mut self, page: PageNo, snapshot: Cts) -> io::Result<()> {
        // The list is latched: a storage in it keeps its pages.
        let stores = self.core.stores.read();
        let Some(meta) = self.core.pages.meta(page) else { return Ok(()) };
        // The log that is kept has the page's allocation and all its deltas. An image would outlive them if their epoch is lost.
        if self.core.pages.allocated_in(page) > self.durable {
            return Ok(());
        }
        let Some(container) = stores.get(&meta.storage).and_then(|s| s.container(meta.container)) else {
            return Ok(());
        };
        let first = u64::from(meta.ordinal) * container.slots_per_page();
        let slots = container.high_water().saturating_sub(first).min(container.slots_per_page());
        let mut payload = vec![0u64; slots as usize * container.persistent_words()];
        for (slot, record) in payload.chunks_exact_mut(container.persistent_words()).enumerate() {
            self.core.read_raw(container, crate::ids::RowId::new(page, slot as u16), snapshot, record);
        }
        let incarnation = self.core.log.incarnation();
        self.writer.put(&ImageHead { page, meta, snapshot, incarnation, slots: slots as u32 }, &payload)
    }

    /// Makes the images durable, then the manifest, then recycles the log.
    fn publish(&mut self) -> io::Result<()> {
        let generations = (0..self.core.pages.high_water()).map(|p| self.core.pages.generation(PageNo(p)));
        self.manifest.images_bytes = self.writer.finish(generations)?;
        // The images' name first: the rename of the manifest must not survive a power cut without it.
        self.io.sync_dir(&self.dir)?;
        self.manifest.relied_on = self.relied_on;
        self.manifest.log_start = self.core.log.log_start(self.log_from);
        self.manifest.incarnation = self.core.log.incarnation();
        self.manifest.save(&self.io, &self.dir)?;
        self.core.log.recycle_below(&self.manifest.log_start).map_err(io::Error::other)?;
        self.remove_older()
    }

    fn remove_older(&self) -> io::Result<()> {
        let keep = self.manifest.images_name();
        for name in self.io.list(&self.dir)?.into_iter().filter(|n| n.starts_with("images-") && *n != keep) {
            self.io.remove(&self.dir.join(name))?;
        }
        self.io.sync_dir(&self.dir)
    }

    /// The manifest that is in force once the checkpoint is done.
    pub fn into_manifest(self) -> Manifest {
        self.manifest
    }
}
