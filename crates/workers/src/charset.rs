//! Turns a page's bytes into text, in the encoding that it names.
//!
//! The order is the HTML standard's: byte order mark, Content-Type header, `meta` in the first 1,024 bytes. A page that
//! names none is UTF-8 if it reads as such, else windows-1252, as most of the old web is.

use std::borrow::Cow;

use encoding_rs::{Encoding, UTF_8, UTF_16BE, UTF_16LE, WINDOWS_1252};

/// How far into a page its `meta` is looked for.
const PRESCAN_BYTES: usize = 1024;

/// The text of a page. Bytes that are invalid in its encoding become U+FFFD.
#[must_use]
pub fn decode<'a>(bytes: &'a [u8], content_type: Option<&str>) -> Cow<'a, str> {
    let named = content_type.and_then(after_charset).and_then(label).or_else(|| meta(bytes));
    let encoding = named.unwrap_or_else(|| if is_utf8(bytes) { UTF_8 } else { WINDOWS_1252 });
    // `decode` looks for a byte order mark first.
    encoding.decode(bytes).0
}

/// UTF-8, up to a character that the end of the bytes may have cut.
fn is_utf8(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).map_or_else(|error| error.error_len().is_none(), |_| true)
}

fn meta(bytes: &[u8]) -> Option<&'static Encoding> {
    let head = bytes.get(..PRESCAN_BYTES).unwrap_or(bytes);
    let head = String::from_utf8_lossy(head).to_ascii_lowercase();
    let mut rest = head.as_str();
    while let Some(start) = rest.find("<meta") {
        rest = rest.get(start + 5..)?;
        let tag = rest.split('>').next()?;
        let encoding = after_charset(tag).and_then(label);
        match encoding {
            // The tag could be read as ASCII, so the page is not UTF-16.
            Some(encoding) if encoding == UTF_16LE || encoding == UTF_16BE => return Some(UTF_8),
            Some(encoding) => return Some(encoding),
            None => {}
        }
    }
    None
}

/// What follows `charset=`, with or without quotes.
fn after_charset(text: &str) -> Option<&str> {
    let at = text.to_ascii_lowercase().find("charset")?;
    let value = text.get(at + 7..)?.trim_start().strip_prefix('=')?.trim_start();
    match value.chars().next()? {
        quote @ ('"' | '\'') => value.get(1..)?.split(quote).next(),
        _ => value.split([';', ' ', '\t', '\n', '"', '\'', '/', ',']).next(),
    }
}

fn label(name: &str) -> Option<&'static Encoding> {
    Encoding::for_label(name.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(bytes: &[u8], content_type: Option<&str>, wanted: &str) {
        assert_eq!(decode(bytes, content_type), wanted, "{content_type:?} {}", String::from_utf8_lossy(bytes));
    }

    #[test]
    fn a_byte_order_mark_beats_the_header_and_the_header_beats_the_page() {
        check(b"\xef\xbb\xbfcaf\xc3\xa9", Some("text/html; charset=iso-8859-1"), "café");
        check(b"\xff\xfec\0a\0f\0\xe9\0", Some("text/html; charset=utf-8"), "café");
        check(b"<meta charset=utf-8>caf\xe9", Some("text/html; Charset=\"ISO-8859-1\""), "<meta charset=utf-8>café");
        check(b"caf\xc3\xa9", Some("text/html;charset=utf-8"), "café");
    }

    #[test]
    fn the_pages_meta_is_found_in_both_forms() {
        for meta in [
            "<META CharSet = 'koi8-r' >",
            "<meta charset=koi8-r/>",
            "<meta http-equiv=Content-Type content='text/html; charset=koi8-r'>",
            "<meta name=x><meta charset=\"koi8-r\">",
        ] {
            let mut page = meta.as_bytes().to_vec();
            page.push(0xc1);
            check(&page, None, &format!("{meta}а"));
            check(&page, Some("text/html"), &format!("{meta}а"));
            check(&page, Some("text/html; charset=nonsense"), &format!("{meta}а"));
        }
        check(b"<meta charset=utf-16>\xc3\xa9", None, "<meta charset=utf-16>é");
        let late = format!("{}<meta charset=koi8-r>é", " ".repeat(PRESCAN_BYTES));
        check(late.as_bytes(), None, &late);
    }

    #[test]
    fn a_page_that_names_none_is_utf8_or_western() {
        check("grün".as_bytes(), None, "grün");
        check(b"gr\xfcn \x80", None, "grün €");
        check(b"gr\xc3\xbcn \xc3", None, "grün \u{fffd}");
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_read(bytes: Vec<u8>, content_type: Option<String>) {
            let _ = decode(&bytes, content_type.as_deref());
        }
    }
}
