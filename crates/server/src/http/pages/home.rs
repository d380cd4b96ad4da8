//! `/` in a browser: what this is, its state, and where to go next. Rendered for every request, without scripts.

use std::fmt::Write;

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use serde_json::json;
use wayleave_api::nodes::{Node, NodeState};
use wayleave_core::frontier::view::Stats;

use super::{PLAIN, escape, head, html};
use crate::http::app::App;

/// The content of the page.
#[derive(Debug, Default)]
struct Home {
    /// The kind of store.
    store: Option<&'static str>,
    shards: u16,
    /// Why requests are not served, if they are not.
    trouble: Option<String>,
    /// `None` if the owners do not respond.
    stats: Option<Stats>,
    roles: Option<u64>,
    /// All nodes that share the store, including this one; empty if it is alone.
    nodes: Vec<Node>,
}

/// The page, for clients that accept HTML; for others, where to go next.
pub(super) async fn home(State(app): State<App>, headers: HeaderMap) -> Response {
    if !wants_html(&headers) {
        let version = env!("CARGO_PKG_VERSION");
        let places =
            json!({ "docs": "/docs", "openapi": "/openapi.json", "health": "/healthz", "metrics": "/metrics" });
        return Json(json!({ "name": "wayleave", "version": version, "paths": places })).into_response();
    }
    let home = Home {
        store: app.store.as_ref().map(|store| store.kind()),
        shards: app.frontier.shards(),
        trouble: if app.stopping.is_cancelled() { Some("the server is stopping".to_owned()) } else { app.trouble() },
        stats: app.frontier.stats().await.ok(),
        roles: app.roles.totals().await.ok().map(|totals| totals.roles),
        nodes: app.peers.as_ref().and_then(crate::Peers::nodes).unwrap_or_default(),
    };
    html(PLAIN, render(&home))
}

fn wants_html(headers: &HeaderMap) -> bool {
    let asks = |part: &str| part.split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case("text/html"));
    headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok()).any(|list| list.split(',').any(asks))
}

fn render(home: &Home) -> String {
    let mut out = head("Wayleave", "");
    let store = home.store.map_or_else(String::new, |store| format!(" on {}", escape(store)));
    let state = match &home.trouble {
        None => "<b class=good>ready</b>".to_owned(),
        Some(why) => format!("<b class=bad>not ready</b>: {}", escape(why)),
    };
    // Writing into a String cannot fail.
    let _ = write!(
        out,
        "<h1>Wayleave <small>{version}</small></h1>\
         <p>The control plane of a crawl fleet: which host may be visited now, by whom, and which URLs of it; who is the primary of \
         a role, and where.<p>This server runs{store} with {shards} shards and is {state}.\
         <nav><a href=/docs>try the API</a><a href=/docs/reference>API reference</a><a href=/openapi.json>openapi.json</a>\
         <a href=/metrics>metrics</a><a href=/healthz>health</a><a href=/readyz>readiness</a></nav>",
        version = env!("CARGO_PKG_VERSION"),
        shards = home.shards,
    );
    render_counts(&mut out, home);
    render_nodes(&mut out, &home.nodes);
    out
}

fn render_counts(out: &mut String, home: &Home) {
    let Some(stats) = &home.stats else {
        out.push_str("<h2>Counts</h2><p>Not all shards answer, so there are no totals now.");
        return;
    };
    let urls = [
        ("queued", stats.urls.queued, "wait for their turn"),
        ("reserved", stats.urls.reserved, "are handed out"),
        ("fetched", stats.urls.fetched, "are fetched for good"),
        ("gone", stats.urls.gone, "do not exist any more"),
        ("failed", stats.urls.failed, "were set aside"),
    ];
    let others = [
        ("crawls", stats.crawls, "namespaces of URLs"),
        ("hosts", stats.hosts, "that are known"),
        ("aliases", stats.aliases, "groups of several hosts"),
        ("reservations", stats.reservations, "that are not over"),
        ("holds", stats.holds, "URLs handed out over URLFrontier"),
        ("ready", stats.ready, "group and crawl pairs that may be visited now"),
        ("waiting", stats.waiting, "such pairs that wait for a time"),
    ];
    let roles = home.roles.map(|count| ("roles", count, "duties that one process at a time has"));
    out.push_str("<div class=counts>");
    table(out, "URLs", urls.into_iter());
    table(out, "Counts", others.into_iter().chain(roles));
    out.push_str("</div>");
}

fn table(out: &mut String, title: &str, rows: impl Iterator<Item = (&'static str, u64, &'static str)>) {
    let _ = write!(out, "<section><h2>{title}</h2><table>");
    for (name, count, about) in rows {
        let _ = write!(out, "<tr><td>{name}<td class=n>{}<td><small>{about}</small>", grouped(count));
    }
    out.push_str("</table></section>");
}

fn render_nodes(out: &mut String, nodes: &[Node]) {
    if nodes.len() < 2 {
        return;
    }
    out.push_str("<h2>Nodes</h2><table><tr><th>name<th>address<th>state<th>shards<th>version");
    for node in nodes {
        let class = if node.state == NodeState::Alive { "good" } else { "bad" };
        let _ = write!(
            out,
            "<tr><td>{}{}<td><code>{}</code><td><span class={class}>{}</span> <small>{}</small><td class=n>{}<td>{}",
            escape(&node.name),
            if node.here { " <small>(this one)</small>" } else { "" },
            escape(&node.address),
            node.state.as_str(),
            escape(&node.reason),
            node.shards,
            escape(&node.version),
        );
    }
    out.push_str("</table>");
}

/// A number with thin spaces between its thousands.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let groups: Vec<&str> = digits.as_bytes().rchunks(3).rev().filter_map(|part| str::from_utf8(part).ok()).collect();
    groups.join("\u{2009}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str, state: NodeState) -> Node {
        Node {
            id: name.to_owned(),
            name: name.to_owned(),
            address: format!("http://{name}:7071"),
            state,
            reason: "<why>".to_owned(),
            shards: 128,
            version: "1".to_owned(),
            format: 1,
            holds_back: false,
            started_at: None,
            expires_at: None,
            here: name == "a",
        }
    }

    #[test]
    fn the_page_tells_the_state_and_no_text_of_others_breaks_out_of_it() {
        let home = Home { trouble: Some("the <disk> is full".to_owned()), shards: 16, ..Home::default() };
        let page = render(&home);
        assert!(page.contains("not ready</b>: the &lt;disk&gt; is full") && page.contains("there are no totals now"));
        assert!(!page.contains("Nodes"), "it is alone");
        let nodes = vec![node("a", NodeState::Alive), node("b", NodeState::Lost)];
        let stats = Stats { hosts: 1_234_567, ..Stats::default() };
        let page = render(&Home { nodes, stats: Some(stats), store: Some("PostgreSQL"), ..Home::default() });
        for part in
            ["on PostgreSQL", ">ready</b>", "1\u{2009}234\u{2009}567", "(this one)", ">lost</span>", "&lt;why&gt;"]
        {
            assert!(page.contains(part), "{part}: {page}");
        }
        for foreign in ["<script", "<style", " style=", "//"] {
            assert!(!page.replace("http://a:7071", "").replace("http://b:7071", "").contains(foreign), "{foreign}");
        }
    }

    #[test]
    fn numbers_are_grouped_by_thousands() {
        for (number, text) in
            [(0, "0"), (999, "999"), (1_000, "1\u{2009}000"), (12_345_678, "12\u{2009}345\u{2009}678")]
        {
            assert_eq!(grouped(number), text);
        }
    }

    #[test]
    fn only_those_who_ask_for_a_page_get_one() {
        let asks = |text: &'static str| {
            wants_html(&HeaderMap::from_iter([(header::ACCEPT, header::HeaderValue::from_static(text))]))
        };
        assert!(asks("text/html,application/xhtml+xml;q=0.9,*/*;q=0.8") && asks("Text/HTML;q=0.5"));
        assert!(!asks("*/*") && !asks("application/json"));
    }
}
