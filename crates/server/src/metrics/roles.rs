//! The metrics of roles. None is labelled by role: names belong to users, and there may be many.

use std::sync::atomic::{AtomicU64, Ordering};

use wayleave_roles::{Roles, Totals};

use super::text::Page;

/// Appends the metrics of this process, and the totals if the store provided them.
pub fn render(roles: &Roles, totals: Option<Totals>, text: &mut String) {
    let mut out = Page::default();
    let counters = roles.counters();
    let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let heartbeats = [
        ("acquired", count(&counters.acquired)),
        ("renewed", count(&counters.renewed)),
        ("standby", count(&counters.standby)),
        ("refused", count(&counters.refused)),
        ("failed", count(&counters.failed)),
    ];
    out.counters("wayleave_roles_heartbeats_total", "Heartbeats by result.", "outcome", &heartbeats);
    for (name, help, total) in [
        ("wayleave_roles_released_total", "Terms released.", count(&counters.released)),
        ("wayleave_roles_conflicts_total", "Decisions retried because of a concurrent update.", roles.conflicts()),
        (
            "wayleave_roles_unlawful_total",
            "Decisions that would have broken law 6: must stay at zero.",
            count(&counters.unlawful),
        ),
    ] {
        out.counter(name, help, total);
    }
    out.gauge("wayleave_roles_waiting", "Long polls waiting for a role to change.", roles.waiting() as u64);
    if let Some(totals) = totals {
        render_totals(&mut out, totals);
    }
    out.write(text);
}

fn render_totals(out: &mut Page, totals: Totals) {
    out.gauge("wayleave_roles", "Roles.", totals.roles);
    out.gauge("wayleave_roles_primaries", "Roles that have a primary.", totals.primaries);
    out.gauge("wayleave_roles_unguarded", "Roles whose primary has no ready standby.", totals.unguarded);
    let standbys = [("true", totals.standbys_ready), ("false", totals.standbys_not_ready)];
    out.gauges("wayleave_roles_standbys", "Standbys of all roles.", "ready", &standbys);
}
