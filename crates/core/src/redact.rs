//! Removes credentials from URLs that are displayed, in answers, listings, reasons and logs. Workers still get the full
//! URL.

use crate::limits::REASON_URL_CHARS;
use crate::plain;

/// Replaces the credentials.
const HIDDEN: &str = "***@";
/// What ends the authority of a URL.
const AUTHORITY_ENDS: [char; 4] = ['/', '?', '#', '\\'];

/// A URL with `***@` in place of its `user:password@`.
#[must_use]
pub fn url(text: &str) -> String {
    hidden(text).unwrap_or_else(|| text.to_owned())
}

/// The same for an owned URL; avoids a copy when there is nothing to redact, which is the usual case.
#[must_use]
pub fn owned_url(text: String) -> String {
    hidden(&text).unwrap_or(text)
}

/// The location of an artifact as it is displayed: also the values of its query and its fragment are hidden, because signatures and
/// tokens are passed there. The query of a crawled URL is shown: it says which page it is.
#[must_use]
pub fn location(text: &str) -> String {
    let shown = url(text);
    let (rest, fragment) = shown.split_once('#').map_or((&*shown, ""), |(rest, _)| (rest, "#***"));
    let Some((path, query)) = rest.split_once('?') else { return format!("{rest}{fragment}") };
    let names =
        query.split('&').map(|part| part.split_once('=').map_or("***".to_owned(), |(name, _)| format!("{name}=***")));
    format!("{path}?{}{fragment}", names.collect::<Vec<_>>().join("&"))
}

/// A URL as a reason names it: without credentials, and cut where it is long.
#[must_use]
pub fn in_reason(text: &str) -> String {
    cut(url(text))
}

/// The location of an artifact as a reason names it.
#[must_use]
pub fn location_in_reason(text: &str) -> String {
    cut(location(text))
}

fn cut(mut shown: String) -> String {
    if let Some((end, _)) = shown.char_indices().nth(REASON_URL_CHARS) {
        shown.truncate(end);
        shown.push('…');
    }
    shown
}

/// An untrusted reason, as it may be stored and shown: one line of bounded length, without credentials.
#[must_use]
pub fn reason(text: &str, chars_max: usize) -> String {
    // Credentials first: what is cut off no longer shows where they end.
    let spaced: String = sentence(text).chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let words = spaced.split_whitespace().collect::<Vec<_>>().join(" ");
    plain::line(&words).chars().take(chars_max).collect()
}

/// The start of a URL whose rest is not known, as it is displayed: if its authority may continue there, `host` takes
/// its place, because the credentials that begin it look like a host.
#[must_use]
pub fn start_of_url(text: &str, host: &str) -> String {
    match authority(text) {
        Some((start, rest)) if !rest.contains(AUTHORITY_ENDS) => {
            format!("{}{host}/…", text.get(..start).unwrap_or_default())
        }
        _ => format!("{text}…"),
    }
}

/// Where the authority of a URL begins, and the text from there; `None` if it has none.
fn authority(text: &str) -> Option<(usize, &str)> {
    match text.split_once(':') {
        Some((scheme, rest)) if is_scheme(scheme) && (rest.starts_with(['/', '\\']) || is_crawled(scheme)) => {
            // Any number of slashes: a URL that is rejected for them may still contain a password.
            let authority = rest.trim_start_matches(['/', '\\']);
            Some((text.len() - authority.len(), authority))
        }
        // A mail address has no password.
        Some(("mailto", _)) => None,
        _ => Some((0, text)),
    }
}

fn hidden(text: &str) -> Option<String> {
    let at = text.find('@')?;
    let (start, rest) = authority(text)?;
    let ends = rest.find(AUTHORITY_ENDS).unwrap_or(rest.len());
    let (_, host) = rest.get(..ends)?.rsplit_once('@').filter(|_| at >= start)?;
    let shown_from = start + ends - host.len();
    Some(format!("{}{HIDDEN}{}", text.get(..start)?, text.get(shown_from..)?))
}

fn is_scheme(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.'))
}

fn is_crawled(scheme: &str) -> bool {
    ["http", "https", "ftp"].iter().any(|crawled| scheme.eq_ignore_ascii_case(crawled))
}

/// Replaces every `user:password@` of URLs in a text by `***@`. For text composed elsewhere: a space in a password ends
/// the URL.
#[must_use]
pub fn sentence(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("://") {
        out.push_str(before);
        out.push_str("://");
        let ends = |c: char| matches!(c, '/' | '?' | '#' | '\\') || c.is_whitespace();
        let (authority, tail) = after.split_at(after.find(ends).unwrap_or(after.len()));
        match authority.rsplit_once('@') {
            Some((_, host)) => {
                out.push_str(HIDDEN);
                out.push_str(host);
            }
            None => out.push_str(authority),
        }
        rest = tail;
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_of_a_url_go_and_everything_else_stays() {
        for (text, want) in [
            ("http://u:p@h/a@b", "http://***@h/a@b"),
            ("https://token@h:8080?x=1", "https://***@h:8080?x=1"),
            ("http://u:p@x@h/", "http://***@h/"),
            ("http://u:p q'r\"s@h/", "http://***@h/"),
            ("http://u:p@h", "http://***@h"),
            ("http:u:p@h/", "http:***@h/"),
            ("http:///u:p@h/", "http:///***@h/"),
            ("HTTP:\\\\u:p@h/", "HTTP:\\\\***@h/"),
            ("gopher://u:p@h/", "gopher://***@h/"),
            ("u:p@h/x", "***@h/x"),
            ("http://h/?mail=a@b", "http://h/?mail=a@b"),
            ("http://h/u:p@x", "http://h/u:p@x"),
            ("mailto:a@b", "mailto:a@b"),
            ("nothing", "nothing"),
            ("", ""),
        ] {
            assert_eq!(url(text), want, "{text}");
            assert_eq!(owned_url(text.to_owned()), want, "{text}");
        }
    }

    #[test]
    fn what_the_query_of_a_location_holds_is_hidden_and_its_names_stay() {
        for (text, want) in [
            (
                "https://b.s3.example/x.tar?X-Amz-Signature=abc&X-Amz-Date=1",
                "https://b.s3.example/x.tar?X-Amz-Signature=***&X-Amz-Date=***",
            ),
            ("https://h/x?sig=a%2Fb=&se=2026", "https://h/x?sig=***&se=***"),
            ("https://u:p@h/x?token=t#u", "https://***@h/x?token=***#***"),
            ("https://h/x?secret", "https://h/x?***"),
            ("https://h/x#secret?a=b", "https://h/x#***"),
            ("https://h/x?", "https://h/x?***"),
            ("file:///a/b.tar", "file:///a/b.tar"),
            ("s3://key:secret@bucket/x", "s3://***@bucket/x"),
        ] {
            assert_eq!(location(text), want, "{text}");
        }
        assert_eq!(in_reason("https://h/x?page=1"), "https://h/x?page=1", "of a crawled URL");
        assert_eq!(location_in_reason("https://h/x?page=1"), "https://h/x?page=***");
    }

    #[test]
    fn a_reason_of_others_is_one_harmless_line_without_credentials() {
        for (text, want) in [
            ("\u{1b}[31mred\u{7}\r\nnext\t line", "[31mred next line"),
            ("cannot read s3://key:secret@bucket/x, sorry", "cannot read s3://***@bucket/x, sorry"),
            ("\u{202e}txt", "\\u{202e}txt"),
            (" \n ", ""),
        ] {
            assert_eq!(reason(text, 100), want);
        }
        assert_eq!(reason("see http://user:password@host/path", 19), "see http://***@host");
    }

    #[test]
    fn credentials_in_a_sentence_go_and_everything_else_stays() {
        for (text, want) in [
            ("result for 'http://u:p@h/a@b', x", "result for 'http://***@h/a@b', x"),
            ("https://token@h:8080?x=1 and ftp://a:b@c", "https://***@h:8080?x=1 and ftp://***@c"),
            ("'http://u:p'q@h/', x", "'http://***@h/', x"),
            ("http://h/?mail=a@b", "http://h/?mail=a@b"),
            ("nothing to hide: a@b", "nothing to hide: a@b"),
        ] {
            assert_eq!(sentence(text), want);
        }
    }
}
