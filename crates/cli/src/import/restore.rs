//! Converts our own records to requests of the public API. Pure.

use wayleave_api::crawls::{Crawl, CrawlLimitsPatch, RetryPatch, RetryPolicy, SetCrawlRequest};
use wayleave_api::groups::{Group, SetGroupRequest};
use wayleave_api::hosts::{Host, SetHostRequest};
use wayleave_api::pools::SetPoolRequest;
use wayleave_api::roles::SetRoleRequest;
use wayleave_api::urlfrontier::{KnownUrlItem, StringList, UrlInfo, UrlItem, url_item};
use wayleave_api::urls::{Url, UrlState, UrlToAdd};
use wayleave_api::{Patch, Timestamp};
use wayleave_core::{crawl_url, limits};

use crate::record::{PoolSettings, RoleSettings};

/// Pools that are named in one reason.
const POOLS_NAMED: usize = 5;

/// The settings of a pool, with the values of its variables. An export has none; what a file that somebody wrote has in its
/// settings is taken as it is. Fails if values are missing: its workers would fail without them.
pub fn pool(pool: &PoolSettings, look_up: impl Fn(&str) -> Option<String>) -> Result<SetPoolRequest, String> {
    let (mut env, mut missing) = (pool.settings.env.clone(), Vec::new());
    for name in pool.env.iter().filter(|name| !pool.settings.env.contains_key(*name)) {
        match look_up(name) {
            Some(value) => _ = env.insert(name.clone(), value),
            None => missing.push(name.as_str()),
        }
    }
    if missing.is_empty() {
        return Ok(SetPoolRequest { env, ..pool.settings.clone() });
    }
    let (values, them) = if missing.len() == 1 { ("value", "it") } else { ("values", "them") };
    let remedy = format!("set {them} in the environment of this command and import again");
    let names = missing.join(", ");
    Err(format!("pool '{}' needs the {values} of {names}, which no export contains: {remedy}", pool.pool))
}

/// Pools of a file that are not set up without consent: whoever wrote it could run anything on the server. A file may have
/// very many, so only what their reason names is kept.
#[derive(Debug, Default)]
pub struct Unwanted {
    /// How many there are.
    pub count: u64,
    /// The line of the first.
    line: u64,
    /// What the first would run.
    what: &'static str,
    /// The first ones.
    names: Vec<String>,
}

impl Unwanted {
    /// Counts a pool.
    pub fn note(&mut self, line: u64, pool: &PoolSettings) {
        if self.count == 0 {
            self.line = line;
            self.what = if pool.settings.image.is_some() { "image" } else { "command" };
        }
        if self.names.len() < POOLS_NAMED {
            self.names.push(pool.pool.clone());
        }
        self.count += 1;
    }

    /// The reason of all, at the line of the first.
    pub fn reason(&self) -> Option<(u64, String)> {
        let Self { count, line, what, names } = self;
        let reason = match names.as_slice() {
            [] => return None,
            [name] => {
                format!("pool '{name}' would run its {what} on the server: look at it, then import with --pools")
            }
            names => {
                let more = count - names.len() as u64;
                let more = if more == 0 { String::new() } else { format!(" and {more} more") };
                format!(
                    "{count} pools would run their commands or images on the server ({}{more}): look at them, then import \
                     with --pools",
                    names.join(", ")
                )
            }
        };
        Some((*line, reason))
    }
}

/// The call that restores a URL.
#[derive(Clone, Debug, PartialEq)]
pub enum Way {
    /// The native call: keeps all that a listing shows.
    Add(UrlToAdd),
    /// URLFrontier's call: stores texts that the native call would normalise.
    Put(Box<UrlItem>),
}

/// The queue key with which the native call stores a URL as it is, none if it needs none. Not all texts can be stored so.
pub fn native_key(url: &Url) -> Option<Option<String>> {
    let same = |key: Option<&str>| {
        crawl_url::parse(&url.url, key).is_ok_and(|page| page.url == url.url && page.host.as_ref() == url.host.as_str())
    };
    if same(None) { Some(None) } else { same(Some(&url.host)).then(|| Some(url.host.clone())) }
}

/// How a URL is restored.
pub fn url(url: Url) -> Way {
    let Some(key) = native_key(&url) else { return put(url) };
    // What was handed out is queued again.
    let is_completed = !matches!(url.state, UrlState::Queued | UrlState::Reserved);
    Way::Add(UrlToAdd {
        key,
        state: is_completed.then_some(url.state),
        created_at: Some(url.created_at),
        attempts: Some(url.attempts).filter(|attempts| *attempts > 0),
        last: url.last,
        crawl: Some(url.crawl),
        at: url.due_at,
        priority: Some(url.priority),
        depth: Some(url.depth),
        metadata: url.metadata,
        url: url.url,
        again: false,
    })
}

fn put(url: Url) -> Way {
    let waiting = matches!(url.state, UrlState::Queued | UrlState::Reserved);
    // 0 would mean completed.
    let secs = |at: Timestamp| (at.0.0 / 1_000).max(1);
    let date = if waiting { url.due_at.map_or(1, secs) } else { 0 };
    let metadata = url.metadata.0.into_iter().map(|(name, values)| (name, StringList { values })).collect();
    let info = UrlInfo { url: url.url, key: url.host, crawl_id: url.crawl, metadata };
    let item = url_item::Item::Known(KnownUrlItem { info: Some(info), refetchable_from_date: date });
    let creation_date = url.created_at.0.as_secs();
    Way::Put(Box::new(UrlItem { item: Some(item), creation_date, ..UrlItem::default() }))
}

/// The settings of a crawl without its limits, and its limits separately if there are any.
pub fn crawl(crawl: &Crawl) -> (SetCrawlRequest, Option<SetCrawlRequest>) {
    let settings = SetCrawlRequest {
        weight: Patch::Set(crawl.weight),
        paused: Patch::Set(crawl.paused),
        delay_ms: crawl.delay_ms.into(),
        limits: Patch::Keep,
        revisit: Patch::Set(crawl.revisit),
        retry: retry(crawl.retry),
    };
    let limits = CrawlLimitsPatch {
        urls: crawl.limits.urls.into(),
        pages: crawl.limits.pages.into(),
        urls_per_host: crawl.limits.urls_per_host.into(),
        pages_per_host: crawl.limits.pages_per_host.into(),
        depth: crawl.limits.depth.into(),
        attempts: crawl.limits.attempts.into(),
        hosts: crawl.limits.hosts.into(),
    };
    let limited = limits != CrawlLimitsPatch::default();
    (settings, limited.then(|| SetCrawlRequest { limits: Patch::Set(limits), ..SetCrawlRequest::default() }))
}

/// Retry waits that differ from the default. Attempts are among the limits.
fn retry(policy: RetryPolicy) -> Patch<RetryPatch> {
    let usual = RetryPolicy { attempts: policy.attempts, first_ms: limits::RETRY_BASE.0, max_ms: limits::RETRY_MAX.0 };
    if policy == usual || policy == RetryPolicy::default() {
        return Patch::Keep;
    }
    let RetryPolicy { first_ms, max_ms, .. } = policy;
    Patch::Set(RetryPatch { first_ms: Patch::Set(first_ms), max_ms: Patch::Set(max_ms), ..RetryPatch::default() })
}

/// The settings of a host.
pub fn host(host: &Host) -> SetHostRequest {
    SetHostRequest {
        delay_ms: host.delay_ms.into(),
        delay_factor: host.delay_factor.into(),
        delay_ms_min: host.delay_ms_min.into(),
        delay_ms_max: host.delay_ms_max.into(),
        blocked_until: host.blocked_until.into(),
        paused: Patch::Set(host.paused),
        limit: host.limit.into(),
        crawl_delay_ms: host.crawl_delay_ms.into(),
        ready_at: host.queued_at,
    }
}

/// The hosts and settings of an alias.
pub fn group(group: &Group) -> SetGroupRequest {
    SetGroupRequest {
        hosts: Some(group.hosts.clone()),
        delay_ms: group.delay_ms.into(),
        delay_factor: group.delay_factor.into(),
        delay_ms_min: group.delay_ms_min.into(),
        delay_ms_max: group.delay_ms_max.into(),
        blocked_until: group.blocked_until.into(),
        paused: Patch::Set(group.paused),
        limit: group.limit.into(),
        parallel: Patch::Set(group.parallel),
    }
}

/// The settings of a role.
pub fn role(role: &RoleSettings) -> SetRoleRequest {
    let continue_for_ms = role.continue_for_ms.map_or(Patch::Keep, Patch::Set);
    SetRoleRequest { ttl_ms: Patch::Set(role.ttl_ms), mode: Patch::Set(role.mode), continue_for_ms }
}

/// The epoch above which a role continues, if it ever had a primary. The original store may have granted more epochs
/// since the file was written: these are skipped too.
pub const fn epoch(role: &RoleSettings) -> Option<u64> {
    if role.epoch == 0 { None } else { Some(role.epoch.saturating_add(limits::ROLE_EPOCHS_SKIPPED)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wayleave_core::time::Time;

    fn stored(text: &str, host: &str, state: UrlState) -> Url {
        Url {
            url: text.into(),
            host: host.into(),
            crawl: "news".into(),
            state,
            due_at: Some(Timestamp(Time(5_500))),
            held_until: None,
            created_at: Timestamp(Time(1)),
            priority: 7,
            depth: 3,
            attempts: 2,
            last: None,
            metadata: wayleave_api::metadata::Metadata(vec![("m".into(), vec!["1".into()])]),
        }
    }

    fn settings(pool: &str, settings: serde_json::Value, env: &[&str]) -> PoolSettings {
        let record = serde_json::json!({"pool": pool, "settings": settings, "env": env});
        serde_json::from_value(record).unwrap()
    }

    #[test]
    fn all_missing_values_are_named_and_those_of_the_file_are_taken() {
        let written = serde_json::json!({"command": ["w"], "env": {"MODE": "fast", "KEY": "file"}});
        let wanted = settings("render", written, &["KEY", "TOKEN", "USER_ID"]);
        let none = pool(&wanted, |_| None).unwrap_err();
        assert!(
            none.starts_with("pool 'render' needs the values of TOKEN, USER_ID, which no export contains"),
            "{none}"
        );
        let one = pool(&wanted, |name| (name == "TOKEN").then(|| "t".to_owned())).unwrap_err();
        assert!(one.contains("needs the value of USER_ID, which no export contains: set it"), "{one}");
        let all = pool(&wanted, |name| Some(format!("{name} of the environment"))).unwrap();
        let env: Vec<(&str, &str)> = all.env.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let of_environment = [("TOKEN", "TOKEN of the environment"), ("USER_ID", "USER_ID of the environment")];
        assert_eq!(env, [&[("KEY", "file"), ("MODE", "fast")], &of_environment[..]].concat());
    }

    #[test]
    fn pools_that_are_not_wanted_are_one_reason() {
        let command = |name: &str| settings(name, serde_json::json!({"command": ["w"]}), &[]);
        let image = settings("gpu", serde_json::json!({"image": "gpu:1", "port": 80}), &[]);
        let unwanted = |pools: &[PoolSettings]| {
            let mut unwanted = Unwanted::default();
            (7..).zip(pools).for_each(|(line, pool)| unwanted.note(line, pool));
            unwanted
        };
        let told = |pools: &[PoolSettings]| unwanted(pools).reason().unwrap_or_default().1;
        let end = "on the server: look at it, then import with --pools";
        assert_eq!(told(&[command("a")]), format!("pool 'a' would run its command {end}"));
        assert_eq!(told(std::slice::from_ref(&image)), format!("pool 'gpu' would run its image {end}"));
        let several: Vec<_> = ["a", "b", "c", "d", "e", "f", "g"].map(command).into();
        let start = "7 pools would run their commands or images on the server (a, b, c, d, e and 2 more): ";
        assert!(told(&several).starts_with(start), "{}", told(&several));
        assert_eq!(unwanted(&[]).reason(), None);
        let (line, count, names) =
            (unwanted(&several).reason().unwrap().0, unwanted(&several).count, unwanted(&several).names);
        assert_eq!((line, count, names.len()), (7, 7, POOLS_NAMED), "no more than is told");
    }

    #[test]
    fn a_queued_url_keeps_all_that_the_native_call_can_say() {
        let Way::Add(add) = url(stored("http://a.example/x", "a.example", UrlState::Queued)) else { panic!("put") };
        assert_eq!((add.key, add.priority, add.depth, add.at.unwrap().0.0), (None, Some(7), Some(3), 5_500));
        let Way::Add(add) = url(stored("http://a.example/x", "b.example", UrlState::Reserved)) else { panic!("put") };
        assert_eq!(add.key.as_deref(), Some("b.example"), "a queue of another name");
        assert_eq!((add.state, add.created_at, add.attempts), (None, Some(Timestamp(Time(1))), Some(2)));
        let Way::Add(add) = url(stored("http://a.example/x", "a.example", UrlState::Failed)) else { panic!("put") };
        assert_eq!((add.state, add.depth), (Some(UrlState::Failed), Some(3)));
    }

    #[test]
    fn a_url_that_would_be_changed_goes_the_other_way() {
        for (text, host, state, date) in [
            ("http://A.example?x", "a.example", UrlState::Failed, 0),
            ("http://A.example?x", "a.example", UrlState::Queued, 5),
            ("mailto:a@b", "mailto", UrlState::Queued, 5),
        ] {
            let Way::Put(item) = url(stored(text, host, state)) else { panic!("{text} {state:?}") };
            let Some(url_item::Item::Known(known)) = item.item else { panic!("{text} is put as {item:?}") };
            let info = known.info.unwrap();
            assert_eq!((info.url.as_str(), info.key.as_str(), known.refetchable_from_date), (text, host, date));
        }
    }
}
