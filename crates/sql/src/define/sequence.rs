//! What are sequences, serial and identity columns?

use super::create::NewTable;
use super::{Definer, Done, unused};
use crate::bind::names::{RelationName, qualified};
use crate::bind::scope::fold;
use crate::bind::types::type_of;
use crate::error::SqlError;
use crate::parse::SequenceClauses;
use crate::value::pgtype::name as type_name;
use freshet_engine::catalog::{NamespaceId, Schema, SequenceDef, SequenceValue, TableId};
use freshet_engine::schema::Type;
use sqlparser::ast::{DataType, ObjectName};

/// A sequence on its way, and the column that owns it.
pub struct NewSequence {
    pub def: SequenceDef,
    pub column: u16,
}

impl NewSequence {
    pub fn start(&self) -> SequenceValue {
        SequenceValue { last: self.def.start, is_called: false }
    }
}

/// The integer type behind serial and its like.
pub fn serial_type(data_type: &DataType) -> Option<Type> {
    let DataType::Custom(name, modifiers) = data_type else { return None };
    if !modifiers.is_empty() {
        return None;
    }
    match name.to_string().to_ascii_lowercase().as_str() {
        "serial" | "serial4" => Some(Type::Int4),
        "bigserial" | "serial8" => Some(Type::Int8),
        "smallserial" | "serial2" => Some(Type::Int2),
        _ => None,
    }
}

fn limits(ty: Type) -> (i64, i64) {
    match ty {
        Type::Int2 => (i16::MIN.into(), i16::MAX.into()),
        Type::Int4 => (i32::MIN.into(), i32::MAX.into()),
        _ => (i64::MIN, i64::MAX),
    }
}

fn invalid(message: impl Into<String>) -> SqlError {
    SqlError::new("22023", message)
}

/// The default of a column that asks a sequence.
pub fn default_of_sequence(schema: &freshet_engine::catalog::Schema, namespace: NamespaceId, name: &str) -> String {
    format!("nextval('{}'::regclass)", qualified(schema, namespace, name).replace('\'', "''"))
}

/// A definition from its clauses; `before`: the one that is altered.
fn definition(
    namespace: NamespaceId,
    name: String,
    clauses: &SequenceClauses,
    default_type: Type,
    before: Option<&SequenceDef>,
) -> Result<SequenceDef, SqlError> {
    let ty = match &clauses.ty {
        // None of users' types is one of whole numbers.
        Some(data_type) => type_of(data_type, &Schema::default())?,
        None => before.map_or(default_type, |b| b.ty),
    };
    if !matches!(ty, Type::Int2 | Type::Int4 | Type::Int8) {
        return Err(invalid("sequence type must be smallint, integer, or bigint"));
    }
    let increment = clauses.increment.or(before.map(|b| b.increment)).unwrap_or(1);
    if increment == 0 {
        return Err(invalid("INCREMENT must not be zero"));
    }
    let (lowest, highest) = limits(ty);
    let usual = if increment > 0 { (1, highest) } else { (lowest, -1) };
    // A limit that was the old type's becomes the new one's.
    let kept = |value: fn(&SequenceDef) -> i64, end: fn((i64, i64)) -> i64| {
        before.map(|b| if b.ty != ty && value(b) == end(limits(b.ty)) { end(limits(ty)) } else { value(b) })
    };
    let min = match clauses.min {
        Some(Some(min)) => min,
        Some(None) => usual.0,
        None => kept(|b| b.min, |l| l.0).unwrap_or(usual.0),
    };
    let max = match clauses.max {
        Some(Some(max)) => max,
        Some(None) => usual.1,
        None => kept(|b| b.max, |l| l.1).unwrap_or(usual.1),
    };
    for (value, what) in [(max, "MAXVALUE"), (min, "MINVALUE")] {
        if !(lowest..=highest).contains(&value) {
            return Err(invalid(format!("{what} ({value}) is out of range for sequence data type {}", type_name(ty))));
        }
    }
    if min >= max {
        return Err(invalid(format!("MINVALUE ({min}) must be less than MAXVALUE ({max})")));
    }
    let start = clauses.start.or(before.map(|b| b.start)).unwrap_or(if increment > 0 { min } else { max });
    if start < min {
        return Err(invalid(format!("START value ({start}) cannot be less than MINVALUE ({min})")));
    }
    if start > max {
        return Err(invalid(format!("START value ({start}) cannot be greater than MAXVALUE ({max})")));
    }
    let cache = clauses.cache.or(before.map(|b| b.cache)).unwrap_or(1);
    if cache < 1 {
        return Err(invalid(format!("CACHE ({cache}) must be greater than zero")));
    }
    let cycle = clauses.cycle.or(before.map(|b| b.cycle)).unwrap_or(false);
    let owner = before.and_then(|b| b.owner);
    Ok(SequenceDef { namespace, name, ty, start, increment, min, max, cache, cycle, owner })
}

impl Definer<'_> {
    pub(super) fn create_sequence(
        &mut self,
        name: &ObjectName,
        if_not_exists: bool,
        temporary: bool,
        clauses: &SequenceClauses,
    ) -> Done<()> {
        let written = RelationName::of(name)?;
        let namespace = self.home(&written, temporary)?;
        if self.engine.schema().has_relation_in(namespace, &written.name) {
            let message = format!("relation \"{}\" already exists", written.name);
            if if_not_exists {
                self.notice("42P07", format!("{message}, skipping"));
                return Ok(());
            }
            return Err(SqlError::new("42P07", message).into());
        }
        if clauses.restart.is_some() {
            return Err(SqlError::new("42601", "syntax error at or near \"restart\"").into());
        }
        let mut def = definition(namespace, written.name, clauses, Type::Int8, None)?;
        def.owner = self.owner(clauses, None, namespace)?;
        let start = SequenceValue { last: def.start, is_called: false };
        self.engine.create_sequence(def, start)?;
        Ok(())
    }

    /// OWNED BY.
    fn owner(
        &self,
        clauses: &SequenceClauses,
        before: Option<(TableId, u16)>,
        namespace: NamespaceId,
    ) -> Done<Option<(TableId, u16)>> {
        let owner = match &clauses.owned_by {
            None => return Ok(before),
            Some(None) => return Ok(None),
            Some(Some(name)) => name,
        };
        let mut parts = owner.0.clone();
        let (Some(column), false) = (parts.pop(), parts.is_empty()) else {
            return Err(SqlError::new("42601", "invalid OWNED BY option")
                .with_hint("Specify OWNED BY table.column or OWNED BY NONE.")
                .into());
        };
        let table = self.table(&ObjectName(parts))?;
        self.check_owner(table.id.0)?;
        if table.def.namespace != namespace {
            return Err(SqlError::new("55000", "sequence must be in same schema as table it is linked to").into());
        }
        let column = column.as_ident().map(fold).unwrap_or_default();
        match table.named_column(&column) {
            Some(at) => Ok(Some((table.id, at as u16))),
            None => {
                let message = format!("column \"{column}\" of relation \"{}\" does not exist", table.def.name);
                Err(SqlError::new("42703", message).into())
            }
        }
    }

    pub(super) fn alter_sequence(&mut self, name: &ObjectName, if_exists: bool, clauses: &SequenceClauses) -> Done<()> {
        let written = self.named(name)?;
        let schema = self.schema();
        let Some(sequence) = written.sequence(&schema) else {
            if if_exists {
                self.notice("00000", format!("relation \"{written}\" does not exist, skipping"));
                return Ok(());
            }
            return Err(written.undefined().into());
        };
        self.check_owner(sequence.id)?;
        if let (Some((table, at)), Some(_)) = (sequence.def.owner, &clauses.owned_by)
            && let Some(table) = schema.table_by_id(table).filter(|t| t.def.columns[usize::from(at)].is_identity())
        {
            let detail = format!("Sequence \"{}\" is linked to table \"{}\".", sequence.def.name, table.def.name);
            return Err(SqlError::new("0A000", "cannot change ownership of identity sequence")
                .with_detail(detail)
                .into());
        }
        self.change_sequence(sequence.id, clauses)
    }

    pub(super) fn change_sequence(&mut self, id: u32, clauses: &SequenceClauses) -> Done<()> {
        let sequence = self.engine.schema().sequence_by_id(id).cloned().expect("the sequence was just looked up");
        let before = &sequence.def;
        let mut def = definition(before.namespace, before.name.clone(), clauses, before.ty, Some(before))?;
        def.owner = self.owner(clauses, before.owner, before.namespace)?;
        let value =
            clauses.restart.map(|restart| SequenceValue { last: restart.unwrap_or(def.start), is_called: false });
        let last = value.map_or_else(|| sequence.state.value().last, |v| v.last);
        let word = "RESTART value";
        if last < def.min {
            return Err(invalid(format!("{word} ({last}) cannot be less than MINVALUE ({})", def.min)).into());
        }
        if last > def.max {
            return Err(invalid(format!("{word} ({last}) cannot be greater than MAXVALUE ({})", def.max)).into());
        }
        Ok(self.engine.redefine_sequence(id, def, value)?)
    }

    /// A sequence for a serial or identity column of a new table; gives the column's default.
    pub(super) fn new_sequence(
        &mut self,
        new: &mut NewTable,
        column: u16,
        ty: Type,
        clauses: &SequenceClauses,
    ) -> Done<String> {
        if !matches!(ty, Type::Int2 | Type::Int4 | Type::Int8) {
            return Err(invalid("identity column type must be smallint, integer, or bigint").into());
        }
        let schema = self.schema();
        let is_used = |namespace: NamespaceId, name: &str| {
            schema.has_relation_in(namespace, name) || new.sequences.iter().any(|s| s.def.name == name)
        };
        let (namespace, name) = match &clauses.name {
            None => {
                let (namespace, column) = (new.def.namespace, &new.def.columns[usize::from(column)].name);
                (namespace, unused(&new.def.name, column, "seq", |name| is_used(namespace, name)))
            }
            Some(written) => {
                let written = RelationName::of(written)?;
                let namespace = match written.namespace {
                    Some(_) => self.home(&written, false)?,
                    None => new.def.namespace,
                };
                if namespace != new.def.namespace {
                    let message = "sequence must be in same schema as table it is linked to";
                    return Err(SqlError::new("55000", message).into());
                }
                if is_used(namespace, &written.name) {
                    return Err(super::create::already_exists(&written.name).into());
                }
                (namespace, written.name)
            }
        };
        let text = default_of_sequence(&schema, namespace, &name);
        let def = definition(namespace, name, clauses, ty, None)?;
        new.sequences.push(NewSequence { def, column });
        Ok(text)
    }
}
