//! Converts URLFrontier messages to core types and back. Pure, except for a cached crawl name.

use std::collections::BTreeMap;

use wayleave_api::urlfrontier::ack_message::Status as Ack;
use wayleave_api::urlfrontier::{KnownUrlItem, StringList, UrlInfo, UrlItem, url_item};
use wayleave_core::frontier::request::{Past, Put, PutKind, PutOutcome, UrlToFetch};
use wayleave_core::frontier::view::{UrlState, UrlView};
use wayleave_core::limits::PRIORITY_DEFAULT;
use wayleave_core::metadata::{Metadata, TooLarge};
use wayleave_core::names::{self, BadName, CrawlName, HostName};
use wayleave_core::time::Time;
use wayleave_core::{crawl_url, redact};

/// The put of a URL that is sent as discovered.
pub const DISCOVERED: PutKind = PutKind::Discovered { at: None, priority: PRIORITY_DEFAULT, depth: 0 };

/// The last crawl named: the items of a stream mostly share one, so its name is interned.
#[derive(Default)]
pub struct LastCrawl(Option<(String, CrawlName)>);

impl LastCrawl {
    /// The crawl that `text` names.
    pub fn name(&mut self, text: &str) -> Result<CrawlName, BadName> {
        if let Some((last, name)) = &self.0
            && last == text
        {
            return Ok(CrawlName::clone(name));
        }
        let name = names::crawl(text)?;
        self.0 = Some((text.to_owned(), CrawlName::clone(&name)));
        Ok(name)
    }
}

/// The kind of put and the URL of an item. An item that is neither discovered nor known has no URL.
pub fn kind(item: Option<url_item::Item>) -> (PutKind, UrlInfo) {
    match item {
        Some(url_item::Item::Discovered(discovered)) => (DISCOVERED, discovered.info.unwrap_or_default()),
        Some(url_item::Item::Known(known)) => {
            let date = known.refetchable_from_date;
            let due = (date > 0).then(|| Time::from_secs(date));
            (PutKind::Known { due }, known.info.unwrap_or_default())
        }
        None => (PutKind::Known { due: None }, UrlInfo::default()),
    }
}

/// The put of an item of an import, first stored elsewhere at this time in seconds (0 if unknown): it stores what is unknown, and
/// changes nothing else.
pub fn restored(kind: PutKind, created_secs: u64) -> PutKind {
    let created = (created_secs > 0).then(|| Time::from_secs(created_secs));
    match kind {
        PutKind::Known { due } => {
            let past = Box::new(Past { created, ..Past::UNKNOWN });
            PutKind::Restored { due, priority: PRIORITY_DEFAULT, depth: 0, past }
        }
        other => other,
    }
}

/// Why an item is not stored. Clients take SKIPPED for the end of it; FAIL would have them send it again without end.
#[derive(Debug, PartialEq, Eq)]
pub enum NotPut {
    /// It has no key, or a URL or name that cannot be stored: the protocol knows such items.
    Skipped,
    /// Its metadata is too large.
    TooLarge {
        /// The beginning of its URL.
        url: String,
        /// By how much.
        why: TooLarge,
    },
}

impl NotPut {
    /// Logs what no client expects, once per stream, tracked by `told`.
    pub fn log(&self, told: &mut bool) {
        if let Self::TooLarge { url, why } = self
            && !std::mem::replace(told, true)
        {
            tracing::warn!(url, %why, "a URL of a put stream was not stored (SKIPPED); further ones of this stream are not logged");
        }
    }
}

/// The put that stores a URL. Fails if it can never be stored.
pub fn put(kind: PutKind, info: UrlInfo, crawls: &mut LastCrawl) -> Result<Put, NotPut> {
    let host = crawl_url::parse_loosely(&info.url, &info.key).map_err(|_| NotPut::Skipped)?;
    let crawl = crawls.name(&info.crawl_id).map_err(|_| NotPut::Skipped)?;
    // A completed URL keeps no metadata.
    let metadata = match kind {
        PutKind::Known { due: None } | PutKind::Restored { due: None, .. } => Metadata::default(),
        _ => metadata(&info.metadata).map_err(|why| NotPut::TooLarge { url: redact::in_reason(&info.url), why })?,
    };
    Ok(Put { url: info.url.into_boxed_str(), host, crawl, kind, metadata })
}

/// The acknowledgement of a put.
pub const fn ack(outcome: &PutOutcome) -> Ack {
    match outcome {
        PutOutcome::Added | PutOutcome::Updated | PutOutcome::Requeued => Ack::Ok,
        PutOutcome::Known | PutOutcome::Rejected(_) => Ack::Skipped,
        PutOutcome::Failed(_) | PutOutcome::Moved => Ack::Fail,
    }
}

/// A URL that was handed out, as a protocol message.
pub fn handed_out(url: UrlToFetch) -> UrlInfo {
    UrlInfo {
        metadata: values(&url.metadata),
        key: url.host.as_ref().to_owned(),
        crawl_id: url.crawl.as_ref().to_owned(),
        url: url.url.into_string(),
    }
}

/// A stored URL as a protocol message: always known, without an ID; completed ones without date and metadata.
pub fn stored(view: UrlView) -> UrlItem {
    let due = match view.state {
        UrlState::Queued | UrlState::Reserved => view.due_at.unwrap_or(view.created_at).as_secs().max(1),
        UrlState::Fetched | UrlState::Gone | UrlState::Failed => 0,
    };
    let info = UrlInfo {
        metadata: values(&view.metadata),
        key: view.host.as_ref().to_owned(),
        crawl_id: view.crawl.as_ref().to_owned(),
        url: view.url.into_string(),
    };
    let known = KnownUrlItem { info: Some(info), refetchable_from_date: due };
    UrlItem { id: String::new(), creation_date: view.created_at.as_secs(), item: Some(url_item::Item::Known(known)) }
}

/// The queue that a key names; `None` for a text that cannot name a queue.
pub fn key(text: &str) -> Option<HostName> {
    names::check_key(text).is_ok().then(|| text.into())
}

/// The crawl that a text names, the default one if it is blank; `None` for a text that cannot name a crawl.
pub fn crawl(text: &str) -> Option<CrawlName> {
    names::crawl(text).ok()
}

fn metadata(entries: &BTreeMap<String, StringList>) -> Result<Metadata, TooLarge> {
    if entries.is_empty() {
        return Ok(Metadata::default());
    }
    Metadata::new(entries.iter().map(|(name, list)| (name.as_str(), list.values.iter().map(String::as_str))))
}

fn values(metadata: &Metadata) -> BTreeMap<String, StringList> {
    let owned = |values: Vec<&str>| StringList { values: values.into_iter().map(str::to_owned).collect() };
    metadata.entries().into_iter().map(|(name, values)| (name.to_owned(), owned(values))).collect()
}

#[cfg(test)]
mod tests {
    use wayleave_api::urlfrontier::DiscoveredUrlItem;

    use super::*;

    fn info(url: &str, key: &str, crawl: &str) -> UrlInfo {
        UrlInfo { url: url.into(), key: key.into(), crawl_id: crawl.into(), metadata: BTreeMap::new() }
    }

    fn with_metadata(mut info: UrlInfo, value: &str) -> UrlInfo {
        info.metadata.insert("m".into(), StringList { values: vec![value.into(), "two".into()] });
        info
    }

    #[test]
    fn a_missing_key_is_made_from_the_url_and_a_given_one_stays_as_sent() {
        let made = put(DISCOVERED, info("http://Gac.ICANN.org?x=1", "", ""), &mut LastCrawl::default()).unwrap();
        assert_eq!((&*made.host, &*made.crawl), ("gac.icann.org", "DEFAULT"));
        assert_eq!(&*made.url, "http://Gac.ICANN.org?x=1");
        let given = put(DISCOVERED, info("http://a/", "Foo_Bar.com", " my_spider"), &mut LastCrawl::default()).unwrap();
        assert_eq!((&*given.host, &*given.crawl), ("Foo_Bar.com", " my_spider"));
    }

    #[test]
    fn items_without_a_key_or_over_a_limit_are_not_put() {
        let mut crawls = LastCrawl::default();
        let skipped = Err(NotPut::Skipped);
        assert_eq!(put(DISCOVERED, info("", "", ""), &mut crawls), skipped);
        assert_eq!(put(DISCOVERED, info("http://a/", &"k".repeat(256), ""), &mut crawls), skipped);
        assert_eq!(put(DISCOVERED, info("http://a/", "", &"c".repeat(256)), &mut crawls), skipped);
        let heavy = with_metadata(info("http://a/", "", ""), &"v".repeat(70_000));
        let refused = put(DISCOVERED, heavy, &mut crawls).unwrap_err();
        assert!(matches!(&refused, NotPut::TooLarge { url, .. } if url == "http://a/"), "{refused:?}");
        let mut told = false;
        refused.log(&mut told);
        assert!(told);
        let (kind, empty) = kind(None);
        assert_eq!(put(kind, empty, &mut crawls), skipped, "neither discovered nor known");
    }

    #[test]
    fn the_last_crawl_is_not_mixed_up_with_the_next() {
        let mut crawls = LastCrawl::default();
        for (text, want) in [("a", "a"), ("a", "a"), ("b", "b"), ("", "DEFAULT"), ("  ", "DEFAULT"), ("a", "a")] {
            assert_eq!(crawls.name(text).as_deref(), Ok(want));
        }
    }

    #[test]
    fn dates_decide_between_scheduled_and_completed() {
        let known = |date| {
            let item = KnownUrlItem {
                info: Some(with_metadata(info("http://a/", "", ""), "one")),
                refetchable_from_date: date,
            };
            let (kind, info) = kind(Some(url_item::Item::Known(item)));
            put(kind, info, &mut LastCrawl::default()).unwrap()
        };
        assert_eq!(known(0).kind, PutKind::Known { due: None });
        assert!(known(0).metadata.is_empty(), "a completed URL keeps no metadata");
        assert_eq!(known(7).kind, PutKind::Known { due: Some(Time(7_000)) });
        assert_eq!(known(7).metadata.entries(), [("m", vec!["one", "two"])]);
        assert_eq!(known(u64::MAX).kind, PutKind::Known { due: Some(Time(Time::NEVER.0)) });
        let discovered = DiscoveredUrlItem { info: Some(info("u", "", "")) };
        assert_eq!(kind(Some(url_item::Item::Discovered(discovered))).0, DISCOVERED);
    }

    #[test]
    fn outcomes_have_their_statuses() {
        assert_eq!(ack(&PutOutcome::Added), Ack::Ok);
        assert_eq!(ack(&PutOutcome::Updated), Ack::Ok);
        assert_eq!(ack(&PutOutcome::Known), Ack::Skipped);
        assert_eq!(ack(&PutOutcome::Rejected("too deep".into())), Ack::Skipped);
        assert_eq!(
            ack(&PutOutcome::Failed(Box::new(wayleave_core::frontier::refusal::Refusal::Unavailable(
                "stopping".to_owned()
            )))),
            Ack::Fail
        );
    }

    fn view(state: UrlState, due: Option<u64>) -> UrlView {
        let metadata = metadata(&with_metadata(UrlInfo::default(), "one").metadata).unwrap();
        UrlView {
            url: "http://a/".into(),
            host: "a".into(),
            crawl: "c".into(),
            state,
            due_at: due.map(Time),
            held_until: None,
            created_at: Time(5_999),
            priority: 5,
            depth: 0,
            attempts: 0,
            last: None,
            metadata: if due.is_some() { metadata } else { Metadata::default() },
        }
    }

    fn shown(view: UrlView) -> (u64, u64, usize, String) {
        let item = stored(view);
        let Some(url_item::Item::Known(known)) = item.item else { panic!("shown as {item:?}") };
        let info = known.info.unwrap();
        assert_eq!((info.url.as_str(), info.key.as_str(), info.crawl_id.as_str()), ("http://a/", "a", "c"));
        (known.refetchable_from_date, item.creation_date, info.metadata.len(), item.id)
    }

    #[test]
    fn stored_urls_are_shown_as_known_ones() {
        assert_eq!(shown(view(UrlState::Queued, Some(9_100))), (9, 5, 1, String::new()));
        assert_eq!(shown(view(UrlState::Reserved, Some(500))).0, 1, "0 would mean completed");
        for state in [UrlState::Fetched, UrlState::Gone, UrlState::Failed] {
            assert_eq!(shown(view(state, None)), (0, 5, 0, String::new()));
        }
    }
}
