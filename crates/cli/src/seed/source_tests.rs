use std::io::Write;

use super::*;

/// URLs with their origins.
type Urls = Vec<(String, String)>;

fn read(inputs: &[&Path]) -> anyhow::Result<(Urls, Vec<String>)> {
    let (sink, mut urls) = mpsc::channel(1_000);
    let inputs: Vec<Input> = inputs.iter().map(|path| Input::new(path)).collect();
    let unread = Source::new(ProgressBar::hidden(), sink).read_all(&inputs)?;
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

#[test]
fn an_index_is_followed_to_the_files_next_to_it_and_the_rest_is_listed() {
    let folder = tempfile::tempdir().unwrap();
    let index = folder.path().join("index.xml");
    let names = ["https://example.com/maps/one.xml.gz", "sub/two.xml", "https://example.com/far.xml", "index.xml"];
    let entries: String = names.iter().map(|name| format!("<sitemap><loc>{name}</loc></sitemap>")).collect();
    std::fs::write(&index, format!("<sitemapindex>{entries}</sitemapindex>")).unwrap();
    std::fs::create_dir(folder.path().join("sub")).unwrap();
    std::fs::write(folder.path().join("one.xml.gz"), gzip(&sitemap(&["http://one/"]))).unwrap();
    std::fs::write(folder.path().join("sub/two.xml"), sitemap(&["http://two/"])).unwrap();
    let (urls, unread) = read(&[&index]).unwrap();
    let urls: Vec<&str> = urls.iter().map(|(_, url)| url.as_str()).collect();
    assert_eq!(urls, ["http://one/", "http://two/"]);
    assert_eq!(unread, ["https://example.com/far.xml"]);
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
