//! What is wrong, and where.

use crate::ids::{DeviceId, Epoch, RowId, StorageId};
use crate::log::LogDamage;
use crate::log::scan::Place;
use std::fmt;
use std::path::{Path, PathBuf};

/// What a finding means for the database.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Severity {
    /// As it may be: what was never acknowledged, what the next open completes.
    Note,
    /// Something that was acknowledged is missing or wrong, or a copy that protects it is.
    Damage,
}

impl Severity {
    pub fn name(self) -> &'static str {
        match self {
            Severity::Note => "note",
            Severity::Damage => "damage",
        }
    }
}

/// One thing found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    pub severity: Severity,
    pub path: Option<PathBuf>,
    pub offset: Option<u64>,
    pub device: Option<DeviceId>,
    pub epoch: Option<Epoch>,
    /// The table's name, where the catalog could be read.
    pub table: Option<String>,
    pub row: Option<RowId>,
    pub reason: String,
    pub(super) storage: Option<StorageId>,
}

impl Finding {
    pub fn new(severity: Severity, reason: impl Into<String>) -> Finding {
        let reason = reason.into();
        Finding {
            severity,
            path: None,
            offset: None,
            device: None,
            epoch: None,
            table: None,
            row: None,
            reason,
            storage: None,
        }
    }

    pub fn damage(reason: impl Into<String>) -> Finding {
        Finding::new(Severity::Damage, reason)
    }

    pub fn note(reason: impl Into<String>) -> Finding {
        Finding::new(Severity::Note, reason)
    }

    pub(super) fn in_file(self, path: &Path, offset: u64) -> Finding {
        Finding { path: Some(path.to_path_buf()), offset: Some(offset), ..self }
    }

    pub(super) fn at(self, place: &Place) -> Finding {
        Finding { device: Some(place.device), epoch: Some(place.epoch), ..self.in_file(&place.path, place.offset) }
    }

    pub(super) fn of_row(self, row: RowId, storage: Option<StorageId>) -> Finding {
        Finding { row: Some(row), storage, ..self }
    }

    /// Damage as the log tells it, with the place where it has one.
    pub(super) fn of_log(damage: &LogDamage) -> Finding {
        let finding = Finding::damage(damage.to_string());
        match damage {
            LogDamage::Lost { place, .. }
            | LogDamage::UnknownIncarnation { place, .. }
            | LogDamage::Unreadable { place }
            | LogDamage::Frame { place, .. } => finding.at(place),
            LogDamage::FenceDamaged { path, offset } => finding.in_file(path, *offset),
            LogDamage::Io { path, .. }
            | LogDamage::Locked { path }
            | LogDamage::Absent { path }
            | LogDamage::UnknownVersion { path, .. }
            | LogDamage::OtherDatabase { path }
            | LogDamage::FenceConflict { path } => Finding { path: Some(path.clone()), ..finding },
            LogDamage::SegmentTaken { device, path, .. } => {
                Finding { device: Some(*device), path: Some(path.clone()), ..finding }
            }
            LogDamage::MissingDevice { device, path } | LogDamage::SameDevice { path, device, .. } => {
                let path = Some(path.clone()).filter(|path| !path.as_os_str().is_empty());
                Finding { device: Some(*device), path, ..finding }
            }
            LogDamage::Foreign { path } => Finding { path: Some(path.clone()), ..finding },
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.severity.name())?;
        if let Some(path) = &self.path {
            write!(f, "{}", path.display())?;
            if let Some(offset) = self.offset {
                write!(f, " at offset {offset}")?;
            }
            match (self.device, self.epoch) {
                (Some(device), Some(epoch)) => write!(f, " (device {}, epoch {})", device.0, epoch.0)?,
                (Some(device), None) => write!(f, " (device {})", device.0)?,
                _ => {}
            }
            f.write_str(": ")?;
        }
        match (&self.table, self.row) {
            (Some(table), Some(row)) => write!(f, "table {table}, row {row:?}: ")?,
            (None, Some(row)) => write!(f, "row {row:?}: ")?,
            (Some(table), None) => write!(f, "table {table}: ")?,
            (None, None) => {}
        }
        f.write_str(&self.reason)
    }
}

/// The findings so far. There may be one for each row: what exceeds a limit is counted only.
#[derive(Default)]
pub(super) struct Findings {
    pub list: Vec<Finding>,
    pub omitted: u64,
    damaged: bool,
}

impl Findings {
    const KEPT: usize = 10_000;

    pub fn push(&mut self, finding: Finding) {
        self.damaged |= finding.severity == Severity::Damage;
        match self.list.len() < Findings::KEPT {
            true => self.list.push(finding),
            false => self.omitted += 1,
        }
    }

    pub fn is_damaged(&self) -> bool {
        self.damaged
    }
}
