//! The metrics of messages between nodes.

use super::text::Page;

/// Appends them.
pub fn render((calls, beats): (u64, u64), text: &mut String) {
    let mut out = Page::default();
    out.counter("wayleave_node_calls_total", "Calls of other nodes that this one has answered.", calls);
    out.counter("wayleave_node_beats_total", "Messages that told other nodes what is ready here.", beats);
    out.write(text);
}
