//! Which statements are already planned? A cache by text, shared by a database's sessions.
//!
//! Two generations: what is used moves to the young one; when that is full it becomes the old one and the old one is forgotten. So a
//! statement that is still in use stays, and texts that come once go.

use crate::activity::Activity;
use crate::compiled::change::InsertSource;
use crate::compiled::once::Once;
use crate::compiled::point::Point;
use crate::expr::Expr;
use crate::notice::Notice;
use crate::road::Planned;
use crate::route::Plan;
use crate::rows::Column;
use crate::session::leftover::Leftovers;
use crate::statements::Tracked;
use crate::statistics::Statistics;
use crate::value::pgtype::SECOND_DIGITS_MAX;
use freshet_engine::catalog::{Schema, SchemaPath, TableId};
use freshet_engine::engine::Account;
use freshet_engine::schema::{TimeKind, Type};
use parking_lot::Mutex;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, OnceLock};

/// A parsed and bound statement; shared by all sessions through the statement cache, rebound when the schema changed.
#[derive(Debug)]
pub struct Prepared {
    pub sql: String,
    pub parameters: Vec<Type>,
    /// Empty: the statement gives no rows.
    pub columns: Arc<[Column]>,
    /// Parameter types as they were declared.
    pub(crate) declared: Box<[Option<Type>]>,
    pub(crate) schema: Arc<Schema>,
    pub(crate) plan: Plan,
    /// The plan as a lookup, if it is one.
    pub(crate) point: Option<Point>,
    /// The plan as a change of one row in one go, if it is one.
    pub(crate) once: Option<Once>,
    /// What is said whenever it is done.
    pub(crate) notice: Option<Box<Notice>>,
    /// Its place among the statements whose runs are counted.
    pub(crate) tracked: Tracked,
    /// The same on the other road, made when its tables are first found to be large enough; `None` in it: that road refuses it.
    pub(crate) heavy: OnceLock<Option<Arc<dyn Planned>>>,
    pub(crate) uses_clock: bool,
    /// Whether a catalog must be at hand when it runs, or when its result is shown.
    pub(crate) needs_catalog: bool,
    pub(crate) uses_sequences: bool,
    /// The search path that it was planned along.
    pub(crate) path: SchemaPath,
    /// The role that it was planned for; 0: one that may do everything.
    pub(crate) role: u32,
    /// Who may do what was as of this version when it was planned.
    pub(crate) rights_version: u64,
    /// Of the statistics that it was planned by; `None`: by none.
    pub(crate) epoch: Option<u64>,
    /// Tables of which these should be known, and were not.
    pub(crate) unknown_tables: Box<[TableId]>,
    /// Counts until the last user is gone.
    pub(crate) _charge: Account,
}

impl Prepared {
    /// The parameter that names the row, if it is a statement of one row by its key.
    #[inline]
    pub fn key_parameter(&self) -> Option<u16> {
        match (&self.once, &self.point) {
            (Some(once), _) => once.key_parameter(),
            (None, Some(point)) => point.key_parameter(),
            (None, None) => None,
        }
    }

    /// COMMIT, ROLLBACK, ROLLBACK TO and the like: what a failed transaction takes.
    pub fn ends_transaction(&self) -> bool {
        matches!(self.plan, Plan::Commit { .. } | Plan::Rollback { .. } | Plan::RollbackTo(_))
    }

    /// Whether the plan is the same for all values of its parameters: one row by its key, or rows that are given. A literal is read by the fields that
    /// its type of intervals is limited to, a parameter is not.
    pub(crate) fn fits_all_values(&self) -> bool {
        let has_span = self.parameters.iter().any(|ty| matches!(ty, Type::Interval | Type::Array(Type::Interval)));
        match &self.plan {
            Plan::Insert(insert) if has_span => {
                matches!(&insert.source, InsertSource::Values(rows) if !rows.iter().flatten().any(limits_fields))
            }
            _ if has_span => false,
            Plan::Select(query) => query.is_by_key(),
            Plan::Update(update) => update.search.is_by_key(),
            Plan::Delete(delete) => delete.search.is_by_key(),
            Plan::Insert(insert) => matches!(insert.source, InsertSource::Values(_)),
            _ => false,
        }
    }

    /// Its text has a password in it.
    pub(crate) fn is_secret(&self) -> bool {
        matches!(&self.plan, Plan::Define(definition) if definition.is_secret())
    }

    /// Whether it is answered by rows, which have no columns where `SELECT FROM` asks for none.
    #[inline]
    pub fn gives_rows(&self) -> bool {
        !self.columns.is_empty() || self.plan.is_query()
    }

    /// Its rows are all that it does: nothing of it is left where they are dropped.
    pub fn only_reads(&self) -> bool {
        self.plan.only_reads() && !self.uses_sequences
    }

    /// Whether it looks up or changes rows by their key, so that it mostly is over before anybody could look.
    pub fn is_short(&self) -> bool {
        self.point.is_some() || self.once.is_some()
    }

    /// Nothing but blanks and comments.
    pub fn is_empty(&self) -> bool {
        matches!(self.plan, Plan::Empty)
    }
}

fn limits_fields(expr: &Expr) -> bool {
    let mut found = false;
    expr.walk(&mut |part| {
        if let Expr::Cast { to: Type::Rounded(TimeKind::Interval, limit), .. } = part {
            found |= *limit > SECOND_DIGITS_MAX;
        }
        found |= matches!(part, Expr::Cast { to: Type::Array(_), .. });
        !found
    });
    found
}

/// Statements of one generation.
const GENERATION: usize = 1024;
/// Longer texts (bulk inserts) are not kept.
const TEXT_BYTES_MAX: usize = 16 * 1024;

type Generation = HashMap<Box<str>, Vec<Arc<Prepared>>>;

#[derive(Default)]
struct Generations {
    young: Generation,
    old: Generation,
    /// Texts of shapes that are not to be planned as such.
    refused: HashSet<Box<str>>,
    /// What all of them are planned for.
    schema: Option<Arc<Schema>>,
}

/// Shapes whose plans depend on their values, at most: beyond they are forgotten, and found out anew.
const REFUSED_MAX: usize = 4 * GENERATION;

/// Prepared statements by their text and declared parameter types.
#[derive(Default)]
pub struct StatementCache {
    generations: Mutex<Generations>,
    /// The sessions that share it, as far as a server serves them.
    pub activity: Arc<Activity>,
    /// By which plans are chosen.
    pub(crate) statistics: Arc<Statistics>,
    /// Temporary tables of sessions that are gone.
    pub(crate) leftovers: Mutex<Leftovers>,
}

impl StatementCache {
    /// The statement planned for this schema.
    pub(crate) fn get(
        &self,
        sql: &str,
        declared: &[Option<Type>],
        schema: &Arc<Schema>,
        path: &SchemaPath,
        role: u32,
    ) -> Option<Arc<Prepared>> {
        let mut generations = self.generations.lock();
        let fits = |p: &&Arc<Prepared>| {
            p.declared.as_ref() == declared
                && Arc::ptr_eq(&p.schema, schema)
                && p.role == role
                && p.path == *path
                && !self.is_outdated(p)
        };
        if let Some(found) = generations.young.get(sql).and_then(|l| l.iter().find(fits)) {
            return Some(found.clone());
        }
        let found = generations.old.get(sql)?.iter().find(fits)?.clone();
        generations.insert(&found);
        Some(found)
    }

    /// Whether the shape was found to be of no use, for the schema of now.
    pub(crate) fn is_refused(&self, shape: &str) -> bool {
        self.generations.lock().refused.contains(shape)
    }

    pub(crate) fn refuse(&self, shape: &str) {
        let refused = &mut self.generations.lock().refused;
        if refused.len() >= REFUSED_MAX {
            refused.clear();
        }
        refused.insert(shape.into());
    }

    /// Whether more is known now than the statement was planned by.
    pub(crate) fn is_outdated(&self, prepared: &Prepared) -> bool {
        prepared.epoch.is_some_and(|epoch| epoch != self.statistics.epoch())
    }

    /// Keeps a statement that was planned for the committed schema.
    pub(crate) fn insert(&self, prepared: &Arc<Prepared>) {
        if prepared.sql.len() > TEXT_BYTES_MAX || prepared.is_secret() {
            return;
        }
        let mut generations = self.generations.lock();
        generations.move_to(&prepared.schema);
        if generations.schema.as_ref().is_some_and(|schema| Arc::ptr_eq(schema, &prepared.schema)) {
            generations.insert(prepared);
        }
    }
}

impl Generations {
    /// Plans for another schema are of no use, and would keep the indexes of dropped tables in memory. An older schema, of a session
    /// that has not seen the change yet, moves nothing.
    fn move_to(&mut self, schema: &Arc<Schema>) {
        let known = self.schema.as_ref();
        if known.is_none_or(|known| !Arc::ptr_eq(known, schema) && known.version <= schema.version) {
            *self = Generations { schema: Some(schema.clone()), ..Generations::default() };
        }
    }

    fn insert(&mut self, prepared: &Arc<Prepared>) {
        if self.young.len() >= GENERATION {
            self.old = std::mem::take(&mut self.young);
        }
        let list = self.young.entry(prepared.sql.as_str().into()).or_default();
        // A plan for an older schema makes room for the one that replaces it.
        list.retain(|p| p.declared != prepared.declared || p.path != prepared.path || p.role != prepared.role);
        list.push(prepared.clone());
    }
}
