//! What is wrong with a text, in plain sentences: which field, what was found, what is expected.

use std::fmt::Display;

use serde::de::{Error, Expected, Unexpected};

use crate::nearest::nearest;

/// The maximum length of a quoted value.
const SHOWN_MAX: usize = 100;

/// What is wrong with a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextError {
    /// The field that it is about, if parsing came that far.
    pub field: Option<String>,
    /// What is wrong with it.
    pub what: String,
    /// Whether the text is JSON at all.
    pub is_json: bool,
    /// The line, from 1, at which parsing ended; 0 for a query.
    pub line: usize,
    /// The column.
    pub column: usize,
}

impl TextError {
    /// The sentence; `whole` is what the text is called.
    #[must_use]
    pub fn sentence(&self, whole: &str) -> String {
        let Self { field, what, is_json, line, column } = self;
        if *is_json {
            return format!("{}: {what}", field.as_deref().unwrap_or(whole));
        }
        format!("{whole} is not JSON: {what} (line {line}, column {column})")
    }
}

/// What is wrong, and with which field below the present one.
#[derive(Debug)]
pub(crate) struct Wrong {
    field: String,
    what: String,
    /// Whether it may be because the text is no JSON.
    pub is_syntax: bool,
}

impl Wrong {
    fn of(field: &str, what: impl Display) -> Self {
        Self { field: shown(field), what: what.to_string(), is_syntax: false }
    }

    /// The JSON library cannot go on.
    pub fn syntax(error: &impl Display) -> Self {
        Self { is_syntax: true, ..Self::of("", syntax(&error.to_string())) }
    }

    /// A value of another type, size or length than expected.
    pub fn expected(expected: &dyn Display, got: &str) -> Self {
        Self::of("", format_args!("expected {expected}, got {got}"))
    }

    /// The same, of a value within a field or an entry, such as `[3]`.
    pub fn within(mut self, outer: &str) -> Self {
        let dot = if self.field.is_empty() || self.field.starts_with('[') { "" } else { "." };
        self.field = shown(&format!("{outer}{dot}{}", self.field));
        self
    }

    pub fn at(self, line: usize, column: usize) -> TextError {
        let field = Some(self.field).filter(|field| !field.is_empty());
        TextError { field, what: self.what, is_json: true, line, column }
    }
}

impl Display for Wrong {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.what)
    }
}

impl std::error::Error for Wrong {}

impl Error for Wrong {
    fn custom<T: Display>(message: T) -> Self {
        Self::of("", message)
    }

    fn invalid_type(got: Unexpected<'_>, expected: &dyn Expected) -> Self {
        let got = match got {
            Unexpected::Bool(value) => value.to_string(),
            Unexpected::Unsigned(number) => number.to_string(),
            Unexpected::Signed(number) => number.to_string(),
            Unexpected::Float(number) => number.to_string(),
            Unexpected::Str(text) => got_text(text),
            Unexpected::Unit | Unexpected::Option => "null".to_owned(),
            Unexpected::Seq => "a list".to_owned(),
            Unexpected::Map => "an object".to_owned(),
            other => other.to_string(),
        };
        Self::expected(&expected, &got)
    }

    fn invalid_value(got: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::invalid_type(got, expected)
    }

    fn invalid_length(length: usize, expected: &dyn Expected) -> Self {
        Self::expected(&expected, &format!("a list of {length}"))
    }

    fn unknown_variant(word: &str, known: &'static [&'static str]) -> Self {
        Self::of("", offer(&format!("'{}' is", shown(word)), word, known))
    }

    fn unknown_field(field: &str, known: &'static [&'static str]) -> Self {
        Self::of(field, format_args!("there is no such field; {}", offer("it is", field, known)))
    }

    fn missing_field(field: &'static str) -> Self {
        Self::of(field, "is missing")
    }

    fn duplicate_field(field: &'static str) -> Self {
        Self::of(field, "is given twice")
    }
}

/// A text that came.
pub(crate) fn got_text(text: &str) -> String {
    format!("the text {}", shown(&format!("{text:?}")))
}

/// The accepted words, the nearest one first.
fn offer(subject: &str, word: &str, known: &[&'static str]) -> String {
    if known.is_empty() {
        return "none is expected".to_owned();
    }
    let meant =
        nearest(word, known.iter().copied()).map_or_else(String::new, |near| format!("; did you mean '{near}'?"));
    format!("{subject} none of {}{meant}", known.join(", "))
}

/// What is wrong with a text that is not JSON.
pub(crate) fn syntax(message: &str) -> String {
    let message = message.rsplit_once(" at line ").map_or(message, |(message, _)| message);
    if let Some(within) = message.strip_prefix("EOF while parsing ") {
        return format!("it ends within {within}");
    }
    match message {
        "expected value" => "a value of another kind is expected",
        "trailing characters" => "unexpected characters follow its end",
        "trailing comma" => "there is a trailing comma",
        "key must be a string" => "names must be in double quotes",
        "number out of range" => "the number is too large",
        "recursion limit exceeded" => "it is nested too deeply",
        other => other,
    }
    .to_owned()
}

fn shown(text: &str) -> String {
    match text.char_indices().nth(SHOWN_MAX) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}

#[cfg(test)]
#[path = "wording_tests.rs"]
mod tests;
