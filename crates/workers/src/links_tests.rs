//! Pages, and what is found in them.

use super::*;

const PAGE: &str = "http://a.example/dir/page?x=1#top";

fn found(html: &str) -> PageLinks {
    find(&PAGE.parse().unwrap(), html, [])
}

fn check(html: &str, wanted: &[&str]) {
    let found = found(html);
    let links: Vec<_> = found.links.iter().map(Url::as_str).collect();
    assert_eq!(links, wanted, "{html}");
}

#[test]
fn links_are_resolved_against_the_page() {
    check(
        "<a href='b'>b</a> <A HREF=../c>c</A> <area href='//b.example/d?q#f'> <a href='?y=2'> <a>no</a> <a href>self</a>",
        &[
            "http://a.example/dir/b",
            "http://a.example/c",
            "http://b.example/d?q",
            "http://a.example/dir/page?y=2",
            "http://a.example/dir/page?x=1",
        ],
    );
}

#[test]
fn the_first_base_holds_for_all_links_also_earlier_ones() {
    check(
        "<a href='x'> <base target='_top'> <base href='/other/'> <base href='http://wrong.example/'> <a href='y'>",
        &["http://a.example/other/x", "http://a.example/other/y"],
    );
    check("<base href='http://[broken'><a href='x'>", &["http://a.example/dir/x"]);
}

#[test]
fn only_the_web_is_linked_to() {
    check(
        "<a href='mailto:a@b.example'> <a href='javascript:alert(1)'> <a href='ftp://b.example/'> <a href='data:,x'>
         <a href='http://user:password@b.example/'> <a href='http://[broken'> <a href='https://b.example/'>",
        &["https://b.example/"],
    );
}

#[test]
fn a_link_comes_once_and_its_references_are_decoded() {
    check(
        "<a href='/x?a=1&amp;b=2'> <a href='/x?a=1&b=2#part'> <a href=' /caf&eacute; '> <a href='/x?copy=1&copy=2'>",
        &["http://a.example/x?a=1&b=2", "http://a.example/caf%C3%A9", "http://a.example/x?copy=1&copy=2"],
    );
}

#[test]
fn nofollow_is_respected_per_link_and_per_page() {
    check(
        "<a rel='nofollow' href='/a'> <a rel='noopener NoFollow' href='/b'> <a rel='nofollowing' href='/c'>",
        &["http://a.example/c"],
    );
    for meta in ["nofollow", "noindex,nofollow", "NONE", "index, NoFollow"] {
        let found = found(&format!("<meta name='Robots' content='{meta}'><a href='/a'>"));
        assert!(found.nofollow && found.links.is_empty(), "{meta}");
    }
    let ours = found("<meta name='wayleave' content='noindex'><meta name='otherbot' content='nofollow'><a href='/a'>");
    assert!(ours.noindex && !ours.nofollow);
    assert_eq!(ours.links.len(), 1);
}

#[test]
fn x_robots_tag_is_read_with_and_without_a_crawlers_name() {
    for (value, noindex, nofollow) in [
        ("noindex", true, false),
        ("nofollow, noindex", true, true),
        ("otherbot: noindex, nofollow", false, false),
        ("otherbot: noindex, Wayleave: nofollow", false, true),
        ("unavailable_after: 25 Jun 2030 15:00:00 PST, noindex", true, false),
        ("none", true, true),
        ("all", false, false),
    ] {
        let found = find(&PAGE.parse().unwrap(), "<a href='/a'>", [value]);
        assert_eq!((found.noindex, found.nofollow), (noindex, nofollow), "{value}");
    }
}

#[test]
fn canonical_is_returned_when_it_is_another_url() {
    let canonical = |html| found(html).canonical.map(String::from);
    assert_eq!(canonical("<link rel='canonical' href='/main'>").as_deref(), Some("http://a.example/main"));
    assert_eq!(canonical("<link rel='Canonical shortlink' href='/main#x'>").as_deref(), Some("http://a.example/main"));
    assert_eq!(canonical("<link rel=canonical href='page?x=1'>"), None);
    assert_eq!(canonical("<link rel=stylesheet href='/main'>"), None);
    assert_eq!(canonical("<link rel=canonical href='javascript:1'>"), None);
}

#[test]
fn tags_in_comments_scripts_and_text_are_none() {
    check(
        "<!-- <a href='/a'> --><script>'<a href=\"/b\">'</script><style><a href='/c'></style><textarea><a href='/d'></textarea>
         <title><a href='/e'></title><a href='/f'>",
        &["http://a.example/f"],
    );
}

#[test]
fn too_many_links_are_cut() {
    use std::fmt::Write as _;
    let html = (0..LINKS_MAX + 10).fold(String::new(), |mut html, n| {
        let _ = write!(html, "<a href='/{n}'>");
        html
    });
    let found = found(&html);
    assert!(found.cut);
    assert_eq!(found.links.len(), LINKS_MAX);
}

#[test]
fn hostile_pages_are_read_in_linear_time_and_without_recursion() {
    // A million attributes on one tag, all different; deep nesting; a tag that never ends.
    use std::fmt::Write as _;
    let attributes = (0..1_000_000).fold(String::new(), |mut text, n| {
        let _ = write!(text, "a{n} ");
        text
    });
    check(&format!("<a {attributes} href='/x'>"), &["http://a.example/x"]);
    check(&format!("{}<a href='/y'>", "<div>".repeat(500_000)), &["http://a.example/y"]);
    check(&format!("<a href='/x'><a href='{}", "y".repeat(10_000_000)), &["http://a.example/x"]);
}

#[test]
fn the_first_of_several_attributes_counts_and_those_of_end_tags_do_not() {
    check("<a href='/x' HREF='/y'>x</a href='/z'>", &["http://a.example/x"]);
    check("</b href='/z'><a>", &[]);
}

proptest::proptest! {
    #[test]
    fn any_text_is_read(html in r#"(<|>|a|/|href|base|="|'| |[^a]){0,60}"#) {
        let found = found(&html);
        proptest::prop_assert!(found.links.iter().all(|link| link.fragment().is_none()));
    }
}
