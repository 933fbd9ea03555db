//! Where does a system write its log, and is there room for it? `--log` in one place for every adapter.
//!
//! | `--log` | meaning |
//! |---|---|
//! | (nothing), `1`, `2`, `4` | so many streams, each a directory below the database's own |
//! | `DIR` (repeatable) | a stream in each of these directories: another disk, an SSD, a tmpfs |
//! | a block device (repeatable) | a stream on each of these devices, without a file system; blank at first, and again when the run ends |
//! | `model:KEY=VALUE,...` (repeatable) | modelled devices, whose files lie below the database's own directory |
//!
//! | key | meaning | default |
//! |---|---|---|
//! | `flush=8ms` | seek and rotation of a durable write | 0 |
//! | `bandwidth=40MB/s` | what the medium writes | what this machine does |
//! | `write-behind=24MB` | a cache that answers before the medium has written | none: write-through |
//! | `answer=1ms` | what the cache's controller takes to answer | 0.1ms |
//! | `count=4` | so many devices of this kind | 1 |
//!
//! Systems with one log take the first place, and those whose log lies with their data are there with all of it. Only ours, embedded, can be put on models and block devices: the others write files by themselves.

use crate::device::{Cache, LogFiles, Model, ModelledIo, RawDevice, RawIo, raw};
use crate::error::{BenchError, on};
use crate::interrupt;
use crate::machine::disk_available;
use std::collections::BTreeMap;
use std::fmt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// As many directories as a machine may have log disks.
const STREAMS_MAX: usize = 16;
/// Of the log files on a block device: the engine's own.
const SEGMENT_BYTES: u64 = 64 << 20;
const ANSWER: Duration = Duration::from_micros(100);

#[derive(Clone, PartialEq, Debug)]
pub enum LogPlan {
    Streams(usize),
    Directories(Vec<PathBuf>),
    Raw(Vec<PathBuf>),
    Modelled(Modelled),
}

/// Modelled devices. Clones share whether they take their time already.
#[derive(Clone, Debug)]
pub struct Modelled {
    models: Vec<Model>,
    said: String,
    engaged: Arc<AtomicBool>,
}

impl PartialEq for Modelled {
    fn eq(&self, other: &Modelled) -> bool {
        self.models == other.models
    }
}

impl Default for LogPlan {
    fn default() -> LogPlan {
        LogPlan::Streams(1)
    }
}

impl FromStr for LogPlan {
    type Err = String;

    fn from_str(text: &str) -> Result<LogPlan, String> {
        if let Some(keys) = text.strip_prefix("model:") {
            let (model, count) = modelled(keys)?;
            return Ok(LogPlan::of_models(vec![model; count], text));
        }
        match text.parse::<usize>() {
            Ok(streams) if (1..=STREAMS_MAX).contains(&streams) => Ok(LogPlan::Streams(streams)),
            Ok(_) => Err(format!("1 to {STREAMS_MAX} log streams, a directory, or model:flush=8ms,...")),
            Err(_) if text.is_empty() => Err("a number of log streams, a directory, or model:flush=8ms,...".to_owned()),
            Err(_) => directory(text),
        }
    }
}

impl fmt::Display for LogPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LogPlan::Streams(streams) => write!(f, "{streams}"),
            LogPlan::Directories(dirs) | LogPlan::Raw(dirs) => {
                let dirs: Vec<String> = dirs.iter().map(|dir| dir.display().to_string()).collect();
                f.write_str(&dirs.join(","))
            }
            LogPlan::Modelled(modelled) => f.write_str(&modelled.said),
        }
    }
}

impl LogPlan {
    pub fn of_models(models: Vec<Model>, said: impl Into<String>) -> LogPlan {
        LogPlan::Modelled(Modelled { models, said: said.into(), engaged: Arc::default() })
    }

    /// The plan of several `--log` options: directories add up, models too, a number stands alone.
    pub fn of_all(plans: &[LogPlan]) -> Result<LogPlan, String> {
        let (mut dirs, mut raw, mut models, mut said) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for plan in plans {
            match plan {
                LogPlan::Directories(more) => dirs.extend(more.iter().cloned()),
                LogPlan::Raw(more) => raw.extend(more.iter().cloned()),
                LogPlan::Modelled(more) => {
                    models.extend(more.models.iter().copied());
                    said.push(more.said.clone());
                }
                alone if plans.len() == 1 => return Ok(alone.clone()),
                other => {
                    return Err(format!(
                        "--log {other} stands alone; only directories and models can be given several times"
                    ));
                }
            }
        }
        if dirs.len().max(models.len()).max(raw.len()) > STREAMS_MAX {
            return Err(format!("--log: at most {STREAMS_MAX} devices"));
        }
        match (dirs.is_empty(), raw.is_empty(), models.is_empty()) {
            (true, true, true) => Ok(LogPlan::default()),
            (false, true, true) => Ok(LogPlan::Directories(dirs)),
            (true, false, true) => Ok(LogPlan::Raw(raw)),
            (true, true, false) => Ok(LogPlan::of_models(models, said.join(" "))),
            _ => Err("--log: directories, block devices or models, one kind in one run".to_owned()),
        }
    }

    /// Devices that write at the same time.
    pub fn devices(&self) -> usize {
        match self {
            LogPlan::Streams(streams) => *streams,
            LogPlan::Directories(dirs) | LogPlan::Raw(dirs) => dirs.len(),
            LogPlan::Modelled(modelled) => modelled.models.len(),
        }
    }

    /// What a closed loop gets of modelled devices at most, with so many bytes a commit: all sessions are answered in every flush, in which each
    /// device has its share of the bytes. Without `durable` only the bytes count; those that enter a cache count nothing.
    pub fn answers_per_s(&self, sessions: usize, commit_bytes: f64, durable: bool) -> Option<f64> {
        let LogPlan::Modelled(Modelled { models, .. }) = self else { return None };
        let answer_s = models.iter().map(Model::answer).min().filter(|_| durable).unwrap_or_default().as_secs_f64();
        let media = models.iter().map(|model| model.bandwidth_bytes_per_s.filter(|_| model.cache.is_none()));
        let media_bytes_per_s = media.sum::<Option<u64>>().map_or(f64::INFINITY, |bytes| bytes as f64);
        let volume_s = sessions as f64 * commit_bytes / media_bytes_per_s;
        Some(sessions as f64 / (answer_s + volume_s))
    }

    /// Where the bare loop writes: on the first of the log's own directories, or below the databases' where it has none.
    pub fn place<'a>(&'a self, data: &'a Path) -> &'a Path {
        match self {
            LogPlan::Directories(dirs) => &dirs[0],
            _ => data,
        }
    }

    pub fn is_modelled(&self) -> bool {
        matches!(self, LogPlan::Modelled(_))
    }

    /// Whether only who opens the database in this process can use it.
    pub fn is_in_process(&self) -> bool {
        matches!(self, LogPlan::Modelled(_) | LogPlan::Raw(_))
    }

    /// One directory for each, below `data` or, named after it, below each of the given ones.
    pub fn directories(&self, data: &Path) -> Vec<PathBuf> {
        let below = |streams: usize| (0..streams).map(|i| data.join(format!("log{i}"))).collect();
        match self {
            LogPlan::Streams(streams) => below(*streams),
            LogPlan::Modelled(modelled) => below(modelled.models.len()),
            LogPlan::Raw(devices) => below(devices.len()),
            LogPlan::Directories(dirs) => {
                let name = data.file_name().map_or_else(|| "log".into(), |name| name.to_string_lossy().into_owned());
                dirs.iter().enumerate().map(|(i, dir)| dir.join(format!("freshet-bench-{name}-{i}"))).collect()
            }
        }
    }

    /// The files to open a database in `data` on, if its log is not on directories.
    pub fn files(&self, data: &Path) -> Result<Option<LogFiles>, BenchError> {
        let dirs = self.directories(data);
        match self {
            LogPlan::Streams(_) | LogPlan::Directories(_) => Ok(None),
            LogPlan::Modelled(modelled) => {
                let devices: Vec<_> = dirs.into_iter().zip(modelled.models.iter().copied()).collect();
                Ok(Some(LogFiles::Modelled(ModelledIo::new(&devices, modelled.engaged.clone()))))
            }
            LogPlan::Raw(paths) => {
                let open = |(path, dir): (&PathBuf, &PathBuf)| {
                    let opened = raw::length(path).and_then(|bytes| RawDevice::open(path, dir, bytes, SEGMENT_BYTES));
                    opened.map_err(on(path))
                };
                let devices: Result<Vec<_>, BenchError> = paths.iter().zip(&dirs).map(open).collect();
                Ok(Some(LogFiles::Raw(RawIo::new(devices?))))
            }
        }
    }

    /// Modelled devices take their time from now on, or no more: a database is made and loaded as fast as this machine can.
    pub fn engage(&self, engaged: bool) {
        if let LogPlan::Modelled(modelled) = self {
            modelled.engaged.store(engaged, std::sync::atomic::Ordering::Release);
        }
    }

    /// Whether modelled devices take their time now.
    pub fn is_engaged(&self) -> bool {
        let LogPlan::Modelled(modelled) = self else { return false };
        modelled.engaged.load(std::sync::atomic::Ordering::Acquire)
    }

    /// Whether a log of this size, all devices together, fits where the plan puts it; otherwise the need and the remedy.
    pub fn refuse_too_small(&self, data: &Path, log_size_bytes: u64) -> Result<(), BenchError> {
        let each = log_size_bytes / self.devices() as u64;
        if let LogPlan::Raw(paths) = self {
            let too_small = |path: &PathBuf, free: u64| need_room(path, each + raw::RESERVED_BYTES, free);
            return paths.iter().try_for_each(|path| too_small(path, raw::length(path).map_err(on(path))?));
        }
        let mut needs: BTreeMap<u64, (&Path, u64)> = BTreeMap::new();
        let parents: Vec<&Path> = match self {
            LogPlan::Directories(dirs) => dirs.iter().map(PathBuf::as_path).collect(),
            _ => vec![data; self.devices()],
        };
        for parent in parents {
            // Devices that share a file system need room for all of them.
            let file_system = std::fs::metadata(parent).map_err(on(parent))?.dev();
            needs.entry(file_system).or_insert((parent, 0)).1 += each;
        }
        for (parent, need) in needs.into_values() {
            need_room(parent, need, disk_available(parent)?)?;
        }
        Ok(())
    }
}

fn need_room(place: &Path, need: u64, free: u64) -> Result<(), BenchError> {
    if free >= need {
        return Ok(());
    }
    Err(BenchError::Machine(format!(
        "{}: the log needs {} MiB there, {} MiB are free; make room, or give larger or more places with --log",
        place.display(),
        need.div_ceil(1 << 20),
        free >> 20
    )))
}

/// What one database's log leaves in directories and on devices that were given for it, gone when this goes.
pub struct Laid {
    dirs: Vec<PathBuf>,
    devices: Vec<PathBuf>,
}

impl Laid {
    pub fn at(log: LogPlan, data: &Path) -> Laid {
        match log {
            LogPlan::Directories(_) => Laid { dirs: log.directories(data), devices: Vec::new() },
            LogPlan::Raw(devices) => Laid { dirs: Vec::new(), devices },
            LogPlan::Streams(_) | LogPlan::Modelled(_) => Laid { dirs: Vec::new(), devices: Vec::new() },
        }
        .known()
    }

    fn known(self) -> Laid {
        self.dirs.iter().for_each(|dir| interrupt::will_make(dir, interrupt::directory));
        self.devices.iter().for_each(|device| interrupt::will_make(device, clear_device));
        self
    }
}

/// A device stays: there is nothing to look for again.
fn clear_device(device: &Path) -> bool {
    // One that cannot be cleared holds our log until somebody does; the next run says so.
    let _ = raw::clear(device);
    false
}

impl Drop for Laid {
    fn drop(&mut self) {
        for dir in &self.dirs {
            // What cannot be removed lies where the user put it, under a name that says what it is.
            let _ = std::fs::remove_dir_all(dir);
            interrupt::has_removed(dir);
        }
        for device in &self.devices {
            clear_device(device);
            interrupt::has_removed(device);
        }
    }
}

fn directory(text: &str) -> Result<LogPlan, String> {
    let path = PathBuf::from(text);
    match std::fs::metadata(&path) {
        Ok(meta) if meta.file_type().is_block_device() => Ok(LogPlan::Raw(vec![path])),
        Ok(meta) if meta.is_dir() => Ok(LogPlan::Directories(vec![path])),
        _ => Err(format!("there is no directory {text}")),
    }
}

/// `flush=8ms,bandwidth=40MB/s,...`: a device, and how many of it.
fn modelled(keys: &str) -> Result<(Model, usize), String> {
    let mut model = Model { flush: Duration::ZERO, bandwidth_bytes_per_s: None, cache: None };
    let (mut cache_bytes, mut answer, mut count) = (None, None, 1);
    for pair in keys.split(',').filter(|pair| !pair.is_empty()) {
        let (key, value) = pair.split_once('=').ok_or_else(|| format!("{pair:?} is not KEY=VALUE"))?;
        match key {
            "flush" => model.flush = duration(value)?,
            "bandwidth" => model.bandwidth_bytes_per_s = Some(bytes(value.trim_end_matches("/s"))?),
            "write-behind" => cache_bytes = Some(bytes(value)?),
            "answer" => answer = Some(duration(value)?),
            "count" => {
                count = value.parse().ok().filter(|n| (1..=STREAMS_MAX).contains(n)).ok_or("count is 1 to 16")?
            }
            _ => return Err(format!("{key:?} is none of flush, bandwidth, write-behind, answer, count")),
        }
    }
    match (cache_bytes, answer) {
        (None, Some(_)) => return Err("answer is what a write-behind cache takes, and there is none".into()),
        (Some(bytes), answer) => model.cache = Some(Cache { bytes, answer: answer.unwrap_or(ANSWER) }),
        (None, None) => {}
    }
    if model == (Model { flush: Duration::ZERO, bandwidth_bytes_per_s: None, cache: None }) {
        return Err("a model needs flush, bandwidth or write-behind".into());
    }
    Ok((model, count))
}

fn duration(text: &str) -> Result<Duration, String> {
    let units = [("us", 1e-6), ("ms", 1e-3), ("s", 1.0)];
    let seconds = scaled(text, &units).filter(|s| *s <= 60.0);
    seconds
        .map(Duration::from_secs_f64)
        .ok_or_else(|| format!("{text:?} is no time like 8ms, 500us or 1s, up to a minute"))
}

fn bytes(text: &str) -> Result<u64, String> {
    let units = [
        ("KiB", 1024.0),
        ("MiB", 1_048_576.0),
        ("GiB", 1_073_741_824.0),
        ("KB", 1e3),
        ("MB", 1e6),
        ("GB", 1e9),
        ("B", 1.0),
    ];
    let bytes = scaled(text, &units).filter(|bytes| (1.0..1e15).contains(bytes));
    bytes.map(|b| b as u64).ok_or_else(|| format!("{text:?} is no size like 24MB, 512KiB or 40MB/s"))
}

/// A number with one of these units.
fn scaled(text: &str, units: &[(&str, f64)]) -> Option<f64> {
    let (number, scale) = units.iter().find_map(|(unit, scale)| Some((text.strip_suffix(unit)?, scale)))?;
    number.parse::<f64>().ok().filter(|n| n.is_finite() && *n >= 0.0).map(|n| n * scale)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_streams_and_the_rest_directories() {
        assert_eq!("4".parse(), Ok(LogPlan::Streams(4)));
        assert!("0".parse::<LogPlan>().is_err() && "17".parse::<LogPlan>().is_err() && "".parse::<LogPlan>().is_err());
        let dirs: Vec<LogPlan> = ["/", "/tmp"].iter().map(|d| d.parse().expect("a directory")).collect();
        let both = LogPlan::of_all(&dirs).expect("directories add up");
        assert_eq!(both.devices(), 2);
        assert_eq!(both.directories(Path::new("/x/db"))[1], Path::new("/tmp/freshet-bench-db-1"));
        assert!(LogPlan::of_all(&[LogPlan::Streams(1), LogPlan::Streams(2)]).is_err());
        assert_eq!(LogPlan::of_all(&[]), Ok(LogPlan::Streams(1)));
    }

    #[test]
    fn a_model_is_said_in_keys_with_units() {
        let text = "model:flush=8ms,bandwidth=40MB/s,write-behind=24MB,answer=0.5ms,count=4";
        let plan: LogPlan = text.parse().expect("a model");
        assert_eq!((plan.devices(), plan.to_string().as_str()), (4, text));
        let cache = Some(Cache { bytes: 24_000_000, answer: Duration::from_micros(500) });
        let model = Model { flush: Duration::from_millis(8), bandwidth_bytes_per_s: Some(40_000_000), cache };
        assert_eq!(plan, LogPlan::of_models(vec![model; 4], ""));
        let has_files = |plan: &LogPlan| plan.files(Path::new("/x")).expect("nothing is opened").is_some();
        assert!(has_files(&plan) && !has_files(&LogPlan::default()));
        let both =
            LogPlan::of_all(&[plan.clone(), "model:flush=1ms".parse().expect("a model")]).expect("models add up");
        assert_eq!(both.devices(), 5);
        assert!(LogPlan::of_all(&[plan, "/tmp".parse().expect("a directory")]).is_err());
    }

    #[test]
    fn what_models_answer_is_limited_by_their_flush_and_by_the_bytes_that_reach_a_medium() {
        let of = |text: &str, sessions, bytes, durable| {
            let plan: LogPlan = text.parse().expect("a model");
            plan.answers_per_s(sessions, bytes, durable).expect("is modelled")
        };
        assert_eq!(of("model:flush=8ms,count=4", 4800, 64.0, true), 600_000.0);
        assert_eq!(of("model:flush=8ms,bandwidth=1MB/s,count=2", 1000, 32.0, true), 1000.0 / (0.008 + 0.016));
        assert_eq!(of("model:flush=8ms,bandwidth=1MB/s", 1000, 32.0, false), 31_250.0);
        assert_eq!(of("model:flush=8ms,bandwidth=1MB/s,write-behind=1MB,answer=1ms", 10, 32.0, true), 10_000.0);
        assert!(of("model:flush=8ms", 10, 32.0, false).is_infinite());
        assert_eq!(LogPlan::default().answers_per_s(1, 32.0, true), None);
    }

    #[test]
    fn what_is_wrong_is_said_with_what_would_be_right() {
        for (value, said) in [
            ("model:flush=8", "8ms"),
            ("model:flush=-1ms", "8ms"),
            ("model:flush=900s", "up to a minute"),
            ("model:bandwidth=fast", "40MB/s"),
            ("model:bandwidth=0MB/s", "40MB/s"),
            ("model:speed=3", "none of flush"),
            ("model:flush", "KEY=VALUE"),
            ("model:flush=1ms,count=0", "1 to 16"),
            ("model:flush=1ms,answer=1ms", "write-behind"),
            ("model:", "needs flush"),
            ("/nowhere/at/all", "no directory"),
        ] {
            let error = value.parse::<LogPlan>().expect_err(value);
            assert!(error.contains(said), "{value}: {error}");
        }
    }

    #[test]
    fn a_log_in_a_given_directory_leaves_nothing_there() {
        let (data, log) = (tempfile::tempdir().expect("a directory"), tempfile::tempdir().expect("a directory"));
        let plan: LogPlan = log.path().to_str().expect("is text").parse().expect("a directory");
        let made = plan.directories(data.path());
        let laid = Laid::at(plan, data.path());
        std::fs::create_dir_all(&made[0]).expect("makes");
        drop(laid);
        assert_eq!(std::fs::read_dir(log.path()).expect("lists").count(), 0);
        assert!(log.path().is_dir());
    }

    #[test]
    fn a_device_that_is_too_small_is_refused_with_need_and_remedy() {
        let plan: LogPlan = "model:flush=1ms,count=2".parse().expect("a model");
        let refused = plan.refuse_too_small(Path::new("/tmp"), 1 << 60).expect_err("no disk is that large").to_string();
        assert!(refused.contains("needs") && refused.contains("free") && refused.contains("--log"), "{refused}");
        assert!(plan.refuse_too_small(Path::new("/tmp"), 4096).is_ok());
    }
}
