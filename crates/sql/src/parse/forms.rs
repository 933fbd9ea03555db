//! Expressions and clauses in PostgreSQL's own words, told in those that sqlparser takes.
//!
//! | PostgreSQL | becomes |
//! |---|---|
//! | `trim(LEADING FROM x)`, `trim(FROM x)` | `trim(LEADING ' ' FROM x)`, `trim(x)` |
//! | `trim(LEADING x, y)` | `ltrim(x, y)` |
//! | `substring(x SIMILAR p ESCAPE e)` | `substring(x, p, e)` |
//! | `substring(x FOR n FROM m)` | `substring(x FROM m FOR n)` |
//! | `FETCH FIRST (1 + 1) ROWS ONLY` | `LIMIT (1 + 1)` |
//! | `FETCH FIRST (1::int) ROWS WITH TIES` | `FETCH FIRST 1 ROWS WITH TIES` |
//! | `ROWS CURRENT ROW EXCLUDE NO OTHERS` | `ROWS CURRENT ROW`, as it is anyway |
//! | `(ORDER BY a ROWS CURRENT ROW EXCLUDE TIES)` | `(PARTITION BY "<marker>exclude ties" ORDER BY a ROWS CURRENT ROW)`, which [`exclusion_of`] reads |
//! | `CHECK (a > 0) NO INHERIT` | `CHECK (a > 0)`: nothing is inherited |
//! | `ORDER BY x USING >` | `ORDER BY x DESC` |
//! | `int ARRAY`, `varchar(9) ARRAY[3]` | `int[]`, `varchar(9)[3]` |
//! | `NATIONAL CHARACTER (9)`, `NCHAR VARYING (9)` | `CHARACTER (9)`, `CHARACTER VARYING (9)` |
//! | `pg_show_all_settings()` and its like | `pg_settings`, the view of what they give |
//! | `f(a, VARIADIC b || c)` | `f(a, variadic(b || c))`, which PostgreSQL takes too |
//! | `RANGE '1 day'::interval PRECEDING` | `RANGE ('1 day')::interval PRECEDING` |
//! | `ROWS FROM (f(x), g(y))` | `"<marker>rows"(f(x), g(y))`, which [`rows_from`] tells |
//! | `(a int UNIQUE NULLS NOT DISTINCT)` | `(a int, UNIQUE NULLS NOT DISTINCT (a))` |
//! | `INTERVAL (2) '1.234 s'` | `CAST ('1.234 s' AS INTERVAL (2))`: the parser forgets the digits |
//! | `TABLE t ORDER BY a` | `SELECT * FROM t ORDER BY a`: the parser takes two words more for the name |
//! | `a <>-1`, `j->-1` | `a <> -1`, `j -> -1`: an operator does not end in a sign |
//! | `COLLATION FOR (x)` | `pg_collation_for(x)` |
//! | `normalize(x, NFD)` | `normalize(x, 'NFD')` |
//! | `UNIQUE (a) INCLUDE (b, c)` | `UNIQUE (a, b "<marker>include", c "<marker>include")`, which [`keys_and_carried`] tells apart |
//! | `ON CONFLICT (lower(a))` | `ON CONFLICT ("<marker>lower(a)")`, which [`conflict_key`] reads |
//! | `FOREIGN KEY (a, b) ... ON DELETE SET NULL (b)` | `FOREIGN KEY "<marker>b" (a, b) ... ON DELETE SET NULL`, which [`set_columns`] reads |

use super::mend::{MARKER, closing, is_word, keyword, marked, spanned};
use sqlparser::ast::{Ident, IndexColumn, OrderByExpr};
use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::{Token, TokenWithSpan, Word};

/// What there is to mend, found in one pass.
#[derive(Default)]
struct Met {
    trim: bool,
    substring: bool,
    fetch: bool,
    using: bool,
    array: bool,
    rows: bool,
    signs: bool,
    conflict: bool,
    set_columns: bool,
    table: bool,
    interval: bool,
    variadic: bool,
    range: bool,
    exclude: bool,
    no: bool,
    include: bool,
    normal: bool,
    collation: bool,
    system_rows: bool,
    national: bool,
}

impl Met {
    fn of(tokens: &[TokenWithSpan]) -> Met {
        let mut met = Met::default();
        for token in tokens {
            match &token.token {
                Token::CustomBinaryOperator(_) => met.signs = true,
                Token::Word(word) if word.quote_style.is_none() => match word.keyword {
                    Keyword::TRIM => met.trim = true,
                    Keyword::SUBSTRING => met.substring = true,
                    Keyword::FETCH => met.fetch = true,
                    Keyword::USING => met.using = true,
                    Keyword::ARRAY => met.array = true,
                    Keyword::ROWS => met.rows = true,
                    Keyword::CONFLICT => met.conflict = true,
                    Keyword::FOREIGN => met.set_columns = true,
                    Keyword::TABLE => met.table = true,
                    Keyword::INTERVAL => met.interval = true,
                    Keyword::VARIADIC => met.variadic = true,
                    Keyword::PRECEDING | Keyword::FOLLOWING => met.range = true,
                    Keyword::EXCLUDE => met.exclude = true,
                    Keyword::NO => met.no = true,
                    Keyword::INCLUDE => met.include = true,
                    Keyword::COLLATION => met.collation = true,
                    Keyword::NFC | Keyword::NFD | Keyword::NFKC | Keyword::NFKD => met.normal = true,
                    Keyword::NATIONAL => met.national = true,
                    Keyword::NoKeyword if word.value.eq_ignore_ascii_case(NCHAR) => met.national = true,
                    Keyword::NoKeyword if view_behind(word).is_some() => met.system_rows = true,
                    _ => {}
                },
                _ => {}
            }
        }
        met
    }

    fn is_any(&self) -> bool {
        let Met { trim, substring, fetch, using, array, rows, signs, conflict, set_columns, table, interval, .. } =
            *self;
        let Met { variadic, range, exclude, no, include, normal, collation, system_rows, national, .. } = *self;
        let of_calls =
            system_rows || trim || substring || rows || variadic || range || interval || exclude || no || normal;
        of_calls
            || national
            || fetch
            || using
            || array
            || signs
            || conflict
            || set_columns
            || table
            || include
            || collation
    }
}

/// Mends what begins at a place.
type Mend = fn(&mut Vec<TokenWithSpan>, usize);

/// The statement's tokens, without blanks where anything was mended.
pub(super) fn with_plain_forms(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let met = Met::of(&tokens);
    if !met.is_any() {
        return tokens;
    }
    let mut tokens = super::mend::words_of(tokens);
    let mends: [(bool, Mend); 20] = [
        (met.signs, part_sign),
        (met.trim, trim),
        (met.substring, |tokens, at| substring(tokens, at)),
        (met.fetch, fetch),
        (met.using, using),
        (met.array, array_type),
        (met.rows, rows),
        (met.conflict, conflict),
        (met.set_columns, delete_columns),
        (met.table, table),
        (met.interval, interval),
        (met.variadic, variadic),
        (met.range, offset),
        (met.exclude, exclude),
        (met.no, no_inherit),
        (met.include, include),
        (met.normal, |tokens, at| normal_form(tokens, at)),
        (met.collation, collation_for),
        (met.system_rows, system_rows),
        (met.national, national),
    ];
    for (_, mend) in mends.into_iter().filter(|(is_met, _)| *is_met) {
        // From the end, so that places before it stay.
        for at in (0..tokens.len()).rev() {
            mend(&mut tokens, at);
        }
    }
    tokens
}

fn is(tokens: &[TokenWithSpan], at: usize, token: &Token) -> bool {
    tokens.get(at).is_some_and(|t| t.token == *token)
}

fn word(tokens: &[TokenWithSpan], at: usize) -> Keyword {
    keyword(tokens.get(at))
}

fn is_function(tokens: &[TokenWithSpan], at: usize, name: Keyword) -> bool {
    word(tokens, at) == name && is(tokens, at + 1, &Token::LParen)
}

/// The places between `open` and `close` that are in no parenthesis or bracket within.
fn outer(tokens: &[TokenWithSpan], open: usize, close: usize) -> Vec<usize> {
    let mut depth = 0isize;
    let mut places = Vec::new();
    for (at, token) in tokens.iter().enumerate().take(close).skip(open + 1) {
        depth -= isize::from(matches!(token.token, Token::RParen | Token::RBracket));
        if depth == 0 {
            places.push(at);
        }
        depth += isize::from(matches!(token.token, Token::LParen | Token::LBracket));
    }
    places
}

/// Characters that let an operator end in a sign.
const SIGNED: &str = "~!@#%^&|`?";

fn part_sign(tokens: &mut Vec<TokenWithSpan>, at: usize) {
    let Token::CustomBinaryOperator(text) = &tokens[at].token else { return };
    let operator = text.trim_end_matches(['+', '-']);
    let (operator, signs) = match operator.is_empty() {
        true => text.split_at(1),
        false => text.split_at(operator.len()),
    };
    if signs.is_empty() || text.contains(|c| SIGNED.contains(c)) {
        return;
    }
    let operator = match operator {
        "->" => Token::Arrow,
        "->>" => Token::LongArrow,
        "<" => Token::Lt,
        ">" => Token::Gt,
        "=" => Token::Eq,
        "<=" => Token::LtEq,
        ">=" => Token::GtEq,
        "<>" => Token::Neq,
        "<<" => Token::ShiftLeft,
        ">>" => Token::ShiftRight,
        "*" => Token::Mul,
        "/" => Token::Div,
        "+" => Token::Plus,
        "-" => Token::Minus,
        _ => return,
    };
    let sign = |c| if c == '+' { Token::Plus } else { Token::Minus };
    let parts: Vec<Token> = std::iter::once(operator).chain(signs.chars().map(sign)).collect();
    let place = tokens[at].clone();
    tokens.splice(at..=at, parts.into_iter().map(|token| spanned(&place, token)));
}

const NCHAR: &str = "nchar";

/// Every text is of the national characters. NCHAR alone is a type's name to the binder.
fn national(tokens: &mut Vec<TokenWithSpan>, at: usize) {
    match (word(tokens, at), word(tokens, at + 1)) {
        (Keyword::NATIONAL, Keyword::CHAR | Keyword::CHARACTER) => drop(tokens.remove(at)),
        (_, Keyword::VARYING) if is_word(tokens.get(at), NCHAR) => tokens[at].token = Token::make_keyword("CHARACTER"),
        _ => {}
    }
}

fn trim(tokens: &mut Vec<TokenWithSpan>, at: usize) {
    if !is_function(tokens, at, Keyword::TRIM) {
        return;
    }
    let side = word(tokens, at + 2);
    let is_side = matches!(side, Keyword::LEADING | Keyword::TRAILING | Keyword::BOTH);
    let first = at + 2 + usize::from(is_side);
    if word(tokens, first) == Keyword::FROM {
        match is_side {
            true => {
                let place = tokens[first].clone();
                tokens.insert(first, spanned(&place, Token::SingleQuotedString(" ".to_owned())));
            }
            false => drop(tokens.remove(first)),
        }
        return;
    }
    let Some(close) = closing(tokens, at + 1) else { return };
    let commas = outer(tokens, at + 1, close).into_iter().filter(|&i| tokens[i].token == Token::Comma).count();
    if is_side && commas > 0 {
        let name = match side {
            Keyword::LEADING => "ltrim",
            Keyword::TRAILING => "rtrim",
            _ => "btrim",
        };
        tokens[at].token = Token::make_word(name, None);
        tokens.remove(at + 2);
    }
}

fn substring(tokens: &mut [TokenWithSpan], at: usize) {
    if !is_function(tokens, at, Keyword::SUBSTRING) {
        return;
    }
    let Some(close) = closing(tokens, at + 1) else { return };
    let places = outer(tokens, at + 1, close);
    let find = |wanted: Keyword| places.iter().copied().find(|&i| word(tokens, i) == wanted);
    let similar = find(Keyword::SIMILAR).filter(|&i| word(tokens, i + 1) != Keyword::TO);
    if let (Some(similar), Some(escape)) = (similar, find(Keyword::ESCAPE)) {
        tokens[similar].token = Token::Comma;
        tokens[escape].token = Token::Comma;
        return;
    }
    if let (Some(length), Some(from)) = (find(Keyword::FOR), find(Keyword::FROM))
        && length < from
    {
        tokens[length..close].rotate_left(from - length);
    }
}

fn fetch(tokens: &mut Vec<TokenWithSpan>, at: usize) {
    let is_fetch = word(tokens, at) == Keyword::FETCH
        && matches!(word(tokens, at + 1), Keyword::FIRST | Keyword::NEXT)
        && is(tokens, at + 2, &Token::LParen);
    if !is_fetch {
        return;
    }
    let Some(close) = closing(tokens, at + 2) else { return };
    let is_plain =
        matches!(word(tokens, close + 1), Keyword::ROW | Keyword::ROWS) && word(tokens, close + 2) == Keyword::ONLY;
    if is_plain {
        tokens.drain(close + 1..close + 3);
        tokens[at].token = Token::make_keyword("LIMIT");
        tokens.remove(at + 1);
        return;
    }
    // The grammar wants a number here; a cast changes none.
    let is_number = matches!(tokens[at + 3].token, Token::Number(..) | Token::Placeholder(_));
    if is_number && (close == at + 4 || close == at + 6 && is(tokens, at + 4, &Token::DoubleColon)) {
        tokens.drain(at + 4..=close);
        tokens.remove(at + 2);
    }
}

/// Behind a frame, whose last word is one of these.
fn is_exclusion(tokens: &[TokenWithSpan], at: usize) -> bool {
    use Keyword::{EXCLUDE, FOLLOWING, PRECEDING, ROW};
    word(tokens, at) == EXCLUDE && at > 0 && matches!(word(tokens, at - 1), ROW | PRECEDING | FOLLOWING)
}

const EXCLUDE: &str = "exclude ";

fn exclude(tokens: &mut Vec<TokenWithSpan>, at: usize) {
    if !is_exclusion(tokens, at) {
        return;
    }
    let (what, width) = match (word(tokens, at + 1), word(tokens, at + 2)) {
        (Keyword::NO, _) if is_word(tokens.get(at + 2), "others") => return drop(tokens.drain(at..at + 3)),
        (Keyword::CURRENT, Keyword::ROW) => ("row", 3),
        (Keyword::GROUP, _) => ("group", 2),
        _ if is_word(tokens.get(at + 1), "ties") => ("ties", 2),
        _ => return,
    };
    let mut depth = 0usize;
    let opens = |token: &TokenWithSpan| {
        match token.token {
            Token::RParen => depth += 1,
            Token::LParen if depth == 0 => return true,
            Token::LParen => depth -= 1,
            _ => {}
        }
        false
    };
    let Some(open) = tokens[..at].iter().rposition(opens) else { return };
    let place = tokens[at].clone();
    tokens.drain(at..at + width);
    let begins = |at: usize| {
        use Keyword::{GROUPS, ORDER, PARTITION, RANGE, ROWS};
        matches!(word(tokens, at), PARTITION | ORDER | ROWS | RANGE | GROUPS)
    };
    // The name of the window that it takes over comes first.
    let first = if begins(open + 1) { open + 1 } else { open + 2 };
    let marker = spanned(&place, marked(&format!("{EXCLUDE}{what}")));
    if word(tokens, first) == Keyword::PARTITION && word(tokens, first + 1) == Keyword::BY {
        tokens.splice(first + 2..first + 2, [marker, spanned(&place, Token::Comma)]);
    } else {
        let words = ["PARTITION", "BY"].map(|word| spanned(&place, Token::make_keyword(word)));
        tokens.splice(first..first, words.into_iter().chain([marker]));
    }
}

/// A text as its tree writes it, with what frames leave out behind them.
fn with_exclusions(mut text: String) -> String {
    let marked = format!("\"{MARKER}{EXCLUDE}");
    while let Some(at) = text.find(&marked) {
        let what = at + marked.len();
        let Some(length) = text[what..].find('"') else { break };
        let words = match &text[what..what + length] {
            "row" => " EXCLUDE CURRENT ROW",
            "group" => " EXCLUDE GROUP",
            _ => " EXCLUDE TIES",
        };
        let end = what + length + 1;
        let Some(close) = window_end(&text, end) else { break };
        text.insert_str(close, words);
        const ALONE: &str = "PARTITION BY ";
        match text[end..].starts_with(", ") {
            true => text.replace_range(at..end + 2, ""),
            false => text.replace_range(at - ALONE.len()..end + usize::from(text[end..].starts_with(' ')), ""),
        }
    }
    text
}

/// Where the parenthesis closes that is open here.
fn window_end(text: &str, from: usize) -> Option<usize> {
    let (mut depth, mut quote) = (0usize, None);
    for (at, byte) in text.bytes().enumerate().skip(from) {
        match (quote, byte) {
            (Some(open), _) if byte == open => quote = None,
            (Some(_), _) => {}
            (None, b'\'' | b'"') => quote = Some(byte),
            (None, b'(') => depth += 1,
            (None, b')') if depth == 0 => return Some(at),
            (None, b')') => depth -= 1,
            _ => {}
        }
    }
    None
}

#[cfg(feature = "query")]
/// Which rows a window's frame leaves out, if that is what stands among those by which it is parted: `row`, `group` or `ties`.
pub fn exclusion_of(part: &sqlparser::ast::Expr) -> Option<&str> {
    let sqlparser::ast::Expr::Identifier(ident) = part else { return None };
    ident.value.strip_prefix(MARKER)?.strip_prefix(EXCLUDE)
}

fn no_inherit(tokens: &mut Vec<TokenWithSpan>, at: usize) {
    let is_option = word(tokens, at) == Keyword::NO && is_word(tokens.get(at + 1), "inherit");
    if is_option && at > 0 && is(tokens, at - 1, &Token::RParen) {
        tokens.drain(at..at + 2);
    }
}

/// A form's name at the end of the arguments of `normalize`.
fn normal_form(tokens: &mut [TokenWithSpan], at: usize) {
    let is_form = matches!(word(tokens, at), Keyword::NFC | Keyword::NFD | Keyword::NFKC | Keyword::NFKD);
    let is_last = at > 0 && is(tokens, at - 1, &Token::Comma) && is(tokens, at + 1, &Token::RParen);
    if !is_form || !is_last {
        return;
    }
    let is_open = |&open: &usize| is(tokens, open, &Token::LParen) && closing(tokens, open) == Some(at + 1);
    let open = (1..at).rev().find(is_open);
    if open.is_some_and(|open| is_word(tokens.get(open - 1), "normalize")) {
        tokens[at].token = Token::SingleQuotedString(tokens[at].token.to_string().to_uppercase());
    }
}

fn collation_for(tokens: &mut Vec<TokenWithSpan>, at: usize) {
    let is_form = word(tokens, at) == Keyword::COLLATION
        && word(tokens, at + 1) == Keyword::FOR
        && is(tokens, at + 2, &Token::LParen);
    if is_form {
        tokens[at].token = Token::make_word("pg_collation_for", None);
        tokens.remove(at + 1);
    }
}

const CARRIED: &str = "include";

/// Behind the columns of a key, or of an index that is made.
fn include(tokens: &mut Vec<TokenWithSpan>, at: usize) {
    let is_list = word(tokens, at) == Keyword::INCLUDE && at > 0 && is(tokens, at - 1, &Token::RParen);
    if !is_list || !is(tokens, at + 1, &Token::LParen) {
        return;
    }
    let is_open = |&open: &usize| is(tokens, open, &Token::LParen) && closing(tokens, open) == Some(at - 1);
    let Some(open) = (1..at).rev().find(is_open) else { return };
    let of_key = match word(tokens, open - 1) {
        Keyword::UNIQUE | Keyword::DISTINCT => true,
        Keyword::KEY => open > 1 && word(tokens, open - 2) == Keyword::PRIMARY,
        _ => false,
    };
    let of_index =
        word(tokens, 0) == Keyword::CREATE && [1, 2].iter().any(|&second| word(tokens, second) == Keyword::INDEX);
    let Some(close) = closing(tokens, at + 1).filter(|close| (of_key || of_index) && close - at > 2) else { return };
    let mut ends: Vec<usize> =
        outer(tokens, at + 1, close).into_iter().filter(|&i| is(tokens, i, &Token::Comma)).collect();
    ends.push(close);
    for end in ends.into_iter().rev() {
        let nulls = is_word(tokens.get(end - 2), "nulls");
        let end = end - if nulls { 2 } else { 0 };
        let end = end - usize::from(matches!(word(tokens, end - 1), Keyword::ASC | Keyword::DESC));
        let carried = spanned(&tokens[end - 1], marked(CARRIED));
        // A column may be called like a type, of which a literal would follow.
        if let Token::Word(name) = &mut tokens[end - 1].token
            && name.quote_style.is_none()
        {
            *name = Word { value: name.value.to_lowercase(), quote_style: Some('"'), keyword: Keyword::NoKeyword };
        }
        tokens.insert(end, carried);
    }
    tokens.remove(at + 1);
    tokens[at - 1].token = Token::Comma;
    tokens.remove(at);
}

/// The columns that order an index, and those that INCLUDE names.
pub fn keys_and_carried(columns: &[IndexColumn]) -> (Vec<IndexColumn>, Vec<OrderByExpr>) {
    let is_carried = |column: &&IndexColumn| {
        let class = column.operator_class.as_ref().and_then(|class| class.0.first()?.as_ident());
        class.is_some_and(|class| class.value.strip_prefix(MARKER) == Some(CARRIED))
    };
    let (carried, keys): (Vec<&IndexColumn>, Vec<&IndexColumn>) = columns.iter().partition(is_carried);
    (keys.into_iter().cloned().collect(), carried.into_iter().map(|column| column.column.clone()).collect())
}

fn using(tokens: &mut Vec<TokenWithSpan>, at: usize) {
    if word(tokens, at) != Keyword::USING {
        return;
    }
    let direction = match tokens.get(at + 1).map(|t| &t.token) {
        Some(Token::Lt) => "ASC",
        Some(Token::Gt) => "DESC",
        _ => return,
    };
    tokens[at].token = Token::make_keyword(direction);
    tokens.remove(at + 1);
}

/// The view that shows what a function of PostgreSQL's gives.
fn view_behind(word: &Word) -> Option<&'static str> {
    const VIEWS: [(&str, &str); 4] = [
        ("pg_cursor", "pg_cursors"),
        ("pg_lock_status", "pg_locks"),
        ("pg_prepared_statement", "pg_prepared_statements"),
        ("pg_show_all_settings", "pg_settings"),
    ];
    VIEWS.iter().find(|(function, _)| word.value.eq_ignore_ascii_case(function)).map(|(_, view)| *view)
}

fn system_rows(tokens: &mut Vec<TokenWithSpan>, at: usize) {
    let Token::Word(word) = &tokens[at].token else { return };
    let Some(view) = view_behind(word) else { return };
    if is(tokens, at + 1, &Token::LParen) && is(tokens, at + 2, &Token::RParen) {
        tokens[at].token = Token::make_word(view, word.quote_style);
        tokens.drain(at + 1..at + 3);
    }
}

/// Behind a type's name; a constructor stands behind none.
fn array_type(tokens: &mut Vec<TokenWithSpan>, at: usize) {
    if word(tokens, at) != Keyword::ARRAY || at == 0 || is(tokens, at + 1, &Token::LParen) {
        return;
    }
    let of_type = match &tokens[at - 1].token {
        Token::Word(word) => word.quote_style.is_some() || is_type(word) || word.keyword == Keyword::NoKeyword,
        Token::RParen => has_modifier(&tokens[..at]),
        _ => false,
    };
    if !of_type {
        return;
    }
    if is(tokens, at + 1, &Token::LBracket) {
        let has_length = matches!(tokens.get(at + 2).map(|t| &t.token), Some(Token::Number(..)))
            && is(tokens, at + 3, &Token::RBracket);
        if has_length {
            tokens.remove(at);
        }
        return;
    }
    let place = tokens[at].clone();
    tokens.splice(at..=at, [Token::LBracket, Token::RBracket].map(|token| spanned(&place, token)));
}

/// Whether a type with numbers in parentheses is the last of these, as `numeric(5, 2)` is.
fn has_modifier(tokens: &[TokenWithSpan]) -> bool {
    let Some(open) = tokens.iter().rposition(|token| token.token == Token::LParen) else { return false };
    let is_number = |token: &TokenWithSpan| matches!(token.token, Token::Number(..) | Token::Comma | Token::Minus);
    let modifier = &tokens[open + 1..tokens.len() - 1];
    let of = open.checked_sub(1).map(|at| &tokens[at].token);
    !modifier.is_empty() && modifier.iter().all(is_number) && matches!(of, Some(Token::Word(word)) if is_type(word))
}

fn is_type(word: &Word) -> bool {
    use Keyword as K;
    matches!(
        word.keyword,
        K::INT
            | K::INTEGER
            | K::SMALLINT
            | K::BIGINT
            | K::INT2
            | K::INT4
            | K::INT8
            | K::TEXT
            | K::VARCHAR
            | K::CHAR
            | K::BOOLEAN
            | K::BOOL
            | K::NUMERIC
            | K::DECIMAL
            | K::REAL
            | K::FLOAT4
            | K::FLOAT8
            | K::PRECISION
            | K::VARYING
            | K::CHARACTER
            | K::DATE
            | K::TIME
            | K::ZONE
            | K::INTERVAL
            | K::TIMESTAMP
            | K::TIMESTAMPTZ
            | K::UUID
            | K::BYTEA
            | K::JSON
            | K::JSONB
    )
}

/// `INTERVAL (n) 'text'`.
fn interval(tokens: &mut Vec<TokenWithSpan>, at: usize) {
    const WIDTH: usize = 4;
    if word(tokens, at) != Keyword::INTERVAL || tokens.len() <= at + WIDTH {
        return;
    }
    let [open, Token::Number(..), close, text] = [1, 2, 3, 4].map(|i| &tokens[at + i].token) else { return };
    let is_text = matches!(text, Token::SingleQuotedString(_) | Token::EscapedStringLiteral(_));
    if !(*open == Token::LParen && *close == Token::RParen && is_text) {
        return;
    }
    let mut typed: Vec<TokenWithSpan> = tokens[at..=at + WIDTH].to_vec();
    let text = typed.pop().expect("the text is the last");
    let ends = spanned(&text, Token::RParen);
    let (first, of) = (spanned(&typed[0], Token::make_keyword("CAST")), spanned(&text, Token::make_keyword("AS")));
    let opens = spanned(&typed[0], Token::LParen);
    tokens.splice(at..=at + WIDTH, [first, opens, text, of].into_iter().chain(typed).chain([ends]));
}

const ROWS: &str = "rows";

fn rows(tokens: &mut Vec<TokenWithSpan>, at: usize) {
    let is_rows = word(tokens, at) == Keyword::ROWS
        && word(tokens, at + 1) == Keyword::FROM
        && is(tokens, at + 2, &Token::LParen);
    if is_rows {
        tokens[at].token = marked(ROWS);
        tokens.remove(at + 1);
    }
}

/// A definition as its tree writes it, with PostgreSQL's words again for what stands in marked names.
pub fn in_own_words(shown: &str) -> String {
    let text = with_exclusions(shown.replace(&format!("\"{MARKER}{ROWS}\"("), "ROWS FROM ("));
    let mut text = super::joins::in_own_words(super::groups::in_own_words(&super::fields::in_own_words(text)));
    let marked = format!(" OF \"{MARKER}");
    while let Some(at) = text.find(&marked) {
        let words = at + marked.len();
        let (Some(start), Some(length)) = (text[..at].rfind("FOR "), text[words..].find('"')) else { break };
        let mut end = words + length + 1;
        let mut tables = Vec::new();
        while let Some(rest) = text[end..].strip_prefix('.') {
            let is_quoted = rest.starts_with('"');
            let behind = |c: char| if is_quoted { c == '"' } else { !c.is_alphanumeric() && c != '_' };
            let length = rest.char_indices().skip(1).find(|(_, c)| behind(*c)).map_or(rest.len(), |(at, _)| at);
            let length = (length + usize::from(is_quoted)).min(rest.len());
            tables.push(rest[..length].to_owned());
            end += 1 + length;
        }
        let of = if tables.is_empty() { String::new() } else { format!(" OF {}", tables.join(", ")) };
        let lock = format!("FOR {}{of}", &text[words..words + length]);
        text.replace_range(start..end, &lock);
    }
    text
}

#[cfg(feature = "query")]
/// Whether the function stands for the functions that are its arguments, side by side.
pub fn rows_from(name: &sqlparser::ast::ObjectName) -> bool {
    name.0.first().and_then(|part| part.as_ident()).and_then(|ident| ident.value.strip_prefix(MARKER)) == Some(ROWS)
}

fn conflict(tokens: &mut Vec<TokenWithSpan>, at: usize) {
    let is_conflict = word(tokens, at) == Keyword::CONFLICT
        && at > 0
        && word(tokens, at - 1) == Keyword::ON
        && is(tokens, at + 1, &Token::LParen);
    if !is_conflict {
        return;
    }
    let Some(close) = closing(tokens, at + 1) else { return };
    let commas = outer(tokens, at + 1, close).into_iter().filter(|&i| tokens[i].token == Token::Comma);
    let mut ends: Vec<usize> = commas.chain([close]).collect();
    ends.reverse();
    for (i, &end) in ends.iter().enumerate() {
        let start = ends.get(i + 1).map_or(at + 2, |before| before + 1);
        // A column alone is one already.
        if end <= start + 1 {
            continue;
        }
        let text: Vec<String> = tokens[start..end].iter().map(|t| text_of(&t.token)).collect();
        let place = tokens[start].clone();
        tokens.splice(start..end, [spanned(&place, marked(&text.join(" ")))]);
    }
}

fn text_of(token: &Token) -> String {
    match token {
        Token::SingleQuotedString(text) | Token::EscapedStringLiteral(text) => {
            format!("'{}'", text.replace('\'', "''"))
        }
        other => other.to_string(),
    }
}

/// An array in place of a function's last arguments.
fn variadic(tokens: &mut Vec<TokenWithSpan>, at: usize) {
    let is_argument = at > 0 && (is(tokens, at - 1, &Token::LParen) || is(tokens, at - 1, &Token::Comma));
    if word(tokens, at) != Keyword::VARIADIC || !is_argument {
        return;
    }
    let mut depth = 0isize;
    let end = (at + 1..tokens.len()).find(|&i| {
        depth += match tokens[i].token {
            Token::LParen => 1,
            Token::RParen => -1,
            _ => 0,
        };
        depth < 0
    });
    let Some(end) = end else { return };
    // Printed, and read again.
    if is(tokens, at + 1, &Token::LParen) && closing(tokens, at + 1) == Some(end - 1) {
        return;
    }
    let place = tokens[at].clone();
    tokens.insert(end, spanned(&place, Token::RParen));
    tokens.insert(at + 1, spanned(&place, Token::LParen));
}

/// The grammar takes a literal at the beginning of a frame's bound for all of it.
fn offset(tokens: &mut Vec<TokenWithSpan>, at: usize) {
    use Keyword::{AND, BETWEEN, GROUPS, RANGE, ROWS};
    let is_cast = is(tokens, at, &Token::DoubleColon)
        && at > 1
        && matches!(tokens[at - 1].token, Token::SingleQuotedString(_))
        && matches!(word(tokens, at - 2), AND | BETWEEN | GROUPS | RANGE | ROWS);
    let ends = |i: usize| matches!(word(tokens, i), Keyword::PRECEDING | Keyword::FOLLOWING);
    if is_cast && (at + 2..at + 8).any(ends) {
        let place = tokens[at - 1].clone();
        tokens.insert(at, spanned(&place, Token::RParen));
        tokens.insert(at - 1, spanned(&place, Token::LParen));
    }
}

fn table(tokens: &mut Vec<TokenWithSpan>, at: usize) {
    use Keyword::{ALL, EXCEPT, INTERSECT, UNION};
    let stands = at == 0
        || is(tokens, at - 1, &Token::LParen)
        || matches!(word(tokens, at - 1), UNION | EXCEPT | INTERSECT)
        || word(tokens, at - 1) == ALL && at > 1 && matches!(word(tokens, at - 2), UNION | EXCEPT | INTERSECT);
    let is_named = matches!(tokens.get(at + 1).map(|t| &t.token), Some(Token::Word(_)));
    if word(tokens, at) == Keyword::TABLE && stands && is_named {
        let place = tokens[at].clone();
        let all = [Token::make_keyword("SELECT"), Token::Mul, Token::make_keyword("FROM")];
        tokens.splice(at..=at, all.map(|token| spanned(&place, token)));
    }
}

/// What ON CONFLICT names that is more than a column, as it was written.
pub fn conflict_key(name: &Ident) -> Option<&str> {
    name.value.strip_prefix(MARKER)
}

fn delete_columns(tokens: &mut Vec<TokenWithSpan>, at: usize) {
    let sets = word(tokens, at) == Keyword::SET
        && matches!(word(tokens, at + 1), Keyword::NULL | Keyword::DEFAULT)
        && is(tokens, at + 2, &Token::LParen)
        && at > 1
        && word(tokens, at - 1) == Keyword::DELETE
        && word(tokens, at - 2) == Keyword::ON;
    if !sets {
        return;
    }
    let Some(close) = closing(tokens, at + 2) else { return };
    let names: Vec<String> = tokens[at + 3..close].iter().map(|t| t.token.to_string()).collect();
    let key = (0..at).rev().find(|&i| word(tokens, i) == Keyword::FOREIGN && word(tokens, i + 1) == Keyword::KEY);
    let Some(key) = key.filter(|key| is(tokens, key + 2, &Token::LParen)) else { return };
    tokens.drain(at + 2..=close);
    let place = tokens[key].clone();
    tokens.insert(key + 2, spanned(&place, marked(&names.concat())));
}

/// The columns that ON DELETE SET NULL or SET DEFAULT names, as they were written.
pub fn set_columns(name: &Ident) -> Option<&str> {
    name.value.strip_prefix(MARKER)
}

/// A part of CREATE TABLE: the columns of another table.
pub struct Like<'a> {
    /// What is included beyond names, types and NOT NULL, in small letters.
    pub included: Vec<&'a str>,
}

/// The parts of a table that LIKE can take along, as INCLUDING calls them.
pub const LIKE_PARTS: [&str; 6] = ["defaults", "constraints", "generated", "identity", "indexes", "comments"];
const LIKE_NOTHING: [&str; 3] = ["storage", "statistics", "compression"];

/// `LIKE t INCLUDING ...` among the columns of CREATE TABLE becomes a column called `"<marker>like defaults ..."` of a type called `t`.
pub(super) fn like_columns(tokens: &mut Vec<TokenWithSpan>, open: usize) {
    let Some(close) = closing(tokens, open) else { return };
    let commas = outer(tokens, open, close).into_iter().filter(|&i| tokens[i].token == Token::Comma);
    let mut ends: Vec<usize> = commas.chain([close]).collect();
    ends.reverse();
    for (i, &end) in ends.iter().enumerate() {
        let start = ends.get(i + 1).map_or(open + 1, |before| before + 1);
        if word(tokens, start) != Keyword::LIKE {
            continue;
        }
        let mut at = start + 1;
        let mut name = Vec::new();
        while at < end && matches!(tokens[at].token, Token::Word(_) | Token::Period) {
            let is_option = matches!(word(tokens, at), Keyword::INCLUDING | Keyword::EXCLUDING);
            if is_option {
                break;
            }
            name.push(as_name(&tokens[at]));
            at += 1;
        }
        let Some(included) = like_options(&tokens[at..end]) else { continue };
        let place = tokens[start].clone();
        let column = spanned(&place, marked(&format!("like {}", included.join(" "))));
        tokens.splice(start..end, std::iter::once(column).chain(name));
    }
}

/// `a int [CONSTRAINT c] UNIQUE NULLS NOT DISTINCT` of a column is said of the table.
pub(super) fn strict_columns(tokens: &mut Vec<TokenWithSpan>, open: usize) {
    let Some(close) = closing(tokens, open) else { return };
    let mut said = Vec::new();
    for at in outer(tokens, open, close).into_iter().rev() {
        let is_strict = word(tokens, at) == Keyword::UNIQUE
            && is_word(tokens.get(at + 1), "nulls")
            && word(tokens, at + 2) == Keyword::NOT
            && word(tokens, at + 3) == Keyword::DISTINCT
            && tokens.get(at + 4).is_some_and(|t| t.token != Token::LParen);
        if !is_strict {
            continue;
        }
        let column =
            outer(tokens, open, at).into_iter().rfind(|&i| tokens[i].token == Token::Comma).unwrap_or(open) + 1;
        let is_named = at > column + 2 && word(tokens, at - 2) == Keyword::CONSTRAINT;
        let name = tokens[column].clone();
        let start = if is_named { at - 2 } else { at };
        let end = deferral_end(tokens, at + 4);
        let mut constraint: Vec<TokenWithSpan> = tokens.drain(start..end).collect();
        let deferral = constraint.split_off(at + 4 - start);
        let place = |token| spanned(&name, token);
        let list = [place(Token::LParen), name.clone(), place(Token::RParen)];
        let words = constraint.into_iter().chain(list).chain(deferral);
        said.insert(0, [place(Token::Comma)].into_iter().chain(words).collect::<Vec<_>>());
    }
    if let (false, Some(close)) = (said.is_empty(), closing(tokens, open)) {
        tokens.splice(close..close, said.into_iter().flatten());
    }
}

/// Where `[NOT] DEFERRABLE INITIALLY {DEFERRED | IMMEDIATE}` ends, if it begins here.
fn deferral_end(tokens: &[TokenWithSpan], from: usize) -> usize {
    let mut at = from;
    loop {
        at += match (word(tokens, at), word(tokens, at + 1)) {
            (Keyword::NOT, Keyword::DEFERRABLE) => 2,
            (Keyword::INITIALLY, Keyword::DEFERRED | Keyword::IMMEDIATE) => 2,
            (Keyword::DEFERRABLE, _) => 1,
            _ => return at,
        };
    }
}

/// `ADD [COLUMN] a int [CONSTRAINT c] UNIQUE NULLS NOT DISTINCT` adds the constraint after the column.
pub(super) fn strict_added(tokens: &mut Vec<TokenWithSpan>, at: usize) {
    let is_strict = word(tokens, at) == Keyword::UNIQUE
        && is_word(tokens.get(at + 1), "nulls")
        && word(tokens, at + 2) == Keyword::NOT
        && word(tokens, at + 3) == Keyword::DISTINCT
        && !is(tokens, at + 4, &Token::LParen);
    let actions = (0..at).rev().find(|&i| word(tokens, i) == Keyword::ADD);
    let Some(add) = actions.filter(|_| is_strict) else { return };
    let column = add + 1 + usize::from(word(tokens, add + 1) == Keyword::COLUMN);
    if word(tokens, column) == Keyword::IF || column + 1 >= at {
        return;
    }
    let is_named = at > column + 2 && word(tokens, at - 2) == Keyword::CONSTRAINT;
    let (name, start, end) = (tokens[column].clone(), if is_named { at - 2 } else { at }, deferral_end(tokens, at + 4));
    let mut constraint: Vec<TokenWithSpan> = tokens.drain(start..end).collect();
    let deferral = constraint.split_off(at + 4 - start);
    let next = outer(tokens, start - 1, tokens.len()).into_iter().find(|&i| is(tokens, i, &Token::Comma));
    let place = |token| spanned(&name, token);
    let list = [place(Token::LParen), name.clone(), place(Token::RParen)];
    let words = [place(Token::Comma), place(Token::make_keyword("ADD"))].into_iter().chain(constraint);
    let words: Vec<TokenWithSpan> = words.chain(list).chain(deferral).collect();
    let end = next.unwrap_or(tokens.len());
    tokens.splice(end..end, words);
}

/// A name's part in quotes: `date` is no type here.
fn as_name(token: &TokenWithSpan) -> TokenWithSpan {
    match &token.token {
        Token::Word(word) if word.quote_style.is_none() => {
            let word = Word { value: word.value.to_lowercase(), quote_style: Some('"'), keyword: Keyword::NoKeyword };
            spanned(token, Token::Word(word))
        }
        _ => token.clone(),
    }
}

/// What INCLUDING and EXCLUDING leave of the parts; `None`: they are written otherwise.
fn like_options(tokens: &[TokenWithSpan]) -> Option<Vec<&'static str>> {
    let mut included: Vec<&'static str> = Vec::new();
    if !tokens.len().is_multiple_of(2) {
        return None;
    }
    for option in tokens.chunks(2) {
        let includes = match keyword(option.first()) {
            Keyword::INCLUDING => true,
            Keyword::EXCLUDING => false,
            _ => return None,
        };
        let named = |part: &&str| is_word(option.get(1), part) || is_word(option.get(1), "all");
        let parts = LIKE_PARTS.into_iter().filter(named);
        let parts: Vec<&str> = parts.collect();
        if parts.is_empty() && !LIKE_NOTHING.iter().any(|part| is_word(option.get(1), part)) {
            return None;
        }
        included.retain(|part| !parts.contains(part));
        if includes {
            included.extend(parts);
        }
    }
    Some(included)
}

/// What a column of CREATE TABLE stands for, if it is LIKE.
pub fn like_of(name: &Ident) -> Option<Like<'_>> {
    let text = name.value.strip_prefix(MARKER)?.strip_prefix("like")?;
    Some(Like { included: text.split_whitespace().collect() })
}
