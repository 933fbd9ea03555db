//! LISTEN, UNLISTEN and NOTIFY.

use super::{Parsed, is_word, near, syntax_error};
use crate::bind::scope::fold;
use crate::error::SqlError;
use crate::parse::grammar::Grammar;
use crate::parse::printed::parser_of;
use sqlparser::parser::Parser;
use sqlparser::tokenizer::{Token, TokenWithSpan};

/// A command on a channel, by its name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ChannelCommand {
    Listen(String),
    /// `None`: on all of them.
    Unlisten(Option<String>),
    Notify {
        channel: String,
        payload: String,
    },
}

impl ChannelCommand {
    /// As CommandComplete says it.
    pub fn tag(&self) -> &'static str {
        match self {
            ChannelCommand::Listen(_) => "LISTEN",
            ChannelCommand::Unlisten(_) => "UNLISTEN",
            ChannelCommand::Notify { .. } => "NOTIFY",
        }
    }
}

/// `LISTEN name`, `UNLISTEN {name | *}`, `NOTIFY name [, 'payload']`
pub(super) fn parse_channel(words: &[&TokenWithSpan], sql: &str) -> Result<Parsed, SqlError> {
    let dialect = Grammar::default();
    let tokens: Vec<TokenWithSpan> = words[1..].iter().map(|t| (*t).clone()).collect();
    let mut parser = parser_of(&dialect, tokens);
    let name = |parser: &mut Parser<'_>| match &parser.peek_token_ref().token {
        // The grammar takes a literal for a name.
        Token::Word(_) | Token::EOF => {
            parser.parse_identifier().map(|name| fold(&name)).map_err(|e| syntax_error(sql, e))
        }
        _ => Err(near(sql, &parser.peek_token())),
    };
    let command = if is_word(&words[0].token, "listen") {
        ChannelCommand::Listen(name(&mut parser)?)
    } else if is_word(&words[0].token, "unlisten") {
        let is_all = parser.consume_token(&Token::Mul);
        ChannelCommand::Unlisten(if is_all { None } else { Some(name(&mut parser)?) })
    } else {
        let channel = name(&mut parser)?;
        let payload = match parser.consume_token(&Token::Comma) {
            // The grammar takes a name for a literal.
            true if matches!(parser.peek_token_ref().token, Token::Word(_)) => {
                return Err(near(sql, &parser.peek_token()));
            }
            true => parser.parse_literal_string().map_err(|e| syntax_error(sql, e))?,
            false => String::new(),
        };
        ChannelCommand::Notify { channel, payload }
    };
    match parser.peek_token() {
        next if next.token == Token::EOF => Ok(Parsed::Channel(command)),
        next => Err(near(sql, &next)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::parse;

    fn command(sql: &str) -> ChannelCommand {
        match parse(sql) {
            Ok(Parsed::Channel(command)) => command,
            other => panic!("{sql}: {other:?}"),
        }
    }

    #[test]
    fn commands_on_channels_are_read() {
        assert_eq!(command("LISTEN Jobs"), ChannelCommand::Listen("jobs".to_owned()));
        assert_eq!(command("listen \"Jobs\";"), ChannelCommand::Listen("Jobs".to_owned()));
        assert_eq!(command("unlisten *"), ChannelCommand::Unlisten(None));
        assert_eq!(command("unlisten jobs"), ChannelCommand::Unlisten(Some("jobs".to_owned())));
        let (channel, payload) = ("jobs".to_owned(), "it's".to_owned());
        assert_eq!(command("notify jobs, 'it''s'"), ChannelCommand::Notify { channel, payload });
        assert_eq!(
            command("notify e, e'a\\tb'"),
            ChannelCommand::Notify { channel: "e".to_owned(), payload: "a\tb".to_owned() }
        );
    }

    #[test]
    fn what_is_no_command_on_a_channel_is_refused() {
        for sql in
            ["listen", "listen a b", "listen *", "notify a,", "notify a, b", "notify a 'b'", "unlisten", "listen 'a'"]
        {
            assert_eq!(parse(sql).expect_err(sql).sqlstate, "42601", "{sql}");
        }
    }
}
