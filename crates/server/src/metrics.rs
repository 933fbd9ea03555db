//! What does Prometheus get? Everything that the statistics views count, in its text format.

use crate::logging;
use crate::watched::Watched;
use freshet_db::Database;
use freshet_db::sql::activity::Activity;
use freshet_db::sql::counts::Count;
use freshet_db::sql::latency::end_us;
use std::fmt::Write;

/// Lines on their way.
struct Text(String);

impl Text {
    fn head(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.0, "# HELP freshet_{name} {help}\n# TYPE freshet_{name} {kind}");
    }

    fn line(&mut self, name: &str, labels: &str, value: f64) {
        let _ = writeln!(self.0, "freshet_{name}{labels} {value}");
    }

    fn gauge(&mut self, name: &str, help: &str, value: f64) {
        self.head(name, "gauge", help);
        self.line(name, "", value);
    }

    fn counter(&mut self, name: &str, help: &str, value: u64) {
        self.head(name, "counter", help);
        self.line(name, "", value as f64);
    }
}

pub fn text(watched: &Watched) -> String {
    let mut text = Text(String::with_capacity(8 << 10));
    let ready = watched.unreadiness().is_none();
    text.gauge("ready", "1: sessions are served; 0: recovering, stopping or failed.", f64::from(u8::from(ready)));
    text.gauge("sessions", "Sessions of clients.", watched.registry.count() as f64);
    text.gauge("sessions_max", "max_connections.", watched.registry.members_max() as f64);
    let long = watched.long.facts();
    text.gauge("long_statements_running", "Statements on threads of their own.", long.running as f64);
    text.gauge("long_statements_waiting", "Long statements that wait for a thread.", long.waiting as f64);
    text.counter("long_statements_refused_total", "Long statements refused because too many waited.", long.refused);
    text.counter("log_lines_dropped_total", "Lines of the server's log that nobody read in time.", logging::dropped());
    if let Some(database) = watched.database.get() {
        work(&mut text, database.activity());
        states(&mut text, database);
        engine(&mut text, database);
    }
    text.0
}

fn work(text: &mut Text, activity: &Activity) {
    text.counter("connections_total", "Sessions that clients began.", activity.joined());
    let sums = activity.counts.sums();
    for (name, help, what) in [
        ("statements_total", "Statements that ended well.", Count::Statements),
        ("errors_total", "Statements that ended with an error.", Count::Errors),
        ("commits_total", "Transactions committed.", Count::Commits),
        ("rollbacks_total", "Transactions rolled back.", Count::Rollbacks),
        ("rows_given_total", "Rows that statements gave.", Count::RowsGiven),
        ("rows_inserted_total", "Rows inserted by statements.", Count::RowsInserted),
        ("rows_updated_total", "Rows updated by statements.", Count::RowsUpdated),
        ("rows_deleted_total", "Rows deleted by statements.", Count::RowsDeleted),
        ("lock_waits_total", "Times a statement waited for a lock.", Count::LockWaits),
        ("lock_timeouts_total", "Waits that lock_timeout or NOWAIT ended.", Count::LockTimeouts),
        ("deadlocks_total", "Statements that were a deadlock's victim.", Count::Deadlocks),
        ("serialization_failures_total", "Statements that failed with 40001.", Count::SerializationFailures),
    ] {
        text.counter(name, help, sums.get(what));
    }
    let responses = activity.latency.responses();
    let name = "response_seconds";
    text.head(name, "histogram", "From a request's first byte to its answer's last, the flush included.");
    let mut seen = 0;
    for (at, count) in responses.counts.iter().enumerate() {
        seen += count;
        let end = end_us(at).map_or_else(|| "+Inf".to_owned(), |us| (us as f64 / 1e6).to_string());
        text.line("response_seconds_bucket", &format!("{{le=\"{end}\"}}"), seen as f64);
    }
    text.line("response_seconds_sum", "", responses.sum_us as f64 / 1e6);
    text.line("response_seconds_count", "", seen as f64);
}

fn states(text: &mut Text, database: &Database) {
    let members = database.activity().members();
    let states: Vec<&str> = members.iter().map(|member| member.doing().state()).collect();
    text.head("sessions_by_state", "gauge", "Sessions by what they do, as pg_stat_activity has it.");
    for state in ["active", "idle", "idle in transaction", "idle in transaction (aborted)"] {
        let count = states.iter().filter(|of| **of == state).count();
        text.line("sessions_by_state", &format!("{{state=\"{state}\"}}"), count as f64);
    }
    let locks = database.engine().locks();
    let waiting = locks.iter().filter(|lock| !lock.is_granted).count();
    text.gauge("locks_held", "Locks that are held, as far as pg_locks shows them.", (locks.len() - waiting) as f64);
    text.gauge("locks_waiting", "Sessions that wait for a lock.", waiting as f64);
}

fn engine(text: &mut Text, database: &Database) {
    let engine = database.engine();
    let stats = database.stats();
    text.counter("log_commit_records_total", "Commits written to the log.", stats.commit_records);
    text.counter("log_commit_bytes_total", "Bytes of these.", stats.commit_record_bytes);
    text.counter("log_groups_total", "Writes to the log's devices.", stats.groups);
    text.counter("log_flushes_total", "Flushes of the log's devices.", stats.flushes);
    text.gauge("log_used_bytes", "Log that is still needed.", stats.log_used_bytes as f64);
    text.gauge("log_capacity_bytes", "Room for the log.", stats.log_capacity_bytes as f64);
    text.gauge("durable_epoch", "The last epoch that is on all its devices.", stats.durable_epoch as f64);
    let failed = engine.failure().is_some();
    text.gauge("log_failed", "1: the log failed, and nothing more is acknowledged.", f64::from(u8::from(failed)));
    let checkpoint = engine.checkpoint_progress();
    text.counter("checkpoints_total", "Checkpoints completed.", checkpoint.finished);
    text.gauge("checkpoint_running", "1: a checkpoint runs.", f64::from(u8::from(checkpoint.running)));
    text.gauge("checkpoint_dirty_pages", "Pages the next checkpoint writes.", checkpoint.dirty_pages as f64);
    let attempts = checkpoint.failure.map_or(0, |failure| failure.attempts);
    text.gauge("checkpoint_failed_attempts", "Attempts that failed since the last success.", f64::from(attempts));
    if let Some(last) = checkpoint.last {
        text.gauge("checkpoint_last_seconds", "What the last checkpoint took.", last.elapsed_us as f64 / 1e6);
        text.gauge("checkpoint_last_bytes", "What the last checkpoint wrote.", last.bytes as f64);
    }
    let limit = engine.memory_limit();
    text.gauge("memory_used_bytes", "Memory taken of the limit.", limit.used_bytes as f64);
    text.gauge("memory_limit_bytes", "The memory limit.", limit.limit_bytes as f64);
    text.gauge("memory_resident_bytes", "Memory of the process.", freshet_db::resident_bytes() as f64);
    text.gauge("index_bytes", "Memory of all indexes.", stats.index_bytes as f64);
    let garbage = engine.garbage();
    text.gauge("version_bytes", "Memory of former versions.", garbage.version_bytes as f64);
    text.gauge("garbage_waiting_writes", "Writes whose former versions are kept.", garbage.waiting_writes as f64);
    text.gauge("garbage_held_back_epochs", "How far the oldest snapshot holds them.", garbage.held_back_epochs as f64);
    if let Some(seconds) = engine.restart_forecast().predicted_seconds {
        text.gauge("restart_forecast_seconds", "What a restart would take now.", seconds);
    }
    if let Ok(open) = std::fs::read_dir("/proc/self/fd") {
        text.gauge("open_fds", "File descriptors of the process.", open.count() as f64);
    }
}
