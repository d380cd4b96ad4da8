//! `snapshot` and `restore`: a consistent copy of a running server's store, and a new data folder made from it.

use std::fs::File;
use std::io::{BufReader, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use futures::StreamExt;
use indicatif::ProgressBar;
use wayleave_engine_fjall::{SnapshotCounts, SnapshotError, SnapshotHeader, SnapshotReader};

use crate::exit::{Ended, REFUSED};
use crate::input::{Input, progress};
use crate::output::{self, counted};
use crate::remote::Remote;
use crate::whole_file;

const SNAPSHOT_HELP: &str = "\
Examples:
  wayleave snapshot backup.snapshot
  wayleave snapshot --server http://10.0.0.7:7071 /backups/$(date +%F).snapshot
  wayleave restore backup.snapshot --data ./new-data && wayleave serve --data ./new-data

The server keeps running. The file contains everything acknowledged before the command began, as of one moment: URLs, settings,
reservations, holds, roles and their epochs. It is written as FILE.part, read back and verified against its checksums, synced,
and only then renamed; an existing file is kept unless you use --overwrite. It contains lease tokens, so it is readable
by its owner only.
A server on PostgreSQL refuses: back up the database with its own tools (pg_basebackup, point-in-time recovery).
To move to another number of shards or another kind of store, use `wayleave export`.";

const RESTORE_HELP: &str = "\
Example:
  wayleave restore backup.snapshot --data ./new-data && wayleave serve --data ./new-data

The folder must be new or empty; no server is needed. A file that is damaged, truncated or of a newer format is refused, and
nothing is left behind. Unexpired leases continue; what was granted after the snapshot is unknown to the restored store. So
epochs of roles continue a thousand above those of the file, and for one time to live a role does not change hands unless its
primary renews it. Stop the original server before you start the new one.";

/// Arguments of `snapshot`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = SNAPSHOT_HELP)]
pub struct SnapshotArgs {
    /// File to write
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Replace an existing file
    #[arg(long)]
    overwrite: bool,
}

/// Arguments of `restore`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = RESTORE_HELP)]
pub struct RestoreArgs {
    /// Snapshot to read
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Folder to create; it must be new or empty
    #[arg(long, value_name = "FOLDER")]
    data: PathBuf,
}

/// Copies the store of a running server.
///
/// # Errors
/// If its store does not support it, the server does not answer, or the file cannot be written.
pub async fn take(remote: &Remote, args: SnapshotArgs) -> anyhow::Result<()> {
    if args.file.is_file() && !args.overwrite {
        let message = format!("{} exists; use --overwrite to replace it", args.file.display());
        return Err(Ended { code: REFUSED, message }.into());
    }
    let mut pieces = std::pin::pin!(remote.client.snapshot().await?);
    let (mut out, names) = whole_file::create(&args.file, args.overwrite)?;
    // Its length is unknown in advance.
    let bar = progress(&[Input::Stdin]);
    while let Some(piece) = pieces.next().await {
        let piece = piece.context("the snapshot is incomplete and was discarded")?;
        out.write_all(&piece).with_context(|| format!("cannot write {}", args.file.display()))?;
        bar.inc(piece.len() as u64);
    }
    bar.finish_and_clear();
    let Some(names) = names else { return Ok(()) };
    // Verify what is on the disk, or it may be useless on the day it is needed.
    let (header, counts) = check(&names.part).with_context(|| format!("{} was given up", names.part.display()))?;
    names.finish()?;
    report(remote.json, &args.file, header, counts)
}

/// Creates a data folder from a snapshot.
///
/// # Errors
/// If the file cannot be used or the folder is not empty.
pub fn restore(json: bool, args: &RestoreArgs) -> anyhow::Result<()> {
    let bar = progress(&[Input::new(&args.file)]);
    let input = open(&args.file, &bar)?;
    let restored = wayleave_engine_fjall::restore(&args.data, input);
    bar.finish_and_clear();
    let (header, counts) =
        restored.with_context(|| format!("cannot restore {} into {}", args.file.display(), args.data.display()))?;
    report(json, &args.data, header, counts)
}

fn check(path: &Path) -> anyhow::Result<(SnapshotHeader, SnapshotCounts)> {
    let reader = SnapshotReader::begin(open(path, &ProgressBar::hidden())?)?;
    let header = reader.header();
    Ok((header, reader.rows(|_, _| Ok::<_, SnapshotError>(()))?))
}

fn open(path: &Path, bar: &ProgressBar) -> anyhow::Result<impl std::io::Read + use<>> {
    let file = File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(BufReader::with_capacity(1 << 20, bar.wrap_read(file)))
}

fn report(json: bool, path: &Path, header: SnapshotHeader, counts: SnapshotCounts) -> anyhow::Result<()> {
    let (SnapshotHeader { shards, at }, SnapshotCounts { rows, bytes }) = (header, counts);
    let at = wayleave_api::Timestamp(at);
    if json {
        let path = path.display().to_string();
        return output::json(
            &serde_json::json!({"path": path, "at": at, "shards": shards, "rows": rows, "bytes": bytes}),
        );
    }
    let size = output::size(bytes);
    let text =
        format!("{}: {} of {}, {size}, as of {at}", path.display(), counted(rows, "row"), counted(shards, "shard"));
    output::line(format_args!("{text}"))
}
