//! The base images, under the names that the files in `deploy/` use. Nothing is pulled from a registry: each is a
//! Debian system made by debootstrap from Debian's packages, cached below `target/`.
//!
//! This cannot show that the registry's images are the same. `debian:bookworm-slim` is Debian itself in both cases.
//! `rust:1-bookworm` is Debian's C compiler with the Rust toolchain and the downloaded crates of this machine, so
//! building in it needs no network. `postgres:17` is Debian's own PostgreSQL with an entry point that does what the
//! compose file relies on.

use crate::containers::engine::{Engine, root};
use crate::prelude::*;

/// Imports the images that the image of a server is built from.
pub fn for_building(engine: &Engine) {
    import(engine, &system("debian", ""), "debian:bookworm-slim", &[]);
    let tree = system("rust", "gcc,libc6-dev,ca-certificates");
    toolchain(&tree);
    let path = "ENV PATH=/usr/local/toolchain/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
    let offline = ["ENV CARGO_HOME=/usr/local/cargo", "ENV CARGO_NET_OFFLINE=true"];
    import(engine, &tree, "rust:1-bookworm", &[path, offline[0], offline[1]]);
}

/// Imports the image of the database.
pub fn database(engine: &Engine) {
    let tree = system("postgres", "postgresql");
    let version = std::fs::read_dir(tree.join("usr/lib/postgresql")).unwrap().next().unwrap().unwrap().file_name();
    let start = tree.join("usr/local/bin/docker-entrypoint.sh");
    std::fs::write(&start, include_str!("postgres-entrypoint.sh")).unwrap();
    let data = "/var/lib/postgresql/data";
    shell(&tree, &format!("chmod 755 .{}; install -d -m 700 -o 101 .{data}", "/usr/local/bin/docker-entrypoint.sh"));
    shell(
        &tree,
        &format!("chroot . sh -c 'chown postgres: {data}; install -d -m 2777 -o postgres /var/run/postgresql'"),
    );
    let path = format!(
        "ENV PATH=/usr/lib/postgresql/{}/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        version.display()
    );
    let data = [format!("ENV PGDATA={data}"), format!("VOLUME {data}")];
    let commands = [r#"ENTRYPOINT ["docker-entrypoint.sh"]"#, r#"CMD ["postgres"]"#];
    import(engine, &tree, "postgres:17", &[&path, &data[0], &data[1], commands[0], commands[1]]);
}

/// The files of a Debian system with these packages.
fn system(name: &str, packages: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("containers");
    std::fs::create_dir_all(&folder).unwrap();
    let (tree, half) = (folder.join(name), folder.join(format!("{name}.part")));
    if tree.is_dir() {
        return tree;
    }
    println!("making {} with debootstrap", tree.display());
    _ = std::fs::remove_dir_all(&half);
    let mut command = Command::new("debootstrap");
    command.arg("--variant=minbase").arg("bookworm").arg(&half).stdout(Stdio::null());
    if !packages.is_empty() {
        command.arg(format!("--include={packages}"));
    }
    assert!(command.status().expect("debootstrap").success(), "debootstrap failed; it needs root and the network");
    std::fs::rename(&half, &tree).unwrap();
    tree
}

/// Puts the toolchain that runs this test into a system, and what cargo has downloaded for this workspace.
fn toolchain(tree: &Path) {
    shell(&root(), "cargo fetch --locked --quiet");
    let (tree, cargo) = (tree.display(), std::env::var("CARGO_HOME").unwrap_or_else(|_| "$HOME/.cargo".to_owned()));
    shell(
        &root(),
        &format!(
            r#"from=$(rustc --print sysroot); to={tree}/usr/local/toolchain
            test "$(cat "$to/version" 2>/dev/null)" = "$(rustc -vV)" || {{
                rm -rf "$to"; mkdir -p "$to/lib/rustlib" "$to/bin"
                cp -a "$from"/bin/rustc "$from"/bin/cargo "$to/bin"; cp -a "$from"/lib/*.so* "$to/lib"
                cp -a "$from/lib/rustlib/$(rustc -vV | sed -n 's/^host: //p')" "$to/lib/rustlib"
                rustc -vV > "$to/version"
            }}
            mkdir -p {tree}/usr/local/cargo/registry
            cp -au {cargo}/registry/index {cargo}/registry/cache {tree}/usr/local/cargo/registry"#
        ),
    );
}

fn import(engine: &Engine, tree: &Path, name: &str, changes: &[&str]) {
    let mut tar =
        Command::new("tar").args(["-C", tree.to_str().unwrap(), "-c", "."]).stdout(Stdio::piped()).spawn().unwrap();
    let changes: Vec<&str> = changes.iter().flat_map(|change| ["--change", *change]).collect();
    let words = [&["docker", "import"][..], &changes, &["-", name]].concat();
    engine.try_run(&words, tar.stdout.take().unwrap()).unwrap_or_else(|why| panic!("{why}"));
    assert!(tar.wait().unwrap().success());
}

fn shell(folder: &Path, script: &str) {
    let status = Command::new("sh").args(["-ec", script]).current_dir(folder).status().unwrap();
    assert!(status.success(), "{script}: {status}");
}
