//! What names a schema that gets another name? Views, which name relations with their schemas, and defaults that ask sequences.

use super::sequence::default_of_sequence;
use super::view::with_relation_renamed;
use super::{Definer, Done};
use crate::bind::names::RelationName;
use crate::error::SqlError;
use freshet_engine::catalog::{NamespaceId, Schema};

impl Definer<'_> {
    pub(super) fn rename_schema(&mut self, id: NamespaceId, old: &str, new: &str) -> Done<()> {
        let before = self.schema();
        if let Some(view) = sequences_of(&before, id).find_map(|(sequence, _)| before.readers(sequence).next()) {
            let message = format!("a change of the name of a sequence that view {} reads", view.def.name);
            return Err(SqlError::unsupported(message).into());
        }
        let tables = before.tables().filter(|t| t.def.namespace == id).map(|t| (t.id.0, t.def.name.clone()));
        let views = before.views().filter(|v| v.def.namespace == id).map(|v| (v.id, v.def.name.clone()));
        let relations: Vec<(u32, String)> = tables.chain(views).collect();
        let full =
            |namespace: &str, name: &str| RelationName { namespace: Some(namespace.to_owned()), name: name.to_owned() };
        for (relation, name) in relations {
            let (old, new) = (full(old, &name), full(new, &name));
            self.change_views(relation, |query| with_relation_renamed(query, &old, &new))?;
        }
        let asked: Vec<(String, String)> =
            sequences_of(&before, id).map(|(_, name)| (asks(&before, id, name), name.to_owned())).collect();
        self.engine.rename_namespace(id, new)?;
        let after = self.schema();
        let asked = asked.into_iter().map(|(old, name)| (old, asks(&after, id, &name)));
        self.ask_anew(&asked.collect::<Vec<_>>())
    }

    /// Other texts in place of these in all defaults.
    fn ask_anew(&mut self, asked: &[(String, String)]) -> Done<()> {
        for table in self.schema().tables() {
            let is_asked = |default: &str| asked.iter().any(|(old, _)| default.contains(old));
            if table.def.columns.iter().any(|c| c.default.as_deref().is_some_and(is_asked)) {
                self.change_def(table.id, |def| {
                    for default in def.columns.iter_mut().filter_map(|c| c.default.as_mut()) {
                        for (old, new) in asked {
                            *default = default.replace(old, new);
                        }
                    }
                })?;
            }
        }
        Ok(())
    }
}

fn sequences_of(schema: &Schema, id: NamespaceId) -> impl Iterator<Item = (u32, &str)> {
    schema.sequences().filter(move |s| s.def.namespace == id).map(|s| (s.id, s.def.name.as_str()))
}

/// How a default begins that asks the sequence.
fn asks(schema: &Schema, namespace: NamespaceId, name: &str) -> String {
    default_of_sequence(schema, namespace, name).trim_end_matches("::regclass)").to_owned()
}
