//! When a pool must be ticked.

use super::row::Phase;
use super::state::State;
use crate::limits::{MAKING_STABLE, OWED_KEPT, SITE_LOST_AFTER, SITE_SILENT_AFTER};
use crate::time::Time;

impl State {
    /// When to tick, at the latest.
    #[must_use]
    pub fn next_wake(&self) -> Option<Time> {
        let settings = &self.pool.settings;
        let (now, mut wake) = (self.now, Time::NEVER);
        let mut at = |time: Time| {
            if time > now {
                wake = wake.min(time);
            }
        };
        self.timers.first().into_iter().for_each(|(time, _)| at(*time));
        let mut site_before = None;
        for worker in self.workers.values() {
            let row = &worker.row;
            [row.deadline, worker.send_at, worker.quiet_until].into_iter().for_each(&mut at);
            at(row.reported_at.after(SITE_LOST_AFTER));
            if row.phase == Phase::Exited {
                at(row.restart_at);
            }
            settings.age_max.into_iter().for_each(|max| at(row.created_at.after(max)));
            if row.phase == Phase::Running && !row.proven {
                at(row.since.after(MAKING_STABLE));
            }
            self.idle_until(worker).into_iter().for_each(&mut at);
            // Neighbours are often of one site: what it brings is looked up once.
            if site_before != Some(&row.site) {
                let heard = now.before(self.silence(&row.site));
                [heard.after(SITE_SILENT_AFTER), heard.after(SITE_LOST_AFTER)].into_iter().for_each(&mut at);
                site_before = Some(&row.site);
            }
        }
        let troubles = self.pool.trouble.iter().chain(self.pool.site_trouble.values());
        troubles.for_each(|trouble| at(trouble.until));
        if self.pool.closing {
            self.pool.owed.values().for_each(|since| at(since.after(OWED_KEPT)));
        }
        let alive = self.sites.values().filter(|site| now < site.heard.after(SITE_SILENT_AFTER));
        alive.for_each(|site| at(site.list_at));
        (wake < Time::NEVER).then_some(wake)
    }
}
