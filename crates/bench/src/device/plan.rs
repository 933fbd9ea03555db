//! What does `--log` mean, and is there room for it? Each value is a place for one log device, or a model of one.
//!
//! | value | the log lies |
//! |---|---|
//! | none | in the run's own directory |
//! | `DIR` | in a directory of its own below it: a disk, an SSD, tmpfs |
//! | `model:KEY=VALUE,...` | on a modelled device, whose files lie in the run's own directory |
//!
//! | key | meaning | default |
//! |---|---|---|
//! | `flush=8ms` | seek and rotation of a durable write | 0 |
//! | `bandwidth=40MB/s` | what the medium writes | what this machine does |
//! | `write-behind=24MB` | a cache that answers before the medium has written | none: write-through |
//! | `answer=1ms` | what the cache's controller takes to answer | 0.1ms |
//! | `count=4` | so many devices of this kind | 1 |
//! | `on=DIR` | where the files behind it lie | the run's own directory |

use super::files::ModelledIo;
use super::model::{Cache, Model};
use crate::error::{BenchError, on};
use crate::machine::disk_available;
use std::collections::BTreeMap;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Where the devices of a run are.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct LogPlan {
    places: Vec<Place>,
    said: Vec<String>,
}

#[derive(Clone, PartialEq, Debug)]
struct Place {
    /// Below it the device gets a directory; none: the run's own.
    parent: Option<PathBuf>,
    model: Option<Model>,
}

/// As many devices as the engine takes.
const DEVICES_MAX: usize = 64;
const ANSWER: Duration = Duration::from_micros(100);

impl LogPlan {
    pub fn parse(values: &[String]) -> Result<LogPlan, BenchError> {
        let mut places = Vec::new();
        for value in values {
            match value.strip_prefix("model:") {
                None => places.push(directory(value)?),
                Some(keys) => {
                    let wrong = |why| BenchError::Usage(format!("--log {value}: {why}"));
                    let (place, count) = modelled(keys).map_err(wrong)?;
                    places.extend(std::iter::repeat_n(place, count));
                }
            }
        }
        if places.len() > DEVICES_MAX {
            let given = places.len();
            return Err(BenchError::Usage(format!("--log: at most {DEVICES_MAX} devices, {given} given")));
        }
        Ok(LogPlan { places, said: values.to_vec() })
    }

    /// The same devices, but so many of them.
    pub fn of(model: Model, count: usize, said: impl Into<String>) -> LogPlan {
        let place = Place { parent: None, model: Some(model) };
        LogPlan { places: vec![place; count], said: vec![said.into()] }
    }

    pub fn devices(&self) -> usize {
        self.places.len().max(1)
    }

    pub fn is_modelled(&self) -> bool {
        self.places.iter().any(|place| place.model.is_some())
    }

    /// As the user said it.
    pub fn said(&self) -> String {
        if self.said.is_empty() { "own directory".to_owned() } else { self.said.join(" ") }
    }

    /// Makes the directories, after a look whether a log of this size fits.
    pub fn lay(&self, own: &Path, log_size_bytes: u64) -> Result<Laid, BenchError> {
        let one = [Place { parent: None, model: None }];
        let places = if self.places.is_empty() { &one[..] } else { &self.places };
        let parent = |place: &Place| place.parent.clone().unwrap_or_else(|| own.to_owned());
        refuse_too_small(places.iter().map(parent), log_size_bytes / places.len() as u64)?;
        let mut laid = Laid { dirs: Vec::new(), io: None };
        let mut models = Vec::new();
        for (number, place) in places.iter().enumerate() {
            let dir = parent(place).join(format!("freshet-bench-log-{}-{number}", std::process::id()));
            if dir.exists() {
                std::fs::remove_dir_all(&dir).map_err(on(&dir))?;
            }
            std::fs::create_dir_all(&dir).map_err(on(&dir))?;
            laid.dirs.push(dir.clone());
            models.extend(place.model.map(|model| (dir, model)));
        }
        laid.io = (!models.is_empty()).then(|| ModelledIo::new(&models));
        Ok(laid)
    }
}

/// The devices of one database, gone when this goes.
pub struct Laid {
    pub dirs: Vec<PathBuf>,
    /// The files to open the database on, if a device is modelled.
    pub io: Option<Arc<ModelledIo>>,
}

impl Laid {
    /// The modelled devices, if there are any, take their time from now on; or no more.
    pub fn engage(&self, engaged: bool) {
        if let Some(io) = &self.io {
            io.engage(engaged);
        }
    }
}

impl Drop for Laid {
    fn drop(&mut self) {
        for dir in &self.dirs {
            // What cannot be removed lies where the user put it, under a name that says what it is.
            let _ = std::fs::remove_dir_all(dir);
        }
    }
}

fn directory(value: &str) -> Result<Place, BenchError> {
    let path = PathBuf::from(value);
    if value.is_empty() {
        return Err(BenchError::Usage("--log: a directory or model:KEY=VALUE,...".into()));
    }
    if std::fs::metadata(&path).is_ok_and(|meta| meta.file_type().is_block_device()) {
        return Err(BenchError::Usage(format!(
            "--log {value} is a raw block device, which the log does not write to; make a file system on it and give its directory: \
             mkfs.ext4 {value} && mount {value} /mnt && freshet bench ... --log /mnt"
        )));
    }
    if !path.is_dir() {
        return Err(BenchError::Usage(format!("--log {value}: there is no such directory")));
    }
    Ok(Place { parent: Some(path), model: None })
}

/// Devices that share a file system need room for all of them.
fn refuse_too_small(parents: impl Iterator<Item = PathBuf>, bytes_each: u64) -> Result<(), BenchError> {
    let mut needs: BTreeMap<u64, (PathBuf, u64)> = BTreeMap::new();
    for parent in parents {
        use std::os::unix::fs::MetadataExt;
        let file_system = std::fs::metadata(&parent).map_err(on(&parent))?.dev();
        needs.entry(file_system).or_insert((parent, 0)).1 += bytes_each;
    }
    for (parent, need) in needs.into_values() {
        let free = disk_available(&parent)?;
        if free < need {
            return Err(BenchError::Machine(format!(
                "{}: the log needs {} MiB there, {} MiB are free; give another directory with --log, or fewer --rows",
                parent.display(),
                need.div_ceil(1 << 20),
                free >> 20
            )));
        }
    }
    Ok(())
}

/// `flush=8ms,bandwidth=40MB/s,...`: a device, and how many of it.
fn modelled(keys: &str) -> Result<(Place, usize), String> {
    let mut model = Model { flush: Duration::ZERO, bandwidth_bytes_per_s: None, cache: None };
    let (mut cache_bytes, mut answer, mut count, mut parent) = (None, None, 1, None);
    for pair in keys.split(',').filter(|pair| !pair.is_empty()) {
        let (key, value) = pair.split_once('=').ok_or_else(|| format!("{pair:?} is not KEY=VALUE"))?;
        match key {
            "flush" => model.flush = duration(value)?,
            "bandwidth" => model.bandwidth_bytes_per_s = Some(bytes(value.trim_end_matches("/s"))?),
            "write-behind" => cache_bytes = Some(bytes(value)?),
            "answer" => answer = Some(duration(value)?),
            "count" => {
                count = value.parse().ok().filter(|n| (1..=DEVICES_MAX).contains(n)).ok_or("count is 1 to 64")?
            }
            "on" => parent = directory(value).map_err(|error| error.to_string())?.parent,
            _ => return Err(format!("{key:?} is none of flush, bandwidth, write-behind, answer, count, on")),
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
    Ok((Place { parent, model: Some(model) }, count))
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

    fn parse(value: &str) -> Result<LogPlan, String> {
        LogPlan::parse(&[value.to_owned()]).map_err(|error| error.to_string())
    }

    #[test]
    fn a_model_is_said_in_keys_with_units() {
        let plan = parse("model:flush=8ms,bandwidth=40MB/s,write-behind=24MB,answer=0.5ms,count=4").expect("parses");
        assert_eq!(plan.devices(), 4);
        let cache = Some(Cache { bytes: 24_000_000, answer: Duration::from_micros(500) });
        let model = Model { flush: Duration::from_millis(8), bandwidth_bytes_per_s: Some(40_000_000), cache };
        assert_eq!(plan.places[3].model, Some(model));
        assert!(plan.is_modelled() && !LogPlan::default().is_modelled());
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
            ("model:flush=1ms,count=0", "1 to 64"),
            ("model:flush=1ms,answer=1ms", "write-behind"),
            ("model:", "needs flush"),
            ("/nowhere/at/all", "no such directory"),
            ("", "a directory or model"),
        ] {
            let error = parse(value).expect_err(value);
            assert!(error.contains(said), "{value}: {error}");
        }
        let many = ["model:flush=1ms,count=40".to_owned(), "model:flush=1ms,count=40".to_owned()];
        assert!(LogPlan::parse(&many).expect_err("too many").to_string().contains("at most 64"));
    }

    #[test]
    fn a_device_that_is_too_small_is_refused_with_need_and_remedy() {
        let dir = tempfile::tempdir().expect("a directory");
        let plan = parse("model:flush=1ms,count=2").expect("parses");
        let refused = plan.lay(dir.path(), 1 << 60).err().expect("no disk is that large").to_string();
        assert!(refused.contains("needs") && refused.contains("free") && refused.contains("--log"), "{refused}");
        assert_eq!(std::fs::read_dir(dir.path()).expect("lists").count(), 0, "nothing was made");
    }

    #[test]
    fn laid_devices_have_a_directory_each_and_leave_nothing() {
        let (own, other) = (tempfile::tempdir().expect("a directory"), tempfile::tempdir().expect("a directory"));
        let values = ["model:flush=1ms,count=2".to_owned(), other.path().display().to_string()];
        let laid = LogPlan::parse(&values).expect("parses").lay(own.path(), 4096).expect("there is room");
        assert_eq!(laid.dirs.len(), 3);
        assert!(laid.dirs[0].starts_with(own.path()) && laid.dirs[2].starts_with(other.path()));
        assert!(laid.dirs.iter().all(|dir| dir.is_dir()) && laid.io.is_some());
        drop(laid);
        for dir in [own, other] {
            assert_eq!(std::fs::read_dir(dir.path()).expect("lists").count(), 0);
        }
    }
}
