//! Parses files of settings, and says in which line something is wrong.

use serde::de::DeserializeOwned;
use wayleave_api::object;

/// Parses a TOML text. The error has the line, and what is wrong in a sentence. The line itself is not repeated: it may contain a
/// password.
pub fn parse<T: DeserializeOwned>(text: &str) -> Result<T, (usize, String)> {
    let error = match toml::from_str(text) {
        Ok(read) => return Ok(read),
        Err(error) => error,
    };
    let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
    let line = before.bytes().filter(|byte| *byte == b'\n').count() + 1;
    // What is TOML and no settings is parsed again, by a parser that says more.
    let json = text.parse::<toml::Table>().ok().and_then(|table| serde_json::to_vec(&table).ok());
    match json.map(|json| object::read(&json)) {
        Some(Ok(read)) => Ok(read),
        Some(Err(error)) => Err((line, error.sentence("the file"))),
        None => Err((line, format!("the file: {}", error.message()))),
    }
}
