//! What do images say, and which pages does the log allocate? Every page's persistent bytes, with where they begin.
//!
//! A page *begins* in its image, which holds every delta up to its S; or, allocated by the log and not imaged since, as zeros; or,
//! if its image is lost, nowhere: then only rows whose whole life is in the log can be told.

use super::Subject;
use super::finding::{Finding, Findings};
use crate::checkpoint::{BadImages, ImagePlace, Images, Manifest};
use crate::ids::{Cts, Epoch, PageNo, RowId, StorageId};
use crate::io::{AlignedBuf, Io};
use crate::mem::{PAGE_WORDS, PageMeta};
use crate::schema::LIVE;
use crate::table::VOLATILE_WORDS;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

/// Where a page's bytes begin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Base {
    Image,
    Zeros,
    Lost,
}

/// One page in its last generation.
pub(super) struct Page {
    pub meta: PageMeta,
    pub base: Base,
    /// Deltas up to here are in the bytes from the start.
    pub snapshot: Cts,
    /// The persistent parts of its slots, one after another.
    pub words: Vec<u64>,
    /// Slots that the image has or had.
    pub imaged_slots: usize,
}

impl Page {
    fn new(meta: PageMeta, base: Base, snapshot: Cts) -> Page {
        let words = vec![0; slots_of(&meta) * record_words(&meta)];
        Page { meta, base, snapshot, words, imaged_slots: 0 }
    }

    pub fn is_of(&self, storage: StorageId, container: u16) -> bool {
        (self.meta.storage, self.meta.container) == (storage, container)
    }

    pub fn is_live(&self, slot: usize) -> bool {
        self.record(slot).is_some_and(|record| record[1] & LIVE != 0)
    }

    pub fn slots(&self) -> usize {
        slots_of(&self.meta)
    }

    pub fn record(&self, slot: usize) -> Option<&[u64]> {
        let words = record_words(&self.meta);
        self.words.get(slot * words..(slot + 1) * words)
    }

    pub fn record_mut(&mut self, slot: usize) -> Option<&mut [u64]> {
        let words = record_words(&self.meta);
        self.words.get_mut(slot * words..(slot + 1) * words)
    }
}

/// Whether slots of this width have a place in a page and for their volatile part.
pub(super) fn is_plausible(meta: &PageMeta) -> bool {
    (VOLATILE_WORDS + 1..=PAGE_WORDS).contains(&usize::from(meta.slot_words))
}

fn slots_of(meta: &PageMeta) -> usize {
    (PAGE_WORDS / usize::from(meta.slot_words).max(1)).min(1 << 12)
}

fn record_words(meta: &PageMeta) -> usize {
    usize::from(meta.slot_words).saturating_sub(VOLATILE_WORDS)
}

#[derive(Default)]
pub(super) struct PageSet {
    pub pages: BTreeMap<PageNo, Page>,
    /// Of every page, as the images know them: an operation of an older one means nothing any more.
    generations: Vec<u32>,
    /// Every change of an earlier epoch is in the images.
    pub complete_below: Epoch,
    /// Other storages' rows are of no interest.
    only: Option<StorageId>,
    pub images: u64,
    pub image_bytes: u64,
}

impl PageSet {
    /// Takes what the log allocates: a later generation begins with zeros.
    pub fn allocate(&mut self, page: PageNo, meta: PageMeta) {
        let known =
            self.pages.get(&page).map(|p| p.meta.generation).max(self.generations.get(page.0 as usize).copied());
        if known.is_none_or(|known| known < meta.generation)
            || !self.pages.contains_key(&page) && known == Some(meta.generation)
        {
            self.pages.insert(page, Page::new(meta, Base::Zeros, Cts::ZERO));
        }
    }

    /// The page that an operation of this generation is for; `None`: the page is another one by now.
    pub fn of_operation(&self, row: RowId, generation: u32) -> Result<Option<&Page>, &'static str> {
        let page = row.page();
        let freed = self.generations.get(page.0 as usize).is_some_and(|&last| generation <= last);
        match self.pages.get(&page) {
            Some(found) if self.only.is_some_and(|only| only != found.meta.storage) => Ok(None),
            Some(found) if found.meta.generation == generation => Ok(Some(found)),
            Some(found) if found.meta.generation > generation => Ok(None),
            _ if freed => Ok(None),
            _ => Err("an operation on a page that was never allocated"),
        }
    }
}

/// Reads every image in force, or of others than the `only` storage just the heads.
pub(super) fn load_images(
    io: &Arc<dyn Io>,
    subject: &Subject,
    manifest: &Manifest,
    only: Option<StorageId>,
    findings: &mut Findings,
) -> PageSet {
    let (images, wrong) = Images::survey(io, &subject.data_dir, &subject.backup_dirs, manifest);
    for bad in wrong {
        findings.push(Finding::damage(bad.reason).in_file(&bad.path, bad.offset));
    }
    let (generations, complete_below) = (images.generations.clone(), images.complete_below);
    let mut set = PageSet { generations, complete_below, only, ..PageSet::default() };
    let mut buffer = AlignedBuf::new();
    for image in &images.images {
        if only.is_some_and(|only| only != image.head.meta.storage) {
            let (meta, words) = (image.head.meta, Vec::new());
            let (snapshot, imaged_slots) = (image.head.snapshot, image.head.slots as usize);
            set.pages.insert(image.head.page, Page { meta, base: Base::Image, snapshot, words, imaged_slots });
            continue;
        }
        match read_image(&images, image, &mut buffer) {
            Ok(page) => {
                set.images += 1;
                set.image_bytes += image.payload_bytes() as u64;
                set.pages.insert(image.head.page, page);
            }
            Err(bad) => {
                let finding = Finding::damage(bad.reason).in_file(&bad.path, bad.offset);
                findings.push(Finding { storage: Some(image.head.meta.storage), ..finding });
                if is_plausible(&image.head.meta) {
                    let mut page = Page::new(image.head.meta, Base::Lost, image.head.snapshot);
                    page.imaged_slots = image.head.slots as usize;
                    set.pages.insert(image.head.page, page);
                }
            }
        }
    }
    set
}

fn read_image(images: &Images, image: &ImagePlace, buffer: &mut AlignedBuf) -> Result<Page, BadImages> {
    let head = &image.head;
    if !is_plausible(&head.meta) || head.slots as usize > slots_of(&head.meta) {
        return Err(images.bad(image, format!("the image of page {} does not fit a page", head.page.0)));
    }
    let mut page = Page::new(head.meta, Base::Image, head.snapshot);
    page.imaged_slots = head.slots as usize;
    let payloads = images.read_run(std::slice::from_ref(image), buffer)?;
    let words = payloads.iter().flat_map(|payload| payload.chunks_exact(8));
    let words = words.map(|word| u64::from_le_bytes(word.try_into().expect("8 bytes")));
    page.words.iter_mut().zip(words).for_each(|(to, from)| *to = from);
    Ok(page)
}

/// Puts older images in the place of lost ones. Says which pages thereby lack changes: all changes of epochs from `needed` on are in the
/// log. Without a manifest the newest image of each page's last generation is in force, as far as anyone can tell.
pub(super) fn rummage(
    io: &Arc<dyn Io>,
    dirs: &[PathBuf],
    set: &mut PageSet,
    needed: Option<Epoch>,
) -> BTreeMap<PageNo, Cts> {
    let is_lost = |page: &Page| page.base == Base::Lost;
    let mut stale = BTreeMap::new();
    if needed.is_some() && !set.pages.values().any(is_lost) {
        return stale;
    }
    let mut left = Images::rummage(io, dirs);
    let mut candidates = std::mem::take(&mut left.images);
    candidates.sort_by_key(|i| std::cmp::Reverse((i.head.meta.generation, i.head.snapshot)));
    let mut buffer = AlignedBuf::new();
    for image in &candidates {
        let wanted = match set.pages.get(&image.head.page) {
            Some(page) => is_lost(page) && page.meta == image.head.meta,
            None => needed.is_none(),
        };
        let Some(page) = wanted.then(|| read_image(&left, image, &mut buffer).ok()).flatten() else { continue };
        if needed.is_some_and(|needed| image.head.snapshot.epoch().0 + 1 < needed.0) {
            stale.insert(image.head.page, image.head.snapshot);
        }
        set.pages.insert(image.head.page, page);
    }
    stale
}
