//! `LOCAL TEMPORARY` and `GLOBAL TEMPORARY`: there is one kind of temporary objects, as in PostgreSQL.

use super::{keyword, near, whole_tokens};
use crate::error::SqlError;
use crate::notice::Notice;
use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::{Token, TokenWithSpan};

/// Takes the words that tell one kind of temporary object from another out of a statement that makes one; 42601 where it makes no temporary one.
pub(super) fn take(sql: &str, tokens: &mut Vec<TokenWithSpan>) -> Result<(), SqlError> {
    if let Some((at, _)) = find(tokens) {
        tokens.remove(at);
        return Ok(());
    }
    let words: Vec<&TokenWithSpan> =
        tokens.iter().filter(|t| !matches!(t.token, Token::Whitespace(_))).take(3).collect();
    match words.as_slice() {
        [create, scope, next]
            if keyword(create) == Keyword::CREATE && matches!(keyword(scope), Keyword::LOCAL | Keyword::GLOBAL) =>
        {
            Err(near(sql, next))
        }
        _ => Ok(()),
    }
}

/// What is to be said of GLOBAL.
pub fn global_notice(sql: &str) -> Option<Notice> {
    const WORD: &[u8] = b"global";
    if !sql.as_bytes().windows(WORD.len()).any(|part| part.eq_ignore_ascii_case(WORD)) {
        return None;
    }
    match find(&whole_tokens(sql).ok()?)?.1 {
        Keyword::GLOBAL => Some(Notice::new("01000", "GLOBAL is deprecated in temporary table creation")),
        _ => None,
    }
}

/// Where LOCAL or GLOBAL stands between what makes an object and TEMPORARY.
fn find(tokens: &[TokenWithSpan]) -> Option<(usize, Keyword)> {
    let next = |from: usize| tokens[from..].iter().find(|t| !matches!(t.token, Token::Whitespace(_))).map(keyword);
    let mut before = Keyword::NoKeyword;
    for (at, token) in tokens.iter().enumerate() {
        if matches!(token.token, Token::Whitespace(_)) {
            continue;
        }
        let word = keyword(token);
        let is_it = matches!(word, Keyword::LOCAL | Keyword::GLOBAL)
            && matches!(before, Keyword::CREATE | Keyword::REPLACE | Keyword::INTO)
            && matches!(next(at + 1), Some(Keyword::TEMP | Keyword::TEMPORARY));
        if is_it {
            return Some((at, word));
        }
        before = word;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::{Parsed, parse};
    use super::*;
    use sqlparser::ast::Statement;

    #[test]
    fn both_kinds_are_temporary_and_one_is_warned_of() {
        for (sql, is_warned) in [
            ("create local temporary table t (a int)", false),
            ("create global temp table t (a int)", true),
            ("select 1 as a into GLOBAL temporary table t", true),
            ("create temp table global (global int)", false),
        ] {
            let Ok(Parsed::Sql(statement)) = parse(sql) else { panic!("{sql} is parsed") };
            let Statement::CreateTable(create) = *statement else { panic!("{sql} makes a table") };
            assert!(create.temporary && create.global.is_none(), "{sql}");
            assert_eq!(global_notice(sql).is_some(), is_warned, "{sql}");
        }
        assert!(parse("create local table t (a int)").is_err());
        assert!(parse("create global unlogged table t (a int)").is_err());
    }
}
