//! Parts of columns as targets, which sqlparser does not take.
//!
//! | PostgreSQL | becomes |
//! |---|---|
//! | `SET a[1] = value` | `SET a = "<marker>element"(value, 1)` |
//! | `SET a[1:2] = value` | `SET a = "<marker>slice"(value, 1, 2)` |
//! | `SET a[:2] = value` | `SET a = "<marker>slice"(value, "<marker>open", 2)` |
//! | `INSERT INTO t (a[1], a[2]) VALUES (x, y)` | `INSERT INTO t (a) VALUES ("<marker>parts"("<marker>element"(x, 1), "<marker>element"(y, 2)))` |

use super::grammar::call_of;
use super::mend::{MARKER, keyword, marked, spanned};
use crate::bind::from::is_bare;
use crate::bind::scope::fold;
use crate::error::SqlError;
use sqlparser::ast::{
    Expr, FunctionArg, FunctionArgExpr, FunctionArgumentList, FunctionArguments, Ident, Insert, ObjectName,
    ObjectNamePart, SetExpr, Statement, VisitMut, VisitorMut,
};
use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::{Token, TokenWithSpan};
use std::ops::ControlFlow;

const ELEMENT: &str = "element";
const SLICE: &str = "slice";
/// A bound that a slice leaves open.
const OPEN: &str = "open";
/// What an INSERT gives the parts of one column.
const PARTS: &str = "parts";

/// What is assigned to a part of a column.
pub struct Part<'a> {
    pub value: &'a Expr,
    /// One for each dimension or level, of a slice its two bounds; `None`: such a bound is open.
    pub subscripts: Vec<Option<&'a Expr>>,
    pub is_slice: bool,
}

/// The part of its column that a value is for; `None`: it is for all of it.
pub fn part_of(value: &Expr) -> Option<Part<'_>> {
    let (name, args) = marked_call(value)?;
    let mut args = args.into_iter();
    let is_open = |expr: &Expr| matches!(expr, Expr::Identifier(name) if name.value.strip_prefix(MARKER) == Some(OPEN));
    Some(Part {
        value: args.next()?,
        subscripts: args.map(|bound| (!is_open(bound)).then_some(bound)).collect(),
        is_slice: name == SLICE,
    })
}

/// The parts of its column that an INSERT's value is for.
pub fn parts_of(value: &Expr) -> Option<Vec<Part<'_>>> {
    let (name, parts) = marked_call(value)?;
    if name != PARTS {
        return None;
    }
    parts.into_iter().map(part_of).collect()
}

fn marked_call(value: &Expr) -> Option<(&str, Vec<&Expr>)> {
    let Expr::Function(function) = value else { return None };
    let name = function.name.0.first()?.as_ident()?.value.strip_prefix(MARKER)?;
    let FunctionArguments::List(list) = &function.args else { return None };
    let plain = |arg| match arg {
        &FunctionArg::Unnamed(FunctionArgExpr::Expr(ref expr)) => Some(expr),
        _ => None,
    };
    Some((name, list.args.iter().filter_map(plain).collect()))
}

/// The statement's tokens without blanks, with calls for what is assigned to parts.
pub(super) fn with_parts(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let mut mended = Vec::with_capacity(tokens.len());
    let mut at = 0;
    while at < tokens.len() {
        let begins = keyword(tokens.get(at)) == Keyword::SET;
        let inserts = keyword(tokens.get(at)) == Keyword::INSERT && keyword(tokens.get(at + 1)) == Keyword::INTO;
        mended.push(tokens[at].clone());
        at += 1;
        if inserts {
            at = targets(&tokens, at, &mut mended);
        }
        if !begins {
            continue;
        }
        at = assignment(&tokens, at, &mut mended);
        while tokens.get(at).is_some_and(|t| t.token == Token::Comma) {
            mended.push(tokens[at].clone());
            at = assignment(&tokens, at + 1, &mut mended);
        }
    }
    mended
}

/// Writes an INSERT's targets up to the end of their list, of which `a[1]` becomes `a."<marker>element(NULL, 1)"`; gives where it ends.
fn targets(tokens: &[TokenWithSpan], at: usize, mended: &mut Vec<TokenWithSpan>) -> usize {
    let ends = |t: &TokenWithSpan| t.token == Token::LParen || !matches!(t.token, Token::Word(_) | Token::Period);
    let open = tokens.iter().enumerate().skip(at).find(|(at, t)| *at > 0 && ends(t)).map(|(at, _)| at);
    let Some((open, close)) = open.and_then(|open| Some((open, closing(tokens, open)?))) else { return at };
    if tokens[open].token != Token::LParen {
        return at;
    }
    mended.extend_from_slice(&tokens[at..=open]);
    let mut next = open + 1;
    while next < close {
        let place = &tokens[next];
        mended.push(place.clone());
        let (subscripts, end) = subscripts(tokens, next + 1, close);
        if let Some((name, bounds)) = with_bounds(&subscripts).filter(|_| matches!(place.token, Token::Word(_))) {
            let bounds = bounds.iter().map(|bound| format!(", {}", text_of(bound)));
            let call = format!("{name}\"(NULL{})", bounds.collect::<String>());
            mended.extend([spanned(place, Token::Period), spanned(place, marked(&call))]);
            next = end;
        } else {
            next += 1;
        }
    }
    mended.push(tokens[close].clone());
    close + 1
}

fn text_of(tokens: &[TokenWithSpan]) -> String {
    let texts: Vec<String> = tokens.iter().map(|t| t.token.to_string()).collect();
    texts.join(" ")
}

/// The subscripts that begin here, and where they end.
fn subscripts(tokens: &[TokenWithSpan], mut at: usize, end: usize) -> (Vec<&[TokenWithSpan]>, usize) {
    let mut subscripts: Vec<&[TokenWithSpan]> = Vec::new();
    while tokens.get(at).is_some_and(|t| t.token == Token::LBracket) {
        let Some(close) = closing(tokens, at).filter(|&close| close < end) else { break };
        subscripts.push(&tokens[at + 1..close]);
        at = close + 1;
    }
    (subscripts, at)
}

/// Which part of a column the subscripts mean: its name here, and its subscripts or bounds; `None`: there are none.
fn with_bounds(subscripts: &[&[TokenWithSpan]]) -> Option<(&'static str, Vec<Vec<TokenWithSpan>>)> {
    let whole = subscripts.first()?.first()?;
    if subscripts.iter().any(|subscript| subscript.is_empty()) {
        return None;
    }
    if !subscripts.iter().any(|subscript| colon_of(subscript).is_some()) {
        return Some((ELEMENT, subscripts.iter().map(|subscript| subscript.to_vec()).collect()));
    }
    let open = || vec![spanned(whole, marked(OPEN))];
    let or_open = |bound: &[TokenWithSpan]| if bound.is_empty() { open() } else { bound.to_vec() };
    let mut bounds = Vec::new();
    for subscript in subscripts {
        match colon_of(subscript) {
            Some(colon) => bounds.extend([or_open(&subscript[..colon]), or_open(&subscript[colon + 1..])]),
            // Among slices a number alone is where one ends that begins at 1.
            None => {
                let one = spanned(whole, Token::Number("1".to_owned(), false));
                bounds.extend([vec![one], subscript.to_vec()]);
            }
        }
    }
    Some((SLICE, bounds))
}

/// Writes the assignment that begins here; gives where it ends.
fn assignment(tokens: &[TokenWithSpan], at: usize, mended: &mut Vec<TokenWithSpan>) -> usize {
    let end = value_end(tokens, at);
    let Some((name, bounds, value)) = parts(tokens, at, end) else {
        mended.extend_from_slice(&tokens[at..end]);
        return end;
    };
    let place = &tokens[at];
    let put = |token: Token| spanned(place, token);
    mended.extend([place.clone(), put(Token::Eq), put(marked(name)), put(Token::LParen)]);
    mended.extend_from_slice(value);
    for bound in bounds {
        mended.push(put(Token::Comma));
        mended.extend(bound);
    }
    mended.push(put(Token::RParen));
    end
}

type Parts<'a> = (&'static str, Vec<Vec<TokenWithSpan>>, &'a [TokenWithSpan]);

/// The part that a target is, and its value; `None`: it is all of a column, or written otherwise.
fn parts(tokens: &[TokenWithSpan], at: usize, end: usize) -> Option<Parts<'_>> {
    if !matches!(tokens.get(at)?.token, Token::Word(_)) {
        return None;
    }
    let (subscripts, next) = subscripts(tokens, at + 1, end);
    let is_assigned = tokens.get(next).is_some_and(|t| t.token == Token::Eq) && next + 1 < end;
    let (name, bounds) = with_bounds(&subscripts).filter(|_| is_assigned)?;
    Some((name, bounds, &tokens[next + 1..end]))
}

/// Makes one target of the parts of a column that an INSERT names, and one value of theirs.
pub(super) fn join_targets(statement: &mut Statement) -> Result<(), SqlError> {
    struct Joins;
    impl VisitorMut for Joins {
        type Break = SqlError;

        fn pre_visit_statement(&mut self, statement: &mut Statement) -> ControlFlow<SqlError> {
            match statement {
                Statement::Insert(insert) if insert.columns.iter().any(|name| part_named(name).is_some()) => {
                    join(insert).map_or_else(ControlFlow::Break, ControlFlow::Continue)
                }
                _ => ControlFlow::Continue(()),
            }
        }
    }
    match statement.visit(&mut Joins) {
        ControlFlow::Break(error) => Err(error),
        ControlFlow::Continue(()) => Ok(()),
    }
}

/// The call that a target's part was written as, without a value.
fn part_named(name: &ObjectName) -> Option<String> {
    let [ObjectNamePart::Identifier(_), ObjectNamePart::Identifier(part)] = name.0.as_slice() else { return None };
    part.value.strip_prefix(MARKER).map(|call| format!("\"{MARKER}{call}"))
}

fn join(insert: &mut Insert) -> Result<(), SqlError> {
    let rows = match insert.source.as_mut() {
        Some(query) if is_bare(query) => match query.body.as_mut() {
            SetExpr::Values(values) => &mut values.rows,
            _ => return Err(parts_of_query()),
        },
        _ => return Err(parts_of_query()),
    };
    let targets = joined(&insert.columns)?;
    for row in rows {
        if row.content.len() != insert.columns.len() {
            let is_more = row.content.len() > insert.columns.len();
            let what = if is_more { "expressions than target columns" } else { "target columns than expressions" };
            return Err(SqlError::new("42601", format!("INSERT has more {what}")));
        }
        let values = std::mem::take(&mut row.content);
        row.content = targets.iter().map(|(_, target)| target.value(&values)).collect();
    }
    insert.columns = targets.into_iter().map(|(column, _)| ObjectName::from(vec![column])).collect();
    Ok(())
}

fn parts_of_query() -> SqlError {
    SqlError::unsupported("an INSERT of parts of columns from a query")
}

/// What of a row's values a column gets, by their places.
enum Target {
    Whole(usize),
    /// Each with its part's call.
    Parts(Vec<(usize, Expr)>),
}

impl Target {
    fn value(&self, values: &[Expr]) -> Expr {
        match self {
            Target::Whole(at) => values[*at].clone(),
            Target::Parts(parts) => {
                let part = |(at, part): &(usize, Expr)| with_value(part.clone(), values[*at].clone());
                call(PARTS, parts.iter().filter_map(part).collect())
            }
        }
    }
}

/// The columns that the targets name, each once.
fn joined(names: &[ObjectName]) -> Result<Vec<(Ident, Target)>, SqlError> {
    let mut joined: Vec<(Ident, Target)> = Vec::new();
    for (at, name) in names.iter().enumerate() {
        let part = part_named(name).map(|call| super::parse_expression(&call)).transpose()?;
        let column = match (name.0.as_slice(), &part) {
            ([ObjectNamePart::Identifier(column), _], Some(_)) | ([ObjectNamePart::Identifier(column)], None) => column,
            _ => return Err(SqlError::unsupported(format!("{name} as a target beside parts of columns"))),
        };
        match (joined.iter_mut().find(|(other, _)| fold(other) == fold(column)), part) {
            (Some((_, Target::Parts(parts))), Some(part)) => parts.push((at, part)),
            (Some(_), _) => {
                let message = format!("column \"{}\" specified more than once", fold(column));
                return Err(SqlError::new("42701", message));
            }
            (None, Some(part)) => joined.push((column.clone(), Target::Parts(vec![(at, part)]))),
            (None, None) => joined.push((column.clone(), Target::Whole(at))),
        }
    }
    Ok(joined)
}

/// A part's call, whose first argument the value becomes.
fn with_value(mut part: Expr, value: Expr) -> Option<Expr> {
    let Expr::Function(function) = &mut part else { return None };
    let FunctionArguments::List(list) = &mut function.args else { return None };
    *list.args.first_mut()? = FunctionArg::Unnamed(FunctionArgExpr::Expr(value));
    Some(part)
}

fn call(name: &str, args: Vec<Expr>) -> Expr {
    let args = args.into_iter().map(|arg| FunctionArg::Unnamed(FunctionArgExpr::Expr(arg))).collect();
    let list = FunctionArgumentList { duplicate_treatment: None, args, clauses: Vec::new() };
    call_of(ObjectName::from(vec![Ident::with_quote('"', format!("{MARKER}{name}"))]), FunctionArguments::List(list))
}

/// How much deeper it is after a token.
fn step(token: &Token) -> isize {
    match token {
        Token::LParen | Token::LBracket => 1,
        Token::RParen | Token::RBracket => -1,
        _ => 0,
    }
}

fn closing(tokens: &[TokenWithSpan], open: usize) -> Option<usize> {
    let mut depth = 0;
    (open..tokens.len()).find(|&at| {
        depth += step(&tokens[at].token);
        depth == 0
    })
}

fn colon_of(subscript: &[TokenWithSpan]) -> Option<usize> {
    let mut depth = 0;
    subscript.iter().position(|t| {
        depth += step(&t.token);
        depth == 0 && t.token == Token::Colon
    })
}

/// Where an assignment's value ends.
fn value_end(tokens: &[TokenWithSpan], at: usize) -> usize {
    let (mut depth, mut cases) = (0, 0);
    for (i, token) in tokens.iter().enumerate().skip(at) {
        depth += step(&token.token);
        let ends = match keyword(Some(token)) {
            _ if depth < 0 => true,
            _ if depth > 0 => false,
            Keyword::CASE => {
                cases += 1;
                false
            }
            Keyword::END => {
                cases -= 1;
                false
            }
            Keyword::WHEN => cases == 0,
            Keyword::WHERE | Keyword::RETURNING => true,
            Keyword::FROM => keyword(tokens.get(i.wrapping_sub(1))) != Keyword::DISTINCT,
            _ => matches!(token.token, Token::Comma | Token::SemiColon | Token::EOF),
        };
        if ends {
            return i;
        }
    }
    tokens.len()
}
