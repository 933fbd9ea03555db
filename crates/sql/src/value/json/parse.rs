//! JSON's grammar. Each node keeps its text, which is what `json` gives back.

use super::Json;
use crate::error::SqlError;
use crate::value::fault;
use crate::value::numeric::Numeric;

/// How deep a document may nest: its reading takes stack.
const DEPTH_MAX: usize = 500;

#[derive(Debug)]
pub(crate) struct Node<'a> {
    pub text: &'a str,
    pub value: NodeValue<'a>,
}

#[derive(Debug)]
pub(crate) enum NodeValue<'a> {
    Null,
    Bool(bool),
    Number,
    String(String),
    Array(Vec<Node<'a>>),
    /// In the order given, with equal keys.
    Object(Vec<(String, Node<'a>)>),
}

impl Node<'_> {
    pub fn to_json(&self) -> Result<Json, SqlError> {
        Ok(match &self.value {
            NodeValue::Null => Json::Null,
            NodeValue::Bool(v) => Json::Bool(*v),
            NodeValue::Number => Json::Number(Numeric::parse(self.text.as_bytes())?),
            NodeValue::String(text) => Json::String(text.clone()),
            NodeValue::Array(items) => Json::Array(items.iter().map(Node::to_json).collect::<Result<_, _>>()?),
            NodeValue::Object(pairs) => {
                let pairs = pairs.iter().map(|(key, value)| Ok((key.clone(), value.to_json()?)));
                Json::object(pairs.collect::<Result<_, SqlError>>()?)
            }
        })
    }

    /// The last field of this name.
    pub fn field(&self, key: &str) -> Option<&Self> {
        match &self.value {
            NodeValue::Object(pairs) => pairs.iter().rev().find(|(k, _)| k == key).map(|(_, v)| v),
            _ => None,
        }
    }

    pub fn element(&self, at: i64) -> Option<&Self> {
        match &self.value {
            NodeValue::Array(items) => items.get(super::place(at, items.len())?),
            _ => None,
        }
    }

    pub fn at_path(&self, path: &[String]) -> Option<&Self> {
        path.iter().try_fold(self, |node, step| match node.value {
            NodeValue::Object(_) => node.field(step),
            NodeValue::Array(_) => node.element(step.trim().parse().ok()?),
            _ => None,
        })
    }

    pub fn type_name(&self) -> &'static str {
        match self.value {
            NodeValue::Null => "null",
            NodeValue::Bool(_) => "boolean",
            NodeValue::Number => "number",
            NodeValue::String(_) => "string",
            NodeValue::Array(_) => "array",
            NodeValue::Object(_) => "object",
        }
    }
}

/// `in_tree`: the strings are to be kept as such, where `\u0000` has no place.
pub(crate) fn parse(text: &[u8], in_tree: bool) -> Result<Node<'_>, SqlError> {
    let text = std::str::from_utf8(text).map_err(|_| fault::invalid_text("json", text))?;
    let mut parser = Parser { text, at: 0, in_tree };
    let parsed = parser.value(0).and_then(|node| {
        parser.skip_space();
        if parser.at < text.len() { Err(Wrong::Syntax) } else { Ok(node) }
    });
    parsed.map_err(|wrong| match wrong {
        Wrong::Syntax => {
            let rest = &text[parser.at.min(text.len())..];
            let detail = match rest.split_whitespace().next() {
                None => "The input string ended unexpectedly.".to_owned(),
                Some(token) => format!("Token \"{token}\" is invalid."),
            };
            fault::with_detail(SqlError::new("22P02", "invalid input syntax for type json"), detail)
        }
        Wrong::Escape => {
            let error = SqlError::new("22P05", "unsupported Unicode escape sequence");
            fault::with_detail(error, "\\u0000 cannot be converted to text.".to_owned())
        }
        Wrong::TooDeep => SqlError::new("54001", "stack depth limit exceeded"),
    })
}

enum Wrong {
    Syntax,
    Escape,
    TooDeep,
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
    in_tree: bool,
}

impl<'a> Parser<'a> {
    fn peek(&self) -> u8 {
        self.text.as_bytes().get(self.at).copied().unwrap_or(0)
    }

    fn skip_space(&mut self) {
        while matches!(self.peek(), b' ' | b'\t' | b'\n' | b'\r') {
            self.at += 1;
        }
    }

    fn expect(&mut self, byte: u8) -> Result<(), Wrong> {
        self.skip_space();
        if self.peek() != byte {
            return Err(Wrong::Syntax);
        }
        self.at += 1;
        Ok(())
    }

    fn value(&mut self, depth: usize) -> Result<Node<'a>, Wrong> {
        if depth > DEPTH_MAX {
            return Err(Wrong::TooDeep);
        }
        self.skip_space();
        let start = self.at;
        let value = match self.peek() {
            b'{' => self.object(depth)?,
            b'[' => self.array(depth)?,
            b'"' => NodeValue::String(self.string()?),
            b'-' | b'0'..=b'9' => self.number()?,
            _ => self.word()?,
        };
        Ok(Node { text: &self.text[start..self.at], value })
    }

    fn word(&mut self) -> Result<NodeValue<'a>, Wrong> {
        let rest = &self.text[self.at..];
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(rest.len());
        let value = match &rest[..end] {
            "null" => NodeValue::Null,
            "true" => NodeValue::Bool(true),
            "false" => NodeValue::Bool(false),
            _ => return Err(Wrong::Syntax),
        };
        self.at += end;
        Ok(value)
    }

    fn digits(&mut self) -> usize {
        let start = self.at;
        while self.peek().is_ascii_digit() {
            self.at += 1;
        }
        self.at - start
    }

    fn number(&mut self) -> Result<NodeValue<'a>, Wrong> {
        let start = self.at;
        let fail = |parser: &mut Self| {
            parser.at = start;
            Err(Wrong::Syntax)
        };
        self.at += usize::from(self.peek() == b'-');
        let zero = self.peek() == b'0';
        let whole = self.digits();
        if whole == 0 || zero && whole > 1 {
            return fail(self);
        }
        if self.peek() == b'.' {
            self.at += 1;
            if self.digits() == 0 {
                return fail(self);
            }
        }
        if matches!(self.peek(), b'e' | b'E') {
            self.at += 1;
            self.at += usize::from(matches!(self.peek(), b'+' | b'-'));
            if self.digits() == 0 {
                return fail(self);
            }
        }
        if self.peek().is_ascii_alphanumeric() {
            return fail(self);
        }
        Ok(NodeValue::Number)
    }

    fn array(&mut self, depth: usize) -> Result<NodeValue<'a>, Wrong> {
        self.at += 1;
        let mut items = Vec::new();
        self.skip_space();
        if self.peek() == b']' {
            self.at += 1;
            return Ok(NodeValue::Array(items));
        }
        loop {
            items.push(self.value(depth + 1)?);
            self.skip_space();
            match self.peek() {
                b',' => self.at += 1,
                b']' => {
                    self.at += 1;
                    return Ok(NodeValue::Array(items));
                }
                _ => return Err(Wrong::Syntax),
            }
        }
    }

    fn object(&mut self, depth: usize) -> Result<NodeValue<'a>, Wrong> {
        self.at += 1;
        let mut pairs = Vec::new();
        self.skip_space();
        if self.peek() == b'}' {
            self.at += 1;
            return Ok(NodeValue::Object(pairs));
        }
        loop {
            self.skip_space();
            if self.peek() != b'"' {
                return Err(Wrong::Syntax);
            }
            let key = self.string()?;
            self.expect(b':')?;
            pairs.push((key, self.value(depth + 1)?));
            self.skip_space();
            match self.peek() {
                b',' => self.at += 1,
                b'}' => {
                    self.at += 1;
                    return Ok(NodeValue::Object(pairs));
                }
                _ => return Err(Wrong::Syntax),
            }
        }
    }

    fn string(&mut self) -> Result<String, Wrong> {
        self.at += 1;
        let mut out = String::new();
        loop {
            let rest = &self.text[self.at..];
            let plain = rest.find(['"', '\\']).ok_or(Wrong::Syntax)?;
            if rest[..plain].bytes().any(|b| b < 0x20) {
                return Err(Wrong::Syntax);
            }
            out.push_str(&rest[..plain]);
            self.at += plain + 1;
            if rest.as_bytes()[plain] == b'"' {
                return Ok(out);
            }
            self.escape(&mut out)?;
        }
    }

    fn escape(&mut self, out: &mut String) -> Result<(), Wrong> {
        let byte = self.peek();
        self.at += 1;
        out.push(match byte {
            b'"' | b'\\' | b'/' => byte as char,
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => return self.unicode(out),
            _ => return Err(Wrong::Syntax),
        });
        Ok(())
    }

    fn hex(&mut self) -> Result<u32, Wrong> {
        let digits = self.text.get(self.at..self.at + 4).ok_or(Wrong::Syntax)?;
        if !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(Wrong::Syntax);
        }
        self.at += 4;
        u32::from_str_radix(digits, 16).map_err(|_| Wrong::Syntax)
    }

    fn unicode(&mut self, out: &mut String) -> Result<(), Wrong> {
        let mut code = self.hex()?;
        if (0xd800..0xdc00).contains(&code) {
            if !self.text[self.at..].starts_with("\\u") {
                return Err(Wrong::Syntax);
            }
            self.at += 2;
            let low = self.hex()?;
            if !(0xdc00..0xe000).contains(&low) {
                return Err(Wrong::Syntax);
            }
            code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
        }
        if code == 0 && self.in_tree {
            return Err(Wrong::Escape);
        }
        out.push(char::from_u32(code).ok_or(Wrong::Syntax)?);
        Ok(())
    }
}
