//! `export`: all data of a store, as JSON lines.

use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;
use futures::StreamExt;
use wayleave_api::Code;
use wayleave_api::chunks::ListChunksQuery;
use wayleave_api::fleet::ListMachinesQuery;
use wayleave_api::hosts::{Host, ListHostsQuery};
use wayleave_api::roles::Role;
use wayleave_api::urlfrontier::Local;
use wayleave_api::urls::ListUrlsQuery;
use wayleave_client::Client;
use wayleave_core::plain;

use crate::exit::{Ended, REFUSED, Usage};
use crate::input::progress_of;
use crate::left_out::LeftOut;
use crate::output::{counted, now};
use crate::record::{End, FORMAT, Header, PoolSettings, Record, RoleSettings, ServerSettings, Totals};
use crate::remote::Remote;
use crate::values;
use crate::whole_file::{Names, create};

const AFTER_HELP: &str = "\
Examples:
  wayleave export backup.jsonl.gz              compressed, by its name
  wayleave export | jq -c 'select(.url)'       to standard output
  wayleave export --crawl news news.jsonl

One JSON object per line: the settings of crawls, groups, hosts, roles and pools, then every URL with its state. A file gets its name
only when it is complete; one that exists is replaced only with --force. The server keeps running: each line is from the moment when
it was read.

An export is for other programs, and for moving URLs and settings to another number of shards. It cannot carry leases, visit results,
chunks, machines, workers and clients of pools, and the values of their variables: if a store has any, the command refuses with the
list of what would be left out (code 4), unless --partial accepts that. `wayleave copy FROM TO` moves a whole store; for a complete
backup use `wayleave snapshot`.

URLs are written with their credentials, such as http://user:password@host/, which other commands do not show: protect the file
like the store. It is readable by its owner only, also if it replaces one that others could read.";

/// The page size of listings.
const PAGE: u64 = 1_000;

/// Arguments of `export`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    /// File to write, - for standard output
    #[arg(value_name = "FILE", default_value = "-")]
    file: PathBuf,
    /// Only this crawl, without groups, hosts, roles and pools
    #[arg(long, value_name = "CRAWL", value_parser = values::name)]
    crawl: Option<String>,
    /// Accept that leases, visit results, chunks, machines, clients of pools and values of their variables are left out
    #[arg(long)]
    partial: bool,
    /// Replace the file if it exists
    #[arg(long)]
    force: bool,
}

/// Writes the export. Fails if the server does not answer, the file cannot be written, or it would leave out something
/// without --partial.
pub async fn run(remote: &Remote, args: Args) -> anyhow::Result<()> {
    let client = remote.patient().await?;
    remote.check_crawl(args.crawl.as_deref()).await?;
    let mut writer = Writer::open(&args.file, args.force)?;
    let mut left_out = LeftOut::default();
    if let Err(error) = write_all(&client, args.crawl.clone(), (&mut writer, &mut left_out)).await {
        writer.give_up();
        return Err(error.context("the export is incomplete and was discarded"));
    }
    let list = left_out.list();
    if !list.is_empty() && !args.partial {
        writer.give_up();
        let file = args.file.display();
        let message = format!(
            "an export cannot carry all of this store, and would leave out {}; nothing was written. For URLs and settings without \
             that: `wayleave export --partial {file}`. For everything: `wayleave snapshot FILE`, or `wayleave copy`",
            list.join("; ")
        );
        return Err(Ended { code: REFUSED, message }.into());
    }
    if !list.is_empty() {
        eprintln!("left out: {}", list.join("; "));
    }
    let totals = writer.finish(list)?;
    let Totals { crawls, groups, hosts, roles, pools, urls } = totals;
    let [crawls, groups] = [counted(crawls, "crawl"), counted(groups, "group")];
    let [hosts, roles, pools] = [counted(hosts, "host"), counted(roles, "role"), counted(pools, "pool")];
    let settings = format!("settings of {crawls}, {groups}, {hosts}, {roles} and {pools}");
    eprintln!("exported {}, {settings}", counted(urls, "URL"));
    Ok(())
}

/// Writes all lines but the last, which says that nothing is missing.
async fn write_all(
    client: &Client,
    crawl: Option<String>,
    (writer, left_out): (&mut Writer, &mut LeftOut),
) -> anyhow::Result<()> {
    let roles = if crawl.is_none() { roles(client, left_out).await? } else { Vec::new() };
    count_fleet(client, crawl.clone(), left_out).await?;
    let pools = if crawl.is_none() { pools(client, left_out).await? } else { Vec::new() };
    let header = Header { format: FORMAT, version: env!("CARGO_PKG_VERSION").to_owned(), at: now() };
    writer.write(&Record::Wayleave(header))?;
    let expected = match &crawl {
        Some(crawl) => {
            let crawl = client.crawl(crawl).await?;
            let total = total(&crawl.counts);
            writer.write(&Record::Crawl(Box::new(crawl)))?;
            total
        }
        None => {
            write_settings(client, writer, left_out).await?;
            roles.into_iter().try_for_each(|role| writer.write(&Record::Role(role)))?;
            pools.into_iter().try_for_each(|pool| writer.write(&Record::Pool(Box::new(pool))))?;
            total(&client.stats().await?.urls)
        }
    };
    write_urls(client, crawl, expected, (writer, left_out)).await
}

const fn total(counts: &wayleave_api::stats::Counts) -> u64 {
    counts.queued + counts.reserved + counts.fetched + counts.gone + counts.failed
}

/// The settings of all pools but those that are being removed.
async fn pools(client: &Client, left_out: &mut LeftOut) -> anyhow::Result<Vec<PoolSettings>> {
    let mut found = Vec::new();
    let mut all = std::pin::pin!(client.all_pools());
    while let Some(listed) = all.next().await.transpose()? {
        let pool = match client.pool(&listed.pool).await {
            Err(error) if error.code() == Some(Code::UnknownPool) => continue,
            other => other?,
        };
        left_out.pool(&pool);
        if !pool.closing {
            let (settings, env) = (pool.settings(), pool.env);
            found.push(PoolSettings { pool: pool.pool, settings, env });
        }
    }
    Ok(found)
}

/// Counts what belongs to the store alone: the chunks of all crawls or of one, and the machines.
async fn count_fleet(client: &Client, crawl: Option<String>, left_out: &mut LeftOut) -> anyhow::Result<()> {
    if crawl.is_none() {
        let query = ListMachinesQuery { limit: Some(PAGE), ..ListMachinesQuery::default() };
        let mut machines = std::pin::pin!(client.all_machines(query));
        while machines.next().await.transpose()?.is_some() {
            left_out.machine();
        }
    }
    let query = ListChunksQuery { crawl, limit: Some(PAGE), ..ListChunksQuery::default() };
    let mut chunks = std::pin::pin!(client.all_chunks(query));
    while chunks.next().await.transpose()?.is_some() {
        left_out.chunk();
    }
    Ok(())
}

async fn roles(client: &Client, left_out: &mut LeftOut) -> anyhow::Result<Vec<RoleSettings>> {
    let mut roles = Vec::new();
    let mut all = std::pin::pin!(client.all_roles());
    while let Some(role) = all.next().await.transpose()? {
        left_out.role(&role);
        let Role { role, ttl_ms, mode, continue_for_ms, epoch, .. } = role;
        let continue_for_ms = Some(continue_for_ms).filter(|ms| *ms > 0);
        roles.push(RoleSettings { role, ttl_ms, mode, continue_for_ms, epoch });
    }
    Ok(roles)
}

async fn write_settings(client: &Client, writer: &mut Writer, left_out: &mut LeftOut) -> anyhow::Result<()> {
    let mut door = client.urlfrontier().await?;
    let active = door.get_active(Local { local: false }).await.map_err(|status| client.refused_call(&status))?;
    writer.write(&Record::Server(ServerSettings { active: active.into_inner().state }))?;
    let mut crawls = std::pin::pin!(client.all_crawls());
    while let Some(crawl) = crawls.next().await.transpose()? {
        writer.write(&Record::Crawl(Box::new(crawl)))?;
    }
    let all = ListHostsQuery { limit: Some(PAGE), ..ListHostsQuery::default() };
    let mut groups = std::pin::pin!(client.all_groups(all.clone()));
    while let Some(group) = groups.next().await.transpose()? {
        left_out.group(&group);
        if group.aliased {
            writer.write(&Record::Group(Box::new(group)))?;
        }
    }
    let mut hosts = std::pin::pin!(client.all_hosts(all));
    while let Some(host) = hosts.next().await.transpose()? {
        if is_set(&host) {
            writer.write(&Record::Host(Box::new(host)))?;
        }
    }
    Ok(())
}

/// Whether a host has any setting: the others need no line.
fn is_set(host: &Host) -> bool {
    let pace = host.delay_ms.is_some()
        || host.delay_factor.is_some()
        || host.delay_ms_min.is_some()
        || host.delay_ms_max.is_some();
    let held = host.blocked_until.is_some() || host.paused || host.limit.is_some() || host.queued_at.is_some();
    pace || held || host.crawls.iter().any(|queue| queue.limit.is_some())
}

async fn write_urls(
    client: &Client,
    crawl: Option<String>,
    expected: u64,
    (writer, left_out): (&mut Writer, &mut LeftOut),
) -> anyhow::Result<()> {
    let bar = progress_of(expected);
    // Page by page: a listing that is streamed has no room for the reason why it ends early.
    let query = ListUrlsQuery { crawl, credentials: Some(true), limit: Some(PAGE), ..ListUrlsQuery::default() };
    let mut urls = std::pin::pin!(client.all_urls(query));
    while let Some(url) = urls.next().await.transpose()? {
        left_out.url(&url);
        writer.write(&Record::Url(Box::new(url)))?;
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok(())
}

/// The destination. A file has a temporary name until it is complete.
struct Writer {
    out: Out,
    names: Option<Names>,
    totals: Totals,
}

enum Out {
    Plain(Box<dyn Write>),
    Packed(Box<GzEncoder<Box<dyn Write>>>),
}

impl Writer {
    fn open(path: &Path, force: bool) -> anyhow::Result<Self> {
        if path.as_os_str() == "-" {
            let out = Out::Plain(Box::new(BufWriter::new(std::io::stdout())));
            return Ok(Self { out, names: None, totals: Totals::default() });
        }
        if path.is_file() && !force {
            let text = format!("{} exists: name another file, or replace it with --force", path.display());
            return Err(Usage(text).into());
        }
        let (file, names) = create(path, force)?;
        let file: Box<dyn Write> = Box::new(BufWriter::new(file));
        let packed = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("gz"));
        let out =
            if packed { Out::Packed(Box::new(GzEncoder::new(file, Compression::default()))) } else { Out::Plain(file) };
        Ok(Self { out, names, totals: Totals::default() })
    }

    fn write(&mut self, record: &Record) -> anyhow::Result<()> {
        self.totals.count(record);
        let out: &mut dyn Write = match &mut self.out {
            Out::Plain(out) => out,
            Out::Packed(out) => out,
        };
        // Text of others may steer a terminal. Escaped, it is the same value.
        let line = serde_json::to_string(record)?;
        out.write_all(plain::json(&line).as_bytes())?;
        Ok(out.write_all(b"\n")?)
    }

    /// Removes the partial file. A partial export in a pipe has no end line, and importers refuse it.
    fn give_up(self) {
        if let Some(names) = self.names {
            names.give_up();
        }
    }

    fn finish(mut self, left_out: Vec<String>) -> anyhow::Result<Totals> {
        let totals = self.totals;
        self.write(&Record::End(End { totals, left_out }))?;
        match self.out {
            Out::Plain(mut out) => out.flush()?,
            Out::Packed(out) => out.finish()?.flush()?,
        }
        self.names.map_or(Ok(()), Names::finish)?;
        Ok(totals)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{FileTypeExt, PermissionsExt, symlink};

    use super::*;

    fn write(path: &Path) {
        Writer::open(path, true).unwrap().finish(Vec::new()).unwrap();
    }

    #[test]
    fn a_file_is_private_and_a_link_stays_a_link() {
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("secret.jsonl"), folder.path().join("link.jsonl"));
        std::fs::write(&file, "before").unwrap();
        std::fs::set_permissions(&file, PermissionsExt::from_mode(0o644)).unwrap();
        symlink(&file, &link).unwrap();
        write(&link);
        assert!(link.symlink_metadata().unwrap().is_symlink());
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        assert!(std::fs::read_to_string(&file).unwrap().contains("end"));
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2, "nothing is left beside them");
        std::fs::remove_file(&file).unwrap();
        write(&link);
        assert!(link.symlink_metadata().unwrap().is_symlink() && file.is_file(), "also where nothing lies behind it");
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600, "it is private like any new file");
    }

    #[test]
    fn a_file_that_exists_is_replaced_only_by_force() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("all.jsonl");
        std::fs::write(&file, "before").unwrap();
        let refused = Writer::open(&file, false).err().unwrap().to_string();
        assert!(refused.contains("all.jsonl exists") && refused.contains("--force"), "{refused}");
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "before");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left beside it");
        // One that is killed leaves the old file as it was.
        drop(Writer::open(&file, true).unwrap());
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "before");
    }

    #[test]
    fn of_two_exports_to_one_file_the_second_is_refused_and_the_first_stays_whole() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("all.jsonl");
        let first = Writer::open(&file, false).unwrap();
        for force in [false, true] {
            let refused = Writer::open(&file, force).err().unwrap().to_string();
            assert!(refused.contains("another process is writing") && refused.contains("all.jsonl.part"), "{refused}");
        }
        // One that wrote to another temporary name, as a program without locks.
        std::fs::write(&file, "before").unwrap();
        let refused = first.finish(Vec::new()).unwrap_err().to_string();
        assert!(refused.contains("all.jsonl was written by another process"), "{refused}");
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "before");
        let own = std::fs::read_to_string(folder.path().join("all.jsonl.part")).unwrap();
        assert!(own.contains("end"), "what it has written is complete: {own}");
        std::fs::remove_file(&file).unwrap();
        Writer::open(&file, false).unwrap().finish(Vec::new()).unwrap();
        assert!(std::fs::read_to_string(&file).unwrap().contains("end"));
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left beside it");
    }

    #[test]
    fn what_is_no_file_is_written_to_and_not_replaced() {
        write(Path::new("/dev/null"));
        assert!(Path::new("/dev/null").metadata().unwrap().file_type().is_char_device());
        let folder = tempfile::tempdir().unwrap();
        let refused = Writer::open(folder.path(), false).err().unwrap().to_string();
        assert!(refused.contains("is a folder: name a file in it"), "{refused}");
    }
}
