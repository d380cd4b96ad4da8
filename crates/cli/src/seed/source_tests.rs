use std::io::Write;

use super::*;

/// URLs with their origins.
type Urls = Vec<(String, String)>;

fn read(inputs: &[&Path]) -> anyhow::Result<(Urls, Vec<String>)> {
    read_with(inputs, false)
}

fn read_with(inputs: &[&Path], local: bool) -> anyhow::Result<(Urls, Vec<String>)> {
    let (sink, mut urls) = mpsc::channel(1_000);
    let inputs: Vec<Input> = inputs.iter().map(|path| Input::new(path)).collect();
    let unread = Source::new(ProgressBar::hidden(), sink, local).read_all(&inputs)?;
    let mut all = Vec::new();
    while let Ok((origin, url)) = urls.try_recv() {
        all.push((format!("{} {}", origin.unit, origin.number), url));
    }
    Ok((all, unread))
}

fn gzip(text: &str) -> Vec<u8> {
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(text.as_bytes()).unwrap();
    packed.finish().unwrap()
}

fn sitemap(urls: &[&str]) -> String {
    let urls: String = urls.iter().map(|url| format!("<url><loc>{url}</loc></url>")).collect();
    format!("<urlset>{urls}</urlset>")
}

#[test]
fn comments_and_blank_lines_are_skipped_and_lines_keep_their_numbers() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("urls.txt");
    std::fs::write(&file, "\u{feff}# seeds\n\nhttp://a/\r\n  http://b/  \n#http://c/\nhttp://d/").unwrap();
    let (urls, _) = read(&[&file]).unwrap();
    let want = [("line 3", "http://a/"), ("line 4", "http://b/"), ("line 6", "http://d/")];
    assert_eq!(urls, want.map(|(origin, url)| (origin.to_owned(), url.to_owned())));
}

#[test]
fn packed_lists_and_packed_sitemaps_are_told_apart_by_their_content() {
    let folder = tempfile::tempdir().unwrap();
    let (list, map) = (folder.path().join("list"), folder.path().join("map"));
    std::fs::write(&list, gzip("http://a/\n")).unwrap();
    std::fs::write(&map, gzip(&sitemap(&["http://b/"]))).unwrap();
    let (urls, _) = read(&[&list, &map]).unwrap();
    assert_eq!(urls, [("line 1".into(), "http://a/".into()), ("entry 1".into(), "http://b/".into())]);
}

fn index(names: &[&str]) -> String {
    let entries: String = names.iter().map(|name| format!("<sitemap><loc>{name}</loc></sitemap>")).collect();
    format!("<sitemapindex>{entries}</sitemapindex>")
}

#[test]
fn an_index_is_followed_to_the_sitemaps_next_to_it_and_the_rest_is_listed() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("index.xml");
    let names = ["https://example.com/maps/one.xml.gz", "https://example.com/far.xml", "https://example.com/index.xml"];
    std::fs::write(&file, index(&names)).unwrap();
    std::fs::write(folder.path().join("one.xml.gz"), gzip(&sitemap(&["http://one/"]))).unwrap();
    let (urls, unread) = read(&[&file]).unwrap();
    assert_eq!(urls, [("entry 1".to_owned(), "http://one/".to_owned())]);
    assert_eq!(unread, ["https://example.com/far.xml"]);
}

#[test]
fn paths_and_file_addresses_are_followed_only_from_an_index_that_the_user_named_and_trusts() {
    let folder = tempfile::tempdir().unwrap();
    let place = |name: &str| folder.path().join(name);
    let (outer, inner, secret) = (place("outer.xml"), place("inner.xml"), place("secret.xml"));
    std::fs::write(&secret, sitemap(&["http://secret/"])).unwrap();
    let address = url::Url::from_file_path(&secret).unwrap().to_string();
    let names = ["secret.xml", secret.to_str().unwrap(), &address, "./secret.xml", "ftp://h/secret.xml"];
    std::fs::write(&inner, index(&names)).unwrap();
    let (urls, unread) = read(&[&inner]).unwrap();
    assert_eq!((urls.len(), unread.len()), (0, names.len()), "it was not said that it is trusted: {urls:?}");
    let (urls, _) = read_with(&[&inner], true).unwrap();
    assert_eq!(urls, [("entry 1".to_owned(), "http://secret/".to_owned())]);
    // Named by another index, the same one leads nowhere, however trusted the other is.
    std::fs::write(&outer, index(&["https://example.com/inner.xml"])).unwrap();
    for local in [false, true] {
        let (urls, unread) = read_with(&[&outer], local).unwrap();
        assert_eq!((urls.len(), unread.len()), (0, names.len()), "local {local}: {urls:?}");
    }
}

#[test]
fn a_neighbour_that_is_no_sitemap_is_not_read_because_an_index_names_it() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("index.xml");
    std::fs::write(folder.path().join(".env"), "PASSWORD=1\n").unwrap();
    std::fs::write(&file, index(&["https://example.com/.env"])).unwrap();
    let (urls, unread) = read(&[&file]).unwrap();
    assert_eq!((urls.len(), unread.len()), (0, 1), "{urls:?}");
}

#[test]
fn an_overlong_line_does_not_swallow_the_next() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("urls.txt");
    std::fs::write(&file, format!("http://a/{}\nhttp://b/\n", "x".repeat(200_000))).unwrap();
    let (urls, _) = read(&[&file]).unwrap();
    assert_eq!((urls.len(), urls[1].clone()), (2, ("line 2".into(), "http://b/".into())));
}

#[test]
fn a_file_that_is_not_there_or_no_sitemap_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("page.html");
    std::fs::write(&page, "<html></html>").unwrap();
    let missing = folder.path().join("missing.txt");
    for (path, word) in [(&page, "urlset"), (&missing, "No such file")] {
        let error = format!("{:#}", read(&[path]).expect_err("no URLs"));
        assert!(error.contains(&path.display().to_string()) && error.contains(word), "{error}");
    }
}
