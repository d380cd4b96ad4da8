//! The client against broken connections and servers that say "later": a server follows a script.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use wayleave_api::placements::SaidOfCopy;
use wayleave_api::reservations::{ReleaseReservationRequest, ReserveGroupsRequest};
use wayleave_api::roles::HeartbeatRequest;
use wayleave_api::urls::{AddResult, AddStatus, AddUrlsRequest, UrlToAdd};
use wayleave_api::{Code, Problem};
use wayleave_client::{Client, Error, Repeat, Retry};

/// What a connection of the scripted server does once the request has arrived.
pub enum Act {
    /// Closes without a response.
    Hang,
    /// Answers with a status and a body.
    Say(u16, String),
    /// Answers with a status, a body and a Retry-After.
    Later(u16, String, u32),
}

pub fn refusal(code: Code) -> Act {
    Act::Say(code.status(), serde_json::to_string(&Problem::new(code, "because")).unwrap())
}

async fn read_request(stream: &mut TcpStream) -> String {
    let mut text = Vec::new();
    loop {
        let mut part = [0; 4_096];
        let count = stream.read(&mut part).await.unwrap();
        text.extend_from_slice(&part[..count]);
        let whole = String::from_utf8_lossy(&text).into_owned();
        let Some((head, body)) = whole.split_once("\r\n\r\n") else { continue };
        let length = head.lines().find_map(|line| line.to_lowercase().strip_prefix("content-length: ")?.parse().ok());
        if count == 0 || body.len() >= length.unwrap_or(0) {
            return whole;
        }
    }
}

/// A server that acts once per request and then is gone; it returns how many requests it saw.
async fn scripted(acts: Vec<Act>) -> (Client, JoinHandle<usize>) {
    let (client, seen) = recorded(acts).await;
    (client, tokio::spawn(async move { seen.await.unwrap().len() }))
}

/// The same; it returns the requests that it saw.
pub async fn recorded(acts: Vec<Act>) -> (Client, JoinHandle<Vec<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = Client::new(&format!("http://{}", listener.local_addr().unwrap())).unwrap();
    let seen = tokio::spawn(async move {
        let mut seen = Vec::new();
        for act in acts {
            let Ok(Ok((mut stream, _))) = tokio::time::timeout(Duration::from_secs(2), listener.accept()).await else {
                break;
            };
            seen.push(read_request(&mut stream).await);
            let (status, body, extra) = match act {
                Act::Hang => continue,
                Act::Say(status, body) => (status, body, String::new()),
                Act::Later(status, body, secs) => (status, body, format!("retry-after: {secs}\r\n")),
            };
            let length = body.len();
            let head = format!("HTTP/1.1 {status} X\r\nconnection: close\r\n{extra}content-length: {length}\r\n\r\n");
            stream.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
        }
        seen
    });
    let retry = Retry { attempts: 3, base: Duration::from_millis(1), max: Duration::from_millis(2) };
    (client.with_retry(retry), seen)
}

const STATS: &str = r#"{"hosts":1,"aliases":0,"crawls":0,"queues":0,"reservations":0,"holds":0,"ready":0,"waiting":0,
    "urls":{"queued":0,"reserved":0,"fetched":0,"gone":0,"failed":0}}"#;

#[tokio::test]
async fn a_call_that_changes_nothing_is_sent_again_after_a_lost_answer() {
    let (client, seen) = scripted(vec![Act::Hang, refusal(Code::Unavailable), Act::Say(200, STATS.into())]).await;
    assert_eq!(client.stats().await.unwrap().hosts, 1);
    assert_eq!(seen.await.unwrap(), 3);
}

#[tokio::test]
async fn attempts_are_bounded_and_the_last_problem_is_told() {
    let busy = || refusal(Code::Overloaded);
    let (client, seen) = scripted(vec![busy(), busy(), busy(), Act::Say(200, STATS.into())]).await;
    let error = client.stats().await.expect_err("busy");
    assert_eq!((error.code(), error.problem().unwrap().detail.as_str()), (Some(Code::Overloaded), "because"));
    assert_eq!(seen.await.unwrap(), 3);
}

#[tokio::test]
async fn the_servers_retry_after_is_honoured() {
    let problem = serde_json::to_string(&Problem::new(Code::Overloaded, "busy")).unwrap();
    let (client, _seen) = scripted(vec![Act::Later(429, problem, 1), Act::Say(200, STATS.into())]).await;
    let started = std::time::Instant::now();
    client.stats().await.unwrap();
    assert!(started.elapsed() >= Duration::from_secs(1));
}

#[tokio::test]
async fn a_refusal_for_good_is_not_tried_again() {
    let (client, seen) = scripted(vec![refusal(Code::UnknownHost), Act::Say(200, "{}".into())]).await;
    assert_eq!(client.host("a.example").await.expect_err("unknown").code(), Some(Code::UnknownHost));
    drop(client);
    assert_eq!(seen.await.unwrap(), 1);
}

#[tokio::test]
async fn a_reservation_whose_answer_was_lost_is_sent_again_unless_the_caller_forbids_it() {
    let granted = || Act::Say(200, r#"{"reservations":[]}"#.into());
    let request = ReserveGroupsRequest::new("me");
    let (client, _) = scripted(vec![Act::Hang, granted()]).await;
    assert!(matches!(client.reserve_with(&request, Repeat::IfNotDone).await, Err(Error::Lost { .. })));
    let (client, seen) = scripted(vec![Act::Hang, granted()]).await;
    client.reserve(&request).await.unwrap();
    assert_eq!(seen.await.unwrap(), 2);
    // A server that said "later" has reserved nothing.
    let (client, seen) = scripted(vec![refusal(Code::Overloaded), granted()]).await;
    client.reserve(&request).await.unwrap();
    assert_eq!(seen.await.unwrap(), 2);
    let (client, seen) = scripted(vec![refusal(Code::OutcomeUnknown), granted()]).await;
    client.reserve(&request).await.unwrap();
    assert_eq!(seen.await.unwrap(), 2);
    let (client, _) = scripted(vec![refusal(Code::OutcomeUnknown), granted()]).await;
    let unknown = client.reserve_with(&request, Repeat::IfNotDone).await.expect_err("unknown");
    assert_eq!(unknown.code(), Some(Code::OutcomeUnknown));
}

#[tokio::test]
async fn a_release_refused_after_a_lost_answer_is_told_apart() {
    let request = ReleaseReservationRequest::default();
    let (client, _) = scripted(vec![Act::Hang, refusal(Code::NotCurrent)]).await;
    let error = client.release("token", &request).await.expect_err("not current");
    assert!(matches!(error, Error::PerhapsReleased(_)), "{error}");
    let (client, _) = scripted(vec![refusal(Code::NotCurrent)]).await;
    let error = client.release("token", &request).await.expect_err("not current");
    assert!(matches!(error, Error::Refused(_)), "{error}");
}

#[tokio::test]
async fn a_heartbeat_is_sent_once_and_given_up_in_time() {
    let request = HeartbeatRequest::new("u");
    let (client, seen) = scripted(vec![Act::Hang]).await;
    let error = client.heartbeat("r", &request, Duration::from_secs(5)).await.expect_err("lost");
    assert!(error.is_outcome_unknown(), "{error}");
    assert_eq!(seen.await.unwrap(), 1);
    let (client, seen) = scripted(vec![refusal(Code::Unavailable)]).await;
    let error = client.heartbeat("r", &request, Duration::from_secs(5)).await.expect_err("unavailable");
    assert_eq!((error.code(), seen.await.unwrap()), (Some(Code::Unavailable), 1));
    // A server that accepts the connection and does not respond.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = Client::new(&format!("http://{}", listener.local_addr().unwrap())).unwrap();
    let started = std::time::Instant::now();
    let error = client.heartbeat("r", &request, Duration::from_millis(50)).await.expect_err("too slow");
    assert!(error.is_outcome_unknown() && started.elapsed() < Duration::from_secs(5), "{error}");
}

#[tokio::test]
async fn a_role_released_by_a_lost_answer_is_told_apart() {
    let (client, _) = scripted(vec![Act::Hang, refusal(Code::NotTheTerm)]).await;
    let error = client.release_role("r", "u", Some("token")).await.expect_err("not the term");
    assert!(matches!(error, Error::PerhapsReleased(_)), "{error}");
}

#[tokio::test]
async fn a_server_that_is_not_there_is_unreachable() {
    let (client, seen) = scripted(vec![]).await;
    seen.await.unwrap();
    let error = client.stats().await.expect_err("nobody listens");
    assert!(matches!(error, Error::Unreachable { .. }), "{error}");
    assert!(!error.is_outcome_unknown());
}

/// Accepts `lines` lines, answers those named, then either ends cleanly, having omitted the other results, or closes.
async fn take_lines(listener: &TcpListener, lines: usize, answered: &[usize], ends: bool) -> Vec<String> {
    let (mut stream, _) = listener.accept().await.unwrap();
    let mut text = String::new();
    let urls = |text: &str| -> Vec<String> {
        let urls = text.split("{\"url\":\"").skip(1);
        urls.filter_map(|rest| rest.split_once("}\n")?.0.split_once('"').map(|(url, _)| url.to_owned())).collect()
    };
    while urls(&text).len() < lines {
        let mut part = [0; 4_096];
        let count = stream.read(&mut part).await.unwrap();
        assert_ne!(count, 0, "the client gave up: {text}");
        text.push_str(std::str::from_utf8(&part[..count]).unwrap());
    }
    let got = urls(&text);
    stream.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n").await.unwrap();
    for number in answered {
        let line = format!("{{\"line\":{number},\"status\":\"added\"}}\n");
        stream.write_all(format!("{:x}\r\n{line}\r\n", line.len()).as_bytes()).await.unwrap();
    }
    if ends {
        let omitted = lines - answered.len();
        let line =
            format!("{{\"counts\":{{\"added\":0,\"known\":0,\"rejected\":0,\"failed\":0}},\"omitted\":{omitted}}}\n");
        stream.write_all(format!("{:x}\r\n{line}\r\n0\r\n\r\n", line.len()).as_bytes()).await.unwrap();
    }
    got
}

/// Uploads five lines to a server that takes them as the script says: lines, those answered, and whether it ends cleanly.
/// Returns what each connection got, and the results by line.
async fn upload(script: &'static [(usize, &[usize], bool)]) -> (Vec<Vec<String>>, Vec<u32>, u64) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = Client::new(&format!("http://{}", listener.local_addr().unwrap())).unwrap();
    let server = tokio::spawn(async move {
        let mut got = Vec::new();
        for (lines, answered, ends) in script {
            got.push(take_lines(&listener, *lines, answered, *ends).await);
        }
        got
    });
    let url = |n: u32| (n, UrlToAdd { url: format!("http://h/{n}"), ..UrlToAdd::default() });
    let mut told = Vec::new();
    let done = client.add_lines(None, futures::stream::iter((1..=5).map(url)), |tag, result: AddResult| {
        assert_eq!(result.status, AddStatus::Added);
        told.push(tag);
    });
    let uploaded = tokio::time::timeout(Duration::from_secs(20), done).await.expect("it hangs").unwrap();
    assert_eq!(uploaded.counts.added, 5);
    (server.await.unwrap(), told, uploaded.resent)
}

fn urls(numbers: &[u32]) -> Vec<String> {
    numbers.iter().map(|n| format!("http://h/{n}")).collect()
}

#[tokio::test]
async fn an_upload_goes_on_from_the_first_line_without_a_result() {
    let (got, told, resent) = upload(&[(5, &[1, 2], false), (3, &[1, 2, 3], true)]).await;
    assert_eq!(got, [urls(&[1, 2, 3, 4, 5]), urls(&[3, 4, 5])]);
    assert_eq!((told, resent), (vec![1, 2, 3, 4, 5], 3));
}

/// A regression: results were paired in the order in which they came, so line 1 got the result of line 2 and was lost.
#[tokio::test]
async fn a_result_belongs_to_the_line_that_it_names_and_lines_without_one_are_sent_again() {
    for cleanly in [false, true] {
        let script: &[(usize, &[usize], bool)] = if cleanly {
            &[(5, &[2, 4], true), (3, &[1, 2, 3], true)]
        } else {
            &[(5, &[2, 4], false), (3, &[1, 2, 3], true)]
        };
        let (got, told, resent) = upload(script).await;
        assert_eq!(got, [urls(&[1, 2, 3, 4, 5]), urls(&[1, 3, 5])]);
        assert_eq!((told, resent), (vec![2, 4, 1, 3, 5], 3));
    }
}

#[tokio::test]
async fn a_result_of_a_line_that_was_not_sent_is_no_result() {
    for answered in [&[1, 1][..], &[9], &[0]] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = Client::new(&format!("http://{}", listener.local_addr().unwrap())).unwrap();
        tokio::spawn(async move { take_lines(&listener, 1, answered, true).await });
        let url = UrlToAdd { url: "http://h/1".into(), ..UrlToAdd::default() };
        let done = client.add_lines(None, futures::stream::iter([((), url)]), |(), _| {}).await;
        assert!(matches!(done, Err(Error::BadAnswer { .. })), "{answered:?}: {done:?}");
    }
}

/// What a second time would change: the next primary, newer reservations, counts.
#[tokio::test]
async fn what_is_not_idempotent_is_not_sent_again_and_the_remedy_is_told() {
    type Made<'a> = std::pin::Pin<Box<dyn Future<Output = Result<(), Error>> + 'a>>;
    type Make = for<'a> fn(&'a Client) -> Made<'a>;
    let calls: [(&str, Make); 12] = [
        ("requeue", |client| Box::pin(async { client.add_urls(&requeue()).await.map(drop) })),
        ("step down", |client| Box::pin(async { client.step_down_role("r").await.map(drop) })),
        ("revoke", |client| Box::pin(async { client.revoke(&Default::default()).await.map(drop) })),
        ("delete a role", |client| Box::pin(async { client.delete_role("r").await })),
        ("delete an alias", |client| Box::pin(async { client.delete_group("g").await })),
        ("delete a queue", |client| Box::pin(async { client.delete_queue("h", "c").await.map(drop) })),
        ("delete a crawl", |client| Box::pin(async { client.delete_crawl("c").await.map(drop) })),
        ("purge", |client| Box::pin(async { client.purge_crawl("c", &Default::default()).await.map(drop) })),
        ("delete URLs", |client| Box::pin(async { client.delete_urls(&Default::default()).await.map(drop) })),
        ("retry a chunk", |client| Box::pin(async { client.retry_chunk("1").await.map(drop) })),
        ("a copy is gone", |client| Box::pin(copy_is(client, SaidOfCopy::Gone))),
        ("a copy cannot be kept", |client| Box::pin(copy_is(client, SaidOfCopy::Unable))),
    ];
    for (name, call) in calls {
        for act in [Act::Hang, refusal(Code::OutcomeUnknown)] {
            // A second request would find no server.
            let (client, _) = scripted(vec![act]).await;
            let error = call(&client).await.expect_err(name);
            assert!(matches!(error, Error::OutcomeUnknown { .. }) && error.is_outcome_unknown(), "{name}: {error}");
            assert!(!error.is_transient() && error.to_string().contains("was not sent again: "), "{name}: {error}");
        }
        // A server that changed nothing is asked again.
        let (client, seen) = scripted(vec![refusal(Code::Unavailable), refusal(Code::BadValue)]).await;
        assert_eq!(call(&client).await.expect_err(name).code(), Some(Code::BadValue), "{name}");
        assert_eq!(seen.await.unwrap(), 2, "{name}");
    }
}

async fn copy_is(client: &Client, state: SaidOfCopy) -> Result<(), Error> {
    client.report_placement("1", "s", (state, None), None).await.map(drop)
}

fn again(n: u32) -> (u32, UrlToAdd) {
    (n, UrlToAdd { url: format!("http://h/{n}"), again: true, ..UrlToAdd::default() })
}

fn requeue() -> AddUrlsRequest {
    AddUrlsRequest { crawl: None, urls: vec![again(1).1] }
}

#[tokio::test]
async fn lines_that_requeue_are_not_sent_again_once_they_may_have_been_applied() {
    for (answered, ends) in [(&[2][..], false), (&[2], true)] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = Client::new(&format!("http://{}", listener.local_addr().unwrap())).unwrap();
        tokio::spawn(async move { take_lines(&listener, 3, answered, ends).await });
        let mut told = Vec::new();
        let lines = futures::stream::iter((1..=3).map(again));
        let done = client.add_lines(None, lines, |tag, result: AddResult| told.push((tag, result.status, result.url)));
        let uploaded = tokio::time::timeout(Duration::from_secs(20), done).await.expect("it hangs").unwrap();
        assert_eq!((uploaded.counts.added, uploaded.counts.failed, uploaded.resent), (1, 2, 0));
        told.sort_unstable_by_key(|(tag, ..)| *tag);
        assert_eq!(told[0], (1, AddStatus::Failed, Some("http://h/1".to_owned())));
        assert_eq!((told[1].1, told[2].1), (AddStatus::Added, AddStatus::Failed));
    }
}

#[tokio::test]
async fn a_listing_that_is_cut_never_looks_whole() {
    use futures::StreamExt;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = Client::new(&format!("http://{}", listener.local_addr().unwrap())).unwrap();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        read_request(&mut stream).await;
        let line = "{\"url\":\"http://a/\",\"host\":\"a\",\"crawl\":\"DEFAULT\",\"state\":\"queued\",\"due_at\":null,\
            \"held_until\":null,\"created_at\":\"2026-11-15T00:00:00Z\",\"priority\":5,\"depth\":0,\"attempts\":0,\
            \"last\":null,\"metadata\":{}}\n";
        let text = format!("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n{:x}\r\n{line}\r\n", line.len());
        stream.write_all(text.as_bytes()).await.unwrap();
    });
    let urls: Vec<_> = client.stream_urls(&Default::default()).await.unwrap().collect().await;
    assert_eq!(urls[0].as_ref().unwrap().host, "a");
    assert!(matches!(urls[1], Err(Error::Lost { .. })), "{:?}", urls[1]);
}

/// A regression: a copy, or the first call of an export, waited without end for a server that had stopped.
#[tokio::test]
async fn a_server_that_stops_sending_is_given_up() {
    use futures::StreamExt;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = Client::new(&format!("http://{}", listener.local_addr().unwrap())).unwrap();
    let server = tokio::spawn(async move {
        let (mut first, _) = listener.accept().await.unwrap();
        read_request(&mut first).await;
        first.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n").await.unwrap();
        // The second one is accepted, and never answered.
        let second = listener.accept().await.unwrap();
        std::future::pending::<()>().await;
        drop((first, second));
    });
    let mut pieces = std::pin::pin!(client.snapshot(false).await.unwrap());
    assert_eq!(pieces.next().await.unwrap().unwrap(), "abc");
    let mut door = client.urlfrontier().await.unwrap();
    // From here on time passes as soon as nothing else happens.
    tokio::time::pause();
    let begun = tokio::time::Instant::now();
    let error = pieces.next().await.unwrap().expect_err("silent");
    assert!(error.to_string().contains("it has sent nothing for 60 s"), "{error}");
    assert!(pieces.next().await.is_none());
    let active = door.get_active(wayleave_api::urlfrontier::Local { local: false });
    tokio::time::timeout(Duration::from_secs(600), active).await.expect("it hangs").expect_err("no answer");
    println!("seen: given up {:?} after the last answer", begun.elapsed());
    server.abort();
}

/// A regression: a partial copy was given up after a minute, while the server counted what a large damaged store has left.
#[tokio::test]
async fn a_partial_copy_is_waited_for_while_the_server_counts() {
    use futures::StreamExt;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = Client::new(&format!("http://{}", listener.local_addr().unwrap())).unwrap();
    let (count, counted) = tokio::sync::oneshot::channel();
    let server = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        read_request(&mut stream).await;
        stream.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n").await.unwrap();
        counted.await.unwrap();
        stream.write_all(b"3\r\nabc\r\n0\r\n\r\n").await.unwrap();
    });
    let mut pieces = std::pin::pin!(client.snapshot(true).await.unwrap());
    tokio::time::pause();
    let early = tokio::time::timeout(Duration::from_secs(3_600), pieces.next()).await;
    assert!(early.is_err(), "{early:?}");
    tokio::time::resume();
    count.send(()).unwrap();
    assert_eq!(pieces.next().await.unwrap().unwrap(), "abc");
    server.await.unwrap();
}
