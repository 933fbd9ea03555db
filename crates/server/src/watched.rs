//! What can be seen of a server from outside? Its parts, for who tells of them.

use crate::pgwire::long::LongStatements;
use crate::pgwire::registry::Registry;
use crate::recovery::Recovery;
use freshet_db::Database;
use std::sync::{Arc, OnceLock};

/// What is told about.
pub struct Watched {
    pub recovery: Arc<Recovery>,
    pub registry: Arc<Registry>,
    pub long: Arc<LongStatements>,
    /// Once it is open.
    pub database: OnceLock<Database>,
}

impl Watched {
    /// Why the process is of no more use.
    pub fn sickness(&self) -> Option<String> {
        self.database.get().and_then(|database| database.engine().failure())
    }

    /// Why no client is to be sent here now.
    pub fn unreadiness(&self) -> Option<String> {
        if self.database.get().is_none() {
            let refusal = self.recovery.refusal();
            return Some(format!("{}: {}", refusal.message, refusal.detail.unwrap_or_default()));
        }
        self.sickness()
            .or_else(|| self.registry.is_leaving().then(|| "the database system is shutting down".to_owned()))
    }
}
