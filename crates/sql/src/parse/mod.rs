//! What does the text say? Scripts to statements, statements to syntax trees, spans to positions.
//!
//! The grammar is sqlparser's PostgreSQL dialect. Commands that it lacks, or takes only in part, are told by their
//! first words here.

pub mod analyze;
pub mod block;
pub mod copy;
pub mod channel;
mod element;
mod elements;
mod fields;
mod forms;
mod grammar;
mod groups;
mod joins;
mod mend;
mod walks;
mod missing;
pub mod named;
pub mod printed;
mod refused;
mod words;
mod role;
mod scope;
mod storage;
mod unicode;
mod upkeep;
mod utility;
pub(crate) mod wanted;

use crate::compiled::lock::mode_named;
use crate::error::SqlError;
use crate::notice::Notice;
pub use utility::{
    AlterAction, AlterKind, Overriding, SequenceClauses, Triggers, TypeAction, Utility, clauses_of, notes,
};

pub use role::{GrantStatement, GrantTarget, RoleCommand, RoleOptions, RoleSpec};
pub use scope::global_notice;
pub use storage::{StorageOption, Stored, stored_of};
pub use upkeep::Kept;

pub use element::{Part, part_of, parts_of};
pub use elements::Element;
pub use fields::row_of_fields;
pub use forms::{Like, conflict_key, in_own_words, keys_and_carried, like_of, set_columns};
#[cfg(feature = "query")]
pub use forms::{exclusion_of, rows_from};
use freshet_engine::txn::LockMode;
use grammar::Grammar;
pub use grammar::call_of;
pub use groups::distinct_keys;
#[cfg(feature = "query")]
pub use groups::{is_none, is_sets};
pub use joins::columns_and_alias;
#[cfg(feature = "query")]
pub use mend::is_nothing;
pub use mend::{RowLock, locking, locking_all};
use printed::parser_of;
use sqlparser::ast::helpers::stmt_create_table::CreateTableBuilder;
use sqlparser::ast::{self, SetExpr, Statement};
use sqlparser::keywords::Keyword;
use sqlparser::parser::{Parser, ParserError};
use sqlparser::tokenizer::{Location, Span, Token, TokenWithSpan, Tokenizer};
use std::ops::ControlFlow;
pub use walks::has_walk;
#[cfg(feature = "query")]
pub use walks::{Cycle, Search, Walk, walk_of};

/// How deeply expressions and queries may nest: what a session's stack surely takes.
pub const DEPTH_MAX: usize = 100;

/// How many words may follow each other without a comma, a bracket or a branch of CASE, those of the longest run within them included:
/// operators chain into trees as deep as the chain is long, and walking or dropping such a tree takes stack.
const RUN_MAX: usize = 4_000;

/// What UNION, INTERSECT and EXCEPT count for: a branch takes more stack than an operand, and commas within it end no chain.
const SET_WORDS: usize = 8;

/// One statement.
#[derive(Debug)]
pub enum Parsed {
    /// Nothing but blanks and comments.
    Empty,
    Sql(Box<Statement>),
    Checkpoint,
    /// EXPLAIN RESTART: the engine's own restart, foretold.
    ExplainRestart,
    /// What has nothing to do here, VACUUM for one; its tag.
    NoOperation(&'static str),
    /// LISTEN, UNLISTEN, NOTIFY.
    Channel(channel::ChannelCommand),
    /// ANALYZE, or VACUUM with it: these tables, or all.
    Analyze {
        tables: Vec<analyze::Analyzed>,
        tag: &'static str,
    },
    Abort,
    /// DO.
    Do(block::DoBlock),
    /// Of this session's prepared statements and cursors.
    Named(Box<named::NamedStatement>),
    Copy(Box<copy::CopyStatement>),
    /// VACUUM, CLUSTER and REINDEX, which have nothing to do.
    Upkeep {
        tag: &'static str,
        of: Vec<Kept>,
    },
    /// A change of the schema that the grammar lacks.
    Utility(Box<Utility>),
    LockTable {
        names: Vec<sqlparser::ast::ObjectName>,
        mode: LockMode,
        nowait: bool,
    },
    /// SET CONSTRAINTS: these, or all.
    SetConstraints {
        names: Option<Vec<sqlparser::ast::ObjectName>>,
        deferred: bool,
    },
}

impl Parsed {
    /// The query that the text is; `None`: it is something else.
    pub fn query(self) -> Option<Box<ast::Query>> {
        match self {
            Parsed::Sql(statement) => match *statement {
                Statement::Query(query) => Some(query),
                _ => None,
            },
            _ => None,
        }
    }
}

/// Parses one statement.
pub fn parse(sql: &str) -> Result<Parsed, SqlError> {
    let mut tokens = tokenize(sql)?;
    while matches!(last_word(&tokens), Some(Token::SemiColon | Token::Whitespace(_) | Token::EOF)) {
        tokens.pop();
    }
    scope::take(sql, &mut tokens)?;
    let words: Vec<&TokenWithSpan> = tokens.iter().filter(|t| !matches!(t.token, Token::Whitespace(_))).collect();
    if words.is_empty() {
        return Ok(Parsed::Empty);
    }
    check_runs(&words)?;
    if let Some(own) = own_command(&words, sql)? {
        return Ok(own);
    }
    if let Some(command) = role::role_command(sql, &words)? {
        return Ok(Parsed::Utility(Box::new(Utility::Role(Box::new(command)))));
    }
    if let Some(utility) = utility::utility(sql, &words)? {
        return Ok(Parsed::Utility(Box::new(utility)));
    }
    let doubts = refused::check_tokens(sql, &tokens)?;
    let notes = utility::take_insert_notes(sql, &mut tokens)?;
    utility::order_identity_options(sql, &mut tokens)?;
    let with_data = mend::take_with_data(&mut tokens);
    let check_option = mend::take_check_option(&mut tokens);
    let dialect = Grammar::default();
    let mut mended = mend::mend(tokens);
    let stored = storage::take(&mut mended);
    let mut parser = parser_of(&dialect, mended);
    let mut statement = parser.parse_statement().map_err(|e| syntax_error(sql, e))?;
    let next = parser.peek_token();
    if next.token != Token::EOF {
        return Err(near(sql, &next));
    }
    element::join_targets(&mut statement)?;
    refused::check_statement(&statement, &doubts)?;
    leave_notes(&mut statement, notes)?;
    storage::leave(&mut statement, &stored);
    if let Some(option) = check_option {
        leave_check_option(&mut statement, option)?;
    }
    match (&statement, with_data) {
        (_, None) => Ok(Parsed::Sql(Box::new(made_by_select_into(statement)))),
        (Statement::CreateTable(create), Some(with_data)) if create.query.is_some() => match with_data {
            true => Ok(Parsed::Sql(Box::new(statement))),
            false => Ok(Parsed::Utility(Box::new(Utility::CreateTableWithoutRows(Box::new(create.clone()))))),
        },
        (_, Some(_)) => Err(SqlError::new("42601", "syntax error at or near \"WITH\"")),
    }
}

/// WITH CHECK OPTION is an option of the view in other words.
fn leave_check_option(statement: &mut Statement, option: &str) -> Result<(), SqlError> {
    let Statement::CreateView(create) = statement else {
        return Err(SqlError::new("42601", "syntax error at or near \"CHECK\""));
    };
    let value = ast::Expr::Value(ast::Value::SingleQuotedString(option.to_owned()).with_empty_span());
    let stated = ast::SqlOption::KeyValue { key: ast::Ident::new("check_option"), value };
    match &mut create.options {
        ast::CreateTableOptions::With(options) => {
            let is_check = |o: &ast::SqlOption| matches!(o, ast::SqlOption::KeyValue { key, .. } if key.value.eq_ignore_ascii_case("check_option"));
            if options.iter().any(is_check) {
                return Err(SqlError::new("22023", "parameter \"check_option\" specified more than once"));
            }
            options.push(stated);
        }
        other => *other = ast::CreateTableOptions::With(vec![stated]),
    }
    Ok(())
}

/// Whether the query is a SELECT INTO, or its first part one.
pub fn has_into(query: &ast::Query) -> bool {
    fn is_into(body: &SetExpr) -> bool {
        match body {
            SetExpr::Select(select) => select.into.is_some(),
            SetExpr::SetOperation { left, .. } => is_into(left),
            SetExpr::Query(query) => is_into(&query.body),
            _ => false,
        }
    }
    is_into(&query.body)
}

/// SELECT INTO is CREATE TABLE AS.
fn made_by_select_into(statement: Statement) -> Statement {
    fn take_into(body: &mut SetExpr) -> Option<sqlparser::ast::SelectInto> {
        match body {
            SetExpr::Select(select) => select.into.take(),
            SetExpr::SetOperation { left, .. } => take_into(left),
            SetExpr::Query(query) => take_into(&mut query.body),
            _ => None,
        }
    }
    let mut query = match statement {
        Statement::Query(query) => query,
        Statement::Explain { describe_alias, analyze, verbose, query_plan, estimate, statement, format, options } => {
            let statement = Box::new(made_by_select_into(*statement));
            return Statement::Explain {
                describe_alias,
                analyze,
                verbose,
                query_plan,
                estimate,
                statement,
                format,
                options,
            };
        }
        other => return other,
    };
    let Some(into) = take_into(&mut query.body) else { return Statement::Query(query) };
    let create = CreateTableBuilder::new(into.name).temporary(into.temporary).query(Some(query));
    Statement::CreateTable(create.build())
}

/// Puts what an INSERT says beyond the grammar into it.
fn leave_notes(statement: &mut Statement, notes: Vec<sqlparser::ast::Expr>) -> Result<(), SqlError> {
    let insert = match statement {
        Statement::Insert(insert) => insert,
        _ if notes.is_empty() => return Ok(()),
        _ => return Err(SqlError::unsupported("OVERRIDING or a conflict's predicate here")),
    };
    if insert.partitioned.is_some() {
        return Err(SqlError::unsupported("an INSERT clause of another dialect"));
    }
    insert.partitioned = (!notes.is_empty()).then_some(notes);
    Ok(())
}

/// Parses an expression alone, as a column's default is stored.
pub fn parse_expression(sql: &str) -> Result<sqlparser::ast::Expr, SqlError> {
    let dialect = Grammar::default();
    parser_of(&dialect, tokenize(sql)?).parse_expr().map_err(|e| syntax_error(sql, e))
}

/// Parses expressions between commas.
pub fn parse_expressions(sql: &str) -> Result<Vec<sqlparser::ast::Expr>, SqlError> {
    let dialect = Grammar::default();
    let mut parser = parser_of(&dialect, tokenize(sql)?);
    let list = parser.parse_comma_separated(Parser::parse_expr).map_err(|e| syntax_error(sql, e))?;
    expect_end(&parser, sql)?;
    Ok(list)
}

/// Parses types between commas.
pub fn parse_types(sql: &str) -> Result<Vec<sqlparser::ast::DataType>, SqlError> {
    let dialect = Grammar::default();
    let mut parser = parser_of(&dialect, tokenize(sql)?);
    let list = parser.parse_comma_separated(Parser::parse_data_type).map_err(|e| syntax_error(sql, e))?;
    expect_end(&parser, sql)?;
    Ok(list)
}

/// Whether a query stands in the expression.
pub fn has_query(expr: &ast::Expr) -> bool {
    let is_query = |expr: &ast::Expr| match expr {
        ast::Expr::Subquery(_) | ast::Expr::Exists { .. } | ast::Expr::InSubquery { .. } => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    };
    ast::visit_expressions(expr, is_query).is_break()
}

fn expect_end(parser: &Parser<'_>, sql: &str) -> Result<(), SqlError> {
    let next = parser.peek_token();
    if next.token == Token::EOF { Ok(()) } else { Err(near(sql, &next)) }
}

/// Parses the name of a relation alone.
pub fn parse_name(name: &str) -> Result<sqlparser::ast::ObjectName, SqlError> {
    let dialect = Grammar::default();
    parser_of(&dialect, tokenize(name)?).parse_object_name(false).map_err(|e| syntax_error(name, e))
}

/// Words within the same brackets, or of one CASE.
#[derive(Default)]
struct Run {
    /// A CASE began it: its branches are a list.
    is_case: bool,
    /// Since the last comma.
    words: usize,
    /// The longest run within brackets since the last comma.
    within: usize,
    /// The longest stretch between commas, with the longest run within it.
    longest: usize,
    /// UNION, INTERSECT and EXCEPT.
    set_operators: usize,
}

impl Run {
    /// How deep a tree of it can be.
    fn depth(&self) -> usize {
        self.set_operators * SET_WORDS + self.longest.max(self.words + self.within)
    }

    fn end_stretch(&mut self) {
        self.longest = self.longest.max(self.words + self.within);
        (self.words, self.within) = (0, 0);
    }

    fn count(&mut self, keyword: Keyword) -> Result<(), SqlError> {
        match keyword {
            Keyword::UNION | Keyword::INTERSECT | Keyword::EXCEPT => self.set_operators += 1,
            _ => self.words += 1,
        }
        self.check()
    }

    fn check(&self) -> Result<(), SqlError> {
        if self.depth() <= RUN_MAX {
            return Ok(());
        }
        Err(SqlError::new("54001", "stack depth limit exceeded")
            .with_detail(format!("An expression chains more than {RUN_MAX} words.")))
    }
}

fn check_runs(words: &[&TokenWithSpan]) -> Result<(), SqlError> {
    let mut outer: Vec<Run> = Vec::new();
    let mut run = Run::default();
    for word in words {
        let keyword = mend::keyword(Some(word));
        match word.token {
            Token::LParen => outer.push(std::mem::take(&mut run)),
            // Subscripts follow each other without a word between them.
            Token::LBracket => {
                run.count(Keyword::NoKeyword)?;
                outer.push(std::mem::take(&mut run));
            }
            Token::RParen | Token::RBracket => end_run(&mut run, &mut outer)?,
            Token::Comma => run.end_stretch(),
            // The parser says of a CASE within too many others that it does not end.
            _ if keyword == Keyword::CASE
                && outer.iter().chain([&run]).filter(|run| run.is_case).count() >= DEPTH_MAX - 2 =>
            {
                return Err(nests_too_deep());
            }
            _ if keyword == Keyword::CASE => {
                outer.push(std::mem::replace(&mut run, Run { is_case: true, ..Run::default() }))
            }
            _ if run.is_case && keyword == Keyword::WHEN => run.end_stretch(),
            _ => {
                if run.is_case && keyword == Keyword::END {
                    end_run(&mut run, &mut outer)?;
                }
                run.count(keyword)?;
            }
        }
    }
    Ok(())
}

/// Goes on with the run around this one, if there is any.
fn end_run(run: &mut Run, outer: &mut Vec<Run>) -> Result<(), SqlError> {
    let Some(around) = outer.pop() else { return Ok(()) };
    let within = std::mem::replace(run, around).depth();
    run.within = run.within.max(within);
    run.check()
}

fn last_word(tokens: &[TokenWithSpan]) -> Option<&Token> {
    tokens.last().map(|t| &t.token)
}

/// Whether it is this word, in any case and without quotes.
fn is_word(token: &Token, text: &str) -> bool {
    matches!(token, Token::Word(w) if w.quote_style.is_none() && w.value.eq_ignore_ascii_case(text))
}

fn keyword(token: &TokenWithSpan) -> Keyword {
    match &token.token {
        Token::Word(word) => word.keyword,
        _ => Keyword::NoKeyword,
    }
}

fn own_command(words: &[&TokenWithSpan], sql: &str) -> Result<Option<Parsed>, SqlError> {
    let is = |i: usize, text: &str| {
        words.get(i).is_some_and(|t| match &t.token {
            Token::Word(w) => w.quote_style.is_none() && w.value.eq_ignore_ascii_case(text),
            _ => false,
        })
    };
    let ends_at = |i: usize, parsed: Parsed| match words.get(i) {
        None => Ok(Some(parsed)),
        Some(token) => Err(near(sql, token)),
    };
    if is(0, "checkpoint") {
        return ends_at(1, Parsed::Checkpoint);
    }
    if is(0, "explain") && is(1, "restart") {
        return ends_at(2, Parsed::ExplainRestart);
    }
    if is(0, "create")
        && is(1, "schema")
        && let Some(utility) = elements::schema_of(words, sql)?
    {
        return Ok(Some(Parsed::Utility(Box::new(utility))));
    }
    if is(0, "copy") {
        return Ok(Some(Parsed::Copy(Box::new(copy::parse_copy(words, sql)?))));
    }
    if let [.., role] = words
        && words.len() == 5
        && ["set", "local", "session", "authorization"].iter().enumerate().all(|(at, word)| is(at, word))
    {
        return parse(&format!("SET LOCAL session_authorization TO {}", role.token)).map(Some);
    }
    if is(0, "reset") && is(1, "session") && is(2, "authorization") && words.len() == 3 {
        return parse("RESET session_authorization").map(Some);
    }
    if is(0, "reset") && is(1, "time") && is(2, "zone") && words.len() == 3 {
        return parse("RESET timezone").map(Some);
    }
    if is(0, "do") {
        return block::parse_do(words, sql).map(|block| Some(Parsed::Do(block)));
    }
    missing::check(words)?;
    if is(0, "listen") || is(0, "unlisten") || is(0, "notify") {
        return channel::parse_channel(words, sql).map(Some);
    }
    if is(0, "vacuum") || is(0, "analyze") || is(0, "analyse") {
        return analyze::parse_analyze(words, sql).map(Some);
    }
    if is(0, "lock") {
        return lock_table(words, sql).map(Some);
    }
    if is(0, "set") && is(1, "constraints") {
        return set_constraints(words, sql).map(Some);
    }
    if is(0, "cluster") || is(0, "reindex") {
        return upkeep::parse_upkeep(words, sql).map(Some);
    }
    if is(0, "abort") {
        let optional = matches!(words.get(1).map(|t| keyword(t)), Some(Keyword::WORK | Keyword::TRANSACTION));
        return ends_at(1 + usize::from(optional), Parsed::Abort);
    }
    if let Some(named) = named::parse_named(words, sql)? {
        return Ok(Some(Parsed::Named(Box::new(named))));
    }
    Ok(None)
}

/// `LOCK [TABLE] [ONLY] name [*], ... [IN mode MODE] [NOWAIT]`
fn lock_table(words: &[&TokenWithSpan], sql: &str) -> Result<Parsed, SqlError> {
    let text = |at: usize| match words.get(at).map(|t| &t.token) {
        Some(Token::Word(w)) if w.quote_style.is_none() => w.value.to_ascii_uppercase(),
        _ => String::new(),
    };
    let mut end = words.len();
    let nowait = end > 2 && text(end - 1) == "NOWAIT";
    end -= usize::from(nowait);
    let mut mode = LockMode::AccessExclusive;
    if let Some(at) = (1..end).rev().find(|&at| text(at) == "IN") {
        let last = end - 1;
        let named: Vec<String> = (at + 1..last).map(text).collect();
        mode = match mode_named(&named.join(" ")) {
            Some(mode) if text(last) == "MODE" => mode,
            _ => return Err(words.get(at + 1).map_or_else(|| near(sql, words[at]), |token| near(sql, token))),
        };
        end = at;
    }
    let start = 1 + usize::from(text(1) == "TABLE");
    let dialect = Grammar::default();
    let tokens: Vec<TokenWithSpan> = words[start.min(end)..end].iter().map(|t| (*t).clone()).collect();
    let mut parser = parser_of(&dialect, tokens);
    let names = parser.parse_comma_separated(|p| {
        let _ = p.parse_keyword(Keyword::ONLY);
        let name = p.parse_object_name(false)?;
        let _ = p.consume_token(&Token::Mul);
        Ok(name)
    });
    let names = names.map_err(|e| syntax_error(sql, e))?;
    match parser.peek_token() {
        next if next.token == Token::EOF => Ok(Parsed::LockTable { names, mode, nowait }),
        next => Err(near(sql, &next)),
    }
}

/// `SET CONSTRAINTS {ALL | name, ...} {DEFERRED | IMMEDIATE}`
fn set_constraints(words: &[&TokenWithSpan], sql: &str) -> Result<Parsed, SqlError> {
    let dialect = Grammar::default();
    let tokens: Vec<TokenWithSpan> = words[2..].iter().map(|t| (*t).clone()).collect();
    let mut parser = parser_of(&dialect, tokens);
    let names = match parser.parse_keyword(Keyword::ALL) {
        true => None,
        false => {
            let names = parser.parse_comma_separated(|p| p.parse_object_name(false));
            Some(names.map_err(|e| syntax_error(sql, e))?)
        }
    };
    let mode = parser.expect_one_of_keywords(&[Keyword::DEFERRED, Keyword::IMMEDIATE]);
    let deferred = mode.map_err(|e| syntax_error(sql, e))? == Keyword::DEFERRED;
    match parser.peek_token() {
        next if next.token == Token::EOF => Ok(Parsed::SetConstraints { names, deferred }),
        next => Err(near(sql, &next)),
    }
}

/// Splits a script at its semicolons; empty pieces are left out.
pub fn split(script: &str) -> Result<Vec<String>, SqlError> {
    let trimmed = script.trim_end();
    match trimmed.find(';') {
        None => return Ok(pieces([trimmed])),
        Some(at) if at + 1 == trimmed.len() => return Ok(pieces([&trimmed[..at]])),
        Some(_) => {}
    }
    let tokens = tokenize(script)?;
    let mut offsets = Offsets::new(script);
    let mut parts = Vec::new();
    let mut start = 0;
    for token in tokens.iter().filter(|t| t.token == Token::SemiColon) {
        let end = offsets.advance_to(token.span.start);
        parts.push(&script[start..end]);
        start = end + 1;
    }
    parts.push(&script[start..]);
    Ok(pieces(parts))
}

fn pieces<'a>(parts: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    let blank = |part: &str| {
        let part = part.trim();
        part.is_empty()
            // Only a comment's beginning may be all there is.
            || part.starts_with(['-', '/']) && tokenize(part)
                .is_ok_and(|tokens| tokens.iter().all(|t| matches!(t.token, Token::Whitespace(_) | Token::EOF)))
    };
    parts.into_iter().filter(|part| !blank(part)).map(str::to_owned).collect()
}

fn tokenize(sql: &str) -> Result<Vec<TokenWithSpan>, SqlError> {
    let mut tokens = whole_tokens(sql)?;
    // The grammar takes a literal between dollar signs in few places.
    for token in &mut tokens {
        if let Token::DollarQuotedString(quoted) = &mut token.token {
            token.token = Token::SingleQuotedString(std::mem::take(&mut quoted.value));
        }
    }
    printed::check_tokens(sql, &tokens)?;
    if may_have_long_name(sql) {
        tokens.iter_mut().filter_map(|t| name_of(&mut t.token)).for_each(|name| {
            name.truncate(cut_of(name).unwrap_or(name.len()));
        });
    }
    Ok(tokens)
}

fn whole_tokens(sql: &str) -> Result<Vec<TokenWithSpan>, SqlError> {
    let Some((text, quotes)) = unicode::hidden(sql) else { return tokens_of(sql) };
    let mut tokens = tokens_of(&text)?;
    unicode::put(sql, &mut tokens, &quotes)?;
    Ok(tokens)
}

fn tokens_of(sql: &str) -> Result<Vec<TokenWithSpan>, SqlError> {
    Tokenizer::new(&Grammar::default(), sql)
        .tokenize_with_location()
        .map_err(|e| SqlError::new("42601", lower_first(&e.message)).at(position(sql, e.location)))
}

/// The longest name; what is longer is cut, with a notice.
const NAME_BYTES_MAX: usize = 63;

/// A word of a long name begins and ends no later: most texts have none, and are not looked at word by word.
fn may_have_long_name(sql: &str) -> bool {
    let is_part = |b: u8| b == b'_' || b == b'$' || b.is_ascii_alphanumeric() || !b.is_ascii();
    sql.len() > NAME_BYTES_MAX
        && (sql.contains('"') || sql.as_bytes().split(|&b| !is_part(b)).any(|word| word.len() > NAME_BYTES_MAX))
}

fn name_of(token: &mut Token) -> Option<&mut String> {
    match token {
        Token::Word(word) => Some(&mut word.value),
        _ => None,
    }
}

/// Where a name that is too long is cut.
fn cut_of(name: &str) -> Option<usize> {
    (name.len() > NAME_BYTES_MAX)
        .then(|| (0..=NAME_BYTES_MAX).rev().find(|&end| name.is_char_boundary(end)).unwrap_or(0))
}

/// What is to be said of names that are cut: of the first of them.
pub fn cut_name_notice(sql: &str) -> Option<Notice> {
    if !may_have_long_name(sql) {
        return None;
    }
    let mut tokens = whole_tokens(sql).ok()?;
    let names = tokens.iter_mut().filter_map(|t| name_of(&mut t.token));
    let (name, end) = names.filter_map(|name| cut_of(name).map(|end| (&*name, end))).next()?;
    Some(Notice::new("42622", format!("identifier \"{name}\" will be truncated to \"{}\"", &name[..end])))
}

/// The first parameter of a statement, and where it stands.
pub fn first_parameter(sql: &str) -> Option<(String, Option<usize>)> {
    let tokens = tokenize(sql).ok()?;
    tokens.iter().find_map(|token| match &token.token {
        Token::Placeholder(name) => Some((name.clone(), span_position(sql, token.span))),
        _ => None,
    })
}

/// The statement with these expressions in the place of its parameters.
pub fn with_values(sql: &str, values: &[String]) -> Result<String, SqlError> {
    let tokens = tokenize(sql)?;
    let mut offsets = Offsets::new(sql);
    let (mut text, mut start) = (String::new(), 0);
    for token in &tokens {
        let Token::Placeholder(name) = &token.token else { continue };
        let value = name[1..].parse::<usize>().ok().and_then(|number| values.get(number.checked_sub(1)?));
        let at = offsets.advance_to(token.span.start);
        text += &sql[start..at];
        text += value.map_or(name.as_str(), String::as_str);
        start = at + name.len();
    }
    Ok(text + &sql[start..])
}

/// What the modes of a BEGIN or SET TRANSACTION say of DEFERRABLE; the last word counts.
pub fn deferrable(sql: &str) -> Option<bool> {
    let tokens = mend::words_of(tokenize(sql).ok()?);
    let at = tokens.iter().rposition(|token| mend::is_word(Some(token), "deferrable"))?;
    Some(!mend::is_word(at.checked_sub(1).map(|before| &tokens[before]), "not"))
}

/// What is to be said of more digits of a second than there are: of the first such type.
pub fn digits_notice(sql: &str) -> Option<Notice> {
    if !may_have_many_digits(sql) {
        return None;
    }
    let tokens = whole_tokens(sql).ok()?;
    let tokens: Vec<&Token> =
        tokens.iter().map(|t| &t.token).filter(|token| !matches!(token, Token::Whitespace(_))).collect();
    (0..tokens.len()).find_map(|at| digits_notice_at(&tokens[at..]))
}

/// A word that may be a type of times, and behind it a number of two digits or above 6 in parentheses.
fn may_have_many_digits(sql: &str) -> bool {
    let bytes = sql.as_bytes();
    let opens = bytes.iter().enumerate().filter(|(_, b)| **b == b'(').map(|(at, _)| at);
    opens.into_iter().any(|at| {
        let word = bytes[..at].trim_ascii_end().last().map(u8::to_ascii_lowercase);
        let inner = bytes[at + 1..].trim_ascii_start();
        let count = inner.iter().take_while(|b| b.is_ascii_digit()).count();
        matches!(word, Some(b'd' | b'e' | b'l' | b'p' | b'z')) && (count > 1 || count == 1 && inner[0] > b'6')
    })
}

fn digits_notice_at(tokens: &[&Token]) -> Option<Notice> {
    let [Token::Word(word), Token::LParen, Token::Number(digits, false), Token::RParen, rest @ ..] = tokens else {
        return None;
    };
    let digits = digits.parse::<u32>().ok().filter(|digits| *digits > 6)?;
    let is = |at: usize, text: &str| matches!(rest.get(at), Some(Token::Word(w)) if w.value.eq_ignore_ascii_case(text));
    let zoned = is(0, "with") && is(1, "time") && is(2, "zone");
    let (name, zoned) = match word.value.to_ascii_lowercase().as_str() {
        "timestamp" => ("TIMESTAMP", zoned),
        "timestamptz" | "current_timestamp" => ("TIMESTAMP", true),
        "localtimestamp" => ("TIMESTAMP", false),
        "time" | "localtime" => ("TIME", false),
        "interval" | "second" => ("INTERVAL", false),
        _ => return None,
    };
    let zone = if zoned { " WITH TIME ZONE" } else { "" };
    Some(Notice::new("22023", format!("{name}({digits}){zone} precision reduced to maximum allowed, 6")))
}

/// Byte offsets of tokens met in their order.
struct Offsets<'a> {
    rest: std::str::CharIndices<'a>,
    line: u64,
    column: u64,
}

impl<'a> Offsets<'a> {
    fn new(text: &'a str) -> Offsets<'a> {
        Offsets { rest: text.char_indices(), line: 1, column: 1 }
    }

    fn advance_to(&mut self, location: Location) -> usize {
        while (self.line, self.column) < (location.line, location.column) {
            match self.rest.next() {
                Some((_, '\n')) => {
                    self.line += 1;
                    self.column = 1;
                }
                Some(_) => self.column += 1,
                None => break,
            }
        }
        self.rest.offset()
    }
}

/// The 1-based character position of a place, if there is one.
pub fn position(sql: &str, location: Location) -> Option<usize> {
    if location.line == 0 {
        return None;
    }
    let lines = sql.split_inclusive('\n').take(location.line as usize - 1).map(|line| line.chars().count());
    Some(lines.sum::<usize>() + location.column as usize)
}

/// Where a part of the statement starts.
pub fn span_position(sql: &str, span: Span) -> Option<usize> {
    position(sql, span.start)
}

fn near(sql: &str, token: &TokenWithSpan) -> SqlError {
    SqlError::new("42601", format!("syntax error at or near \"{}\"", token.token)).at(span_position(sql, token.span))
}

fn nests_too_deep() -> SqlError {
    SqlError::new("54001", "stack depth limit exceeded")
        .with_detail(format!("Statements nest at most {DEPTH_MAX} deep."))
}

/// sqlparser writes what it expected, what it found and where into one string.
fn syntax_error(sql: &str, error: ParserError) -> SqlError {
    let text = match error {
        ParserError::TokenizerError(text) | ParserError::ParserError(text) => text,
        ParserError::RecursionLimitExceeded => return nests_too_deep(),
    };
    let (what, place) = match text.rsplit_once(" at Line: ") {
        Some((what, place)) => (what, parse_place(place)),
        None => (text.as_str(), None),
    };
    let at = place.and_then(|p| position(sql, p));
    let message = match what.rsplit_once("found: ") {
        // A token as the parser's programmers see it.
        _ if what.starts_with("No infix parser") => format!("syntax error at or near \"{}\"", word_at(sql, at)),
        Some((_, "EOF")) => "syntax error at end of input".to_owned(),
        Some((_, found)) => format!("syntax error at or near \"{found}\""),
        None => format!("syntax error: {}", lower_first(what)),
    };
    let error = SqlError::new("42601", message);
    let error = match what.split_once(", found: ") {
        Some((expected, _)) => error.with_detail(format!("{expected}.")),
        None => error,
    };
    let end = || what.ends_with("found: EOF").then(|| sql.chars().count() + 1);
    error.at(at.or_else(end))
}

/// The word, or the sign, at a position.
fn word_at(sql: &str, position: Option<usize>) -> String {
    let rest: Vec<char> = sql.chars().skip(position.map_or(0, |position| position.saturating_sub(1))).collect();
    let belongs = |c: &&char| c.is_alphanumeric() || **c == '_';
    let length = rest.iter().take_while(belongs).count();
    rest.into_iter().take(length.max(1)).collect()
}

fn parse_place(place: &str) -> Option<Location> {
    let (line, column) = place.split_once(", Column: ")?;
    Some(Location { line: line.trim().parse().ok()?, column: column.trim().parse().ok()? })
}

fn lower_first(text: &str) -> String {
    let mut chars = text.chars();
    match chars.next() {
        Some(first) => first.to_lowercase().chain(chars).collect(),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_split_at_semicolons_outside_of_strings_and_comments() {
        let script = "insert into t values (';'); -- a ; b\nselect 1;; /* ; */ ;\n select 'ä;' , \"x;y\" ;";
        let parts = split(script).expect("the script is well-formed");
        assert_eq!(parts.len(), 3, "{parts:?}");
        assert_eq!(parts[0], "insert into t values (';')");
        assert!(parts[1].ends_with("select 1"));
        assert_eq!(parts[2].trim(), "select 'ä;' , \"x;y\"");
        assert_eq!(split("  ").expect("blank"), Vec::<String>::new());
        assert_eq!(split("select 1;").expect("one"), vec!["select 1"]);
        assert_eq!(split("select 'a;b; c").expect_err("open").sqlstate, "42601");
    }

    #[test]
    fn syntax_errors_have_a_position() {
        for (sql, position, message) in [
            ("selec 1", Some(1), "syntax error at or near \"selec\""),
            ("select 1 +", Some(11), "syntax error at end of input"),
            ("select 1 from t where", Some(22), "syntax error at end of input"),
            ("select 'abc", Some(8), "unterminated string literal"),
            ("select 1\nselect 2", Some(10), "syntax error at or near \"select\""),
            ("checkpoint now", Some(12), "syntax error at or near \"now\""),
        ] {
            let error = parse(sql).expect_err(sql);
            assert_eq!(error.sqlstate, "42601", "{sql}");
            assert_eq!(error.message, message, "{sql}");
            assert_eq!(error.position, position, "{sql}");
        }
    }

    #[test]
    fn more_digits_of_a_second_than_there_are_are_told() {
        let told = |sql: &str| digits_notice(sql).map(|notice| (notice.severity(), notice.message));
        let cases = [
            ("create table t (a timestamp(7))", "TIMESTAMP(7)"),
            ("create table t (a int, b timestamp ( 10 ) with time zone, c time(9))", "TIMESTAMP(10) WITH TIME ZONE"),
            ("create table t (a timestamp(6), b TIMESTAMPTZ(7))", "TIMESTAMP(7) WITH TIME ZONE"),
            ("select '1 s'::interval(8)", "INTERVAL(8)"),
            ("select time(7) without time zone '10:00'", "TIME(7)"),
            ("select localtime(7)", "TIME(7)"),
            ("select current_timestamp(7)", "TIMESTAMP(7) WITH TIME ZONE"),
        ];
        for (sql, what) in cases {
            let message = format!("{what} precision reduced to maximum allowed, 6");
            assert_eq!(told(sql), Some(("WARNING", message)), "{sql}");
        }
        for sql in
            ["select 'timestamp(7)'", "select timestamp(6) '2024-01-01'", "values (7)", "select f(time, 7), e(8)"]
        {
            assert_eq!(told(sql), None, "{sql}");
        }
    }

    #[test]
    fn deep_nesting_is_refused() {
        let sql = format!("select {}1{}", "(".repeat(5000), ")".repeat(5000));
        assert_eq!(parse(&sql).expect_err("too deep").sqlstate, "54001");
        let sql = format!("select 1{}", " + 1".repeat(100_000));
        assert_eq!(parse(&sql).expect_err("too long").sqlstate, "54001");
        // Branches stand beside each other.
        let sql = format!("select case x {} else 0 end", "when 1 then 2 ".repeat(10_000));
        parse(&sql).expect("a list, however long");
        let sql = format!("select case x when 1 then 2{} end", " + 1".repeat(10_000));
        assert_eq!(parse(&sql).expect_err("too long").sqlstate, "54001");
        let sql = format!("select 1{}", " + case when true then 1 end".repeat(10_000));
        assert_eq!(parse(&sql).expect_err("too long").sqlstate, "54001");
        // Commas within brackets and within the branches of a UNION end no chain, and chains within each other are one.
        let nested = format!("select {}1{}", "(".repeat(40), format!("{})", " + 1".repeat(1_000)).repeat(40));
        for sql in [
            format!("select array[1, 2]{}", " || array[1, 2]".repeat(10_000)),
            format!("select a{}", "[1]".repeat(10_000)),
            format!("select 1, 1{}", " union all select 1, 1".repeat(1_000)),
            format!("(select 1){}", " except (select 1)".repeat(1_000)),
            nested,
            format!("copy (select 1{}) to stdout", " + 1".repeat(10_000)),
            format!("execute p (1{})", " + 1".repeat(10_000)),
        ] {
            assert_eq!(parse(&sql).expect_err(&sql[..40]).sqlstate, "54001");
        }
        parse(&format!("select 1, 1{}", " union all select 1, 1".repeat(300))).expect("not that long");
        parse(&format!("select 1 where (a = 1 and b in (1, 2)){}", " or (a = 1 and b in (1, 2))".repeat(3_000)))
            .expect("alternatives");
    }

    /// What is read twice at each depth would not end in a lifetime.
    #[test]
    fn each_form_nests_without_being_read_anew() {
        const DEPTH: usize = 40;
        for (opens, closes) in [
            ("abs(", ")"),
            ("coalesce(null, ", ", 2)"),
            ("replace(", ", 'a', 'b')"),
            ("(", ")"),
            ("row(", ", 1)"),
            ("cast(", " as int)"),
            ("(", ")::int"),
            ("array[", "]"),
            ("case when ", " then 1 end"),
            ("1 in (", ", 2)"),
            ("not exists (select ", ")"),
            ("(select ", ")"),
            ("(select 1 from (values (", ")) v)"),
            ("extract(year from ", ")"),
            ("substring(", " from 1 for 2)"),
            ("position('a' in ", ")"),
            ("trim(both 'a' from ", ")"),
            ("overlay(", " placing 'a' from 1)"),
            ("sum(1) filter (where ", ")"),
            ("string_agg('a', 'b' order by ", ")"),
            ("sum(1) over (partition by ", ")"),
            ("f(a => ", ")"),
            ("jsonb_build_object('a', ", ")"),
            ("interval '1' * ", ""),
            ("- ", ""),
            ("not ", ""),
            ("1 between 0 and (", ")"),
            ("nullif(", ", 1)"),
            ("(1, ", ")"),
        ] {
            let sql = format!("select {}1{}", opens.repeat(DEPTH), closes.repeat(DEPTH));
            let ended = parse(&sql);
            assert!(ended.as_ref().map_or_else(|e| e.sqlstate == "54001", |_| true), "{opens}: {:?}", ended.err());
        }
        let joined = format!("select * from {}t{}", "(".repeat(DEPTH), " join t on true)".repeat(DEPTH));
        assert!(parse(&joined).map_or_else(|e| e.sqlstate == "54001", |_| true));
        let derived = format!("select * from {}t{}", "(select * from ".repeat(DEPTH), ") x".repeat(DEPTH));
        assert!(parse(&derived).map_or_else(|e| e.sqlstate == "54001", |_| true));
    }
}
