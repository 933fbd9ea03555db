//! What do SEARCH and CYCLE add to a recursion? Columns, as PostgreSQL's rewriter does, in SQL of this road.
//!
//! | clause | column | of the first term | of the other one |
//! |---|---|---|---|
//! | SEARCH DEPTH FIRST BY a, b SET s | s | `ARRAY[a, b]` | `s || ARRAY[a, b]` |
//! | SEARCH BREADTH FIRST BY a, b SET s | s | `ARRAY[0, a, b]` | `ARRAY[s[1] + 1, a, b]` |
//! | CYCLE a, b SET c TO x DEFAULT y USING p | c | `y` | x where p has the row of a and b, else y; rows follow of those only that are not x |
//! | | p | `ARRAY[ROW(a, b)]` | `p || ROW(a, b)` |
//!
//! Arrays of rows there are none. Those of SEARCH hold the columns one after the other, which sorts the same: as they are where they are of one type,
//! else as text. Those of CYCLE hold the rows as text, which tells apart the same unless equal values are written differently.

use super::plan::{Rel, refuse};
use crate::bind::Bind;
use crate::bind::scope::fold;
use crate::error::SqlError;
use crate::parse::{Cycle, Search, Walk};
use crate::value::cast::{has_forms, is_integer, without_modifier};
use crate::value::pgtype::format_type;
use freshet_engine::schema::Type;
use sqlparser::ast::{self, BinaryOperator, Expr, Ident, Select, SelectItem, SetExpr, TableFactor, TableWithJoins};

/// A recursion's two terms with the columns that its clauses add.
pub struct Walked {
    pub first: SetExpr,
    pub term: SetExpr,
    /// The names of all columns.
    pub names: Vec<String>,
}

/// `shape`: what the first term gives, `names`: what its columns are called.
pub fn walked(name: &str, walk: &Walk, [left, right]: [&SetExpr; 2], shape: &Rel, names: Vec<String>) -> Bind<Walked> {
    let columns = Columns { names, types: shape.columns.iter().map(|column| without_modifier(column.ty)).collect() };
    let (left, right) = (without_parentheses(left), without_parentheses(right));
    let is_plain = matches!(left, SetExpr::Select(_) | SetExpr::Values(_));
    let (true, SetExpr::Select(select)) = (is_plain, right) else {
        let side = if is_plain { "right" } else { "left" };
        let message = format!("with a SEARCH or CYCLE clause, the {side} side of the UNION must be a SELECT");
        return Err(SqlError::new("0A000", message).into());
    };
    columns.check(walk)?;
    let Some(itself) = select.from.iter().find_map(|from| reference(from, name)) else {
        let message = "with a SEARCH or CYCLE clause, the recursive reference to WITH query";
        let message = format!("{message} \"{name}\" must be at the top level of its right-hand SELECT");
        return Err(SqlError::new("0A000", message).into());
    };
    let mut select = select.as_ref().clone();
    let (mut starts, mut goes_on, mut added) = (Vec::new(), Vec::new(), Vec::new());
    if let Some(search) = &walk.search {
        let (start, step) = columns.search(search)?;
        starts.push(start);
        goes_on.push(step);
        added.push(search.set.clone());
        select.projection.push(column_of(&itself, &search.set));
    }
    if let Some(cycle) = &walk.cycle {
        let row = columns.row(cycle)?;
        let Cycle { set, to, default, using, .. } = cycle;
        let path = quoted(using);
        starts.extend([default.clone(), format!("ARRAY[{row}]")]);
        goes_on.push(format!("CASE WHEN {row} = ANY ({path}) THEN {to} ELSE {default} END"));
        goes_on.push(format!("{path} || {row}"));
        added.extend([set.clone(), using.clone()]);
        select.projection.push(column_of(&itself, using));
        leave_out(&mut select, &itself, set, to)?;
    }
    let inner: Vec<&String> = walk.search.iter().map(|search| &search.set).collect();
    let inner = inner.into_iter().chain(walk.cycle.iter().map(|cycle| &cycle.using));
    let inner = columns.names.iter().chain(inner).map(|name| quoted(name)).collect::<Vec<_>>().join(", ");
    let shown = columns.names.iter().map(|name| quoted(name)).collect::<Vec<_>>().join(", ");
    let own = |exprs: &[String]| exprs.join(", ");
    let first = format!("SELECT {shown}, {} FROM ({left}) AS \"first\" ({shown})", own(&starts));
    let term = SetExpr::Select(Box::new(select));
    let term = format!("SELECT {shown}, {} FROM ({term}) AS \"term\" ({inner})", own(&goes_on));
    Ok(Walked { first: body_of(&first)?, term: body_of(&term)?, names: [columns.names, added].concat() })
}

fn without_parentheses(body: &SetExpr) -> &SetExpr {
    match body {
        SetExpr::Query(query) if crate::bind::from::is_bare(query) => without_parentheses(&query.body),
        body => body,
    }
}

struct Columns {
    names: Vec<String>,
    types: Vec<Type>,
}

impl Columns {
    fn ty(&self, name: &str) -> Type {
        let at = self.names.iter().position(|own| own == name);
        at.and_then(|at| self.types.get(at)).copied().unwrap_or(Type::Text)
    }

    fn check(&self, walk: &Walk) -> Result<(), SqlError> {
        let lists = walk.search.iter().map(|search| ("search", &search.by));
        for (what, list) in lists.chain(walk.cycle.iter().map(|cycle| ("cycle", &cycle.columns))) {
            for (at, column) in list.iter().enumerate() {
                if !self.names.contains(column) {
                    let message = format!("{what} column \"{column}\" not in WITH query column list");
                    return Err(SqlError::new("42601", message));
                }
                if list[..at].contains(column) {
                    return Err(SqlError::new("42701", format!("{what} column \"{column}\" specified more than once")));
                }
            }
        }
        let search = walk.search.iter().map(|search| ("search sequence", &search.set));
        let cycle = walk.cycle.iter().flat_map(|cycle| [("cycle mark", &cycle.set), ("cycle path", &cycle.using)]);
        let added: Vec<(&str, &String)> = search.chain(cycle).collect();
        for (at, (what, name)) in added.iter().enumerate() {
            if self.names.contains(name) {
                let message = format!("{what} column name \"{name}\" already used in WITH query column list");
                return Err(SqlError::new("42601", message));
            }
            if let Some((other, _)) = added[..at].iter().find(|(_, other)| other == name) {
                return Err(SqlError::new("42601", format!("{other} column name and {what} column name are the same")));
            }
        }
        Ok(())
    }

    /// What SEARCH's column begins with, and what it goes on with.
    fn search(&self, search: &Search) -> Bind<(String, String)> {
        let types: Vec<Type> = search.by.iter().map(|column| self.ty(column)).collect();
        let all_integers = types.iter().all(|ty| is_integer(*ty));
        let all_alike = types.iter().all(|ty| *ty == types[0] && !matches!(ty, Type::Array(_)));
        let own = |ty: Type| search.by.iter().map(|by| format!("{}::{}", quoted(by), format_type(ty))).collect();
        let by: Vec<String> = match () {
            () if all_integers => own(Type::Int8),
            () if all_alike && search.depth_first => own(types[0]),
            () => search.by.iter().zip(&types).map(|(by, ty)| sorting_text(by, *ty)).collect::<Bind<_>>()?,
        };
        let (by, set) = (by.join(", "), quoted(&search.set));
        if search.depth_first {
            return Ok((format!("ARRAY[{by}]"), format!("{set} || ARRAY[{by}]")));
        }
        let depth = |depth: &str| if all_integers { depth.to_owned() } else { digits(depth) };
        let next = format!("({set})[1]::bigint + 1");
        Ok((format!("ARRAY[{}, {by}]", depth("0::bigint")), format!("ARRAY[{}, {by}]", depth(&next))))
    }

    /// The row that CYCLE tells apart, as text.
    fn row(&self, cycle: &Cycle) -> Bind<String> {
        if let Some(column) = cycle.columns.iter().find(|column| has_forms(self.ty(column))) {
            return refuse(format!("CYCLE of a column of type {}", format_type(self.ty(column))));
        }
        let columns = cycle.columns.iter().map(|column| quoted(column)).collect::<Vec<_>>();
        Ok(format!("ROW({})::text", columns.join(", ")))
    }
}

/// An integer of at least 0 as text that sorts as it counts.
fn digits(number: &str) -> String {
    format!("lpad(({number})::text, 20, '0')")
}

/// A column as text that sorts as it does.
fn sorting_text(column: &str, ty: Type) -> Bind<String> {
    match ty {
        Type::Text | Type::Varchar(_) | Type::Name | Type::Uuid | Type::Bool => Ok(format!("{}::text", quoted(column))),
        ty if is_integer(ty) => Ok(digits(&format!("{}::numeric + 9223372036854775808", quoted(column)))),
        ty => refuse(format!("SEARCH BY a column of type {} with others", format_type(ty))),
    }
}

fn quoted(name: &str) -> String {
    Ident::with_quote('"', name).to_string()
}

/// What the query is called where FROM reads its own rows.
fn reference(from: &TableWithJoins, name: &str) -> Option<Ident> {
    let of_factor = |factor: &TableFactor| match factor {
        TableFactor::Table { name: table, alias, args: None, .. } => match table.0.as_slice() {
            [ast::ObjectNamePart::Identifier(own)] if fold(own) == name => {
                Some(alias.as_ref().map_or_else(|| own.clone(), |alias| alias.name.clone()))
            }
            _ => None,
        },
        TableFactor::NestedJoin { table_with_joins, alias: None } => reference(table_with_joins, name),
        _ => None,
    };
    of_factor(&from.relation).or_else(|| from.joins.iter().find_map(|join| of_factor(&join.relation)))
}

fn named(itself: &Ident, column: &str) -> Expr {
    Expr::CompoundIdentifier(vec![itself.clone(), Ident::with_quote('"', column)])
}

fn column_of(itself: &Ident, column: &str) -> SelectItem {
    SelectItem::UnnamedExpr(named(itself, column))
}

/// No row follows one that came twice.
fn leave_out(select: &mut Select, itself: &Ident, set: &str, to: &str) -> Bind<()> {
    let mark = Expr::Nested(Box::new(crate::parse::parse_expression(to)?));
    let both = |left, op, right| Expr::BinaryOp { left: Box::new(left), op, right: Box::new(right) };
    let goes_on = both(named(itself, set), BinaryOperator::NotEq, mark);
    select.selection = Some(match select.selection.take() {
        None => goes_on,
        Some(condition) => both(Expr::Nested(Box::new(condition)), BinaryOperator::And, goes_on),
    });
    Ok(())
}

fn body_of(text: &str) -> Bind<SetExpr> {
    let query = crate::parse::parse(text)?.query();
    let query = query.ok_or_else(|| SqlError::new("XX000", "invariant: a SELECT is a query"))?;
    Ok(*query.body)
}
