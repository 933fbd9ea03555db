//! Commands on the schema that the grammar lacks or takes only in part: sequences, ALTER, SET CONSTRAINTS; and what INSERT leaves out.
//!
//! They are read with the grammar's own parser, word by word.

use super::elements::Element;
use super::grammar::Grammar;
use super::printed::parser_of;
use super::role::{RoleCommand, RoleSpec};
use super::storage::{StorageOption, Stored, option_value, storage_options};
use super::{is_word, keyword, near, syntax_error};
use crate::error::SqlError;
use sqlparser::ast::{
    self, ColumnDef, DataType, Expr, Ident, ObjectName, SequenceOptions, Statement, TableConstraint, Value,
};
use sqlparser::keywords::Keyword;
use sqlparser::parser::{Parser, ParserError};
use sqlparser::tokenizer::{Token, TokenWithSpan};

/// A change of the schema, as it was written.
#[derive(Clone, Debug)]
pub enum Utility {
    /// What the grammar takes as a whole.
    Statement(Box<Statement>),
    /// CREATE TABLE AS ... WITH NO DATA.
    CreateTableWithoutRows(Box<sqlparser::ast::CreateTable>),
    CreateSequence {
        name: ObjectName,
        if_not_exists: bool,
        temporary: bool,
        unlogged: bool,
        clauses: SequenceClauses,
    },
    /// CREATE SCHEMA with what is in it, in the order in which it is made.
    CreateSchemaOf {
        schema: Box<Statement>,
        elements: Vec<Element>,
    },
    AlterSequence {
        name: ObjectName,
        if_exists: bool,
        clauses: SequenceClauses,
    },
    Alter {
        kind: AlterKind,
        name: ObjectName,
        if_exists: bool,
        actions: Vec<AlterAction>,
    },
    AlterSchema {
        name: Ident,
        rename: Option<Ident>,
        owner: Option<RoleSpec>,
    },
    CommentOnConstraint {
        constraint: Ident,
        table: ObjectName,
        comment: Option<String>,
    },
    /// CREATE TYPE ... AS ENUM.
    CreateEnum {
        name: ObjectName,
        labels: Vec<String>,
    },
    AlterType {
        name: ObjectName,
        action: TypeAction,
    },
    CommentOnType {
        name: ObjectName,
        comment: Option<String>,
    },
    /// Roles and rights.
    Role(Box<RoleCommand>),
}

/// What ALTER TYPE changes of an enum.
#[derive(Clone, Debug)]
pub enum TypeAction {
    AddValue {
        label: String,
        if_not_exists: bool,
        /// A label, and whether the new one goes before it; `None`: behind all.
        beside: Option<(String, bool)>,
    },
    RenameValue {
        old: String,
        new: String,
    },
    Rename(Ident),
    SetSchema(Ident),
    Owner(RoleSpec),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AlterKind {
    Table,
    View,
    Index,
    Sequence,
}

impl AlterKind {
    pub fn name(self) -> &'static str {
        match self {
            AlterKind::Table => "TABLE",
            AlterKind::View => "VIEW",
            AlterKind::Index => "INDEX",
            AlterKind::Sequence => "SEQUENCE",
        }
    }
}

/// Options of a sequence; `None`: not given. An inner `None`: NO.
#[derive(Clone, Default, Debug)]
pub struct SequenceClauses {
    pub ty: Option<DataType>,
    pub increment: Option<i64>,
    pub min: Option<Option<i64>>,
    pub max: Option<Option<i64>>,
    pub start: Option<i64>,
    pub restart: Option<Option<i64>>,
    pub cache: Option<i64>,
    pub cycle: Option<bool>,
    pub owned_by: Option<Option<ObjectName>>,
    /// Of an identity column's sequence.
    pub name: Option<ObjectName>,
}

/// One action of ALTER TABLE and its like.
#[derive(Clone, Debug)]
pub enum AlterAction {
    AddColumn {
        def: ColumnDef,
        if_not_exists: bool,
    },
    DropColumn {
        name: Ident,
        if_exists: bool,
        cascade: bool,
    },
    AddConstraint {
        constraint: TableConstraint,
        not_valid: bool,
    },
    AddUsingIndex {
        name: Option<Ident>,
        primary: bool,
        index: Ident,
    },
    DropConstraint {
        name: Ident,
        if_exists: bool,
        cascade: bool,
    },
    ValidateConstraint(Ident),
    AlterConstraint {
        name: Ident,
        deferrable: bool,
        deferred: bool,
    },
    RenameColumn {
        old: Ident,
        new: Ident,
    },
    RenameConstraint {
        old: Ident,
        new: Ident,
    },
    Rename(Ident),
    SetSchema(Ident),
    SetDefault(Ident, Expr),
    DropDefault(Ident),
    SetNotNull(Ident),
    DropNotNull(Ident),
    SetType {
        column: Ident,
        ty: DataType,
        collation: Option<ObjectName>,
        using: Option<Expr>,
    },
    AddIdentity {
        column: Ident,
        always: bool,
        clauses: SequenceClauses,
    },
    SetIdentity {
        column: Ident,
        always: Option<bool>,
        clauses: SequenceClauses,
    },
    DropIdentity {
        column: Ident,
        if_exists: bool,
    },
    DropExpression {
        column: Ident,
        if_exists: bool,
    },
    Owner(RoleSpec),
    /// ENABLE and DISABLE TRIGGER.
    Triggers {
        enable: bool,
        which: Triggers,
    },
    /// SET and RESET of storage parameters.
    Storage {
        options: Vec<StorageOption>,
        resets: bool,
    },
    /// The same of a column's.
    ColumnStorage {
        column: Ident,
        options: Vec<StorageOption>,
        resets: bool,
    },
    /// SET STATISTICS, STORAGE and COMPRESSION of a column, and the value.
    ColumnAdvice {
        column: Ident,
        what: &'static str,
        value: String,
    },
    /// Where and how a table, an index or a new key is stored.
    Stored(Vec<Stored>),
    /// CLUSTER ON and REPLICA IDENTITY USING INDEX.
    ByIndex {
        what: &'static str,
        index: Ident,
    },
    /// What changes nothing here.
    Nothing(&'static str),
}

#[derive(Clone, Debug)]
pub enum Triggers {
    /// Those of users, and those that keep foreign keys.
    All,
    User,
    Named(Ident),
}

/// What an INSERT says that the grammar has no place for; it travels in one that is other dialects'.
#[derive(Clone, Copy, Default, Debug)]
pub struct InsertNotes<'a> {
    pub overriding: Option<Overriding>,
    /// ON CONFLICT (...) WHERE.
    pub predicate: Option<&'a Expr>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Overriding {
    System,
    User,
}

const OVERRIDING_SYSTEM: &str = "overriding system value";
const OVERRIDING_USER: &str = "overriding user value";

/// The notes that [`take_insert_notes`] left.
pub fn notes(place: Option<&[Expr]>) -> InsertNotes<'_> {
    let mut notes = InsertNotes::default();
    for expr in place.unwrap_or_default() {
        match expr {
            Expr::Identifier(ident) if ident.value == OVERRIDING_SYSTEM => notes.overriding = Some(Overriding::System),
            Expr::Identifier(ident) if ident.value == OVERRIDING_USER => notes.overriding = Some(Overriding::User),
            other => notes.predicate = Some(other),
        }
    }
    notes
}

/// Takes OVERRIDING ... VALUE and the predicate of ON CONFLICT out of an INSERT's tokens.
pub(super) fn take_insert_notes(sql: &str, tokens: &mut Vec<TokenWithSpan>) -> Result<Vec<Expr>, SqlError> {
    let mut notes = Vec::new();
    let places: Vec<usize> = (0..tokens.len()).filter(|&i| !matches!(tokens[i].token, Token::Whitespace(_))).collect();
    let at = |i: usize| places.get(i).map(|&p| &tokens[p]);
    let is = |i: usize, text: &str| at(i).is_some_and(|t| is_word(&t.token, text));
    if !(is(0, "insert") || is(0, "with")) {
        return Ok(notes);
    }
    let mut gone: Vec<(usize, usize)> = Vec::new();
    for i in 0..places.len() {
        if is(i, "overriding") && (is(i + 1, "system") || is(i + 1, "user")) && is(i + 2, "value") {
            let text = if is(i + 1, "system") { OVERRIDING_SYSTEM } else { OVERRIDING_USER };
            notes.push(Expr::Identifier(Ident::new(text)));
            gone.push((places[i], places[i + 2]));
        }
        if is(i, "on") && is(i + 1, "conflict") && at(i + 2).is_some_and(|t| t.token == Token::LParen) {
            let Some(close) = closing(&places, tokens, i + 2) else { continue };
            if !is(close + 1, "where") {
                continue;
            }
            let end = (close + 2..places.len()).find(|&j| is(j, "do") && (is(j + 1, "nothing") || is(j + 1, "update")));
            let Some(end) = end else { continue };
            let predicate: Vec<TokenWithSpan> = tokens[places[close + 2]..places[end]].to_vec();
            let dialect = Grammar::default();
            let mut parser = parser_of(&dialect, predicate);
            notes.push(parser.parse_expr().map_err(|e| syntax_error(sql, e))?);
            gone.push((places[close + 1], places[end] - 1));
        }
    }
    for (first, last) in gone.into_iter().rev() {
        tokens.drain(first..=last);
    }
    Ok(notes)
}

/// The grammar takes the options of an identity column in one order only: they are put into it.
pub(super) fn order_identity_options(sql: &str, tokens: &mut Vec<TokenWithSpan>) -> Result<(), SqlError> {
    let places: Vec<usize> = (0..tokens.len()).filter(|&i| !matches!(tokens[i].token, Token::Whitespace(_))).collect();
    let is = |i: usize, text: &str| places.get(i).is_some_and(|&p| is_word(&tokens[p].token, text));
    if !is(0, "create") {
        return Ok(());
    }
    let mut ordered = Vec::new();
    for i in 0..places.len() {
        let opens = places.get(i + 2).is_some_and(|&p| tokens[p].token == Token::LParen);
        if !(is(i, "as") && is(i + 1, "identity") && opens) {
            continue;
        }
        let Some(close) = closing(&places, tokens, i + 2) else { continue };
        let inner: Vec<TokenWithSpan> = tokens[places[i + 2] + 1..places[close]].to_vec();
        let dialect = Grammar::default();
        let mut parser = parser_of(&dialect, inner);
        let clauses = sequence_clauses(&mut parser).map_err(|e| syntax_error(sql, e))?;
        let next = parser.peek_token();
        if next.token != Token::EOF {
            return Err(near(sql, &next));
        }
        ordered.push((places[i + 2] + 1, places[close], super::tokenize(&options_text(&clauses))?));
    }
    for (first, end, mut options) in ordered.into_iter().rev() {
        options.retain(|t| t.token != Token::EOF);
        tokens.splice(first..end, options);
    }
    Ok(())
}

fn options_text(clauses: &SequenceClauses) -> String {
    let mut parts = Vec::new();
    parts.extend(clauses.increment.map(|n| format!("INCREMENT BY {n}")));
    let limit = |what: &str, limit: Option<Option<i64>>| {
        limit.map(|limit| limit.map_or_else(|| format!("NO {what}"), |n| format!("{what} {n}")))
    };
    parts.extend(limit("MINVALUE", clauses.min));
    parts.extend(limit("MAXVALUE", clauses.max));
    parts.extend(clauses.start.map(|n| format!("START WITH {n}")));
    parts.extend(clauses.cache.map(|n| format!("CACHE {n}")));
    parts.extend(clauses.cycle.map(|cycle| if cycle { "CYCLE".to_owned() } else { "NO CYCLE".to_owned() }));
    parts.join(" ")
}

/// The parenthesis that closes the one at `open`.
fn closing(places: &[usize], tokens: &[TokenWithSpan], open: usize) -> Option<usize> {
    let mut depth = 0;
    for (i, &place) in places.iter().enumerate().skip(open) {
        match tokens[place].token {
            Token::LParen => depth += 1,
            Token::RParen => {
                depth -= 1;
                if depth == 0 {
                    return Some(i);
                }
            }
            _ => {}
        }
    }
    None
}

/// The command, if it is one of these.
pub(super) fn utility(sql: &str, words: &[&TokenWithSpan]) -> Result<Option<Utility>, SqlError> {
    let word = |i: usize| words.get(i).map_or(Keyword::NoKeyword, |t| keyword(t));
    let is_text = |i: usize, text: &str| words.get(i).is_some_and(|t| is_word(&t.token, text));
    let is_sort = matches!(word(1), Keyword::TEMP | Keyword::TEMPORARY | Keyword::UNLOGGED);
    let after = 1 + usize::from(is_sort);
    let ours = match word(0) {
        Keyword::CREATE => word(after) == Keyword::SEQUENCE || is_enum(words),
        Keyword::ALTER => {
            matches!(word(1), Keyword::TABLE | Keyword::VIEW | Keyword::INDEX | Keyword::SCHEMA)
                || is_text(1, "sequence")
                || is_text(1, "type")
        }
        Keyword::COMMENT => word(2) == Keyword::CONSTRAINT || is_text(2, "type"),
        _ => false,
    };
    if !ours {
        return Ok(None);
    }
    let dialect = Grammar::default();
    let tokens: Vec<TokenWithSpan> = words.iter().map(|t| (*t).clone()).collect();
    let mut tokens = super::forms::with_plain_forms(tokens);
    let mut stored = Vec::new();
    if word(0) == Keyword::ALTER {
        (0..tokens.len()).rev().for_each(|at| super::forms::strict_added(&mut tokens, at));
        tokens = super::mend::words_of(tokens);
        stored = super::storage::take(&mut tokens);
    }
    let mut parser = parser_of(&dialect, tokens);
    let mut parsed = command(&mut parser).map_err(|e| syntax_error(sql, e))?;
    if let Utility::Alter { actions, .. } = &mut parsed
        && !stored.is_empty()
    {
        actions.push(AlterAction::Stored(stored));
    }
    let next = parser.peek_token();
    if next.token != Token::EOF {
        return Err(near(sql, &next));
    }
    Ok(Some(parsed))
}

/// CREATE TYPE name AS ENUM; the name may have a schema.
fn is_enum(words: &[&TokenWithSpan]) -> bool {
    let is = |at: usize, text: &str| words.get(at).is_some_and(|t| is_word(&t.token, text));
    is(1, "type") && [3, 5, 7].into_iter().any(|at| is(at, "as") && is(at + 1, "enum"))
}

type Read<T> = Result<T, ParserError>;

fn command(p: &mut Parser<'_>) -> Read<Utility> {
    if p.parse_keyword(Keyword::CREATE) {
        let temporary = p.parse_one_of_keywords(&[Keyword::TEMP, Keyword::TEMPORARY]).is_some();
        if !temporary && p.parse_keyword(Keyword::TYPE) {
            return create_enum(p);
        }
        let unlogged = !temporary && p.parse_keyword(Keyword::UNLOGGED);
        p.expect_keyword(Keyword::SEQUENCE)?;
        let if_not_exists = p.parse_keywords(&[Keyword::IF, Keyword::NOT, Keyword::EXISTS]);
        let name = p.parse_object_name(false)?;
        let clauses = sequence_clauses(p)?;
        return Ok(Utility::CreateSequence { name, if_not_exists, temporary, unlogged, clauses });
    }
    if p.parse_keyword(Keyword::COMMENT) {
        return match keyword(&p.peek_nth_token(1)) {
            Keyword::TYPE => comment_on_type(p),
            _ => comment_on_constraint(p),
        };
    }
    p.expect_keyword(Keyword::ALTER)?;
    if p.parse_keyword(Keyword::TYPE) {
        return alter_type(p);
    }
    let kind = match p.expect_one_of_keywords(&[
        Keyword::TABLE,
        Keyword::VIEW,
        Keyword::INDEX,
        Keyword::SCHEMA,
        Keyword::SEQUENCE,
    ])? {
        Keyword::TABLE => AlterKind::Table,
        Keyword::VIEW => AlterKind::View,
        Keyword::INDEX => AlterKind::Index,
        Keyword::SEQUENCE => AlterKind::Sequence,
        _ => return alter_schema(p),
    };
    let if_exists = p.parse_keywords(&[Keyword::IF, Keyword::EXISTS]);
    if kind == AlterKind::Table {
        let _ = p.parse_keyword(Keyword::ONLY);
    }
    let name = p.parse_object_name(false)?;
    if kind == AlterKind::Table {
        let _ = p.consume_token(&Token::Mul);
    }
    if kind == AlterKind::Sequence
        && !matches!(keyword(&p.peek_token()), Keyword::RENAME | Keyword::OWNER)
        && !is_set_schema(p)
    {
        return Ok(Utility::AlterSequence { name, if_exists, clauses: sequence_clauses(p)? });
    }
    let actions = match kind {
        AlterKind::Table | AlterKind::View => p.parse_comma_separated(action)?,
        _ => vec![action(p)?],
    };
    Ok(Utility::Alter { kind, name, if_exists, actions })
}

fn is_set_schema(p: &Parser<'_>) -> bool {
    keyword(&p.peek_token()) == Keyword::SET && keyword(&p.peek_nth_token(1)) == Keyword::SCHEMA
}

fn comment_on_constraint(p: &mut Parser<'_>) -> Read<Utility> {
    p.expect_keywords(&[Keyword::ON, Keyword::CONSTRAINT])?;
    let constraint = p.parse_identifier()?;
    p.expect_keyword(Keyword::ON)?;
    let table = p.parse_object_name(false)?;
    p.expect_keyword(Keyword::IS)?;
    let comment = if p.parse_keyword(Keyword::NULL) { None } else { Some(p.parse_literal_string()?) };
    Ok(Utility::CommentOnConstraint { constraint, table, comment })
}

fn comment_on_type(p: &mut Parser<'_>) -> Read<Utility> {
    p.expect_keywords(&[Keyword::ON, Keyword::TYPE])?;
    let name = p.parse_object_name(false)?;
    p.expect_keyword(Keyword::IS)?;
    let comment = if p.parse_keyword(Keyword::NULL) { None } else { Some(p.parse_literal_string()?) };
    Ok(Utility::CommentOnType { name, comment })
}

fn create_enum(p: &mut Parser<'_>) -> Read<Utility> {
    let name = p.parse_object_name(false)?;
    p.expect_keywords(&[Keyword::AS, Keyword::ENUM])?;
    p.expect_token(&Token::LParen)?;
    let mut labels = Vec::new();
    if p.peek_token().token != Token::RParen {
        labels = p.parse_comma_separated(label)?;
    }
    p.expect_token(&Token::RParen)?;
    Ok(Utility::CreateEnum { name, labels })
}

/// A literal, and nothing that the grammar would take for one.
fn label(p: &mut Parser<'_>) -> Read<String> {
    match p.peek_token().token {
        Token::Word(_) => p.expected("a label", p.peek_token()),
        _ => p.parse_literal_string(),
    }
}

fn alter_type(p: &mut Parser<'_>) -> Read<Utility> {
    let name = p.parse_object_name(false)?;
    let action = if p.parse_keywords(&[Keyword::ADD, Keyword::VALUE]) {
        let if_not_exists = p.parse_keywords(&[Keyword::IF, Keyword::NOT, Keyword::EXISTS]);
        let new = label(p)?;
        let beside = match p.parse_one_of_keywords(&[Keyword::BEFORE, Keyword::AFTER]) {
            Some(side) => Some((label(p)?, side == Keyword::BEFORE)),
            None => None,
        };
        TypeAction::AddValue { label: new, if_not_exists, beside }
    } else if p.parse_keywords(&[Keyword::RENAME, Keyword::VALUE]) {
        let old = label(p)?;
        p.expect_keyword(Keyword::TO)?;
        TypeAction::RenameValue { old, new: label(p)? }
    } else if p.parse_keywords(&[Keyword::RENAME, Keyword::TO]) {
        TypeAction::Rename(p.parse_identifier()?)
    } else if p.parse_keywords(&[Keyword::SET, Keyword::SCHEMA]) {
        TypeAction::SetSchema(p.parse_identifier()?)
    } else {
        TypeAction::Owner(owner(p)?)
    };
    Ok(Utility::AlterType { name, action })
}

fn alter_schema(p: &mut Parser<'_>) -> Read<Utility> {
    let name = p.parse_identifier()?;
    if p.parse_keywords(&[Keyword::RENAME, Keyword::TO]) {
        return Ok(Utility::AlterSchema { name, rename: Some(p.parse_identifier()?), owner: None });
    }
    Ok(Utility::AlterSchema { name, rename: None, owner: Some(owner(p)?) })
}

fn owner(p: &mut Parser<'_>) -> Read<RoleSpec> {
    p.expect_keyword(Keyword::OWNER)?;
    p.expect_keyword(Keyword::TO)?;
    p.parse_identifier().map(|name| RoleSpec::of(&name))
}

fn cascade(p: &mut Parser<'_>) -> bool {
    if p.parse_keyword(Keyword::CASCADE) {
        return true;
    }
    let _ = p.parse_keyword(Keyword::RESTRICT);
    false
}

fn action(p: &mut Parser<'_>) -> Read<AlterAction> {
    let if_exists = |p: &mut Parser<'_>| p.parse_keywords(&[Keyword::IF, Keyword::EXISTS]);
    if p.parse_keyword(Keyword::ADD) {
        return add(p);
    }
    if p.parse_keyword(Keyword::DROP) {
        if p.parse_keyword(Keyword::CONSTRAINT) {
            let if_exists = if_exists(p);
            return Ok(AlterAction::DropConstraint { if_exists, name: p.parse_identifier()?, cascade: cascade(p) });
        }
        let _ = p.parse_keyword(Keyword::COLUMN);
        let if_exists = if_exists(p);
        return Ok(AlterAction::DropColumn { if_exists, name: p.parse_identifier()?, cascade: cascade(p) });
    }
    if p.parse_keyword(Keyword::RENAME) {
        if p.parse_keyword(Keyword::TO) {
            return Ok(AlterAction::Rename(p.parse_identifier()?));
        }
        if p.parse_keyword(Keyword::CONSTRAINT) {
            let old = p.parse_identifier()?;
            p.expect_keyword(Keyword::TO)?;
            return Ok(AlterAction::RenameConstraint { old, new: p.parse_identifier()? });
        }
        let _ = p.parse_keyword(Keyword::COLUMN);
        let old = p.parse_identifier()?;
        p.expect_keyword(Keyword::TO)?;
        return Ok(AlterAction::RenameColumn { old, new: p.parse_identifier()? });
    }
    if p.parse_keyword(Keyword::VALIDATE) {
        p.expect_keyword(Keyword::CONSTRAINT)?;
        return Ok(AlterAction::ValidateConstraint(p.parse_identifier()?));
    }
    if p.parse_keyword(Keyword::ALTER) {
        if p.parse_keyword(Keyword::CONSTRAINT) {
            let name = p.parse_identifier()?;
            let (deferrable, deferred) = deferral(p);
            return Ok(AlterAction::AlterConstraint { name, deferrable, deferred });
        }
        let _ = p.parse_keyword(Keyword::COLUMN);
        let column = p.parse_identifier()?;
        return alter_column(p, column);
    }
    if p.parse_keywords(&[Keyword::SET, Keyword::SCHEMA]) {
        return Ok(AlterAction::SetSchema(p.parse_identifier()?));
    }
    if keyword(&p.peek_token()) == Keyword::OWNER {
        return Ok(AlterAction::Owner(owner(p)?));
    }
    let set = p.parse_one_of_keywords(&[Keyword::SET, Keyword::RESET]);
    if set.is_some() {
        if p.peek_token().token == Token::LParen {
            return Ok(AlterAction::Storage { options: storage_options(p)?, resets: set == Some(Keyword::RESET) });
        }
        if p.parse_keyword(Keyword::UNLOGGED) {
            return Ok(AlterAction::Nothing("SET UNLOGGED"));
        }
        if take_word(p, "logged") {
            return Ok(AlterAction::Nothing("SET LOGGED"));
        }
        if p.parse_keyword(Keyword::WITHOUT) {
            if !p.parse_keyword(Keyword::CLUSTER) && !take_word(p, "oids") {
                return p.expected("CLUSTER or OIDS", p.peek_token());
            }
            return Ok(AlterAction::Nothing("SET WITHOUT"));
        }
        if p.parse_keyword(Keyword::TABLESPACE) {
            return Ok(AlterAction::Stored(vec![Stored::Tablespace(crate::bind::scope::fold(&p.parse_identifier()?))]));
        }
        if p.parse_keywords(&[Keyword::ACCESS, Keyword::METHOD]) {
            return Ok(AlterAction::Stored(vec![Stored::Method(crate::bind::scope::fold(&p.parse_identifier()?))]));
        }
    }
    if p.parse_keywords(&[Keyword::REPLICA, Keyword::IDENTITY]) {
        // Nothing is replicated by rows.
        if p.parse_keywords(&[Keyword::USING, Keyword::INDEX]) {
            return Ok(AlterAction::ByIndex { what: "REPLICA IDENTITY", index: p.parse_identifier()? });
        }
        if !p.parse_keyword(Keyword::DEFAULT) && !p.parse_keyword(Keyword::FULL) && !take_word(p, "nothing") {
            return p.expected("DEFAULT, FULL, NOTHING or USING INDEX", p.peek_token());
        }
        return Ok(AlterAction::Nothing("REPLICA IDENTITY"));
    }
    let switch = p.parse_one_of_keywords(&[Keyword::ENABLE, Keyword::DISABLE]);
    if let Some(switch) = switch {
        if switch == Keyword::ENABLE {
            let _ = p.parse_one_of_keywords(&[Keyword::ALWAYS, Keyword::REPLICA]);
        }
        p.expect_keyword(Keyword::TRIGGER)?;
        let which = match p.parse_one_of_keywords(&[Keyword::ALL, Keyword::USER]) {
            Some(Keyword::ALL) => Triggers::All,
            Some(_) => Triggers::User,
            None => Triggers::Named(p.parse_identifier()?),
        };
        return Ok(AlterAction::Triggers { enable: switch == Keyword::ENABLE, which });
    }
    if p.parse_keyword(Keyword::CLUSTER) {
        p.expect_keyword(Keyword::ON)?;
        return Ok(AlterAction::ByIndex { what: "CLUSTER ON", index: p.parse_identifier()? });
    }
    p.expected("an action of ALTER", p.peek_token())
}

/// A word that the grammar has no keyword for.
fn take_word(p: &mut Parser<'_>, text: &str) -> bool {
    let is_it = is_word(&p.peek_token().token, text);
    if is_it {
        p.next_token();
    }
    is_it
}

fn add(p: &mut Parser<'_>) -> Read<AlterAction> {
    if let Some(using) = using_index(p)? {
        return Ok(using);
    }
    let is_constraint = matches!(
        keyword(&p.peek_token()),
        Keyword::CONSTRAINT | Keyword::PRIMARY | Keyword::UNIQUE | Keyword::FOREIGN | Keyword::CHECK | Keyword::EXCLUDE
    );
    if is_constraint {
        let Some(constraint) = p.parse_optional_table_constraint()? else {
            return p.expected("a constraint", p.peek_token());
        };
        let not_valid = p.parse_keywords(&[Keyword::NOT, Keyword::VALID]);
        return Ok(AlterAction::AddConstraint { constraint, not_valid });
    }
    let _ = p.parse_keyword(Keyword::COLUMN);
    let if_not_exists = p.parse_keywords(&[Keyword::IF, Keyword::NOT, Keyword::EXISTS]);
    Ok(AlterAction::AddColumn { if_not_exists, def: p.parse_column_def()? })
}

/// `[CONSTRAINT name] {PRIMARY KEY | UNIQUE} USING INDEX index`
fn using_index(p: &mut Parser<'_>) -> Read<Option<AlterAction>> {
    let named = keyword(&p.peek_token()) == Keyword::CONSTRAINT;
    let at = if named { 2 } else { 0 };
    let kind = keyword(&p.peek_nth_token(at));
    let length = if kind == Keyword::PRIMARY { 2 } else { 1 };
    let is_it = matches!(kind, Keyword::PRIMARY | Keyword::UNIQUE)
        && keyword(&p.peek_nth_token(at + length)) == Keyword::USING
        && keyword(&p.peek_nth_token(at + length + 1)) == Keyword::INDEX;
    if !is_it {
        return Ok(None);
    }
    let mut name = None;
    if named {
        p.next_token();
        name = Some(p.parse_identifier()?);
    }
    (0..length + 2).for_each(|_| drop(p.next_token()));
    Ok(Some(AlterAction::AddUsingIndex { name, primary: kind == Keyword::PRIMARY, index: p.parse_identifier()? }))
}

/// Whether it is to be DEFERRABLE, which it is where nothing but INITIALLY DEFERRED is said, and INITIALLY DEFERRED.
fn deferral(p: &mut Parser<'_>) -> (bool, bool) {
    let mut deferrable = None;
    let mut deferred = false;
    loop {
        if p.parse_keywords(&[Keyword::NOT, Keyword::DEFERRABLE]) {
            deferrable = Some(false);
        } else if p.parse_keyword(Keyword::DEFERRABLE) {
            deferrable = Some(true);
        } else if p.parse_keywords(&[Keyword::INITIALLY, Keyword::DEFERRED]) {
            deferred = true;
        } else if p.parse_keywords(&[Keyword::INITIALLY, Keyword::IMMEDIATE]) {
            deferred = false;
        } else {
            return (deferrable.unwrap_or(deferred), deferred);
        }
    }
}

fn alter_column(p: &mut Parser<'_>, column: Ident) -> Read<AlterAction> {
    if p.parse_keyword(Keyword::ADD) {
        p.expect_keyword(Keyword::GENERATED)?;
        let always = always(p)?;
        p.expect_keyword(Keyword::AS)?;
        p.expect_keyword(Keyword::IDENTITY)?;
        return Ok(AlterAction::AddIdentity { column, always, clauses: in_parentheses(p)? });
    }
    if p.parse_keyword(Keyword::TYPE) || p.parse_keywords(&[Keyword::SET, Keyword::DATA, Keyword::TYPE]) {
        let ty = p.parse_data_type()?;
        let collation = if p.parse_keyword(Keyword::COLLATE) { Some(p.parse_object_name(false)?) } else { None };
        let using = if p.parse_keyword(Keyword::USING) { Some(p.parse_expr()?) } else { None };
        return Ok(AlterAction::SetType { column, ty, collation, using });
    }
    if p.parse_keywords(&[Keyword::SET, Keyword::DEFAULT]) {
        return Ok(AlterAction::SetDefault(column, p.parse_expr()?));
    }
    if p.parse_keywords(&[Keyword::SET, Keyword::NOT, Keyword::NULL]) {
        return Ok(AlterAction::SetNotNull(column));
    }
    if p.parse_keyword(Keyword::DROP) {
        if p.parse_keyword(Keyword::DEFAULT) {
            return Ok(AlterAction::DropDefault(column));
        }
        if p.parse_keywords(&[Keyword::NOT, Keyword::NULL]) {
            return Ok(AlterAction::DropNotNull(column));
        }
        let is_identity = p.parse_keyword(Keyword::IDENTITY);
        if !is_identity && !take_word(p, "expression") {
            return p.expected("EXPRESSION", p.peek_token());
        }
        let if_exists = p.parse_keywords(&[Keyword::IF, Keyword::EXISTS]);
        return Ok(match is_identity {
            true => AlterAction::DropIdentity { column, if_exists },
            false => AlterAction::DropExpression { column, if_exists },
        });
    }
    let next = p.peek_token();
    if matches!(keyword(&next), Keyword::SET | Keyword::RESET) && p.peek_nth_token(1).token == Token::LParen {
        let resets = keyword(&p.next_token()) == Keyword::RESET;
        return Ok(AlterAction::ColumnStorage { column, options: storage_options(p)?, resets });
    }
    for what in ["statistics", "storage", "compression"] {
        if keyword(&next) == Keyword::SET && is_word(&p.peek_nth_token(1).token, what) {
            (0..2).for_each(|_| drop(p.next_token()));
            return Ok(AlterAction::ColumnAdvice { column, what, value: option_value(p)? });
        }
    }
    set_identity(p, column)
}

/// `SET GENERATED ALWAYS`, `RESTART`, `SET` of options, any number.
fn set_identity(p: &mut Parser<'_>, column: Ident) -> Read<AlterAction> {
    let (mut kind, mut clauses) = (None, SequenceClauses::default());
    let mut any = false;
    loop {
        if p.parse_keywords(&[Keyword::SET, Keyword::GENERATED]) {
            kind = Some(always(p)?);
        } else if keyword(&p.peek_token()) == Keyword::SET {
            p.next_token();
            if !sequence_clause(p, &mut clauses)? {
                return p.expected("an option of a sequence", p.peek_token());
            }
        } else if keyword(&p.peek_token()) == Keyword::RESTART {
            sequence_clause(p, &mut clauses)?;
        } else if any {
            return Ok(AlterAction::SetIdentity { column, always: kind, clauses });
        } else {
            return p.expected("an action of ALTER COLUMN", p.peek_token());
        }
        any = true;
    }
}

fn always(p: &mut Parser<'_>) -> Read<bool> {
    if p.parse_keyword(Keyword::ALWAYS) {
        return Ok(true);
    }
    p.expect_keyword(Keyword::BY)?;
    p.expect_keyword(Keyword::DEFAULT)?;
    Ok(false)
}

fn in_parentheses(p: &mut Parser<'_>) -> Read<SequenceClauses> {
    if !p.consume_token(&Token::LParen) {
        return Ok(SequenceClauses::default());
    }
    let clauses = sequence_clauses(p)?;
    p.expect_token(&Token::RParen)?;
    Ok(clauses)
}

fn sequence_clauses(p: &mut Parser<'_>) -> Read<SequenceClauses> {
    let mut clauses = SequenceClauses::default();
    while sequence_clause(p, &mut clauses)? {}
    Ok(clauses)
}

/// False: none follows.
fn sequence_clause(p: &mut Parser<'_>, clauses: &mut SequenceClauses) -> Read<bool> {
    if p.parse_keyword(Keyword::AS) {
        clauses.ty = Some(p.parse_data_type()?);
    } else if p.parse_keyword(Keyword::INCREMENT) {
        let _ = p.parse_keyword(Keyword::BY);
        clauses.increment = Some(number(p)?);
    } else if p.parse_keyword(Keyword::MINVALUE) {
        clauses.min = Some(Some(number(p)?));
    } else if p.parse_keyword(Keyword::MAXVALUE) {
        clauses.max = Some(Some(number(p)?));
    } else if p.parse_keywords(&[Keyword::NO, Keyword::MINVALUE]) {
        clauses.min = Some(None);
    } else if p.parse_keywords(&[Keyword::NO, Keyword::MAXVALUE]) {
        clauses.max = Some(None);
    } else if p.parse_keywords(&[Keyword::NO, Keyword::CYCLE]) {
        clauses.cycle = Some(false);
    } else if p.parse_keyword(Keyword::CYCLE) {
        clauses.cycle = Some(true);
    } else if p.parse_keyword(Keyword::CACHE) {
        clauses.cache = Some(number(p)?);
    } else if p.parse_keyword(Keyword::START) {
        let _ = p.parse_keyword(Keyword::WITH);
        clauses.start = Some(number(p)?);
    } else if p.parse_keyword(Keyword::RESTART) {
        let with = p.parse_keyword(Keyword::WITH);
        let is_number = matches!(p.peek_token().token, Token::Number(..) | Token::Minus | Token::Plus);
        clauses.restart = Some(if with || is_number { Some(number(p)?) } else { None });
    } else if p.parse_keywords(&[Keyword::SEQUENCE, Keyword::NAME]) {
        clauses.name = Some(p.parse_object_name(false)?);
    } else if p.parse_keywords(&[Keyword::OWNED, Keyword::BY]) {
        let none = p.parse_keyword(Keyword::NONE);
        clauses.owned_by = Some(if none { None } else { Some(p.parse_object_name(false)?) });
    } else {
        return Ok(false);
    }
    Ok(true)
}

fn number(p: &mut Parser<'_>) -> Read<i64> {
    let negative = p.consume_token(&Token::Minus);
    let _ = p.consume_token(&Token::Plus);
    match p.next_token().token {
        Token::Number(digits, _) => {
            let text = if negative { format!("-{digits}") } else { digits };
            text.parse()
                .map_err(|_| ParserError::ParserError(format!("value \"{text}\" is out of range for type bigint")))
        }
        _ => {
            p.prev_token();
            p.expected("a number", p.peek_token())
        }
    }
}

/// The grammar's own options, as in CREATE TABLE ... IDENTITY (...).
pub fn clauses_of(options: &[SequenceOptions]) -> Result<SequenceClauses, SqlError> {
    let mut clauses = SequenceClauses::default();
    for option in options {
        match option {
            SequenceOptions::IncrementBy(expr, _) => clauses.increment = Some(constant(expr)?),
            SequenceOptions::MinValue(expr) => clauses.min = Some(expr.as_ref().map(constant).transpose()?),
            SequenceOptions::MaxValue(expr) => clauses.max = Some(expr.as_ref().map(constant).transpose()?),
            SequenceOptions::StartWith(expr, _) => clauses.start = Some(constant(expr)?),
            SequenceOptions::Cache(expr) => clauses.cache = Some(constant(expr)?),
            // What the grammar holds is whether NO was said.
            SequenceOptions::Cycle(no) => clauses.cycle = Some(!no),
        }
    }
    Ok(clauses)
}

fn constant(expr: &Expr) -> Result<i64, SqlError> {
    let text = expr.to_string().replace(' ', "");
    let is_number = matches!(expr, Expr::Value(v) if matches!(v.value, Value::Number(..)))
        || matches!(expr, Expr::UnaryOp { op: ast::UnaryOperator::Minus | ast::UnaryOperator::Plus, .. });
    match text.parse() {
        Ok(number) if is_number => Ok(number),
        _ => Err(SqlError::new("42601", format!("syntax error at or near \"{text}\""))),
    }
}
