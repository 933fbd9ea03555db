//! COPY FROM has two roads: an empty table is loaded by threads, rows of another one are inserted. Both read the same.

use crate::world::World;
use freshet_db::{IntoDatum, SqlError};

/// More than what is inserted row by row (`LOAD_BYTES_MIN`).
const DATA_BYTES: usize = 3 << 19;

/// Forms that integers, text and other values have, or do not have.
const FIELDS: &[&str] = &[
    "0",
    "-0",
    "7",
    "-12",
    "00017",
    "12345678",
    "123456789",
    "32767",
    "32768",
    "-32768",
    "2147483647",
    "2147483648",
    "-2147483648",
    "999999999999999999",
    "9223372036854775807",
    "-9223372036854775808",
    "9223372036854775808",
    "99999999999999999999999999",
    "000000000000000000000000000005",
    " 8",
    "8 ",
    "+9",
    "-",
    "--1",
    "1-",
    "1e2",
    "1.5",
    "",
    "nul",
    "null",
    "text",
    "a b",
    "abcdefgh",
    "2024-02-29 12:00:00",
    "2023-02-29",
    "é",
];
const TEXT_FIELDS: &[&str] = &["\\N", "\\\\N", "1\\x31", "a\\tb", "\\1", "\\\""];
const CSV_FIELDS: &[&str] = &["\"\"", "\"7\"", "1\"2\"", "\"a,b\"", "\"a\"\"b\"", "\\N", "\"nul\""];

/// A fixed sequence of numbers.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % end
    }
}

/// Records of which about every second one has only values that its columns take.
fn records(own: &[&str], delimiter: char, end: &str, seed: u64) -> String {
    let good: [&[&str]; 7] = [
        &["1", "-2147483648", "12345678"],
        &["-9223372036854775808", "123456789012", "0"],
        &["-7", "32767"],
        &["some text", "12", "-"],
        &["1.5", "-3", "12345678.99"],
        &["2024-02-29 12:00:00", "2000-01-01"],
        &["", "four", "1"],
    ];
    let mut numbers = Numbers(seed);
    let mut data = String::new();
    while data.len() < DATA_BYTES {
        let is_odd = numbers.below(2) == 0;
        for (column, good) in good.iter().enumerate() {
            let field = match numbers.below(14) {
                0 if is_odd => own[numbers.below(own.len())],
                1..=4 if is_odd => FIELDS[numbers.below(FIELDS.len())],
                _ => good[numbers.below(good.len())],
            };
            if column > 0 {
                data.push(delimiter);
            }
            data.push_str(field);
        }
        data.push_str(end);
    }
    data
}

/// What a COPY gives, and the rows that are there then.
fn copied(world: &World, table: &str, options: &str, data: &str) -> (Result<u64, SqlError>, Vec<u8>) {
    let mut session = world.db.session().expect("a session");
    let count = session.copy_in(&format!("COPY {table} FROM STDIN ({options})"), data.as_bytes());
    session.run(&format!("DELETE FROM {table} WHERE b = -1 AND d = 'was there'")).expect("it deletes");
    let mut rows = Vec::new();
    let all = match &count {
        Ok(_) => format!("SELECT * FROM {table} ORDER BY a, b, c, d, e, f, g"),
        Err(_) => format!("SELECT a FROM {table} LIMIT 1"),
    };
    session.copy_out(&format!("COPY ({all}) TO STDOUT"), &mut rows).expect("the rows");
    (count, rows)
}

/// Loads the data, of whose columns `b` is of this type, into an empty table, and inserts it into one that has a row.
fn both(b: &str, options: &str, data: &str) -> (Result<u64, SqlError>, Vec<u8>) {
    let insert = "INSERT INTO inserted (b, d) VALUES (-1, 'was there')";
    let columns = format!("a int, b {b}, c smallint, d text, e numeric(10,2), f timestamp, g varchar(4)");
    let world = World::new(&format!("CREATE TABLE loaded ({columns}); CREATE TABLE inserted ({columns}); {insert}"));
    let loaded = copied(&world, "loaded", options, data);
    let inserted = copied(&world, "inserted", options, data);
    let told = |result: &Result<u64, SqlError>| match result {
        Ok(count) => format!("{count} rows"),
        Err(error) => format!("{} {}: {:?}", error.sqlstate, error.message, error.context),
    };
    assert_eq!(told(&loaded.0), told(&inserted.0).replace("inserted", "loaded"), "{options}");
    assert!(loaded.1 == inserted.1, "{options}: the rows differ");
    loaded
}

#[test]
fn what_is_loaded_is_what_is_inserted() {
    let cases: [(&str, &[&str], char, &str); 8] = [
        ("ON_ERROR ignore", TEXT_FIELDS, '\t', "\n"),
        ("ON_ERROR ignore, DELIMITER '|', NULL ''", TEXT_FIELDS, '|', "\r\n"),
        ("ON_ERROR ignore, NULL '0'", TEXT_FIELDS, '\t', "\n"),
        ("ON_ERROR ignore, NULL 'nul'", TEXT_FIELDS, '\t', "\n"),
        ("ON_ERROR ignore, FORMAT csv", CSV_FIELDS, ',', "\n"),
        ("ON_ERROR ignore, FORMAT csv, FORCE_NOT_NULL (a, d), FORCE_NULL (c, g)", CSV_FIELDS, ',', "\r\n"),
        ("ON_ERROR ignore, FORMAT csv, NULL '\\N'", CSV_FIELDS, ',', "\n"),
        ("ON_ERROR ignore, FORMAT csv, DELIMITER ';', NULL '7'", CSV_FIELDS, ';', "\n"),
    ];
    for (i, (options, own, delimiter, end)) in cases.into_iter().enumerate() {
        let (count, rows) = both("bigint", options, &records(own, delimiter, end, i as u64));
        let count = count.unwrap_or_else(|e| panic!("{options}: {e}"));
        assert!(count > 5_000 && !rows.is_empty(), "{options}: {count} rows");
    }
}

#[test]
fn a_load_ends_by_the_errors_of_an_insert() {
    let line = "1\t2\t3\tfour\t5\t2024-02-29 12:00:00\tg\n";
    let good = line.repeat(DATA_BYTES / line.len());
    for (record, sqlstate) in [
        ("1\t2\t3\tfour\t5\t\\N", "22P04"),
        ("1\t2\t3\tfour\t5\t\\N\t\t8", "22P04"),
        ("1\t2\t3\tfour\t5\t\\N\tx\\\t8\t9", "22P04"),
        ("", "22P04"),
        ("1\t\\N\t3\tfour\t5\t\\N\t", "23502"),
        ("2147483648\t2\t3\tfour\t5\t\\N\t", "22003"),
        ("1\t9223372036854775808\t3\tfour\t5\t\\N\t", "22003"),
        ("1\t2\t3x\tfour\t5\t\\N\t", "22P02"),
        ("1\t2\t-\tfour\t5\t\\N\t", "22P02"),
        ("1\t2\t\tfour\t5\t\\N\t", "22P02"),
        ("1\t2\t3\tfo\rur\t5\t\\N\t", "22P04"),
        ("1\t2\t3\tfour\t5\t\\N\tfiver", "22001"),
    ] {
        let (count, rows) = both("bigint NOT NULL", "NULL '\\N'", &format!("{good}{record}\n{line}"));
        assert_eq!(count.expect_err(record).sqlstate, sqlstate, "{record:?}");
        assert!(rows.is_empty(), "{record:?}");
    }
}

/// Its columns, and what they keep of `DIGITS_GIVEN`.
const DIGITS: &str = "a timestamp(3), b timestamptz(0), c time(1), d interval(2)";
const DIGITS_GIVEN: [&str; 4] =
    ["2024-01-01 00:00:00.0005", "2024-01-01 00:00:00.5+00", "10:00:00.05", "1.005 seconds"];
const DIGITS_KEPT: &str = "2024-01-01 00:00:00.001\t2024-01-01 00:00:01+00\t10:00:00.1\t00:00:01.01\n";

/// The rows of the table, each once.
fn distinct(world: &World, table: &str) -> String {
    let mut rows = Vec::new();
    let all = format!("COPY (SELECT a, b, c, d FROM {table} GROUP BY a, b, c, d) TO STDOUT");
    world.db.session().expect("a session").copy_out(&all, &mut rows).expect("the rows");
    String::from_utf8(rows).expect("text")
}

#[test]
fn seconds_are_rounded_to_their_digits_on_every_road() {
    let tables = ["loaded", "inserted", "parameters", "numbers", "appended"];
    let setup: Vec<String> = tables.iter().map(|table| format!("CREATE TABLE {table} ({DIGITS})")).collect();
    let world = World::new(&setup.join(";"));
    let mut session = world.db.session().expect("a session");

    let record = format!("{}\n", DIGITS_GIVEN.join("\t"));
    session.copy_in("COPY loaded FROM STDIN", record.repeat(DATA_BYTES / record.len() + 1).as_bytes()).expect("a load");
    session.copy_in("COPY inserted FROM STDIN", record.as_bytes()).expect("it inserts");
    session.copy_in("COPY inserted FROM STDIN (FORMAT csv)", record.replace('\t', ",").as_bytes()).expect("it inserts");

    let texts = DIGITS_GIVEN.map(IntoDatum::into_datum);
    let numbers = [500_i64 + 757_382_400_000_000, 757_382_400_500_000, 36_000_050_000].map(IntoDatum::into_datum);
    let numbers = [numbers.as_slice(), &texts[3..]].concat();
    for (table, values) in [("parameters", texts.as_slice()), ("numbers", numbers.as_slice())] {
        let insert = session.prepare(&format!("INSERT INTO {table} VALUES ($1, $2, $3, $4)")).expect("it binds");
        assert_eq!(session.execute(&insert, values).expect("it inserts"), 1);
        assert_eq!(session.execute(&insert, values).expect("it inserts again"), 1);
    }
    let load = world.db.bulk_load("appended").expect("a load");
    let mut appender = load.appender().expect("an appender");
    appender.append(&texts).expect("a row");
    appender.append(&numbers).expect("a row");
    appender.finish().expect("its rows");
    assert_eq!(load.commit().expect("it commits"), 2);

    for table in tables {
        assert_eq!(distinct(&world, table), DIGITS_KEPT, "{table}");
    }
}

/// Of a long table a thread writes the rows, of a query's result the session: they write the same, in the same order.
#[test]
fn a_long_table_is_copied_as_its_rows_are() {
    let columns = "id int PRIMARY KEY, a bigint, b smallint, c text, d numeric(10,2), e timestamp, f boolean, g float8";
    let world = World::new(&format!(
        "CREATE TABLE long ({columns}); \
         INSERT INTO long SELECT g, g::bigint * 1000003 - 4000000000, nullif(g % 7 - 3, 0), \
             CASE WHEN g % 5000 = 1 THEN repeat('long' || g, 20000) WHEN g % 11 = 0 THEN NULL ELSE E'a\\tb-\"' || g END, \
             g / 100.0, '2024-02-29 12:00:00'::timestamp + g * interval '1 hour', g % 2 = 0, g / 7.0 \
         FROM generate_series(1, 40000) g; \
         DELETE FROM long WHERE id % 3 = 0 OR id BETWEEN 5000 AND 30000"
    ));
    let mut session = world.db.session().expect("a session");
    let mut copied = |what: &str, options: &str| {
        let mut bytes = Vec::new();
        let count = session.copy_out(&format!("COPY {what} TO STDOUT ({options})"), &mut bytes).expect(options);
        (count, bytes)
    };
    for options in [
        "FORMAT text",
        "DELIMITER '-'",
        "DELIMITER ' ', NULL '3'",
        "FORMAT csv, HEADER",
        "FORMAT csv, DELIMITER ':', NULL '1'",
        "FORMAT csv, FORCE_QUOTE *",
        "FORMAT csv, FORCE_QUOTE (a), QUOTE '2'",
        "FORMAT binary",
    ] {
        let (count, bytes) = copied("long", options);
        assert_eq!(count, 10_000, "{options}");
        assert!(bytes.len() > 512 << 10, "{options}: several pieces");
        assert!(bytes == copied("(SELECT * FROM long)", options).1, "{options}: the rows differ");
    }
    let rows = String::from_utf8(copied("long (b, id, g)", "FORMAT text").1).expect("text");
    let numbers: Vec<i64> = (1..=40_000).filter(|id| id % 3 != 0 && !(5_000..=30_000).contains(id)).collect();
    let due = |id: i64| match id % 7 - 3 {
        0 => format!("\\N\t{id}"),
        b => format!("{b}\t{id}"),
    };
    assert_eq!(numbers.len(), 10_000);
    for (row, id) in rows.lines().zip(numbers) {
        assert!(row.starts_with(&format!("{}\t", due(id))), "{row:?} is not that of {id}");
    }
}

/// A number or a time is quoted or escaped where its characters mean something, whatever the short way of writing it.
#[test]
fn what_a_formats_signs_mean_is_marked_in_numbers_too() {
    let world = World::new(
        "CREATE TABLE t (a int, b date, c boolean, d numeric); INSERT INTO t VALUES (-17, '2024-02-29', true, -1.5), (NULL, NULL, NULL, NULL)",
    );
    let mut session = world.db.session().expect("a session");
    for (options, due) in [
        ("FORMAT text", "-17\t2024-02-29\tt\t-1.5\n\\N\t\\N\t\\N\t\\N\n"),
        ("DELIMITER '-'", "\\-17-2024\\-02\\-29-t-\\-1.5\n\\N-\\N-\\N-\\N\n"),
        ("FORMAT csv", "-17,2024-02-29,t,-1.5\n,,,\n"),
        ("FORMAT csv, NULL '-17'", "\"-17\",2024-02-29,t,-1.5\n-17,-17,-17,-17\n"),
        ("FORMAT csv, NULL 't'", "-17,2024-02-29,\"t\",-1.5\nt,t,t,t\n"),
        ("FORMAT csv, DELIMITER '1'", "\"-17\"12024-02-291t1\"-1.5\"\n111\n"),
        ("FORMAT csv, QUOTE '2'", "-17,2220224-022-2292,t,-1.5\n,,,\n"),
        ("FORMAT csv, FORCE_QUOTE (a, c)", "\"-17\",2024-02-29,\"t\",-1.5\n,,,\n"),
    ] {
        let mut bytes = Vec::new();
        session.copy_out(&format!("COPY t TO STDOUT ({options})"), &mut bytes).expect(options);
        assert_eq!(String::from_utf8(bytes).expect("text"), due, "{options}");
    }
}

#[test]
fn of_rows_with_a_condition_those_come_that_meet_it() {
    let world = World::new(
        "CREATE TABLE t (id serial, a int CHECK (a > 1), b int DEFAULT 7, c int GENERATED ALWAYS AS (a * 2) STORED, d text NOT NULL);
         CREATE TABLE large (a int, d text)",
    );
    let mut session = world.db.session().expect("a session");
    let mut copy = |sql: &str, data: &str| session.copy_in(sql, data.as_bytes());
    // Before any constraint is asked, and with the defaults.
    let rows = "1\tx\n2\ty\n3\t\\N\n4\tz\n";
    let count = copy("COPY t (a, d) FROM STDIN WHERE a > 1 AND d IS NOT NULL AND b = 7 AND id <> 4", rows);
    assert_eq!(count.expect("rows"), 1);
    let error = copy("COPY t (a, d) FROM STDIN WHERE 10 / (a - 3) <> 0", rows).expect_err("a check");
    assert_eq!((error.sqlstate, error.message.contains("check")), ("23514", true));
    let error = copy("COPY t (a, d) FROM STDIN WHERE 10 / (a - 2) < 0 OR a = 1", "2\tx\n").expect_err("a division");
    let context = error.context.as_ref().map(|context| context.0.to_string());
    assert_eq!((error.sqlstate, context.as_deref()), ("22012", Some("COPY t, line 1: \"2\tx\"")));
    let ignoring = "COPY t (a, d) FROM STDIN (ON_ERROR ignore) WHERE a > 2";
    assert_eq!(copy(ignoring, "x\tx\n2\ty\n3\tz\n").expect("a row"), 1);
    // So much of an empty table is loaded in bulk otherwise.
    let line = "5\tkept\n6\tleft out\n";
    let data = line.repeat(DATA_BYTES / line.len());
    let kept = copy("COPY large FROM STDIN WHERE a < 6", &data).expect("rows");
    assert_eq!(kept as usize, DATA_BYTES / line.len());
    let mut all = Vec::new();
    session.copy_out("COPY (SELECT a, b, c, d FROM t ORDER BY a) TO STDOUT", &mut all).expect("the rows");
    session.copy_out("COPY (SELECT DISTINCT a, d FROM large) TO STDOUT", &mut all).expect("the rows");
    assert_eq!(String::from_utf8(all).expect("text"), "2\t7\t4\ty\n3\t7\t6\tz\n5\tkept\n");
}
