//! The language of the transcripts.

use wayleave_core::frontier::request::{Outcome, Put, PutKind, PutOutcome, Release, UrlResult};
use wayleave_core::frontier::row::{HotRow, UrlStatus, Write};
use wayleave_core::ids::{QueueId, Token};
use wayleave_core::metadata::Metadata;
use wayleave_core::names::HostName;
use wayleave_core::settings::{Change, CrawlChanges, PaceChanges};
use wayleave_core::time::{Millis, Time};

use crate::support::Shard;
use crate::transcript::{number, replay_lines};

struct Story {
    shard: Shard,
    /// Reservations in the order of their grants: `r1` is the first.
    tokens: Vec<(Token, Vec<String>)>,
    out: Vec<String>,
}

/// Runs the commands of a transcript and rewrites it.
pub fn replay(text: &str) -> String {
    let mut story = Story { shard: Shard::new(0), tokens: Vec::new(), out: Vec::new() };
    replay_lines(text, |verb, words| {
        story.run(verb, words);
        std::mem::take(&mut story.out)
    })
}

fn url(text: &str) -> String {
    format!("http://{text}")
}

fn host_of(text: &str) -> HostName {
    text.split('/').next().unwrap().into()
}

impl Story {
    fn run(&mut self, verb: &str, rest: &[&str]) {
        match verb {
            "at" => {
                self.shard.now = Time(rest[0].parse().unwrap());
                self.shard.sweep();
            }
            "add" | "update" => self.put(verb, rest),
            "reserve" => self.reserve(rest),
            "renew" => {
                let (token, _) = self.tokens[position(rest[0])].clone();
                let answer = self.shard.renew(token, number(rest, "lease").unwrap());
                self.answer(&answer.map_or_else(|e| format!("refused: {e}"), |until| format!("until {}", until.0)));
            }
            "release" => self.release(rest),
            "hand-out" => self.hand_out(rest),
            "host" | "group" => self.set(verb, rest),
            "crawl" => self.set_crawl(rest),
            "join" | "leave" => {
                let alias = rest[0].into();
                let hosts: Vec<HostName> = rest[1..].iter().map(|host| HostName::from(*host)).collect();
                self.shard.move_hosts(&hosts, (verb == "join").then_some(&alias));
            }
            "delete-queue" => {
                let count = self.shard.delete_queue(&rest[0].into(), &rest[1].into());
                self.answer(&format!("{count} URLs"));
            }
            "delete-crawl" => {
                let count = self.shard.delete_crawl(&rest[0].into());
                self.answer(&format!("{count} URLs"));
            }
            "look" => self.look(rest[0]),
            "reload" => {
                self.shard.clock_step = Millis(number(rest, "clock-step").unwrap_or_default());
                self.shard.reload();
            }
            other => panic!("no such command: {other}"),
        }
        self.rows();
    }

    fn put(&mut self, verb: &str, words: &[&str]) {
        let now = self.shard.now;
        let at = number(words, "at").map(Time);
        let crawl = words.iter().find_map(|word| word.strip_prefix("crawl=")).unwrap_or("DEFAULT");
        let priority = number(words, "priority").unwrap_or(5) as u8;
        let depth = number(words, "depth").unwrap_or(0) as u32;
        let kind = if verb == "add" {
            PutKind::Discovered { at, priority, depth }
        } else {
            PutKind::Known { due: at.map(|at| at.max(now)) }
        };
        let text = url(words[0]).into();
        let put = Put { url: text, host: host_of(words[0]), crawl: crawl.into(), kind, metadata: Metadata::default() };
        let outcome = match self.shard.put(put) {
            PutOutcome::Rejected(why) => format!("rejected: {why}"),
            other => format!("{other:?}").to_lowercase(),
        };
        self.answer(&outcome);
    }

    fn reserve(&mut self, words: &[&str]) {
        let groups = number(words, "groups").unwrap_or(1) as usize;
        let urls = number(words, "urls").unwrap_or(1) as usize;
        let lease = number(words, "lease").unwrap_or(60_000);
        let granted = self.shard.reserve(groups, urls, None, lease);
        if granted.is_empty() {
            self.answer("nothing is ready");
        }
        for reservation in granted {
            let urls: Vec<String> = reservation.urls.iter().map(|url| url.url.to_string()).collect();
            self.tokens.push((reservation.token, urls.clone()));
            let tries: Vec<u32> = reservation.urls.iter().map(|url| url.attempts).collect();
            self.answer(&format!(
                "r{} group {} host {} until {} delay {} urls {} attempts {tries:?}",
                self.tokens.len(),
                reservation.group,
                reservation.host,
                reservation.expires_at.0,
                reservation.delay.0,
                urls.join(" "),
            ));
        }
    }

    fn release(&mut self, words: &[&str]) {
        let (token, urls) = self.tokens[position(words[0])].clone();
        let outcome = |word: &str| match word {
            "fetched" => Some(Outcome::Fetched),
            "retry" => Some(Outcome::Retry),
            "gone" => Some(Outcome::Gone),
            "failed" => Some(Outcome::Failed),
            _ => None,
        };
        let outcomes = words[1..].iter().filter_map(|word| outcome(word));
        let result = |(url, outcome): (&String, Outcome)| UrlResult {
            status: number(words, "status").map(|status| status as u16),
            duration: number(words, "took").map(Millis),
            crawl_delay: number(words, "crawl-delay").map(Millis),
            retry_after: number(words, "retry-after").map(Millis),
            next_at: number(words, "next").map(Time),
            ..UrlResult::new(url.as_str(), outcome)
        };
        let results = urls.iter().zip(outcomes).map(result).collect();
        let answer = self.shard.release(&Release { token, results, ready_at: number(words, "ready").map(Time) });
        self.answer(&answer.map_or_else(
            |refusal| format!("refused: {refusal}"),
            |released| format!("group {} ready at {}", released.group, released.ready_at.0),
        ));
    }

    fn hand_out(&mut self, words: &[&str]) {
        let queues = number(words, "queues").unwrap_or(1) as usize;
        let urls = number(words, "urls").unwrap_or(1) as usize;
        let out = self.shard.hand_out(queues, urls, None, number(words, "hold").unwrap_or(30_000));
        if out.is_empty() {
            self.answer("nothing is ready");
        }
        for url in out {
            self.answer(&format!("{} of crawl {}, attempts {}", url.url, url.crawl, url.attempts));
        }
    }

    fn set(&mut self, verb: &str, words: &[&str]) {
        let given = |name: &str| number(words, name);
        let changes = PaceChanges {
            delay: given("delay").map_or(Change::Keep, |ms| Change::Set(Millis(ms))),
            factor_milli: given("factor").map_or(Change::Keep, |factor| Change::Set(factor as u32 * 1_000)),
            delay_max: given("max").map_or(Change::Keep, |ms| Change::Set(Millis(ms))),
            blocked_until: given("blocked").map_or(Change::Keep, |at| Change::Set(Time(at))),
            paused: given("paused").map_or(Change::Keep, |on| Change::Set(on == 1)),
            parallel: given("parallel").map_or(Change::Keep, |count| Change::Set(count as u32)),
            limit: given("limit").map_or(Change::Keep, Change::Set),
            ..PaceChanges::default()
        };
        let now = self.shard.now;
        let name: HostName = words[0].into();
        if verb == "host" {
            self.shard.state.set_host(&name, &changes, false, given("ready").map(Time), now).unwrap();
        } else {
            self.shard.state.set_group(&name.as_ref().into(), &changes, false, now).unwrap();
        }
        self.shard.commit(Vec::new());
    }

    fn set_crawl(&mut self, words: &[&str]) {
        let given = |name: &str| number(words, name);
        let changes = CrawlChanges {
            weight: given("weight").map_or(Change::Keep, |weight| Change::Set(weight as u32)),
            delay: given("delay").map_or(Change::Keep, |ms| Change::Set(Millis(ms))),
            attempts: given("attempts").map_or(Change::Keep, |count| Change::Set(count as u32)),
            urls_per_host: given("urls-per-host").map_or(Change::Keep, Change::Set),
            pages: given("pages").map_or(Change::Keep, Change::Set),
            pages_per_host: given("pages-per-host").map_or(Change::Keep, Change::Set),
            depth: given("depth").map_or(Change::Keep, |depth| Change::Set(depth as u32)),
            paused: given("paused").map_or(Change::Keep, |on| Change::Set(on == 1)),
            ..CrawlChanges::default()
        };
        self.shard.state.set_crawl(&words[0].into(), &changes, false, self.shard.now);
        self.shard.commit(Vec::new());
    }

    /// A host as an operator sees it.
    fn look(&mut self, name: &str) {
        let view = self.shard.state.host_view(name, self.shard.now);
        let Some(view) = view else { return self.answer("not known") };
        let (standing, counts) = (view.standing, view.counts);
        let at = standing.ready_at.map_or_else(String::new, |at| format!(" at {}", at.0));
        self.answer(&format!("{}{at}: {}", standing.state.as_str(), standing.reason));
        self.answer(&format!(
            "group {}, delay {}, {} queued, {} out, {} fetched, {} gone, {} failed",
            view.group, view.delay.0, counts.queued, counts.reserved, counts.fetched, counts.gone, counts.failed
        ));
    }

    fn answer(&mut self, text: &str) {
        self.out.push(format!("< {text}"));
    }

    /// What was written since the last command.
    fn rows(&mut self) {
        for write in std::mem::take(&mut self.shard.written) {
            self.out.push(self.row(&write));
        }
        for row in std::mem::take(&mut self.shard.changed) {
            self.out.push(hot(&row));
        }
    }

    fn row(&self, write: &Write) -> String {
        let queue = |id: &QueueId| format!("h{}.{}", id.host.counter(), id.no);
        let key = |bytes: &[u8]| String::from_utf8_lossy(&bytes[1..]).into_owned();
        match write {
            Write::Url(id, k, None) => format!("- url {} {}", queue(id), key(&k.0)),
            Write::Url(id, k, Some(row)) => format!("+ url {} {} {}", queue(id), key(&k.0), self.status(&row.status)),
            Write::Due(id, position, k, row) => {
                let sign = if row.is_some() { '+' } else { '-' };
                format!("{sign} due {} lane {} at {} {}", queue(id), position.lane, position.due.0, key(&k.0))
            }
            Write::Hold(until, id, k, set) => {
                format!("{} hold until {} {} {}", if *set { '+' } else { '-' }, until.0, queue(id), key(&k.0))
            }
            Write::Lease(token, row) => {
                let name = self.name(*token);
                row.as_ref()
                    .map_or_else(|| format!("- lease {name}"), |r| format!("+ lease {name} until {}", r.expires_at.0))
            }
            Write::DeletedQueue(id, set) => format!("{} job {}", if *set { '+' } else { '-' }, queue(id)),
            Write::BulkJob(id, row) => format!("{} rework {id}", if row.is_some() { '+' } else { '-' }),
        }
    }

    fn name(&self, token: Token) -> String {
        let at = self.tokens.iter().position(|(t, _)| *t == token).unwrap();
        format!("r{}", at + 1)
    }

    fn status(&self, status: &UrlStatus) -> String {
        match status {
            UrlStatus::Queued(position) => format!("queued at {}", position.due.0),
            UrlStatus::Held { until, .. } => format!("held until {}", until.0),
            UrlStatus::Reserved { token, .. } => format!("reserved by {}", self.name(*token)),
            UrlStatus::Done { end, details, .. } => {
                let attempts = details.attempts;
                format!("{} after {attempts} lost attempts", format!("{end:?}").to_lowercase())
            }
        }
    }
}

fn position(word: &str) -> usize {
    word.strip_prefix('r').unwrap().parse::<usize>().unwrap() - 1
}

fn hot(row: &HotRow) -> String {
    match row {
        HotRow::Shard(row) => format!("+ shard next host {}, crawl {}", row.next_host, row.next_crawl),
        HotRow::Crawl(row) => format!("+ crawl {} {} weight {}", row.no.0, row.name, row.settings.weight),
        HotRow::CrawlGone(no) => format!("- crawl {}", no.0),
        HotRow::Alias(row) => format!("+ alias {} last visit ended {}", row.name, row.pace.last_end.0),
        HotRow::AliasGone(id) => format!("- alias {}", id.0),
        HotRow::Host(row) => {
            let queued: u64 = row.queues.iter().map(|queue| queue.counts().queued).sum();
            let out: u64 = row.queues.iter().map(|queue| queue.counts().reserved).sum();
            let end = row.pace.last_end.0;
            format!("+ host {} h{}: {queued} queued, {out} out, last visit ended {end}", row.name, row.id.counter())
        }
        HotRow::HostGone(id) => format!("- host h{}", id.counter()),
        HotRow::HostAlias { host, alias } => {
            alias.as_ref().map_or_else(|| format!("- member {host}"), |alias| format!("+ member {host} of {alias}"))
        }
    }
}
