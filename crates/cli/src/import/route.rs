//! Dispatches lines: settings directly and in order, URLs to the connections, limits at the end.

use tokio::sync::mpsc;
use wayleave_api::crawls::SetCrawlRequest;
use wayleave_api::hosts::Host;
use wayleave_api::urlfrontier::{Active, CrawlLimitParams, UrlItem};
use wayleave_api::urls::UrlToAdd;
use wayleave_client::{Client, Error};

use super::Reason;
use super::parse::Line;
use super::restore::{self, Way};
use crate::exit::Usage;
use crate::record::{FORMAT, Record};

/// The results of lines other than URLs.
#[derive(Default)]
pub struct Routed {
    /// Whether pools are restored.
    takes_pools: bool,
    /// Settings that were restored.
    pub settings: u64,
    /// Rejected lines.
    pub reasons: Vec<Reason>,
    /// Pools that are not restored.
    unwanted: restore::Unwanted,
    /// Whether the file has a header but no end.
    pub cut: bool,
    /// What the original store had and the file does not contain.
    pub left_out: Vec<String>,
    later: Later,
}

/// What must wait until all URLs are stored: limits would reject some of them.
#[derive(Default)]
struct Later {
    crawls: Vec<(u64, String, SetCrawlRequest)>,
    queues: Vec<(u64, CrawlLimitParams)>,
    active: Option<bool>,
}

/// Dispatches all lines; the connections end then. Fails if the file has a newer format, or the server does not answer.
pub async fn route(
    routed: &mut Routed,
    client: &Client,
    lines: &mut mpsc::Receiver<(u64, Line)>,
    adds: mpsc::Sender<(u64, UrlToAdd)>,
    puts: mpsc::Sender<(u64, UrlItem)>,
) -> anyhow::Result<()> {
    while let Some((number, line)) = lines.recv().await {
        let way = match line {
            Line::Bad(reason) => {
                routed.reasons.push((number, reason));
                continue;
            }
            Line::Item(item) => Way::Put(item),
            Line::Record(Record::Url(url)) => restore::url(*url),
            Line::Record(record) => {
                routed.set(client, number, record).await?;
                continue;
            }
        };
        let open = match way {
            Way::Add(url) => adds.send((number, url)).await.is_ok(),
            Way::Put(item) => puts.send((number, *item)).await.is_ok(),
        };
        if !open {
            // The connection has ended and reports its own error.
            return Ok(());
        }
    }
    Ok(())
}

impl Routed {
    /// Nothing yet. Pools are restored only if their commands were accepted.
    pub fn new(takes_pools: bool) -> Self {
        Self { takes_pools, ..Self::default() }
    }

    async fn set(&mut self, client: &Client, line: u64, record: Record) -> anyhow::Result<()> {
        let set = match record {
            Record::Wayleave(header) if header.format > FORMAT => {
                let found = header.format;
                let text =
                    format!("the file has format {found}, this program reads up to {FORMAT}: use a newer wayleave");
                return Err(Usage(text).into());
            }
            Record::Wayleave(_) => {
                self.cut = true;
                return Ok(());
            }
            Record::End(end) => {
                self.cut = false;
                self.left_out = end.left_out;
                return Ok(());
            }
            Record::Server(server) => {
                self.later.active = Some(server.active);
                return Ok(());
            }
            Record::Url(_) => return Ok(()),
            Record::Crawl(crawl) => {
                let (settings, limits) = restore::crawl(&crawl);
                self.later.crawls.extend(limits.map(|limits| (line, crawl.crawl.clone(), limits)));
                client.put_crawl(&crawl.crawl, &settings).await.map(drop)
            }
            Record::Role(role) => {
                let set = client.put_role(&role.role, &restore::role(&role)).await.map(drop);
                match (set, restore::epoch(&role)) {
                    (Ok(()), Some(epoch)) => client.raise_role_epoch(&role.role, epoch).await.map(drop),
                    (set, _) => set,
                }
            }
            // Whoever wrote the file could otherwise run a command on the server, with values of this command's environment.
            Record::Pool(pool) if !self.takes_pools => {
                self.unwanted.note(line, &pool);
                return Ok(());
            }
            Record::Pool(pool) => match restore::pool(&pool, |name| std::env::var(name).ok()) {
                Ok(settings) => client.set_pool(&pool.pool, &settings).await.map(drop),
                Err(why) => {
                    self.reasons.push((line, why));
                    return Ok(());
                }
            },
            Record::Group(group) => client.put_group_exactly(&group.group, &restore::group(&group)).await.map(drop),
            Record::Host(host) => {
                self.later.queues.extend(queue_limits(&host).map(|limit| (line, limit)));
                client.put_host_exactly(&host.host, &restore::host(&host)).await.map(drop)
            }
        };
        self.note(line, set)
    }

    /// How many lines were rejected, and their reasons; pools have one together.
    pub fn rejected(&mut self) -> (u64, Vec<Reason>) {
        let unwanted = std::mem::take(&mut self.unwanted);
        let mut reasons = std::mem::take(&mut self.reasons);
        let count = reasons.len() as u64 + unwanted.count;
        reasons.extend(unwanted.reason());
        (count, reasons)
    }

    /// Applies what had to wait for the URLs.
    pub async fn set_limits(&mut self, client: &Client) -> anyhow::Result<()> {
        let later = std::mem::take(&mut self.later);
        for (line, crawl, limits) in later.crawls {
            let set = client.patch_crawl(&crawl, &limits).await.map(drop);
            self.note(line, set)?;
        }
        if later.queues.is_empty() && later.active != Some(false) {
            return Ok(());
        }
        let mut door = client.urlfrontier().await?;
        for (line, limit) in later.queues {
            let set = door.set_crawl_limit(limit).await;
            match set {
                Ok(_) => self.settings += 1,
                Err(status) => self.reasons.push((line, status.message().to_owned())),
            }
        }
        if later.active == Some(false) {
            let stopped = door.set_active(Active { state: false, local: false }).await;
            stopped.map_err(|status| client.refused_call(&status))?;
            self.settings += 1;
        }
        Ok(())
    }

    /// A refused setting is a rejected line; a server that does not answer ends the import.
    fn note(&mut self, line: u64, set: Result<(), Error>) -> anyhow::Result<()> {
        match set {
            Ok(()) => self.settings += 1,
            Err(Error::Refused(problem)) if !matches!(problem.status, 429 | 500..) => {
                self.reasons.push((line, problem.to_string()));
            }
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }
}

fn queue_limits(host: &Host) -> impl Iterator<Item = CrawlLimitParams> + '_ {
    host.crawls.iter().filter_map(|queue| {
        let limit = u32::try_from(queue.limit?).unwrap_or(u32::MAX);
        Some(CrawlLimitParams { key: host.host.clone(), limit, crawl_id: queue.crawl.clone(), local: false })
    })
}
