//! Parsers of argument values: spans and points in time.

use std::net::{Ipv4Addr, SocketAddr};

use wayleave_api::Timestamp;
use wayleave_core::names;
use wayleave_core::time::Millis;
use wayleave_core::whole::Whole;

use crate::output::now;

/// An enum of the API as an argument, with a help text for each word.
macro_rules! words {
    ($(#[$doc:meta])* $vis:vis $arg:ident = $api:path { $($(#[$help:meta])* $word:ident,)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
        $vis enum $arg {
            $($(#[$help])* $word,)+
        }

        impl From<$arg> for $api {
            fn from(word: $arg) -> Self {
                match word {
                    $($arg::$word => Self::$word,)+
                }
            }
        }
    };
}
pub(crate) use words;

/// A span with its unit, such as `500ms`, `2s`, `5m`, `1h 30m`; in milliseconds.
pub fn span(text: &str) -> Result<u64, String> {
    let wrong = || format!("'{text}' is not a span of time; write 500ms, 2s, 5m, 1h or 7d");
    if text == "0" {
        return Ok(0);
    }
    if let Some(days) = text.strip_suffix('d').and_then(|days| days.trim().parse::<u64>().ok()) {
        return days.checked_mul(86_400_000).ok_or_else(wrong);
    }
    let parsed: jiff::SignedDuration = text.parse().map_err(|_| wrong())?;
    u64::try_from(parsed.as_millis()).map_err(|_| wrong())
}

/// A whole number between two bounds, both included. clap's own parser would tell the upper bound plus one.
pub fn between<N>(min: u64, max: u64) -> impl Fn(&str) -> Result<N, String> + Clone + Send + Sync + 'static
where
    N: TryFrom<u64> + 'static,
{
    move |text: &str| {
        let wrong = || format!("must be a whole number between {min} and {max}, not '{text}'");
        let number = text.parse().ok().filter(|number: &u64| (min..=max).contains(number)).ok_or_else(wrong)?;
        N::try_from(number).map_err(|_| wrong())
    }
}

/// A whole number within its bounds.
pub fn within<N>(bounds: Whole) -> impl Fn(&str) -> Result<N, String> + Clone + Send + Sync + 'static
where
    N: TryFrom<u64> + 'static,
{
    between(bounds.least, bounds.most)
}

/// An address to listen on.
pub fn listen(text: &str) -> Result<SocketAddr, String> {
    let local = text.strip_prefix("localhost:").and_then(|port| port.parse().ok());
    let local = local.map(|port: u16| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    let wrong = || {
        format!(
            "'{text}' is not an address to listen on; write it as 127.0.0.1:7071 or [::1]:7071, with a port up to 65535"
        )
    };
    local.or_else(|| text.parse().ok()).ok_or_else(wrong)
}

/// How many rows to print. Fails if it is not a number from 1 on.
pub fn rows(text: &str) -> Result<usize, String> {
    let rows = text.parse().ok().filter(|rows| *rows > 0);
    rows.ok_or_else(|| format!("must be a whole number from 1 on, not '{text}'; --all prints all"))
}

/// A factor. Fails if it is not a finite number from 0 on.
pub fn factor(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number: &f64| number.is_finite() && *number >= 0.0);
    number.ok_or_else(|| format!("'{text}' is not a factor; write a number such as 2 or 0.5"))
}

/// The name of a host, group or crawl. Fails if nothing was written.
pub fn name(text: &str) -> Result<String, String> {
    if text.trim().is_empty() { Err("a name is needed".to_owned()) } else { Ok(text.to_owned()) }
}

/// The name of a client of a pool. A name that means another path never reaches the server. Fails if it is empty, too
/// long, has control characters, or is `.` or `..`.
pub fn client(text: &str) -> Result<String, String> {
    match text {
        "." | ".." => Err("it cannot be the name of a client, because it means another path".to_owned()),
        _ => names::client(text).map(|_| text.to_owned()).map_err(|bad| bad.to_string()),
    }
}

/// The id of a chunk.
pub fn chunk(text: &str) -> Result<String, String> {
    match wayleave_api::chunks::chunk_id(text) {
        Ok(_) => Ok(text.to_owned()),
        Err(_) => Err(format!("'{text}' is not the id of a chunk, a whole number; `wayleave chunks` lists them")),
    }
}

/// A point in time: `now`, RFC 3339, or a span from now.
pub fn when(text: &str) -> Result<Timestamp, String> {
    if text == "now" {
        return Ok(now());
    }
    if let Ok(ms) = span(text) {
        return Ok(Timestamp(now().0.after(Millis(ms))));
    }
    text.parse().map_err(|_| format!("'{text}' is not a time; write now, 10m (from now) or 2026-11-15T03:04:05Z"))
}

/// A host name that a port accepts; a leading dot stands for all names below one. Fails if it has a scheme, a port or a
/// wildcard.
pub fn allowed_host(text: &str) -> Result<String, String> {
    if text.trim().is_empty() || text.contains(['/', ':', '*']) {
        return Err(format!("'{text}' is not a host name; name it without scheme and port"));
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_to_listen_on_has_a_port_and_may_be_localhost() {
        for (text, want) in
            [("127.0.0.1:7071", "127.0.0.1:7071"), ("localhost:0", "127.0.0.1:0"), ("[::1]:5", "[::1]:5")]
        {
            assert_eq!(listen(text).map(|address| address.to_string()), Ok(want.to_owned()));
        }
        for text in ["7071", ":7071", "localhost", "127.0.0.1:99999", "example.com:80", "127.0.0.1:x", ""] {
            assert!(listen(text).is_err_and(|why| why.contains(text) && why.contains("127.0.0.1:7071")), "{text}");
        }
    }

    #[test]
    fn spans_need_their_unit() {
        for (text, want) in [("0", 0), ("500ms", 500), ("2s", 2_000), ("1h 30m", 5_400_000), ("7d", 604_800_000)] {
            assert_eq!(span(text), Ok(want), "{text}");
        }
        for text in ["5", "", "soon", "-2s", "99999999999999999999d"] {
            assert!(span(text).is_err(), "{text}");
        }
    }

    #[test]
    fn factors_are_numbers_that_something_can_be_taken_times() {
        assert_eq!((factor("0"), factor("0.5"), factor("2")), (Ok(0.0), Ok(0.5), Ok(2.0)));
        for text in ["nan", "inf", "-inf", "-1", "1e999", "", "twice"] {
            assert!(factor(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_number_out_of_its_bounds_is_told_both_of_them() {
        let row = between::<u8>(0, 63);
        assert_eq!((row("0"), row("63")), (Ok(0), Ok(63)));
        for bad in ["64", "-1", "", "1.5"] {
            assert_eq!(row(bad), Err(format!("must be a whole number between 0 and 63, not '{bad}'")));
        }
        assert_eq!(rows("1"), Ok(1));
        for bad in ["0", "-1", "few"] {
            assert!(rows(bad).is_err_and(|why| why.contains("from 1 on")), "{bad}");
        }
    }

    #[test]
    fn times_are_absolute_or_from_now() {
        assert_eq!(when("1970-01-01T00:00:01Z").unwrap().0.0, 1_000);
        let soon = when("10m").unwrap().0.0 - now().0.0;
        assert!((590_000..=600_000).contains(&soon), "{soon}");
        assert!(when("yesterday").is_err());
    }

    #[test]
    fn a_client_that_would_be_another_one_on_the_way_is_refused() {
        for bad in ["", ".", "..", "a\tb", "a\nb"] {
            assert!(client(bad).is_err(), "{bad:?}");
        }
        assert_eq!(client("a/b c%é"), Ok("a/b c%é".to_owned()));
    }
}
