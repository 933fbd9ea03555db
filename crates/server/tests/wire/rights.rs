//! Whose is a session? The role's that logged in, whatever it or another one is called since.

use crate::Fixture;
use crate::client::{Client, Reply};

fn come(fixture: &Fixture, user: &str) -> Client {
    let mut client = Client::open(fixture.server.local_addr());
    client.start(&[("user", user), ("database", "freshet")]);
    client.until_ready();
    client
}

#[test]
fn who_may_end_a_session_is_told_by_its_role_and_not_by_its_name() {
    let fixture = Fixture::new(|_| {});
    let mut admin = come(&fixture, "admin");
    admin.query("create role worker login; create role foreman login; grant worker to foreman");
    admin.query("create role boss login superuser; create role second login");
    let (mut worker, mut boss) = (come(&fixture, "worker"), come(&fixture, "boss"));
    let pid = |client: &mut Client| client.value("select pg_backend_pid()");
    let (of_worker, of_boss) = (pid(&mut worker), pid(&mut boss));
    // A superuser's old name is another role's now, and the worker has a new one.
    admin.query("alter role boss rename to owner; alter role second rename to boss; grant boss to foreman");
    admin.query("alter role worker rename to workman");
    let mut foreman = come(&fixture, "foreman");
    let seen = |client: &mut Client, of: &str, role: &str| {
        let id = client.value(&format!("select oid from pg_roles where rolname = '{role}'"));
        client.rows(&format!("select usename, usesysid = {id}, state from pg_stat_activity where pid = {of}"))
    };
    let cell = |text: &str| Some(text.to_owned());
    assert_eq!(seen(&mut foreman, &of_worker, "workman"), [[cell("workman"), cell("t"), cell("idle")]]);
    assert_eq!(
        seen(&mut foreman, &of_boss, "owner"),
        [[cell("owner"), cell("t"), None]],
        "what a superuser does is his"
    );
    for what in ["cancel", "terminate"] {
        let refused = foreman.query(&format!("select pg_{what}_backend({of_boss})"));
        let is_refusal = |reply: &Reply| matches!(reply, Reply::Error(_, state, message) if state == "42501" && message.starts_with("must be a superuser to"));
        assert!(refused.iter().any(is_refusal), "{refused:?}");
    }
    assert_eq!(boss.value("select 1"), "1", "it was left alone");
    assert_eq!(foreman.value(&format!("select pg_terminate_backend({of_worker})")), "t");
    assert!(matches!(worker.read(), Reply::Error(_, state, _) if state == "57P01"));
}
