//! The metrics of calls that wait.

use wayleave_listen::Waits;

use super::text::Page;

/// Appends them.
pub fn render(waits: &Waits, text: &mut String) {
    let mut out = Page::default();
    out.gauge("wayleave_waits", "Calls that wait.", waits.count() as u64);
    out.counter("wayleave_waits_refused_total", "Calls refused because too many waited.", waits.refused());
    out.write(text);
}
