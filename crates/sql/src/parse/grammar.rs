//! The grammar: sqlparser's PostgreSQL dialect with its mistakes mended.
//!
//! `a IS DISTINCT FROM b AND c`: the parser takes everything up to the statement's end for the right side. In PostgreSQL the right
//! side ends before AND and OR, as that of every other IS.
//!
//! `@ a - 5`, `~a + 1`, `|/ 9 + 16`: a sign that is no minus takes all that binds as + or tighter. The signs of regular expressions bind as `||`.

use sqlparser::ast::{Expr, Function, FunctionArguments, ObjectName, UnaryOperator};
use sqlparser::dialect::{Dialect, PostgreSqlDialect, Precedence};
use sqlparser::keywords::Keyword;
use sqlparser::parser::{Parser, ParserError};
use sqlparser::tokenizer::Token;
use std::any::TypeId;

#[derive(Debug, Default)]
pub struct Grammar(PostgreSqlDialect);

/// Methods that the PostgreSQL dialect overrides, passed on to it.
macro_rules! pass_on {
    ($($name:ident($($arg:ident: $ty:ty),*) -> $result:ty;)*) => {
        $(fn $name(&self, $($arg: $ty),*) -> $result {
            self.0.$name($($arg),*)
        })*
    };
}

impl Dialect for Grammar {
    fn dialect(&self) -> TypeId {
        self.0.dialect()
    }

    fn parse_prefix(&self, parser: &mut Parser) -> Option<Result<Expr, ParserError>> {
        let sign = match &parser.peek_token_ref().token {
            Token::AtSign => Some(UnaryOperator::PGAbs),
            Token::Tilde => Some(UnaryOperator::BitwiseNot),
            Token::PGSquareRoot => Some(UnaryOperator::PGSquareRoot),
            Token::PGCubeRoot => Some(UnaryOperator::PGCubeRoot),
            _ => None,
        };
        if let Some(op) = sign {
            parser.next_token();
            let operand = parser.parse_subexpr(self.prec_value(Precedence::PgOther));
            return Some(operand.map(|operand| Expr::UnaryOp { op, expr: Box::new(operand) }));
        }
        // The parser has current_user and session_user, but takes this one for a column.
        let Token::Word(word) = &parser.peek_token_ref().token else { return None };
        if word.quote_style.is_some() || !word.value.eq_ignore_ascii_case("current_role") {
            return None;
        }
        let name = parser.parse_identifier();
        Some(name.map(|name| {
            Expr::Function(Function {
                name: ObjectName::from(vec![name]),
                uses_odbc_syntax: false,
                parameters: FunctionArguments::None,
                args: FunctionArguments::None,
                null_treatment: None,
                filter: None,
                over: None,
                within_group: Vec::new(),
            })
        }))
    }

    fn parse_infix(&self, parser: &mut Parser, left: &Expr, _: u8) -> Option<Result<Expr, ParserError>> {
        use Keyword::{DISTINCT, FROM, IS, NOT};
        if is_isnull(&parser.peek_token_ref().token) {
            parser.next_token();
            return Some(Ok(Expr::IsNull(Box::new(left.clone()))));
        }
        let build: fn(Box<Expr>, Box<Expr>) -> Expr = if parser.parse_keywords(&[IS, DISTINCT, FROM]) {
            Expr::IsDistinctFrom
        } else if parser.parse_keywords(&[IS, NOT, DISTINCT, FROM]) {
            Expr::IsNotDistinctFrom
        } else {
            return None;
        };
        let right = parser.parse_subexpr(self.prec_value(Precedence::Is));
        Some(right.map(|right| build(Box::new(left.clone()), Box::new(right))))
    }

    /// ON ends a select list, in INSERT ... SELECT ... ON CONFLICT; ISNULL is a test.
    fn is_column_alias(&self, kw: &Keyword, parser: &mut Parser) -> bool {
        !matches!(kw, Keyword::ON | Keyword::NOTNULL) && self.0.is_column_alias(kw, parser)
    }

    fn get_next_precedence(&self, parser: &Parser) -> Option<Result<u8, ParserError>> {
        match &parser.peek_token_ref().token {
            token if is_isnull(token) => Some(Ok(self.prec_value(Precedence::Is))),
            Token::Tilde | Token::TildeAsterisk | Token::ExclamationMarkTilde | Token::ExclamationMarkTildeAsterisk => {
                Some(Ok(self.prec_value(Precedence::PgOther)))
            }
            _ => self.0.get_next_precedence(parser),
        }
    }

    pass_on! {
        identifier_quote_style(identifier: &str) -> Option<char>;
        is_delimited_identifier_start(ch: char) -> bool;
        is_identifier_start(ch: char) -> bool;
        is_identifier_part(ch: char) -> bool;
        supports_unicode_string_literal() -> bool;
        is_reserved_for_identifier(kw: Keyword) -> bool;
        is_custom_operator_part(ch: char) -> bool;
        supports_filter_during_aggregation() -> bool;
        supports_group_by_expr() -> bool;
        prec_value(prec: Precedence) -> u8;
        allow_extract_custom() -> bool;
        allow_extract_single_quotes() -> bool;
        supports_create_index_with_clause() -> bool;
        supports_explain_with_utility_options() -> bool;
        supports_listen_notify() -> bool;
        supports_factorial_operator() -> bool;
        supports_bitwise_shift_operators() -> bool;
        supports_comment_on() -> bool;
        supports_load_extension() -> bool;
        supports_named_fn_args_with_colon_operator() -> bool;
        supports_named_fn_args_with_expr_name() -> bool;
        supports_empty_projections() -> bool;
        supports_nested_comments() -> bool;
        supports_string_escape_constant() -> bool;
        supports_numeric_literal_underscores() -> bool;
        supports_array_typedef_with_brackets() -> bool;
        supports_geometric_types() -> bool;
        supports_set_names() -> bool;
        supports_alter_column_type_using() -> bool;
        supports_notnull_operator() -> bool;
        supports_interval_options() -> bool;
        supports_insert_table_alias() -> bool;
        supports_create_table_like_parenthesized() -> bool;
        supports_select_wildcard_with_alias() -> bool;
        supports_comma_separated_trim() -> bool;
        supports_xml_expressions() -> bool;
        supports_comment_optimizer_hint() -> bool;
    }
}

/// The parser has no such keyword.
fn is_isnull(token: &Token) -> bool {
    matches!(token, Token::Word(word) if word.quote_style.is_none() && word.value.eq_ignore_ascii_case("isnull"))
}
