//! What does a session tell of what it keeps by name? Its prepared statements and cursors, for `pg_prepared_statements` and `pg_cursors`.
//!
//! Whoever keeps one holds its entry; the list holds it weakly. So what is gone, however it went, is not listed.

use crate::cache::Prepared;
use parking_lot::Mutex;
use std::sync::{Arc, Weak};

pub struct ListedStatement {
    pub name: String,
    /// The text of PREPARE; `None`: the statement's own, as the protocol prepared it.
    pub declaration: Option<Box<str>>,
    pub prepared: Arc<Prepared>,
    pub made_at: i64,
}

impl ListedStatement {
    pub fn text(&self) -> &str {
        self.declaration.as_deref().unwrap_or(&self.prepared.sql)
    }
}

pub struct ListedCursor {
    pub name: String,
    /// The text of DECLARE.
    pub declaration: Box<str>,
    pub hold: bool,
    pub scroll: bool,
    pub made_at: i64,
}

/// What a session has by name.
#[derive(Default)]
pub struct Listed {
    statements: Mutex<Vec<Weak<ListedStatement>>>,
    cursors: Mutex<Vec<Weak<ListedCursor>>>,
}

impl Listed {
    pub fn statements(&self) -> Vec<Arc<ListedStatement>> {
        living(&self.statements)
    }

    pub fn cursors(&self) -> Vec<Arc<ListedCursor>> {
        living(&self.cursors)
    }

    pub(super) fn add_statement(&self, statement: ListedStatement) -> Arc<ListedStatement> {
        add(&self.statements, statement)
    }

    pub(super) fn add_cursor(&self, cursor: ListedCursor) -> Arc<ListedCursor> {
        add(&self.cursors, cursor)
    }
}

impl std::fmt::Debug for Listed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} statements, {} cursors", self.statements.lock().len(), self.cursors.lock().len())
    }
}

fn living<T>(list: &Mutex<Vec<Weak<T>>>) -> Vec<Arc<T>> {
    list.lock().iter().filter_map(Weak::upgrade).collect()
}

fn add<T>(list: &Mutex<Vec<Weak<T>>>, entry: T) -> Arc<T> {
    let entry = Arc::new(entry);
    let mut list = list.lock();
    if list.len() == list.capacity() {
        // Before it grows.
        list.retain(|entry| entry.strong_count() > 0);
    }
    list.push(Arc::downgrade(&entry));
    entry
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cursor(name: &str) -> ListedCursor {
        ListedCursor { name: name.to_owned(), declaration: "".into(), hold: false, scroll: false, made_at: 0 }
    }

    #[test]
    fn what_is_gone_is_not_listed_and_takes_no_room() {
        let listed = Listed::default();
        let kept = listed.add_cursor(cursor("kept"));
        for _ in 0..1000 {
            listed.add_cursor(cursor("gone"));
        }
        let names: Vec<String> = listed.cursors().iter().map(|cursor| cursor.name.clone()).collect();
        assert_eq!(names, std::slice::from_ref(&kept.name));
        assert!(listed.cursors.lock().len() < 16, "what is gone leaves the list");
    }
}
