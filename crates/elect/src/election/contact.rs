//! Reports in the log whether heartbeats are acknowledged: one line when they stop, reminders at growing intervals, and
//! one when they resume. Each states only what this process knows.

use wayleave_core::time::Millis;

use crate::clock::Moment;

/// The interval to the first reminder; each further one is twice as long.
const FIRST_REMINDER: Millis = Millis(10_000);
/// The longest interval between two reminders.
const REMINDER_MAX: Millis = Millis(600_000);

/// What is worth a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum News {
    /// The first heartbeat that was not acknowledged.
    Away,
    /// Still none is, after this time.
    StillAway(Millis),
    /// A heartbeat was acknowledged again, after this time.
    Back(Millis),
}

/// Since when heartbeats are lost.
#[derive(Debug, Default)]
pub(super) struct Contact(Option<Silence>);

#[derive(Debug)]
struct Silence {
    since: Moment,
    remind_at: Moment,
    distance: Millis,
}

impl Contact {
    /// A heartbeat was not acknowledged.
    pub fn on_lost(&mut self, now: Moment) -> Option<News> {
        let Some(silence) = &mut self.0 else {
            self.0 = Some(Silence { since: now, remind_at: now.after(FIRST_REMINDER), distance: FIRST_REMINDER });
            return Some(News::Away);
        };
        if now < silence.remind_at {
            return None;
        }
        silence.distance = Millis((silence.distance.0 * 2).min(REMINDER_MAX.0));
        silence.remind_at = now.after(silence.distance);
        Some(News::StillAway(now.since(silence.since)))
    }

    /// A heartbeat was answered.
    pub fn on_heard(&mut self, now: Moment) -> Option<News> {
        self.0.take().map(|silence| News::Back(now.since(silence.since)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outage_of_an_hour_has_a_first_line_few_reminders_and_a_last_line() {
        let mut contact = Contact::default();
        assert_eq!(contact.on_heard(Moment(0)), None, "all is well");
        let lost = (0..3_600).filter_map(|second| Some((second, contact.on_lost(Moment(1_000 + second * 1_000))?)));
        let news: Vec<(u64, News)> = lost.collect();
        assert_eq!(news.first(), Some(&(0, News::Away)));
        let reminded: Vec<u64> = news.iter().skip(1).map(|(second, _)| *second).collect();
        assert_eq!(reminded, [10, 30, 70, 150, 310, 630, 1_230, 1_830, 2_430, 3_030]);
        assert_eq!(news.last(), Some(&(3_030, News::StillAway(Millis(3_030_000)))));
        assert_eq!(contact.on_heard(Moment(3_601_000)), Some(News::Back(Millis(3_600_000))));
        assert_eq!(contact.on_heard(Moment(3_602_000)), None);
        assert_eq!(contact.on_lost(Moment(3_603_000)), Some(News::Away), "another outage is reported again");
    }
}
