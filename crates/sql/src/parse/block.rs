//! DO: a block of statements that run one after the other, in the part of PL/pgSQL that scripts of migrations are written in.
//!
//! ```text
//! DO [LANGUAGE plpgsql] $$
//! BEGIN
//!     IF NOT EXISTS (SELECT ...) THEN statements ELSIF condition THEN ... ELSE ... END IF;
//!     statement;  PERFORM query;  EXECUTE text;  RAISE level 'text %', value;  NULL;  RETURN;  BEGIN ... END;
//! EXCEPTION
//!     WHEN duplicate_object OR SQLSTATE '42P07' THEN statements
//! END $$
//! ```
//!
//! A statement is whatever the session takes, up to its semicolon, as it stands in the text. There are no variables but FOUND, and so no loops: such blocks are refused (0A000).

use super::{Offsets, is_word, near, tokens_of};
use crate::error::SqlError;
use sqlparser::tokenizer::{Token, TokenWithSpan};
use std::sync::Arc;

/// Statements that run one after the other; shared by those who run them.
pub type Statements = Arc<[DoStatement]>;

/// BEGIN ... END.
#[derive(Clone, PartialEq, Debug)]
pub struct DoBlock {
    pub body: Statements,
    pub handlers: Arc<[Handler]>,
}

/// WHEN ... THEN.
#[derive(Clone, PartialEq, Debug)]
pub struct Handler {
    pub conditions: Vec<Condition>,
    pub then: Statements,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Condition {
    /// Whatever is no request to end.
    Others,
    /// An SQLSTATE, or all of its class where it ends in 000.
    State(String),
}

impl Condition {
    pub fn is_met(&self, sqlstate: &str) -> bool {
        match self {
            Condition::Others => !matches!(sqlstate, "57014" | "P0004"),
            Condition::State(state) if state.ends_with("000") => sqlstate.get(..2) == state.get(..2),
            Condition::State(state) => state == sqlstate,
        }
    }
}

#[derive(Clone, PartialEq, Debug)]
pub enum DoStatement {
    Sql(Arc<str>),
    /// A query whose rows nobody wants.
    Perform(Arc<str>),
    /// An expression that gives a statement's text.
    Execute(Arc<str>),
    If {
        /// Conditions with what follows of each.
        branches: Arc<[(Arc<str>, Statements)]>,
        otherwise: Statements,
    },
    Block(DoBlock),
    Raise(Arc<Raise>),
    /// RAISE alone: the error that a handler has.
    Reraise,
    Return,
}

#[derive(Clone, PartialEq, Debug)]
pub struct Raise {
    /// `EXCEPTION`, `NOTICE` and so on.
    pub level: String,
    /// Each `%` stands for an argument.
    pub format: String,
    pub arguments: Vec<Arc<str>>,
}

/// PostgreSQL's names of what is caught most.
const CONDITIONS: [(&str, &str); 44] = [
    ("ambiguous_column", "42702"),
    ("assert_failure", "P0004"),
    ("cardinality_violation", "21000"),
    ("check_violation", "23514"),
    ("data_exception", "22000"),
    ("datetime_field_overflow", "22008"),
    ("deadlock_detected", "40P01"),
    ("dependent_objects_still_exist", "2BP01"),
    ("division_by_zero", "22012"),
    ("duplicate_alias", "42712"),
    ("duplicate_column", "42701"),
    ("duplicate_cursor", "42P03"),
    ("duplicate_database", "42P04"),
    ("duplicate_function", "42723"),
    ("duplicate_object", "42710"),
    ("duplicate_prepared_statement", "42P05"),
    ("duplicate_schema", "42P06"),
    ("duplicate_table", "42P07"),
    ("exclusion_violation", "23P01"),
    ("feature_not_supported", "0A000"),
    ("foreign_key_violation", "23503"),
    ("insufficient_privilege", "42501"),
    ("integrity_constraint_violation", "23000"),
    ("invalid_datetime_format", "22007"),
    ("invalid_parameter_value", "22023"),
    ("invalid_schema_name", "3F000"),
    ("invalid_table_definition", "42P16"),
    ("invalid_text_representation", "22P02"),
    ("lock_not_available", "55P03"),
    ("not_null_violation", "23502"),
    ("numeric_value_out_of_range", "22003"),
    ("object_in_use", "55006"),
    ("object_not_in_prerequisite_state", "55000"),
    ("query_canceled", "57014"),
    ("raise_exception", "P0001"),
    ("read_only_sql_transaction", "25006"),
    ("serialization_failure", "40001"),
    ("string_data_right_truncation", "22001"),
    ("syntax_error", "42601"),
    ("undefined_column", "42703"),
    ("undefined_function", "42883"),
    ("undefined_object", "42704"),
    ("undefined_table", "42P01"),
    ("unique_violation", "23505"),
];

/// Other words that a statement of PL/pgSQL begins with.
const NOT_HERE: [&str; 14] = [
    "assert", "call", "case", "close", "continue", "declare", "do", "exit", "fetch", "for", "foreach", "get", "loop",
    "while",
];

/// `DO [LANGUAGE name] 'text' [LANGUAGE name]`
pub(super) fn parse_do(words: &[&TokenWithSpan], sql: &str) -> Result<DoBlock, SqlError> {
    let mut text = None;
    let mut at = 1;
    while let Some(word) = words.get(at) {
        match &word.token {
            Token::SingleQuotedString(given) | Token::EscapedStringLiteral(given) if text.is_none() => {
                text = Some(given.as_str());
            }
            token if is_word(token, "language") => {
                at += 1;
                let language = match words.get(at).map(|word| &word.token) {
                    Some(Token::Word(word)) if word.quote_style.is_none() => word.value.to_lowercase(),
                    Some(Token::Word(word)) => word.value.clone(),
                    Some(Token::SingleQuotedString(name)) => name.clone(),
                    Some(_) => return Err(near(sql, words[at])),
                    None => return Err(SqlError::new("42601", "syntax error at end of input")),
                };
                if language != "plpgsql" {
                    return Err(SqlError::new("42704", format!("language \"{language}\" does not exist")));
                }
            }
            _ => return Err(near(sql, word)),
        }
        at += 1;
    }
    let text = text.ok_or_else(|| SqlError::new("42601", "no inline code specified"))?;
    let mut reader = Reader::of(text)?;
    let block = reader.block(0)?;
    reader.take_semicolon();
    match reader.next() {
        None => Ok(block),
        Some(_) => Err(reader.unexpected()),
    }
}

/// The expression with a value in the place of FOUND.
pub fn with_found(text: &str, found: bool) -> String {
    let Ok(reader) = Reader::of(text) else { return text.to_owned() };
    let is_point = |at: Option<usize>| {
        at.and_then(|at| reader.words.get(at)).is_some_and(|(token, _)| token.token == Token::Period)
    };
    let mut told = text.to_owned();
    for (at, (token, start)) in reader.words.iter().enumerate().rev() {
        if is_word(&token.token, "found") && !is_point(at.checked_sub(1)) && !is_point(Some(at + 1)) {
            told.replace_range(*start..*start + "found".len(), if found { "true" } else { "false" });
        }
    }
    told
}

/// What is no SQL is told before anything runs.
fn check_spelling(text: &str) -> Result<(), SqlError> {
    match super::parse(text) {
        Err(error) if error.sqlstate == "42601" => Err(SqlError { position: None, ..error }),
        _ => Ok(()),
    }
}

/// Whether it is a query that says INTO, which would be a variable there, and outside of a block a table that it makes.
pub fn selects_into(text: &str) -> bool {
    let Ok(reader) = Reader::of(text) else { return false };
    let word_at = |at: usize, word: &str| reader.words.get(at).is_some_and(|(token, _)| is_word(&token.token, word));
    let is_into =
        |at: usize| word_at(at, "into") && !(at > 0 && ["insert", "merge"].iter().any(|w| word_at(at - 1, w)));
    (word_at(0, "select") || word_at(0, "with")) && (0..reader.words.len()).any(is_into)
}

/// Of a block's text: its words, each with where it begins in bytes.
struct Reader<'t> {
    text: &'t str,
    words: Vec<(TokenWithSpan, usize)>,
    at: usize,
}

impl<'t> Reader<'t> {
    fn of(text: &'t str) -> Result<Reader<'t>, SqlError> {
        let mut offsets = Offsets::new(text);
        let without_place = |mut error: SqlError| {
            error.position = None;
            error
        };
        let tokens = tokens_of(text).map_err(without_place)?;
        let placed = tokens.into_iter().map(|token| {
            let start = offsets.advance_to(token.span.start);
            (token, start)
        });
        let is_word = |token: &Token| !matches!(token, Token::Whitespace(_) | Token::EOF);
        Ok(Reader { text, words: placed.filter(|(token, _)| is_word(&token.token)).collect(), at: 0 })
    }

    fn next(&self) -> Option<&Token> {
        self.words.get(self.at).map(|(token, _)| &token.token)
    }

    fn is(&self, text: &str) -> bool {
        self.next().is_some_and(|token| is_word(token, text))
    }

    fn take(&mut self, text: &str) -> bool {
        let is = self.is(text);
        self.at += usize::from(is);
        is
    }

    fn expect(&mut self, text: &str) -> Result<(), SqlError> {
        if self.take(text) { Ok(()) } else { Err(self.unexpected()) }
    }

    fn take_semicolon(&mut self) -> bool {
        let is = self.next() == Some(&Token::SemiColon);
        self.at += usize::from(is);
        is
    }

    fn end_statement(&mut self) -> Result<(), SqlError> {
        if self.take_semicolon() { Ok(()) } else { Err(self.unexpected()) }
    }

    fn unexpected(&self) -> SqlError {
        match self.next() {
            Some(token) => SqlError::new("42601", format!("syntax error at or near \"{token}\"")),
            None => SqlError::new("42601", "syntax error at end of input"),
        }
    }

    /// The text up to the word at which it ends, outside of parentheses and CASE.
    fn text_up_to(&mut self, is_end: impl Fn(&Token) -> bool) -> Result<Arc<str>, SqlError> {
        let begin = self.at;
        let (mut cases, mut parentheses) = (0, 0);
        while let Some(token) = self.next() {
            if cases == 0 && parentheses == 0 && is_end(token) {
                break;
            }
            match token {
                Token::LParen => parentheses += 1,
                Token::RParen => parentheses -= 1,
                Token::SemiColon => return Err(self.unexpected()),
                token if is_word(token, "case") => cases += 1,
                token if is_word(token, "end") && cases > 0 => cases -= 1,
                _ => {}
            }
            self.at += 1;
        }
        let (Some((_, from)), Some((_, to))) = (self.words.get(begin), self.words.get(self.at)) else {
            return Err(self.unexpected());
        };
        match self.text[*from..*to].trim_end() {
            "" => Err(self.unexpected()),
            text => Ok(text.into()),
        }
    }

    /// The text up to its semicolon, which is taken.
    fn statement_text(&mut self) -> Result<Arc<str>, SqlError> {
        let text = self.text_up_to(|token| *token == Token::SemiColon)?;
        self.end_statement()?;
        Ok(text)
    }

    /// `BEGIN statements [EXCEPTION handlers] END`
    fn block(&mut self, depth: usize) -> Result<DoBlock, SqlError> {
        if depth > super::DEPTH_MAX {
            return Err(super::nests_too_deep());
        }
        if self.is("declare") {
            return Err(SqlError::unsupported("DECLARE in a block of DO"));
        }
        self.expect("begin")?;
        let body = self.statements(&["exception", "end"], depth)?;
        let mut handlers = Vec::new();
        if self.take("exception") {
            if !self.is("when") {
                return Err(self.unexpected());
            }
            while self.take("when") {
                let mut conditions = vec![self.condition()?];
                while self.take("or") {
                    conditions.push(self.condition()?);
                }
                self.expect("then")?;
                handlers.push(Handler { conditions, then: self.statements(&["when", "end"], depth)? });
            }
        }
        self.expect("end")?;
        Ok(DoBlock { body, handlers: handlers.into() })
    }

    fn condition(&mut self) -> Result<Condition, SqlError> {
        let is_state = self.take("sqlstate");
        let condition = match self.next() {
            Some(Token::SingleQuotedString(state)) if is_state => Condition::State(state.clone()),
            Some(Token::Word(word)) if !is_state => {
                let name = word.value.to_lowercase();
                let known = CONDITIONS.iter().find(|(known, _)| *known == name);
                match known {
                    Some((_, state)) => Condition::State((*state).to_owned()),
                    None if name == "others" => Condition::Others,
                    None => {
                        return Err(SqlError::new("42704", format!("unrecognized exception condition \"{name}\"")));
                    }
                }
            }
            _ => return Err(self.unexpected()),
        };
        self.at += 1;
        Ok(condition)
    }

    fn statements(&mut self, ends: &[&str], depth: usize) -> Result<Statements, SqlError> {
        let mut statements = Vec::new();
        while !ends.iter().any(|end| self.is(end)) {
            if self.next().is_none() {
                return Err(self.unexpected());
            }
            statements.extend(self.statement(depth)?);
        }
        Ok(statements.into())
    }

    /// `None`: NULL.
    fn statement(&mut self, depth: usize) -> Result<Option<DoStatement>, SqlError> {
        if let Some(word) = NOT_HERE.iter().find(|word| self.is(word)) {
            return Err(SqlError::unsupported(format!("{} in a block of DO", word.to_uppercase())));
        }
        if self.is("begin") || self.is("declare") {
            let block = self.block(depth + 1)?;
            self.end_statement()?;
            return Ok(Some(DoStatement::Block(block)));
        }
        if self.take("null") {
            self.end_statement()?;
            return Ok(None);
        }
        if self.take("return") {
            self.end_statement()?;
            return Ok(Some(DoStatement::Return));
        }
        if self.take("if") {
            return self.branches(depth).map(Some);
        }
        if self.take("raise") {
            return self.raise().map(Some);
        }
        if self.take("perform") {
            let text = format!("SELECT {}", self.statement_text()?);
            check_spelling(&text)?;
            return Ok(Some(DoStatement::Perform(text.into())));
        }
        if self.take("execute") {
            let is_end =
                |token: &Token| *token == Token::SemiColon || is_word(token, "using") || is_word(token, "into");
            let text = self.text_up_to(is_end)?;
            if self.next() != Some(&Token::SemiColon) {
                return Err(SqlError::unsupported("EXECUTE ... INTO or USING in a block of DO"));
            }
            self.end_statement()?;
            return Ok(Some(DoStatement::Execute(text)));
        }
        let is_assigned = |token: Option<&(TokenWithSpan, usize)>| {
            token.is_some_and(|(token, _)| matches!(token.token, Token::Assignment | Token::Eq))
        };
        if is_assigned(self.words.get(self.at + 1)) || self.next() == Some(&Token::ShiftLeft) {
            return Err(SqlError::unsupported("a variable or a label in a block of DO"));
        }
        let text = self.statement_text()?;
        if selects_into(&text) {
            return Err(SqlError::unsupported("SELECT INTO in a block of DO"));
        }
        check_spelling(&text)?;
        Ok(Some(DoStatement::Sql(text)))
    }

    /// Behind IF.
    fn branches(&mut self, depth: usize) -> Result<DoStatement, SqlError> {
        if depth > super::DEPTH_MAX {
            return Err(super::nests_too_deep());
        }
        let (mut branches, mut otherwise) = (Vec::new(), Statements::default());
        loop {
            let condition = self.text_up_to(|token| is_word(token, "then"))?;
            check_spelling(&format!("SELECT {condition}\n"))?;
            self.expect("then")?;
            branches.push((condition, self.statements(&["elsif", "elseif", "else", "end"], depth + 1)?));
            if self.take("elsif") || self.take("elseif") {
                continue;
            }
            if self.take("else") {
                otherwise = self.statements(&["end"], depth + 1)?;
            }
            self.expect("end")?;
            self.expect("if")?;
            self.end_statement()?;
            return Ok(DoStatement::If { branches: branches.into(), otherwise });
        }
    }

    /// Behind RAISE.
    fn raise(&mut self) -> Result<DoStatement, SqlError> {
        const LEVELS: [&str; 6] = ["debug", "log", "info", "notice", "warning", "exception"];
        if self.take_semicolon() {
            return Ok(DoStatement::Reraise);
        }
        let level = LEVELS.into_iter().find(|level| self.take(level)).unwrap_or("exception").to_uppercase();
        let format = match self.next() {
            Some(Token::SingleQuotedString(format) | Token::EscapedStringLiteral(format)) => format.clone(),
            Some(Token::DollarQuotedString(format)) => format.value.clone(),
            _ => return Err(SqlError::unsupported("RAISE of a condition in a block of DO")),
        };
        self.at += 1;
        let mut arguments = Vec::new();
        while self.next() == Some(&Token::Comma) {
            self.at += 1;
            let is_end = |token: &Token| matches!(token, Token::Comma | Token::SemiColon) || is_word(token, "using");
            arguments.push(self.text_up_to(is_end)?);
        }
        if self.is("using") {
            return Err(SqlError::unsupported("RAISE ... USING in a block of DO"));
        }
        self.end_statement()?;
        let (asked, given) = (format.replace("%%", "").matches('%').count(), arguments.len());
        if asked != given {
            let which = if asked > given { "few" } else { "many" };
            return Err(SqlError::new("42601", format!("too {which} parameters specified for RAISE")));
        }
        Ok(DoStatement::Raise(Arc::new(Raise { level, format, arguments })))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::{Parsed, parse};

    fn block(sql: &str) -> DoBlock {
        match parse(sql) {
            Ok(Parsed::Do(block)) => block,
            other => panic!("{sql}: {other:?}"),
        }
    }

    fn sql(text: &str) -> DoStatement {
        DoStatement::Sql(text.into())
    }

    #[test]
    fn statements_end_at_their_semicolons() {
        let read = block(
            "DO $$ BEGIN create type \"é\" as enum ('a;', 'it''s') ; NULL; -- none;\nselect case when a then 1 end; END; $$ language plpgsql",
        );
        assert_eq!(
            *read.body,
            [sql("create type \"é\" as enum ('a;', 'it''s')"), sql("select case when a then 1 end")]
        );
        assert!(read.handlers.is_empty());
    }

    #[test]
    fn handlers_name_what_they_catch() {
        let read = block(
            "do language 'plpgsql' 'begin create table t (a int); exception when duplicate_table or sqlstate ''XX000'' then null; when others then raise; end'",
        );
        let state = |state: &str| Condition::State(state.to_owned());
        assert_eq!(read.handlers[0].conditions, [state("42P07"), state("XX000")]);
        assert_eq!(*read.handlers[1].then, [DoStatement::Reraise]);
        assert!(Condition::Others.is_met("42P01") && !Condition::Others.is_met("57014"));
        assert!(state("23000").is_met("23505") && !state("23505").is_met("23503"));
    }

    #[test]
    fn branches_are_read_in_their_order() {
        let read = block(
            "do $$ begin if not exists (select 1 from pg_type where typname = 'x') then create table a (b int); elsif case when true then false end then perform f(1); else begin raise notice 'a % %%', (1, 2); end; end if; end $$",
        );
        let [DoStatement::If { branches, otherwise }] = &*read.body else { panic!("{read:?}") };
        assert_eq!(&*branches[0].0, "not exists (select 1 from pg_type where typname = 'x')");
        assert_eq!(&*branches[1].0, "case when true then false end");
        assert_eq!(*branches[1].1, [DoStatement::Perform("SELECT f(1)".into())]);
        let [DoStatement::Block(inner)] = &**otherwise else { panic!("{otherwise:?}") };
        let [DoStatement::Raise(raise)] = &*inner.body else { panic!("{inner:?}") };
        assert_eq!((raise.level.as_str(), &raise.arguments), ("NOTICE", &vec!["(1, 2)".into()]));
    }

    #[test]
    fn what_is_not_here_is_told() {
        for (sql, state) in [
            ("do $$ declare a int; begin end $$", "0A000"),
            ("do $$ begin for i in 1..2 loop null; end loop; end $$", "0A000"),
            ("do $$ begin a := 1; end $$", "0A000"),
            ("do $$ begin raise unique_violation; end $$", "0A000"),
            ("do $$ begin select 1 into a; end $$", "0A000"),
            ("do $$ begin execute 'select $1' using 1; end $$", "0A000"),
            ("do $$ begin null end $$", "42601"),
            ("do $$ begin select 1 $$", "42601"),
            ("do $$ begin if true then null; end $$", "42601"),
            ("do $$ begin null; exception when nothing then null; end $$", "42704"),
            ("do $$ begin raise notice '%'; end $$", "42601"),
            ("do $$ begin end $$ language sql", "42704"),
            ("do", "42601"),
            ("do 'begin end' 'again'", "42601"),
        ] {
            let error = parse(sql).expect_err(sql);
            assert_eq!(error.sqlstate, state, "{sql}: {error}");
        }
        let deep = format!("do $$ {} {} $$", "begin ".repeat(200), "end; ".repeat(200));
        assert_eq!(parse(&deep).expect_err("too deep").sqlstate, "54001");
    }
}
