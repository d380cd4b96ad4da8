//! Turns the JSON library's errors into plain sentences: which field, what was found, what is expected.

use serde::de::IgnoredAny;

use crate::nearest::nearest;

/// The maximum length of a quoted value.
const SHOWN_MAX: usize = 100;

/// What is wrong with a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextError {
    /// The field that it is about, if parsing came that far.
    pub field: Option<String>,
    /// The sentence; it begins with the field.
    pub sentence: String,
    /// Whether the text is JSON at all.
    pub is_json: bool,
}

impl TextError {
    /// What is wrong with `text`, whose parsing ended at `path` with `error`; `whole` is what the text is called.
    #[must_use]
    pub fn of_json(whole: &str, path: &str, error: &serde_json::Error, text: &[u8]) -> Self {
        let place = format!(" at line {} column {}", error.line(), error.column());
        let message = error.to_string();
        let message = message.strip_suffix(&place).unwrap_or(&message);
        if error.is_data() {
            return Self::of(whole, path, message);
        }
        let message = syntax(message);
        // The library reports some type errors as syntax errors, such as a number where one of several words is
        // expected.
        if serde_json::from_slice::<IgnoredAny>(text).is_ok() {
            return Self::of(whole, path, &message);
        }
        let sentence = format!("{whole} is not JSON: {message} (line {}, column {})", error.line(), error.column());
        Self { field: None, sentence, is_json: false }
    }

    /// What is wrong at `path`, from the library's message.
    #[must_use]
    pub fn of(whole: &str, path: &str, message: &str) -> Self {
        let path = if matches!(path, "." | "?") { "" } else { path };
        let (field, what) = if let Some((field, _)) = quoted(message, "missing field `") {
            (inner(path, field), "is missing".to_owned())
        } else if let Some((field, _)) = quoted(message, "duplicate field `") {
            (inner(path, field), "is given twice".to_owned())
        } else if let Some((field, known)) = quoted(message, "unknown field `") {
            (inner(path, field), format!("there is no such field; {}", offer("it is", field, known)))
        } else if let Some((word, known)) = quoted(message, "unknown variant `") {
            (path.to_owned(), offer(&format!("'{}' is", shown(word)), word, known))
        } else {
            (path.to_owned(), shape(message))
        };
        let field = shown(&field);
        let subject = if field.is_empty() { whole } else { &field };
        Self {
            sentence: format!("{subject}: {what}"),
            field: Some(field).filter(|field| !field.is_empty()),
            is_json: true,
        }
    }
}

/// The word that a message is about, and what it says of others. The word is the sender's and may have any letter in it.
fn quoted<'a>(message: &'a str, start: &str) -> Option<(&'a str, &'a str)> {
    let rest = message.strip_prefix(start)?;
    let ends = ["`, expected ", "`, there are no "];
    let (word, others) = ends.iter().find_map(|end| rest.rsplit_once(end)).unwrap_or((rest, ""));
    Some((word.strip_suffix('`').unwrap_or(word), others))
}

/// A nested field; the path may end with it already.
fn inner(path: &str, field: &str) -> String {
    let there = path == field || path.strip_suffix(field).is_some_and(|outer| outer.ends_with('.'));
    match path {
        "" => field.to_owned(),
        path if there => path.to_owned(),
        path => format!("{path}.{field}"),
    }
}

/// The accepted words, the nearest one first.
fn offer(subject: &str, word: &str, known: &str) -> String {
    let known: Vec<&str> = known.split('`').skip(1).step_by(2).collect();
    if known.is_empty() {
        return "none is expected".to_owned();
    }
    let meant =
        nearest(word, known.iter().copied()).map_or_else(String::new, |near| format!("; did you mean '{near}'?"));
    format!("{subject} none of {}{meant}", known.join(", "))
}

/// A value of another type, size or length than expected.
fn shape(message: &str) -> String {
    let kinds = ["invalid type: ", "invalid value: ", "invalid length "];
    let Some((came, expected)) = message.rsplit_once(", expected ") else { return message.to_owned() };
    let Some(came) = kinds.iter().find_map(|kind| came.strip_prefix(kind)) else { return message.to_owned() };
    let length = message.starts_with("invalid length");
    let got = if length { format!("a list of {came}") } else { arrived(came) };
    let too_large = came.starts_with("integer `") && !came.starts_with("integer `-") || came.contains("e+");
    format!("expected {}, got {got}", wanted(expected, too_large))
}

/// What was found, in JSON terms.
fn arrived(came: &str) -> String {
    match came {
        "sequence" => "a list".to_owned(),
        "map" => "an object".to_owned(),
        "null" | "unit value" | "Option value" => "null".to_owned(),
        other => match other.split_once(' ') {
            Some(("string", text)) => format!("the text {}", shown(text)),
            _ => other.split('`').nth(1).map_or_else(|| other.to_owned(), shown),
        },
    }
}

/// What is expected, in JSON terms: Rust types mean nothing to users of other languages.
fn wanted(expected: &str, too_large: bool) -> String {
    let words = match expected.split(' ').next().unwrap_or_default() {
        "u8" | "u16" | "u32" | "u64" | "usize" if too_large => "a smaller whole number",
        "u8" | "u16" | "u32" | "u64" | "usize" => "a whole number from 0 on",
        "i8" | "i16" | "i32" | "i64" | "isize" => "a whole number",
        "f32" | "f64" => "a number",
        "struct" | "map" => "an object",
        "enum" => "one of its words",
        _ => match expected {
            "a boolean" => "true or false",
            "a string" => "a text",
            "a sequence" => "a list",
            "a map" => "an object",
            other => other,
        },
    };
    words.to_owned()
}

/// What is wrong with a text that is not JSON.
fn syntax(message: &str) -> String {
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
