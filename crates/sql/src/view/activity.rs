//! `pg_stat_activity`: who is connected, and what are they doing? One row for each session that a server serves.

use super::locks::kind;
use super::{About, Cells, SystemView, text};
use crate::activity::{Awaits, Doing, Member};
use crate::catalog::oid;
use crate::error::SqlError;
use crate::role;
use crate::value::Datum;
use freshet_engine::schema::Type;
use freshet_engine::txn::LockFact;

pub struct ActivityView;

impl SystemView for ActivityView {
    fn name(&self) -> &'static str {
        "pg_stat_activity"
    }

    fn columns(&self) -> &'static [(&'static str, Type)] {
        &[
            ("datid", Type::Int8),
            ("datname", Type::Text),
            ("pid", Type::Int4),
            ("leader_pid", Type::Int4),
            ("usesysid", Type::Int8),
            ("usename", Type::Text),
            ("application_name", Type::Text),
            ("client_addr", Type::Text),
            ("client_hostname", Type::Text),
            ("client_port", Type::Int4),
            ("backend_start", Type::Timestamptz),
            ("xact_start", Type::Timestamptz),
            ("query_start", Type::Timestamptz),
            ("state_change", Type::Timestamptz),
            ("wait_event_type", Type::Text),
            ("wait_event", Type::Text),
            ("state", Type::Text),
            ("backend_xid", Type::Int8),
            ("backend_xmin", Type::Int8),
            ("query_id", Type::Int8),
            ("query", Type::Text),
            ("backend_type", Type::Text),
        ]
    }

    fn rows(&self, about: &About<'_>) -> Result<Vec<Cells>, SqlError> {
        let locks = about.engine.locks();
        let members = about.env.activity.as_ref().map_or_else(Vec::new, |activity| activity.members());
        let mut rows: Vec<Cells> = members.iter().map(|member| row(member, &locks, about)).collect();
        if let Some(access) = &about.env.access {
            // What others do is theirs, and the superusers'.
            for (member, cells) in members.iter().zip(&mut rows) {
                if !access.has_role(member.role) {
                    cells[7..].fill(Datum::Null);
                    cells[20] = text("<insufficient privilege>");
                }
            }
        }
        Ok(rows)
    }
}

/// What the session waits for, as PostgreSQL names it.
fn wait(member: &Member, doing: &Doing, locks: &[LockFact]) -> Option<(&'static str, &'static str)> {
    let is_its = |fact: &&LockFact| !fact.is_granted && i64::from(fact.session) == i64::from(member.pid);
    if let Some(fact) = locks.iter().find(is_its) {
        return Some(("Lock", kind(fact.thing)));
    }
    match member.awaits() {
        _ if doing.is_sleeping => Some(("Timeout", "PgSleep")),
        Awaits::ClientRead => Some(("Client", "ClientRead")),
        Awaits::ClientWrite => Some(("Client", "ClientWrite")),
        Awaits::Place => Some(("Extension", "LongStatementPlace")),
        Awaits::Nothing if doing.is_active => None,
        Awaits::Nothing if member.awaits_log() => Some(("IO", "WALSync")),
        Awaits::Nothing => Some(("Client", "ClientRead")),
    }
}

fn row(member: &Member, locks: &[LockFact], about: &About<'_>) -> Cells {
    let mut doing = member.doing();
    let wait = wait(member, &doing, locks);
    // The client waits for the end of what it sent last.
    doing.is_active |= member.awaits() != Awaits::Nothing || member.awaits_log();
    let (wait_type, wait) = wait.map_or((Datum::Null, Datum::Null), |(kind, name)| (text(kind), text(name)));
    let client = member.client();
    let moment = |at: Option<i64>| at.map_or(Datum::Null, Datum::Int);
    let mut cells = vec![Datum::Null; 22];
    cells[0] = Datum::Int(i64::from(oid::DATABASE));
    cells[1] = text(&member.database);
    cells[2] = Datum::Int(i64::from(member.pid));
    cells[4] = Datum::Int(i64::from(member.role.0));
    cells[5] = text(&role::name(about.schema, member.role, &member.user));
    cells[6] = text(&doing.application_name);
    cells[7] = client.map_or(Datum::Null, |client| text(&client.ip().to_canonical().to_string()));
    // As in PostgreSQL, for a client on the machine's own socket.
    cells[9] = Datum::Int(client.map_or(-1, |client| i64::from(client.port())));
    cells[10] = Datum::Int(member.start);
    cells[11] = moment(doing.transaction_start);
    cells[12] = moment(doing.query_start);
    cells[13] = moment(doing.state_change);
    cells[14] = wait_type;
    cells[15] = wait;
    cells[16] = text(doing.state());
    cells[20] = text(&doing.query);
    cells[21] = text("client backend");
    cells
}
