//! Joins as PostgreSQL nests and names them, told in what sqlparser takes.
//!
//! | PostgreSQL | becomes |
//! |---|---|
//! | `a JOIN b LEFT JOIN c ON x ON y` | `a JOIN (b LEFT JOIN c ON x) ON y` |
//! | `MERGE INTO t USING a JOIN b ON x ON y` | `MERGE INTO t USING (a JOIN b ON x) ON y` |
//! | `a JOIN b USING (i) AS x` | `a JOIN b USING (i, "<marker>as x")`, which [`columns_and_alias`] reads |

use super::mend::{MARKER, closing, keyword, spanned, words_of};
use sqlparser::ast::ObjectName;
use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::{Token, TokenWithSpan, Word};

const ALIAS: &str = "as ";

/// A join whose condition is still to come.
struct Open {
    /// Where its right side begins.
    right: usize,
    /// Whether another join stands in its right side.
    nests: bool,
}

/// What is written between two tokens, or in their place.
enum Change {
    Opens(usize),
    Closes(usize),
    /// The parenthesis behind USING's columns, and where the name behind it stands.
    Named(usize, usize),
}

impl Change {
    fn place(&self) -> usize {
        let (Change::Opens(place) | Change::Closes(place) | Change::Named(place, _)) = self;
        *place
    }
}

/// The statement's tokens; without blanks where a join was mended.
pub(super) fn with_parentheses(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let (mut joins, mut merges, mut names) = (0, false, false);
    for token in &tokens {
        match keyword(Some(token)) {
            Keyword::JOIN => joins += 1,
            Keyword::MERGE => merges = true,
            Keyword::USING => names = true,
            _ => {}
        }
    }
    if joins == 0 || joins == 1 && !merges && !names {
        return tokens;
    }
    let tokens = words_of(tokens);
    let changes = changes(&tokens, merges);
    changed(tokens, changes)
}

fn changes(tokens: &[TokenWithSpan], merges: bool) -> Vec<Change> {
    let mut changes = Vec::new();
    // The open joins of each parenthesis that is open.
    let mut open: Vec<Vec<Open>> = vec![Vec::new()];
    for (at, token) in tokens.iter().enumerate() {
        let is_within = open.len() > 1;
        let here = open.last_mut().expect("the outermost is never taken away");
        match (&token.token, keyword(Some(token))) {
            (Token::LParen, _) => open.push(Vec::new()),
            (Token::RParen, _) if is_within => drop(open.pop()),
            (Token::Comma, _) | (_, Keyword::WHERE | Keyword::SELECT) => here.clear(),
            (_, Keyword::JOIN) => {
                here.iter_mut().last().into_iter().for_each(|join| join.nests = true);
                if has_condition(tokens, at) {
                    here.push(Open { right: at + 1, nests: false });
                }
            }
            (_, Keyword::USING) if merges && here.is_empty() => here.push(Open { right: at + 1, nests: false }),
            (_, word @ (Keyword::ON | Keyword::USING)) => {
                let Some(join) = here.pop() else { continue };
                if join.nests {
                    changes.extend([Change::Opens(join.right), Change::Closes(at)]);
                }
                if let (Keyword::USING, Some(close)) = (word, closing(tokens, at + 1))
                    && keyword(tokens.get(close + 1)) == Keyword::AS
                    && matches!(tokens.get(close + 2).map(|t| &t.token), Some(Token::Word(_)))
                {
                    changes.push(Change::Named(close, close + 2));
                }
            }
            _ => {}
        }
    }
    changes
}

/// Neither CROSS JOIN nor NATURAL JOIN has one.
fn has_condition(tokens: &[TokenWithSpan], join: usize) -> bool {
    let mut kind = tokens[..join].iter().rev().map(|t| keyword(Some(t)));
    let is_kind = |word: &Keyword| {
        matches!(word, Keyword::INNER | Keyword::LEFT | Keyword::RIGHT | Keyword::FULL | Keyword::OUTER)
    };
    !matches!(kind.find(|word| !is_kind(word)), Some(Keyword::NATURAL | Keyword::CROSS))
}

fn changed(tokens: Vec<TokenWithSpan>, mut changes: Vec<Change>) -> Vec<TokenWithSpan> {
    if changes.is_empty() {
        return tokens;
    }
    changes.sort_by_key(Change::place);
    let mut changes = changes.into_iter().peekable();
    let mut mended = Vec::with_capacity(tokens.len() + changes.len());
    let mut skips = 0;
    for (at, token) in tokens.iter().enumerate() {
        while let Some(change) = changes.next_if(|change| change.place() == at) {
            match change {
                Change::Opens(_) => mended.push(spanned(token, Token::LParen)),
                Change::Closes(_) => mended.push(spanned(token, Token::RParen)),
                Change::Named(_, name) => {
                    let Token::Word(word) = &tokens[name].token else { continue };
                    let name = if word.quote_style.is_some() { word.value.clone() } else { word.value.to_lowercase() };
                    let value = format!("{MARKER}{ALIAS}{name}");
                    let marked = Word { value, quote_style: Some('"'), keyword: Keyword::NoKeyword };
                    mended.extend([Token::Comma, Token::Word(marked), Token::RParen].map(|t| spanned(token, t)));
                    skips = 3;
                }
            }
        }
        match skips {
            0 => mended.push(token.clone()),
            _ => skips -= 1,
        }
    }
    mended
}

/// The columns of USING, and the name that they have together.
pub fn columns_and_alias(columns: &[ObjectName]) -> (&[ObjectName], Option<&str>) {
    let alias =
        columns.last().and_then(|name| name.0.first()?.as_ident()?.value.strip_prefix(MARKER)?.strip_prefix(ALIAS));
    match alias {
        Some(_) => (&columns[..columns.len() - 1], alias),
        None => (columns, None),
    }
}

/// A text with marked names as its tree writes it, with PostgreSQL's words for names of USING.
pub(super) fn in_own_words(mut text: String) -> String {
    let marked = format!(", \"{MARKER}{ALIAS}");
    while let Some(at) = text.find(&marked) {
        let name = at + marked.len();
        // A quotation mark within is written twice.
        let rest = text[name..].replace("\"\"", "  ");
        let Some(end) = rest.find('"').map(|length| name + length) else { break };
        let named = format!(") AS \"{}\"", &text[name..end]);
        text.replace_range(at..(end + 2).min(text.len()), &named);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::parse;

    /// The statement as its tree writes it.
    fn read(sql: &str) -> String {
        match parse(sql).unwrap_or_else(|e| panic!("{sql}: {e}")) {
            super::super::Parsed::Sql(statement) => statement.to_string(),
            other => panic!("{sql}: {other:?}"),
        }
    }

    #[test]
    fn conditions_belong_to_the_last_join_that_has_none() {
        for (sql, same) in [
            ("select 1 from a join b left join c on x on y", "select 1 from a join (b left join c on x) on y"),
            (
                "select 1 from a join b join c join d on x on y on z",
                "select 1 from a join (b join (c join d on x) on y) on z",
            ),
            ("select 1 from a join b cross join c on x", "select 1 from a join (b cross join c) on x"),
            (
                "select 1 from a join b natural left outer join c using (x)",
                "select 1 from a join (b natural left outer join c) using (x)",
            ),
            ("select 1 from a natural join b join c on x", "select 1 from a natural join b join c on x"),
            (
                "select 1 from a join b join c on x join d on y on z",
                "select 1 from a join (b join c on x join d on y) on z",
            ),
            (
                "select 1 from (select 1 from a join b join c on x on y) d join e on z",
                "select 1 from (select 1 from a join (b join c on x) on y) d join e on z",
            ),
            (
                "merge into t using a join b on x on y when matched then delete",
                "merge into t using (a join b on x) on y when matched then delete",
            ),
        ] {
            assert_eq!(read(sql), read(same), "{sql}");
        }
        let plain = "SELECT 1 FROM a JOIN b ON x JOIN c USING(y) LEFT JOIN d ON z";
        assert_eq!(read(plain), plain);
    }
}
