//! Circles of waits over rows, tables, the schema and keys of the application: one graph has them all. Who closes the circle is told (40P01), and
//! the others come through. PostgreSQL tells one of them, too, though not always the same one: `isolation_work.py` of the server's tests asks it.

use crate::world::{Client, World};
use freshet_db::sql::{Step, TransactionStatus, Wait};
use std::time::Duration;

struct Circle {
    name: &'static str,
    /// What each session has, in turn.
    holds: &'static [(usize, &'static str)],
    /// What each waits for, which the next one has; the last one closes the circle.
    wants: &'static [(usize, &'static str)],
}

const SETUP: &str = "CREATE TABLE t (id int PRIMARY KEY, v int); INSERT INTO t VALUES (1, 10), (2, 20);
    CREATE TABLE u (id int PRIMARY KEY, v int); INSERT INTO u VALUES (1, 10), (2, 20);
    CREATE TABLE c (id int PRIMARY KEY, t_id int REFERENCES t)";

const T1: &str = "UPDATE t SET v = v + 1 WHERE id = 1";
const T2: &str = "UPDATE t SET v = v + 1 WHERE id = 2";
const U1: &str = "UPDATE u SET v = v + 1 WHERE id = 1";
const KEY: &str = "SELECT pg_advisory_xact_lock(7)";
const ALTER_T: &str = "ALTER TABLE t ADD COLUMN w int";
const ALTER_U: &str = "ALTER TABLE u ADD COLUMN w int";

const CIRCLES: &[Circle] = &[
    Circle { name: "rows", holds: &[(0, T1), (1, T2)], wants: &[(0, T2), (1, T1)] },
    Circle {
        name: "rows and LOCK TABLE",
        holds: &[(0, "LOCK TABLE t IN SHARE MODE"), (1, U1)],
        wants: &[(0, U1), (1, T1)],
    },
    Circle {
        name: "two who lock a table and write it",
        holds: &[(0, "LOCK TABLE t IN SHARE MODE"), (1, "LOCK TABLE t IN SHARE MODE")],
        wants: &[(0, T1), (1, T2)],
    },
    Circle { name: "rows and ALTER TABLE", holds: &[(0, T1), (1, U1)], wants: &[(0, ALTER_U), (1, T1)] },
    Circle { name: "ALTER TABLE first", holds: &[(0, ALTER_T), (1, U1)], wants: &[(0, U1), (1, T1)] },
    Circle { name: "two ALTER TABLE of one table", holds: &[(0, T1), (1, T2)], wants: &[(0, ALTER_T), (1, ALTER_T)] },
    Circle { name: "two ALTER TABLE of two tables", holds: &[(0, T1), (1, U1)], wants: &[(0, ALTER_U), (1, ALTER_T)] },
    Circle { name: "rows and keys", holds: &[(0, KEY), (1, T1)], wants: &[(0, T1), (1, KEY)] },
    Circle {
        name: "LOCK TABLE and keys",
        holds: &[(0, "LOCK TABLE t IN EXCLUSIVE MODE"), (1, KEY)],
        wants: &[(0, KEY), (1, "LOCK TABLE t IN SHARE MODE")],
    },
    Circle { name: "ALTER TABLE and keys", holds: &[(0, ALTER_T), (1, KEY)], wants: &[(0, KEY), (1, T1)] },
    Circle {
        name: "keys of a session and of a transaction",
        holds: &[(0, "SELECT pg_advisory_lock(8)"), (1, KEY)],
        wants: &[(0, KEY), (1, "SELECT pg_advisory_lock_shared(8)")],
    },
    Circle {
        name: "CREATE INDEX and LOCK TABLE",
        holds: &[(0, T1), (1, "LOCK TABLE u IN EXCLUSIVE MODE")],
        wants: &[(1, "CREATE INDEX t_v ON t (v)"), (0, U1)],
    },
    Circle { name: "TRUNCATE and rows", holds: &[(0, U1), (1, T1)], wants: &[(1, "TRUNCATE u"), (0, T1)] },
    Circle {
        name: "a reference, LOCK TABLE and ALTER TABLE",
        holds: &[(0, "SELECT v FROM t WHERE id = 2 FOR UPDATE"), (1, "LOCK TABLE u IN EXCLUSIVE MODE"), (2, KEY)],
        wants: &[(2, "ALTER TABLE u DROP COLUMN v"), (1, "INSERT INTO c VALUES (1, 2)"), (0, KEY)],
    },
    Circle {
        name: "all four",
        holds: &[(0, T1), (1, "LOCK TABLE u IN EXCLUSIVE MODE"), (2, KEY)],
        wants: &[(0, "INSERT INTO u VALUES (3, 30)"), (1, KEY), (2, ALTER_T)],
    },
];

/// As far as the lock that another has: what builds an index waits for other things before.
fn until_locked(client: &mut Client, sql: &str) -> Wait {
    let mut wait = client.waits(sql);
    while !wait.is_lock() {
        assert!(wait.block(Some(Duration::from_secs(20))), "{sql}");
        let Step::Wait(next) = client.session.resume(&mut client.rows).unwrap_or_else(|e| panic!("{sql}: {e}")) else {
            panic!("{sql} does not wait")
        };
        wait = next;
    }
    wait
}

/// Clients in transactions that hold what they are to hold.
fn holders(world: &World, holds: &[(usize, &str)], count: usize) -> Vec<Client> {
    let mut clients: Vec<_> = (0..count).map(|_| world.client()).collect();
    clients.iter_mut().for_each(|client| drop(client.ok("BEGIN")));
    holds.iter().for_each(|&(who, sql)| drop(clients[who].ok(sql)));
    clients
}

#[test]
fn who_closes_a_circle_of_any_kind_is_told_and_the_others_go_on() {
    for Circle { name, holds, wants } in CIRCLES {
        let world = World::new(SETUP);
        let mut clients = holders(&world, holds, wants.len());
        let (&(victim, closes), first) = wants.split_last().expect("a circle");
        let waits: Vec<_> = first.iter().map(|&(who, sql)| (who, until_locked(&mut clients[who], sql))).collect();
        match clients[victim].start(closes) {
            Err(error) => assert_eq!(error.sqlstate, "40P01", "{name}"),
            Ok(_) => panic!("{name}: nobody is told"),
        }
        assert_eq!(clients[victim].session.status(), TransactionStatus::Failed, "{name}");
        clients[victim].ok("ROLLBACK");
        clients[victim].ok("SELECT pg_advisory_unlock_all()");
        // Each waits for the next one.
        let mut others = waits.into_iter().rev();
        let mut last = victim;
        for (who, wait) in others.by_ref() {
            assert_ne!(who, last, "{name}");
            clients[who].resume(wait).unwrap_or_else(|e| panic!("{name}: {e}"));
            clients[who].ok("COMMIT");
            clients[who].ok("SELECT pg_advisory_unlock_all()");
            last = who;
        }
        // Nothing is held any more.
        clients[victim].ok("BEGIN");
        clients[victim].ok("LOCK TABLE t, u, c IN ACCESS EXCLUSIVE MODE NOWAIT");
        clients[victim].ok("ALTER TABLE t ADD COLUMN last int");
        clients[victim].ok("ROLLBACK");
    }
}

/// Without the step that closes it there is no circle, however long the way: whoever is asked then gets on.
#[test]
fn a_way_that_does_not_close_is_no_deadlock() {
    for Circle { name, holds, wants } in CIRCLES {
        let world = World::new(SETUP);
        let mut clients = holders(&world, holds, wants.len());
        let (&(last, _), first) = wants.split_last().expect("a circle");
        let waits: Vec<_> = first.iter().map(|&(who, sql)| (who, until_locked(&mut clients[who], sql))).collect();
        clients[last].ok("COMMIT");
        clients[last].ok("SELECT pg_advisory_unlock_all()");
        for (who, wait) in waits.into_iter().rev() {
            clients[who].resume(wait).unwrap_or_else(|e| panic!("{name}: {e}"));
            clients[who].ok("COMMIT");
            clients[who].ok("SELECT pg_advisory_unlock_all()");
        }
    }
}
