//! How is an operation said in SQL? Statements as text; each adapter prepares them with its own client.

use super::{Fetch, Op};
use crate::shape::{IndexShape, TableShape, Ty};
use std::fmt::Write;

/// Where dialects differ.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Dialect {
    /// PostgreSQL's, with `USING hash` and a primary key that may be a hash index.
    Freshet,
    /// A primary key is a B+-tree; other hash indexes are `USING hash` unless unique.
    Postgres,
    /// No types to speak of and no hash indexes.
    Sqlite,
}

/// One kind of statement: what a session prepares once.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Say {
    Search { table: usize, index: usize, fetch: Fetch },
    SearchMany { table: usize, index: usize, keys: usize },
    Update { table: usize, index: usize, column: usize },
    Insert { table: usize },
    Delete { table: usize, index: usize },
    Traverse { table: usize, index: usize, rows: usize },
    Sum { table: usize },
    Begin,
    Commit,
}

impl Say {
    /// `None` for a transaction, which is several.
    pub fn of(op: &Op<'_>) -> Option<Say> {
        Some(match *op {
            Op::Search { table, index, fetch, .. } => Say::Search { table, index, fetch },
            Op::SearchMany { table, index, keys } => Say::SearchMany { table, index, keys: keys.len() },
            Op::Update { table, index, column, .. } => Say::Update { table, index, column },
            Op::Insert { table, .. } | Op::InsertRow { table, .. } => Say::Insert { table },
            Op::Delete { table, index, .. } => Say::Delete { table, index },
            Op::Traverse { table, index, rows, .. } => Say::Traverse { table, index, rows },
            Op::Sum { table } => Say::Sum { table },
            Op::Transaction(_) => return None,
        })
    }

    /// With parameters `$1`, `$2`, ..., which SQLite takes too.
    pub fn text(self, tables: &[TableShape]) -> String {
        match self {
            Say::Search { table, index, fetch } => {
                let t = &tables[table];
                let what = match fetch {
                    Fetch::Counter => t.counter_name(),
                    Fetch::Row => "*",
                };
                format!("SELECT {what} FROM {} WHERE {} = $1", t.name, t.key_name(index))
            }
            Say::SearchMany { table, index, keys } => {
                let t = &tables[table];
                let (counter, name, key) = (t.counter_name(), t.name, t.key_name(index));
                format!("SELECT {counter} FROM {name} WHERE {key} IN ({})", parameters(keys))
            }
            Say::Update { table, index, column } => {
                let t = &tables[table];
                let column = &t.columns[column].name;
                format!("UPDATE {} SET {column} = {column} + $2 WHERE {} = $1", t.name, t.key_name(index))
            }
            Say::Insert { table } => {
                let t = &tables[table];
                format!("INSERT INTO {} VALUES ({})", t.name, parameters(t.columns.len()))
            }
            Say::Delete { table, index } => {
                let t = &tables[table];
                format!("DELETE FROM {} WHERE {} = $1", t.name, t.key_name(index))
            }
            Say::Traverse { table, index, rows } => {
                let t = &tables[table];
                let (counter, name, key) = (t.counter_name(), t.name, t.key_name(index));
                format!("SELECT {counter} FROM {name} WHERE {key} >= $1 ORDER BY {key} LIMIT {rows}")
            }
            Say::Sum { table } => {
                let t = &tables[table];
                format!("SELECT count(*), sum({}) FROM {}", t.counter_name(), t.name)
            }
            Say::Begin => "BEGIN".into(),
            Say::Commit => "COMMIT".into(),
        }
    }
}

fn parameters(count: usize) -> String {
    let names: Vec<String> = (1..=count).map(|i| format!("${i}")).collect();
    names.join(", ")
}

/// CREATE TABLE and its indexes, one statement each.
pub fn definition(table: &TableShape, dialect: Dialect) -> Vec<String> {
    let mut create = format!("CREATE TABLE {} (", table.name);
    for (i, column) in table.columns.iter().enumerate() {
        let ty = match column.ty {
            Ty::Int8 => "bigint".to_owned(),
            Ty::Int4 => "integer".to_owned(),
            Ty::Int2 => "smallint".to_owned(),
            Ty::Bool => "boolean".to_owned(),
            Ty::Char(bytes) => format!("varchar({bytes})"),
        };
        // SQLite's rowid table: only the exact word INTEGER makes the key its own B-tree.
        let is_key = i == table.indexes[0].column;
        let ty = if is_key && dialect == Dialect::Sqlite { "INTEGER".to_owned() } else { ty };
        let key = if is_key { " PRIMARY KEY" } else { " NOT NULL" };
        write!(create, "{}{} {ty}{key}", if i == 0 { "" } else { ", " }, column.name).expect("a string grows");
    }
    create.push(')');
    if dialect == Dialect::Freshet {
        write!(create, " WITH (primary_key = {})", table.indexes[0].order.name()).expect("a string grows");
    }
    let mut all = vec![create];
    all.extend(table.indexes[1..].iter().map(|index| index_definition(table, index, dialect)));
    all
}

pub fn index_definition(table: &TableShape, index: &IndexShape, dialect: Dialect) -> String {
    let column = &table.columns[index.column].name;
    let unique = if index.unique { "UNIQUE " } else { "" };
    let using = match dialect {
        Dialect::Freshet => format!(" USING {}", index.order.name()),
        Dialect::Postgres if !index.unique => format!(" USING {}", index.order.name()),
        _ => String::new(),
    };
    format!("CREATE {unique}INDEX {0}_by_{column} ON {0}{using} ({column})", table.name)
}

/// What was prepared, by what it says: a few, so that looking through them takes less than a hash, and nothing is counted by who runs them.
pub struct Statements<S>(Vec<(Say, S)>);

/// Where one of [`Statements`] stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place(usize);

impl<S> Default for Statements<S> {
    fn default() -> Statements<S> {
        Statements(Vec::new())
    }
}

impl<S> Statements<S> {
    /// Where the statement stands, prepared by `prepare` the first time.
    pub fn place<E>(&mut self, say: Say, prepare: impl FnOnce() -> Result<S, E>) -> Result<Place, E> {
        if let Some(at) = self.0.iter().position(|(known, _)| *known == say) {
            return Ok(Place(at));
        }
        self.0.push((say, prepare()?));
        Ok(Place(self.0.len() - 1))
    }

    pub fn at(&self, place: Place) -> &S {
        &self.0[place.0].1
    }

    /// The statement, prepared by `prepare` the first time.
    pub fn get<E>(&mut self, say: Say, prepare: impl FnOnce() -> Result<S, E>) -> Result<&S, E> {
        let place = self.place(say, prepare)?;
        Ok(self.at(place))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shape::{Order, record168};

    #[test]
    fn statements_name_table_key_and_counter() {
        let tables = [record168(Order::Hash)];
        let text = |say: Say| say.text(&tables);
        let search = Say::Search { table: 0, index: 0, fetch: Fetch::Counter };
        assert_eq!(text(search), "SELECT c5 FROM record WHERE c0 = $1");
        assert_eq!(text(Say::Update { table: 0, index: 0, column: 5 }), "UPDATE record SET c5 = c5 + $2 WHERE c0 = $1");
        let many = Say::SearchMany { table: 0, index: 0, keys: 3 };
        assert_eq!(text(many), "SELECT c5 FROM record WHERE c0 IN ($1, $2, $3)");
        let made = definition(&tables[0], Dialect::Freshet);
        assert!(
            made.len() == 1 && made[0].starts_with("CREATE TABLE record (c0 bigint PRIMARY KEY, c1 bigint NOT NULL")
        );
        assert!(made[0].ends_with("WITH (primary_key = hash)"));
    }

    #[test]
    fn a_statement_is_prepared_once() {
        let mut statements = Statements::default();
        let mut prepared = 0;
        for say in [Say::Begin, Say::Commit, Say::Begin, Say::Begin, Say::Commit] {
            let got = statements.get(say, || {
                prepared += 1;
                Ok::<_, ()>(say)
            });
            assert_eq!(got, Ok(&say));
        }
        assert_eq!(prepared, 2);
    }
}
