//! The grammar: sqlparser's PostgreSQL dialect with its mistakes mended.
//!
//! `a IS DISTINCT FROM b AND c`: the parser takes everything up to the statement's end for the right side. In PostgreSQL the right
//! side ends before AND and OR, as that of every other IS.
//!
//! `@ a - 5`, `- a ^ 2`, `a ~ b || c`: prefix operators, signs and those of regular expressions bind as in PostgreSQL. `a ISNULL` is a test.
//!
//! `a::text COLLATE "C"`: a collation follows any operand, where the parser takes one behind the simplest only.
//!
//! `ip <<= ANY (array)`: the parser takes comparisons and patterns only there.
//!
//! `a BETWEEN SYMMETRIC b AND c` is no part of it: it is `a BETWEEN b AND c OR a BETWEEN c AND b`.

use sqlparser::ast::{self, BinaryOperator, Expr, Function, FunctionArguments, ObjectName, UnaryOperator};
use sqlparser::dialect::{Dialect, PostgreSqlDialect, Precedence};
use sqlparser::keywords::Keyword;
use sqlparser::parser::{Parser, ParserError};
use sqlparser::tokenizer::Token;
use std::any::TypeId;

fn begins_query(parser: &Parser) -> bool {
    matches!(&parser.peek_token_ref().token, Token::Word(word)
        if matches!(word.keyword, Keyword::SELECT | Keyword::WITH | Keyword::VALUES | Keyword::TABLE))
}

/// An operator of addresses, with an array or a query behind it.
fn quantified_operator(parser: &Parser) -> Option<BinaryOperator> {
    let op = match &parser.peek_token_ref().token {
        Token::ShiftLeft => BinaryOperator::PGBitwiseShiftLeft,
        Token::ShiftRight => BinaryOperator::PGBitwiseShiftRight,
        Token::Overlap => BinaryOperator::PGOverlap,
        Token::CustomBinaryOperator(symbol) if matches!(symbol.as_str(), "<<=" | ">>=") => {
            BinaryOperator::Custom(symbol.clone())
        }
        _ => return None,
    };
    let word = |at: usize| match &parser.peek_nth_token_ref(at).token {
        Token::Word(word) => word.keyword,
        _ => Keyword::NoKeyword,
    };
    let is_quantified = matches!(word(1), Keyword::ANY | Keyword::SOME | Keyword::ALL)
        && parser.peek_nth_token_ref(2).token == Token::LParen;
    is_quantified.then_some(op)
}

/// An operator before its operand, and what binds more tightly belongs to that: a sign is tighter than `^`, the others take sums.
fn prefix_operator(token: &Token) -> Option<(UnaryOperator, Precedence)> {
    Some(match token {
        Token::Minus => (UnaryOperator::Minus, Precedence::Caret),
        Token::Plus => (UnaryOperator::Plus, Precedence::Caret),
        Token::AtSign => (UnaryOperator::PGAbs, Precedence::PgOther),
        Token::Tilde => (UnaryOperator::BitwiseNot, Precedence::PgOther),
        Token::PGSquareRoot => (UnaryOperator::PGSquareRoot, Precedence::PgOther),
        Token::PGCubeRoot => (UnaryOperator::PGCubeRoot, Precedence::PgOther),
        Token::DoubleExclamationMark => (UnaryOperator::PGPrefixFactorial, Precedence::PgOther),
        _ => return None,
    })
}

fn between(value: &Expr, low: &Expr, high: &Expr, negated: bool) -> Expr {
    let boxed = |expr: &Expr| Box::new(expr.clone());
    Expr::Between { expr: boxed(value), negated, low: boxed(low), high: boxed(high) }
}

impl Grammar {
    /// `a AND b` after BETWEEN.
    fn bounds(&self, parser: &mut Parser) -> Result<(Expr, Expr), ParserError> {
        let low = parser.parse_subexpr(self.prec_value(Precedence::Between))?;
        parser.expect_keyword_is(Keyword::AND)?;
        Ok((low, parser.parse_subexpr(self.prec_value(Precedence::Between))?))
    }

    /// Behind the operand, at the operator.
    fn quantified(&self, parser: &mut Parser, left: &Expr, op: BinaryOperator) -> Result<Expr, ParserError> {
        parser.advance_token();
        let keyword = parser.expect_one_of_keywords(&[Keyword::ANY, Keyword::SOME, Keyword::ALL])?;
        parser.expect_token(&Token::LParen)?;
        let right = Box::new(match begins_query(parser) {
            true => Expr::Subquery(parser.parse_query()?),
            false => parser.parse_expr()?,
        });
        parser.expect_token(&Token::RParen)?;
        let (left, is_some) = (Box::new(left.clone()), keyword == Keyword::SOME);
        Ok(match keyword {
            Keyword::ALL => Expr::AllOp { left, compare_op: op, right },
            _ => Expr::AnyOp { left, compare_op: op, right, is_some },
        })
    }

    /// Between the bounds, whichever is the greater.
    fn between_symmetric(&self, parser: &mut Parser, value: &Expr, negated: bool) -> Result<Expr, ParserError> {
        let (a, b) = self.bounds(parser)?;
        let op = if negated { BinaryOperator::And } else { BinaryOperator::Or };
        let (left, right) = (between(value, &a, &b, negated), between(value, &b, &a, negated));
        Ok(Expr::Nested(Box::new(Expr::BinaryOp { left: Box::new(left), op, right: Box::new(right) })))
    }
}

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
        if let Err(ended) = super::wanted::check() {
            return Some(Err(ParserError::ParserError(ended.message)));
        }
        if let Some((op, level)) = prefix_operator(&parser.peek_token_ref().token) {
            parser.advance_token();
            let operand = parser.parse_subexpr(self.prec_value(level));
            return Some(operand.map(|expr| Expr::UnaryOp { op, expr: Box::new(expr) }));
        }
        if let Some(parsed) = values_query(parser).or_else(|| typed_string(parser)) {
            return Some(parsed);
        }
        // The parser has current_user and session_user, but takes these for columns.
        let Token::Word(word) = &parser.peek_token_ref().token else { return None };
        let is_named = |name: &str| word.quote_style.is_none() && word.value.eq_ignore_ascii_case(name);
        let is_schema = is_named("current_schema") && parser.peek_nth_token_ref(1).token != Token::LParen;
        if !is_schema && !is_named("current_role") {
            return None;
        }
        let name = parser.parse_identifier();
        Some(name.map(|name| call_of(ObjectName::from(vec![name]), FunctionArguments::None)))
    }

    fn parse_infix(&self, parser: &mut Parser, left: &Expr, _: u8) -> Option<Result<Expr, ParserError>> {
        use Keyword::{ASYMMETRIC, BETWEEN, DISTINCT, FROM, IS, NOT, SYMMETRIC};
        for (words, negated) in [(&[BETWEEN, SYMMETRIC][..], false), (&[NOT, BETWEEN, SYMMETRIC], true)] {
            if parser.parse_keywords(words) {
                return Some(self.between_symmetric(parser, left, negated));
            }
        }
        for (words, negated) in [(&[BETWEEN, ASYMMETRIC][..], false), (&[NOT, BETWEEN, ASYMMETRIC], true)] {
            if parser.parse_keywords(words) {
                let bounds = self.bounds(parser);
                return Some(bounds.map(|(low, high)| between(left, &low, &high, negated)));
            }
        }
        if parser.parse_keyword(Keyword::COLLATE) {
            let collation = parser.parse_object_name(false);
            return Some(collation.map(|collation| Expr::Collate { expr: Box::new(left.clone()), collation }));
        }
        if let Some(op) = quantified_operator(parser) {
            return Some(self.quantified(parser, left, op));
        }
        if is_isnull(&parser.peek_token_ref().token) {
            parser.advance_token();
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

    /// ON ends a select list, in INSERT ... SELECT ... ON CONFLICT, and so does FOR; ISNULL is a test. Words of other grammars are labels.
    fn is_column_alias(&self, kw: &Keyword, parser: &mut Parser) -> bool {
        use Keyword::{CLUSTER, EXCLUDE, EXPLAIN, MINUS, SORT, TOP, VIEW};
        let is_label = matches!(kw, CLUSTER | EXCLUDE | EXPLAIN | MINUS | SORT | TOP | VIEW);
        let ends = matches!(kw, Keyword::ON | Keyword::FOR | Keyword::NOTNULL);
        is_label || !ends && self.0.is_column_alias(kw, parser)
    }

    fn get_next_precedence(&self, parser: &Parser) -> Option<Result<u8, ParserError>> {
        match &parser.peek_token_ref().token {
            token if is_isnull(token) => Some(Ok(self.prec_value(Precedence::Is))),
            token if is_operator_elsewhere(token) => Some(Ok(self.prec_unknown())),
            Token::Tilde | Token::TildeAsterisk | Token::ExclamationMarkTilde | Token::ExclamationMarkTildeAsterisk => {
                Some(Ok(self.prec_value(Precedence::PgOther)))
            }
            _ => self.0.get_next_precedence(parser),
        }
    }

    /// An argument's name is a word, `name => value`. The parser would read each argument twice to see whether an expression is a name, and
    /// those within it four times.
    fn supports_named_fn_args_with_expr_name(&self) -> bool {
        false
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

/// `VALUES (1), (2)` in parentheses is a subquery; the caller has taken the first of these.
fn values_query(parser: &mut Parser) -> Option<Result<Expr, ParserError>> {
    let is_values = matches!(&parser.peek_token_ref().token, Token::Word(word) if word.keyword == Keyword::VALUES)
        && parser.peek_nth_token_ref(1).token == Token::LParen;
    is_values.then(|| parser.parse_query().map(Expr::Subquery))
}

/// `pg_catalog.int4 '5'`, `"int4" '5'`: a type's name before a literal.
fn typed_string(parser: &mut Parser) -> Option<Result<Expr, ParserError>> {
    let is_name = |at: usize| matches!(&parser.peek_nth_token_ref(at).token, Token::Word(_));
    let is_literal = |at: usize| {
        matches!(parser.peek_nth_token_ref(at).token, Token::SingleQuotedString(_) | Token::EscapedStringLiteral(_))
    };
    let is_quoted = matches!(&parser.peek_token_ref().token, Token::Word(word) if word.quote_style.is_some());
    let of_catalog =
        matches!(&parser.peek_token_ref().token, Token::Word(word) if word.value.eq_ignore_ascii_case("pg_catalog"));
    // The grammar has types among its keywords; whatever else stands here names one too.
    let is_other = matches!(&parser.peek_token_ref().token, Token::Word(word) if matches!(word.keyword, Keyword::NoKeyword | Keyword::NAME))
        && (is_literal(1) || parser.peek_nth_token_ref(1).token == Token::Period && is_name(2) && is_literal(3));
    let is_typed = is_quoted && is_literal(1)
        || is_other
        || of_catalog && parser.peek_nth_token_ref(1).token == Token::Period && is_name(2) && is_literal(3);
    is_typed.then(|| {
        let data_type = ast::DataType::Custom(parser.parse_object_name(false)?, Vec::new());
        let value = parser.parse_value()?;
        Ok(Expr::TypedString(ast::TypedString { data_type, value, uses_odbc_syntax: false }))
    })
}

/// The parser has no such keyword.
fn is_isnull(token: &Token) -> bool {
    matches!(token, Token::Word(word) if word.quote_style.is_none() && word.value.eq_ignore_ascii_case("isnull"))
}

/// A word that is an operator in other grammars and a name here.
fn is_operator_elsewhere(token: &Token) -> bool {
    use Keyword::{DIV, MATCH, REGEXP, RLIKE, XOR};
    matches!(token, Token::Word(word) if matches!(word.keyword, DIV | MATCH | REGEXP | RLIKE | XOR))
}

/// A call of a function with nothing but arguments.
pub fn call_of(name: ObjectName, args: FunctionArguments) -> Expr {
    Expr::Function(Function {
        name,
        uses_odbc_syntax: false,
        parameters: FunctionArguments::None,
        args,
        null_treatment: None,
        filter: None,
        over: None,
        within_group: Vec::new(),
    })
}
