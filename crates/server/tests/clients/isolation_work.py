#!/usr/bin/env python3
"""Every anomaly of the literature at every level, as scripted interleavings: usage: isolation_work.py [--record] CONNINFO

Each line of isolation.out is what PostgreSQL 15 gave: what was read, in the order of the steps, which errors came, and what the table holds in the
end. DIFFERS says where this database is stricter, and why. The names are those of Hermitage (Kleppmann 2014), after Adya (1999); the read-only
anomaly is Fekete's (2004).
"""

import queue
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
    return f"{' '.join(reads) or '-'} | {' '.join(errors) or '-'} | {final}"


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
