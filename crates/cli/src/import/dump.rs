//! One line of a URLFrontier dump: a URLItem in proto3 JSON, with camel-case names and 64-bit numbers as strings.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer};
use wayleave_api::object;
use wayleave_api::urlfrontier::{DiscoveredUrlItem, KnownUrlItem, StringList, UrlInfo, UrlItem, url_item};
use wayleave_api::wording::TextError;

#[derive(Default, Deserialize)]
#[serde(default)]
struct Item {
    known: Option<Known>,
    discovered: Option<Discovered>,
    #[serde(rename = "creationDate", alias = "creation_date", deserialize_with = "number")]
    creation_date: u64,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Known {
    info: Info,
    #[serde(rename = "refetchableFromDate", alias = "refetchable_from_date", deserialize_with = "number")]
    refetchable_from_date: u64,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Discovered {
    info: Info,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Info {
    url: String,
    key: String,
    #[serde(rename = "crawlID", alias = "crawl_id")]
    crawl_id: String,
    metadata: BTreeMap<String, Values>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Values {
    values: Vec<String>,
}

/// A number, or a number as a string.
fn number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Either {
        Number(u64),
        Text(String),
    }
    match Either::deserialize(deserializer)? {
        Either::Number(number) => Ok(number),
        Either::Text(text) => text.parse().map_err(serde::de::Error::custom),
    }
}

impl From<Info> for UrlInfo {
    fn from(info: Info) -> Self {
        let metadata = info.metadata.into_iter().map(|(name, list)| (name, StringList { values: list.values }));
        Self { url: info.url, key: info.key, crawl_id: info.crawl_id, metadata: metadata.collect() }
    }
}

/// The item of a line, without its ID.
pub fn item(line: &str) -> Result<UrlItem, TextError> {
    let item: Item = object::read(line.as_bytes())?;
    let creation_date = item.creation_date;
    let item = match (item.known, item.discovered) {
        (Some(Known { info, refetchable_from_date }), _) => {
            url_item::Item::Known(KnownUrlItem { info: Some(info.into()), refetchable_from_date })
        }
        (None, discovered) => {
            let info = discovered.unwrap_or_default().info;
            url_item::Item::Discovered(DiscoveredUrlItem { info: Some(info.into()) })
        }
    };
    Ok(UrlItem { item: Some(item), creation_date, ..UrlItem::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> url_item::Item {
        item(text).unwrap().item.unwrap()
    }

    fn read_known(text: &str) -> KnownUrlItem {
        match read(text) {
            url_item::Item::Known(known) => known,
            other => panic!("{text} was read as {other:?}"),
        }
    }

    #[test]
    fn a_scheduled_url_keeps_its_dates_key_crawl_and_metadata() {
        let line = r#"{"known":{"info":{"url":"http://a/x","key":"a","metadata":{"m":{"values":["1","2"]}},
            "crawlID":"news"},"refetchableFromDate":"1700000000"},"ID":"","creationDate":"1690000000"}"#;
        assert_eq!(item(line).unwrap().creation_date, 1_690_000_000);
        let known = read_known(line);
        let info = known.info.unwrap();
        assert_eq!((info.url.as_str(), info.key.as_str(), info.crawl_id.as_str()), ("http://a/x", "a", "news"));
        assert_eq!(info.metadata["m"].values, ["1", "2"]);
        assert_eq!(known.refetchable_from_date, 1_700_000_000);
    }

    #[test]
    fn a_url_without_a_date_is_completed() {
        assert_eq!(read_known(r#"{"known":{"info":{"url":"http://a/"}}}"#).refetchable_from_date, 0);
    }

    #[test]
    fn numbers_and_names_of_the_schema_itself_are_read_too() {
        let line = r#"{"known":{"info":{"url":"u","crawl_id":"c"},"refetchable_from_date":7}}"#;
        let known = read_known(line);
        assert_eq!((known.refetchable_from_date, known.info.unwrap().crawl_id.as_str()), (7, "c"));
        assert!(matches!(read(r#"{"discovered":{"info":{"url":"u"}}}"#), url_item::Item::Discovered(_)));
    }
}
