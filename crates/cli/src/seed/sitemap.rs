//! Sitemaps and sitemap indexes, read entry by entry. Memory is bounded by the limits below, however long or deep the
//! XML is.

use std::io::BufRead;

use quick_xml::Reader;
use quick_xml::escape::resolve_predefined_entity;
use quick_xml::events::Event;

use super::rationed::Rationed;
use crate::limits::{ELEMENT_DEPTH_MAX, LOCATION_BYTES_MAX, TAG_BYTES_MAX};

/// One entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    /// A page.
    Url(String),
    /// A sitemap, named by an index.
    Sitemap(String),
}

/// A sitemap that cannot be read.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum BadSitemap {
    #[error("broken XML near byte {position}: {cause}")]
    Xml { position: u64, cause: quick_xml::Error },
    #[error("cannot be read beyond byte {position}: {cause}")]
    Read { position: u64, cause: std::sync::Arc<std::io::Error> },
    #[error("its root is <{0}>, not <urlset> or <sitemapindex>")]
    Root(String),
    #[error("it ends inside <{0}>")]
    Cut(String),
    #[error("a tag, text or comment near byte {0} is longer than {TAG_BYTES_MAX} bytes, which is the limit")]
    Part(u64),
    #[error("the location near byte {0} is longer than {LOCATION_BYTES_MAX} bytes, which is the limit")]
    Location(u64),
    #[error("elements near byte {0} are nested more than {ELEMENT_DEPTH_MAX} deep, which is the limit")]
    Deep(u64),
}

/// The entries of a sitemap.
pub struct Sitemap<R> {
    reader: Reader<Rationed<R>>,
    buffer: Vec<u8>,
    /// The open elements, by local name.
    open: Vec<String>,
    text: String,
    ended: bool,
}

impl<R: BufRead> Sitemap<R> {
    /// The entries of `reader`.
    pub fn new(reader: R) -> Self {
        let reader = Reader::from_reader(Rationed::new(reader));
        Self { reader, buffer: Vec::new(), open: Vec::new(), text: String::new(), ended: false }
    }

    fn next_entry(&mut self) -> Result<Option<Entry>, BadSitemap> {
        loop {
            self.buffer.clear();
            let position = self.reader.buffer_position();
            self.reader.get_mut().allow(TAG_BYTES_MAX);
            let event = match self.reader.read_event_into(&mut self.buffer) {
                Ok(event) => event,
                Err(_) if self.reader.get_ref().is_used_up() => return Err(BadSitemap::Part(position)),
                Err(quick_xml::Error::Io(cause)) => return Err(BadSitemap::Read { position, cause }),
                Err(cause) => return Err(BadSitemap::Xml { position, cause }),
            };
            let in_location = self.open.last().is_some_and(|name| name == "loc");
            if in_location && self.text.len() > LOCATION_BYTES_MAX {
                return Err(BadSitemap::Location(position));
            }
            match event {
                Event::Start(_) if self.open.len() >= ELEMENT_DEPTH_MAX => return Err(BadSitemap::Deep(position)),
                Event::Start(start) => {
                    let name = start.local_name().as_ref().to_owned();
                    if self.open.is_empty() && !matches!(name.as_str(), "urlset" | "sitemapindex") {
                        return Err(BadSitemap::Root(name));
                    }
                    self.open.push(name);
                    self.text.clear();
                }
                Event::Text(text) if in_location => self.text.push_str(&text.xml10_content()),
                Event::CData(text) if in_location => self.text.push_str(&text.xml10_content()),
                Event::GeneralRef(reference) if in_location => resolve(&reference.xml10_content(), &mut self.text),
                Event::End(_) => {
                    let entry = self.close();
                    if entry.is_some() {
                        return Ok(entry);
                    }
                }
                Event::Eof => return self.open.pop().map_or(Ok(None), |name| Err(BadSitemap::Cut(name))),
                _ => {}
            }
        }
    }

    /// An element ended: only a location directly in an entry counts; those of images and videos are deeper.
    fn close(&mut self) -> Option<Entry> {
        let closed = self.open.pop()?;
        let location = std::mem::take(&mut self.text).trim().to_owned();
        if closed != "loc" || location.is_empty() {
            return None;
        }
        match self.open.last().map(String::as_str) {
            Some("url") => Some(Entry::Url(location)),
            Some("sitemap") => Some(Entry::Sitemap(location)),
            _ => None,
        }
    }
}

/// The character of the entity `&name;`; an unknown one stays as it is.
fn resolve(name: &str, out: &mut String) {
    let code = name.strip_prefix('#').and_then(|code| match code.strip_prefix(['x', 'X']) {
        Some(hex) => u32::from_str_radix(hex, 16).ok(),
        None => code.parse().ok(),
    });
    if let Some(character) = code.and_then(char::from_u32) {
        out.push(character);
    } else if let Some(text) = resolve_predefined_entity(name) {
        out.push_str(text);
    } else {
        out.push('&');
        out.push_str(name);
        out.push(';');
    }
}

impl<R: BufRead> Iterator for Sitemap<R> {
    type Item = Result<Entry, BadSitemap>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let entry = self.next_entry().transpose();
        self.ended = !matches!(entry, Some(Ok(_)));
        entry
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<Entry>, BadSitemap> {
        Sitemap::new(text.as_bytes()).collect()
    }

    fn url(text: &str) -> Entry {
        Entry::Url(text.to_owned())
    }

    #[test]
    fn pages_are_found_and_images_are_not() {
        let text = "<?xml version='1.0'?>\n<urlset xmlns='http://www.sitemaps.org/schemas/sitemap/0.9' xmlns:image='i'>
            <url><loc> http://a/?x=1&amp;y=2 </loc><lastmod>2026-01-01</lastmod>
              <image:image><image:loc>http://a/picture</image:loc></image:image></url>
            <url><loc><![CDATA[http://a/c?d&e]]></loc></url><url><loc>http://a/&#228;</loc></url><url/></urlset>";
        assert_eq!(read(text).unwrap(), [url("http://a/?x=1&y=2"), url("http://a/c?d&e"), url("http://a/ä")]);
    }

    #[test]
    fn an_index_names_sitemaps() {
        let text =
            "<s:sitemapindex xmlns:s='x'><s:sitemap><s:loc>http://a/1.xml.gz</s:loc></s:sitemap></s:sitemapindex>";
        assert_eq!(read(text).unwrap(), [Entry::Sitemap("http://a/1.xml.gz".into())]);
    }

    #[test]
    fn other_xml_and_broken_xml_are_refused_with_a_reason() {
        assert!(matches!(read("<html><body/></html>"), Err(BadSitemap::Root(root)) if root == "html"));
        assert!(matches!(read("<urlset><url><loc>http://a/</loc>"), Err(BadSitemap::Cut(_))));
        assert!(matches!(read("<urlset><url></urlset>"), Err(BadSitemap::Xml { .. })));
    }
}
