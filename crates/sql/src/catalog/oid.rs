//! Which numbers do objects have that the engine has none for?
//!
//! The engine numbers tables, indexes, sequences, views, schemas and constraints with one counter that begins at 16384 and is logged: those are
//! their oids, as they are. What follows from an object has a number that follows from the object's:
//!
//! | object | oid |
//! |---|---|
//! | row type of a relation | 0x1000_0000 + the relation's |
//! | array type of a row type or of an enum | 0x2000_0000 + the relation's or the enum's |
//! | rule of a view | 0x3000_0000 + the view's |
//! | default of a column | 0x4000_0000 + (1600 times the table's + the column's number) within 2^30 |
//! | what PostgreSQL brings along | as in PostgreSQL 15: pg_catalog 11, public 2200, information_schema 13207, types, functions and system relations |
//!
//! 1. No two objects of one catalog have one number, and of all catalogs none, while fewer than 600,000 objects were ever made; beyond that defaults
//!    of two tables may share one, never those of one table.
//! 2. Every number is the same after a restart, and less than 2^31: some clients read them as signed.

/// The role that stands for whoever owns the database: `public` is its.
pub const DATABASE_OWNER_NAME: &str = "pg_database_owner";

/// The one database.
pub const DATABASE: u32 = 5;

/// The tablespace of everything: pg_default.
pub const TABLESPACE: u32 = 1663;

/// Ids of the engine are less: 268 million objects.
const RANGE: u32 = 0x1000_0000;

/// PostgreSQL's limit of columns in a table.
const COLUMNS_MAX: u64 = 1600;

pub fn row_type(relation: u32) -> u32 {
    RANGE + relation % RANGE
}

pub fn row_array(relation: u32) -> u32 {
    2 * RANGE + relation % RANGE
}

pub fn rule(view: u32) -> u32 {
    3 * RANGE + view % RANGE
}

/// Of the column with this number, from 1.
pub fn column_default(table: u32, number: u16) -> u32 {
    let place = u64::from(table) * COLUMNS_MAX + u64::from(number);
    4 * RANGE + (place % u64::from(4 * RANGE)) as u32
}

/// The relation whose row type this is.
pub fn relation_of_row_type(oid: u32) -> Option<u32> {
    (RANGE..2 * RANGE).contains(&oid).then(|| oid - RANGE)
}

/// The relation whose row type's array this is, or the enum whose array.
pub fn relation_of_row_array(oid: u32) -> Option<u32> {
    (2 * RANGE..3 * RANGE).contains(&oid).then(|| oid - 2 * RANGE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_distinct_and_lead_back() {
        let mut seen = std::collections::HashSet::new();
        for id in [16384, 16385, 500_000] {
            let derived = [row_type(id), row_array(id), rule(id), column_default(id, 1), column_default(id, 1600)];
            for oid in derived.into_iter().chain([id]) {
                assert!(oid < 1 << 31 && seen.insert(oid), "{id}: {oid}");
            }
            assert_eq!(relation_of_row_type(row_type(id)), Some(id));
            assert_eq!(relation_of_row_array(row_array(id)), Some(id));
        }
        assert_eq!(relation_of_row_type(16384), None);
    }
}
