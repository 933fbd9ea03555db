//! How do clients of the same machine come without TCP? Through a socket file, where PostgreSQL's clients look for one:
//! `DIR/.s.PGSQL.PORT`, with the port of the address that is listened on (`psql -h DIR -p PORT`).
//!
//! 1. A file that a server still answers at is never taken away; one that nobody answers at was left behind, and is.
//! 2. When the listener goes the file goes, if it is still this listener's.

use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use tokio::net::UnixListener;

/// The kernel's limit on the path of a socket, its final zero included.
const PATH_BYTES_MAX: usize = 108;

/// Who may come in is the rules' matter.
const MODE: u32 = 0o777;

/// A socket file that is listened at; dropped, it is gone.
pub(crate) struct LocalListener {
    pub listener: UnixListener,
    path: PathBuf,
    /// Device and inode of the file.
    file: (u64, u64),
}

impl LocalListener {
    /// Within a runtime.
    pub fn bind(dir: &Path, port: u16) -> Result<LocalListener, String> {
        let path = dir.join(format!(".s.PGSQL.{port}"));
        let failed = |error: io::Error| format!("cannot listen on {}: {error}", path.display());
        if path.as_os_str().len() >= PATH_BYTES_MAX {
            return Err(format!(
                "cannot listen on {}: the path of a socket has less than {PATH_BYTES_MAX} bytes",
                path.display()
            ));
        }
        clear(&path).map_err(failed)?;
        let listener = UnixListener::bind(&path).map_err(failed)?;
        let made =
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(MODE)).and_then(|()| identity(&path));
        let file = made.map_err(failed)?;
        Ok(LocalListener { listener, path, file })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for LocalListener {
    fn drop(&mut self) {
        if identity(&self.path).is_ok_and(|file| file == self.file)
            && let Err(error) = std::fs::remove_file(&self.path)
        {
            tracing::warn!("{} stays behind: {error}", self.path.display());
        }
    }
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    let file = std::fs::symlink_metadata(path)?;
    Ok((file.dev(), file.ino()))
}

/// Takes away what a server left that was killed.
fn clear(path: &Path) -> io::Result<()> {
    match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
        Ok(file) if !file.file_type().is_socket() => {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, "there is a file that is no socket"));
        }
        Ok(_) => {}
    }
    match UnixStream::connect(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => std::fs::remove_file(path),
        // One whose queue is full is busy, not gone.
        Ok(_) => Err(io::Error::new(io::ErrorKind::AddrInUse, "another server listens there")),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            Err(io::Error::new(io::ErrorKind::AddrInUse, "another server listens there"))
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listen(dir: &Path) -> Result<LocalListener, String> {
        LocalListener::bind(dir, 5433)
    }

    #[tokio::test]
    async fn the_file_goes_with_the_listener_and_one_left_behind_is_taken_over() {
        let dir = tempfile::tempdir().expect("a directory");
        let first = listen(dir.path()).expect("nothing is there");
        let path = first.path().to_owned();
        assert!(listen(dir.path()).err().expect("it is in use").contains("another server"));
        drop(first);
        assert!(!path.exists());
        // A server that was killed leaves its file.
        drop(std::os::unix::net::UnixListener::bind(&path).expect("a socket"));
        assert!(path.exists());
        let second = listen(dir.path()).expect("nobody answers there");
        // The file of whoever came after stays.
        std::fs::remove_file(&path).expect("it is there");
        std::fs::write(&path, "").expect("another file");
        drop(second);
        assert!(path.exists());
        assert!(listen(dir.path()).err().expect("no socket").contains("no socket"));
    }

    #[tokio::test]
    async fn a_path_that_is_too_long_is_said() {
        let dir = PathBuf::from(format!("/tmp/{}", "x".repeat(100)));
        assert!(listen(&dir).err().expect("too long").contains("less than 108 bytes"));
        assert!(listen(Path::new("/nowhere")).err().expect("no directory").contains("/nowhere"));
    }
}
