//! CREATE ROLE and its like, GRANT and REVOKE: read word by word, as PostgreSQL's grammar has them.
//!
//! A password never leaves this module as it was written: what is kept of it is its verifier.

use super::grammar::Grammar;
use super::printed::parser_of;
use super::{is_word, near, syntax_error};
use crate::bind::scope::fold;
use crate::error::SqlError;
use crate::role::acl::{Kind, Privileges};
use crate::role::password;
use crate::settings::{Setting, joined};
use freshet_engine::catalog::Verifier;
use sqlparser::ast::{Ident, ObjectName};
use sqlparser::parser::{Parser, ParserError};
use sqlparser::tokenizer::Span;
use sqlparser::tokenizer::{Token, TokenWithSpan};

/// Who is meant.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RoleSpec {
    Name(String),
    Public,
    CurrentUser,
    SessionUser,
}

impl RoleSpec {
    /// As the grammar reads it where it has a name only.
    pub fn of(ident: &Ident) -> RoleSpec {
        let is_plain = ident.quote_style.is_none();
        match ident.value.to_ascii_lowercase().as_str() {
            "current_user" | "current_role" if is_plain => RoleSpec::CurrentUser,
            "session_user" if is_plain => RoleSpec::SessionUser,
            _ => RoleSpec::Name(fold(ident)),
        }
    }
}

/// What CREATE ROLE and ALTER ROLE say; `None`: nothing.
#[derive(Clone, Default, Debug)]
pub struct RoleOptions {
    pub superuser: Option<bool>,
    pub inherit: Option<bool>,
    pub create_role: Option<bool>,
    pub create_database: Option<bool>,
    pub login: Option<bool>,
    pub replication: Option<bool>,
    pub bypass_row_security: Option<bool>,
    pub connections_max: Option<i32>,
    /// The text of a timestamp.
    pub valid_until: Option<String>,
    /// An inner `None`: PASSWORD NULL.
    pub password: Option<Option<Verifier>>,
    pub password_was_empty: bool,
    /// IN ROLE: what it becomes a member of.
    pub member_of: Vec<RoleSpec>,
    /// ROLE, and ADMIN: who becomes a member of it.
    pub members: Vec<RoleSpec>,
    pub admins: Vec<RoleSpec>,
}

/// What a GRANT or REVOKE is about.
#[derive(Clone, Debug)]
pub enum GrantTarget {
    Objects {
        kind: Kind,
        names: Vec<ObjectName>,
    },
    /// ALL TABLES (or SEQUENCES) IN SCHEMA.
    AllInSchema {
        kind: Kind,
        schemas: Vec<Ident>,
    },
}

#[derive(Clone, Debug)]
pub struct GrantStatement {
    pub is_grant: bool,
    /// `None`: ALL.
    pub privileges: Option<Privileges>,
    pub target: GrantTarget,
    pub roles: Vec<RoleSpec>,
    /// WITH GRANT OPTION, or GRANT OPTION FOR.
    pub option: bool,
    pub granted_by: Option<RoleSpec>,
    pub cascade: bool,
}

/// A command on roles and rights.
#[derive(Clone, Debug)]
pub enum RoleCommand {
    Create {
        /// CREATE USER: it logs in unless told otherwise.
        is_user: bool,
        name: RoleSpec,
        options: Box<RoleOptions>,
    },
    Alter {
        role: RoleSpec,
        options: Box<RoleOptions>,
    },
    Rename {
        old: String,
        new: RoleSpec,
    },
    /// `None`: RESET; an empty name: RESET ALL.
    Set {
        role: RoleSpec,
        name: String,
        value: Option<String>,
    },
    Drop {
        names: Vec<RoleSpec>,
        if_exists: bool,
    },
    GrantRoles {
        is_grant: bool,
        roles: Vec<String>,
        members: Vec<RoleSpec>,
        /// WITH ADMIN OPTION, or ADMIN OPTION FOR.
        admin: bool,
        /// ALTER GROUP, which is told so.
        of_group: bool,
    },
    Grant(GrantStatement),
    DropOwned {
        roles: Vec<RoleSpec>,
        cascade: bool,
    },
    ReassignOwned {
        roles: Vec<RoleSpec>,
        new: RoleSpec,
    },
}

impl RoleCommand {
    pub fn tag(&self) -> &'static str {
        match self {
            RoleCommand::Create { .. } => "CREATE ROLE",
            RoleCommand::Alter { .. } | RoleCommand::Rename { .. } | RoleCommand::Set { .. } => "ALTER ROLE",
            RoleCommand::Drop { .. } => "DROP ROLE",
            RoleCommand::GrantRoles { of_group: true, .. } => "ALTER ROLE",
            RoleCommand::GrantRoles { is_grant: true, .. } => "GRANT ROLE",
            RoleCommand::GrantRoles { is_grant: false, .. } => "REVOKE ROLE",
            RoleCommand::Grant(grant) => {
                if grant.is_grant {
                    "GRANT"
                } else {
                    "REVOKE"
                }
            }
            RoleCommand::DropOwned { .. } => "DROP OWNED",
            RoleCommand::ReassignOwned { .. } => "REASSIGN OWNED",
        }
    }

    /// Whether its text has a password in it.
    pub fn is_secret(&self) -> bool {
        match self {
            RoleCommand::Create { options, .. } | RoleCommand::Alter { options, .. } => options.password.is_some(),
            _ => false,
        }
    }
}

type Read<T> = Result<T, ParserError>;

/// The command, if it is one of these.
pub(super) fn role_command(sql: &str, words: &[&TokenWithSpan]) -> Result<Option<RoleCommand>, SqlError> {
    let is = |at: usize, text: &str| words.get(at).is_some_and(|t| is_word(&t.token, text));
    let names_role = |at: usize| is(at, "role") || is(at, "group") || (is(at, "user") && !is(at + 1, "mapping"));
    let ours = match () {
        () if is(0, "create") || is(0, "alter") => names_role(1),
        () if is(0, "drop") => names_role(1) || is(1, "owned"),
        () => is(0, "grant") || is(0, "revoke") || (is(0, "reassign") && is(1, "owned")),
    };
    if !ours {
        return Ok(None);
    }
    let dialect = Grammar::default();
    let tokens: Vec<TokenWithSpan> = words.iter().map(|t| (*t).clone()).collect();
    let mut parser = parser_of(&dialect, tokens);
    let mut reader = Reader { p: &mut parser, refused: None };
    let read = reader.command();
    if let Some(refused) = reader.refused {
        return Err(refused);
    }
    let command = read.map_err(|e| syntax_error(sql, e))?;
    let next = parser.peek_token();
    if next.token != Token::EOF {
        return Err(near(sql, &next));
    }
    Ok(Some(command))
}

struct Reader<'p, 'a> {
    p: &'p mut Parser<'a>,
    /// What is wrong beyond the grammar.
    refused: Option<SqlError>,
}

impl Reader<'_, '_> {
    fn is(&self, text: &str) -> bool {
        is_word(&self.p.peek_token().token, text)
    }

    fn take(&mut self, text: &str) -> bool {
        let is_it = self.is(text);
        if is_it {
            self.p.next_token();
        }
        is_it
    }

    /// Several words, all or none.
    fn take_all(&mut self, words: &[&str]) -> bool {
        let all = words.iter().enumerate().all(|(at, word)| is_word(&self.p.peek_nth_token(at).token, word));
        if all {
            words.iter().for_each(|_| drop(self.p.next_token()));
        }
        all
    }

    fn expect(&mut self, text: &str) -> Read<()> {
        if self.take(text) { Ok(()) } else { self.p.expected(&text.to_uppercase(), self.p.peek_token()) }
    }

    fn refuse<T>(&mut self, error: SqlError) -> Read<T> {
        let message = error.message.clone();
        self.refused = Some(error);
        Err(ParserError::ParserError(message))
    }

    fn name(&mut self) -> Read<String> {
        let ident = self.p.parse_identifier()?;
        Ok(fold(&ident))
    }

    fn role(&mut self) -> Read<RoleSpec> {
        let _ = self.is("group") && is_name(&self.p.peek_nth_token(1).token) && self.take("group");
        for (word, spec) in [
            ("public", RoleSpec::Public),
            ("current_user", RoleSpec::CurrentUser),
            ("current_role", RoleSpec::CurrentUser),
            ("session_user", RoleSpec::SessionUser),
        ] {
            if self.take(word) {
                return Ok(spec);
            }
        }
        Ok(RoleSpec::Name(self.name()?))
    }

    fn roles(&mut self) -> Read<Vec<RoleSpec>> {
        let mut roles = vec![self.role()?];
        while self.p.consume_token(&Token::Comma) {
            roles.push(self.role()?);
        }
        Ok(roles)
    }

    fn cascade(&mut self) -> bool {
        let cascade = self.take("cascade");
        let _ = !cascade && self.take("restrict");
        cascade
    }

    fn command(&mut self) -> Read<RoleCommand> {
        if self.take("create") {
            return self.create();
        }
        if self.take("alter") {
            return self.alter();
        }
        if self.take("reassign") {
            self.expect("owned")?;
            self.expect("by")?;
            let roles = self.roles()?;
            self.expect("to")?;
            return Ok(RoleCommand::ReassignOwned { roles, new: self.role()? });
        }
        if self.take("drop") {
            if self.take("owned") {
                self.expect("by")?;
                let roles = self.roles()?;
                return Ok(RoleCommand::DropOwned { roles, cascade: self.cascade() });
            }
            self.p.next_token();
            let if_exists = self.take_all(&["if", "exists"]);
            return Ok(RoleCommand::Drop { if_exists, names: self.roles()? });
        }
        let is_grant = self.take("grant");
        if !is_grant {
            self.expect("revoke")?;
        }
        self.grant(is_grant)
    }

    fn create(&mut self) -> Read<RoleCommand> {
        let is_user = self.take("user");
        if !is_user && !self.take("group") {
            self.expect("role")?;
        }
        let name = self.role()?;
        let _ = self.take("with");
        let options = Box::new(self.options()?);
        Ok(RoleCommand::Create { is_user, name, options })
    }

    fn alter(&mut self) -> Read<RoleCommand> {
        let is_group = self.is("group");
        self.p.next_token();
        if !is_group && self.is("all") {
            return self.refuse(SqlError::unsupported("ALTER ROLE ALL"));
        }
        let role = self.role()?;
        if self.take_all(&["rename", "to"]) {
            return match role {
                RoleSpec::Name(old) => Ok(RoleCommand::Rename { old, new: self.role()? }),
                _ => self.p.expected("a name", self.p.peek_token()),
            };
        }
        if is_group {
            let is_grant = self.take("add");
            if !is_grant {
                self.expect("drop")?;
            }
            self.expect("user")?;
            let RoleSpec::Name(group) = role else { return self.p.expected("a name", self.p.peek_token()) };
            let members = self.roles()?;
            return Ok(RoleCommand::GrantRoles { is_grant, roles: vec![group], members, admin: false, of_group: true });
        }
        if self.is("in") {
            return self.refuse(SqlError::unsupported("ALTER ROLE ... IN DATABASE"));
        }
        if self.take("set") {
            let name = self.setting_name()?;
            if self.take("from") {
                return self.refuse(SqlError::unsupported("ALTER ROLE ... SET ... FROM CURRENT"));
            }
            if !self.p.consume_token(&Token::Eq) {
                self.expect("to")?;
            }
            let value = self.setting_value(&name)?;
            return Ok(RoleCommand::Set { role, name, value });
        }
        if self.take("reset") {
            let name = if self.take("all") { String::new() } else { self.setting_name()? };
            return Ok(RoleCommand::Set { role, name, value: None });
        }
        let _ = self.take("with");
        let options = Box::new(self.options()?);
        if !options.member_of.is_empty() || !options.members.is_empty() || !options.admins.is_empty() {
            return self.p.expected("an option of ALTER ROLE", self.p.peek_token());
        }
        Ok(RoleCommand::Alter { role, options })
    }

    fn setting_name(&mut self) -> Read<String> {
        if self.take_all(&["time", "zone"]) {
            return Ok("timezone".to_owned());
        }
        Ok(self.p.parse_object_name(false)?.to_string().replace('"', "").to_lowercase())
    }

    /// `None`: DEFAULT.
    fn setting_value(&mut self, setting: &str) -> Read<Option<String>> {
        if self.take("default") {
            return Ok(None);
        }
        let mut values = Vec::new();
        loop {
            let negative = self.p.consume_token(&Token::Minus);
            let value = match self.p.next_token().token {
                Token::SingleQuotedString(text) | Token::EscapedStringLiteral(text) => Setting::Text(text),
                Token::Number(digits, _) if negative => Setting::Text(format!("-{digits}")),
                Token::Number(digits, _) => Setting::Text(digits),
                Token::Word(word) => Setting::Name(word.into_ident(Span::empty())),
                _ => {
                    self.p.prev_token();
                    return self.p.expected("a value", self.p.peek_token());
                }
            };
            values.push(value);
            if !self.p.consume_token(&Token::Comma) {
                return Ok(Some(joined(setting, &values)));
            }
        }
    }

    fn options(&mut self) -> Read<RoleOptions> {
        let mut options = RoleOptions::default();
        while self.p.peek_token().token != Token::EOF {
            self.option(&mut options)?;
        }
        Ok(options)
    }

    fn option(&mut self, options: &mut RoleOptions) -> Read<()> {
        for (yes, no, place) in [
            ("superuser", "nosuperuser", &mut options.superuser),
            ("inherit", "noinherit", &mut options.inherit),
            ("createrole", "nocreaterole", &mut options.create_role),
            ("createdb", "nocreatedb", &mut options.create_database),
            ("login", "nologin", &mut options.login),
            ("replication", "noreplication", &mut options.replication),
            ("bypassrls", "nobypassrls", &mut options.bypass_row_security),
        ] {
            let value = match () {
                () if self.take(yes) => true,
                () if self.take(no) => false,
                () => continue,
            };
            if place.replace(value).is_some() {
                return self.conflicting();
            }
            return Ok(());
        }
        if self.take_all(&["connection", "limit"]) {
            let negative = self.p.consume_token(&Token::Minus);
            let number: i64 = self.number()?;
            let number = if negative { -number } else { number };
            let limit = i32::try_from(number).ok().filter(|n| *n >= -1);
            let Some(limit) = limit else {
                return self.refuse(SqlError::new("22023", format!("invalid connection limit: {number}")));
            };
            options.connections_max = Some(limit);
            return Ok(());
        }
        if self.take_all(&["valid", "until"]) {
            options.valid_until = Some(self.string()?);
            return Ok(());
        }
        let encrypted = self.take("encrypted");
        if !encrypted && self.is("unencrypted") {
            return self.refuse(
                SqlError::new("0A000", "UNENCRYPTED PASSWORD is no longer supported")
                    .with_hint("Remove UNENCRYPTED to store the password in encrypted form instead."),
            );
        }
        if self.take("password") {
            if options.password.is_some() {
                return self.conflicting();
            }
            return self.password(options);
        }
        if encrypted {
            return self.p.expected("PASSWORD", self.p.peek_token());
        }
        if self.take("sysid") {
            self.number()?;
            return Ok(());
        }
        if self.take_all(&["in", "role"]) || self.take_all(&["in", "group"]) {
            options.member_of.extend(self.roles()?);
        } else if self.take("role") || self.take("user") {
            options.members.extend(self.roles()?);
        } else if self.take("admin") {
            options.admins.extend(self.roles()?);
        } else {
            let token = self.p.peek_token();
            return match &token.token {
                Token::Word(word) => {
                    let message = format!("unrecognized role option \"{}\"", word.value.to_lowercase());
                    self.refuse(SqlError::new("42601", message))
                }
                _ => self.p.expected("an option of a role", token),
            };
        }
        Ok(())
    }

    fn conflicting<T>(&mut self) -> Read<T> {
        self.refuse(SqlError::new("42601", "conflicting or redundant options"))
    }

    fn password(&mut self, options: &mut RoleOptions) -> Read<()> {
        if self.take("null") {
            options.password = Some(None);
            return Ok(());
        }
        let text = self.string()?;
        options.password_was_empty = text.is_empty();
        match password::verifier(&text) {
            Ok(verifier) => options.password = Some(verifier),
            Err(error) => return self.refuse(error),
        }
        Ok(())
    }

    fn string(&mut self) -> Read<String> {
        match self.p.next_token().token {
            Token::SingleQuotedString(text) | Token::EscapedStringLiteral(text) => Ok(text),
            Token::DollarQuotedString(quoted) => Ok(quoted.value),
            _ => {
                self.p.prev_token();
                self.p.expected("a string", self.p.peek_token())
            }
        }
    }

    fn number(&mut self) -> Read<i64> {
        match self.p.next_token().token {
            Token::Number(digits, _) if digits.parse::<i64>().is_ok() => Ok(digits.parse().unwrap_or_default()),
            _ => {
                self.p.prev_token();
                self.p.expected("a number", self.p.peek_token())
            }
        }
    }

    // ---- GRANT and REVOKE

    fn grant(&mut self, is_grant: bool) -> Read<RoleCommand> {
        let mut option = !is_grant && self.take_all(&["grant", "option", "for"]);
        let mut admin = !is_grant && self.take_all(&["admin", "option", "for"]);
        let words = self.privilege_words()?;
        if !self.take("on") {
            let roles = words.into_iter().map(|(word, _)| word).collect();
            self.expect(if is_grant { "to" } else { "from" })?;
            let members = self.roles()?;
            admin |= is_grant && self.take_all(&["with", "admin", "option"]);
            if self.take_all(&["granted", "by"]) {
                self.role()?;
            }
            let _ = !is_grant && self.cascade();
            return Ok(RoleCommand::GrantRoles { is_grant, roles, members, admin, of_group: false });
        }
        if words.iter().any(|(_, has_columns)| *has_columns) {
            return self.refuse(SqlError::unsupported("a privilege on columns"));
        }
        let target = self.target()?;
        let kind = match &target {
            GrantTarget::Objects { kind, .. } | GrantTarget::AllInSchema { kind, .. } => *kind,
        };
        let privileges = match words.as_slice() {
            [(all, _)] if all == "all" || all == "all privileges" => None,
            words => match self.privileges(words, kind) {
                Ok(privileges) => Some(privileges),
                Err(error) => return self.refuse(error),
            },
        };
        self.expect(if is_grant { "to" } else { "from" })?;
        let roles = self.roles()?;
        option |= is_grant && self.take_all(&["with", "grant", "option"]);
        let granted_by = if self.take_all(&["granted", "by"]) { Some(self.role()?) } else { None };
        let cascade = !is_grant && self.cascade();
        Ok(RoleCommand::Grant(GrantStatement { is_grant, privileges, target, roles, option, granted_by, cascade }))
    }

    fn privileges(&self, words: &[(String, bool)], kind: Kind) -> Result<Privileges, SqlError> {
        let mut all = Privileges::NONE;
        for (word, _) in words {
            let Some(one) = Privileges::named(word) else {
                return Err(SqlError::new("42601", format!("unrecognized privilege type \"{word}\"")));
            };
            let possible = kind.possible();
            // GRANT ... ON a table may name a sequence, with what those have.
            let possible = if kind == Kind::Table { possible.with(Kind::Sequence.possible()) } else { possible };
            if !possible.has(one) {
                let message = format!("invalid privilege type {} for {}", word.to_uppercase(), kind.name());
                return Err(SqlError::new("0LP01", message));
            }
            all = all.with(one);
        }
        Ok(all)
    }

    /// Privileges or roles, each with whether columns follow.
    fn privilege_words(&mut self) -> Read<Vec<(String, bool)>> {
        let mut words = Vec::new();
        loop {
            let mut word = self.name()?;
            if word == "all" && self.take("privileges") {
                word = "all privileges".to_owned();
            }
            let has_columns = self.p.peek_token().token == Token::LParen;
            if has_columns {
                while !matches!(self.p.next_token().token, Token::RParen | Token::EOF) {}
            }
            words.push((word, has_columns));
            if !self.p.consume_token(&Token::Comma) {
                return Ok(words);
            }
        }
    }

    fn target(&mut self) -> Read<GrantTarget> {
        if self.take("all") {
            let kind = match () {
                () if self.take("tables") => Kind::Table,
                () if self.take("sequences") => Kind::Sequence,
                () => return self.refuse(SqlError::unsupported("ALL of these IN SCHEMA")),
            };
            self.expect("in")?;
            self.expect("schema")?;
            let schemas = self.p.parse_comma_separated(|p| p.parse_identifier())?;
            return Ok(GrantTarget::AllInSchema { kind, schemas });
        }
        let kind = match () {
            () if self.take("table") => Kind::Table,
            () if self.take("sequence") => Kind::Sequence,
            () if self.take("schema") => Kind::Schema,
            () if self.take("database") => Kind::Database,
            () if self.is("type") && is_name(&self.p.peek_nth_token(1).token) => {
                self.take("type");
                Kind::Type
            }
            () => {
                let others = [
                    "function",
                    "procedure",
                    "routine",
                    "domain",
                    "language",
                    "tablespace",
                    "foreign",
                    "large",
                    "parameter",
                ];
                // A table may have one of these names: two words in a row are none.
                let follows = is_name(&self.p.peek_nth_token(1).token);
                if let Some(word) = others.into_iter().find(|word| self.is(word) && follows) {
                    return self.refuse(SqlError::unsupported(format!("a privilege on a {word}")));
                }
                Kind::Table
            }
        };
        let names = self.p.parse_comma_separated(|p| p.parse_object_name(false))?;
        Ok(GrantTarget::Objects { kind, names })
    }
}

fn is_name(token: &Token) -> bool {
    matches!(token, Token::Word(w) if w.quote_style.is_some() || !matches!(w.value.to_lowercase().as_str(), "to" | "from" | "with" | "as"))
}
