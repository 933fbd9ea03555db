#!/usr/bin/env python3
"""psycopg doing real work against a running server: usage: psycopg_work.py CONNINFO"""

import datetime as dt
import decimal
import enum
import ipaddress
import sys
import threading
import time
import uuid

import psycopg
from psycopg import errors
from psycopg.rows import dict_row
from psycopg.types.enum import EnumInfo, register_enum
from psycopg.types.json import Json, Jsonb

CONNINFO = sys.argv[1]

VALUES = {
    "boolean": [True, False],
    "smallint": [-32768, 32767],
    "integer": [-(2**31), 2**31 - 1],
    "bigint": [-(2**63), 2**63 - 1],
    "real": [1.5, -0.0, float("inf")],
    "double precision": [0.1, 1e300, float("-inf")],
    "numeric(9,4)": [decimal.Decimal("12345.6789"), decimal.Decimal("-0.0001")],
    "numeric": [decimal.Decimal("1" + "0" * 60), decimal.Decimal("0.000000001"), decimal.Decimal(0)],
    "char(4)": ["ab  "],
    "varchar(8)": ["", "h\u00e9llo \u20ac"],
    "text": ["", "x" * 100_000],
    "bytea": [b"", bytes(range(256))],
    "date": [dt.date(1, 1, 1), dt.date(2026, 11, 20)],
    "time": [dt.time(0), dt.time(23, 59, 59, 999999)],
    "timestamp": [dt.datetime(1999, 12, 31, 23, 59, 59, 5)],
    "timestamptz": [dt.datetime(2026, 11, 20, 12, tzinfo=dt.timezone.utc)],
    "inet": [ipaddress.ip_address("10.1.2.3"), ipaddress.ip_interface("2001:db8::1/64"), ipaddress.ip_address("::1")],
    "cidr": [ipaddress.ip_network("10.1.0.0/16"), ipaddress.ip_network("2001:db8::/32")],
    "uuid": [uuid.UUID("00112233-4455-6677-8899-aabbccddeeff")],
    "interval": [dt.timedelta(0), dt.timedelta(days=-3, seconds=5, microseconds=7), dt.timedelta(days=40_000)],
    "json": [{"b": 1, "a": [None, True, "h\u00e9llo"]}, [], "text", 1.5],
    "jsonb": [{"b": 1, "a": [None, True, "h\u00e9llo"]}, [], "text", 1.5, {"deep": {"er": [[1], {}]}}],
    "int[]": [[1, None, -(2**31)], [[1, 2], [3, 4]], []],
    "bigint[]": [[2**62, 0]],
    "text[]": [["", "NULL", 'a"b', "c,d{}", "\\"], [None, "x"]],
    "numeric[]": [[decimal.Decimal("1.50"), decimal.Decimal(-7)]],
    "boolean[]": [[True, False, None]],
    "date[]": [[dt.date(2026, 11, 20), None]],
    "timestamptz[]": [[dt.datetime(2026, 11, 20, 12, tzinfo=dt.timezone.utc)]],
    "double precision[]": [[0.1, float("inf")]],
    "uuid[]": [[uuid.UUID("00112233-4455-6677-8899-aabbccddeeff")]],
}

# How a client says that a value is a document.
WRAPPERS = {"json": Json, "jsonb": Jsonb}


class Mood(enum.Enum):
    sad = "sad"
    ok = "ok"
    over_the_moon = "over the moon"


def connect(**options):
    return psycopg.connect(CONNINFO, **{"autocommit": True, **options})


def expect_error(error, work):
    try:
        work()
    except error as found:
        return found
    raise AssertionError(f"no {error.__name__}")


def round_trip(conn, table, ty, values):
    """Values written as text and as binary, each read as both. The table is this type's alone: psycopg prepares what it says often."""
    wrap = WRAPPERS.get(ty, lambda value: value)
    conn.execute(f"create table {table}(id int primary key, v {ty})")
    for placeholder in ("%t", "%b"):
        conn.execute(f"delete from {table}")
        for number, value in enumerate([*values, None]):
            sql = f"insert into {table} values (%s, {placeholder})"
            conn.execute(sql, (number, value if value is None else wrap(value)))
        for binary in (False, True):
            cursor = conn.cursor(binary=binary)
            rows = cursor.execute(f"select v from {table} order by id").fetchall()
            assert [r[0] for r in rows] == [*values, None], (ty, placeholder, binary, rows)
    conn.execute(f"drop table {table}")


def types_in_both_formats():
    with connect() as conn:
        for at, (ty, values) in enumerate(VALUES.items()):
            round_trip(conn, f"py_{at}", ty, values)


def enums_in_both_formats():
    with connect() as conn:
        conn.execute("create type py_mood as enum ('sad', 'ok', 'over the moon')")
        info = EnumInfo.fetch(conn, "py_mood")
        assert set(info.labels) == {mood.value for mood in Mood}, info.labels
        register_enum(info, conn, Mood, mapping={mood: mood.value for mood in Mood})
        round_trip(conn, "py_moods", "py_mood", list(Mood))
        round_trip(conn, "py_mood_lists", "py_mood[]", [list(Mood), [Mood.ok, None]])
        conn.execute("drop type py_mood")


def transactions():
    with connect(autocommit=False) as conn:
        conn.execute("create table py_transaction(id int primary key, v int not null)")
        conn.commit()
        conn.execute("insert into py_transaction values (1, 1)")
        conn.rollback()
        assert conn.execute("select count(*) from py_transaction").fetchone() == (0,)
        conn.commit()
        with conn.transaction():
            conn.execute("insert into py_transaction values (1, 1)")
        error = expect_error(
            errors.UniqueViolation,
            lambda: conn.execute("insert into py_transaction values (1, 2)"),
        )
        assert error.diag.message_primary and error.sqlstate == "23505"
        assert conn.info.transaction_status == psycopg.pq.TransactionStatus.INERROR
        expect_error(errors.InFailedSqlTransaction, lambda: conn.execute("select 1"))
        conn.rollback()
        assert conn.execute("select v from py_transaction").fetchall() == [(1,)]
        conn.execute("drop table py_transaction")


def prepared_statements():
    with connect() as conn:
        conn.execute("create table py_prepared(id int primary key, v text)")
        for number in range(50):
            conn.execute("insert into py_prepared values (%s, %s)", (number, f"v{number}"), prepare=True)
        cursor = conn.cursor(row_factory=dict_row)
        for number in range(50):
            row = cursor.execute("select v from py_prepared where id = %s", (number,)).fetchone()
            assert row == {"v": f"v{number}"}
        cursor.executemany("update py_prepared set v = %s where id = %s", [("new", n) for n in range(10)])
        assert cursor.rowcount == 10
        found = conn.execute("select count(*) from py_prepared where v = 'new'").fetchone()
        assert found == (10,)
        # Evicts by DEALLOCATE or Close.
        conn.prepared_max = 2
        for number in range(20):
            conn.execute(f"select {number}, %s", (number,), prepare=True)
        conn.execute("drop table py_prepared")


def pipelines():
    with connect() as conn:
        conn.execute("create table py_pipeline(id int primary key)")
        with conn.pipeline():
            for number in range(1000):
                conn.execute("insert into py_pipeline values (%s)", (number,))
            cursor = conn.execute("select count(*) from py_pipeline")
            assert cursor.fetchone() == (1000,)

        def failing():
            with conn.pipeline():
                conn.execute("insert into py_pipeline values (5000)")
                conn.execute("insert into py_pipeline values (0)")
                conn.execute("insert into py_pipeline values (5001)")

        expect_error(errors.UniqueViolation, failing)
        found = conn.execute("select count(*) from py_pipeline where id >= 5000").fetchone()
        assert found == (0,), "a failed pipeline is undone"
        conn.execute("drop table py_pipeline")


def notices_and_settings():
    with connect(application_name="psycopg work") as conn:
        assert conn.info.server_version >= 150000
        assert conn.info.encoding == "utf-8"
        assert conn.info.parameter_status("TimeZone")
        assert conn.execute("show application_name").fetchone() == ("psycopg work",)
        notices = []
        conn.add_notice_handler(lambda notice: notices.append(notice.sqlstate))
        conn.execute("rollback")
        assert notices == ["25P01"], notices
        expect_error(errors.SyntaxError, lambda: conn.execute("selec 1"))
        error = expect_error(errors.UndefinedTable, lambda: conn.execute("select * from nowhere"))
        assert error.diag.severity_nonlocalized == "ERROR"


def cancel():
    with connect() as holder, connect() as waiter:
        holder.execute("create table py_cancel(id int primary key, v int)")
        holder.execute("insert into py_cancel values (1, 0)")
        holder.autocommit = False
        holder.execute("update py_cancel set v = 1 where id = 1")
        canceled = threading.Event()

        def ask_until_canceled():
            while not canceled.is_set():
                waiter.cancel_safe(timeout=5)
                time.sleep(0.01)

        thread = threading.Thread(target=ask_until_canceled)
        thread.start()
        try:
            expect_error(
                errors.QueryCanceled,
                lambda: waiter.execute("update py_cancel set v = 2 where id = 1"),
            )
        finally:
            canceled.set()
            thread.join()
        holder.commit()
        waiter.execute("set lock_timeout = '10ms'")
        holder.execute("update py_cancel set v = 3 where id = 1")
        expect_error(
            errors.LockNotAvailable,
            lambda: waiter.execute("update py_cancel set v = 4 where id = 1"),
        )
        holder.rollback()
        assert holder.execute("select v from py_cancel").fetchone() == (1,)
        holder.execute("drop table py_cancel")
        holder.commit()


def many_sessions():
    """Counters that several sessions raise at once, by read-modify-write in the server."""
    sessions, rounds = 8, 50
    with connect() as conn:
        conn.execute("create table py_many(id int primary key, v int not null)")
        conn.execute("insert into py_many values (1, 0), (2, 0)")

    def work():
        with connect() as conn:
            for number in range(rounds):
                conn.execute("update py_many set v = v + 1 where id = %s", (number % 2 + 1,))

    threads = [threading.Thread(target=work) for _ in range(sessions)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with connect() as conn:
        assert conn.execute("select sum(v) from py_many").fetchone() == (sessions * rounds,)
        conn.execute("drop table py_many")


def copies():
    with connect() as conn, conn.cursor() as cursor:
        conn.execute("create table py_copy(id int primary key, v text, n numeric(9,4), t timestamptz, b bytea)")
        when = dt.datetime(2026, 11, 20, 12, tzinfo=dt.timezone.utc)
        rows = [(1, "tab\tand\nline", decimal.Decimal("1.5000"), when, b"\x00\\"), (2, None, None, None, None)]
        with cursor.copy("copy py_copy from stdin") as copy:
            for row in rows:
                copy.write_row(row)
        assert cursor.rowcount == 2
        with cursor.copy("copy (select * from py_copy order by id) to stdout") as copy:
            copy.set_types(["int4", "text", "numeric", "timestamptz", "bytea"])
            assert list(copy.rows()) == rows
        with cursor.copy("copy (select * from py_copy order by id) to stdout (format binary)") as copy:
            copy.set_types(["int4", "text", "numeric", "timestamptz", "bytea"])
            assert list(copy.rows()) == rows
        conn.execute("truncate py_copy")
        with cursor.copy("copy py_copy from stdin (format binary)") as copy:
            copy.set_types(["int4", "text", "numeric", "timestamptz", "bytea"])
            for row in rows:
                copy.write_row(row)
        assert cursor.execute("select * from py_copy order by id").fetchall() == rows

        def failing(text):
            with cursor.copy("copy py_copy(id, n) from stdin") as copy:
                copy.write(text)

        error = expect_error(errors.InvalidTextRepresentation, lambda: failing("7\t1\n8\tx\n"))
        assert error.diag.context == 'COPY py_copy, line 2, column n: "x"', error.diag.context
        expect_error(errors.BadCopyFileFormat, lambda: failing("7\n"))
        expect_error(errors.UniqueViolation, lambda: failing("1\t1\n"))

        def given_up():
            with cursor.copy("copy py_copy(id) from stdin") as copy:
                copy.write("9\n")
                raise ZeroDivisionError

        expect_error(ZeroDivisionError, given_up)
        assert conn.execute("select count(*) from py_copy").fetchone() == (2,)
        # Enough to be loaded in bulk, in pieces that end anywhere.
        conn.execute("truncate py_copy")
        text = "".join(f"{n}\trow {n} of a table that is copied in one go\n" for n in range(50_000))
        with cursor.copy("copy py_copy(id, v) from stdin") as copy:
            for at in range(0, len(text), 77_777):
                copy.write(text[at : at + 77_777])
        assert conn.execute("select count(*), min(v) from py_copy").fetchone() == (50_000, "row 0 of a table that is copied in one go")
        conn.execute("drop table py_copy")


def cursors():
    with connect(autocommit=False) as conn:
        conn.execute("create table py_cursor(id int primary key, v text)")
        with conn.cursor() as cursor:
            cursor.executemany("insert into py_cursor values (%s, %s)", [(n, f"v{n}") for n in range(1000)])
        conn.commit()
        with conn.cursor(name="on the server", scrollable=True) as cursor:
            cursor.itersize = 100
            cursor.execute("select id, v from py_cursor where id >= %s order by id", (10,))
            assert [c.name for c in cursor.description] == ["id", "v"]
            assert cursor.fetchone() == (10, "v10")
            assert cursor.fetchmany(2) == [(11, "v11"), (12, "v12")]
            cursor.scroll(-3)
            assert cursor.fetchone() == (10, "v10")
            cursor.scroll(989, mode="absolute")
            assert cursor.fetchall() == [(999, "v999")]
        with conn.cursor(name="all") as cursor:
            cursor.execute("select id from py_cursor order by id")
            assert sum(row[0] for row in cursor) == 999 * 500
        with conn.cursor(name="held", withhold=True) as cursor:
            cursor.execute("select id from py_cursor order by id")
            conn.commit()
            assert cursor.fetchmany(2) == [(0,), (1,)]
        conn.rollback()
        conn.execute("prepare by_id(int) as select v from py_cursor where id = $1")
        assert conn.execute("execute by_id(7)").fetchone() == ("v7",)
        conn.execute("deallocate by_id")
        expect_error(errors.InvalidSqlStatementName, lambda: conn.execute("execute by_id(7)"))
        conn.rollback()
        conn.execute("drop table py_cursor")
        conn.commit()


for part in (
    types_in_both_formats,
    enums_in_both_formats,
    copies,
    cursors,
    transactions,
    prepared_statements,
    pipelines,
    notices_and_settings,
    cancel,
    many_sessions,
):
    part()
    print(f"ok {part.__name__}")
