//! Every scenario against a null server in this process: each must move URLs and report it.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test may panic")]

use clap::Parser;
use wayleave_bench::{BenchArgs, Line, NullServer, measure};

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    args: BenchArgs,
}

async fn lines(extra: &[&str]) -> Vec<Line> {
    let server = NullServer::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = server.address().unwrap().to_string();
    let serving = tokio::spawn(server.serve());
    let mut words =
        vec!["bench", "--address", &address, "--null-address", &address, "--seconds", "0.2", "--rounds", "2"];
    words.extend(["--urls", "1000", "--seed", "7"]);
    words.extend(extra);
    let lines = measure(&Cli::try_parse_from(words).unwrap().args).await.unwrap();
    serving.abort();
    lines
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_scenario_moves_urls_and_reports_its_rate() {
    let lines = lines(&[]).await;
    assert_eq!(lines.len(), 21);
    for line in lines {
        for side in [&line.main, &line.null] {
            let side = side.as_ref().expect("measured");
            assert_eq!(side.error, None, "{}", line.scenario);
            let rate = side.rate().expect("a rate");
            assert!(rate > 50.0, "{}: {rate}", line.scenario);
            let (p50, p99) = (side.percentile_ms(50).expect("p50"), side.percentile_ms(99).expect("p99"));
            assert!(p50 > 0.0 && p50 <= p99, "{}: {p50} {p99}", line.scenario);
        }
        // The same server on both sides.
        let ratio = line.ratio(line.null.as_ref()).expect("a ratio");
        assert!((0.05..20.0).contains(&ratio), "{}: {ratio}", line.scenario);
    }
}

#[tokio::test]
async fn a_missing_server_is_named_by_its_address() {
    let args = Cli::try_parse_from(["bench", "--address", "127.0.0.1:1", "--no-null"]).unwrap().args;
    let error = format!("{:#}", measure(&args).await.unwrap_err());
    assert!(error.contains("127.0.0.1:1") && error.contains("wayleave serve"), "{error}");
}
