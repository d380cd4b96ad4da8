//! Output for people and programs: tables or JSON lines on stdout, notes on stderr.
//!
//! All of it passes through here, and here alone text of others is made harmless for a terminal.

use std::fmt::{Arguments, Debug, Display};
use std::io::Write;

use serde::Serialize;
use wayleave_api::Timestamp;
use wayleave_api::stats::Counts;
use wayleave_core::time::Millis;
use wayleave_core::{plain, redact};

/// Prints one value as one line of JSON.
pub fn json<T: Serialize>(value: &T) -> anyhow::Result<()> {
    let text = serde_json::to_string(value)?;
    Ok(writeln!(std::io::stdout().lock(), "{}", plain::json(&text))?)
}

/// Prints a line, or several.
pub fn line(text: impl Display) -> anyhow::Result<()> {
    styled(plain::lines(&text.to_string()))
}

/// Prints a line in which only our own escapes are left.
pub fn styled(text: impl Display) -> anyhow::Result<()> {
    Ok(writeln!(std::io::stdout().lock(), "{text}")?)
}

/// Prints a note on stderr; one that nobody can read is not missed.
pub fn note(text: Arguments<'_>) {
    _ = writeln!(std::io::stderr().lock(), "{}", plain::lines(&text.to_string()));
}

/// A number of things, by the name of one: "1 chunk", "2 chunks".
pub fn counted(number: impl Into<u64>, one: &str) -> String {
    let number = number.into();
    if number == 1 { format!("1 {one}") } else { format!("{number} {one}s") }
}

/// Rows below a header, each column as wide as its widest cell.
pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these columns.
    pub fn new<const N: usize>(head: [&str; N]) -> Self {
        Self { rows: vec![head.map(str::to_uppercase).to_vec()] }
    }

    /// A table of properties of one thing, with its name first.
    pub fn about(kind: &str, name: &str) -> Self {
        Self { rows: vec![vec![kind.to_owned(), plain::line(name).into_owned()]] }
    }

    /// One more row.
    pub fn row<const N: usize>(&mut self, cells: [String; N]) {
        // Before widths are computed.
        self.rows.push(cells.map(|cell| plain::line(&cell).into_owned()).to_vec());
    }

    /// Prints it.
    pub fn print(&self) -> anyhow::Result<()> {
        Ok(std::io::stdout().lock().write_all(self.render().as_bytes())?)
    }

    fn render(&self) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width =
            |column: usize| self.rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
        let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
        let mut out = String::new();
        for row in &self.rows {
            let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
            out.push_str(cells.collect::<Vec<String>>().join("  ").trim_end());
            out.push('\n');
        }
        out
    }
}

/// Prints items: a line of JSON for each, or a table with a row for each.
pub fn list<T: Serialize, const N: usize>(
    json: bool,
    head: [&str; N],
    items: &[T],
    row: impl Fn(&T) -> [String; N],
) -> anyhow::Result<()> {
    if json {
        return items.iter().try_for_each(self::json);
    }
    let mut table = Table::new(head);
    items.iter().for_each(|item| table.row(row(item)));
    table.print()
}

/// The word of a state that is one word.
pub fn word(state: impl Debug) -> String {
    format!("{state:?}").to_lowercase()
}

/// A duration in its two largest units.
pub fn span(ms: u64) -> String {
    Millis(ms).in_words()
}

/// A size in its largest unit.
pub fn size(bytes: u64) -> String {
    let tenths = |unit: u64| format!("{}.{}", bytes / unit, bytes % unit * 10 / unit);
    match bytes {
        0..1_024 => format!("{bytes} bytes"),
        1_024..1_048_576 => format!("{} KiB", tenths(1 << 10)),
        1_048_576..1_073_741_824 => format!("{} MiB", tenths(1 << 20)),
        _ => format!("{} GiB", tenths(1 << 30)),
    }
}

/// The distance of a time from now.
pub fn relative(at: Timestamp, now: Timestamp) -> String {
    let (at, now) = (at.0.0, now.0.0);
    match now.checked_sub(at) {
        None => format!("in {}", span(at - now)),
        // The clocks of a server and of this machine differ by more.
        Some(0..1_000) => "just now".to_owned(),
        Some(ago) => format!("{} ago", span(ago)),
    }
}

/// An optional time, relative to now.
pub fn when(at: Option<Timestamp>, now: Timestamp) -> String {
    at.map_or_else(|| "-".to_owned(), |at| relative(at, now))
}

/// A foreign URL, made safe for a terminal: no credentials, no control characters, truncated if it is long.
pub fn shown(text: &str) -> String {
    const MOST: usize = 200;
    let text = redact::url(text);
    let mut out: String = text.chars().take(MOST).collect();
    if text.chars().nth(MOST).is_some() {
        out.push('…');
    }
    plain::line(&out).into_owned()
}

/// An optional value.
pub fn or_dash(value: Option<impl Display>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

/// This machine's wall clock.
pub fn now() -> Timestamp {
    let millis = jiff::Timestamp::now().as_millisecond();
    Timestamp(wayleave_core::time::Time(u64::try_from(millis).unwrap_or(0)))
}

/// A short description of URL counts.
pub fn counts(counts: &Counts) -> String {
    let Counts { queued, reserved, fetched, gone, failed } = counts;
    format!("{queued} queued, {reserved} reserved, {fetched} fetched, {gone} gone, {failed} failed")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let mut table = Table::new(["host", "n"]);
        table.row(["ä.example".to_owned(), "1".to_owned()]);
        table.row(["b".to_owned(), "20".to_owned()]);
        assert_eq!(table.render(), "HOST       N\nä.example  1\nb          20\n");
    }

    #[test]
    fn cells_of_others_neither_steer_the_terminal_nor_add_rows() {
        let mut table = Table::about("chunk", "c\u{7}");
        table.row(["reason".to_owned(), "\u{1b}]0;x\u{7}\r\nHOST  forged\u{202e}".to_owned()]);
        let want = "chunk   c\\u{7}\nreason  \\u{1b}]0;x\\u{7}\\r\\nHOST  forged\\u{202e}\n";
        assert_eq!(table.render(), want);
    }

    #[test]
    fn one_thing_is_told_in_the_singular() {
        assert_eq!([0_u64, 1, 2].map(|number| counted(number, "URL")), ["0 URLs", "1 URL", "2 URLs"]);
    }

    #[test]
    fn spans_are_told_in_their_largest_units() {
        for (ms, want) in [
            (0, "0 ms"),
            (999, "999 ms"),
            (1_000, "1 s"),
            (1_500, "1.5 s"),
            (14_020, "14 s"),
            (61_000, "1 min 1 s"),
            (3_600_000, "1 h 0 min"),
            (90_000_000, "1 d 1 h"),
        ] {
            assert_eq!(span(ms), want);
        }
    }

    #[test]
    fn a_time_less_than_a_second_ago_is_just_now() {
        let time = |ms| Timestamp(wayleave_core::time::Time(ms));
        let told = |at: u64| relative(time(at), time(10_000));
        assert_eq!([9_000, 9_001, 10_000, 10_001].map(told), ["1 s ago", "just now", "just now", "in 1 ms"]);
    }

    #[test]
    fn sizes_are_told_in_their_largest_unit() {
        for (bytes, want) in
            [(0, "0 bytes"), (1_023, "1023 bytes"), (16_500, "16.1 KiB"), (1 << 20, "1.0 MiB"), (5 << 29, "2.5 GiB")]
        {
            assert_eq!(size(bytes), want);
        }
    }

    #[test]
    fn a_refused_text_cannot_paint_the_terminal_or_fill_it() {
        assert_eq!(shown("a\u{1b}[31mred"), "a\\u{1b}[31mred");
        assert_eq!(shown(&"x".repeat(70_000)).chars().count(), 201);
    }
}
