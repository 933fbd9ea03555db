#!/usr/bin/env python3
"""Every anomaly of the literature at every level, as scripted interleavings: usage: isolation_work.py [--record] CONNINFO

Each line of isolation.out is what PostgreSQL 15 gave: what was read, in the order of the steps, which errors came, and what the table holds in the
end. DIFFERS says where this database is stricter, and why. The names are those of Hermitage (Kleppmann 2014), after Adya (1999); the read-only
anomaly is Fekete's (2004). Then circles of waits, of which one session is told and out of which the others come.
"""

import queue
import re
import sys
import threading
from pathlib import Path

import psycopg

LEVELS = ["read uncommitted", "read committed", "repeatable read", "serializable"]

# A step: the session, and what it does. A session begins with its first step.
SCENARIOS = {
    "G0 dirty write": "a: update t set v = 11 where id = 1; b: update t set v = 12 where id = 1; a: update t set v = 21 where id = 2;"
    " a: commit; b: update t set v = 22 where id = 2; b: commit",
    "G1a aborted read": "a: update t set v = 101 where id = 1; b: select v from t order by id; a: rollback; b: select v from t order by id; b: commit",
    "G1b intermediate read": "a: update t set v = 101 where id = 1; b: select v from t order by id; a: update t set v = 11 where id = 1;"
    " a: commit; b: select v from t order by id; b: commit",
    "G1c circular information flow": "a: update t set v = 11 where id = 1; b: update t set v = 22 where id = 2;"
    " a: select v from t where id = 2; b: select v from t where id = 1; a: commit; b: commit",
    "OTV observed transaction vanishes": "a: update t set v = 11 where id = 1; a: update t set v = 19 where id = 2;"
    " b: update t set v = 12 where id = 1; a: commit; c: select v from t where id = 1; b: update t set v = 18 where id = 2;"
    " c: select v from t where id = 2; b: commit; c: select v from t where id = 2; c: select v from t where id = 1; c: commit",
    "PMP predicate read": "a: select id from t where v = 30; b: insert into t values (3, 30); b: commit;"
    " a: select id from t where v % 3 = 0; a: commit",
    "PMP predicate write": "a: update t set v = v + 10; b: delete from t where v = 20; a: commit; b: select v from t order by id; b: commit",
    "P4 lost update": "a: select v from t where id = 1; b: select v from t where id = 1; a: update t set v = 11 where id = 1;"
    " b: update t set v = 12 where id = 1; a: commit; b: commit",
    "P4C cursor lost update": "a: declare k cursor for select * from t where id = 1 for update; a: fetch k;"
    " b: update t set v = v + 1 where id = 1; a: update t set v = v + 5 where current of k; a: commit; b: commit",
    "G-single read skew": "a: select v from t where id = 1; b: select v from t where id = 1; b: select v from t where id = 2;"
    " b: update t set v = 12 where id = 1; b: update t set v = 18 where id = 2; b: commit; a: select v from t where id = 2; a: commit",
    "G-single with predicates": "a: select id from t where v % 5 = 0 order by id; b: update t set v = 12 where v = 10; b: commit;"
    " a: select id from t where v % 3 = 0; a: commit",
    "G-single with a write": "a: select v from t where id = 1; b: select v from t order by id; b: update t set v = 12 where id = 1;"
    " b: update t set v = 18 where id = 2; b: commit; a: delete from t where v = 20; a: commit",
    "G2-item write skew": "a: select v from t where id in (1, 2) order by id; b: select v from t where id in (1, 2) order by id;"
    " a: update t set v = 11 where id = 1; b: update t set v = 21 where id = 2; a: commit; b: commit",
    "G2 phantom": "a: select id from t where v % 3 = 0; b: select id from t where v % 3 = 0; a: insert into t values (3, 30);"
    " b: insert into t values (4, 42); a: commit; b: commit",
    "G2 keys that are not there": "a: select v from t where id = 3; b: select v from t where id = 4; a: insert into t values (4, 1);"
    " b: insert into t values (3, 1); a: commit; b: commit",
    "G2 aggregates": "a: select sum(v) from t; b: select sum(v) from t; a: insert into t select 3, sum(v) from t;"
    " b: insert into t select 4, sum(v) from t; a: commit; b: commit",
    "read-only anomaly": "a: select v from t order by id; b: update t set v = v + 20 where id = 2; b: commit;"
    " c: select v from t order by id; c: commit; a: update t set v = -11 where id = 1; a: commit",
    "read before a write": "a: select v from t where id = 1; b: update t set v = 12 where id = 1; b: commit;"
    " a: update t set v = 21 where id = 2; a: commit",
    "locked, not written": "a: select v from t where id = 1 for share; b: select v from t where id = 1 for key share;"
    " b: update t set v = 21 where id = 2; a: update t set v = 22 where id = 2; b: commit; a: commit",
    "G0 dirty write of keys": "a: insert into t values (3, 31); b: insert into t values (4, 42); a: insert into t values (5, 51); a: commit;"
    " b: insert into t values (5, 52); b: commit",
    "A2 fuzzy read": "a: select v from t where id = 1; b: update t set v = 11 where id = 1; b: commit; a: select v from t where id = 1;"
    " b2: delete from t where id = 1; b2: commit; a: select v from t where id = 1; a: commit",
    "A3 phantom": "a: select id from t where v > 5 order by id; b: insert into t values (3, 30); b: commit; a: select id from t where v > 5 order by id;"
    " c: delete from t where id = 2; c: commit; a: select count(*) from t where v > 5; a: commit",
    "P4 lost update, computed": "a: update t set v = v + 1 where id = 1; b: update t set v = v + 2 where id = 1; a: commit; b: commit",
    "P4 lost update, locked first": "a: select v from t where id = 1 for update; b: select v from t where id = 1 for update;"
    " a: update t set v = 11 where id = 1; a: commit; b: update t set v = v + 5 where id = 1; b: commit",
    "P4C cursor lost update, not locked": "a: declare k cursor for select * from t where id = 1; a: fetch k;"
    " b: update t set v = v + 1 where id = 1; b: commit; a: update t set v = v + 5 where current of k; a: commit",
    "P4C cursor lost update, after a rollback": "a: declare k cursor for select * from t order by id for update; a: fetch k;"
    " b: update t set v = v + 1 where id = 1; a: rollback; b: commit",
    "G2-item write skew, locked": "a: select v from t where id in (1, 2) order by id for update; b: select v from t where id in (1, 2) order by id for update;"
    " a: update t set v = 11 where id = 1; a: commit; b: update t set v = 21 where id = 2; b: commit",
    "G2 write skew of three": "a: select v from t where id = 1; b: select v from t where id = 2; c: select count(*) from t where id = 3;"
    " a: update t set v = 21 where id = 2; b: insert into t values (3, 30); c: update t set v = 11 where id = 1; a: commit; b: commit; c: commit",
    "G2 deletes that a predicate sees": "a: select count(*) from t where v >= 10; b: select count(*) from t where v >= 10;"
    " a: delete from t where id = 1; b: delete from t where id = 2; a: commit; b: commit",
    "G2 rows that move into a predicate": "a: select sum(v) from t where v >= 15; b: select count(*) from t where v < 15;"
    " a: update t set v = 14 where id = 2; b: update t set v = 16 where id = 1; a: commit; b: commit",
    "read skew through a savepoint": "a: select v from t where id = 1; a: savepoint s; b: update t set v = v + 1; b: commit; a: select v from t where id = 2;"
    " a: rollback to s; a: select v from t where id = 2; a: commit",
}

# Circles of waits over rows, tables, the schema and keys of the application. Who is the victim differs, so the table ends the same either way.
DEADLOCKS = {
    "rows": "a: update t set v = 0 where id = 1; b: update t set v = 0 where id = 2; a: update t set v = 0 where id = 2; b: update t set v = 0 where id = 1",
    "two who share a row": "a: select v from t where id = 1 for share; b: select v from t where id = 1 for share;"
    " a: update t set v = 0 where id = 1; b: update t set v = 0 where id = 1",
    "rows and LOCK TABLE": "a: lock table t in share mode; b: update u set v = 0 where id = 1; a: update u set v = 0 where id = 1;"
    " b: update t set v = v where id = 1",
    "two who lock a table": "a: lock table t in share mode; b: lock table t in share mode; a: update t set v = 0 where id = 1;"
    " b: update t set v = 0 where id = 1",
    "rows and ALTER TABLE": "a: update t set v = v where id = 1; b: update u set v = v where id = 1; a: alter table u add column w int;"
    " b: update t set v = v where id = 1",
    "two who write and ALTER TABLE": "a: update t set v = v where id = 1; b: update t set v = v where id = 2; a: alter table t add column w int;"
    " b: alter table t add column w int",
    "ALTER TABLE first": "a: alter table t add column w int; b: update u set v = v where id = 1; a: update u set v = v where id = 1;"
    " b: update t set v = v where id = 1",
    "two ALTER TABLE": "a: update t set v = v where id = 1; b: update u set v = v where id = 1; a: alter table u add column w int;"
    " b: alter table t add column w int",
    "rows and keys": "a: do advisory 7; b: update t set v = v where id = 1; a: update t set v = v where id = 1; b: do advisory 7",
    "keys": "a: do advisory 7; b: do advisory 8; a: do advisory 8; b: do advisory 7",
    "LOCK TABLE and keys": "a: lock table t in exclusive mode; b: do advisory 7; a: do advisory 7; b: lock table t in share mode",
    "ALTER TABLE and keys": "a: alter table t add column w int; b: do advisory 7; a: do advisory 7; b: update t set v = v where id = 1",
    "CREATE INDEX and LOCK TABLE": "a: update t set v = v where id = 1; b: lock table u in exclusive mode; b: create index t_v on t (v);"
    " a: update u set v = v where id = 1",
    "TRUNCATE and rows": "a: update u set v = v where id = 1; b: update t set v = v where id = 1; b: truncate u; a: update t set v = v where id = 1",
    "all four": "a: update t set v = v where id = 1; b: lock table u in exclusive mode; c: do advisory 7; a: insert into u values (3, 0);"
    " b: do advisory 7; c: alter table t add column w int",
}

STRICTER = "a transaction that writes fails if what it read has changed, also where no cycle closes"
DIFFERS = {
    # The DELETE that waited runs again at a new snapshot, and so meets the row that had another value before: all of it is as of one moment.
    **{
        ("PMP predicate write", level): ("30 | - | 2:30", "a statement that waited runs again")
        for level in ("read uncommitted", "read committed")
    },
    ("read before a write", "serializable"): ("10 | 40001 | 1:12 2:20", STRICTER),
}


class Session:
    """One connection on a thread of its own, so that a statement may wait."""

    def __init__(self, conninfo, level):
        self.conn = psycopg.connect(conninfo, autocommit=True)
        self.level, self.failed, self.begun = level, None, False
        self.work, self.done = queue.Queue(), queue.Queue()
        threading.Thread(target=self.run, daemon=True).start()
        self.waiting = 0

    def run(self):
        while (sql := self.work.get()) is not None:
            self.done.put(self.execute(sql))

    def execute(self, sql):
        try:
            if not self.begun:
                self.begun = True
                self.conn.execute(f"begin isolation level {self.level}")
            if self.failed:
                if sql in ("commit", "rollback"):
                    self.conn.execute("rollback")
                return []
            cursor = self.conn.execute(sql)
            return ["/".join(str(row[0]) for row in cursor.fetchall()) or "-"] if cursor.description else []
        except psycopg.Error as error:
            self.failed = error.sqlstate
            if sql == "commit":
                self.conn.execute("rollback")
            return []

    def start(self, sql):
        self.work.put(sql)
        self.waiting += 1

    def settle(self, seconds):
        """What the steps under way gave, as far as they ended in time."""
        reads = []
        while self.waiting:
            try:
                reads += self.done.get(timeout=seconds)
            except queue.Empty:
                return reads
            self.waiting -= 1
        return reads


def play_deadlock(conninfo, scenario):
    """How many were refused; everybody then commits, so that a wait for ever shows as one more who has not ended."""
    steps = [re.sub(r"do advisory (\d)", r"select pg_advisory_xact_lock(\1)", step) for step in DEADLOCKS[scenario].split("; ")]
    names = list(dict.fromkeys(step.split(": ")[0] for step in steps))
    with psycopg.connect(conninfo, autocommit=True) as conn:
        for table in "tu":
            conn.execute(f"drop table if exists {table}")
            conn.execute(f"create table {table} (id int primary key, v int)")
            conn.execute(f"insert into {table} values (1, 10), (2, 20)")
    sessions = {name: Session(conninfo, "read committed") for name in names}
    for step in steps:
        name, sql = step.split(": ", 1)
        sessions[name].start(sql)
        sessions[name].settle(0.25)
    ended = set()
    for _ in range(100):
        for name in [name for name in names if name not in ended]:
            session = sessions[name]
            session.settle(0.1)
            if not session.waiting:
                # Who was refused is rolled back by it.
                session.start("commit")
                session.settle(10)
                ended.add(name)
        if len(ended) == len(names):
            break
    for name in ended:
        sessions[name].work.put(None)
        sessions[name].conn.close()
    errors = sorted(session.failed for session in sessions.values() if session.failed)
    return f"- | {' '.join(errors) or '-'} | {len(ended)} of {len(names)} ended"


def play(conninfo, scenario, level):
    with psycopg.connect(conninfo, autocommit=True) as conn:
        conn.execute("drop table if exists t")
        conn.execute("create table t (id int primary key, v int)")
        conn.execute("insert into t values (1, 10), (2, 20)")
        sessions, reads = {}, []
        for step in SCENARIOS[scenario].split("; "):
            name, sql = step.split(": ", 1)
            session = sessions.get(name) or sessions.setdefault(name, Session(conninfo, level))
            reads += session.settle(10)
            session.start(sql)
            reads += session.settle(0.25)
        for session in sessions.values():
            reads += session.settle(10)
            session.work.put(None)
            session.conn.close()
        errors = sorted(session.failed for session in sessions.values() if session.failed)
        rows = conn.execute("select id, v from t order by id").fetchall()
    final = " ".join(f"{id}:{v}" for id, v in rows)
    return f"{' '.join(reads) or '-'} | {' '.join(errors) or '-'} | {final or '-'}"


def is_freshet(conninfo):
    with psycopg.connect(conninfo, autocommit=True) as conn:
        try:
            conn.execute("show freshet.road")
            return True
        except psycopg.Error:
            return False


def main():
    record = "--record" in sys.argv
    conninfo = sys.argv[-1]
    path = Path(__file__).with_name("isolation.out")
    ours = is_freshet(conninfo)
    played = {(s, level): play(conninfo, s, level) for s in SCENARIOS for level in LEVELS}
    played |= {(f"deadlock of {s}", "read committed"): play_deadlock(conninfo, s) for s in DEADLOCKS}
    if record:
        path.write_text("".join(f"{s} | {level} | {got}\n" for (s, level), got in played.items()))
        return
    expected = {}
    for line in path.read_text().splitlines():
        scenario, level, outcome = line.split(" | ", 2)
        expected[scenario, level] = outcome
    failed = False
    for key, got in played.items():
        wanted = DIFFERS[key][0] if ours and key in DIFFERS else expected.get(key)
        if got != wanted:
            failed = True
            print(f"not ok {key[0]} at {key[1]}:\n  got    {got}\n  wanted {wanted}")
    print(f"{'not ok' if failed else 'ok'} isolation_work.py: {len(played)} interleavings")
    sys.exit(failed)


main()
