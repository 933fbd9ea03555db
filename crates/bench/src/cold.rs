//! How does a restart find nothing in the page cache? Every file is synced, then `posix_fadvise(DONTNEED)` drops its pages.
//!
//! Other files stay cached, so that a machine shared with other work is not slowed down, and nobody needs to be root. What the host of a
//! virtual machine caches is out of reach; the bandwidth that figures are compared with was measured under the same cache.

use crate::error::{BenchError, on};
use rustix::fs::{Advice, fadvise};
use std::fs::{self, File};
use std::path::Path;

/// Drops the cached pages of every file below `dir`; gives their bytes.
pub fn drop_cached(dir: &Path) -> Result<u64, BenchError> {
    let mut bytes = 0;
    for entry in fs::read_dir(dir).map_err(on(dir))? {
        let path = entry.map_err(on(dir))?.path();
        let kind = fs::symlink_metadata(&path).map_err(on(&path))?.file_type();
        if kind.is_dir() {
            bytes += drop_cached(&path)?;
        } else if kind.is_file() {
            let file = File::open(&path).map_err(on(&path))?;
            bytes += drop_file(&file).map_err(on(&path))?;
        }
    }
    Ok(bytes)
}

/// Drops the cached pages of one file; gives its bytes.
pub fn drop_file(file: &File) -> std::io::Result<u64> {
    // Dirty pages are not dropped.
    file.sync_all()?;
    fadvise(file, 0, None, Advice::DontNeed)?;
    Ok(file.metadata()?.len())
}
