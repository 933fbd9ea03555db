//! A directory for one case, gone when the case ends, however it ends: SIGINT and SIGTERM included.

use crate::error::{BenchError, on};
use crate::interrupt;
use std::path::{Path, PathBuf};

pub(crate) struct Scratch {
    path: PathBuf,
}

impl Scratch {
    pub fn new(parent: &Path, case: &str) -> Result<Scratch, BenchError> {
        let path = parent.join(format!("{case}-{}", std::process::id()));
        if path.exists() {
            std::fs::remove_dir_all(&path).map_err(on(&path))?;
        }
        interrupt::will_make(&path, interrupt::directory);
        let scratch = Scratch { path };
        std::fs::create_dir_all(&scratch.path).map_err(on(&scratch.path))?;
        Ok(scratch)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What cannot be removed lies where the user put it, under a name that says what it is.
        let _ = std::fs::remove_dir_all(&self.path);
        interrupt::has_removed(&self.path);
    }
}
