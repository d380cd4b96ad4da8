//! `check`: every file of a data folder against its checksums, without changing anything.

use std::path::PathBuf;

use anyhow::Context;
use wayleave_engine_fjall::CheckedFile;

use crate::exit::{ERROR, Ended, NOT_FOUND};
use crate::input::progress_of;
use crate::output::{self, Table, counted, size};

const HELP: &str = "\
Example:
  wayleave check ./wayleave-data || wayleave salvage ./wayleave-data ./saved

No server may use the folder. Nothing is changed, so it may be on a read-only disk. Exit code 0 if all files are sound, 1 if one is not.";

/// Arguments of `check`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = HELP)]
pub struct Args {
    /// Data folder
    folder: PathBuf,
}

/// Checks a folder. Fails if it is in use or no data folder, or a file is damaged.
pub fn run(json: bool, args: &Args) -> anyhow::Result<()> {
    let Args { folder } = args;
    if !folder.is_dir() {
        let message = format!("there is no folder {}", folder.display());
        return Err(Ended { code: NOT_FOUND, message }.into());
    }
    let bar = progress_of(0);
    let report = wayleave_engine_fjall::check(folder, |done, all| {
        bar.set_length(all);
        bar.set_position(done);
    });
    bar.finish_and_clear();
    let report = report.with_context(|| format!("cannot check {}", folder.display()))?;
    let name = |file: &CheckedFile| file.path.strip_prefix(folder).unwrap_or(&file.path).display().to_string();
    if json {
        let files: Vec<_> = report
            .files
            .iter()
            .map(|file| {
                let (path, damage) = (name(file), file.verdict.as_ref().err());
                serde_json::json!({"path": path, "bytes": file.bytes, "sound": damage.is_none(), "damage": damage})
            })
            .collect();
        let path = folder.display().to_string();
        output::json(&serde_json::json!({"path": path, "sound": report.is_sound(), "files": files}))?;
    } else {
        let mut table = Table::new(["file", "size", "verdict"]);
        for file in &report.files {
            let verdict = file.verdict.as_ref().err().map_or("sound", String::as_str);
            table.row([name(file), size(file.bytes), verdict.to_owned()]);
        }
        table.print()?;
    }
    if report.is_sound() {
        return Ok(());
    }
    let damaged = report.files.iter().filter(|file| file.verdict.is_err()).count() as u64;
    let other = if report.files.iter().all(|file| file.is_saved) {
        format!(", or save what is readable with `wayleave salvage {} NEW`", folder.display())
    } else {
        "; too little can be read to salvage the rest".to_owned()
    };
    let (damaged, all) = (counted(damaged, "file"), report.files.len());
    let message = format!("{damaged} of {all} damaged: restore a backup{other}");
    Err(Ended { code: ERROR, message }.into())
}
