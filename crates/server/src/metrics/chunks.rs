//! The metrics of chunks in progress. Those that are built, set aside or skipped are not counted: they may be many, and
//! rest in the store.

use wayleave_core::pipeline::state::ChunkCounts;

use super::text::Page;

/// Appends the numbers of chunks, if the pipeline provided them.
pub fn render(counts: Option<ChunkCounts>, text: &mut String) {
    let Some(counts) = counts else { return };
    let mut out = Page::default();
    let states = [
        ("crawling", counts.crawling),
        ("offered", counts.offered),
        ("crawled", counts.crawled),
        ("building", counts.building),
    ];
    let help = "Chunks in progress: crawling, awaiting a crawler again, awaiting an index builder, building.";
    out.gauges("wayleave_chunks", help, "state", &states);
    out.write(text);
}
