//! What does CREATE SCHEMA make besides the schema? Its elements, in the schema and by its owner.

use super::{Defined, Definer, Done};
use crate::bind::names::{RelationName, namespace_name};
use crate::error::SqlError;
use crate::parse::{Element, Utility};
use freshet_engine::catalog::NamespaceId;
use sqlparser::ast::{ObjectName, Statement};

impl Definer<'_> {
    pub(super) fn create_schema_of(&mut self, schema: &Statement, elements: &[Element]) -> Done<()> {
        let Statement::CreateSchema { schema_name, .. } = schema else {
            unreachable!("invariant: the parser saw CREATE SCHEMA");
        };
        let id = self.create_schema(schema_name, false)?.expect("invariant: one that is there is an error");
        let namespaces = self.engine.schema().clone();
        let name = namespace_name(&namespaces, id);
        let owner = namespaces.owner(id.0);
        self.engine.set_creator(owner);
        let path: Vec<NamespaceId> = [id].into_iter().chain(self.path.iter().copied()).collect();
        for Element { sql, utility } in elements {
            check_home(utility, &name)?;
            let mut definer = Definer {
                sql,
                engine: &mut *self.engine,
                env: self.env,
                constraints: &mut *self.constraints,
                interrupt: &mut *self.interrupt,
                path: path.clone().into(),
                temporary: &mut *self.temporary,
                defined: Defined::default(),
            };
            definer.run(utility)?;
            let notices = definer.defined.notices;
            self.defined.notices.extend(notices);
        }
        self.engine.set_creator(self.env.role);
        Ok(())
    }
}

/// 42P15: it would be made in another schema.
fn check_home(utility: &Utility, schema: &str) -> Done<()> {
    let (name, is_temporary): (&ObjectName, bool) = match utility {
        Utility::CreateSequence { name, temporary, .. } => (name, *temporary),
        Utility::Statement(statement) => match statement.as_ref() {
            Statement::CreateTable(create) => (&create.name, create.temporary),
            Statement::CreateView(create) => (&create.name, create.temporary),
            Statement::CreateIndex(create) => (&create.table_name, false),
            _ => return Ok(()),
        },
        _ => return Ok(()),
    };
    let named = RelationName::of(name)?.namespace;
    if let Some(other) = named.filter(|other| other != schema) {
        let message = format!("CREATE specifies a schema ({other}) different from the one being created ({schema})");
        return Err(SqlError::new("42P15", message).into());
    }
    if is_temporary {
        return Err(SqlError::new("42P16", "cannot create temporary relation in non-temporary schema").into());
    }
    Ok(())
}
