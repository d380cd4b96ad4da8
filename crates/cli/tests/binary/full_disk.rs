//! A full disk, with the real binary: a small tmpfs in its own mount namespace. It needs root.

use wayleave_api::urls::AddStatus;
use wayleave_client::Retry;

use crate::prelude::*;

/// A process that holds the mount namespace.
struct Disk {
    holder: Child,
    path: PathBuf,
}

impl Disk {
    /// A file system of so many MiB, of which some are used by something else; the store keeps 64 MiB in reserve.
    fn new(path: &Path, mib: u32, used: u32) -> Self {
        let script = format!(
            "mount -t tmpfs -o size={mib}m tmpfs \"$0\" && head -c {used}M /dev/zero > \"$0/ballast\" && echo ready && exec sleep 3600"
        );
        let mut command = Command::new("unshare");
        command.args(["-m", "sh", "-c", &script]).arg(path).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut holder = command.spawn().expect("this test needs unshare, of util-linux");
        let mut line = String::new();
        BufReader::new(holder.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n", "this test needs root, to mount a file system");
        Self { holder, path: path.to_owned() }
    }

    fn start(&self, memtable_mb: &str) -> Server {
        let enter = format!("exec nsenter -m -t {} \"$@\"", self.holder.id());
        Server::start_limited(&self.path.join("data"), &["--memtable-mb", memtable_mb], &enter)
    }

    /// The path as seen from here.
    fn seen(&self, name: &str) -> String {
        format!("/proc/{}/root{}/{name}", self.holder.id(), self.path.display())
    }

    fn make_room(&self) {
        std::fs::remove_file(self.seen("ballast")).unwrap();
    }

    /// The free space, in MiB.
    fn free(&self) -> u64 {
        let holder = self.holder.id().to_string();
        let df =
            Command::new("nsenter").args(["-m", "-t", &holder, "df", "--output=avail", "-m"]).arg(&self.path).output();
        let told = df.unwrap();
        String::from_utf8(told.stdout).unwrap().lines().last().unwrap().trim().parse().unwrap()
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        _ = self.holder.kill();
        _ = self.holder.wait();
    }
}

/// Puts 500 URLs, once; returns the reason for those that were not stored.
fn put(server: &Server, batch: usize) -> Result<(), String> {
    put_long(server, batch, 100)
}

/// The same with longer URLs.
fn put_long(server: &Server, batch: usize, bytes: usize) -> Result<(), String> {
    let text = |i: usize| format!("http://h{}.example/{batch}/{i}/{}", i % 40, "x".repeat(bytes));
    let urls = (0..500).map(|i| UrlToAdd { url: text(i), ..UrlToAdd::default() }).collect();
    let client = Client::new(&server.url).unwrap().with_retry(Retry::NEVER);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let answer = runtime.block_on(client.add_urls(&AddUrlsRequest { crawl: None, urls }));
    let results = answer.map_err(|error| error.to_string())?.results.unwrap_or_default();
    let lost = results.into_iter().find(|result| !matches!(result.status, AddStatus::Added | AddStatus::Known));
    lost.map_or(Ok(()), |result| Err(result.reason.unwrap_or_default()))
}

/// Clients learn the reason, the log repeats it a few times and not thirty times a second, reads continue, and the
/// server recovers by itself once there is room.
#[test]
fn a_full_disk_is_told_to_clients_and_nothing_acknowledged_is_lost() {
    let (keep, _) = folder();
    let disk = Disk::new(keep.path(), 200, 76);
    let mut server = disk.start("1");
    let mut stored = 0;
    let refused = loop {
        match put(&server, stored) {
            Ok(()) => stored += 1,
            // Whoever adds faster than the free space is looked at is refused for a moment.
            Err(refused) if refused.contains("MiB free") => break refused,
            Err(_) => {}
        }
        assert!(stored < 3_000, "the disk must be full by now");
    };
    assert!(stored > 1, "it worked at first");
    // The client whose batch failed gets the reason, and so does the next one.
    let next = put(&server, stored).unwrap_err();
    for told in [&refused, &next] {
        assert!(told.contains("filling up") && told.contains("free some space"), "{told}\n{}", server.log());
    }
    let queued = |server: &Server| server.stats()["urls"]["queued"].as_u64().unwrap();
    assert_eq!(server.ended(), None, "{}", server.log());
    let before = queued(&server);
    assert!(before >= stored as u64 * 500, "reads go on: {before} URLs of {stored} batches");
    let since = Instant::now();
    let mut tries = 0;
    while since.elapsed() < Duration::from_secs(5) {
        assert!(put(&server, stored).is_err());
        tries += 1;
    }
    assert!(tries > 30, "{tries} tries are few");
    let lines = server.log().lines().filter(|line| line.contains("filling up")).count();
    assert!(lines * 4 <= tries, "{lines} lines for {tries} tries: {}", server.log());
    assert_eq!(server.ended(), None, "{}", server.log());
    assert_eq!(queued(&server), before, "what was refused left nothing behind");
    println!("seen: a disk of 200 MiB: {before} URLs stored, {tries} puts refused by {lines} lines of log, none lost");
    disk.make_room();
    let since = Instant::now();
    while put(&server, stored).is_err() {
        assert!(since.elapsed() < Duration::from_secs(30), "{}", server.log());
    }
    let queued = queued(&server);
    assert!(queued >= (stored as u64 + 1) * 500, "{queued} URLs are there, of {} batches", stored + 1);
    assert_eq!(server.stop(), 0);
}

/// A regression: a merge under load took the space that all writes need, and what was deleted on a full disk never gave its space
/// back, because no merge had room.
#[test]
fn a_disk_that_fills_up_under_load_gives_back_what_is_deleted() {
    fills_up_and_gives_back(320, "4", 400);
    // The default memtable on the smallest disk that we expect with it: `cargo xtask prove disk` asks for it.
    if std::env::var_os("WAYLEAVE_FULL_DISK_LARGE").is_some() {
        fills_up_and_gives_back(1_024, "48", 2_000);
    }
}

/// Three times: adds URLs of a kilobyte and a half until no more are accepted, at most this many batches; then deletes them.
fn fills_up_and_gives_back(mib: u32, memtable_mb: &str, batches_max: usize) {
    let (keep, _) = folder();
    let disk = Disk::new(keep.path(), mib, 0);
    let mut server = disk.start(memtable_mb);
    for round in 0..3 {
        let begun = Instant::now();
        let (mut batches, mut refused) = (0, 0);
        // A merge that runs takes space, so new URLs may be refused for a while before they are for good.
        while refused < 25 {
            match put_long(&server, round * 10_000 + batches, 1_500) {
                Ok(()) => (batches, refused) = (batches + 1, 0),
                Err(why) => {
                    assert!(why.contains("filling up"), "{why}");
                    refused += 1;
                    std::thread::sleep(Duration::from_millis(200));
                }
            }
            assert!(batches < batches_max, "the disk must be full by now");
        }
        let (at, filled) = (disk.free(), begun.elapsed().as_secs());
        assert!(batches > 10 && at >= 64, "{batches} batches, {at} MiB are free\n{}", server.log());
        let leased = server.run(&["get", "--groups", "5", "--json"]).json();
        assert_eq!(leased.len(), 5, "reservations go on");
        for lease in &leased {
            server.run(&["renew", lease["token"].as_str().unwrap(), "--lease", "2s"]).ok();
        }
        server.run(&["crawls", "delete", "DEFAULT", "--yes"]).ok();
        let since = Instant::now();
        while put_long(&server, round, 10).is_err() {
            assert!(since.elapsed() < Duration::from_secs(90), "{} MiB are free\n{}", disk.free(), server.log());
            std::thread::sleep(Duration::from_millis(100));
        }
        let (took, after) = (since.elapsed().as_secs_f64(), disk.free());
        println!(
            "seen: round {round}: a disk of {mib} MiB, {} URLs of 1,500 bytes stored in {filled} s, new ones refused at {at} MiB \
             free; all deleted: accepted again after {took:.1} s, {after} MiB free",
            batches * 500
        );
    }
    assert_eq!(server.ended(), None, "{}", server.log());
    let log = server.log();
    assert!(!log.contains("no space left"), "writes were never refused: {log}");
    assert_eq!(server.stop(), 0);
}
