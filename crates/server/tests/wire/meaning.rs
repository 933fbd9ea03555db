//! What a kept statement, a COPY under way, a setting mean after names, tables or transactions have changed.

use crate::client::*;
use crate::{Fixture, connect};
use std::time::{Duration, Instant};

fn prepare(client: &mut Client, statements: &[(&str, &str)]) {
    let parsed: Vec<Vec<u8>> = statements.iter().map(|(name, sql)| parse(name, sql, &[])).collect();
    client.send(&[parsed.concat(), sync()].concat());
    assert_eq!(client.until_ready().len(), statements.len() + 1);
}

/// The command tag, or the SQLSTATE.
fn run(client: &mut Client, statement: &str, parameters: &[&str]) -> String {
    client.send(&[bind_text("", statement, parameters), execute("", 0), sync()].concat());
    let replies = client.until_ready();
    let tag = replies.iter().find_map(|reply| match reply {
        Reply::Complete(tag) => Some(tag.clone()),
        _ => None,
    });
    tag.unwrap_or_else(|| sqlstate(&replies))
}

const TENANT: [(&str, &str); 3] = [
    ("u", "update mean_t set v = v + 1 where id = $1"),
    ("i", "insert into mean_t values ($1, 7)"),
    ("d", "delete from mean_t where id = $1"),
];

/// One tenant's writes go to its own table, whichever the statements met before.
#[test]
fn kept_writes_follow_the_search_path() {
    let mut client = connect();
    for schema in ["mean_a", "mean_b"] {
        client.query(&format!("create schema {schema}; create table {schema}.mean_t(id int primary key, v int)"));
        client.query(&format!("insert into {schema}.mean_t values (1, 0), (2, 0)"));
    }
    client.query("set search_path = mean_a");
    prepare(&mut client, &TENANT);
    for _ in 0..3 {
        assert_eq!(run(&mut client, "u", &["1"]), "UPDATE 1");
    }
    client.query("set search_path = mean_b");
    for _ in 0..2 {
        assert_eq!(run(&mut client, "u", &["1"]), "UPDATE 1");
    }
    assert_eq!(run(&mut client, "i", &["12"]), "INSERT 0 1");
    assert_eq!(run(&mut client, "i", &["13"]), "INSERT 0 1");
    assert_eq!(run(&mut client, "d", &["2"]), "DELETE 1");
    assert_eq!(client.value("select string_agg(id || ':' || v, ' ' order by id) from mean_a.mean_t"), "1:3 2:0");
    assert_eq!(client.value("select string_agg(id || ':' || v, ' ' order by id) from mean_b.mean_t"), "1:2 12:7 13:7");
    // A temporary table stands before both.
    client.query("create temp table mean_t(id int primary key, v int)");
    client.query("insert into mean_t values (1, 100); update mean_b.mean_t set v = v where id = 1");
    for _ in 0..2 {
        assert_eq!(run(&mut client, "u", &["1"]), "UPDATE 1");
    }
    assert_eq!(client.value("select v from mean_t where id = 1"), "102");
    assert_eq!(client.value("select v from mean_b.mean_t where id = 1"), "2");
}

/// A constraint that others make is kept by statements that were prepared before.
#[test]
fn kept_writes_keep_constraints_that_come_later() {
    let (mut client, mut other) = (connect(), connect());
    client.query("create table mean_parent(id int primary key, v int)");
    client.query("insert into mean_parent values (1, 0), (2, 0), (3, 0)");
    prepare(
        &mut client,
        &[("d", "delete from mean_parent where id = $1"), ("s", "update mean_parent set v = $2 where id = $1")],
    );
    assert_eq!(run(&mut client, "d", &["1"]), "DELETE 1");
    assert_eq!(run(&mut client, "s", &["2", "5"]), "UPDATE 1");
    other.query("create schema mean_c; create table mean_c.child(p int references mean_parent)");
    other.query("insert into mean_c.child values (3); alter table mean_parent add check (v < 100)");
    client.query("update mean_parent set v = 1 where v = 0");
    assert_eq!(run(&mut client, "d", &["3"]), "23503");
    assert_eq!(run(&mut client, "s", &["2", "500"]), "23514");
    assert_eq!(client.value("select count(*) from mean_parent"), "2");
}

/// What is defined while a COPY's first rows come holds for all of them.
#[test]
fn a_large_copy_keeps_what_is_defined_meanwhile() {
    let (mut client, mut other) = (connect(), connect());
    let rows = "1000\n".repeat(240_000);
    let mut copy = |definition: &str| {
        client.query("drop table if exists mean_copied; create table mean_copied(a int)");
        client.send(&query("copy mean_copied from stdin"));
        assert_eq!(client.read(), Reply::CopyIn(false, 1));
        other.query(definition);
        rows.as_bytes().chunks(500_000).for_each(|piece| client.send(&copy_data(piece)));
        client.send(&copy_done());
        let replies = client.until_ready();
        let failed = replies.iter().any(|reply| matches!(reply, Reply::Error(..)));
        let state = if failed { sqlstate(&replies) } else { String::new() };
        (state, client.value("select count(*) from mean_copied"))
    };
    let refused = |state: &str| (state.to_owned(), "0".to_owned());
    assert_eq!(copy("alter table mean_copied add check (a < 0)"), refused("23514"));
    assert_eq!(copy("create unique index on mean_copied ((a % 10))"), refused("23505"));
    assert_eq!(copy("alter table mean_copied add b int not null default 7"), (String::new(), "240000".to_owned()));
    assert_eq!(client.value("select count(*) from mean_copied where b = 7"), "240000");
}

/// A look-up within a transaction that keeps its snapshot does not take a table that was emptied since for one without rows.
#[test]
fn a_snapshot_tells_that_a_table_was_written_anew() {
    let (mut client, mut other) = (connect(), connect());
    for definition in ["truncate mean_anew", "alter table mean_anew alter v type bigint"] {
        client.query("drop table if exists mean_anew; create table mean_anew(id int primary key, v int)");
        client.query("insert into mean_anew values (1, 5)");
        client.query("begin isolation level repeatable read");
        assert_eq!(client.value("select v from mean_anew where id = 1"), "5");
        other.query(definition);
        assert_eq!(client.sqlstate("select v from mean_anew where id = 1"), "40001", "{definition}");
        client.query("rollback");
    }
}

/// SET LOCAL ends with its transaction, and SET does not, in whatever order they come.
#[test]
fn local_settings_end_and_others_stay() {
    let mut client = connect();
    let shown = |client: &mut Client, name: &str| {
        client.value(&format!("select coalesce(current_setting('{name}', true), '')"))
    };
    client.query("begin; set local mean.t = '5'; set application_name = 'zz'; rollback");
    assert_eq!(shown(&mut client, "mean.t"), "");
    client.query("begin");
    client.query("select set_config('mean.t', '7', true)");
    client.query("set application_name = 'zz'; select 1/0");
    client.query("rollback");
    assert_eq!(shown(&mut client, "mean.t"), "");
    client.query("begin; set local lock_timeout = '5s'; set mean.u = '3'; set work_mem = '5MB'; set local work_mem = '6MB'; commit");
    assert_eq!((shown(&mut client, "mean.u"), shown(&mut client, "work_mem")), ("3".to_owned(), "5MB".to_owned()));
    assert_eq!(shown(&mut client, "lock_timeout"), "0");
    client.query("begin; set local work_mem = '6MB'; set work_mem = '7MB'; commit");
    assert_eq!(shown(&mut client, "work_mem"), "7MB");
    client.query("begin; set local work_mem = '6MB'; savepoint s; set work_mem = '8MB'; rollback to s; commit");
    assert_eq!(shown(&mut client, "work_mem"), "7MB");
    client.query("begin; set work_mem = '9MB'; reset all; rollback");
    assert_eq!(shown(&mut client, "work_mem"), "7MB");
}

#[test]
fn local_roles_end_and_others_stay() {
    let fixture = Fixture::new(|_| {});
    let mut client = Client::connect(fixture.server.local_addr());
    client.query("create role mean_low");
    client.query("begin; set local lock_timeout = '5s'; set role mean_low; commit");
    assert_eq!(client.value("select current_user"), "mean_low");
    client.query("reset role");
    client.query("begin; set local role mean_low; set application_name = 'zy'; rollback");
    assert_ne!(client.value("select current_user"), "mean_low");
}

/// What a script has done is not committed by its DISCARD ALL.
#[test]
fn discard_stands_alone() {
    let mut client = connect();
    client.query("create table mean_discard(a int)");
    client.query("create temp table mean_temp(a int)");
    assert_eq!(client.sqlstate("insert into mean_discard values (1); discard all; select 1/0"), "25001");
    assert_eq!(client.value("select count(*) from mean_discard"), "0");
    assert_eq!(client.query("discard all")[0], Reply::Complete("DISCARD ALL".into()));
    assert_eq!(client.sqlstate("select * from mean_temp"), "42P01");
    let later = "select count(*) from mean_discard; begin isolation level serializable; commit";
    assert_eq!(client.sqlstate(later), "25001");
}

/// A portal of EXECUTE has the columns that its client was told, or none; and nothing executes itself.
#[test]
fn execute_gives_what_was_described() {
    let mut client = connect();
    client.query("prepare mean_p as select 1, 2");
    client.query("begin");
    client.send(&[parse("a", "execute mean_p", &[]), bind_formats("x", "a", &[], &[], &[1, 0]), sync()].concat());
    client.until_ready();
    client.query("deallocate mean_p");
    client.query("prepare mean_p as select 1, 2, 3");
    client.send(&[execute("x", 0), sync()].concat());
    assert_eq!(sqlstate(&client.until_ready()), "0A000");
    client.query("rollback");

    prepare(&mut client, &[("p", "select 1"), ("q", "execute p")]);
    client.send(&[close_statement("p"), parse("p", "execute q", &[]), sync()].concat());
    assert_eq!(sqlstate(&client.until_ready()), "0A000");
    assert_eq!(client.value("select 1"), "1");
}

/// Who leaves temporary tables behind an open definition keeps nobody waiting, and they go once they can.
#[test]
fn temporary_tables_that_cannot_go_at_once_go_later() {
    let mut holder = connect();
    let mut leaving: Vec<Client> = (0..4).map(|_| connect()).collect();
    for client in &mut leaving {
        client.query("create temp table mean_left(a int)");
    }
    holder.query("begin; create table mean_held(a int)");
    let started = Instant::now();
    leaving.clear();
    let mut asking = connect();
    for _ in 0..20 {
        assert_eq!(asking.value("select 1"), "1");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(started.elapsed() < Duration::from_secs(3), "a client waited for tables of others");
    holder.query("rollback");
    let left = "select count(*) from pg_class where relname = 'mean_left'";
    let until = Instant::now() + Duration::from_secs(20);
    while asking.value(left) != "0" {
        assert!(Instant::now() < until, "temporary tables of sessions that are gone");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Deferred constraints that take long to settle are settled, and nobody is cut off by it.
#[test]
fn a_commit_looks_through_a_large_child() {
    let mut client = connect();
    client.query("create table mean_pa(id int primary key)");
    client.query("create table mean_ch(id int primary key, pid int references mean_pa deferrable initially deferred)");
    client.query("insert into mean_pa select generate_series(1, 10)");
    client.query("insert into mean_ch select n, case n when 1 then 2 else 1 end from generate_series(1, 200000) n");
    client.query("begin; delete from mean_pa where id = 2; delete from mean_ch where id = 1");
    assert_eq!(client.query("commit"), [Reply::Complete("COMMIT".into()), Reply::Ready('I')]);
    client.query("begin; delete from mean_pa where id = 1");
    assert_eq!(client.sqlstate("commit"), "23503");
    assert_eq!(client.value("select count(*) from mean_pa"), "9");
}

/// The time to plan does not double with each level.
#[test]
fn subqueries_nest() {
    let mut client = connect();
    client.query("create table mean_nest(a int primary key, b int); insert into mean_nest values (1, 2)");
    for innermost in ["select 1 a, 2 b", "select b - 1 a, b from mean_nest", "select distinct a, b from mean_nest"] {
        let nested = (0..40).fold(innermost.to_owned(), |inner, level| format!("select * from ({inner}) x{level}"));
        assert_eq!(client.rows(&nested), [[Some("1".to_owned()), Some("2".to_owned())]], "{innermost}");
    }
}

/// Who took a lesser role keeps it whatever becomes of that role's name.
#[test]
fn a_role_taken_stays_taken() {
    let fixture = Fixture::new(|_| {});
    let [mut client, mut other] = [(); 2].map(|()| Client::connect(fixture.server.local_addr()));
    client.query("create table mean_secret(a int); create role mean_lesser");
    client.query("set role mean_lesser");
    other.query("alter role mean_lesser rename to mean_least");
    client.query("begin; set application_name = 'x'; rollback");
    assert_eq!(client.value("select current_user"), "mean_least");
    assert_eq!(client.sqlstate("select * from mean_secret"), "42501");
    other.query("drop role mean_least");
    client.query("begin; set application_name = 'x'; rollback");
    assert_eq!(client.sqlstate("select * from mean_secret"), "42501");
    client.query("reset role");
    assert_eq!(client.value("select count(*) from mean_secret"), "0");
}

/// What portals keep is counted: who binds without an end is refused, and nobody else.
#[test]
fn portals_are_paid_for() {
    let fixture = Fixture::new(|_| {});
    let mut client = Client::connect(fixture.server.local_addr());
    client.query("begin");
    client.send(&[parse("s", "select $1::text", &[]), sync()].concat());
    client.until_ready();
    let large = vec![b'x'; 512 << 10];
    let mut refused = None;
    for portal in 0..4_000 {
        client.send(&[bind(&format!("p{portal}"), "s", &[Some(&large)]), sync()].concat());
        let replies = client.until_ready();
        if replies[0] != Reply::BindComplete {
            refused = Some(sqlstate(&replies));
            break;
        }
    }
    assert_eq!(refused.as_deref(), Some("53200"));
    client.query("rollback");
    assert_eq!(Client::connect(fixture.server.local_addr()).value("select 1"), "1");
}
