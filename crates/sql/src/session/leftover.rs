//! Who drops a session's temporary tables when somebody's open DDL is in the way? A session that ends, or discards them, tries once and waits for nobody:
//! it shares its thread with others. What it could not drop is noted here, and a thread tries again until it is done or has tried for [`PATIENCE`];
//! whoever leaves something behind later starts it anew. What sessions left that a crash ended goes when the database is opened, or by that thread soon
//! after: the log may have no segment ready at that moment.
//!
//! A schema is noted by its id, which no object gets twice (the engine's `Core::next_id`). The session that has the number next drops what it finds under its own name and makes a
//! schema with an id of its own, so the thread never drops what somebody uses.

use super::Session;
use crate::bind::names::is_temporary;
use crate::cache::StatementCache;
use freshet_engine::catalog::NamespaceId;
use freshet_engine::engine::Engine;
use freshet_engine::io::urgency::{Served, start_thread};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);
const BETWEEN_TRIES: Duration = Duration::from_millis(50);

#[derive(Default)]
pub(crate) struct Leftovers {
    namespaces: Vec<NamespaceId>,
    /// A thread is at it.
    is_tried: bool,
}

/// Drops what the sessions of an earlier life left. What cannot go now nor soon (a full log) goes with the session that has its number.
pub fn drop_all(engine: &Engine, cache: &Arc<StatementCache>) {
    let schema = engine.schema();
    let all = schema.namespaces().map(|namespace| namespace.id);
    let left: Vec<NamespaceId> = all.filter(|&id| is_temporary(&schema, id)).collect();
    if left.is_empty() {
        return;
    }
    if let Ok(mut session) = Session::with_cache(engine, cache.clone()) {
        let refused: Vec<_> = left.into_iter().filter(|&namespace| !session.drop_schema_at_once(namespace)).collect();
        session.close();
        refused.into_iter().for_each(|namespace| leave(engine, cache, namespace));
    }
}

/// Notes what is left, and sees to it that somebody tries.
pub(super) fn leave(engine: &Engine, cache: &Arc<StatementCache>, namespace: NamespaceId) {
    let mut leftovers = cache.leftovers.lock();
    leftovers.namespaces.push(namespace);
    if !leftovers.is_tried {
        let (engine, shared) = (engine.clone(), Arc::downgrade(cache));
        let thread = std::thread::Builder::new().name("freshet-leftover".to_owned());
        leftovers.is_tried = start_thread(thread, Served::AsOthers, move || clear(&engine, &shared)).is_ok();
    }
}

fn clear(engine: &Engine, cache: &Weak<StatementCache>) {
    let until = Instant::now() + PATIENCE;
    // A database that is closed meanwhile takes its cache with it.
    while let Some(cache) = cache.upgrade() {
        let next = {
            let mut leftovers = cache.leftovers.lock();
            let next = leftovers.namespaces.last().copied().filter(|_| Instant::now() < until);
            leftovers.is_tried = next.is_some();
            next
        };
        let Some(namespace) = next else { return };
        // Of its own for each try: none is kept from whoever wants to connect.
        let session = Session::with_cache(engine, cache.clone());
        let is_dropped = session.is_ok_and(|mut session| {
            let is_dropped = session.drop_schema_at_once(namespace);
            session.close();
            is_dropped
        });
        match is_dropped {
            true => cache.leftovers.lock().namespaces.retain(|&left| left != namespace),
            false => {
                drop(cache);
                std::thread::sleep(BETWEEN_TRIES);
            }
        }
    }
}
