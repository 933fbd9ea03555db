//! LISTEN and NOTIFY: who is told what, when, and in which order.

use crate::client::*;
use crate::connect;
use std::time::Duration;

const SOON: Duration = Duration::from_millis(150);

/// What the client is told by itself, without having asked.
fn told(client: &mut Client) -> (String, String) {
    match client.read() {
        Reply::Notification(_, channel, payload) => (channel, payload),
        other => panic!("no notification: {other:?}"),
    }
}

fn heard(channel: &str, payload: &str) -> (String, String) {
    (channel.to_owned(), payload.to_owned())
}

fn notifications(replies: &[Reply]) -> Vec<(String, String)> {
    let notification = |reply: &Reply| match reply {
        Reply::Notification(_, channel, payload) => Some((channel.clone(), payload.clone())),
        _ => None,
    };
    replies.iter().filter_map(notification).collect()
}

#[test]
fn an_idle_client_is_told_at_once() {
    let (mut listener, mut speaker) = (connect(), connect());
    assert_eq!(listener.query("listen idle_one")[0], Reply::Complete("LISTEN".to_owned()));
    let pid = speaker.value("select pg_backend_pid()");
    assert_eq!(speaker.query("notify idle_one, 'a'")[0], Reply::Complete("NOTIFY".to_owned()));
    let reply = listener.read();
    assert_eq!(reply, Reply::Notification(pid.parse().expect("a number"), "idle_one".to_owned(), "a".to_owned()));
    speaker.query("notify idle_one");
    speaker.query("select pg_notify('idle_one', 'b' || 2)");
    speaker.query("notify other, 'nobody listens'");
    assert_eq!([told(&mut listener), told(&mut listener)], [heard("idle_one", ""), heard("idle_one", "b2")]);
    assert!(!listener.hears_within(SOON));
    assert_eq!(listener.value("select pg_listening_channels()"), "idle_one");
    assert!(speaker.rows("select * from pg_listening_channels()").is_empty());
    listener.query("unlisten idle_one");
    speaker.query("notify idle_one, 'too late'");
    assert!(!listener.hears_within(SOON));
}

#[test]
fn nothing_is_told_before_the_commit_and_nothing_of_what_is_undone() {
    let (mut listener, mut speaker) = (connect(), connect());
    listener.query("listen undone");
    speaker.query("begin");
    speaker.query("notify undone, 'kept'");
    speaker.query("savepoint s");
    speaker.query("notify undone, 'undone'");
    speaker.query("rollback to s");
    speaker.query("notify undone, 'kept'");
    speaker.query("notify undone, 'kept too'");
    assert!(!listener.hears_within(SOON));
    speaker.query("commit");
    assert_eq!([told(&mut listener), told(&mut listener)], [heard("undone", "kept"), heard("undone", "kept too")]);
    speaker.query("begin; notify undone, 'x'; rollback");
    speaker.query("begin; notify undone, 'y'; select 1 / 0");
    speaker.query("commit");
    speaker.query("notify undone, 'z'; select 1 / 0");
    assert_eq!(speaker.sqlstate("select pg_notify('undone', 'w'), 1 / (random() * 0)::int"), "22012");
    assert!(!listener.hears_within(SOON));
}

/// Neither what is said nor what is asked for holds before the commit; a rollback takes LISTEN back.
#[test]
fn who_listens_is_as_transactional_as_what_is_said() {
    let mut client = connect();
    client.query("begin; listen own; rollback");
    assert!(notifications(&client.query("notify own, 'nobody'")).is_empty());
    let replies = client.query("begin; listen own; notify own, 'to myself'; commit");
    assert_eq!(notifications(&replies), [heard("own", "to myself")]);
    // It comes before the message that says that the next statement may come.
    assert!(matches!(replies.as_slice(), [.., Reply::Notification(..), Reply::Ready('I')]), "{replies:?}");
    client.query("begin; unlisten *; rollback");
    assert_eq!(notifications(&client.query("notify own, 'still'")), [heard("own", "still")]);
    client.query("discard all");
    assert!(notifications(&client.query("notify own, 'no more'")).is_empty());
}

#[test]
fn a_client_with_a_transaction_is_told_behind_it() {
    let (mut listener, mut speaker) = (connect(), connect());
    listener.query("listen busy");
    listener.query("begin");
    speaker.query("notify busy, '1'");
    assert!(notifications(&listener.query("select 1")).is_empty());
    assert!(!listener.hears_within(SOON));
    speaker.query("notify busy, '2'");
    let replies = listener.query("commit");
    assert_eq!(notifications(&replies), [heard("busy", "1"), heard("busy", "2")]);
    // Nor is one in the middle of a pipeline.
    listener.send(&parse("", "select 1", &[]));
    assert_eq!(listener.read(), Reply::ParseComplete);
    speaker.query("notify busy, '3'");
    assert!(!listener.hears_within(SOON));
    listener.send(&sync());
    assert_eq!(notifications(&listener.until_ready()), [heard("busy", "3")]);
}

#[test]
fn what_a_transaction_wrote_is_there_for_who_hears_of_it() {
    let (mut listener, mut speaker) = (connect(), connect());
    speaker.query("create table told_of (id int primary key)");
    listener.query("listen told_of");
    for id in 0..50 {
        speaker.query(&format!("begin; insert into told_of values ({id}); notify told_of, '{id}'; commit"));
        assert_eq!(told(&mut listener), heard("told_of", &id.to_string()));
        assert_eq!(listener.value(&format!("select count(*) from told_of where id = {id}")), "1");
    }
    speaker.query("select pg_notify('told_of', 'by a row') from told_of where id = 3");
    assert_eq!(told(&mut listener), heard("told_of", "by a row"));
    speaker.query("drop table told_of");
}

#[test]
fn limits_and_mistakes_are_refused() {
    let mut client = connect();
    assert_eq!(client.sqlstate("select pg_notify('', 'x')"), "22023");
    assert_eq!(client.sqlstate("select pg_notify(null, 'x')"), "22023");
    assert_eq!(client.sqlstate(&format!("select pg_notify('{}', 'x')", "c".repeat(64))), "22023");
    assert_eq!(client.sqlstate(&format!("notify c, '{}'", "p".repeat(8_000))), "22023");
    assert_eq!(client.sqlstate("notify c, 1"), "42601");
    assert_eq!(client.sqlstate("listen"), "42601");
    client.query("begin");
    assert_eq!(client.sqlstate(&format!("notify c, '{}'", "p".repeat(8_000))), "22023");
    assert_eq!(client.sqlstate("listen c"), "25P02");
    client.query("rollback");
    client.query(&format!("listen \"{}\"", "c".repeat(63)));
    let replies = client.query(&format!("select pg_notify('{}', '{}')", "c".repeat(63), "p".repeat(7_999)));
    assert_eq!(notifications(&replies).len(), 1);
}

/// Every listener hears the messages of all transactions in the same order.
#[test]
fn all_hear_the_same_order() {
    const EACH: usize = 40;
    let mut listeners = [connect(), connect()];
    listeners.iter_mut().for_each(|listener| drop(listener.query("listen in_order")));
    std::thread::scope(|scope| {
        for speaker in 0..3 {
            scope.spawn(move || {
                let mut client = connect();
                for n in 0..EACH {
                    client.query(&format!("notify in_order, '{speaker}:{n}'"));
                }
            });
        }
    });
    let [first, second] =
        listeners.each_mut().map(|listener| (0..3 * EACH).map(|_| told(listener)).collect::<Vec<_>>());
    assert_eq!(first, second);
    for speaker in 0..3 {
        let own = first.iter().filter(|(_, payload)| payload.starts_with(&format!("{speaker}:")));
        let expected = (0..EACH).map(|n| heard("in_order", &format!("{speaker}:{n}")));
        assert!(own.cloned().eq(expected));
    }
}

/// What a client still sends of a COPY that has failed is no request whose replies it waits for.
#[test]
fn a_failed_copy_leaves_nobody_deaf() {
    let (mut listener, mut speaker) = (connect(), connect());
    listener.query("create table copied_by_a_listener (id int); listen deaf");
    listener.send(&query("copy copied_by_a_listener from stdin"));
    assert!(matches!(listener.read(), Reply::CopyIn(..)));
    listener.send(&copy_data(b"no number\n"));
    listener.send(&copy_data(b"1\n"));
    listener.send(&copy_done());
    assert_eq!(sqlstate(&listener.until_ready()), "22P02");
    speaker.query("notify deaf, 'heard'");
    assert_eq!(told(&mut listener), heard("deaf", "heard"));
    listener.query("drop table copied_by_a_listener");
}

/// A listener that goes leaves nothing, and one that comes hears only what is said from there on.
#[test]
fn who_is_gone_or_comes_late_hears_nothing() {
    let mut speaker = connect();
    let mut gone = connect();
    gone.query("listen coming");
    drop(gone);
    speaker.query("notify coming, 'early'");
    let mut late = connect();
    late.query("listen coming");
    speaker.query("notify coming, 'late'");
    assert_eq!(told(&mut late), heard("coming", "late"));
    assert!(!late.hears_within(SOON));
}
