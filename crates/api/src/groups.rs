//! Groups on the wire: several hosts under an alias, or one host alone.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use wayleave_core::asked::AskedHost;
use wayleave_core::frontier::view;
use wayleave_core::limits;

use crate::bad_value::{BadValue, at_most};
use crate::bounds::{Bound, DELAY, EXACT, KEY, whole};
use crate::hosts::{LiveVisit, State};
use crate::pace::{self, pace_changes};
use crate::patch::patches;
use crate::stats::Counts;
use crate::{Patch, Timestamp};

patches! {
    /// Creates or changes a group. PATCH keeps what is absent; PUT needs `hosts` and clears absent settings.
    SetGroupRequest {
        [
            /// All of its hosts; current hosts that are not named leave it.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub hosts: Option<Vec<String>>,
        ]
        /// Time between two visits.
        delay_ms: u64 = DELAY,
        /// Delay as a multiple of the last visit's duration.
        delay_factor: f64 => Bound::Number(pace::FACTOR_MAX),
        /// Minimum delay for `delay_factor`.
        delay_ms_min: u64 = DELAY,
        /// Maximum delay for `delay_factor`.
        delay_ms_max: u64 = DELAY,
        /// Blocked until this time. `null` also lifts the back-off that the site requested.
        blocked_until: Timestamp,
        /// Whether an operator has paused it.
        paused: bool,
        /// Limit on pages per crawl.
        limit: u64 = EXACT,
        /// Maximum number of concurrent visits; 1 if unset.
        parallel: u32 = whole(1, limits::PARALLEL_MAX as u64).or(1),
    } { hosts: Bound::List(limits::GROUP_HOSTS_MAX, Some(&KEY)) }
}

impl SetGroupRequest {
    /// The hosts as requested. Fails if there are too many or one of them is not a valid name.
    pub fn asked_hosts(&self) -> Result<Option<Vec<AskedHost>>, BadValue> {
        let Some(hosts) = &self.hosts else { return Ok(None) };
        at_most("hosts", hosts.len(), limits::GROUP_HOSTS_MAX)?;
        let asked =
            |(i, host): (usize, &String)| AskedHost::parse(host).map_err(|e| BadValue::new(format!("hosts[{i}]"), e));
        hosts.iter().enumerate().map(asked).collect::<Result<_, _>>().map(Some)
    }
}

pace_changes!(SetGroupRequest, parallel: parallel as u32::from);

/// A group: its state and why, its hosts, its settings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Group {
    /// Its alias, or the name of its only host.
    pub group: String,
    /// Whether it is an alias.
    pub aliased: bool,
    /// Its hosts.
    pub hosts: Vec<String>,
    /// Its state.
    pub state: State,
    /// Why, in a sentence; never empty.
    pub reason: String,
    /// When it may be visited next, if only time decides.
    pub ready_at: Option<Timestamp>,
    /// Its current visits, whatever its state: a pause or a block ends none.
    #[serde(default)]
    pub visits: Vec<LiveVisit>,
    /// Its URLs, over all hosts and crawls.
    pub counts: Counts,
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
    /// Maximum number of concurrent visits.
    pub parallel: u32,
    /// The delay in force.
    pub delay_in_force_ms: u64,
    /// The end of the last visit.
    pub last_visit_at: Option<Timestamp>,
}

impl From<view::GroupView> for Group {
    fn from(view: view::GroupView) -> Self {
        Self {
            group: view.group.to_string(),
            aliased: view.aliased,
            hosts: view.hosts.iter().map(ToString::to_string).collect(),
            state: view.standing.state.into(),
            reason: view.standing.reason,
            ready_at: view.standing.ready_at.map(Timestamp),
            visits: view.visits.into_iter().map(LiveVisit::from).collect(),
            counts: view.counts.into(),
            delay_ms: view.settings.delay.map(|ms| ms.0),
            delay_factor: pace::factor(&view.settings),
            delay_ms_min: view.settings.delay_min.map(|ms| ms.0),
            delay_ms_max: view.settings.delay_max.map(|ms| ms.0),
            blocked_until: view.settings.blocked_until.map(Timestamp),
            paused: view.settings.paused.unwrap_or(false),
            limit: view.settings.limit,
            parallel: view.settings.parallel.unwrap_or(1),
            delay_in_force_ms: view.delay.0,
            last_visit_at: view.last_visit_at.map(Timestamp),
        }
    }
}

/// One page of groups.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ListGroupsResponse {
    /// The groups.
    pub groups: Vec<Group>,
    /// Pass it as `after` to get the next page; null at the end.
    pub next: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bad_host_is_named_by_its_place() {
        let body: SetGroupRequest = serde_json::from_str(r#"{"hosts":["a.example",""]}"#).unwrap();
        assert_eq!(body.asked_hosts().expect_err("empty").field, "hosts[1]");
        let many = SetGroupRequest { hosts: Some(vec!["a".into(); limits::GROUP_HOSTS_MAX + 1]), ..Default::default() };
        assert!(many.asked_hosts().expect_err("too many").reason.contains("10000"));
    }
}
