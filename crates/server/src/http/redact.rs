//! Takes credentials out of texts that go to the log.

/// The text with every `user:password@` of a URL in it replaced by `***@`.
#[must_use]
pub fn redact(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("://") {
        out.push_str(before);
        out.push_str("://");
        let ends = |c: char| matches!(c, '/' | '?' | '#' | '\'' | '"') || c.is_whitespace();
        let (authority, tail) = after.split_at(after.find(ends).unwrap_or(after.len()));
        match authority.rsplit_once('@') {
            Some((_, host)) => {
                out.push_str("***@");
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
    fn credentials_go_and_everything_else_stays() {
        for (text, want) in [
            ("result for 'http://u:p@h/a@b', x", "result for 'http://***@h/a@b', x"),
            ("https://token@h:8080?x=1 and ftp://a:b@c", "https://***@h:8080?x=1 and ftp://***@c"),
            ("http://u:p@x@h/", "http://***@h/"),
            ("http://h/?mail=a@b", "http://h/?mail=a@b"),
            ("nothing to hide: a@b", "nothing to hide: a@b"),
        ] {
            assert_eq!(redact(text), want);
        }
    }
}
