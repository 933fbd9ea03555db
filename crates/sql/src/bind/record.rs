//! What does a row mean where a value is asked for? `ROW(a, b)`, and the name of a source alone, which is its whole row.
//!
//! A row is a value that can be shown, counted, put into JSON and taken apart by field. As a value it has no order, and an equality
//! where it is known of what it is made: rows are compared, sorted and told apart field by field (`more`, [`by_fields`]).

use super::expr::Bound;
use super::more::row_items;
use super::names::RelationName;
use super::scope::{Found, Scope, ScopeSource, SourceName, fold};
use super::{Bind, Binder, not_compiled};
use crate::error::SqlError;
use crate::expr::Expr;
use crate::value::Datum;
use crate::value::operator::BinaryOp;
use crate::value::pgtype::name as type_name;
use crate::view::TABLEOID;
use freshet_engine::schema::{SystemKind, Type};
use sqlparser::ast::{self, AccessExpr, FunctionArg, FunctionArgExpr, FunctionArguments, Ident};

/// The function that makes a row of names and values in turn; no statement can call it.
pub const MAKE: &str = "row of";

/// How two rows are compared.
#[derive(Clone, Copy)]
pub enum RecordsAre {
    Equal,
    Unequal,
    Distinct,
    NotDistinct,
    /// In this order: by the first fields that are not the same, a null behind all else.
    Ordered(BinaryOp),
}

/// The type of a row.
pub const RECORD: Type = Type::System(SystemKind::Record);

/// 42883 for types without the operators that sorting or telling apart needs.
pub fn must_compare(ty: Type, operator: &str) -> Result<(), SqlError> {
    let name = match ty {
        Type::Json => "json",
        RECORD => "record",
        Type::System(SystemKind::Void) => "void",
        Type::Array(&Type::Json) => "json[]",
        Type::Array(&RECORD) => "record[]",
        _ => return Ok(()),
    };
    Err(SqlError::new("42883", format!("could not identify an {operator} operator for type {name}")))
}

/// The fields of a row that is made here: it is sorted and told apart as they are. `None`: it is none, or was made elsewhere.
pub fn fields_of(expr: &Expr) -> Option<Vec<(Expr, Type)>> {
    let Expr::Call { function, args } = expr else { return None };
    let pairs = args.chunks_exact(2).zip(function.arguments.chunks_exact(2));
    function.makes_row().then(|| pairs.map(|(pair, types)| (pair[1].clone(), types[1])).collect())
}

/// The same with their names.
pub fn named_fields(expr: &Expr) -> Option<Vec<(String, Expr, Type)>> {
    let Expr::Call { args, .. } = expr else { return None };
    let names = args.chunks_exact(2).map(|pair| match &pair[0] {
        Expr::Const(Datum::Bytes(name)) => String::from_utf8_lossy(name).into_owned(),
        _ => String::new(),
    });
    let fields = fields_of(expr)?;
    Some(names.zip(fields).map(|(name, (expr, ty))| (name, expr, ty)).collect())
}

/// What sorting or grouping by an expression goes by: itself, or a row's fields.
pub fn by_fields(expr: Expr, ty: Type) -> Vec<(Expr, Type)> {
    match fields_of(&expr) {
        Some(fields) => fields.into_iter().flat_map(|(expr, ty)| by_fields(expr, ty)).collect(),
        None => vec![(expr, ty)],
    }
}

/// A row that is made here: what tells that there is none, and its fields.
type Parts = (Option<Expr>, Vec<(Expr, Type)>);

fn parts_of(expr: &Expr) -> Option<Parts> {
    match expr {
        Expr::Case { branches, otherwise: Some(record) } => match branches.as_slice() {
            [(is_missing, value)] if *value == Expr::NULL => Some((Some(is_missing.clone()), fields_of(record)?)),
            _ => None,
        },
        record => Some((None, fields_of(record)?)),
    }
}

impl Binder<'_> {
    /// `t = u`, `t < u`, `t IS [NOT] DISTINCT FROM u` and their like of two rows of which one at least is no list of values. As values rows with nulls
    /// in the same places are equal. `None`: they are no rows that are made here.
    pub(super) fn compare_records(
        &mut self,
        how: RecordsAre,
        left: (&ast::Expr, &Bound),
        right: (&ast::Expr, &Bound),
        scope: &Scope,
    ) -> Bind<Option<Bound>> {
        if left.1.ty != Some(RECORD) || right.1.ty != Some(RECORD) {
            return Ok(None);
        }
        let (left, right) = (self.parts(left, scope)?, self.parts(right, scope)?);
        let (Some((no_left, left)), Some((no_right, right))) = (left, right) else { return Ok(None) };
        let fields = self.field_pairs(left, right)?;
        let is_wanted = !matches!(how, RecordsAre::Unequal | RecordsAre::Distinct);
        let value = match how {
            RecordsAre::Ordered(op) => self.fields_in_order(op, fields)?,
            _ if is_wanted => self.same_fields(&fields)?,
            _ => Expr::Not(Box::new(self.same_fields(&fields)?)),
        };
        let missing: Vec<Expr> = no_left.into_iter().chain(no_right).collect();
        if missing.is_empty() {
            return Ok(Some(Bound::new(value, Type::Bool)));
        }
        let truth = |value| Expr::Const(Datum::Bool(value));
        let branches = match how {
            RecordsAre::Equal | RecordsAre::Unequal | RecordsAre::Ordered(_) => vec![(Expr::Or(missing), Expr::NULL)],
            RecordsAre::Distinct | RecordsAre::NotDistinct if missing.len() == 2 => {
                vec![(Expr::And(missing.clone()), truth(is_wanted)), (Expr::Or(missing), truth(!is_wanted))]
            }
            RecordsAre::Distinct | RecordsAre::NotDistinct => vec![(Expr::Or(missing), truth(!is_wanted))],
        };
        Ok(Some(Bound::new(Expr::Case { branches, otherwise: Some(Box::new(value)) }, Type::Bool)))
    }

    /// `t IN (ROW(1, 2), u)`.
    pub(super) fn record_in_list<'l>(
        &mut self,
        wanted: (&ast::Expr, &Bound),
        items: impl Iterator<Item = (&'l ast::Expr, &'l Bound)>,
        negated: bool,
        scope: &Scope,
    ) -> Bind<Bound> {
        let mut equal = Vec::new();
        for (item, bound) in items {
            let compared = self.compare_records(RecordsAre::Equal, wanted, (item, bound), scope)?;
            equal.push(match compared {
                Some(compared) => compared.expr,
                None => self.compare(BinaryOp::Eq, wanted.1.clone(), bound.clone())?.expr,
            });
        }
        let any = Expr::Or(equal);
        Ok(Bound::new(if negated { Expr::Not(Box::new(any)) } else { any }, Type::Bool))
    }

    /// What a bound row is made of. Of constants alone nothing but their text is left: they are bound anew.
    fn parts(&mut self, (ast, bound): (&ast::Expr, &Bound), scope: &Scope) -> Bind<Option<Parts>> {
        let (Expr::Const(_), Some(items)) = (&bound.expr, row_items(ast)) else { return Ok(parts_of(&bound.expr)) };
        let mut fields = Vec::with_capacity(items.len());
        for item in self.bind_all(&items, scope)? {
            let Bound { expr, ty, .. } = self.known(item)?;
            fields.push((expr, ty.unwrap_or(Type::Text)));
        }
        Ok(Some((None, fields)))
    }

    /// The fields of two rows that can be compared, side by side.
    fn field_pairs(&mut self, left: Vec<(Expr, Type)>, right: Vec<(Expr, Type)>) -> Bind<Vec<(Bound, Bound)>> {
        if left.len() != right.len() {
            let message = "cannot compare record types with different numbers of columns";
            return Err(SqlError::new("42804", message).into());
        }
        let mut pairs = Vec::with_capacity(left.len());
        for (at, ((left, of_left), (right, of_right))) in left.into_iter().zip(right).enumerate() {
            if !crate::value::cast::same_base(of_left, of_right) {
                let (of_left, of_right) = (type_name(of_left), type_name(of_right));
                let types = format!("cannot compare dissimilar column types {of_left} and {of_right}");
                return Err(SqlError::new("42804", format!("{types} at record column {}", at + 1)).into());
            }
            must_compare(of_left, "equality")?;
            pairs.push((Bound::new(left, of_left), Bound::new(right, of_right)));
        }
        Ok(pairs)
    }

    /// Whether the fields of two rows are the same, nulls included.
    fn same_fields(&mut self, pairs: &[(Bound, Bound)]) -> Bind<Expr> {
        let mut same = Vec::with_capacity(pairs.len());
        for (left, right) in pairs {
            let (operator, left, right) = self.comparison(BinaryOp::Eq, left.clone(), right.clone())?;
            let (left, right) = (Box::new(left), Box::new(right));
            same.push(Expr::Distinct { operator, left, right, negated: true });
        }
        Ok(Expr::And(same))
    }

    /// Whether two rows stand in this order: the first fields that differ tell, nulls behind all else.
    fn fields_in_order(&mut self, op: BinaryOp, pairs: Vec<(Bound, Bound)>) -> Bind<Expr> {
        let is_after = matches!(op, BinaryOp::Gt | BinaryOp::Ge);
        let truth = |value| Expr::Const(Datum::Bool(value));
        let mut branches = Vec::with_capacity(2 * pairs.len());
        for (left, right) in pairs {
            let (left, right) = if is_after { (right, left) } else { (left, right) };
            let less = self.compare(BinaryOp::Lt, left.clone(), right.clone())?.expr;
            let is_null = |of: &Bound, negated| Expr::IsNull { expr: Box::new(of.expr.clone()), negated };
            let is_before = Expr::And(vec![is_null(&left, true), Expr::Or(vec![is_null(&right, false), less])]);
            let (operator, left, right) = self.comparison(BinaryOp::Eq, left, right)?;
            let (left, right) = (Box::new(left), Box::new(right));
            branches.push((is_before, truth(true)));
            branches.push((Expr::Distinct { operator, left, right, negated: false }, truth(false)));
        }
        let same = truth(matches!(op, BinaryOp::Le | BinaryOp::Ge));
        match branches.is_empty() {
            true => Ok(same),
            false => Ok(Expr::Case { branches, otherwise: Some(Box::new(same)) }),
        }
    }

    /// `ROW(a, b)`: its fields are called f1, f2, ...
    pub(super) fn row_value(&mut self, items: &[&ast::Expr], scope: &Scope) -> Bind<Bound> {
        let bound = self.bind_all(items, scope)?;
        let fields = bound.into_iter().enumerate().map(|(i, value)| (format!("f{}", i + 1), value));
        self.record(fields.collect())
    }

    /// `ROW(t.*, a)`: the columns of a source are fields like others; `None`: it is something else.
    pub(super) fn row_of_columns(&mut self, ast: &ast::Expr, scope: &Scope) -> Bind<Option<Bound>> {
        let ast::Expr::Function(function) = ast else { return Ok(None) };
        let FunctionArguments::List(list) = &function.args else { return Ok(None) };
        let has_source =
            list.args.iter().any(|arg| matches!(arg, FunctionArg::Unnamed(FunctionArgExpr::QualifiedWildcard(_))));
        if !has_source || !function.name.to_string().eq_ignore_ascii_case("row") {
            return Ok(None);
        }
        let mut values = Vec::new();
        for arg in &list.args {
            match arg {
                FunctionArg::Unnamed(FunctionArgExpr::Expr(item)) => values.push(self.bind(item, scope)?),
                FunctionArg::Unnamed(FunctionArgExpr::QualifiedWildcard(name)) => {
                    let source = self.source_meant(&self.source_name(RelationName::of(name)?), scope)?;
                    let columns = row_columns(source, scope, self.through.is_some());
                    values.extend(columns.into_iter().map(|(_, found)| Bound::new(scope.expr(found), found.ty)));
                }
                other => return not_compiled(format!("the argument {other}")),
            }
        }
        let fields = values.into_iter().enumerate().map(|(i, value)| (format!("f{}", i + 1), value));
        self.record(fields.collect()).map(Some)
    }

    /// The row of these fields.
    pub fn record(&mut self, fields: Vec<(String, Bound)>) -> Bind<Bound> {
        let name = |name: String| Bound::new(Expr::Const(Datum::Bytes(name.into_bytes().into())), Type::Text);
        let args = fields.into_iter().flat_map(|(field, value)| [name(field), value]);
        self.call_bound(MAKE, args.collect())
    }

    /// The row of the source that is called so; `None`: there is none.
    pub(super) fn whole_row(&mut self, name: &SourceName, scope: &Scope) -> Bind<Option<Bound>> {
        let Ok(source) = self.source_meant(name, scope) else { return Ok(None) };
        let columns = row_columns(source, scope, self.through.is_some());
        let fields = columns.iter().map(|&(ref name, found)| (name.clone(), Bound::new(scope.expr(found), found.ty)));
        let record = self.record(fields.collect())?;
        let of = &scope.sources[usize::from(source)];
        if !of.nullable {
            return Ok(Some(record));
        }
        // Where the join found no row there is none, which a column tells that has a value in every row.
        let Some(column) = column_with_values(of) else {
            let message = "the row of a relation without a NOT NULL column on the nullable side of an outer join";
            return not_compiled(message);
        };
        let found = Found { source, column, ty: of.columns[usize::from(column)].ty };
        let is_missing = Expr::IsNull { expr: Box::new(scope.expr(found)), negated: false };
        let value = Expr::Case { branches: vec![(is_missing, Expr::NULL)], otherwise: Some(Box::new(record.expr)) };
        Ok(Some(Bound::new(value, RECORD)))
    }

    /// The source that a name alone means, where no column is called so.
    fn row_name(&self, ast: &ast::Expr, scope: &Scope) -> Option<SourceName> {
        let name = match ast {
            ast::Expr::Identifier(ident) if scope.column(&fold(ident)).is_err() => SourceName::bare(fold(ident)),
            ast::Expr::QualifiedWildcard(name, _) => self.source_name(RelationName::of(name).ok()?),
            ast::Expr::Nested(inner) => return self.row_name(inner, scope),
            _ => return None,
        };
        self.source_meant(&name, scope).is_ok().then_some(name)
    }

    /// A name alone that means a source of a query around this one.
    fn row_name_around(&self, ast: &ast::Expr, scope: &Scope) -> Option<String> {
        let beyond = self.beyond?;
        match ast {
            ast::Expr::Nested(inner) => self.row_name_around(inner, scope),
            ast::Expr::Identifier(ident) => {
                let name = fold(ident);
                let is_column = scope.column(&name).map_or_else(|error| error.sqlstate != "42703", |_| true);
                (!is_column && beyond.is_outer_row(&name)).then_some(name)
            }
            _ => None,
        }
    }

    /// `t IS [NOT] NULL` of a source: what holds of all its columns; `None`: it is no source.
    pub(super) fn whole_row_is_null(&mut self, ast: &ast::Expr, negated: bool, scope: &Scope) -> Bind<Option<Bound>> {
        let all = |parts: Vec<Expr>| {
            let is_null = |part| Expr::IsNull { expr: Box::new(part), negated };
            Some(Bound::new(Expr::And(parts.into_iter().map(is_null).collect()), Type::Bool))
        };
        if let Some(source) = self.row_name(ast, scope).and_then(|name| self.source_meant(&name, scope).ok()) {
            let columns = row_columns(source, scope, self.through.is_some());
            return Ok(all(columns.into_iter().map(|(_, found)| scope.expr(found)).collect()));
        }
        if self.row_name_around(ast, scope).is_none() {
            return Ok(None);
        }
        let row = self.bind(ast, scope)?;
        Ok(parts_of(&row.expr).and_then(|(_, fields)| all(fields.into_iter().map(|(field, _)| field).collect())))
    }

    /// `(t).a`, `(ROW(1, 2)).f1`; `None`: it is something else.
    pub(super) fn row_field(&mut self, ast: &ast::Expr, scope: &Scope) -> Bind<Option<Bound>> {
        let ast::Expr::CompoundFieldAccess { root, access_chain } = ast else { return Ok(None) };
        let (ast::Expr::Nested(inner), [AccessExpr::Dot(ast::Expr::Identifier(field))]) =
            (root.as_ref(), access_chain.as_slice())
        else {
            return Ok(None);
        };
        let around = || Some(RelationName { namespace: None, name: self.row_name_around(inner, scope)? });
        let named = self.row_name(inner, scope).map(|name| name.relation).or_else(around);
        if let Some(RelationName { namespace, name }) = named {
            let source = namespace.into_iter().chain([name]).map(|part| Ident::with_quote('"', part));
            let parts = source.chain([field.clone()]).collect();
            return self.bind(&ast::Expr::CompoundIdentifier(parts), scope).map(Some);
        }
        let Some(items) = row_items(inner) else { return Ok(None) };
        let name = fold(field);
        let at = name.strip_prefix('f').and_then(|n| n.parse::<usize>().ok());
        match at.filter(|&n| n > 0).and_then(|n| items.get(n - 1)) {
            Some(item) => self.bind(item, scope).map(Some),
            None => {
                let message = format!("could not identify column \"{name}\" in record data type");
                Err(SqlError::new("42703", message).into())
            }
        }
    }
}

/// The columns of a source's row, whether joins merged them or not; `through`: of a change through a view, which has an order of its own.
pub(crate) fn row_columns(source: u16, scope: &Scope, through: bool) -> Vec<(String, Found)> {
    let of = &scope.sources[usize::from(source)];
    let is_shown = |name: &str| !name.is_empty() && (of.table.is_some() || name != TABLEOID);
    let order: Vec<u16> = match through && scope.is_first(source) {
        true => scope.first.iter().filter(|found| found.source == source).map(|found| found.column).collect(),
        false => (0..of.columns.len() as u16).collect(),
    };
    let columns = order.into_iter().map(|at| (at, &of.columns[usize::from(at)]));
    let shown = columns.filter(|(_, column)| is_shown(&column.name));
    shown.map(|(at, column)| (column.name.clone(), Found { source, column: at, ty: column.ty })).collect()
}

/// A column that is null in no row.
pub(crate) fn column_with_values(source: &ScopeSource) -> Option<u16> {
    let Some(table) = &source.table else { return source.present };
    table.def.columns.iter().position(|column| column.not_null && column.is_visible()).map(|at| at as u16)
}
