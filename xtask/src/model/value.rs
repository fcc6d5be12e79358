//! Values as TLC prints them.

use std::collections::BTreeMap;
use std::fmt;

use anyhow::{Result, bail};

/// A value of TLA+, of the kinds that the model has.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Value {
    /// A number, or a model value, or `TRUE` or `FALSE`.
    Word(String),
    /// A string.
    Text(String),
    /// `<<a, b>>`.
    Tuple(Vec<Value>),
    /// `{a, b}`.
    Set(Vec<Value>),
    /// `(a :> b @@ c :> d)`, `[a |-> b, c |-> d]`.
    Map(BTreeMap<String, Value>),
}

impl Value {
    /// Reads one value that is all of `text`.
    ///
    /// # Errors
    /// It is none.
    pub fn parse(text: &str) -> Result<Self> {
        let mut parser = Parser { rest: text };
        let value = parser.value()?;
        parser.blanks();
        if !parser.rest.is_empty() {
            bail!("something follows a value: {:?}", parser.rest);
        }
        Ok(value)
    }

    /// The function's or record's value at `key`.
    pub fn at(&self, key: &str) -> Option<&Value> {
        match self {
            Value::Map(map) => map.get(key),
            _ => None,
        }
    }

    /// The functions's or record's keys and values.
    pub fn pairs(&self) -> impl Iterator<Item = (&str, &Value)> {
        let map = match self {
            Value::Map(map) => Some(map),
            _ => None,
        };
        map.into_iter().flatten().map(|(key, value)| (key.as_str(), value))
    }

    /// The elements of a tuple or set.
    pub fn elements(&self) -> &[Value] {
        match self {
            Value::Tuple(elements) | Value::Set(elements) => elements,
            _ => &[],
        }
    }

    /// The word or text.
    pub fn word(&self) -> &str {
        match self {
            Value::Word(word) | Value::Text(word) => word,
            _ => "",
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |values: &[Value]| values.iter().map(Value::to_string).collect::<Vec<_>>().join(", ");
        match self {
            Value::Word(word) | Value::Text(word) => f.write_str(word),
            Value::Tuple(elements) => write!(f, "({})", list(elements)),
            Value::Set(elements) => write!(f, "{{{}}}", list(elements)),
            Value::Map(map) => {
                let pairs: Vec<String> = map.iter().map(|(key, value)| format!("{key}: {value}")).collect();
                f.write_str(&pairs.join(", "))
            }
        }
    }
}

struct Parser<'a> {
    rest: &'a str,
}

impl<'a> Parser<'a> {
    fn blanks(&mut self) {
        self.rest = self.rest.trim_start();
    }

    fn take(&mut self, token: &str) -> bool {
        self.blanks();
        let rest = self.rest.strip_prefix(token);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn expect(&mut self, token: &str) -> Result<()> {
        if !self.take(token) {
            bail!("{token} is missing before {:?}", self.rest.chars().take(30).collect::<String>());
        }
        Ok(())
    }

    fn word(&mut self) -> Result<&'a str> {
        self.blanks();
        let end = self.rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != '-');
        let (word, rest) = self.rest.split_at(end.unwrap_or(self.rest.len()));
        if word.is_empty() {
            bail!("no value at {:?}", self.rest.chars().take(30).collect::<String>());
        }
        self.rest = rest;
        Ok(word)
    }

    fn list(&mut self, end: &str) -> Result<Vec<Value>> {
        let mut elements = Vec::new();
        while !self.take(end) {
            if !elements.is_empty() {
                self.expect(",")?;
            }
            elements.push(self.value()?);
        }
        Ok(elements)
    }

    fn value(&mut self) -> Result<Value> {
        if self.take("<<") {
            return Ok(Value::Tuple(self.list(">>")?));
        }
        if self.take("{") {
            return Ok(Value::Set(self.list("}")?));
        }
        if self.take("\"") {
            let Some((text, rest)) = self.rest.split_once('"') else { bail!("a string without an end") };
            self.rest = rest;
            return Ok(Value::Text(text.to_owned()));
        }
        let (arrow, between, end) = if self.take("(") {
            (":>", "@@", ")")
        } else if self.take("[") {
            ("|->", ",", "]")
        } else {
            return Ok(Value::Word(self.word()?.to_owned()));
        };
        let mut map = BTreeMap::new();
        while !self.take(end) {
            if !map.is_empty() {
                self.expect(between)?;
            }
            let key = self.word()?.to_owned();
            self.expect(arrow)?;
            map.insert(key, self.value()?);
        }
        Ok(Value::Map(map))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_tlc_prints_is_read() {
        let value = Value::parse("(0 :> <<1, v1>> @@ 1 :> {<<A, v2, FALSE>>, x})").unwrap();
        assert_eq!(value.at("0").unwrap().elements()[1].word(), "v1");
        assert_eq!(value.at("1").unwrap().elements()[0].elements()[2].word(), "FALSE");
        let record =
            Value::parse("[ todo |-> {},\n  kind |-> \"host\",\n  back |-> <<None, None>> ]").unwrap();
        assert_eq!(record.at("kind"), Some(&Value::Text("host".into())));
        assert_eq!(record.at("todo"), Some(&Value::Set(Vec::new())));
        assert_eq!(Value::parse("-3").unwrap().word(), "-3");
        assert_eq!(value.to_string(), "0: (1, v1), 1: {(A, v2, FALSE), x}");
    }

    #[test]
    fn what_is_none_is_refused() {
        for text in ["", "<<1", "{1 2}", "(0 :> )", "\"x", "1 2", "[a : 1]"] {
            assert!(Value::parse(text).is_err(), "{text}");
        }
    }
}
