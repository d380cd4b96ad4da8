//! Hosts on the wire.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use wayleave_core::frontier::view;
use wayleave_core::time::Millis;
use wayleave_core::{limits, names, redact};

use crate::bad_value::BadValue;
use crate::bounds::{Bound, DELAY, EXACT, whole};
use crate::pace::{self, pace_changes};
use crate::patch::patches;
use crate::stats::Counts;
use crate::words::words;
use crate::{Patch, Timestamp};

words! {
    /// The state of a host or a group.
    #[derive(Hash)]
    State = view::State {
        /// May be reserved now.
        Ready,
        /// Must wait for its delay or its next due URL.
        Waiting,
        /// Reserved.
        Busy,
        /// Blocked until a time.
        Blocked,
        /// Paused by an operator.
        Paused,
        /// Has no URL that will ever be due.
        Idle,
    }
}

/// Which hosts or groups to list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ListHostsQuery {
    /// Only those in this state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[param(inline)]
    pub state: Option<State>,
    /// Only those with a queue of this crawl.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub crawl: Option<String>,
    /// The `next` of the previous page; absent for the first page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    /// Rows per page, 1 to 1,000; 100 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
}

impl TryFrom<&ListHostsQuery> for view::HostFilter {
    type Error = BadValue;

    fn try_from(query: &ListHostsQuery) -> Result<Self, BadValue> {
        let crawl = query.crawl.as_deref().map(names::crawl).transpose();
        Ok(Self { state: query.state.map(Into::into), crawl: crawl.map_err(|e| BadValue::new("crawl", e))? })
    }
}

/// How host names are interpreted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct NamesQuery {
    /// Whether names are queue keys, which are not normalised. If absent, a name means the queue key with exactly that
    /// text if there is one, otherwise the host name in any spelling.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exact: Option<bool>,
}

impl NamesQuery {
    /// Names are not normalised.
    pub const EXACT: Self = Self { exact: Some(true) };
}

patches! {
    /// Sets how a host is visited. PATCH keeps what is absent, PUT clears it; `null` clears.
    #[derive(Copy)]
    SetHostRequest {
        /// Time between two visits.
        delay_ms: u64 = DELAY,
        /// Delay as a multiple of the last visit's duration.
        delay_factor: f64 => Bound::Number(pace::FACTOR_MAX),
        /// Minimum delay for `delay_factor`.
        delay_ms_min: u64 = DELAY,
        /// Maximum delay for `delay_factor`.
        delay_ms_max: u64 = DELAY,
        /// Blocked until this time. `null` also lifts the back-off that the site requested, for the whole group.
        blocked_until: Timestamp,
        /// The Crawl-delay of robots.txt, which workers report; `null` clears it until one reports it again.
        crawl_delay_ms: u64 = whole(0, limits::CRAWL_DELAY_MAX.0),
        /// Whether an operator has paused it.
        paused: bool,
        /// Limit on pages per crawl.
        limit: u64 = EXACT,
        {
            /// Also queues the host itself, without a URL, at this time.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub ready_at: Option<Timestamp>,
        }
    }
}

pace_changes!(SetHostRequest, crawl_delay: crawl_delay_ms as Millis);

/// A current visit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LiveVisit {
    /// The host being visited.
    pub host: String,
    /// Its holder.
    pub holder: String,
    /// When its lease expires, unless it is released or renewed before.
    pub expires_at: Timestamp,
    /// The chunk that it was for, if that was skipped or its crawl deleted meanwhile: the holder may not know yet. Absent
    /// otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_chunk: Option<String>,
}

impl From<view::LiveVisit> for LiveVisit {
    fn from(visit: view::LiveVisit) -> Self {
        let view::LiveVisit { host, holder, expires_at, ended_chunk } = visit;
        Self {
            host: host.to_string(),
            holder: holder.to_string(),
            expires_at: Timestamp(expires_at),
            ended_chunk: ended_chunk.map(|chunk| chunk.to_string()),
        }
    }
}

/// The queue of one crawl at one host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HostQueue {
    /// The crawl.
    pub crawl: String,
    /// Its URLs at this host.
    pub counts: Counts,
    /// When its next URL is due.
    pub next_due_at: Option<Timestamp>,
    /// Limit on pages of this queue.
    pub limit: Option<u64>,
}

impl From<view::QueueView> for HostQueue {
    fn from(queue: view::QueueView) -> Self {
        Self {
            crawl: queue.crawl.to_string(),
            counts: queue.counts.into(),
            next_due_at: queue.next_due.map(Timestamp),
            limit: queue.limit,
        }
    }
}

/// A host: its state and why, its content, its settings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Host {
    /// Its name, or the queue key that a client gave.
    pub host: String,
    /// Its group: an alias, or its own name.
    pub group: String,
    /// Its state.
    pub state: State,
    /// Why, in a sentence; never empty.
    pub reason: String,
    /// When it may be visited next, if only time decides.
    pub ready_at: Option<Timestamp>,
    /// The current visits to its group, whatever its state: a pause or a block ends none.
    #[serde(default)]
    pub visits: Vec<LiveVisit>,
    /// Some of its URLs that are handed out, at most 20, those that return first in front. Only in the response for a
    /// single host.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub in_hand: Vec<InHand>,
    /// Its URLs, over all crawls.
    pub counts: Counts,
    /// Its queues, one for each crawl.
    pub crawls: Vec<HostQueue>,
    /// Time between two visits, if set here.
    pub delay_ms: Option<u64>,
    /// Delay as a multiple of the last visit's duration, if set here.
    pub delay_factor: Option<f64>,
    /// Minimum delay for `delay_factor`, if set here.
    pub delay_ms_min: Option<u64>,
    /// Maximum delay for `delay_factor`, if set here.
    pub delay_ms_max: Option<u64>,
    /// Blocked until this time.
    pub blocked_until: Option<Timestamp>,
    /// Whether an operator has paused it.
    pub paused: bool,
    /// Limit on pages per crawl.
    pub limit: Option<u64>,
    /// The Crawl-delay of robots.txt, as reported by a worker.
    #[serde(default)]
    pub crawl_delay_ms: Option<u64>,
    /// The delay in force for its group.
    pub delay_in_force_ms: u64,
    /// The end of the last visit to its group.
    pub last_visit_at: Option<Timestamp>,
    /// When the host itself is queued, without URLs.
    pub queued_at: Option<Timestamp>,
}

impl From<view::HostView> for Host {
    fn from(view: view::HostView) -> Self {
        Self {
            host: view.host.to_string(),
            group: view.group.to_string(),
            state: view.standing.state.into(),
            reason: view.standing.reason,
            ready_at: view.standing.ready_at.map(Timestamp),
            visits: view.visits.into_iter().map(LiveVisit::from).collect(),
            in_hand: Vec::new(),
            counts: view.counts.into(),
            crawls: view.queues.into_iter().map(HostQueue::from).collect(),
            delay_ms: view.settings.delay.map(|ms| ms.0),
            delay_factor: pace::factor(&view.settings),
            delay_ms_min: view.settings.delay_min.map(|ms| ms.0),
            delay_ms_max: view.settings.delay_max.map(|ms| ms.0),
            blocked_until: view.settings.blocked_until.map(Timestamp),
            paused: view.settings.paused.unwrap_or(false),
            limit: view.settings.limit,
            crawl_delay_ms: view.crawl_delay.map(|ms| ms.0),
            delay_in_force_ms: view.delay.0,
            last_visit_at: view.last_visit_at.map(Timestamp),
            queued_at: view.queued_at.map(Timestamp),
        }
    }
}

/// A URL that is handed out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct InHand {
    /// The URL, without credentials.
    pub url: String,
    /// Its crawl.
    pub crawl: String,
    /// When it returns to the queue, unless it is reported before.
    pub until: Option<Timestamp>,
}

impl From<view::UrlView> for InHand {
    fn from(view: view::UrlView) -> Self {
        Self { url: redact::url(&view.url), crawl: view.crawl.to_string(), until: view.held_until.map(Timestamp) }
    }
}

/// One page of hosts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ListHostsResponse {
    /// The hosts.
    pub hosts: Vec<Host>,
    /// Pass it as `after` to get the next page; null at the end.
    pub next: Option<String>,
}

/// The response to a deletion of URLs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DeleteUrlsResponse {
    /// The number of deleted URLs.
    pub deleted: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use wayleave_core::settings::{Change, PaceChanges, PaceSettings};
    use wayleave_core::time::Time;

    #[test]
    fn settings_are_kept_cleared_or_set() {
        let body: SetHostRequest = serde_json::from_str(
            r#"{"delay_ms":0,"delay_factor":1.5,"blocked_until":"1970-01-01T00:00:01Z","paused":null,"limit":3}"#,
        )
        .unwrap();
        let want = PaceChanges {
            delay: Change::Set(Millis(0)),
            factor_milli: Change::Set(1_500),
            blocked_until: Change::Set(Time(1_000)),
            paused: Change::Clear,
            limit: Change::Set(3),
            ..PaceChanges::default()
        };
        assert_eq!(PaceChanges::try_from(&body), Ok(want));
    }

    #[test]
    fn an_unknown_field_is_named_together_with_the_known_ones() {
        let error = serde_json::from_str::<SetHostRequest>(r#"{"delay":1}"#).expect_err("unknown").to_string();
        assert!(error.contains("unknown field `delay`, expected one of `delay_ms`"), "{error}");
        let error = serde_json::from_str::<SetHostRequest>(r#"{"parallel":2}"#).expect_err("groups only").to_string();
        assert!(error.contains("unknown field `parallel`"), "{error}");
    }

    #[test]
    fn a_view_is_told_in_the_words_of_the_contract() {
        let view = view::HostView {
            host: "a.example".into(),
            group: "big".into(),
            aliased: true,
            standing: view::Standing { state: view::State::Waiting, reason: "delay".into(), ready_at: Some(Time(5)) },
            visits: vec![view::LiveVisit {
                host: "b.example".into(),
                holder: "w".into(),
                expires_at: Time(6),
                ended_chunk: None,
            }],
            counts: view::Counts { queued: 1, reserved: 2, fetched: 3, gone: 4, failed: 5 },
            queues: vec![],
            settings: PaceSettings { delay: Some(Millis(7)), factor_milli: Some(1), ..PaceSettings::default() },
            crawl_delay: None,
            delay: Millis(9),
            last_visit_at: None,
            queued_at: None,
        };
        let told = serde_json::to_value(Host::from(view)).unwrap();
        let want = serde_json::json!({
            "host": "a.example", "group": "big", "state": "waiting", "reason": "delay",
            "ready_at": "1970-01-01T00:00:00.005Z",
            "visits": [{"host": "b.example", "holder": "w", "expires_at": "1970-01-01T00:00:00.006Z"}],
            "counts": {"queued": 1, "reserved": 2, "fetched": 3, "gone": 4, "failed": 5}, "crawls": [],
            "delay_ms": 7, "delay_factor": 0.001, "delay_ms_min": null, "delay_ms_max": null, "blocked_until": null,
            "paused": false, "limit": null, "crawl_delay_ms": null, "delay_in_force_ms": 9, "last_visit_at": null, "queued_at": null,
        });
        assert_eq!(told, want);
    }

    #[test]
    fn states_have_the_same_words_as_in_the_core() {
        for state in view::State::ALL {
            let wire = State::from(state);
            assert_eq!(serde_json::to_value(wire).unwrap(), state.as_str());
            assert_eq!(view::State::from(wire), state);
        }
    }
}
