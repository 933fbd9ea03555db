//! What is an enum? CREATE TYPE ... AS ENUM and ALTER TYPE.
//!
//! A label's number never changes, as rows have it: a label between two others gets a number between theirs. What asks for a type or a label in a
//! definition is kept by number (`kept`), so that another name changes nothing else.

use super::removal::Removal;
use super::{Definer, Done};
use crate::bind::names::{RelationName, namespace_name, namespace_named};
use crate::bind::scope::fold;
use crate::error::SqlError;
use crate::parse::TypeAction;
use crate::role::acl::{Kind, Privileges};
use freshet_engine::catalog::{EnumDef, EnumType, NamespaceId, Schema};
use freshet_engine::schema::Type;
use sqlparser::ast::ObjectName;
use std::collections::HashSet;
use std::sync::Arc;

const LABEL_BYTES_MAX: usize = 63;

fn undefined(name: &RelationName) -> SqlError {
    SqlError::new("42704", format!("type \"{name}\" does not exist"))
}

fn already_exists(name: &str) -> SqlError {
    SqlError::new("42710", format!("type \"{name}\" already exists"))
}

fn check_label(label: &str) -> Result<(), SqlError> {
    if label.len() <= LABEL_BYTES_MAX {
        return Ok(());
    }
    let message = format!("invalid enum label \"{label}\"");
    Err(SqlError::new("42602", message).with_detail(format!("Labels must be {LABEL_BYTES_MAX} bytes or less.")))
}

/// 54000 for more than a definition can name.
fn check_count(labels: usize, name: &str) -> Result<(), SqlError> {
    const LABELS_MAX: usize = u16::MAX as usize;
    match labels > LABELS_MAX {
        true => Err(SqlError::new("54000", format!("type {name} would have more than {LABELS_MAX} labels"))),
        false => Ok(()),
    }
}

fn label_exists(label: &str) -> SqlError {
    SqlError::new("42710", format!("enum label \"{label}\" already exists"))
}

/// The place of a label among the others.
fn place_of(def: &EnumDef, label: &str) -> Result<usize, SqlError> {
    let found = def.labels.iter().position(|known| known.text == label);
    found.ok_or_else(|| SqlError::new("22023", format!("\"{label}\" is not an existing enum label")))
}

/// The enum of this name, with its schema or along the path.
pub(super) fn named<'s>(name: &RelationName, schema: &'s Schema) -> Option<&'s Arc<EnumType>> {
    match &name.namespace {
        Some(namespace) => schema.enum_in(namespace_named(schema, namespace)?, &name.name),
        None => schema.enum_type(&name.name),
    }
}

impl Definer<'_> {
    pub(super) fn create_enum(&mut self, name: &ObjectName, labels: &[String]) -> Done<()> {
        let written = RelationName::of(name)?;
        let namespace = self.home(&written, false)?;
        if self.is_type_in(namespace, &written.name) {
            return Err(already_exists(&written.name).into());
        }
        check_count(labels.len(), &written.name)?;
        let mut known = HashSet::with_capacity(labels.len());
        for label in labels {
            check_label(label)?;
            if !known.insert(label) {
                let message = "duplicate key value violates unique constraint \"pg_enum_typid_label_index\"";
                return Err(SqlError::new("23505", message).into());
            }
        }
        self.engine.create_enum(EnumDef::new(namespace, written.name, labels.iter().cloned()))?;
        Ok(())
    }

    /// Whether something has this name that is a type, or has one.
    fn is_type_in(&self, namespace: NamespaceId, name: &str) -> bool {
        let schema = self.engine.schema();
        schema.enum_in(namespace, name).is_some()
            || schema.table_in(namespace, name).is_some()
            || schema.view_in(namespace, name).is_some()
    }

    /// 42710: the rows of a table or a view are of a type of its name, which an enum has.
    pub(super) fn check_no_enum(&self, namespace: NamespaceId, name: &str, is_new: bool) -> Done<()> {
        if self.engine.schema().enum_in(namespace, name).is_none() {
            return Ok(());
        }
        let hint = "A relation has an associated type of the same name, so you must use a name that doesn't conflict with any existing type.";
        let error = already_exists(name);
        Err(if is_new { error.with_hint(hint) } else { error }.into())
    }

    /// The enum that a command names.
    fn enum_named(&self, name: &ObjectName) -> Done<Arc<EnumType>> {
        let written = self.named(name)?;
        let schema = self.schema();
        if let Some(found) = named(&written, &schema) {
            return Ok(found.clone());
        }
        if let Some(namespace) = &written.namespace
            && namespace_named(&schema, namespace).is_none()
        {
            return Err(SqlError::new("3F000", format!("schema \"{namespace}\" does not exist")).into());
        }
        if written.table(&schema).is_some() || written.view(&schema).is_some() {
            return Err(SqlError::new("42809", format!("{written} is not an enum")).into());
        }
        if super::absent::is_type(&written, &schema) {
            return Err(SqlError::unsupported("a change of a type of the system").into());
        }
        Err(undefined(&written).into())
    }

    pub(super) fn alter_type(&mut self, name: &ObjectName, action: &TypeAction) -> Done<()> {
        let made = self.enum_named(name)?;
        if let TypeAction::Owner(owner) = action {
            return self.change_owner(made.id.0, owner);
        }
        self.check_owner(made.id.0)?;
        let mut def = made.def.clone();
        match action {
            TypeAction::AddValue { label, if_not_exists, beside } => {
                check_label(label)?;
                if def.label(label.as_bytes()).is_some() {
                    if *if_not_exists {
                        self.notice("42710", format!("enum label \"{label}\" already exists, skipping"));
                        return Ok(());
                    }
                    return Err(label_exists(label).into());
                }
                check_count(def.labels.len() + 1, &def.name)?;
                let at = match beside {
                    None => def.labels.len(),
                    Some((neighbour, is_before)) => place_of(&def, neighbour)? + usize::from(!is_before),
                };
                if !def.insert_label(at, label.clone()) {
                    let message = format!("there is no room for another label at this place of type {}", def.name);
                    let hint = "Rows have the numbers of labels, between which none is left. Add the label beside others, or move the values to a new type.";
                    return Err(SqlError::new("54000", message).with_hint(hint).into());
                }
            }
            TypeAction::RenameValue { old, new } => {
                check_label(new)?;
                let at = place_of(&def, old)?;
                if def.label(new.as_bytes()).is_some() {
                    return Err(label_exists(new).into());
                }
                def.labels[at].text.clone_from(new);
            }
            TypeAction::Rename(new) => {
                def.name = fold(new);
                if self.is_type_in(def.namespace, &def.name) {
                    return Err(already_exists(&def.name).into());
                }
            }
            TypeAction::SetSchema(namespace) => {
                let home = self.type_home(&fold(namespace))?;
                if home == def.namespace {
                    return Ok(());
                }
                if self.is_type_in(home, &def.name) {
                    let space = namespace_name(self.engine.schema(), home);
                    let message = format!("type \"{}\" already exists in schema \"{space}\"", def.name);
                    return Err(SqlError::new("42710", message).into());
                }
                def.namespace = home;
            }
            TypeAction::Owner(_) => {}
        }
        Ok(self.engine.redefine_enum(made.id, def)?)
    }

    fn type_home(&self, name: &str) -> Done<NamespaceId> {
        let schema = self.schema();
        let found = namespace_named(&schema, name);
        let home = found.ok_or_else(|| SqlError::new("3F000", format!("schema \"{name}\" does not exist")))?;
        if home.is_system() {
            return Err(SqlError::new("42501", format!("permission denied for schema {name}")).into());
        }
        self.check_create_in(home)?;
        Ok(home)
    }

    /// DROP TYPE.
    pub(super) fn drop_types(&mut self, names: &[ObjectName], if_exists: bool, cascade: bool) -> Done<()> {
        let schema = self.schema();
        let mut removal = Removal::new(schema.clone());
        let mut shown = Vec::new();
        for name in names {
            let written = RelationName::of(name)?;
            if if_exists && named(&written, &schema).is_none() && !self.is_row_type(&written, &schema) {
                self.absent_object(&sqlparser::ast::ObjectType::Type, name, "DROP TYPE")?;
                continue;
            }
            let made = match named(&written, &schema) {
                Some(_) => self.enum_named(name)?,
                None => return Err(self.cannot_drop_type(name, &written, &schema)?.into()),
            };
            let owns_schema = self.access().is_some_and(|access| access.owns(made.def.namespace.0));
            if !owns_schema {
                self.check_owner(made.id.0)?;
            }
            removal.enums.insert(made.id);
            removal.asked.push((made.id.0, None));
            shown.push(format!("type {}", removal.type_name(made.id)));
        }
        self.remove_all(removal, &schema, cascade, &shown)
    }

    fn is_row_type(&self, name: &RelationName, schema: &Schema) -> bool {
        name.table(schema).is_some() || name.view(schema).is_some()
    }

    /// Why a type of another kind is not dropped.
    fn cannot_drop_type(&self, name: &ObjectName, written: &RelationName, schema: &Schema) -> Done<SqlError> {
        if self.is_row_type(written, schema) {
            let what = if written.table(schema).is_some() { "table" } else { "view" };
            let message = format!("cannot drop type {written} because {what} {written} requires it");
            let hint = format!("You can drop {what} {written} instead.");
            return Ok(SqlError::new("2BP01", message).with_hint(hint));
        }
        match super::absent::is_type(written, schema) {
            true => {
                let shown = crate::parse::parse_types(&written.name).ok().and_then(|types| {
                    let ty = crate::bind::types::type_of(types.first()?, schema).ok()?;
                    Some(crate::value::pgtype::name(ty))
                });
                let shown = shown.unwrap_or(&written.name);
                let message = format!("cannot drop type {shown} because it is required by the database system");
                Ok(SqlError::new("2BP01", message))
            }
            false => match self.enum_named(name) {
                Err(crate::compiled::Halt::Error(error)) => Ok(error),
                Err(other) => Err(other),
                Ok(_) => Ok(undefined(written)),
            },
        }
    }

    /// 42501 where a column may not be of the type.
    pub(super) fn check_type(&self, ty: Type) -> Done<()> {
        let (Type::Enum(id) | Type::Array(&Type::Enum(id))) = ty else { return Ok(()) };
        match self.access() {
            Some(access) if !access.may(Kind::Type, id.0, Privileges::USAGE) => {
                let schema = self.schema();
                let name = schema.enum_by_id(id).map(|made| crate::catalog::names::enum_name(&schema, made));
                Err(crate::role::denied("type", &name.unwrap_or_default()).into())
            }
            _ => Ok(()),
        }
    }

    pub(super) fn comment_on_type(&mut self, name: &ObjectName, text: Option<&str>) -> Done<()> {
        let made = self.enum_named(name)?;
        self.check_owner(made.id.0)?;
        Ok(self.engine.set_comment(made.id.0, 0, text.filter(|text| !text.is_empty()))?)
    }
}
