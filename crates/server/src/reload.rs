//! What does SIGHUP change? The configuration is read again; what can change while the server runs does, and the log says so, as it says what waits for a
//! restart. One that cannot be used changes nothing.
//!
//! | at once | with a restart |
//! |---|---|
//! | `[settings]`, `[[rule]]`, `log_level`, `drain_timeout`, `recovery_target`, `checkpoint_rate` | everything else |

use crate::admission::Rules;
use crate::config::{Config, ConfigError};
use crate::listener::ListenError;
use crate::logging;
use freshet_db::Database;
use toml::Table;

/// One thing that the file says otherwise than what is in force.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Change {
    pub name: String,
    pub from: String,
    pub to: String,
    /// It is in force now.
    pub is_taken: bool,
}

const TAKEN: [&str; 5] = ["rule", "log_level", "drain_timeout", "recovery_target", "checkpoint_rate"];

/// Puts into force what can be of `new`, and says what has changed. `take_rules` may refuse those that would serve others without a proof of who they
/// are. A file without any rule where there were some is refused, too: one that was cut short looks like that, and without rules whoever is on this
/// machine is trusted.
pub fn take(
    running: &mut Config,
    new: &Config,
    database: &Database,
    take_rules: impl FnOnce(Rules) -> Result<(), ListenError>,
) -> Result<Vec<Change>, ConfigError> {
    let defaults = new.defaults()?;
    if new.rule.is_empty() && !running.rule.is_empty() {
        return Err(ConfigError(
            "no [[rule]] is left, which trusts everybody on this machine: that takes a restart".into(),
        ));
    }
    let changes = changes(&table(running)?, &table(new)?);
    if running.rule != new.rule {
        take_rules(Rules(new.rule.clone())).map_err(|error| ConfigError(error.0))?;
        running.rule.clone_from(&new.rule);
    }
    if running.settings != new.settings {
        database.activity().set_defaults(defaults);
        running.settings = new.settings.clone();
    }
    if running.log_level != new.log_level {
        logging::set_level(&new.log_level).map_err(ConfigError)?;
        running.log_level.clone_from(&new.log_level);
    }
    if running.recovery_target != new.recovery_target {
        database.engine().set_recovery_target(new.recovery_target.0);
        running.recovery_target = new.recovery_target;
    }
    if running.checkpoint_rate != new.checkpoint_rate {
        database.engine().set_checkpoint_pace(new.checkpoint_rate.0);
        running.checkpoint_rate = new.checkpoint_rate;
    }
    running.drain_timeout = new.drain_timeout;
    Ok(changes)
}

fn table(config: &Config) -> Result<Table, ConfigError> {
    Table::try_from(config).map_err(|error| ConfigError(format!("the configuration as TOML: {error}")))
}

fn changes(running: &Table, new: &Table) -> Vec<Change> {
    let none = Table::new();
    let settings = |of: &Table| of.get("settings").and_then(|s| s.as_table().cloned()).unwrap_or_else(|| none.clone());
    let mut all = differences(running, new, "", |name| TAKEN.contains(&name));
    all.extend(differences(&settings(running), &settings(new), "settings.", |_| true));
    all
}

fn differences(running: &Table, new: &Table, prefix: &str, is_taken: impl Fn(&str) -> bool) -> Vec<Change> {
    let mut names: Vec<&String> = running.keys().chain(new.keys()).filter(|name| *name != "settings").collect();
    names.sort_unstable();
    names.dedup();
    let show = |of: &Table, name: &String| of.get(name).map_or_else(|| "unset".to_owned(), ToString::to_string);
    let differs = |name: &&String| running.get(*name) != new.get(*name);
    let change = |name: &String| Change {
        name: format!("{prefix}{name}"),
        from: show(running, name),
        to: show(new, name),
        is_taken: is_taken(name),
    };
    names.into_iter().filter(differs).map(change).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Layer;
    use freshet_db::Options;

    fn config(text: &str) -> Config {
        toml::from_str::<Layer>(text).expect("a configuration").with_defaults()
    }

    #[test]
    fn what_can_change_does_and_the_rest_is_told() {
        let directory = tempfile::tempdir().unwrap();
        let database = Database::open(Options::small(directory.path())).unwrap();
        let mut running = config("workers = 2\n[settings]\nlock_timeout = '1s'");
        let new = config("workers = 3\nrecovery_target = '20s'\n[settings]\nidle_session_timeout = '5min'");
        let changes = take(&mut running, &new, &database, |_| Ok(())).unwrap();
        let told: Vec<_> = changes.iter().map(|c| (c.name.as_str(), c.to.as_str(), c.is_taken)).collect();
        assert_eq!(
            told,
            [
                ("recovery_target", "\"20s\"", true),
                ("workers", "3", false),
                ("settings.idle_session_timeout", "\"5min\"", true),
                ("settings.lock_timeout", "unset", true),
            ]
        );
        assert_eq!((running.workers, running.recovery_target), (2, new.recovery_target));
        assert_eq!(database.engine().recovery_target(), Some(new.recovery_target.0));
        let mut session = database.sql_session().unwrap();
        assert_eq!(session.setting("idle_session_timeout").as_deref(), Some("5min"));
        // A session that is there follows too, and one that cannot be used changes nothing.
        assert_eq!(
            take(&mut running, &config("workers = 2\nrecovery_target = '20s'"), &database, |_| Ok(())).unwrap().len(),
            1
        );
        session.follow_defaults();
        assert_eq!(session.setting("idle_session_timeout").as_deref(), Some("0"));
        let rule = "workers = 2\n[[rule]]\ntype = 'local'\ndatabase = 'all'\nuser = 'all'\nmethod = 'trust'";
        let refuse = |_| Err(ListenError("no".to_owned()));
        assert!(take(&mut running, &config(rule), &database, refuse).is_err());
        assert!(running.rule.is_empty(), "those in force stay");
        assert!(take(&mut running, &config(rule), &database, |_| Ok(())).unwrap()[0].is_taken);
        let none = "workers = 2\nrecovery_target = '30s'";
        let refused = take(&mut running, &config(none), &database, |_| Ok(())).unwrap_err();
        assert!(refused.0.contains("no [[rule]] is left"), "{}", refused.0);
        assert!(running.rule.len() == 1 && running.recovery_target != config(none).recovery_target);
        running.rule.clear();
        assert!(
            take(&mut running, &config("workers = 2\n[settings]\nlock_timeout = 'soon'"), &database, |_| Ok(()))
                .is_err()
        );
        assert!(running.settings.is_empty());
    }
}
