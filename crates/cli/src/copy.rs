//! `copy` and `salvage`: another store of all rows of one, or of those that can be read.

use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use tokio::runtime::{Handle, Runtime};
use wayleave_core::time::Time;
use wayleave_engine::snapshot_file::Loss;

use crate::copier::{self, Copied, Damage, FolderSource, Place, Progress, Source, read_place};
use crate::exit::{Ended, PARTLY};
use crate::output::{self, counted};
use crate::whole_file;

const COPY_HELP: &str = "\
Examples:
  wayleave copy ./wayleave-data postgres://wayleave@db/wayleave       from a data folder to a database
  wayleave copy postgres://wayleave@db/wayleave ./wayleave-data       and back

Both stores must be unused: stop the server, or all nodes. TO must be a new or empty folder, or a database without a store; it gets
as many shards as FROM. All rows are copied: URLs, settings, leases, roles, chunks, pools. A command that was interrupted can be run
again: a folder begins anew, a database goes on where it was.
The copy is another store: epochs, chunk ids and the version of the map continue well above, and pools are paused until
`wayleave pools resume`. Do not run both.";

const SALVAGE_HELP: &str = "\
Example:
  wayleave salvage ./wayleave-data ./saved && wayleave serve --data ./saved

Rows that cannot be read or decoded are left out, and rows that would keep their shard from opening without them. A queued URL of
which one row is lost is rebuilt from the other. What is missing is listed by host on stdout, and in the file TO.lost. Nothing is
changed in FROM, which may be on a read-only disk: what salvage needs besides is in the folder TO.salvage, which it removes at the
end. TO must be new or empty, and becomes another store, as with `wayleave copy`. A command that was interrupted can be run again.
Exit code 0 if nothing is missing, 6 if something is.";

/// Arguments of `copy`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = COPY_HELP)]
pub struct CopyArgs {
    /// Data folder, or URL of a database
    #[arg(value_parser = read_place)]
    from: Place,
    /// Data folder to create, or URL of a database without a store
    #[arg(value_parser = read_place)]
    to: Place,
}

/// Arguments of `salvage`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = SALVAGE_HELP)]
pub struct SalvageArgs {
    /// Damaged data folder
    from: PathBuf,
    /// Data folder to create; it must be new or empty
    to: PathBuf,
}

/// A store or a snapshot that was made.
#[derive(Debug)]
pub struct Made {
    /// Its number of shards.
    pub shards: u16,
    /// The moment that it shows.
    pub at: Time,
    /// Its rows.
    pub copied: Copied,
    /// The file that lists what is missing.
    pub lost: Option<PathBuf>,
}

/// Copies a store. Fails if one of them is in use or cannot be used, or there is a store already.
pub fn copy(json: bool, args: &CopyArgs) -> anyhow::Result<()> {
    let CopyArgs { from, to } = args;
    let cannot = || format!("cannot copy {from} to {to}");
    let runtime = runtime()?;
    let mut source = from.source(runtime.handle()).with_context(cannot)?;
    let made = into_place(&mut *source, to, Damage::Refused, None, runtime.handle()).with_context(cannot)?;
    made.report(json, &to.to_string())
}

/// Saves what is readable of a damaged folder. Fails if nothing can be read, the new folder is not empty, or something
/// is missing in it.
pub fn salvage(json: bool, args: &SalvageArgs) -> anyhow::Result<()> {
    let SalvageArgs { from, to } = args;
    let cannot = || format!("cannot save {} into {}", from.display(), to.display());
    let runtime = runtime()?;
    let mut source =
        FolderSource::salvage(from, &beside(to, ".salvage"), runtime.handle().clone()).with_context(cannot)?;
    let (place, list) = (Place::Folder(to.clone()), beside(to, ".lost"));
    let made = into_place(&mut source, &place, Damage::Skipped, Some(&list), runtime.handle()).with_context(cannot)?;
    made.report(json, &to.display().to_string())
}

/// The name of a folder with something behind it.
fn beside(folder: &Path, suffix: &str) -> PathBuf {
    // Without a slash at its end, behind which it would be inside.
    let plain: PathBuf = folder.components().collect();
    let named = if plain.file_name().is_some() { plain } else { plain.canonicalize().unwrap_or(plain) };
    let mut name = named.into_os_string();
    name.push(suffix);
    name.into()
}

/// The runtime of a copy: connections need one.
pub fn runtime() -> anyhow::Result<Runtime> {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().context("cannot start")
}

/// Makes a store of a source, and lists what is missing in a file.
pub fn into_place(
    source: &mut dyn Source,
    to: &Place,
    damage: Damage,
    list: Option<&Path>,
    runtime: &Handle,
) -> anyhow::Result<Made> {
    let (shards, at) = (source.header().shards, source.header().at);
    let sink = to.sink(source.header(), runtime)?;
    if sink.after().is_some() {
        eprintln!("going on with a copy that was interrupted");
    }
    let write = |losses: &[Loss]| list.map_or(Ok(()), |path| write_list(path, losses));
    let copied = copier::copy(source, sink, damage, Progress::new(), write)?;
    let lost = list.filter(|_| !copied.losses.is_empty()).map(Path::to_owned);
    Ok(Made { shards, at, copied, lost })
}

/// Writes what is missing: one line for each host, or one without a host. If nothing is, the list of an earlier salvage is removed.
fn write_list(path: &Path, losses: &[Loss]) -> anyhow::Result<()> {
    if losses.is_empty() {
        return match std::fs::remove_file(path) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(error).with_context(|| format!("cannot remove {}, the list of an earlier salvage", path.display()))
            }
            _ => Ok(()),
        };
    }
    let (mut out, names) = whole_file::create(path, true)?;
    let mut text = Vec::new();
    for Loss { what, hosts } in losses {
        let hosts: Vec<&str> = if hosts.is_empty() { vec!["-"] } else { hosts.iter().map(String::as_str).collect() };
        hosts.into_iter().try_for_each(|host| writeln!(text, "{host}\t{what}"))?;
    }
    out.write_all(&text).with_context(|| format!("cannot write {}", path.display()))?;
    names.map_or(Ok(()), whole_file::Names::finish)
}

impl Made {
    /// Says what was made. Fails if something is missing in it.
    pub fn report(&self, json: bool, path: &str) -> anyhow::Result<()> {
        let Copied { rows, bytes, pools, losses } = &self.copied;
        let (shards, at) = (self.shards, wayleave_api::Timestamp(self.at));
        if json {
            let lost: Vec<_> =
                losses.iter().map(|loss| serde_json::json!({"what": loss.what, "hosts": loss.hosts})).collect();
            let made = serde_json::json!({
                "path": path, "at": at, "shards": shards, "rows": rows, "bytes": bytes, "pools_paused": pools, "lost": lost
            });
            output::json(&made)?;
        } else {
            let (size, rows, shards) = (output::size(*bytes), counted(*rows, "row"), counted(shards, "shard"));
            output::line(format!("{path}: {rows} of {shards}, {size}, as of {at}"))?;
            for Loss { what, hosts } in losses {
                let hosts = if hosts.is_empty() { String::new() } else { format!(" [{}]", hosts.join(", ")) };
                output::line(format!("missing: {what}{hosts}"))?;
            }
        }
        if *pools > 0 {
            eprintln!(
                "paused {}, because this is another store: once the original is stopped, start a server on it and run \
                 `wayleave pools resume --all`",
                counted(*pools, "pool")
            );
        }
        if losses.is_empty() {
            return Ok(());
        }
        let list = self.lost.as_ref().map_or_else(String::new, |path| format!(", listed in {}", path.display()));
        let message = format!("not all rows could be read: {} missing{list}", counted(losses.len() as u64, "part"));
        Err(Ended { code: PARTLY, message }.into())
    }
}
