//! The manifest: the one file that says what a data directory is and which images and log are in force.
//!
//! | bytes | field |
//! |---|---|
//! | 0..8 | magic `FRESHET\n` |
//! | 8..12 | format version |
//! | 12..16 | 0: being created; 1: in use |
//! | 16..32 | database id |
//! | 32..40 | incarnation that wrote it |
//! | 40..48 | checkpoint number; 0: none yet |
//! | 48..56 | bytes of its images file |
//! | 56..64 | largest epoch of an image's S |
//! | 64..72, 72..80 | log start: epoch, epoch before |
//! | 80..84 | devices n |
//! | then n times 20 | device u32, segment u64, group u64 |
//! | last 4 | CRC32C of all before |

use crate::ids::{DeviceId, Epoch};
use crate::io::{Io, OpenOptions};
use crate::log::{DatabaseId, DeviceStart, GroupNo, Incarnation, LogStart, SegmentNo};
use std::io;
use std::path::Path;
use std::sync::Arc;

const MAGIC: &[u8; 8] = b"FRESHET\n";
pub(crate) const FORMAT_VERSION: u32 = 1;
const NAME: &str = "manifest";
const FIXED_BYTES: usize = 84;
const DEVICE_BYTES: usize = 20;

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Manifest {
    /// The first commit is durable.
    pub created: bool,
    pub database: DatabaseId,
    pub incarnation: Incarnation,
    pub checkpoint: u64,
    pub images_bytes: u64,
    pub relied_on: Epoch,
    pub log_start: LogStart,
}

/// Why a manifest cannot be used.
#[derive(Debug)]
pub(crate) enum ManifestError {
    Io(io::Error),
    UnknownVersion(u32),
    Damaged(&'static str),
}

impl Manifest {
    pub fn new(database: DatabaseId) -> Manifest {
        Manifest {
            created: false,
            database,
            incarnation: Incarnation(0),
            checkpoint: 0,
            images_bytes: 0,
            relied_on: Epoch(0),
            log_start: LogStart::default(),
        }
    }

    pub fn images_name(&self) -> String {
        format!("images-{:06}", self.checkpoint)
    }

    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(FIXED_BYTES + 64);
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
        out.extend_from_slice(&u32::from(self.created).to_le_bytes());
        out.extend_from_slice(&self.database.0.to_le_bytes());
        let start = &self.log_start;
        let fields =
            [self.incarnation.0, self.checkpoint, self.images_bytes, self.relied_on.0, start.epoch.0, start.prev.0];
        fields.iter().for_each(|f| out.extend_from_slice(&f.to_le_bytes()));
        out.extend_from_slice(&(start.devices.len() as u32).to_le_bytes());
        for device in &start.devices {
            out.extend_from_slice(&u32::from(device.device.0).to_le_bytes());
            out.extend_from_slice(&device.segment.0.to_le_bytes());
            out.extend_from_slice(&device.group.0.to_le_bytes());
        }
        let crc = crc32c::crc32c(&out);
        out.extend_from_slice(&crc.to_le_bytes());
        out
    }

    fn decode(bytes: &[u8]) -> Result<Manifest, ManifestError> {
        let damaged = ManifestError::Damaged;
        if bytes.len() < FIXED_BYTES + 4 || &bytes[..8] != MAGIC {
            return Err(damaged("not a manifest"));
        }
        let u32_at = |i: usize| u32::from_le_bytes(bytes[i..i + 4].try_into().expect("4 bytes"));
        let u64_at = |i: usize| u64::from_le_bytes(bytes[i..i + 8].try_into().expect("8 bytes"));
        if u32_at(8) != FORMAT_VERSION {
            return Err(ManifestError::UnknownVersion(u32_at(8)));
        }
        let (body, crc) = bytes.split_at(bytes.len() - 4);
        if crc32c::crc32c(body) != u32::from_le_bytes(crc.try_into().expect("4 bytes")) {
            return Err(damaged("its CRC does not check"));
        }
        let devices = u32_at(80) as usize;
        if body.len() != FIXED_BYTES + devices.saturating_mul(DEVICE_BYTES) {
            return Err(damaged("its length is wrong"));
        }
        let device = |n: usize| {
            let at = FIXED_BYTES + n * DEVICE_BYTES;
            DeviceStart {
                device: DeviceId(u32_at(at) as u16),
                segment: SegmentNo(u64_at(at + 4)),
                group: GroupNo(u64_at(at + 12)),
            }
        };
        Ok(Manifest {
            created: u32_at(12) != 0,
            database: DatabaseId(u128::from_le_bytes(bytes[16..32].try_into().expect("16 bytes"))),
            incarnation: Incarnation(u64_at(32)),
            checkpoint: u64_at(40),
            images_bytes: u64_at(48),
            relied_on: Epoch(u64_at(56)),
            log_start: LogStart {
                epoch: Epoch(u64_at(64)),
                prev: Epoch(u64_at(72)),
                devices: (0..devices).map(device).collect(),
            },
        })
    }

    pub fn exists(io: &Arc<dyn Io>, dir: &Path) -> io::Result<bool> {
        io.exists(&dir.join(NAME))
    }

    /// `None`: there is none.
    pub fn load(io: &Arc<dyn Io>, dir: &Path) -> Result<Option<Manifest>, ManifestError> {
        let path = dir.join(NAME);
        if !io.exists(&path).map_err(ManifestError::Io)? {
            return Ok(None);
        }
        let file = io.open(&path, OpenOptions::default()).map_err(ManifestError::Io)?;
        let mut bytes = vec![0; file.len().map_err(ManifestError::Io)? as usize];
        file.read_at(&mut bytes, 0).map_err(ManifestError::Io)?;
        Manifest::decode(&bytes).map(Some)
    }

    /// Replaces the manifest; it is durable when this returns.
    pub fn save(&self, io: &Arc<dyn Io>, dir: &Path) -> io::Result<()> {
        let temporary = dir.join("manifest.new");
        if io.exists(&temporary)? {
            io.remove(&temporary)?;
        }
        let file = io.open(&temporary, OpenOptions { create: true, direct: false })?;
        file.write_at(&self.encode(), 0)?;
        file.sync()?;
        io.rename(&temporary, &dir.join(NAME))?;
        io.sync_dir(dir)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manifest_reads_back_and_no_flipped_bit_passes() {
        let mut manifest = Manifest::new(DatabaseId(77));
        manifest.checkpoint = 3;
        manifest.log_start.devices =
            vec![DeviceStart { device: DeviceId(1), segment: SegmentNo(5), group: GroupNo(9) }];
        let bytes = manifest.encode();
        assert_eq!(Manifest::decode(&bytes).expect("as written"), manifest);
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(Manifest::decode(&flipped).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn an_unknown_version_is_named() {
        let mut bytes = Manifest::new(DatabaseId(1)).encode();
        bytes[8] = 99;
        assert!(matches!(Manifest::decode(&bytes), Err(ManifestError::UnknownVersion(99))));
    }
}
