//! Programs from Python's package index, each set of them in a virtual environment below `target`.

use crate::prelude::*;

/// The output of a command, as an error with its status if it failed.
pub fn ran(command: &mut Command) -> Result<String, String> {
    let ended = command.output().map_err(|error| format!("{}: {error}", command.get_program().display()))?;
    let text = [ended.stdout, ended.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    if ended.status.success() { Ok(text) } else { Err(format!("{text}\n{}", ended.status)) }
}

/// The folder of the programs that `requirements` names, installed by pip unless they are there already.
pub fn installed(name: &str, requirements: &Path) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let (programs, stamp) = (folder.join("bin"), folder.join("installed.txt"));
    let wanted = std::fs::read_to_string(requirements).unwrap();
    if std::fs::read_to_string(&stamp).is_ok_and(|there| there == wanted) {
        return programs;
    }
    let made = ran(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&folder));
    made.unwrap_or_else(|told| panic!("cannot make a virtual environment; install python3-venv:\n{told}"));
    let installed =
        ran(Command::new(programs.join("pip")).args(["install", "--quiet", "--requirement"]).arg(requirements));
    if let Err(told) = installed {
        panic!(
            "{told}\npip cannot install {}: name a package index that it reaches (PIP_INDEX_URL) or a folder with the packages \
             (PIP_NO_INDEX=1 PIP_FIND_LINKS=folder), then run this again",
            wanted.split_whitespace().collect::<Vec<_>>().join(" ")
        );
    }
    std::fs::write(stamp, wanted).unwrap();
    programs
}
