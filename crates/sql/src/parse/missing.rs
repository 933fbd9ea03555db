//! Which of PostgreSQL's commands are not here, so that they are refused as missing (0A000) and not as misspelt (42601)? The grammar knows only some of them.

use super::is_word;
use crate::error::SqlError;
use sqlparser::tokenizer::TokenWithSpan;

/// Kinds of objects that are nowhere, with CREATE, ALTER and DROP.
const KINDS: [&str; 25] = [
    "access method",
    "aggregate",
    "cast",
    "collation",
    "constraint trigger",
    "conversion",
    "event trigger",
    "foreign data wrapper",
    "foreign table",
    "function",
    "language",
    "operator",
    "policy",
    "procedure",
    "publication",
    "routine",
    "rule",
    "server",
    "statistics",
    "subscription",
    "tablespace",
    "text search",
    "transform",
    "trigger",
    "user mapping",
];

/// Kinds that can be dropped IF EXISTS, which the grammar reads.
const DROPPED: [&str; 4] = ["collation", "function", "procedure", "trigger"];

/// Other commands, by their first words.
const COMMANDS: [&str; 13] = [
    "alter database",
    "alter default privileges",
    "alter domain",
    "alter extension",
    "alter large object",
    "alter materialized view",
    "alter system",
    "commit prepared",
    "drop transform",
    "import foreign schema",
    "refresh materialized view",
    "rollback prepared",
    "security label",
];

/// What ALTER TABLE does to no table here.
const ACTIONS: [&str; 11] = [
    "attach partition",
    "detach partition",
    "disable row level security",
    "disable rule",
    "enable row level security",
    "enable rule",
    "force row level security",
    "inherit",
    "no force row level security",
    "no inherit",
    "not of",
];

fn begins(words: &[&TokenWithSpan], with: &str) -> bool {
    let mut expected = with.split(' ');
    let mut words = words.iter();
    expected.all(|text| words.next().is_some_and(|word| is_word(&word.token, text)))
}

fn refuse(command: &str) -> Result<(), SqlError> {
    Err(SqlError::unsupported(command.to_uppercase()))
}

/// 0A000 for such a command.
pub(super) fn check(words: &[&TokenWithSpan]) -> Result<(), SqlError> {
    if let Some(command) = COMMANDS.into_iter().find(|command| begins(words, command)) {
        return refuse(command);
    }
    for verb in ["create or replace", "create", "alter", "drop"] {
        if !begins(words, verb) {
            continue;
        }
        let behind = &words[verb.split(' ').count()..];
        let kind = KINDS.into_iter().find(|kind| begins(behind, kind));
        return match kind {
            Some(kind) if verb == "drop" && DROPPED.contains(&kind) => Ok(()),
            Some(kind) => refuse(&format!("{} {kind}", verb.trim_end_matches(" or replace"))),
            None if verb == "create" && begins(behind, "materialized view") => refuse("create materialized view"),
            None if verb == "alter" && begins(behind, "table") => check_actions(behind),
            None => Ok(()),
        };
    }
    Ok(())
}

/// Of an ALTER TABLE: its first action stands behind the name, which may have a schema.
fn check_actions(words: &[&TokenWithSpan]) -> Result<(), SqlError> {
    let mut at = 1 + if begins(&words[1..], "if exists") { 2 } else { 0 };
    at += usize::from(begins(words.get(at..).unwrap_or_default(), "only"));
    let is_dot = |at: usize| words.get(at).is_some_and(|word| word.token == sqlparser::tokenizer::Token::Period);
    at += 1;
    while is_dot(at) {
        at += 2;
    }
    let action = words.get(at..).and_then(|words| ACTIONS.into_iter().find(|action| begins(words, action)));
    action.map_or(Ok(()), |action| refuse(&format!("alter table {action}")))
}

#[cfg(test)]
mod tests {
    use crate::parse::parse;

    #[track_caller]
    fn told(sql: &str) -> (&'static str, String) {
        let error = parse(sql).expect_err(sql);
        (error.sqlstate, error.message)
    }

    #[test]
    fn what_is_missing_is_not_misspelt() {
        for (sql, what) in [
            ("alter default privileges grant select on tables to public", "ALTER DEFAULT PRIVILEGES"),
            ("create or replace function f() returns int language sql as 'select 1'", "CREATE FUNCTION"),
            ("CREATE EVENT TRIGGER e ON ddl_command_start EXECUTE FUNCTION f()", "CREATE EVENT TRIGGER"),
            ("alter table only a.b enable row level security", "ALTER TABLE ENABLE ROW LEVEL SECURITY"),
            ("alter table if exists \"b\" no inherit c", "ALTER TABLE NO INHERIT"),
            ("drop operator if exists === (int, int)", "DROP OPERATOR"),
            ("refresh materialized view concurrently v", "REFRESH MATERIALIZED VIEW"),
            ("commit prepared 'x'", "COMMIT PREPARED"),
        ] {
            assert_eq!(told(sql), ("0A000", format!("{what} is not supported")), "{sql}");
        }
    }

    #[test]
    fn what_is_here_is_read() {
        for sql in [
            "drop function if exists f(int)",
            "drop trigger if exists a on b",
            "alter table t enable trigger all",
            "alter table inherit add column no int",
            "create table rule (a int)",
            "commit",
            "select sum(a) over (rows current row exclude no others) from t",
            "select sum(a) over (rows current row exclude current row) from t",
            "select sum(a) over (partition by (b), c rows between (1) preceding and 1 following exclude ties) from t",
            "select sum(a) over w from t window w as (order by abs(b) range current row exclude group)",
            "create view v as select sum(a) over (rows current row exclude no others) from t",
            "select exclude from t order by a fetch first (2::int) rows with ties",
            "create table t (a int check (a > 0) no inherit)",
            "select 1 for update",
        ] {
            assert!(parse(sql).is_ok(), "{sql}: {:?}", parse(sql));
        }
        assert_eq!(told("alter").0, "42601");
        assert_eq!(told("alter table").0, "42601");
        assert_eq!(told("create").0, "42601");
    }
}
