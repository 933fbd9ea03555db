//! Definitions as another database had them: with their ids, by which others refer to them, and clients know them. For a new database that nobody else
//! uses yet, so that no id is taken; the caller sees to it that none comes twice.

use super::session::Session;
use super::{Error, Stop};
use crate::catalog::{
    Counters, EnumType, IndexDef, IndexId, Namespace, NamespaceId, Object, Role, RoleId, Sequence, SequenceState,
    TableDef, TableId, View,
};
use crate::schema::EnumId;
use std::sync::Arc;

impl Session {
    /// A table without rows; its indexes in order, the primary key first.
    pub(crate) fn restore_table(
        &mut self,
        id: TableId,
        def: TableDef,
        indexes: Vec<(IndexId, IndexDef)>,
    ) -> Result<(), Stop> {
        let own = indexes.iter().flat_map(|(id, index)| [id.0, index.constraint]);
        let ids = own.chain(def.constraints.iter().map(|constraint| constraint.id)).chain([id.0]);
        let counters = self.begin_restoring(ids.max().unwrap_or_default())?;
        self.make_table(counters, id, def, indexes.into_iter())
    }

    /// Anything but a table, an index and the counters.
    pub(crate) fn restore(&mut self, id: u32, object: &Object) -> Result<(), Stop> {
        let counters = self.begin_restoring(id)?;
        self.check_name_of(object)?;
        self.put_object(id, object)?;
        match object.clone() {
            Object::Namespace(name) => {
                self.change_schema(counters, |schema| schema.put_namespace(Namespace { id: NamespaceId(id), name }))
            }
            Object::Role(def) => {
                self.change_schema(counters, |schema| schema.put_role(Arc::new(Role { id: RoleId(id), def })))
            }
            Object::Sequence { def, value } => {
                let state = Arc::new(SequenceState::new(value, true));
                self.ddl.sequences.push((id, state.clone()));
                self.change_schema(counters, |schema| schema.put_sequence(Arc::new(Sequence { id, def, state })))
            }
            Object::View(def) => self.change_schema(counters, |schema| schema.put_view(Arc::new(View { id, def }))),
            Object::Enum(def) => {
                self.change_schema(counters, |schema| schema.put_enum(Arc::new(EnumType { id: EnumId(id), def })))
            }
            Object::Comment { object, column, text } => {
                self.change_schema(counters, |schema| schema.put_comment(object, column, id, &text))
            }
            Object::Rights { object, rights } => {
                self.change_schema(counters, |schema| schema.put_rights(object, id, rights))
            }
            Object::Counters(_) | Object::Table(_) | Object::Index { .. } => {
                unreachable!("invariant: these are made otherwise")
            }
        }
    }

    /// From here on new ids are above this one.
    fn begin_restoring(&mut self, id: u32) -> Result<Counters, Stop> {
        let mut counters = self.begin_ddl()?;
        let above = id.checked_add(1).ok_or_else(|| Error::LimitExceeded(format!("the id {id} leaves no other")))?;
        self.core.begin_ids_at(above, &mut counters);
        Ok(counters)
    }

    fn check_name_of(&self, object: &Object) -> Result<(), Stop> {
        let is_taken = |taken: bool, name: &str| match taken {
            true => Err(Error::DuplicateRelation(name.into()).into()),
            false => Ok(()),
        };
        match object {
            Object::Sequence { def, .. } => self.check_name_in(def.namespace, &def.name),
            Object::View(def) => self.check_name_in(def.namespace, &def.name),
            Object::Enum(def) => self.check_type_name_in(def.namespace, &def.name),
            Object::Namespace(name) => is_taken(self.schema().namespace(name).is_some(), name),
            Object::Role(def) => is_taken(self.schema().role_named(&def.name).is_some(), &def.name),
            _ => Ok(()),
        }
    }
}
