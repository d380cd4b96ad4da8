//! The Retry-After header: seconds, or an HTTP date (RFC 9110, 10.2.3).

use std::time::{Duration, SystemTime};

use hyper::{HeaderMap, header};
use jiff::Timestamp;

use crate::limits::RETRY_AFTER_MAX;

/// How long to wait from `now` on. A date in the past is no wait; what cannot be read is ignored.
pub(super) fn parse(headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    let text = headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim();
    let wait = if !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) {
        // More digits than fit are a long wait too.
        text.parse().map_or(RETRY_AFTER_MAX, Duration::from_secs)
    } else {
        let date = httpdate::parse_http_date(text).ok()?;
        date.duration_since(SystemTime::from(now)).unwrap_or_default()
    };
    Some(wait.min(RETRY_AFTER_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_and_dates_are_read_and_bounded() {
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        for (text, wanted) in [
            ("0", Some(0)),
            (" 120 ", Some(120)),
            ("99999999999999999999999", Some(RETRY_AFTER_MAX.as_secs())),
            ("Thu, 01 Jan 2026 00:01:30 GMT", Some(90)),
            ("Wed, 31 Dec 2025 23:59:59 GMT", Some(0)),
            ("Fri, 01 Jan 2100 00:00:00 GMT", Some(RETRY_AFTER_MAX.as_secs())),
            ("-5", None),
            ("1.5", None),
            ("soon", None),
            ("", None),
        ] {
            let headers = HeaderMap::from_iter([(header::RETRY_AFTER, text.parse().unwrap())]);
            assert_eq!(parse(&headers, now), wanted.map(Duration::from_secs), "{text}");
        }
        assert_eq!(parse(&HeaderMap::new(), now), None);
    }
}
