//! Every type in both formats, against forms written down by hand from PostgreSQL 15.

use crate::client::*;
use crate::connect;

struct Case {
    ty: &'static str,
    oid: u32,
    text: &'static str,
    binary: &'static [u8],
}

const fn case(ty: &'static str, oid: u32, text: &'static str, binary: &'static [u8]) -> Case {
    Case { ty, oid, text, binary }
}

const CASES: &[Case] = &[
    case("boolean", 16, "t", b"\x01"),
    case("smallint", 21, "-2", b"\xff\xfe"),
    case("integer", 23, "16909060", b"\x01\x02\x03\x04"),
    case("bigint", 20, "-9223372036854775808", b"\x80\0\0\0\0\0\0\0"),
    case("real", 700, "1.5", b"\x3f\xc0\0\0"),
    case("double precision", 701, "-0.25", b"\xbf\xd0\0\0\0\0\0\0"),
    // Digits 12, 3400 of weight 0, display scale 2.
    case("numeric(9,2)", 1700, "12.34", b"\0\x02\0\0\0\0\0\x02\0\x0c\x0d\x48"),
    case("numeric", 1700, "-10000", b"\0\x01\0\x01\x40\0\0\0\0\x01"),
    case("numeric", 1700, "NaN", b"\0\0\0\0\xc0\0\0\0"),
    case("char(3)", 1042, "ab ", b"ab "),
    case("varchar(5)", 1043, "h\u{e9}", b"h\xc3\xa9"),
    case("text", 25, "", b""),
    case("text", 25, "longer than what fits into a record", b"longer than what fits into a record"),
    case("bytea", 17, "\\x00ff10", b"\x00\xff\x10"),
    case("date", 1082, "2000-01-02", b"\0\0\0\x01"),
    case("time", 1083, "00:00:01.5", b"\0\0\0\0\0\x16\xe3\x60"),
    case("timestamp", 1114, "1999-12-31 23:59:59", b"\xff\xff\xff\xff\xff\xf0\xbd\xc0"),
    case("timestamptz", 1184, "2000-01-01 00:00:01+00", b"\0\0\0\0\0\x0f\x42\x40"),
    case("oid", 26, "4294967295", b"\xff\xff\xff\xff"),
    case("xid", 28, "7", b"\0\0\0\x07"),
    case("name", 19, "a_name", b"a_name"),
    case("\"char\"", 18, "r", b"r"),
    case("\"char\"", 18, "", b"\0"),
    case("regclass", 2205, "pg_class", b"\0\0\x04\xeb"),
    case("regtype", 2206, "timestamp with time zone", b"\0\0\x04\xa0"),
    case("regproc", 24, "array_in", b"\0\0\x02\xee"),
    case("regnamespace", 4089, "pg_catalog", b"\0\0\0\x0b"),
    // One dimension, no nulls, the element's oid, two elements from 0.
    case("int2vector", 22, "1 -2", b"\0\0\0\x01\0\0\0\0\0\0\0\x15\0\0\0\x02\0\0\0\0\0\0\0\x02\0\x01\0\0\0\x02\xff\xfe"),
    case("oidvector", 30, "23", b"\0\0\0\x01\0\0\0\0\0\0\0\x1a\0\0\0\x01\0\0\0\0\0\0\0\x04\0\0\0\x17"),
    case("name[]", 1003, "{a}", b"\0\0\0\x01\0\0\0\0\0\0\0\x13\0\0\0\x01\0\0\0\x01\0\0\0\x01a"),
    case(
        "uuid",
        2950,
        "00112233-4455-6677-8899-aabbccddeeff",
        b"\x00\x11\x22\x33\x44\x55\x66\x77\x88\x99\xaa\xbb\xcc\xdd\xee\xff",
    ),
];

#[test]
fn every_type_goes_in_and_out_in_both_formats() {
    let mut client = connect();
    for (at, case) in CASES.iter().enumerate() {
        let table = format!("values_{at}");
        client.query(&format!("create table {table}(id int primary key, v {})", case.ty));
        client.send(
            &[
                parse("ins", &format!("insert into {table} values ($1, $2)"), &[]),
                describe_statement("ins"),
                bind_formats("", "ins", &[0, 0], &[Some(b"1"), Some(case.text.as_bytes())], &[]),
                execute("", 0),
                bind_formats("", "ins", &[1, 1], &[Some(b"\0\0\0\x02"), Some(case.binary)], &[]),
                execute("", 0),
                bind_formats("", "ins", &[1], &[Some(b"\0\0\0\x03"), None], &[]),
                execute("", 0),
                close_statement("ins"),
                sync(),
            ]
            .concat(),
        );
        let inserted = client.until_ready();
        assert!(inserted.contains(&Reply::Parameters(vec![23, case.oid])), "{}: {inserted:?}", case.ty);
        for (format, expected) in [(0, case.text.as_bytes()), (1, case.binary)] {
            let select = format!("select v from {table} order by id");
            client.send(
                &[
                    parse("", &select, &[]),
                    bind_formats("", "", &[], &[], &[format]),
                    describe_portal(""),
                    execute("", 0),
                    sync(),
                ]
                .concat(),
            );
            let row = |value: Option<&[u8]>| Reply::Row(vec![value.map(<[u8]>::to_vec)]);
            assert_eq!(
                client.until_ready()[2..],
                [
                    Reply::Columns(vec![("v".into(), case.oid, format)]),
                    row(Some(expected)),
                    row(Some(expected)),
                    row(None),
                    Reply::Complete("SELECT 3".into()),
                    Reply::Ready('I'),
                ],
                "{} {} in format {format}",
                case.ty,
                case.text
            );
        }
    }
}

#[test]
fn values_that_do_not_fit_are_told() {
    let mut client = connect();
    let check = |client: &mut Client, oid: u32, format: i16, bytes: &[u8], state: &str| {
        client.send(
            &[parse("", "select $1", &[oid]), bind_formats("", "", &[format], &[Some(bytes)], &[]), sync()].concat(),
        );
        let replies = client.until_ready();
        assert_eq!(sqlstate(&replies), state, "{oid} {bytes:?}");
    };
    check(&mut client, 23, 0, b"x", "22P02");
    check(&mut client, 23, 0, b"3000000000", "22003");
    check(&mut client, 25, 0, b"\xff", "22021");
    check(&mut client, 1082, 0, b"2001-02-30", "22008");
    check(&mut client, 2950, 0, b"0011", "22P02");
    for (oid, bytes) in [(23, &b"abc"[..]), (20, b"abcd"), (1700, b"\0\x05"), (2950, b"a")] {
        client
            .send(&[parse("", "select $1", &[oid]), bind_formats("", "", &[1], &[Some(bytes)], &[]), sync()].concat());
        let state = sqlstate(&client.until_ready());
        assert!(matches!(state.as_str(), "22P03" | "08P01"), "{oid}: {state}");
    }
    assert_eq!(client.value("select 1"), "1");
}
