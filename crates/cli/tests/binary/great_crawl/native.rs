//! A worker over the native API: reserves groups, fetches, releases with found links. A release after the lease must be
//! refused, and its URLs be offered again.

use futures::future::join_all;
use wayleave_api::Code;
use wayleave_api::reservations::{Outcome, ReleaseReservationRequest, Reservation, ReserveGroupsRequest, UrlResult};
use wayleave_client::Error;

use crate::great_crawl::CRAWL;
use crate::great_crawl::fleet::Post;
use crate::great_crawl::ledger::Held;
use crate::prelude::*;

const LEASE: Duration = Duration::from_millis(500);
const GROUPS: u64 = 3;
const URLS: u64 = 5;

pub async fn work(client: Client, post: Post) {
    let ask = ReserveGroupsRequest {
        groups: GROUPS,
        urls: URLS,
        crawl: Some(CRAWL.to_owned()),
        lease_ms: LEASE.as_millis() as u64,
        wait_ms: 200,
        ..ReserveGroupsRequest::new(post.name.clone())
    };
    loop {
        let asked = Instant::now();
        let reservations = client.reserve(&ask).await.unwrap().reservations;
        let visits = reservations.into_iter().map(|reservation| {
            let held: Vec<_> =
                reservation.urls.iter().map(|url| post.ledger.handed_out(&url.url, asked, LEASE)).collect();
            (reservation, held)
        });
        let visits: Vec<_> = visits.collect();
        if visits.is_empty() {
            let crawl = client.crawl(CRAWL).await.unwrap();
            if crawl.finished {
                return post.ledger.finished();
            }
            post.ledger.be_patient(crawl.waits_for.as_deref());
            continue;
        }
        post.visits(visits.iter().map(|(_, held)| held.len()).sum());
        join_all(visits.iter().map(|(reservation, held)| visit(&client, &post, reservation, held))).await;
    }
}

async fn visit(client: &Client, post: &Post, reservation: &Reservation, held: &[Held]) {
    let web = post.ledger.web;
    let outlasts = held.iter().find(|held| held.outlasts);
    if let Some(slow) = outlasts {
        // The page takes this long.
        tokio::time::sleep_until(slow.over.into()).await;
    }
    let result = |held: &Held| UrlResult {
        status: Some(200),
        found: web
            .links(held.page)
            .into_iter()
            .map(|to| UrlToAdd { url: web.url(to), ..UrlToAdd::default() })
            .collect(),
        ..UrlResult::new(web.url(held.page), Outcome::Fetched)
    };
    let release = ReleaseReservationRequest { results: held.iter().map(result).collect(), ready_at: None };
    held.iter().for_each(|held| post.ledger.reports(held));
    match client.release(&reservation.token, &release).await {
        Ok(told) => {
            assert!(outlasts.is_none(), "a release was taken after its lease: {reservation:?}");
            let found = told.found.unwrap().counts;
            assert_eq!((found.rejected, found.failed), (0, 0), "{found:?}");
            held.iter().for_each(|held| post.ledger.reported(held));
        }
        Err(Error::Refused(problem)) if problem.code() == Some(Code::NotCurrent) => {
            assert!(Instant::now() >= held[0].lives, "refused before its lease was over: {problem:?}");
            post.ledger.late.fetch_add(usize::from(outlasts.is_some()), Ordering::Relaxed);
            post.ledger.refused.fetch_add(1, Ordering::Relaxed);
        }
        Err(error) => panic!("{error}"),
    }
}
