//! Which statement is it, but for its numbers and texts? Clients of the simple protocol write values into the text, so that no two texts are the
//! same although there are only a few statements. Taken out, they are parameters, and the statement is planned once.
//!
//! ```text
//! UPDATE t SET n = n + 7, name = 'x' WHERE id = 12     UPDATE t SET n = n + $1::int4, name = $2 WHERE id = $3::int4
//! ```
//!
//! Invariants:
//! 1. The shape means the same with its values as the text: a number has the type that it has as a literal and stands where a value of that type may
//!    stand (after an operator, within BETWEEN, in the lists of IN and VALUES). A text is taken out only where it is stored
//!    (SET, VALUES), where literal and parameter alike take the column's type. Everything else, positions (`ORDER BY 1`), limits, casts, texts that
//!    are compared, stays in the text.
//! 2. What is not understood at a glance has no shape: comments, parameters, escapes, dollar quotes, several statements.
//! 3. A shape is used only if its plan does not depend on the values: one row by its key, or rows of VALUES. If anything at all fails with it, the
//!    text is planned as it stands and tells what is wrong.

use freshet_engine::schema::Type;

/// Longer texts are bulk loads.
const TEXT_BYTES_MAX: usize = 4 << 10;
const VALUES_MAX: usize = 64;

/// A statement without its values.
#[derive(Debug, PartialEq)]
pub(crate) struct Shape {
    /// With `$n` where a value was.
    pub text: String,
    /// What is declared of each.
    pub types: Vec<Option<Type>>,
    pub values: Vec<Taken>,
}

#[derive(Debug, PartialEq)]
pub(crate) enum Taken {
    Integer(i64),
    /// Without its quotes.
    Text(String),
}

/// What stands before a literal, as far as it says whether the literal is a value.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Before {
    Comparison,
    /// SET's own `=`.
    Assignment,
    Arithmetic,
    /// The parenthesis or comma of a list.
    List,
    Between,
    Other,
}

struct Scan<'s> {
    sql: &'s str,
    at: usize,
    shape: Shape,
    before: Before,
    depth: usize,
    /// The depth within the innermost list of IN or VALUES.
    list: Option<usize>,
    /// The last word opens a list with its parenthesis.
    opens_list: bool,
    in_values: bool,
    /// Before a column of SET, and not yet past its `=`.
    is_target: bool,
    in_set: bool,
    is_between: bool,
}

/// `None`: it has no values, or no shape.
pub(crate) fn of(sql: &str) -> Option<Shape> {
    let word = sql.trim_start().get(..6)?;
    let known = ["select", "insert", "update", "delete"].iter().any(|known| word.eq_ignore_ascii_case(known));
    if !known || sql.len() > TEXT_BYTES_MAX {
        return None;
    }
    let shape = Shape { text: String::with_capacity(sql.len() + 8), types: Vec::new(), values: Vec::new() };
    let mut scan = Scan {
        sql,
        at: 0,
        shape,
        before: Before::Other,
        depth: 0,
        list: None,
        opens_list: false,
        in_values: false,
        is_target: false,
        in_set: false,
        is_between: false,
    };
    while scan.at < sql.len() {
        scan.token()?;
    }
    (!scan.shape.values.is_empty() && scan.shape.values.len() <= VALUES_MAX).then_some(scan.shape)
}

impl Scan<'_> {
    fn byte(&self, at: usize) -> u8 {
        self.sql.as_bytes().get(at).copied().unwrap_or(0)
    }

    /// The end of the run of such bytes.
    fn run(&self, is_in: impl Fn(u8) -> bool) -> usize {
        let rest = &self.sql.as_bytes()[self.at..];
        self.at + rest.iter().position(|&b| !is_in(b)).unwrap_or(rest.len())
    }

    fn keep(&mut self, end: usize) {
        self.shape.text.push_str(&self.sql[self.at..end]);
        self.at = end;
    }

    fn token(&mut self) -> Option<()> {
        match self.byte(self.at) {
            b if b.is_ascii_whitespace() => {
                let end = self.run(|b| b.is_ascii_whitespace());
                self.keep(end);
            }
            b if b.is_ascii_alphabetic() || b == b'_' || b >= 0x80 => self.word()?,
            b if b.is_ascii_digit() => self.number(),
            b'\'' => self.text()?,
            b'"' => {
                let end = self.at + 1 + self.sql[self.at + 1..].find('"')? + 1;
                self.keep(end);
                self.before = Before::Other;
            }
            b'(' | b')' | b',' => self.list_mark(),
            b'.' => {
                // `.5`, and what follows a qualifier.
                let end = self.at + 1;
                self.keep(end);
                let digits = self.run(|b| b.is_ascii_digit());
                self.keep(digits);
                self.before = Before::Other;
            }
            b if is_operator(b) => self.operator()?,
            b'[' | b']' | b':' => {
                let end = self.at + 1;
                self.keep(end);
                self.before = Before::Other;
            }
            // Parameters, dollar quotes, semicolons.
            _ => return None,
        }
        Some(())
    }

    fn word(&mut self) -> Option<()> {
        let end = self.run(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'$' || b >= 0x80);
        let word = self.sql[self.at..end].to_ascii_lowercase();
        if self.byte(end) == b'\'' {
            // E'..', B'..', N'..'.
            return None;
        }
        self.keep(end);
        self.opens_list = false;
        self.before = Before::Other;
        match word.as_str() {
            "set" => (self.in_set, self.is_target) = (true, true),
            "where" | "from" | "returning" => (self.in_set, self.is_target) = (false, false),
            "values" => (self.in_values, self.opens_list) = (true, true),
            "in" => self.opens_list = true,
            "between" => (self.is_between, self.before) = (true, Before::Between),
            "and" if self.is_between => (self.is_between, self.before) = (false, Before::Between),
            // One statement, and no second meaning of what is above.
            "select" | "with" | "union" | "intersect" | "except" | "conflict"
                if !self.shape.text.trim_start().eq_ignore_ascii_case(&word) =>
            {
                return None;
            }
            _ => {}
        }
        Some(())
    }

    fn list_mark(&mut self) {
        let mark = self.byte(self.at);
        let end = self.at + 1;
        self.keep(end);
        self.before = Before::Other;
        match mark {
            b'(' => {
                self.depth += 1;
                if self.opens_list {
                    self.list = Some(self.depth);
                }
            }
            b')' => {
                if self.list == Some(self.depth) {
                    self.list = None;
                }
                self.depth = self.depth.saturating_sub(1);
            }
            _ => {}
        }
        self.is_target |= mark == b',' && self.in_set && self.depth == 0;
        // Between the rows of VALUES.
        self.opens_list = mark == b',' && self.in_values && self.list.is_none();
        if mark != b')' && self.list == Some(self.depth) {
            self.before = Before::List;
        }
    }

    fn operator(&mut self) -> Option<()> {
        let end = self.run(is_operator);
        let operator = &self.sql[self.at..end];
        if operator.contains("--") || operator.contains("/*") {
            return None;
        }
        self.before = match operator {
            "=" if std::mem::take(&mut self.is_target) => Before::Assignment,
            "=" | "<" | ">" | "<=" | ">=" | "<>" | "!=" => Before::Comparison,
            "+" | "-" | "*" | "/" | "%" => match self.before {
                // `(-1, ...`: of a list's number.
                Before::List if operator == "-" => Before::List,
                _ => Before::Arithmetic,
            },
            "=-" | "<-" | ">-" => Before::Arithmetic,
            _ => Before::Other,
        };
        self.keep(end);
        Some(())
    }

    /// The first byte that is no blank.
    fn next_mark(&self, from: usize) -> u8 {
        self.sql.as_bytes()[from..].iter().copied().find(|b| !b.is_ascii_whitespace()).unwrap_or(0)
    }

    fn number(&mut self) {
        let end = self.run(|b| b.is_ascii_digit());
        let is_integer = !matches!(self.byte(end), b'.' | b'_' | b'a'..=b'z' | b'A'..=b'Z');
        let number = self.sql[self.at..end].parse::<i64>();
        let is_value = self.before != Before::Other && !matches!(self.next_mark(end), b':' | b'[' | b'.');
        match number {
            Ok(number) if is_integer && is_value => {
                let ty = if i32::try_from(number).is_ok() { Type::Int4 } else { Type::Int8 };
                self.take(end, Taken::Integer(number), Some(ty));
            }
            _ => {
                let end = self.run(|b| b.is_ascii_alphanumeric() || b == b'.' || b == b'_');
                self.keep(end);
            }
        }
        self.before = Before::Other;
    }

    fn text(&mut self) -> Option<()> {
        let (mut end, mut text) = (self.at + 1, String::new());
        loop {
            let close = end + self.sql[end..].find('\'')?;
            text.push_str(&self.sql[end..close]);
            end = close + 1;
            if self.byte(end) != b'\'' {
                break;
            }
            text.push('\'');
            end += 1;
        }
        let is_stored = match self.before {
            Before::Assignment => true,
            Before::List => self.in_values,
            _ => false,
        };
        let next = self.next_mark(end);
        let ends = matches!(next, 0 | b',' | b')') || next.is_ascii_alphabetic();
        if is_stored && ends {
            self.take(end, Taken::Text(text), None);
        } else {
            self.keep(end);
        }
        self.before = Before::Other;
        Some(())
    }

    fn take(&mut self, end: usize, value: Taken, ty: Option<Type>) {
        use std::fmt::Write;
        self.shape.values.push(value);
        self.shape.types.push(ty);
        write!(self.shape.text, "${}", self.shape.values.len()).expect("a string grows");
        self.at = end;
    }
}

fn is_operator(b: u8) -> bool {
    matches!(
        b,
        b'+' | b'-'
            | b'*'
            | b'/'
            | b'<'
            | b'>'
            | b'='
            | b'~'
            | b'!'
            | b'@'
            | b'#'
            | b'%'
            | b'^'
            | b'&'
            | b'|'
            | b'`'
            | b'?'
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(sql: &str) -> String {
        of(sql).map_or_else(|| "none".to_owned(), |shape| shape.text)
    }

    #[test]
    fn values_become_parameters() {
        for (sql, shape) in [
            ("SELECT a FROM t WHERE id = 12", "SELECT a FROM t WHERE id = $1"),
            ("select a from t where id=-12", "select a from t where id=-$1"),
            ("SELECT a FROM t WHERE id IN (1, -2,3)", "SELECT a FROM t WHERE id IN ($1, -$2,$3)"),
            ("SELECT a FROM t WHERE id BETWEEN 1 AND 2 AND x", "SELECT a FROM t WHERE id BETWEEN $1 AND $2 AND x"),
            ("UPDATE t SET n = n + 7, s = 'it''s' WHERE id = 1", "UPDATE t SET n = n + $1, s = $2 WHERE id = $3"),
            (
                "INSERT INTO t (a, b) VALUES (1, 'x', now()), (-2, f(3), 'y')",
                "INSERT INTO t (a, b) VALUES ($1, $2, now()), (-$3, f(3), $4)",
            ),
        ] {
            assert_eq!(text(sql), shape);
        }
        let shape = of("UPDATE t SET s = 'it''s' WHERE id = 3000000000").expect("it has values");
        assert_eq!(shape.values, [Taken::Text("it's".to_owned()), Taken::Integer(3_000_000_000)]);
        assert_eq!(shape.types, [None, Some(Type::Int8)]);
    }

    #[test]
    fn what_is_no_value_stays() {
        for sql in [
            "SELECT a FROM t ORDER BY 1, 2 LIMIT 3",
            "SELECT a FROM t WHERE s = 'x'",
            "SELECT a::varchar(3), round(b, 2), x[1], t1.c2 FROM t",
            "SELECT a FROM t WHERE x = 1.5 OR x = 1e3 OR x = .5",
            "SELECT a FROM t WHERE x = 5::bigint",
            "UPDATE t SET s = 'x' || s",
            "UPDATE t SET d = date '2020-01-01'",
            "SELECT a FROM t WHERE x -> 1 IS NULL",
            // No shape at all.
            "SELECT a FROM t WHERE id = 1 -- 2",
            "SELECT a FROM t WHERE id = 1 /* 2 */",
            "SELECT a FROM t WHERE id = $1 AND n = 2",
            "SELECT a FROM t WHERE id = 1; SELECT 2",
            "SELECT a FROM t WHERE s = E'\\n' AND n = 1",
            "SELECT a FROM t WHERE id = (SELECT 1 WHERE n = 2)",
            "INSERT INTO t VALUES (1) ON CONFLICT (a) DO NOTHING",
            "EXPLAIN SELECT a FROM t WHERE id = 1",
            "UPDATE t SET s = 'unterminated",
        ] {
            assert_eq!(text(sql), "none", "{sql}");
        }
    }
}
