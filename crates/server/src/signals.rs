//! Which signals end the process? SIGINT and SIGTERM do. SIGHUP and SIGXFSZ, which would too, do not.
//!
//! | signal | while the database opens | then |
//! |---|---|---|
//! | SIGINT, SIGTERM | the process ends at once, which costs nothing: it is what recovery is for | the server stops; a second one ends the process |
//! | SIGHUP | waits | the configuration is read again |
//! | SIGXFSZ | a file grew to the limit on file sizes: what is being written fails | the same |

use std::io;
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// A limit on file sizes is an error of whoever writes, as in PostgreSQL, and not the end of the process.
pub fn survive_file_size_limit() {
    let number = rustix::process::Signal::XFSZ.as_raw();
    // Where that fails the limit ends the process, as it would have.
    let _ = runtime().and_then(|runtime| listen(&runtime, SignalKind::from_raw(number)));
}

fn runtime() -> io::Result<Runtime> {
    Builder::new_current_thread().enable_all().build()
}

/// From now on the signal does not end the process, listened to or not.
fn listen(runtime: &Runtime, kind: SignalKind) -> io::Result<Signal> {
    let _inside = runtime.enter();
    signal(kind)
}

/// What is heard before the database is open.
pub struct Early {
    runtime: Runtime,
    hang_up: Signal,
}

/// What is heard while it is served.
pub struct Signals {
    pub runtime: Runtime,
    pub interrupt: Signal,
    pub terminate: Signal,
    /// Not an end: the configuration is read again.
    pub hang_up: Signal,
}

impl Early {
    pub fn watch() -> io::Result<Early> {
        let runtime = runtime()?;
        let hang_up = listen(&runtime, SignalKind::hangup())?;
        Ok(Early { runtime, hang_up })
    }

    pub fn go_on(self) -> io::Result<Signals> {
        let Early { runtime, hang_up } = self;
        let interrupt = listen(&runtime, SignalKind::interrupt())?;
        let terminate = listen(&runtime, SignalKind::terminate())?;
        Ok(Signals { runtime, interrupt, terminate, hang_up })
    }
}
