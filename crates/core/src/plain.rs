//! Escapes untrusted text for terminals and logs: control characters, line breaks and direction overrides are shown
//! as escapes, such as `\u{1b}`.

use std::borrow::Cow;
use std::fmt::Write;

/// Text that is to stay on one line.
#[must_use]
pub fn line(text: &str) -> Cow<'_, str> {
    escaped(text, steers, |out, c| out.extend(c.escape_default()))
}

/// Text of several lines: line feeds and tabs stay.
#[must_use]
pub fn lines(text: &str) -> Cow<'_, str> {
    escaped(text, |c| steers(c) && !matches!(c, '\n' | '\t'), |out, c| out.extend(c.escape_default()))
}

/// JSON, which remains the same value: only strings hold what a serialiser leaves raw.
#[must_use]
pub fn json(text: &str) -> Cow<'_, str> {
    // Of the characters below U+0020 none is left in a string.
    let raw = |c: char| c >= '\u{7f}' && steers(c);
    escaped(text, raw, |out, c| _ = write!(out, "\\u{:04x}", u32::from(c)))
}

fn escaped(text: &str, bad: impl Fn(char) -> bool, escape: impl Fn(&mut String, char)) -> Cow<'_, str> {
    if !text.contains(&bad) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if bad(c) { escape(&mut out, c) } else { out.push(c) }
    }
    Cow::Owned(out)
}

/// Control characters (C0, DEL and C1), line and paragraph separators, and marks of the direction of writing.
const fn steers(c: char) -> bool {
    matches!(
        c,
        '\0'..='\u{1f}'
            | '\u{7f}'..='\u{9f}'
            | '\u{61c}'
            | '\u{200e}' | '\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2066}'..='\u{2069}'
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_steers_a_terminal_is_shown_and_all_other_text_stays() {
        for (text, one, many) in [
            ("a\u{1b}[31mb", "a\\u{1b}[31mb", "a\\u{1b}[31mb"),
            (
                "bell\u{7} del\u{7f} csi\u{9b}31m",
                "bell\\u{7} del\\u{7f} csi\\u{9b}31m",
                "bell\\u{7} del\\u{7f} csi\\u{9b}31m",
            ),
            ("x\r\nerror: forged\tx", "x\\r\\nerror: forged\\tx", "x\\r\nerror: forged\tx"),
            (
                "\u{202e}gpj.exe\u{2066}\u{200f}\u{61c}",
                "\\u{202e}gpj.exe\\u{2066}\\u{200f}\\u{61c}",
                "\\u{202e}gpj.exe\\u{2066}\\u{200f}\\u{61c}",
            ),
            ("a\u{2028}b", "a\\u{2028}b", "a\\u{2028}b"),
            ("Größe, שלום, 東京, 🦀 \\ 'q'", "Größe, שלום, 東京, 🦀 \\ 'q'", "Größe, שלום, 東京, 🦀 \\ 'q'"),
        ] {
            assert_eq!((line(text), lines(text)), (one.into(), many.into()), "{text:?}");
        }
    }

    #[test]
    fn json_remains_the_same_value() {
        assert_eq!(json("{\"a\":\"\\u001b\u{9b}\u{202e}\u{7f}ä\"}\n"), "{\"a\":\"\\u001b\\u009b\\u202e\\u007fä\"}\n");
        assert!(matches!(json("{\n  \"a\":\t\"b\"\n}"), Cow::Borrowed(_)), "layout stays");
    }
}
