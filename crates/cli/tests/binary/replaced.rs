//! A node whose address leads to another process exits, and says why.

use crate::prelude::*;

/// Many lease times: a node finds out with its next renewal.
const PATIENCE: Duration = Duration::from_secs(60);

fn node(engine: &str, listen: &str, advertise: &str, makers: &Path) -> Server {
    let makers = makers.to_str().unwrap();
    let place = ["--engine", engine, "--listen", listen, "--advertise", advertise, "--makers", makers];
    let mut command = wayleave(&["serve", "--insecure", "--shards", "4", "--node-ttl-ms", "3000"]);
    command.args(place);
    Server::spawn(command)
}

/// The first node was given the address of the second one. The second is reached there, so the first must exit; its
/// service manager and its operator see why.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_whose_address_another_process_has_taken_ends_with_an_error_that_says_so() {
    let engine = Cluster::shared().await.fresh_database().await;
    let free = format!("127.0.0.1:{}", free_port());
    let keep = tempfile::tempdir().unwrap();
    let [of_first, of_second] = ["first", "second"].map(|name| keep.path().join(name));
    let mut first = node(&engine, "127.0.0.1:0", &free, &of_first);
    let second = node(&engine, &free, &free, &of_second);
    let begun = Instant::now();
    while first.ended().is_none() {
        assert!(begun.elapsed() < PATIENCE, "it stays up without shards: {}", first.log());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let (code, log) = first.wait();
    assert_eq!(code, 1, "{log}");
    assert!(log.contains("another process") && log.contains(&free) && log.contains("--advertise"), "{log}");
    assert_eq!(second.stop(), 0, "the other one stays");
}
