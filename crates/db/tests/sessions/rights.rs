//! Rights: what is allowed counts from the next statement on, for every way in which a statement runs again, and survives a restart.

use freshet_db::{Database, Datum, Options, Session, SqlError, Value};
use freshet_engine::io::mem::MemIo;
use std::sync::Arc;

fn run(session: &mut Session, sql: &str) -> Result<u64, SqlError> {
    session.run(sql)
}

fn ok(session: &mut Session, sql: &str) {
    if let Err(error) = run(session, sql) {
        panic!("{sql}: {error:?}");
    }
}

fn refused(session: &mut Session, sql: &str, message: &str) {
    let error = run(session, sql).expect_err(sql);
    assert_eq!((error.sqlstate, error.message.as_str()), ("42501", message), "{sql}");
}

fn cell(session: &mut Session, sql: &str) -> String {
    let statement = session.prepare(sql).expect(sql);
    let rows = session.query(&statement, &[]).expect(sql);
    match rows.get(0, 0) {
        Value::Null => "NULL".to_owned(),
        _ => rows.display(0, 0).expect("not null"),
    }
}

struct Database2 {
    db: Database,
    _directory: tempfile::TempDir,
}

fn database() -> Database2 {
    let directory = tempfile::tempdir().expect("a directory");
    let db = Database::open(Options::small(directory.path())).expect("the database opens");
    Database2 { db, _directory: directory }
}

/// What is prepared is asked again: lookups and changes of one row by key, which skip the plan, and others.
#[test]
fn a_prepared_statement_notices_what_it_may_no_longer() {
    let Database2 { db, _directory } = database();
    let mut owner = db.session().expect("a session");
    ok(&mut owner, "create table t (id bigint primary key, v bigint)");
    ok(&mut owner, "create table other (id bigint primary key, v bigint)");
    ok(&mut owner, "insert into t values (1, 10), (2, 20)");
    ok(&mut owner, "create role reader");
    ok(&mut owner, "grant all on t, other to reader");
    let mut session = db.session().expect("a session");
    ok(&mut session, "set role reader");
    let look = session.prepare("select v from t where id = $1").expect("allowed");
    let change = session.prepare("update t set v = v + $2 where id = $1").expect("allowed");
    let delete = session.prepare("delete from t where id = $1").expect("allowed");
    let insert = session.prepare("insert into t values ($1, $2)").expect("allowed");
    let scan = session.prepare("select count(*) from t").expect("allowed");
    for round in 0..5 {
        assert_eq!(session.query(&look, &[Datum::Int(1)]).map(|rows| rows.len()), Ok(1));
        assert_eq!(session.execute(&change, &[Datum::Int(1), Datum::Int(1)]), Ok(1));
        assert_eq!(session.execute(&insert, &[Datum::Int(100 + round), Datum::Int(1)]), Ok(1));
        assert_eq!(session.execute(&delete, &[Datum::Int(100 + round)]), Ok(1));
        assert!(session.query(&scan, &[]).is_ok());
    }
    ok(&mut owner, "revoke update on t from reader");
    // Another change of the same table makes the short way's own memory new.
    for _ in 0..3 {
        assert_eq!(session.execute(&insert, &[Datum::Int(7), Datum::Int(1)]), Ok(1));
        let error = session.execute(&change, &[Datum::Int(1), Datum::Int(1)]).expect_err("no longer");
        assert_eq!((error.sqlstate, error.message.as_str()), ("42501", "permission denied for table t"));
        assert_eq!(session.execute(&delete, &[Datum::Int(7)]), Ok(1));
    }
    ok(&mut owner, "revoke all on t from reader");
    let denied = |result: Result<u64, SqlError>| assert_eq!(result.expect_err("no longer").sqlstate, "42501");
    for _ in 0..3 {
        denied(session.query(&look, &[Datum::Int(1)]).map(|rows| rows.len() as u64));
        denied(session.query(&scan, &[]).map(|rows| rows.len() as u64));
        denied(session.execute(&insert, &[Datum::Int(8), Datum::Int(1)]));
        denied(session.execute(&delete, &[Datum::Int(2)]));
    }
    // By way of a group, and no longer a superuser.
    ok(&mut owner, "create role staff");
    ok(&mut owner, "grant select on t to staff");
    ok(&mut owner, "grant staff to reader");
    assert!(session.query(&look, &[Datum::Int(1)]).is_ok());
    ok(&mut owner, "revoke staff from reader");
    denied(session.query(&look, &[Datum::Int(1)]).map(|rows| rows.len() as u64));
    ok(&mut owner, "alter role reader superuser");
    assert_eq!(session.execute(&change, &[Datum::Int(1), Datum::Int(1)]), Ok(1));
    assert!(session.query(&look, &[Datum::Int(1)]).is_ok());
    ok(&mut owner, "alter role reader nosuperuser");
    denied(session.execute(&change, &[Datum::Int(1), Datum::Int(1)]));
    denied(session.query(&look, &[Datum::Int(1)]).map(|rows| rows.len() as u64));
}

/// The same statement text is planned for each role by itself; a plan of one is never another's.
#[test]
fn roles_do_not_share_plans_of_what_only_one_may() {
    let Database2 { db, _directory } = database();
    let mut session = db.session().expect("a session");
    ok(&mut session, "create table t (id bigint primary key)");
    ok(&mut session, "create role a");
    ok(&mut session, "create role b");
    ok(&mut session, "grant select on t to a");
    let sql = "select id from t where id = 1";
    let prepared = session.prepare(sql).expect("a superuser may");
    for _ in 0..3 {
        ok(&mut session, "set role a");
        assert!(session.query(&prepared, &[]).is_ok());
        ok(&mut session, sql);
        ok(&mut session, "set role b");
        refused(&mut session, sql, "permission denied for table t");
        assert_eq!(session.query(&prepared, &[]).map(|rows| rows.len()).expect_err("not b").sqlstate, "42501");
        ok(&mut session, "reset role");
        assert!(session.query(&prepared, &[]).is_ok());
    }
}

/// Each view's owner is asked for what it reads, however deep.
#[test]
fn a_view_of_a_view_is_asked_of_both_owners() {
    let Database2 { db, _directory } = database();
    let mut session = db.session().expect("a session");
    for sql in [
        "create table t (id bigint primary key)",
        "create view inner_view as select id from t",
        "create view outer_view as select id from inner_view",
        "create role a",
        "create role b",
        "create role reader",
        "alter view inner_view owner to a",
        "alter view outer_view owner to b",
        "grant select on outer_view to reader",
        "set role reader",
    ] {
        ok(&mut session, sql);
    }
    for (missing, grant) in [
        ("permission denied for view inner_view", "grant select on inner_view to b"),
        ("permission denied for table t", "grant select on t to a"),
    ] {
        refused(&mut session, "select id from outer_view", missing);
        ok(&mut session, "reset role");
        ok(&mut session, grant);
        ok(&mut session, "set role reader");
    }
    ok(&mut session, "select id from outer_view");
    refused(&mut session, "select id from inner_view", "permission denied for view inner_view");
}

#[test]
fn errors_say_what_postgresql_says() {
    let Database2 { db, _directory } = database();
    let mut session = db.session().expect("a session");
    for sql in [
        "create table t (id int primary key)",
        "create view w as select id from t",
        "create sequence s",
        "create schema app",
        "create table app.u (id int)",
        "create role nobody",
        "set role nobody",
    ] {
        ok(&mut session, sql);
    }
    for (sql, message) in [
        ("select * from t", "permission denied for table t"),
        ("select * from w", "permission denied for view w"),
        ("select * from s", "permission denied for sequence s"),
        ("select nextval('s')", "permission denied for sequence s"),
        ("select * from app.u", "permission denied for schema app"),
        ("create table x (id int)", "permission denied for schema public"),
        ("create schema x", "permission denied for database freshet"),
        ("drop table t", "must be owner of table t"),
        ("drop view w", "must be owner of view w"),
        ("drop sequence s", "must be owner of sequence s"),
        ("drop schema app", "must be owner of schema app"),
        ("drop index t_pkey", "must be owner of index t_pkey"),
        ("alter table t add column x int", "must be owner of table t"),
        ("truncate t", "permission denied for table t"),
        ("create role x", "permission denied to create role"),
        ("drop role nobody", "permission denied to drop role"),
        ("set recovery_target = '1s'", "permission denied to set parameter \"recovery_target\""),
        ("checkpoint", "must be superuser or have privileges of pg_checkpoint to do CHECKPOINT"),
        (
            "copy t to '/tmp/nix'",
            "must be superuser or have privileges of the pg_write_server_files role to COPY to a file",
        ),
        ("select rolpassword from pg_authid", "permission denied for table pg_authid"),
        ("select passwd from pg_catalog.pg_shadow", "permission denied for view pg_shadow"),
    ] {
        refused(&mut session, sql, message);
    }
}

/// A table of the same name does not make what holds passwords readable.
#[test]
fn passwords_do_not_hide_behind_a_table_of_ones_own() {
    let Database2 { db, _directory } = database();
    let mut session = db.session().expect("a session");
    for sql in [
        "create role eve login",
        "create role alice login password 'secret'",
        "create schema evil authorization eve",
        "create table evil.pg_authid (rolpassword text)",
        "alter table evil.pg_authid owner to eve",
        "create view evil.v as select rolname from pg_roles",
        "set role eve",
    ] {
        ok(&mut session, sql);
    }
    for path in ["public", "evil", "evil, pg_catalog", "pg_catalog, evil"] {
        ok(&mut session, &format!("set search_path = {path}"));
        for sql in ["select rolpassword from pg_authid", "with x as (select * from pg_authid) select * from x"] {
            if let Ok(statement) = session.prepare(sql) {
                let rows = session.query(&statement, &[]).expect("her own table");
                assert_eq!(rows.len(), 0, "{path}: {sql}");
            }
        }
    }
}

#[test]
fn roles_and_rights_survive_a_restart() {
    let io = MemIo::seeded(1);
    let open = |io: &MemIo| Database::open_on(Arc::new(io.clone()), Options::small("/db")).expect("it opens");
    {
        let db = open(&io);
        let mut session = db.session().expect("a session");
        for sql in [
            "create role a login password 'secret' connection limit 2 valid until '2031-05-06 00:00:00+00'",
            "create role b in role a",
            "create role gone",
            "drop role gone",
            "alter role b set search_path = app, public",
            "create table t (id int primary key)",
            "alter table t owner to a",
            "grant select on t to b with grant option",
            "grant usage on schema public to b",
            "create table dropped (id int)",
            "grant all on dropped to b",
            "drop table dropped",
        ] {
            ok(&mut session, sql);
        }
        db.checkpoint().expect("a checkpoint");
        ok(&mut session, "grant insert on t to public");
    }
    let db = open(&io);
    let mut session = db.session().expect("a session");
    let told = "select string_agg(rolname, ',' order by rolname) from pg_roles";
    if cfg!(feature = "query") {
        assert_eq!(cell(&mut session, told), "a,b,freshet,pg_database_owner");
    }
    assert_eq!(
        cell(&mut session, "select relacl::text from pg_class where relname = 't'"),
        "{a=arwdDxt/a,b=r*/a,=a/a}"
    );
    assert_eq!(cell(&mut session, "select rolconnlimit from pg_roles where rolname = 'a'"), "2");
    assert!(
        cell(&mut session, "select rolpassword from pg_authid where rolname = 'a'").starts_with("SCRAM-SHA-256$4096:")
    );
    assert_eq!(
        cell(&mut session, "select rolconfig::text from pg_roles where rolname = 'b'"),
        "{\"search_path=app, public\"}"
    );
    assert_eq!(cell(&mut session, "select pg_has_role('b', 'a', 'member')::text"), "true");
    ok(&mut session, "set role a");
    ok(&mut session, "drop table t");
}

/// The schema of another session's temporary tables stands first on that session's path: whoever could make something in it would take what the
/// other one writes, and forge what it reads.
#[test]
fn another_sessions_temporary_schema_is_closed() {
    let Database2 { db, _directory } = database();
    let mut admin = db.session().expect("a session");
    for sql in [
        "create table orders (id int primary key, card text)",
        "create role app",
        "create role u",
        "create role v in role app",
        "create schema us authorization u",
        "grant all on orders to app",
        "create temp table of_admin (a int)",
    ] {
        ok(&mut admin, sql);
    }
    let mut app = db.session().expect("a session");
    ok(&mut app, "set role app");
    ok(&mut app, "create temp table x (a int)");
    ok(&mut app, "grant all on x to public");
    let own = cell(&mut app, "select pg_my_temp_schema()::regnamespace::text");
    let mut u = db.session().expect("a session");
    let denied = format!("permission denied for schema {own}");
    for role in ["u", "v", "app"] {
        ok(&mut u, &format!("set role {role}"));
        for sql in [
            "create table pg_temp_N.orders (id int primary key, card text)",
            "create temp table pg_temp_N.orders (id int)",
            "create view pg_temp_N.orders as select 1 as id",
            "create sequence pg_temp_N.orders",
            "create table pg_temp_N.filled as select 1 as a",
            "select * from pg_temp_N.x",
            "insert into pg_temp_N.x values (1)",
            "drop table pg_temp_N.x",
            "alter table pg_temp_N.x rename to orders",
            "select 'pg_temp_N.x'::regclass",
        ] {
            refused(&mut u, &sql.replace("pg_temp_N", &own), &denied);
        }
    }
    ok(&mut u, "set role u");
    for (create, alter) in [
        ("create table us.orders (id int, card text)", "alter table us.orders"),
        ("create view us.seen as select 1 as id", "alter view us.seen"),
        ("create sequence us.counted", "alter sequence us.counted"),
    ] {
        ok(&mut u, create);
        refused(&mut u, &format!("{alter} set schema {own}"), &denied);
    }
    ok(&mut u, "create table us.numbered (a int not null)");
    let named = "alter table us.numbered alter column a add generated always as identity (sequence name";
    refused(&mut u, &format!("{named} {own}.orders)"), &denied);
    let error = run(&mut u, &format!("{named} pg_temp.orders)")).expect_err("not in the table's schema");
    assert_eq!(error.sqlstate, "55000");
    ok(&mut u, &format!("set search_path = {own}, us"));
    ok(&mut u, "create table on_path (a int)");
    assert_eq!(cell(&mut u, "select 'us.on_path'::regclass::text"), "on_path");
    // Of what is temporary nothing becomes permanent, nor the other way.
    ok(&mut u, "reset search_path");
    ok(&mut u, "create temp table mine (a int)");
    for sql in ["alter table mine set schema us", "alter table us.orders set schema pg_temp"] {
        let error = run(&mut u, sql).expect_err(sql);
        assert_eq!(error.sqlstate, "0A000", "{sql}: {error:?}");
        assert_eq!(error.message, "cannot move objects into or out of temporary schemas");
    }
    // Who may do everything may not do this either.
    for sql in [format!("create table {own}.orders (id int)"), format!("create temp table {own}.orders (id int)")] {
        assert_eq!(run(&mut admin, &sql).expect_err("another session's").sqlstate, "42P16", "{sql}");
    }
    let error = run(&mut admin, &format!("alter table orders set schema {own}")).expect_err("another session's");
    assert_eq!(error.sqlstate, "42P16");
    // Its own, by either name.
    ok(&mut app, &format!("create table {own}.more (a int)"));
    ok(&mut app, "insert into pg_temp.more values (1)");
    ok(&mut app, "insert into orders values (2, '5555')");
    ok(&mut admin, "select 1 from orders where id = 2");
    assert_eq!(cell(&mut admin, "select count(*)::text from orders"), "1");
}

/// What only a superuser may change of a session is changed by no ALTER ROLE of the role itself.
#[test]
fn a_role_stays_in_the_log_of_slow_statements() {
    let Database2 { db, _directory } = database();
    let mut session = db.session().expect("a session");
    ok(&mut session, "create role u createrole");
    ok(&mut session, "alter role u set log_min_duration_statement = 7");
    ok(&mut session, "alter role u set lock_timeout = 8");
    ok(&mut session, "set role u");
    for sql in [
        "alter role u set log_min_duration_statement = -1",
        "alter role u set LOG_MIN_DURATION_STATEMENT = -1",
        "alter role u reset log_min_duration_statement",
    ] {
        refused(&mut session, sql, "permission denied to set parameter \"log_min_duration_statement\"");
    }
    refused(
        &mut session,
        "alter role u set pg_stat_statements.track = none",
        "permission denied to set parameter \"pg_stat_statements.track\"",
    );
    ok(&mut session, "alter role u reset all");
    ok(&mut session, "reset role");
    assert_eq!(
        cell(&mut session, "select rolconfig::text from pg_roles where rolname = 'u'"),
        "{log_min_duration_statement=7}"
    );
}

#[test]
fn what_is_the_servers_is_shown_to_superusers() {
    let Database2 { db, _directory } = database();
    let mut session = db.session().expect("a session");
    ok(&mut session, "create role u");
    assert!(!cell(&mut session, "select device_promises from freshet_log").contains("insufficient"));
    ok(&mut session, "set role u");
    assert_eq!(cell(&mut session, "select device_promises from freshet_log"), "<insufficient privilege>");
    let database = "comment on database freshet is 'mine'";
    let error = run(&mut session, database).expect_err("it is another's");
    assert_eq!((error.sqlstate, error.message.starts_with("must be owner of database")), ("42501", true), "{error:?}");
}

#[test]
fn the_database_and_roles_keep_their_comments() {
    let Database2 { db, _directory } = database();
    let mut session = db.session().expect("a session");
    for sql in ["create role u", "comment on role u is 'reads'", "comment on database freshet is 'all of it'"] {
        ok(&mut session, sql);
    }
    let of_database =
        "select shobj_description(oid, 'pg_database') from pg_database where datname = current_database()";
    let of_role = "select shobj_description(oid, 'pg_authid') from pg_roles where rolname = 'u'";
    assert_eq!(cell(&mut session, of_database), "all of it");
    assert_eq!(cell(&mut session, of_role), "reads");
    assert_eq!(cell(&mut session, "select count(*) from pg_shdescription"), "2");
    assert_eq!(
        cell(&mut session, "select count(*) from pg_description where description in ('reads', 'all of it')"),
        "0"
    );
    ok(&mut session, "comment on database freshet is null");
    assert_eq!(
        cell(&mut session, "select coalesce(max(description), 'none') from pg_shdescription where classoid = 1262"),
        "none"
    );
    ok(&mut session, "set role u");
    let error = run(&mut session, "comment on role u is 'mine'").expect_err("it may make no roles");
    assert_eq!((error.sqlstate, error.message.as_str()), ("42501", "must have CREATEROLE privilege"));
    ok(&mut session, "reset role");
    assert_eq!(run(&mut session, "comment on role nobody is 'x'").expect_err("there is none").sqlstate, "42704");
    ok(&mut session, "drop role u");
    assert_eq!(cell(&mut session, "select count(*) from pg_shdescription"), "0");
}
