//! Where does a system write its log? `--log` in one place for every adapter.
//!
//! | `--log` | meaning |
//! |---|---|
//! | (nothing), `1`, `2`, `4` | so many streams, each a directory below the database's own |
//! | `DIR` (repeatable) | a stream in each of these directories (another disk, a tmpfs) |
//!
//! Systems with one log take the first place.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// As many directories as a machine may have log disks.
const STREAMS_MAX: usize = 16;

#[derive(Clone, PartialEq, Debug)]
pub enum LogPlan {
    Streams(usize),
    Directories(Vec<PathBuf>),
}

impl Default for LogPlan {
    fn default() -> LogPlan {
        LogPlan::Streams(1)
    }
}

impl FromStr for LogPlan {
    type Err = String;

    fn from_str(text: &str) -> Result<LogPlan, String> {
        match text.parse::<usize>() {
            Ok(streams) if (1..=STREAMS_MAX).contains(&streams) => Ok(LogPlan::Streams(streams)),
            Ok(_) => Err(format!("1 to {STREAMS_MAX} log streams, or a directory")),
            Err(_) if text.is_empty() => Err("a number of log streams, or a directory".to_owned()),
            Err(_) => Ok(LogPlan::Directories(vec![PathBuf::from(text)])),
        }
    }
}

impl fmt::Display for LogPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LogPlan::Streams(streams) => write!(f, "{streams}"),
            LogPlan::Directories(dirs) => {
                let dirs: Vec<String> = dirs.iter().map(|dir| dir.display().to_string()).collect();
                f.write_str(&dirs.join(","))
            }
        }
    }
}

impl LogPlan {
    /// The plan of several `--log` options: directories add up, anything else stands alone.
    pub fn of_all(plans: &[LogPlan]) -> Result<LogPlan, String> {
        let mut all = Vec::new();
        for plan in plans {
            match plan {
                LogPlan::Directories(dirs) => all.extend(dirs.iter().cloned()),
                alone if plans.len() == 1 => return Ok(alone.clone()),
                other => {
                    return Err(format!("--log {other} stands alone; only directories can be given several times"));
                }
            }
        }
        Ok(if all.is_empty() { LogPlan::default() } else { LogPlan::Directories(all) })
    }

    /// Devices that write at the same time.
    pub fn devices(&self) -> usize {
        match self {
            LogPlan::Streams(streams) => *streams,
            LogPlan::Directories(dirs) => dirs.len(),
        }
    }

    /// One directory for each, below `data` or, named after it, below each of the given ones.
    pub fn directories(&self, data: &Path) -> Vec<PathBuf> {
        match self {
            LogPlan::Streams(streams) => (0..*streams).map(|i| data.join(format!("log{i}"))).collect(),
            LogPlan::Directories(dirs) => {
                let name = data.file_name().map_or_else(|| "log".into(), |name| name.to_string_lossy().into_owned());
                dirs.iter().enumerate().map(|(i, dir)| dir.join(format!("freshet-bench-{name}-{i}"))).collect()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_streams_and_the_rest_directories() {
        assert_eq!("4".parse(), Ok(LogPlan::Streams(4)));
        assert!("0".parse::<LogPlan>().is_err() && "17".parse::<LogPlan>().is_err() && "".parse::<LogPlan>().is_err());
        let dirs: Vec<LogPlan> = ["/a", "/b"].iter().map(|d| d.parse().expect("a directory")).collect();
        let both = LogPlan::of_all(&dirs).expect("directories add up");
        assert_eq!(both.devices(), 2);
        assert_eq!(both.directories(Path::new("/x/db"))[1], Path::new("/b/freshet-bench-db-1"));
        assert!(LogPlan::of_all(&[LogPlan::Streams(1), LogPlan::Streams(2)]).is_err());
        assert_eq!(LogPlan::of_all(&[]), Ok(LogPlan::Streams(1)));
    }
}
