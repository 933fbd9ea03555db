//! Clients that do nothing, or hardly anything: when they are ended, and what they hold until then.

use crate::client::*;
use crate::{Fixture, connect};
use freshet_db::sql::settings;
use std::time::{Duration, Instant};

fn told_and_closed(client: &mut Client, sqlstate: &str) {
    let told = client.read();
    assert!(matches!(&told, Reply::Error(fatal, state, _) if fatal == "FATAL" && state == sqlstate), "{told:?}");
    assert_eq!(client.read(), Reply::Closed);
}

#[test]
fn a_session_in_which_nothing_happens_is_ended() {
    let mut idle = connect();
    idle.query("set idle_session_timeout = '80ms'");
    assert_eq!(idle.value("show idle_session_timeout"), "80ms");
    told_and_closed(&mut idle, "57P05");

    // It is for sessions without a transaction, and does not run while a statement does.
    let mut open = connect();
    open.query("set idle_session_timeout = '80ms'");
    open.query("begin");
    assert!(!open.hears_within(Duration::from_millis(300)));
    let long = open.query("select count(*) from generate_series(1, 3000000)");
    assert!(matches!(long[1], Reply::Row(_)), "{long:?}");
    open.query("commit");
    told_and_closed(&mut open, "57P05");
}

#[test]
fn the_configuration_gives_the_limit_to_who_sets_none() {
    let fixture = Fixture::new(|_| {});
    let mut before = Client::connect(fixture.server.local_addr());
    let given = [("idle_session_timeout", "150ms"), ("lock_timeout", "3s")];
    let given = given.map(|(name, value)| (name.to_owned(), value.to_owned()));
    fixture.database.activity().set_defaults(settings::defaults(given).expect("they are valid"));
    let mut own = Client::connect(fixture.server.local_addr());
    own.query("set idle_session_timeout = 0");
    assert_eq!(before.value("select 1"), "1");
    let mut after = Client::connect(fixture.server.local_addr());
    assert_eq!(after.value("show lock_timeout"), "3s");
    told_and_closed(&mut before, "57P05");
    told_and_closed(&mut after, "57P05");
    assert_eq!(own.value("show idle_session_timeout"), "0");
    own.query("reset idle_session_timeout");
    told_and_closed(&mut own, "57P05");
}

/// Bytes that never become a message do not count as doing something.
#[test]
fn a_client_that_sends_a_byte_now_and_then_is_idle() {
    let mut slow = connect();
    slow.query("set idle_session_timeout = '300ms'");
    let began = Instant::now();
    for byte in query("select 'as long as this is, it never ends in time'") {
        if slow.hears_within(Duration::from_millis(40)) {
            break;
        }
        slow.send(&[byte]);
    }
    told_and_closed(&mut slow, "57P05");
    assert!(began.elapsed() < Duration::from_millis(1500));
}

/// Without a limit it may take its time, and holds up nobody.
#[test]
fn a_byte_at_a_time_is_served() {
    let mut slow = connect();
    for byte in query("select 7") {
        slow.send(&[byte]);
        assert_eq!(connect().value("select 1"), "1");
    }
    assert!(matches!(&slow.until_ready()[1], Reply::Row(row) if row[0].as_deref() == Some(b"7")));
}

#[test]
fn keepalive_is_set_as_in_postgresql() {
    let mut client = connect();
    assert_eq!(client.value("show tcp_keepalives_idle"), "0");
    client.query("set tcp_keepalives_idle = 90; set tcp_keepalives_interval = '10s'; set tcp_keepalives_count = 4");
    client.query("set tcp_user_timeout = '30s'");
    let shown = ["idle", "interval", "count"].map(|what| client.value(&format!("show tcp_keepalives_{what}")));
    assert_eq!(shown, ["90s", "10s", "4"]);
    assert_eq!(client.value("show tcp_user_timeout"), "30s");
    assert_eq!(client.sqlstate("set tcp_keepalives_idle = 'soon'"), "22023");
    assert_eq!(client.sqlstate("set tcp_keepalives_count = -1"), "22023");
}
