//! COPY over the wire: both protocols, both ways, and every way to break it off.

use crate::client::*;
use crate::{address, connect};

/// More than what is inserted row by row (`LOAD_BYTES_MIN`).
const BULK_ROWS: usize = 60_000;

fn started(client: &mut Client, columns: usize) {
    assert_eq!(client.read(), Reply::CopyIn(false, columns));
}

fn bulk_row(id: usize) -> String {
    format!("{id}\tsome text that makes the row longer {id}\n")
}

/// The rows in messages that end anywhere.
fn send_rows(client: &mut Client, rows: &str) {
    for piece in rows.as_bytes().chunks(50_021) {
        client.send(&copy_data(piece));
    }
}

#[test]
fn rows_come_in_pieces_of_any_size() {
    let mut client = connect();
    client.query("create table copy_pieces(id int primary key, b text)");
    client.send(&query("copy copy_pieces from stdin"));
    started(&mut client, 2);
    for piece in ["1\to", "ne\n2\t", "\\N", "\n", "", "3\tthree"] {
        client.send(&copy_data(piece.as_bytes()));
    }
    client.send(&copy_done());
    assert_eq!(client.until_ready(), [Reply::Complete("COPY 3".into()), Reply::Ready('I')]);
    assert_eq!(client.value("select b from copy_pieces where id = 3"), "three");
    assert_eq!(client.value("select count(b) from copy_pieces"), "2");
}

#[test]
fn rows_go_out() {
    let mut client = connect();
    client.query("create table copy_out(id int primary key, b text)");
    client.query("insert into copy_out values (1, 'one'), (2, null)");
    let data = |text: &str| Reply::CopyData(text.as_bytes().to_vec());
    let end = [Reply::CopyDone, Reply::Complete("COPY 2".into()), Reply::Ready('I')];
    let expected = [vec![Reply::CopyOut(false, 2), data("1\tone\n"), data("2\t\\N\n")], end.to_vec()].concat();
    assert_eq!(client.query("copy copy_out to stdout"), expected);
    assert_eq!(client.query("copy (select id, b from copy_out order by id) to stdout"), expected);
    let binary = client.query("copy copy_out to stdout binary");
    assert_eq!(binary[0], Reply::CopyOut(true, 2));
    assert!(matches!(&binary[1], Reply::CopyData(bytes) if bytes.starts_with(b"PGCOPY\n\xff\r\n\0")));
}

/// As libpq does: the Sync behind Execute comes before the first row, another behind the last.
#[test]
fn the_extended_protocol_copies() {
    let mut client = connect();
    client.query("create table copy_extended(id int primary key)");
    client.send(&[parse("", "copy copy_extended from stdin", &[]), bind("", "", &[])].concat());
    client.send(&[describe_portal(""), execute("", 0), sync()].concat());
    for expected in [Reply::ParseComplete, Reply::BindComplete, Reply::NoData, Reply::CopyIn(false, 1)] {
        assert_eq!(client.read(), expected);
    }
    client.send(&[copy_data(b"1\n2\n"), copy_done(), sync()].concat());
    assert_eq!(client.until_ready(), [Reply::Complete("COPY 2".into()), Reply::Ready('I')]);
    client.send(&[run("copy copy_extended to stdout", &[]), sync()].concat());
    assert_eq!(client.until_ready().len(), 8);
    client.send(&[run("copy copy_extended from stdin", &[]), sync(), copy_data(b"x\n"), copy_done(), sync()].concat());
    assert_eq!(sqlstate(&client.until_ready()), "22P02");
    assert_eq!(client.value("select count(*) from copy_extended"), "2");
}

#[test]
fn a_copy_that_is_broken_off_leaves_nothing() {
    let mut client = connect();
    client.query("create table copy_broken(id int primary key)");
    let mut begin = |more: &[u8]| {
        client.send(&[query("copy copy_broken from stdin"), copy_data(b"1\n2\n")].concat());
        started(&mut client, 1);
        client.send(more);
        client.until_ready()
    };
    assert_eq!(sqlstate(&begin(&copy_fail("no more"))), "57014");
    assert_eq!(sqlstate(&begin(&query("select 1"))), "08P01");
    let error = begin(&[copy_data(b"3\n4\t5\n"), copy_done()].concat());
    assert!(
        matches!(&error[0], Reply::Error(_, state, message)
        if state == "22P04" && message == "extra data after last expected column"),
        "{error:?}"
    );
    assert_eq!(client.value("select count(*) from copy_broken"), "0");
    // What comes behind the error is passed over.
    client.send(&copy_data(b"9\n"));
    assert_eq!(client.value("select count(*) from copy_broken"), "0");
}

#[test]
fn a_copy_is_cancelled_while_it_waits_for_rows() {
    let mut client = connect();
    client.query("create table copy_cancelled(id int primary key)");
    client.send(&query("copy copy_cancelled from stdin"));
    started(&mut client, 1);
    client.send(&copy_data(b"1\n"));
    client.cancel();
    assert_eq!(sqlstate(&client.until_ready()), "57014");
    assert_eq!(client.value("select count(*) from copy_cancelled"), "0");
}

#[test]
fn a_client_that_goes_away_leaves_nothing() {
    let mut client = connect();
    client.query("create table copy_gone(id int primary key)");
    let mut gone = Client::connect(address());
    gone.send(&query("copy copy_gone from stdin"));
    started(&mut gone, 1);
    gone.send(&copy_data(b"1\n2\n"));
    drop(gone);
    // The table is free again, and empty.
    client.query("truncate copy_gone");
    assert_eq!(client.value("select count(*) from copy_gone"), "0");
}

#[test]
fn many_rows_are_loaded_whole_or_not_at_all() {
    let mut client = connect();
    client.query("create table copy_bulk(id int primary key, b text)");
    let rows: String = (0..BULK_ROWS).map(bulk_row).collect();
    let mut copy = |rows: &str| {
        client.send(&query("copy copy_bulk from stdin"));
        started(&mut client, 2);
        send_rows(&mut client, rows);
        client.send(&copy_done());
        (client.until_ready(), client.value("select count(*) from copy_bulk"))
    };
    // A value that cannot be read: the first line of two is named.
    let bad = |at: usize| rows.replacen(&bulk_row(at), "x\ty\n", 1);
    let two = bad(40_000).replacen(&bulk_row(30_000), "z\ty\n", 1);
    let (replies, count) = copy(&two);
    assert!(matches!(&replies[0], Reply::Error(_, _, message) if message.ends_with("\"z\"")), "{replies:?}");
    assert_eq!((sqlstate(&replies).as_str(), count.as_str()), ("22P02", "0"));
    // A key twice.
    let (replies, count) = copy(&(rows.clone() + &bulk_row(7)));
    assert_eq!((sqlstate(&replies).as_str(), count.as_str()), ("23505", "0"));
    let (replies, count) = copy(&rows);
    assert_eq!(replies[0], Reply::Complete(format!("COPY {BULK_ROWS}")));
    assert_eq!(count, BULK_ROWS.to_string());
    // Not empty any more: rows are inserted.
    let (replies, _) = copy(&rows);
    assert_eq!(sqlstate(&replies), "23505");
    assert_eq!(client.value("select count(*) from copy_bulk"), BULK_ROWS.to_string());
}

/// A bulk load takes the lock of all definitions: where somebody has it, the rows are inserted.
#[test]
fn a_large_copy_waits_for_nobody_elses_definition() {
    let (mut client, mut other) = (connect(), connect());
    client.query("create table copy_beside(id int primary key, b text)");
    other.query("create table copy_defined(id int)");
    other.query("begin");
    other.query("alter table copy_defined add column more int");
    client.send(&query("copy copy_beside from stdin"));
    started(&mut client, 2);
    let rows: String = (0..BULK_ROWS).map(bulk_row).collect();
    send_rows(&mut client, &rows);
    client.send(&copy_done());
    assert_eq!(client.until_ready()[0], Reply::Complete(format!("COPY {BULK_ROWS}")));
    other.query("rollback");
    assert_eq!(client.value("select count(*) from copy_beside"), BULK_ROWS.to_string());
}

/// Its rows are seen by the transaction's next statement.
#[test]
fn a_large_copy_within_a_transaction_is_seen_there() {
    let mut client = connect();
    client.query("create table copy_inside(id int primary key, b text)");
    client.query("begin");
    client.send(&query("copy copy_inside from stdin"));
    started(&mut client, 2);
    let rows: String = (0..BULK_ROWS).map(bulk_row).collect();
    send_rows(&mut client, &rows);
    client.send(&copy_done());
    assert_eq!(client.until_ready(), [Reply::Complete(format!("COPY {BULK_ROWS}")), Reply::Ready('T')]);
    assert_eq!(client.value("select count(*) from copy_inside"), BULK_ROWS.to_string());
    client.query("rollback");
    assert_eq!(client.value("select count(*) from copy_inside"), "0");
}

#[test]
fn errors_are_left_out_and_counted() {
    let mut client = connect();
    client.query("create table copy_ignored(id int primary key, n smallint)");
    client.send(&query("copy copy_ignored from stdin (on_error ignore)"));
    started(&mut client, 2);
    client.send(&[copy_data(b"1\t1\nx\t1\n2\t99999\n3\t3\n"), copy_done()].concat());
    let replies = client.until_ready();
    let Reply::Notice(state, notice) = &replies[0] else {
        panic!("no notice: {replies:?}");
    };
    assert_eq!(state, "00000");
    assert_eq!(
        notice,
        "2 rows were skipped due to data type incompatibility: line 2, column id: invalid input syntax for type integer: \"x\"; \
         line 3, column n: value \"99999\" is out of range for type smallint"
    );
    assert_eq!(replies[1], Reply::Complete("COPY 2".into()));
}

/// A table's export is sent in pieces, however slowly it is read.
#[test]
fn a_large_table_goes_out() {
    let mut client = connect();
    client.query("create table copy_large(id int primary key, b text)");
    client.query(
        "insert into copy_large select g, 'some text that makes the row longer' from generate_series(1, 30000) g",
    );
    let replies = client.query("copy copy_large to stdout");
    let rows = replies.iter().filter(|r| matches!(r, Reply::CopyData(_))).count();
    assert_eq!(rows, 30_000);
    assert!(replies.contains(&Reply::Complete("COPY 30000".into())));
}

/// What the first rows owe is not forgotten over the many that come behind them.
#[test]
fn a_long_copy_owes_for_its_first_rows_too() {
    let mut client = connect();
    client.query("create table copy_parent(id int primary key); insert into copy_parent values (1)");
    client.query("create table copy_owing(id int primary key, b text, p int default 1 references copy_parent)");
    client.query(
        "create table copy_twice(id int primary key deferrable, b text, p int default 1 references copy_parent)",
    );
    let rows = |first: &str| {
        let rest: String =
            (2..BULK_ROWS).map(|id| format!("{id}\tsome text that makes the row longer {id}\t1\n")).collect();
        format!("{first}{rest}")
    };
    for (table, first, code) in [("copy_owing", "1\tx\t99\n", "23503"), ("copy_twice", "5\tx\t1\n", "23505")] {
        client.send(&query(&format!("copy {table} from stdin")));
        started(&mut client, 3);
        send_rows(&mut client, &rows(first));
        client.send(&copy_done());
        assert_eq!(sqlstate(&client.until_ready()), code, "{table}");
        assert_eq!(client.value(&format!("select count(*) from {table}")), "0", "{table}");
    }
}

#[test]
fn times_are_the_sessions() {
    let mut client = connect();
    client.query("create table copy_times(ts timestamptz)");
    client.query("set timezone = 'Asia/Tokyo'");
    client.send(&query("copy copy_times from stdin"));
    started(&mut client, 1);
    client.send(&[copy_data(b"2020-01-01 05:00\nnow\n"), copy_done()].concat());
    assert_eq!(client.until_ready()[0], Reply::Complete("COPY 2".into()));
    assert_eq!(client.value("select min(ts) = '2020-01-01 05:00+09' and max(ts) > '2021-01-01' from copy_times"), "t");
    let out = client.query("copy (select min(ts) from copy_times) to stdout");
    assert_eq!(out[1], Reply::CopyData(b"2020-01-01 05:00:00+09\n".to_vec()));
    // A parameter is read before its statement begins.
    client.query("reset timezone");
    client.send(&[parse("", "select $1::timestamptz > '2021-01-01'", &[]), bind("", "", &[Some(b"now")])].concat());
    client.send(&[execute("", 0), sync()].concat());
    assert!(client.until_ready().contains(&Reply::Row(vec![Some(b"t".to_vec())])));
}

#[test]
fn a_binary_record_of_too_many_fields_is_told_by_their_number() {
    let mut client = connect();
    client.query("create table copy_fields(i int)");
    client.send(&query("copy copy_fields from stdin (format binary)"));
    assert!(matches!(client.read(), Reply::CopyIn(true, 1)));
    // Of its two fields the record has the half of one.
    let head = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0";
    client.send(&[copy_data(&[&head[..], &[0, 2, 0, 0, 0, 4, 0, 0]].concat()), copy_done()].concat());
    let message = "row field count is 2, expected 1";
    assert_eq!(client.until_ready()[0], Reply::Error("ERROR".into(), "22P04".into(), message.into()));
}

/// Rows of a table that is longer than what is sent in one go.
fn long_table(client: &mut Client, name: &str) {
    client.query(&format!("create table {name}(id int primary key, b text)"));
    let rows = "select g, repeat('x', 300) from generate_series(1, 40000) g";
    assert_eq!(client.query(&format!("insert into {name} {rows}"))[0], Reply::Complete("INSERT 0 40000".into()));
}

#[test]
fn a_file_gets_what_a_client_gets() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut client = connect();
    long_table(&mut client, "copy_filed");
    for what in ["copy_filed", "(select * from copy_filed)"] {
        for format in ["text", "binary"] {
            let file = directory.path().join("copied");
            let copy = format!("copy {what} to '{}' (format {format})", file.display());
            assert_eq!(client.query(&copy), [Reply::Complete("COPY 40000".into()), Reply::Ready('I')]);
            let sent = client.query(&format!("copy {what} to stdout (format {format})"));
            let rows = sent.iter().filter_map(|reply| match reply {
                Reply::CopyData(bytes) => Some(bytes.as_slice()),
                _ => None,
            });
            assert!(std::fs::read(&file).expect("it is there") == rows.collect::<Vec<_>>().concat(), "{copy}");
        }
    }
}

/// The table's thread waits for the client, and the client does not read.
#[test]
fn a_copy_that_nobody_reads_is_cancelled_and_lets_the_table_go() {
    let mut client = connect();
    long_table(&mut client, "copy_unread");
    client.send(&query("copy copy_unread to stdout"));
    assert_eq!(client.read(), Reply::CopyOut(false, 2));
    client.cancel();
    let replies = client.until_ready();
    assert_eq!(sqlstate(&replies[replies.len() - 2..]), "57014");
    assert!(replies.len() < 40_000, "it was not sent whole");
    let mut gone = Client::connect(address());
    gone.send(&query("copy copy_unread to stdout"));
    assert_eq!(gone.read(), Reply::CopyOut(false, 2));
    drop(gone);
    client.query("truncate copy_unread");
    assert_eq!(client.value("select count(*) from copy_unread"), "0");
}
