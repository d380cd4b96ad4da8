//! Runs the blocks of one document as a reader would: one shell, one folder, one server.
//!
//! Three things differ from the text: ports 7071 to 7073 become free ones, `https` becomes `http` (the sites are
//! [`crate::documents::site`], behind a proxy setting), and a line that begins with `wayleave serve` returns once that server is
//! ready.

use std::fmt::Write as _;
use std::os::unix::process::CommandExt as _;

use rustix::process::kill_process_group;

use crate::documents::block::Block;
use crate::documents::commands::shown;
use crate::documents::{root, site};
use crate::prelude::*;

/// Far more than any document takes, in seconds: only a block that hangs meets it.
const PATIENCE: &str = "120";

const PREAMBLE: &str = "set -eu\nready() { n=0; until curl -fs -o /dev/null \"$1/readyz\"; do n=$((n+1)); test $n -lt 600; sleep 0.1; done; }\n";

/// Runs the blocks in their order.
pub fn run(blocks: &[&Block]) -> Result<(), String> {
    let (_keep, data) = folder();
    // A document that starts no server at the usual address finds one there.
    let starts = |line: &str| serves(line) && (!line.contains("--listen") || line.contains(":7071"));
    let found = !blocks.iter().any(|block| block.text.lines().any(starts));
    let server = found.then(|| Server::start(&data.join("server")));
    let place = data.join("reader");
    std::fs::create_dir_all(place.join("bin")).unwrap();
    std::os::unix::fs::symlink(binary(), place.join("bin/wayleave")).unwrap();
    for name in ["docs", "deploy"] {
        std::os::unix::fs::symlink(root().join(name), place.join(name)).unwrap();
    }
    let mut ports = free_ports();
    if let Some(server) = &server {
        server.url.rsplit(':').next().unwrap().clone_into(&mut ports[0]);
    }
    let (script, expected) = script(blocks, &ports, &place);
    std::fs::write(place.join("script"), script).unwrap();
    let database = blocks.iter().any(|block| block.needs_postgres()).then(database);
    let ended = execute(&place, &ports[0], site::start(), database.as_deref());
    let read = |name: &str| std::fs::read_to_string(place.join(name)).unwrap_or_default();
    if ended != Some(0) {
        return Err(format!("{}: ended with {ended:?}\n{}", read("at").trim(), read("output")));
    }
    for (name, at, pattern) in expected {
        let output = read(&name);
        if !matches(&pattern, &output) {
            return Err(format!("{at}: the output does not match\n--- shown\n{pattern}--- seen\n{output}"));
        }
    }
    Ok(())
}

/// The blocks as one script, and for each command of a `console` block the file of its output, its place and what is shown.
fn script(blocks: &[&Block], ports: &[String; 3], place: &Path) -> (String, Vec<(String, String, String)>) {
    let (mut script, mut expected) = (PREAMBLE.to_owned(), Vec::new());
    for block in blocks {
        let at = block.place();
        writeln!(script, "echo {at} >at").unwrap();
        let text = adapt(&block.text, ports);
        match block.language.as_str() {
            "python" => {
                let name = format!("{}.py", at.replace(['/', ':'], "-"));
                std::fs::write(place.join(&name), text).unwrap();
                writeln!(script, "python3 {name}").unwrap();
            }
            "console" => {
                for shown in shown(&text) {
                    let name = format!("console-{}", expected.len());
                    writeln!(script, "{{ {}\n}} >{name} 2>&1 || {{ cat {name}; exit 1; }}", shown.command.trim_end())
                        .unwrap();
                    expected.push((name, at.clone(), shown.output));
                }
            }
            _ => text.lines().for_each(|line| script += &started(line)),
        }
    }
    (script, expected)
}

fn serves(line: &str) -> bool {
    line.starts_with("wayleave serve")
}

/// A line of the script; one that starts a server waits until that server is ready.
fn started(line: &str) -> String {
    if !serves(line) {
        return format!("{line}\n");
    }
    let line = line.split(" #").next().unwrap_or(line).trim_end().trim_end_matches('&');
    let listen = line.split(" --listen ").nth(1).and_then(|rest| rest.split(' ').next());
    format!("{line} &\nready {}\n", listen.unwrap_or("$WAYLEAVE_SERVER"))
}

/// The text with free ports and reachable sites.
fn adapt(text: &str, ports: &[String; 3]) -> String {
    let ported =
        ["7071", "7072", "7073"].iter().zip(ports).fold(text.to_owned(), |text, (old, new)| text.replace(old, new));
    ported.replace("https://", "http://")
}

/// The URL of an empty database in a real server.
fn database() -> String {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { Cluster::shared().await.fresh_database().await })
}

fn free_ports() -> [String; 3] {
    [0; 3].map(|_| free_port().to_string())
}

/// Runs the script. Nothing that it started outlives it.
fn execute(place: &Path, port: &str, site: u16, database: Option<&str>) -> Option<i32> {
    let output = std::fs::File::create(place.join("output")).unwrap();
    let mut command = Command::new("timeout");
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("WAYLEAVE_")) {
        command.env_remove(name);
    }
    let path = format!("{}:{}", place.join("bin").display(), std::env::var("PATH").unwrap());
    command.args(["--kill-after=1", PATIENCE, "sh", "script"]).current_dir(place).env("PATH", path).env("HOME", place);
    command.env("WAYLEAVE_SERVER", format!("http://127.0.0.1:{port}"));
    command.env("WAYLEAVE_LISTEN", format!("127.0.0.1:{port}")).env("WAYLEAVE_SHARDS", "4");
    command.envs(database.map(|url| ("WAYLEAVE_ENGINE", url)));
    command.env("http_proxy", format!("http://127.0.0.1:{site}")).env("no_proxy", "127.0.0.1,localhost");
    command.stdin(Stdio::null()).stderr(output.try_clone().unwrap()).stdout(output).process_group(0);
    let mut child = command.spawn().unwrap();
    let group = Pid::from_child(&child);
    let ended = child.wait().unwrap().code();
    _ = kill_process_group(group, Signal::KILL);
    ended
}

/// Whether the output is as shown, where `…` stands for anything. An empty expectation allows anything. The width of
/// column gaps is ignored: it depends on the ports and schemes that were replaced.
fn matches(shown: &str, output: &str) -> bool {
    let plain =
        |text: &str| text.split(' ').filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ").trim().to_owned();
    let (shown, output) = (plain(shown), plain(output));
    let mut parts = shown.split('…');
    let Some(mut rest) = output.strip_prefix(parts.next().unwrap_or_default()) else { return false };
    let mut parts = parts.peekable();
    if shown.is_empty() || (parts.peek().is_none() && rest.is_empty()) {
        return true;
    }
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return rest.ends_with(part);
        }
        let Some((_, after)) = rest.split_once(part) else { return false };
        rest = after;
    }
    false
}

#[test]
fn an_ellipsis_stands_for_anything_and_nothing_else_does() {
    for (shown, output, holds) in [
        ("a b\n", "a b\n", true),
        ("a b\n", "a b c\n", false),
        ("a …\n", "a b c\n", true),
        ("a … d\n", "a b c\n", false),
        ("… x …", "1 x 2", true),
        ("", "whatever", true),
    ] {
        assert_eq!(matches(shown, output), holds, "{shown:?} {output:?}");
    }
}
