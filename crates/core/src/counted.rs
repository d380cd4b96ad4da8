//! Formats counts with their noun: `1 page`, `2 pages`.

/// "1 client is", "2 clients are".
pub(crate) fn counted_are(number: u64, what: &str) -> String {
    format!("{} {}", counted(number, what), if number == 1 { "is" } else { "are" })
}

/// "1 client", "2 clients".
pub(crate) fn counted(number: u64, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}
