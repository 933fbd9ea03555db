//! How does a generator give rows of a relation's shape? It names the columns that it fills; the others get what nothing is there for.

use super::super::{About, Cells};
use super::shape::Shape;
use crate::error::SqlError;
use crate::value::{Datum, array_datum};
use freshet_engine::catalog::NamespaceId;
use freshet_engine::schema::Type;

pub type Filled = Result<(), SqlError>;
/// Gives rows of a relation's columns.
pub type Fill = fn(&About<'_>, &mut Filler<'_>) -> Filled;

/// What makes a relation's rows.
pub struct Source {
    pub namespace: NamespaceId,
    pub relation: &'static str,
    /// In the order of the cells that `fill` gives.
    pub columns: &'static [&'static str],
    /// The rows follow from the definitions of the schema alone.
    pub follows_schema: bool,
    pub fill: Fill,
}

/// One of `pg_catalog` whose rows tell more than the definitions.
pub const fn source(relation: &'static str, columns: &'static [&'static str], fill: Fill) -> Source {
    Source { namespace: NamespaceId::CATALOG, relation, columns, follows_schema: false, fill }
}

/// Rows on their way.
pub struct Filler<'s> {
    shape: &'s Shape,
    /// Where each given cell goes.
    places: Vec<usize>,
    blank: Cells,
    pub rows: Vec<Cells>,
}

impl<'s> Filler<'s> {
    pub fn new(shape: &'s Shape) -> Filler<'s> {
        let columns = shape.columns.iter().zip(&shape.details);
        let blank = columns.map(|(&(_, ty), detail)| if detail.not_null { nothing(ty) } else { Datum::Null });
        Filler { shape, places: Vec::new(), blank: blank.collect(), rows: Vec::new() }
    }

    /// Takes the rows of this relation that every database has.
    pub fn fixed(&mut self, relation: &str) {
        let Some(section) = super::fixed::section(relation) else { return };
        self.place(&section.columns);
        for row in &section.rows {
            self.row(row.iter().cloned());
        }
    }

    pub fn start(&mut self, source: &Source) {
        self.place(source.columns);
    }

    fn place(&mut self, columns: &[&str]) {
        let place = |name: &&str| self.shape.columns.iter().position(|(column, _)| column == name);
        self.places = columns
            .iter()
            .map(|name| place(name).expect("invariant: a generator fills columns that are there"))
            .collect();
    }

    /// A row of the generator's columns.
    pub fn row(&mut self, cells: impl IntoIterator<Item = Datum>) {
        let mut row = self.blank.clone();
        let mut given = 0;
        for (cell, &place) in cells.into_iter().zip(&self.places) {
            row[place] = cell;
            given += 1;
        }
        assert_eq!(
            given,
            self.places.len(),
            "view invariant: a row of {} has a cell for each of its columns",
            self.shape.name
        );
        self.rows.push(row);
    }
}

/// What a column that is never null says where there is nothing to say.
fn nothing(ty: Type) -> Datum {
    match ty {
        Type::Bool => Datum::Bool(false),
        Type::Float4 | Type::Float8 => Datum::Float(0.0),
        ty if ty.is_variable() => match ty.as_array() {
            Type::Array(element) => array_datum(*element, Vec::new()),
            _ => Datum::Bytes(Box::default()),
        },
        _ => Datum::Int(0),
    }
}

/// What becomes a cell.
pub trait Cell {
    fn cell(self) -> Datum;
}

impl Cell for Datum {
    fn cell(self) -> Datum {
        self
    }
}

impl Cell for bool {
    fn cell(self) -> Datum {
        Datum::Bool(self)
    }
}

impl Cell for u32 {
    fn cell(self) -> Datum {
        Datum::Int(self.into())
    }
}

impl Cell for i32 {
    fn cell(self) -> Datum {
        Datum::Int(self.into())
    }
}

impl Cell for i64 {
    fn cell(self) -> Datum {
        Datum::Int(self)
    }
}

impl Cell for f32 {
    fn cell(self) -> Datum {
        Datum::Float(self.into())
    }
}

impl Cell for &str {
    fn cell(self) -> Datum {
        Datum::Bytes(self.as_bytes().into())
    }
}

impl Cell for String {
    fn cell(self) -> Datum {
        self.as_str().cell()
    }
}

/// A `"char"`.
impl Cell for char {
    fn cell(self) -> Datum {
        let mut buffer = [0; 4];
        self.encode_utf8(&mut buffer).cell()
    }
}

impl<T: Cell> Cell for Option<T> {
    fn cell(self) -> Datum {
        self.map_or(Datum::Null, Cell::cell)
    }
}

/// The cells of a row, from what they are of.
macro_rules! cells {
    ($($value:expr),* $(,)?) => { [$(crate::view::catalog::fill::Cell::cell($value)),*] };
}
pub(super) use cells;

/// `"char"` of nothing.
pub const NO_CHAR: &str = "";
