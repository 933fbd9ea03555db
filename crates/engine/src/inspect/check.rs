//! All of it, and a verdict.

use super::contents::{self, Contents};
use super::finding::{Finding, Findings, Severity};
use super::history;
use super::pages;
use super::{InspectError, Progress, Subject, Watch};
use crate::catalog::SYSTEM_STORAGE;
use crate::checkpoint::{BadImages, IN_MAKING, ImagePlace, Images, Manifest, ManifestError};
use crate::ids::{Cts, Epoch};
use crate::io::{Io, ReadOnly};
use crate::log::survey::{self, Found, Survey};
use crate::log::{DatabaseId, Incarnation, LogDamage, LogStart, scan};
use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

/// What was read, and what is wrong with it.
#[derive(Clone, Debug, Default)]
pub struct Report {
    pub database: Option<DatabaseId>,
    pub incarnation: Option<Incarnation>,
    /// The last epoch of the log that is there with all before it.
    pub durable: Option<Epoch>,
    pub log_bytes: u64,
    pub groups: u64,
    pub commits: u64,
    /// Changes of rows that the log holds beyond the images.
    pub operations: u64,
    pub images: u64,
    pub image_bytes: u64,
    pub tables: u64,
    pub indexes: u64,
    pub rows: u64,
    pub long_values: u64,
    pub findings: Vec<Finding>,
    /// Findings beyond those listed.
    pub omitted: u64,
    damaged: bool,
}

impl Report {
    /// Whether something acknowledged is missing or wrong.
    pub fn is_damaged(&self) -> bool {
        self.damaged
    }
}

/// Everything that was read of a database.
pub(crate) struct Evidence {
    pub manifest: Option<Manifest>,
    pub survey: Survey,
    pub durable: Option<Epoch>,
    /// What proves to have been acknowledged, `durable` at least.
    pub acknowledged: Epoch,
    pub start: LogStart,
    /// None of the directories given holds one of the log's devices: what is told of that.
    pub lacking: Option<Finding>,
    /// Why a recovery refuses the log.
    pub refusal: Option<LogDamage>,
    /// A salvage did not end.
    pub is_half_done: bool,
}

/// Reads all of a database that nobody has open, and lists what is wrong. Nothing is written.
pub fn check(io: &Arc<dyn Io>, subject: &Subject, watch: Watch<'_>) -> Result<Report, InspectError> {
    is_there(io, subject)?;
    let world = Arc::new(ReadOnly::new(io.clone()));
    let report = check_in(&(world.clone() as Arc<dyn Io>), subject, watch)?;
    world.unreadable().map_or(Ok(report), |(path, why)| Err(InspectError::Unreadable(path, why)))
}

fn check_in(io: &Arc<dyn Io>, subject: &Subject, watch: Watch<'_>) -> Result<Report, InspectError> {
    let mut findings = Findings::default();
    lock(io, subject)?;
    let evidence = gather(io, subject, &mut findings, watch);
    let mut report = Report {
        database: evidence.manifest.as_ref().map(|m| m.database),
        incarnation: evidence.survey.fence().map(|fence| fence.newest().incarnation),
        durable: evidence.durable,
        log_bytes: evidence.survey.bytes,
        ..Report::default()
    };
    if let Some(lacking) = &evidence.lacking {
        findings = Findings::default();
        findings.push(lacking.clone());
        let hint = "name its directory with --log or --log-retired and check again: without it the rest cannot be told from damage";
        findings.push(Finding::note(hint));
        return Ok(report.with(Contents::default(), findings));
    }
    let mut set = match &evidence.manifest {
        Some(manifest) => pages::load_images(io, subject, manifest, None, &mut findings),
        None => pages::PageSet::default(),
    };
    (report.images, report.image_bytes) = (set.images, set.image_bytes);
    // What is behind a gap is counted, not judged: its chains begin in what is missing.
    let end = evidence.durable.unwrap_or(Epoch(u64::MAX));
    let groups = evidence.groups(|group| group.header.epoch <= end);
    report.groups = groups.len() as u64;
    let total_bytes = 3 * groups.iter().map(|g| g.header.body_bytes).sum::<u64>();
    let mut done_bytes = 0;
    let history = history::replay(&groups, &mut set, &mut findings, &mut |bytes| {
        done_bytes += bytes;
        watch(Progress { phase: "changes", done_bytes, total_bytes });
    });
    (report.commits, report.operations) = (history.commits, history.operations);
    let horizon = Cts::last_of(evidence.durable.unwrap_or(Epoch((1 << 44) - 1)));
    let contents = contents::examine(&set, horizon, &mut findings);
    if evidence.manifest.as_ref().is_none_or(|m| m.created) && !contents.has_counters {
        findings.push(Finding::damage("the system table has no counters"));
    }
    evidence.tell_affected(&contents, &set, &mut findings);
    Ok(report.with(contents, findings))
}

impl Report {
    fn with(mut self, contents: Contents, findings: Findings) -> Report {
        self.tables = contents.tables.len() as u64;
        (self.indexes, self.rows, self.long_values) = (contents.indexes, contents.rows, contents.long_values);
        self.damaged = findings.is_damaged();
        self.omitted = findings.omitted;
        self.findings = findings.list;
        for finding in &mut self.findings {
            if finding.table.is_none() {
                finding.table = finding.storage.and_then(|storage| contents.name_of(storage));
            }
        }
        self.findings.sort_by_key(|f| std::cmp::Reverse(f.severity));
        self
    }
}

/// Whether there is something to look at, and nobody has it open.
pub fn is_there(io: &Arc<dyn Io>, subject: &Subject) -> Result<(), InspectError> {
    let world = Arc::new(ReadOnly::new(io.clone()));
    let io: Arc<dyn Io> = world.clone();
    lock(&io, subject)?;
    let fences = subject.log_dirs().into_iter().map(|dir| dir.join("fence"));
    let mut files = std::iter::once(subject.data_dir.join("manifest")).chain(fences);
    let is_there = files.any(|path| io.exists(&path).unwrap_or(true));
    if let Some((path, why)) = world.unreadable() {
        return Err(InspectError::Unreadable(path, why));
    }
    match is_there {
        true => Ok(()),
        false => Err(InspectError::NoDatabase(subject.data_dir.clone())),
    }
}

/// The same for images: which tables' rows they hold.
pub(crate) fn affected_by(io: &Arc<dyn Io>, subject: &Subject, bad: &BadImages) -> Option<String> {
    let io: Arc<dyn Io> = Arc::new(ReadOnly::new(io.clone()));
    let mut findings = Findings::default();
    let evidence = gather(&io, subject, &mut findings, &mut |_| {});
    let manifest = evidence.manifest.as_ref()?;
    let contents = evidence.catalog(&io, subject, manifest, &mut findings).1;
    let (images, _) = Images::survey(&io, &subject.data_dir, &subject.backup_dirs, manifest);
    let of_file = |i: &&ImagePlace| images.path(i) == bad.path || images.path(i).as_os_str().is_empty();
    let in_file: Vec<_> = images.images.iter().filter(of_file).collect();
    let at = in_file.iter().filter(|i| i.offset == bad.offset).copied().collect::<Vec<_>>();
    let lost = if at.is_empty() { in_file } else { at };
    let tables: BTreeSet<_> = lost.iter().filter_map(|i| contents.name_of(i.head.meta.storage)).collect();
    let tables = if tables.is_empty() { "unknown tables".into() } else { Vec::from_iter(tables).join(", ") };
    Some(format!("{} pages are affected, of {tables}", lost.len()))
}

/// Nobody else may change what is looked at.
pub(crate) fn lock(io: &Arc<dyn Io>, subject: &Subject) -> Result<(), InspectError> {
    for dir in subject.fence_dirs(None).into_iter().chain(subject.log_dirs()) {
        if let Err(error) = io.lock(&dir.join("lock"))
            && error.kind() == io::ErrorKind::WouldBlock
        {
            return Err(InspectError::InUse(dir));
        }
    }
    Ok(())
}

/// For a refusal to open, which has the lock already: what stands behind the damage, as far as it can be told.
pub(crate) fn affected(io: &Arc<dyn Io>, subject: &Subject) -> Option<String> {
    let io: Arc<dyn Io> = Arc::new(ReadOnly::new(io.clone()));
    let mut findings = Findings::default();
    let evidence = gather(&io, subject, &mut findings, &mut |_| {});
    let manifest = evidence.manifest.as_ref()?;
    let (set, contents) = evidence.catalog(&io, subject, manifest, &mut findings);
    evidence.describe_affected(&contents, &set)
}

/// Manifest, fence and log, and a recovery's verdict on them.
pub(crate) fn gather(io: &Arc<dyn Io>, subject: &Subject, findings: &mut Findings, watch: Watch<'_>) -> Evidence {
    let manifest = read_manifest(io, subject, findings);
    let is_half_done = io.exists(&subject.data_dir.join(IN_MAKING)).unwrap_or(false);
    if is_half_done {
        findings.push(Finding::damage("a salvage left this database half done: nobody knows what it lacks"));
    }
    let options = subject.log_options(manifest.as_ref());
    let total_bytes = log_bytes(io, &options.dirs);
    let mut done_bytes = 0;
    let needed = manifest.as_ref().map(|m| m.log_start.clone()).unwrap_or_default();
    let survey = survey::survey(&**io, &options, &needed, manifest.as_ref().map(|m| m.database), &mut |bytes| {
        done_bytes += bytes;
        watch(Progress { phase: "log", done_bytes, total_bytes });
    });
    // Without a manifest the log begins where it begins.
    let start = manifest.as_ref().map_or_else(|| survey.first(), |_| needed);
    let relied_on = manifest.as_ref().map_or(Epoch(0), |m| m.relied_on);
    let is_created = manifest.as_ref().is_none_or(|m| m.created);
    let verdict = scan(io, &options, &start, relied_on);
    let acknowledged = survey.witnessed().max(relied_on);
    let (durable, lacking, refusal) = (None, None, None);
    let mut evidence = Evidence { manifest, survey, durable, acknowledged, start, lacking, refusal, is_half_done };
    match verdict {
        Ok(scan) => {
            if evidence.manifest.as_ref().is_some_and(|m| m.database != scan.database()) {
                findings.push(Finding::damage("the log belongs to another database than the manifest"));
            }
            evidence.durable = Some(scan.durable());
            evidence.acknowledged = evidence.acknowledged.max(scan.durable());
            let discarded = scan.discarded();
            if discarded.groups > 0 {
                let (epochs, groups) = (discarded.epochs, discarded.groups);
                let reason =
                    format!("{epochs} epochs behind the last durable one were never acknowledged: {groups} groups");
                findings.push(Finding::note(reason));
            }
        }
        Err(damage) if !is_created && damage.is_of_creation() => {
            findings.push(Finding::note("the database was being created and holds nothing"));
            // Of the log there is as much as the creation had made.
            evidence.survey.problems.retain(|problem| !problem.is_of_creation() && !problem.is_not_found());
        }
        Err(damage) => {
            evidence.judge(&damage, findings);
            evidence.lacking = matches!(damage, LogDamage::MissingDevice { .. }).then(|| Finding::of_log(&damage));
            evidence.refusal = Some(damage);
        }
    }
    evidence.tell_problems(findings);
    evidence
}

/// An estimate for who watches: directories that cannot be read are told by the survey.
fn log_bytes(io: &Arc<dyn Io>, dirs: &[PathBuf]) -> u64 {
    let files = dirs.iter().flat_map(|dir| {
        let names = io.list(dir).unwrap_or_default();
        names.into_iter().filter(|name| name.ends_with(".seg")).map(|name| dir.join(name)).collect::<Vec<_>>()
    });
    files.filter_map(|path| io.open_to_read(&path).and_then(|file| file.len()).ok()).sum()
}

fn read_manifest(io: &Arc<dyn Io>, subject: &Subject, findings: &mut Findings) -> Option<Manifest> {
    let path = subject.data_dir.join("manifest");
    let reason = match Manifest::load(io, &subject.data_dir) {
        Ok(Some(manifest)) => return Some(manifest),
        Ok(None) => {
            findings.push(Finding::damage("the manifest is missing"));
            return None;
        }
        Err(ManifestError::Io(error)) => format!("cannot read the manifest: {error}"),
        Err(ManifestError::UnknownVersion(version)) => format!("format version {version} is unknown"),
        Err(ManifestError::Damaged(why)) => format!("the manifest is damaged: {why}"),
    };
    findings.push(Finding::damage(reason).in_file(&path, 0));
    None
}

impl Evidence {
    /// A recovery refuses: why, and what of the log is missing.
    fn judge(&mut self, damage: &LogDamage, findings: &mut Findings) {
        findings.push(Finding::of_log(damage));
        if let LogDamage::Lost { durable, acknowledged, .. } = damage {
            self.durable = Some(*durable);
            self.acknowledged = self.acknowledged.max(*acknowledged);
        }
        for gap in self.survey.gaps(self.start.epoch, self.start.prev, self.acknowledged) {
            findings.push(Finding::damage(gap.reason).at(&gap.place));
        }
        for broken in &self.survey.broken {
            findings.push(Finding::damage(broken.reason).at(&broken.place));
        }
    }

    /// The catalog alone, which is enough for names.
    fn catalog(
        &self,
        io: &Arc<dyn Io>,
        subject: &Subject,
        manifest: &Manifest,
        findings: &mut Findings,
    ) -> (pages::PageSet, Contents) {
        let end = self.durable.unwrap_or(Epoch(u64::MAX));
        let mut set = pages::load_images(io, subject, manifest, Some(SYSTEM_STORAGE), findings);
        let groups = self.groups(|group| group.header.epoch <= end);
        history::replay(&groups, &mut set, findings, &mut |_| {});
        let contents = contents::catalog(&set, findings);
        (set, contents)
    }

    /// What the verdict does not depend on.
    fn tell_problems(&self, findings: &mut Findings) {
        let known: Vec<String> = findings.list.iter().map(|f| f.reason.clone()).collect();
        for problem in self.survey.problems.iter().filter(|p| !known.contains(&p.to_string())) {
            findings.push(Finding::of_log(problem));
        }
        for path in &self.survey.short_fences {
            let finding = Finding::note("a copy of the fence lacks records that others have; the next open adds them");
            findings.push(Finding { path: Some(path.clone()), ..finding });
        }
    }

    /// The valid groups of the needed log that someone wants.
    pub fn groups(&self, wanted: impl Fn(&Found) -> bool) -> Vec<&Found> {
        let needed = |group: &&Found| group.header.epoch >= self.start.epoch;
        self.valid_groups().filter(needed).filter(|group| wanted(group)).collect()
    }

    /// All that no fence voids, those below the log's start included.
    pub fn valid_groups(&self) -> impl Iterator<Item = &Found> {
        self.survey.found.iter().filter(|group| self.survey.is_valid(&group.header))
    }

    fn tell_affected(&self, contents: &Contents, set: &pages::PageSet, findings: &mut Findings) {
        if let Some(reason) = self.describe_affected(contents, set) {
            findings.push(Finding::damage(reason));
        }
    }

    /// What stands behind the first gap: how many epochs and commits, and of which tables.
    fn describe_affected(&self, contents: &Contents, set: &pages::PageSet) -> Option<String> {
        let durable = self.durable.filter(|durable| *durable < self.acknowledged)?;
        let behind = self.groups(|group| group.header.epoch > durable);
        let told = history::behind(&behind, set);
        let mut tables: Vec<String> = told.storages.iter().filter_map(|s| contents.name_of(*s)).collect();
        tables.sort();
        let tables = if tables.is_empty() { "unknown tables".into() } else { format!("tables {}", tables.join(", ")) };
        let lost = self.acknowledged.0 - durable.0;
        Some(format!(
            "{lost} acknowledged epochs are behind the damage; {} commits in {} epochs can still be read there, of {tables}",
            told.commits, told.epochs
        ))
    }
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for finding in &self.findings {
            writeln!(f, "{finding}")?;
        }
        if self.omitted > 0 {
            writeln!(f, "{} further findings", self.omitted)?;
        }
        let damage = self.findings.iter().filter(|finding| finding.severity == Severity::Damage).count() as u64;
        let verdict =
            if self.damaged { format!("damaged: {} findings", damage + self.omitted) } else { "whole".into() };
        write!(
            f,
            "{verdict}; {} groups with {} commits and {} changes, {} images, {} tables with {} rows and {} long values",
            self.groups, self.commits, self.operations, self.images, self.tables, self.rows, self.long_values
        )
    }
}
