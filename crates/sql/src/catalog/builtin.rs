//! What does PostgreSQL 15 bring along under fixed numbers? Names of its system relations, types and functions, for who reads or shows them.
//!
//! | file | a line |
//! |---|---|
//! | `view/catalog/relations.txt` | `c` (pg_catalog) or `i` (information_schema), name, kind, oid; what follows is `view::catalog`'s |
//! | `types.txt` | oid, name in `pg_type`, name as `format_type` shows it (`-`: the same) |
//! | `keywords.txt` | word, `U`, `C`, `T` or `R` as `pg_get_keywords` says, whether it can be a label without AS |
//! | `procs.txt` | oid, name, the oids of the result's type (`*`: it gives rows) and of the arguments' |

use freshet_engine::catalog::NamespaceId;
use std::collections::HashMap;
use std::sync::LazyLock;

/// A relation of the system's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SystemRelation {
    pub oid: u32,
    pub namespace: NamespaceId,
    pub name: &'static str,
}

#[derive(Clone, Copy, Debug)]
pub struct SystemType {
    pub oid: u32,
    pub name: &'static str,
    pub shown: &'static str,
}

#[derive(Clone, Debug)]
pub struct SystemProc {
    pub oid: u32,
    pub name: &'static str,
    pub result: u32,
    pub gives_set: bool,
    pub arguments: Vec<u32>,
}

fn number(text: &str) -> u32 {
    text.parse().expect("the file that comes with the code has numbers there")
}

static RELATIONS: LazyLock<Vec<SystemRelation>> = LazyLock::new(|| {
    let of_line = |line: &'static str| {
        let mut words = line.split(' ');
        let namespace = if words.next()? == "c" { NamespaceId::CATALOG } else { NamespaceId::INFORMATION };
        let (name, oid) = (words.next()?, number(words.nth(1)?));
        Some(SystemRelation { oid, namespace, name })
    };
    include_str!("../view/catalog/relations.txt").lines().filter_map(of_line).collect()
});

static TYPES: LazyLock<Vec<SystemType>> = LazyLock::new(|| {
    let of_line = |line: &'static str| {
        let (oid, rest) = line.split_once(' ')?;
        let (name, shown) = rest.split_once(' ')?;
        Some(SystemType { oid: number(oid), name, shown: if shown == "-" { name } else { shown } })
    };
    include_str!("types.txt").lines().filter_map(of_line).collect()
});

static PROCS: LazyLock<Vec<SystemProc>> = LazyLock::new(|| {
    let of_line = |line: &'static str| {
        let mut words = line.split(' ').filter(|word| !word.is_empty());
        let (oid, name) = (number(words.next()?), words.next()?);
        let result = words.next()?;
        let (gives_set, result) = (result.starts_with('*'), number(result.trim_start_matches('*')));
        Some(SystemProc { oid, name, result, gives_set, arguments: words.map(number).collect() })
    };
    include_str!("procs.txt").lines().filter_map(of_line).collect()
});

/// A word of PostgreSQL's grammar.
#[derive(Clone, Copy, Debug)]
pub struct Keyword {
    pub word: &'static str,
    pub category: &'static str,
    pub is_label: bool,
}

pub fn keywords() -> impl Iterator<Item = Keyword> {
    include_str!("keywords.txt").lines().filter_map(|line| {
        let mut words = line.split(' ');
        Some(Keyword { word: words.next()?, category: words.next()?, is_label: words.next()? == "t" })
    })
}

impl Keyword {
    pub fn category_description(&self) -> &'static str {
        match self.category {
            "C" => "unreserved (cannot be function or type name)",
            "T" => "reserved (can be function or type name)",
            "R" => "reserved",
            _ => "unreserved",
        }
    }

    pub fn label_description(&self) -> &'static str {
        if self.is_label { "can be bare label" } else { "requires AS" }
    }
}

static PROC_PLACES: LazyLock<HashMap<u32, usize>> =
    LazyLock::new(|| PROCS.iter().enumerate().map(|(at, proc)| (proc.oid, at)).collect());

pub fn relation(oid: u32) -> Option<&'static SystemRelation> {
    static BY_OID: LazyLock<HashMap<u32, usize>> =
        LazyLock::new(|| RELATIONS.iter().enumerate().map(|(at, relation)| (relation.oid, at)).collect());
    BY_OID.get(&oid).map(|&at| &RELATIONS[at])
}

pub fn relation_named(namespace: NamespaceId, name: &str) -> Option<&'static SystemRelation> {
    static BY_NAME: LazyLock<HashMap<(NamespaceId, &str), usize>> = LazyLock::new(|| {
        let places = RELATIONS.iter().enumerate();
        places.map(|(at, relation)| ((relation.namespace, relation.name), at)).collect()
    });
    BY_NAME.get(&(namespace, name)).map(|&at| &RELATIONS[at])
}

pub fn type_of(oid: u32) -> Option<&'static SystemType> {
    TYPES.binary_search_by_key(&oid, |ty| ty.oid).ok().map(|at| &TYPES[at])
}

pub fn type_named(name: &str) -> Option<&'static SystemType> {
    TYPES.iter().find(|ty| ty.name == name)
}

pub fn proc_of(oid: u32) -> Option<&'static SystemProc> {
    PROC_PLACES.get(&oid).map(|&at| &PROCS[at])
}

/// Every function of this name.
pub fn procs_named(name: &str) -> &'static [SystemProc] {
    let start = PROCS.partition_point(|proc| proc.name < name);
    let count = PROCS[start..].partition_point(|proc| proc.name == name);
    &PROCS[start..start + count]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_read_and_in_order() {
        assert!(TYPES.windows(2).all(|pair| pair[0].oid < pair[1].oid));
        assert!(PROCS.windows(2).all(|pair| pair[0].name <= pair[1].name));
        assert_eq!(relation_named(NamespaceId::CATALOG, "pg_class").map(|r| r.oid), Some(1259));
        assert_eq!(relation(1259).map(|r| r.name), Some("pg_class"));
        assert!(relation_named(NamespaceId::INFORMATION, "tables").is_some());
        assert_eq!(type_of(1043).map(|ty| (ty.name, ty.shown)), Some(("varchar", "character varying")));
        assert_eq!(type_named("_int4").map(|ty| ty.oid), Some(1007));
        assert_eq!(procs_named("array_in").iter().map(|p| p.oid).collect::<Vec<_>>(), [750]);
        assert_eq!(procs_named("abs").len(), 6);
        assert_eq!(proc_of(1397).map(|p| p.arguments.clone()), Some(vec![23]));
        assert!(procs_named("generate_series").iter().all(|p| p.gives_set));
    }
}
