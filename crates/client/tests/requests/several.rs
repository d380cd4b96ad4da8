//! The client with the addresses of several nodes: servers with a fixed response, and closed ports.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use wayleave_api::matches::PutMatchQuery;
use wayleave_api::pools::ReportWorkerRequest;
use wayleave_api::roles::HeartbeatRequest;
use wayleave_api::urls::UrlToAdd;
use wayleave_client::{Client, Error, Retry, Waiting};

const SHORT: Retry = Retry { attempts: 3, base: Duration::from_millis(1), max: Duration::from_millis(2) };
const STATS: &str = r#"{"hosts":1,"aliases":0,"crawls":0,"queues":0,"reservations":0,"holds":0,"ready":0,"waiting":0,
    "urls":{"queued":0,"reserved":0,"fetched":0,"gone":0,"failed":0}}"#;
const PROBLEM: &str = "no problem";
/// Longer than a connection may be silent.
const PATIENCE: Duration = Duration::from_secs(120);

/// A server with a fixed response to every request, or none; its address and the number of requests it saw.
async fn saying(status: u16, body: &'static str) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, seen) = (listener.local_addr().unwrap().to_string(), Arc::new(AtomicUsize::new(0)));
    let count = seen.clone();
    tokio::spawn(async move {
        let mut silent = Vec::new();
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut part = [0; 4_096];
            while !part.windows(4).any(|end| end == b"\r\n\r\n") {
                assert_ne!(stream.read(&mut part).await.unwrap(), 0);
            }
            count.fetch_add(1, Ordering::SeqCst);
            if status == 0 {
                silent.push(stream);
                continue;
            }
            let head = format!("HTTP/1.1 {status} X\r\nconnection: close\r\ncontent-length: {}\r\n\r\n", body.len());
            stream.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
            stream.shutdown().await.unwrap();
            // Reads the whole request: closing earlier would discard the response.
            tokio::spawn(async move { while stream.read(&mut part).await.is_ok_and(|count| count > 0) {} });
        }
    });
    (address, seen)
}

/// An address without a listener.
async fn dead() -> String {
    TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().to_string()
}

fn count(seen: &AtomicUsize) -> usize {
    seen.load(Ordering::SeqCst)
}

#[tokio::test]
async fn the_next_attempt_goes_to_the_next_server_and_the_clones_stay_there() {
    let (busy, asked) = saying(503, PROBLEM).await;
    let (well, answered) = saying(200, STATS).await;
    let client = Client::new(&format!("{},{busy},http://{well}", dead().await)).unwrap().with_retry(SHORT);
    let clone = client.clone();
    assert_eq!(client.stats().await.unwrap().hosts, 1);
    clone.stats().await.unwrap();
    assert_eq!((count(&asked), count(&answered)), (1, 2));
    assert_eq!(clone.server(), format!("http://{well}"));
}

#[tokio::test]
async fn the_next_server_is_asked_at_once_and_only_when_all_have_been_asked_is_there_a_pause() {
    let hour = Duration::from_secs(3_600);
    let patient = Retry { attempts: 9, base: hour, max: hour };
    let (well, _) = saying(200, STATS).await;
    let heard = Arc::new(std::sync::Mutex::new(Vec::new()));
    let told = heard.clone();
    let hear = Arc::new(move |waiting: &Waiting<'_>| {
        told.lock().unwrap().push(match waiting {
            Waiting::Next { server, .. } => format!("next {server}"),
            Waiting::Answered { server, .. } => format!("answered {server}"),
            other => format!("{other:?}"),
        });
    });
    let (one, two) = (dead().await, dead().await);
    let client = Client::new(&format!("{one},{two},{well}")).unwrap().with_retry(patient).with_observer(hear);
    let answered = tokio::time::timeout(Duration::from_secs(30), client.stats()).await;
    answered.expect("no pause of an hour").unwrap();
    let want = [format!("next http://{two}"), format!("next http://{well}"), format!("answered http://{well}")];
    assert_eq!(*heard.lock().unwrap(), want);
    let all_dead = Client::new(&format!("{one},{two}")).unwrap().with_retry(patient);
    tokio::time::timeout(Duration::from_millis(500), all_dead.stats()).await.expect_err("it pauses after the last one");
}

#[tokio::test]
async fn a_refusal_by_the_service_stays_where_it_was_said() {
    let (no, asked) = saying(404, PROBLEM).await;
    let (other, never) = saying(200, STATS).await;
    let client = Client::new(&format!("{no},{other}")).unwrap().with_retry(SHORT);
    for _ in 0..2 {
        let error = client.stats().await.expect_err("not found").to_string();
        assert!(error.contains(&no), "{error}");
    }
    assert_eq!((count(&asked), count(&never)), (2, 0));
}

#[tokio::test]
async fn a_heartbeat_is_sent_once_and_the_next_one_goes_to_the_next_server() {
    let request = HeartbeatRequest::new("u");
    let (gateway, asked) = saying(502, PROBLEM).await;
    let (silent, heard) = saying(0, "").await;
    let (well, answered) = saying(200, STATS).await;
    let gone = dead().await;
    let client = Client::new(&format!("{gone},{gateway},{silent},{well}")).unwrap().with_retry(SHORT);
    let mut told = Vec::new();
    for _ in 0..3 {
        told.push(client.heartbeat("r", &request, Duration::from_millis(300)).await.expect_err("no answer"));
    }
    assert_eq!((count(&asked), count(&heard), count(&answered)), (1, 1, 0));
    assert!(matches!(&told[0], Error::Unreachable { server, .. } if server.ends_with(&gone)), "{told:?}");
    assert!(told[1].to_string().contains(&gateway), "{told:?}");
    assert!(matches!(&told[2], Error::Lost { server, .. } if server.ends_with(&silent)), "{told:?}");
    // The response is not a heartbeat's, which is the same everywhere.
    let error = client.heartbeat("r", &request, Duration::from_secs(5)).await.expect_err("nonsense");
    assert!(matches!(error, Error::BadAnswer { .. }) && count(&answered) == 1, "{error}");
    assert_eq!(client.server(), format!("http://{well}"));
}

#[tokio::test]
async fn an_upload_and_a_listing_move_on_too() {
    const SUMMARY: &str = "{\"line\":1,\"status\":\"added\"}\n\
        {\"counts\":{\"added\":1,\"known\":0,\"rejected\":0,\"failed\":0}}\n";
    let (well, answered) = saying(200, SUMMARY).await;
    let client = Client::new(&format!("{},{well}", dead().await)).unwrap().with_retry(SHORT);
    let url = UrlToAdd { url: "http://h/".to_owned(), ..UrlToAdd::default() };
    let uploaded = client.add_lines(None, futures::stream::iter([((), url)]), |(), _| {}).await.unwrap();
    assert_eq!((uploaded.counts.added, count(&answered)), (1, 1));

    let client = Client::new(&format!("{},{well}", dead().await)).unwrap();
    let items = futures::stream::iter([((), wayleave_api::urlfrontier::UrlItem::default())]);
    let error =
        client.clone().with_retry(Retry::NEVER).restore_items(items, |(), _| {}).await.expect_err("nobody there");
    assert!(matches!(error, Error::Unreachable { .. }), "{error}");
    assert_eq!(client.server(), format!("http://{well}"));

    let client = Client::new(&format!("{},{well}", dead().await)).unwrap();
    assert!(client.stream_urls(&Default::default()).await.is_err());
    assert!(client.stream_urls(&Default::default()).await.is_ok());
}

/// A regression: an import waited for ever for a server that had lost power, because nothing ends such a connection.
#[tokio::test]
async fn an_import_leaves_a_server_that_falls_silent() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = Client::new(&listener.local_addr().unwrap().to_string()).unwrap().with_retry(Retry::NEVER);
    let items = futures::stream::iter([((), wayleave_api::urlfrontier::UrlItem::default())]);
    let silent = async {
        let (mut server, _) = listener.accept().await.unwrap();
        // It has begun: from here on only timers can end it, and they need not be waited for.
        assert_ne!(server.read(&mut [0; 4_096]).await.unwrap(), 0);
        tokio::time::pause();
        std::future::pending().await
    };
    let lost = tokio::select! {
        ended = tokio::time::timeout(PATIENCE, client.restore_items(items, |(), _| {})) => {
            ended.expect("it does not wait for ever").unwrap_err()
        }
        () = silent => unreachable!("it stays silent"),
    };
    assert!(matches!(lost, Error::Lost { .. }), "{lost}");
}

/// A regression: a caller that gave up by itself dropped the call before the client noticed, and asked the same server again.
#[tokio::test]
async fn a_server_that_accepts_and_hangs_is_left_for_the_next_one() {
    let (hung, asked) = saying(0, "").await;
    let matched = r#"{"pool":"p","client":"c","state":"queued","reason":"none is free","verified":false,"version":1}"#;
    let (well, answered) = saying(200, matched).await;
    let client = Client::new(&format!("{hung},{well}")).unwrap();
    let query = PutMatchQuery { pool: "p".into(), wait_ms: Some(100) };
    let lost = client.put_match_once("c", &query, Duration::from_millis(100)).await.unwrap_err();
    assert!(matches!(&lost, Error::Lost { server, .. } if server.contains(&hung)), "{lost}");
    assert_eq!((count(&asked), count(&answered)), (1, 0), "once");
    let found = client.put_match_once("c", &query, Duration::from_secs(20)).await.unwrap();
    assert_eq!((found.reason.as_str(), count(&asked), count(&answered)), ("none is free", 1, 1));
}

/// A regression: a pool that was set up anew meanwhile was deleted, a report told what had been free before, and a match that had
/// failed was queued anew, with its reason lost.
#[tokio::test]
async fn what_a_second_time_changes_more_is_not_sent_twice_once_its_answer_is_lost() {
    const UNKNOWN: &str = r#"{"type":"x","title":"x","status":503,"code":"outcome_unknown","detail":"x"}"#;
    const FAILED: &str = r#"{"type":"x","title":"x","status":503,"code":"match_failed","detail":"it broke"}"#;
    let (unsure, lost) = saying(503, UNKNOWN).await;
    let (well, answered) = saying(503, FAILED).await;
    let both = || Client::new(&format!("{unsure},{well}")).unwrap().with_retry(SHORT);
    assert!(both().delete_pool("p").await.unwrap_err().is_outcome_unknown());
    let report = ReportWorkerRequest { address: "h:1".into(), free: 1, run: 1, secret: "s".into() };
    assert!(both().report_worker("p", "w", &report).await.is_err());
    assert_eq!((count(&lost), count(&answered)), (2, 0));
    let query = PutMatchQuery { pool: "p".into(), wait_ms: None };
    let error = both().put_match("c", &query).await.unwrap_err();
    assert_eq!(error.code(), Some(wayleave_api::Code::MatchFailed), "{error}");
    assert_eq!((count(&lost), count(&answered)), (3, 1), "looked, not asked for again");
}
