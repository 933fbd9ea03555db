//! Does what is printed say what was read? Views, defaults, constraints and the queries of cursors are kept, or run again, as text that is
//! printed from their trees.
//!
//! sqlparser cannot know how its trees were read: a quotation mark behind a backslash or another quotation mark it prints as it is, as if it
//! were escaped already. Read again, the text goes on where the literal or the name has ended. So no tree has such a one:
//!
//! | token | what is made of it |
//! |---|---|
//! | `'...'` | `E'...'`, which is printed with all of its escapes |
//! | `N'...'` | the same with its quotation marks doubled, as its printer escapes nothing: [`national`] takes them back |
//! | `X'...'`, `B'...'` | an error: they are digits |
//! | `"..."` | an error: a name has no other form |
//!
//! 1. `parse(print(parse(text))) = parse(text)`, for every literal and every name.

use super::grammar::Grammar;
use super::{DEPTH_MAX, position};
use crate::error::SqlError;
use sqlparser::ast::Value;
use sqlparser::parser::Parser;
use sqlparser::tokenizer::{Token, TokenWithSpan};

/// A parser of these tokens, whose trees can be printed.
pub(super) fn parser_of(dialect: &Grammar, mut tokens: Vec<TokenWithSpan>) -> Parser<'_> {
    tokens.iter_mut().for_each(|token| make_printable(&mut token.token));
    Parser::new(dialect).with_recursion_limit(DEPTH_MAX).with_tokens_with_locations(tokens)
}

/// A literal of this text for a tree.
pub fn literal(text: String) -> Value {
    if is_misprinted(&text, '\'') { Value::EscapedStringLiteral(text) } else { Value::SingleQuotedString(text) }
}

/// What an `N'...'` of a tree says.
pub fn national(literal: &str) -> String {
    literal.replace("''", "'")
}

/// Refuses what no tree may have.
pub(super) fn check_tokens(sql: &str, tokens: &[TokenWithSpan]) -> Result<(), SqlError> {
    for token in tokens {
        let error = match &token.token {
            Token::Word(word) if word.quote_style.is_some_and(|quote| is_misprinted(&word.value, quote)) => {
                SqlError::unsupported("a quotation mark behind a backslash or another quotation mark in a name")
            }
            Token::HexStringLiteral(digits) if digits.contains('\'') => {
                SqlError::new("22P02", "\"'\" is not a valid hexadecimal digit")
            }
            Token::SingleQuotedByteStringLiteral(digits) if digits.contains('\'') => {
                SqlError::new("22P02", "\"'\" is not a valid binary digit")
            }
            _ => continue,
        };
        return Err(error.at(position(sql, token.span.start)));
    }
    Ok(())
}

fn make_printable(token: &mut Token) {
    match token {
        Token::SingleQuotedString(text) if is_misprinted(text, '\'') => {
            *token = Token::EscapedStringLiteral(std::mem::take(text));
        }
        Token::NationalStringLiteral(text) if text.contains('\'') => *text = text.replace('\'', "''"),
        _ => {}
    }
}

/// Whether sqlparser takes a quotation mark in the text for one that is escaped.
fn is_misprinted(text: &str, quote: char) -> bool {
    let mut before = None;
    text.chars().any(|c| {
        let is_taken = c == quote && before.is_some_and(|b| b == '\\' || b == quote);
        before = Some(c);
        is_taken
    })
}

#[cfg(test)]
mod tests {
    use super::super::{Parsed, parse};
    use proptest::prelude::*;
    use sqlparser::ast::Statement;

    fn statement(sql: &str) -> Statement {
        match parse(sql).unwrap_or_else(|e| panic!("{sql}: {e}")) {
            Parsed::Sql(statement) => *statement,
            other => panic!("{sql}: {other:?}"),
        }
    }

    /// Printing loses spans alone, which trees are not compared by; a literal may be printed in another form, once.
    fn assert_is_kept(sql: &str) {
        let read = statement(sql);
        let again = statement(&read.to_string());
        assert_eq!(read, again, "{sql} is printed as {read}");
    }

    fn quoted(text: &str, quote: char) -> String {
        let quotes = String::from_iter([quote, quote]);
        format!("{quote}{}{quote}", text.replace(quote, &quotes))
    }

    #[test]
    fn a_literal_ends_where_it_ended() {
        for sql in [
            r"SELECT '\'' OR true --'",
            r"SELECT 'it''''s', '''', '''''', '\', '\\', '\'''",
            r"SELECT E'it\'\'s', E'\\\'', E'\\', N'it''''s', N'\''', N'''', N'N'",
            "SELECT 'a''' \n '''b'",
            r"SELECT U&'it''''s \0061'",
            r"SELECT $$it''s \' $$, $a$''$$''$a$",
        ] {
            assert_is_kept(sql);
        }
    }

    #[test]
    fn names_that_cannot_be_printed_are_refused() {
        for name in [r#""a""""b""#, r#""a\""b""#, r#""z\"", (select 7) q --""#, r#""""""""#] {
            let sqlstate = |sql: String| parse(&sql).map(|_| ()).map_err(|e| e.sqlstate);
            for sql in
                [format!("SELECT 1 AS {name}"), format!("CREATE TABLE {name} (a int)"), format!("DROP ROLE {name}")]
            {
                assert_eq!(sqlstate(sql.clone()), Err("0A000"), "{sql}");
            }
            assert_eq!(super::super::parse_name(name).map_err(|e| e.sqlstate), Err("0A000"), "{name}");
        }
        for name in [r#""a""b""#, r#""a\b""#, r#""a\""#, r#""""a""""#] {
            assert_is_kept(&format!("SELECT {name}.{name} AS {name} FROM {name} AS {name} ({name})"));
        }
        for (sql, sqlstate) in [("SELECT X'1''2'", "22P02"), ("SELECT B'1'''", "22P02")] {
            assert_eq!(parse(sql).map(|_| ()).map_err(|e| e.sqlstate), Err(sqlstate), "{sql}");
        }
    }

    proptest! {
        #[test]
        fn literals_and_names_are_kept(
            texts in proptest::collection::vec(r#"[ab'"\\\n -]{0,6}"#, 3),
            names in proptest::collection::vec(r#"[ab'"\\ -]{1,6}"#, 2),
        ) {
            let escaped = texts[1].replace('\\', r"\\").replace('\'', r"\'");
            let sql = format!(
                "SELECT {} AS {}, E'{escaped}' LIKE {} ESCAPE {} FROM {}",
                quoted(&texts[0], '\''), quoted(&names[0], '"'), quoted(&texts[2], '\''), quoted(&texts[0], '\''), quoted(&names[1], '"'),
            );
            match parse(&sql) {
                Ok(_) => assert_is_kept(&sql),
                Err(error) => {
                    let is_odd = names.iter().any(|name| super::is_misprinted(name, '"'));
                    prop_assert!(is_odd && error.sqlstate == "0A000", "{}: {}", sql, error);
                }
            }
        }
    }
}
