//! An empty data folder that is made once and copied for every server: `initdb` takes seconds of computing, a copy some
//! hundredths. It is below cargo's target folder, named by the version of PostgreSQL and the user, so that `cargo
//! clean` removes it and an upgrade makes another. Copies share PostgreSQL's system identifier; nothing of ours reads
//! it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::tools;

/// pg_hba.conf: every user is trusted, except that `guarded` needs a password.
const ACCESS: &str = "\
local all all trust
local replication all trust
host all guarded all scram-sha-256
host all all all trust
host replication all all trust
";

/// Fills a folder that is not there yet with what a new server starts from. Panics if PostgreSQL is not installed or
/// does not make it.
pub(crate) fn copy_to(data: &Path) {
    static TEMPLATE: OnceLock<PathBuf> = OnceLock::new();
    let template = TEMPLATE.get_or_init(template);
    copy(template, data);
}

/// The template; made now if no test has made it before.
fn template() -> PathBuf {
    let bin = tools::programs();
    let version = tools::run(Command::new(bin.join("postgres")).arg("--version"));
    let version: String =
        version.chars().map(|c| if c.is_ascii_alphanumeric() || c == '.' { c } else { '-' }).collect();
    let folder = target().join("tmp");
    let template = folder.join(format!("{version}-of-{}", rustix::process::geteuid().as_raw()));
    if template.exists() {
        return template;
    }
    // The target folder may be closed to the user that PostgreSQL runs as, so it is made elsewhere.
    let elsewhere = tempfile::Builder::new().prefix("wayleave-pg-").tempdir().unwrap();
    tools::give(elsewhere.path());
    let data = elsewhere.path().join("data");
    let mut initdb = tools::command(&[], &bin.join("initdb"));
    initdb.args(["--auth=trust", "--username=postgres", "--encoding=UTF8", "--no-locale", "--no-sync", "-D"]);
    tools::run(initdb.arg(&data));
    std::fs::write(data.join("pg_hba.conf"), ACCESS).unwrap();
    std::fs::create_dir_all(&folder).unwrap();
    let unfinished = tempfile::tempdir_in(&folder).unwrap();
    let whole = unfinished.path().join("data");
    copy(&data, &whole);
    // At once or not at all. Another process may have been faster; its template is as good.
    if let Err(error) = std::fs::rename(&whole, &template) {
        assert!(template.exists(), "cannot make {}: {error}", template.display());
    }
    template
}

/// Copies a folder with its owners and modes, which PostgreSQL insists on.
fn copy(from: &Path, to: &Path) {
    tools::run(Command::new("cp").args(["--archive", "--no-target-directory"]).arg(from).arg(to));
}

/// Cargo's target folder: test binaries are in `target/PROFILE/deps`.
fn target() -> PathBuf {
    let mine = std::env::current_exe().unwrap();
    mine.ancestors().nth(3).unwrap_or_else(|| panic!("{} is in no target folder", mine.display())).to_owned()
}

#[cfg(test)]
mod tests {
    use crate::Cluster;

    /// What went wrong once: every test binary ran `initdb` again for every server.
    #[tokio::test]
    async fn servers_are_copies_of_one_template_and_share_no_rows() {
        let (one, two) = (Cluster::start().await, Cluster::start().await);
        one.sql("create table t (n int)").await;
        assert_eq!(two.sql("select count(*) from pg_tables where tablename = 't'").await, "0");
        let number = "select system_identifier from pg_control_system()";
        assert_eq!(one.sql(number).await, two.sql(number).await, "initdb was run for each");
    }
}
