//! `snapshot` and `restore`: a consistent copy of a running server's store, and a new data folder made from it.

use std::fs::File;
use std::io::{BufReader, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use futures::StreamExt;
use indicatif::ProgressBar;
use wayleave_engine::snapshot_file::{SnapshotCounts, SnapshotReader};

use crate::copier::{Copied, Damage, FileSource, Place, read_place};
use crate::copy::{self, Made};
use crate::exit::{Ended, REFUSED};
use crate::input::{Input, progress};
use crate::remote::Remote;
use crate::whole_file;

const SNAPSHOT_HELP: &str = "\
Examples:
  wayleave snapshot backup.snapshot
  wayleave snapshot --server http://10.0.0.7:7071 /backups/$(date +%F).snapshot
  wayleave restore backup.snapshot --data ./new-data && wayleave serve --data ./new-data

The server keeps running, on a data folder or on PostgreSQL. The file contains everything acknowledged before the command began,
as of one moment: URLs, settings, reservations, holds, roles and their epochs. It is written as FILE.part, read back and verified
against its checksums, synced, and only then renamed; an existing file is kept unless you use --overwrite, and after a failure
nothing is left. It contains lease tokens, so it is readable by its owner only.
If the store has rows that cannot be read, the command fails and says so; with --partial they are left out and listed.
To move to another number of shards, use `wayleave export`.";

const RESTORE_HELP: &str = "\
Examples:
  wayleave restore backup.snapshot --data ./new-data && wayleave serve --data ./new-data
  wayleave restore backup.snapshot --data postgres://wayleave@db/wayleave

The folder must be new or empty, the database without a store; no server is needed. A file that is damaged, truncated or of a newer
format is refused. A command that was interrupted can be run again: a folder begins anew, a database goes on.
Unexpired leases continue; what was granted after the snapshot is unknown to the new store. So it is another store: epochs, chunk
ids and the version of the map continue well above those of the file, for one time to live a role does not change hands unless its
primary renews it, and pools are paused until `wayleave pools resume`. Stop the original server before you start the new one.";

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
    /// Leave out what cannot be read, and list it
    #[arg(long)]
    partial: bool,
}

/// Arguments of `restore`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = RESTORE_HELP)]
pub struct RestoreArgs {
    /// Snapshot to read
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Folder to create, which must be new or empty; or the URL of a database without a store
    #[arg(long, value_name = "FOLDER|URL", value_parser = read_place)]
    data: Place,
}

/// Copies the store of a running server. Fails if its store does not support it, the server does not answer, or the
/// file cannot be written.
pub async fn take(remote: &Remote, args: SnapshotArgs) -> anyhow::Result<()> {
    if args.file.is_file() && !args.overwrite {
        let message = format!("{} exists; use --overwrite to replace it", args.file.display());
        return Err(Ended { code: REFUSED, message }.into());
    }
    let mut pieces = std::pin::pin!(remote.client.snapshot(args.partial).await?);
    let (mut out, names) = whole_file::create(&args.file, args.overwrite)?;
    // Its length is unknown in advance.
    let bar = progress(&[Input::Stdin]);
    let written = async {
        while let Some(piece) = pieces.next().await {
            let piece = piece.context("the snapshot is incomplete and was discarded")?;
            out.write_all(&piece).with_context(|| format!("cannot write {}", args.file.display()))?;
            bar.inc(piece.len() as u64);
        }
        anyhow::Ok(())
    };
    let written = written.await;
    bar.finish_and_clear();
    let Some(names) = names else { return written };
    // Verify what is on the disk, or it may be useless on the day it is needed.
    let checked = written.and_then(|()| {
        check(&names.part).with_context(|| format!("no snapshot was taken: {} was discarded", names.part.display()))
    });
    match checked {
        Ok(made) => {
            names.finish()?;
            made.report(remote.json, &args.file.display().to_string())
        }
        Err(error) => {
            names.give_up();
            Err(error)
        }
    }
}

/// Creates a store from a snapshot. Fails if the file cannot be used, or there is a store already.
pub fn restore(json: bool, args: &RestoreArgs) -> anyhow::Result<()> {
    let cannot = || format!("cannot restore {} into {}", args.file.display(), args.data);
    let runtime = copy::runtime()?;
    let input = open(&args.file, &ProgressBar::hidden())?;
    let mut source = FileSource::open(input).with_context(cannot)?;
    let made =
        copy::into_place(&mut source, &args.data, Damage::Refused, None, runtime.handle()).with_context(cannot)?;
    made.report(json, &args.data.to_string())
}

fn check(path: &Path) -> anyhow::Result<Made> {
    let mut reader = SnapshotReader::begin(open(path, &ProgressBar::hidden())?)?;
    while reader.next_rows()?.is_some() {}
    let SnapshotCounts { rows, bytes } = reader.counts();
    let copied = Copied { rows, bytes, pools: 0, losses: reader.losses().to_vec() };
    Ok(Made { shards: reader.header().shards, at: reader.header().at, copied, lost: None })
}

fn open(path: &Path, bar: &ProgressBar) -> anyhow::Result<impl std::io::Read + use<>> {
    let file = File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(BufReader::with_capacity(1 << 20, bar.wrap_read(file)))
}
