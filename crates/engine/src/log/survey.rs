//! What is left of a log? Everything that checks, and everything that should and does not, where a recovery stops at the first.
//!
//! [`scan`](super::scan()) gives the verdict on which a database opens. A survey only looks, goes on behind what is broken, and
//! leaves the verdict to whoever asks: an inspection that lists all damage, a salvage that takes what is whole.
//!
//! 1. A group is *found* if header and body check at the place that the header names, exactly as for a recovery.
//! 2. A *broken* group is one whose header names its own place, or nearly so, and that does not check. In a tail that was never
//!    acknowledged there may be some, and in files that wait to be used again.
//! 3. What the fence voids is void here too. Without any copy of the fence the groups themselves tell: an incarnation's first
//!    group names the last epoch before it that is valid.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::ids::{DeviceId, Epoch};
use crate::io::{AlignedBuf, BLOCK_BYTES, File, Io};

use super::fence::{self, FenceList};
use super::group::{GroupHeader, NoHeader, group_bytes, u64_at};
use super::scan::Place;
use super::segment;
use super::{DatabaseId, Incarnation, LogDamage, LogOptions, LogStart};

/// Read at once where nothing fails.
const WINDOW_BYTES: u64 = 1 << 20;
const BLOCK: u64 = BLOCK_BYTES as u64;

/// A group that checks.
pub(crate) struct Found {
    pub header: GroupHeader,
    path: Arc<PathBuf>,
    file: Arc<dyn File>,
}

impl Found {
    pub fn place(&self) -> Place {
        let GroupHeader { offset, device, epoch, .. } = self.header;
        Place { path: self.path.to_path_buf(), offset, device, epoch }
    }

    /// Reads the body, which checked a moment ago.
    pub fn read_body<'b>(&self, buf: &'b mut AlignedBuf) -> Result<&'b [u8], LogDamage> {
        let start = self.header.bytes();
        buf.resize(group_bytes(self.header.participants.len(), self.header.body_bytes) as usize);
        self.file.read_at(buf, self.header.offset).map_err(|error| LogDamage::io("read", &self.path, error))?;
        let body = &buf[start..start + self.header.body_bytes as usize];
        match crc32c::crc32c(body) == self.header.body_crc {
            true => Ok(body),
            false => Err(LogDamage::Unreadable { place: self.place() }),
        }
    }
}

/// What was a group, or was to be one.
pub(crate) struct Broken {
    /// The epoch as its header says it, which may be what is broken.
    pub place: Place,
    pub reason: &'static str,
}

/// A group that must have been there.
pub(crate) struct Gap {
    /// Where it should be.
    pub place: Place,
    pub reason: String,
}

#[derive(Default)]
pub(crate) struct Survey {
    /// By epoch, device and group, each (incarnation, device, group) once.
    pub found: Vec<Found>,
    pub broken: Vec<Broken>,
    /// Directories, files and copies of the fence that are not what they should be.
    pub problems: Vec<LogDamage>,
    /// Copies of the fence that lack records of the others: an extension that was cut short, or damage. The next open completes them.
    pub short_fences: Vec<PathBuf>,
    fence: Option<FenceList>,
    dirs: Vec<PathBuf>,
    pub bytes: u64,
}

/// Looks at everything. `database` is the manifest's, if there is one; `read` is told how many bytes were just read.
pub(crate) fn survey(
    io: &dyn Io,
    options: &LogOptions,
    start: &LogStart,
    database: Option<DatabaseId>,
    read: &mut dyn FnMut(u64),
) -> Survey {
    let fences = fence::survey(io, options, start);
    let mut survey = Survey {
        fence: fences.list,
        problems: fences.problems,
        short_fences: fences.short,
        dirs: options.dirs.clone(),
        ..Survey::default()
    };
    let database = database.or_else(|| survey.fence.as_ref().map(FenceList::database));
    for (i, dir) in options.dirs.iter().chain(&options.retired_dirs).enumerate() {
        survey.read_dir(io, DeviceId(i as u16), dir, database, read);
    }
    survey.found.sort_by_key(|f| (f.header.epoch, f.header.device, f.header.group));
    let mut seen = BTreeSet::new();
    survey.found.retain(|f| seen.insert((f.header.incarnation, f.header.device, f.header.group)));
    survey
}

impl Survey {
    pub fn fence(&self) -> Option<&FenceList> {
        self.fence.as_ref()
    }

    fn read_dir(
        &mut self,
        io: &dyn Io,
        device: DeviceId,
        dir: &Path,
        database: Option<DatabaseId>,
        read: &mut dyn FnMut(u64),
    ) {
        let names = match io.list(dir) {
            Ok(names) => names,
            Err(error) => return self.problems.push(LogDamage::io("list", dir, error)),
        };
        for number in names.iter().filter_map(|name| segment::parse_name(name)) {
            let path = dir.join(segment::file_name(number));
            let opened = io.open_to_read(&path).and_then(|file| Ok((file.len()?, file)));
            match opened {
                Ok((bytes, file)) => {
                    let mut reading = Reading {
                        survey: self,
                        path: Arc::new(path),
                        file,
                        bytes: bytes / BLOCK * BLOCK,
                        device,
                        number: number.0,
                        database,
                        window: AlignedBuf::new(),
                        start: 0,
                    };
                    reading.run(read);
                }
                Err(error) => self.problems.push(LogDamage::io("open", &path, error)),
            }
        }
    }

    /// Whether no fence voids the group.
    pub fn is_valid(&self, header: &GroupHeader) -> bool {
        let range = match &self.fence {
            Some(fence) => fence.valid_epochs(header.incarnation),
            None => Some((Epoch(0), self.horizon_of(header.incarnation))),
        };
        range.is_some_and(|(first, last)| first <= header.epoch && header.epoch <= last)
    }

    /// Without a fence: what the first group of the next incarnation names as its predecessor.
    fn horizon_of(&self, incarnation: Incarnation) -> Epoch {
        let later = self.found.iter().map(|f| &f.header).filter(|header| header.incarnation > incarnation);
        let next = later.min_by_key(|header| (header.incarnation, header.epoch));
        next.map_or(Epoch(u64::MAX), |header| header.prev_epoch)
    }

    /// Where the valid groups begin, for who has no manifest.
    pub fn first(&self) -> LogStart {
        let first = self.found.iter().map(|f| &f.header).find(|header| self.is_valid(header));
        first.map_or_else(LogStart::default, |header| LogStart {
            epoch: header.epoch,
            prev: header.prev_epoch,
            incarnation: header.incarnation,
            devices: Vec::new(),
        })
    }

    /// Epochs that are valid, from `start` on, each with whether all its groups are there.
    pub fn epochs(&self, start: Epoch) -> BTreeMap<Epoch, bool> {
        let mut epochs: BTreeMap<Epoch, Vec<&GroupHeader>> = BTreeMap::new();
        for found in self.found.iter().filter(|f| f.header.epoch >= start && self.is_valid(&f.header)) {
            epochs.entry(found.header.epoch).or_default().push(&found.header);
        }
        epochs.into_iter().map(|(epoch, groups)| (epoch, super::scan::missing_from(&groups).is_none())).collect()
    }

    /// The largest epoch that any valid group proves to have been acknowledged.
    pub fn witnessed(&self) -> Epoch {
        let witnesses = self.found.iter().filter(|f| self.is_valid(&f.header)).map(|f| f.header.witness);
        let fence = self.fence.as_ref().map(|fence| fence.newest().horizon);
        witnesses.chain(fence).max().unwrap_or_default()
    }

    /// Every group up to `end` that another one names and that is not there.
    pub fn gaps(&self, start: Epoch, prev: Epoch, end: Epoch) -> Vec<Gap> {
        let mut gaps = Vec::new();
        let mut last = prev;
        let valid: Vec<_> =
            self.found.iter().map(|f| &f.header).filter(|h| h.epoch >= start && self.is_valid(h)).collect();
        for groups in valid.chunk_by(|a, b| a.epoch == b.epoch).take_while(|groups| groups[0].epoch <= end) {
            let first = groups[0];
            if first.prev_epoch != last {
                let place = self.place_before(first);
                let reason = format!("epoch {} is missing, which epoch {} follows", first.prev_epoch.0, first.epoch.0);
                gaps.push(Gap { place: Place { epoch: first.prev_epoch, ..place }, reason });
            }
            let named = first
                .participants
                .iter()
                .filter(|p| !groups.iter().any(|g| g.device == p.device && g.group == p.group));
            for participant in named {
                let place = self.place_behind(participant.device, participant.group.0, first.epoch);
                let reason = format!("group {} of epoch {} is missing", participant.group.0, first.epoch.0);
                gaps.push(Gap { place, reason });
            }
            last = first.epoch;
        }
        if last < end {
            let place = self.place_behind(DeviceId(0), u64::MAX, Epoch(last.0 + 1));
            gaps.push(Gap {
                place,
                reason: format!("the log ends at epoch {}, epoch {} was acknowledged", last.0, end.0),
            });
        }
        gaps
    }

    /// Where a group of this number lies: behind the one before it on its device.
    fn place_behind(&self, device: DeviceId, group: u64, epoch: Epoch) -> Place {
        let before = self.found.iter().filter(|f| f.header.device == device && f.header.group.0 < group);
        match before.max_by_key(|f| f.header.group) {
            Some(found) => {
                let bytes = group_bytes(found.header.participants.len(), found.header.body_bytes);
                Place { offset: found.header.offset + bytes, epoch, ..found.place() }
            }
            None => {
                let path = self.dirs.get(usize::from(device.0)).cloned().unwrap_or_default();
                Place { path, offset: 0, device, epoch }
            }
        }
    }

    /// Where the epoch before this group's should be: behind the group before it, or where its incarnation begins.
    fn place_before(&self, header: &GroupHeader) -> Place {
        let own = |f: &&Found| f.header.device == header.device && f.header.incarnation == header.incarnation;
        let first = self.found.iter().filter(own).min_by_key(|f| f.header.group);
        match first {
            Some(first) if first.header.group == header.group => {
                Place { offset: 0, epoch: header.prev_epoch, ..first.place() }
            }
            _ => self.place_behind(header.device, header.group.0, header.prev_epoch),
        }
    }
}

/// One segment being read.
struct Reading<'a> {
    survey: &'a mut Survey,
    path: Arc<PathBuf>,
    file: Arc<dyn File>,
    bytes: u64,
    device: DeviceId,
    number: u64,
    database: Option<DatabaseId>,
    window: AlignedBuf,
    start: u64,
}

impl Reading<'_> {
    fn run(&mut self, read: &mut dyn FnMut(u64)) {
        let mut offset = 0;
        let mut failed = false;
        while offset < self.bytes {
            let next = match self.load(offset, BLOCK) {
                Ok(()) => {
                    failed = false;
                    self.look_at(offset)
                }
                Err(error) => {
                    if !std::mem::replace(&mut failed, true) {
                        self.survey.problems.push(error);
                    }
                    offset + BLOCK
                }
            };
            read(next - offset);
            offset = next;
        }
        self.survey.bytes += self.bytes;
    }

    /// Brings `bytes` from `offset` into the window, and more where that is possible.
    fn load(&mut self, offset: u64, bytes: u64) -> Result<(), LogDamage> {
        if offset >= self.start && offset + bytes <= self.start + self.window.len() as u64 {
            return Ok(());
        }
        let ahead = bytes.max(WINDOW_BYTES).min(self.bytes - offset);
        for length in [ahead, bytes] {
            self.window.resize(length as usize);
            self.start = offset;
            match self.file.read_at(&mut self.window, offset) {
                Ok(()) => return Ok(()),
                Err(error) if length == bytes => {
                    self.window.clear();
                    return Err(LogDamage::io("read", &self.path, error));
                }
                Err(_) => {}
            }
        }
        Ok(())
    }

    fn at(&self, offset: u64, bytes: u64) -> &[u8] {
        let start = (offset - self.start) as usize;
        &self.window[start..start + bytes as usize]
    }

    /// Takes what begins at `offset`; says where to go on.
    fn look_at(&mut self, offset: u64) -> u64 {
        let block = self.at(offset, BLOCK);
        let (segment, database) = (self.number, self.database);
        match GroupHeader::decode(block) {
            Ok(header) if database.is_some_and(|d| d != header.database) => offset + BLOCK,
            Ok(header) if (header.segment.0, header.offset) == (segment, offset) => self.take(header),
            Ok(_) => offset + BLOCK,
            Err(NoHeader::Version(version)) => {
                self.survey.problems.push(LogDamage::UnknownVersion { path: self.path.to_path_buf(), version });
                offset + BLOCK
            }
            Err(NoHeader::Absent | NoHeader::Damaged) => {
                // One field may be wrong, the rest gives it away.
                let of_database = database.is_none_or(|d| block[16..32] == d.0.to_le_bytes());
                let of_place = [u64_at(block, 80) == segment, u64_at(block, 88) == offset];
                let magic = block[0..8] == super::group::MAGIC;
                let marks = [of_database, of_place[0], of_place[1], magic].into_iter().filter(|mark| *mark).count();
                if marks >= 3 && block.iter().any(|byte| *byte != 0) && (magic || of_database) && u64_at(block, 80) != 0
                {
                    let epoch = Epoch(u64_at(block, 48));
                    self.broken(offset, epoch, "the header of a group does not check");
                }
                offset + BLOCK
            }
        }
    }

    fn take(&mut self, header: GroupHeader) -> u64 {
        let offset = header.offset;
        // The length by itself first: any number may stand there.
        let fits = header.body_bytes <= self.bytes
            && offset + group_bytes(header.participants.len(), header.body_bytes) <= self.bytes;
        if !fits {
            self.broken(offset, header.epoch, "a group is longer than its segment");
            return offset + BLOCK;
        }
        let bytes = group_bytes(header.participants.len(), header.body_bytes);
        if let Err(error) = self.load(offset, bytes) {
            self.survey.problems.push(error);
            return offset + BLOCK;
        }
        let start = header.bytes() as u64;
        let body = &self.at(offset, bytes)[start as usize..(start + header.body_bytes) as usize];
        let own = |p: &super::group::Participant| {
            (p.device, p.group, p.body_bytes, p.body_crc)
                == (header.device, header.group, header.body_bytes, header.body_crc)
        };
        if crc32c::crc32c(body) != header.body_crc || header.participants.iter().filter(|p| own(p)).count() != 1 {
            self.broken(offset, header.epoch, "the body of a group does not check");
            return offset + BLOCK;
        }
        self.survey.found.push(Found { header, path: self.path.clone(), file: self.file.clone() });
        offset + bytes
    }

    fn broken(&mut self, offset: u64, epoch: Epoch, reason: &'static str) {
        let place = Place { path: self.path.to_path_buf(), offset, device: self.device, epoch };
        self.survey.broken.push(Broken { place, reason });
    }
}
