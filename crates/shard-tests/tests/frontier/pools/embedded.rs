//! The same on the embedded store, in real time: a crowd, restarts, and what is found afterwards.

use std::path::Path;

use wayleave_engine_fjall::{Fjall, Options};

use super::*;
use crate::prelude::*;

async fn open_at(path: &Path) -> (Arc<Fjall>, Frontier) {
    let engine = Arc::new(Fjall::open(path, Options { shards: 2, ..Options::default() }).unwrap());
    let runtime = tokio::runtime::Handle::current();
    let frontier = Frontier::open(engine.clone(), Config::new(2), &runtime).await.unwrap();
    (engine, frontier)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crowd_is_matched_and_found_again_on_the_embedded_store() {
    let folder = tempfile::tempdir().unwrap();
    let site = Site::new("s");
    let mut shown: Option<Vec<_>> = None;
    for round in 0..3 {
        let (engine, frontier) = open_at(folder.path()).await;
        let matches = Matches::new(frontier.clone());
        if round == 0 {
            let spec = PoolSpec { slots: Some(10), max: Some(10), makers_max: Some(100), ..spec() };
            matches.set_pool(pool(), settings(spec)).await.unwrap();
        }
        let (page, _) = matches.matches(&pool(), Some(MatchStage::Matched), None, 200).await.unwrap();
        let found: Vec<_> = page.into_iter().map(|(client, view)| (client, view.version, view.matched)).collect();
        assert_eq!(*shown.get_or_insert(found.clone()), found, "what was answered is found again");
        let maker = site.serve(&matches);
        super::crowd(&matches, &site, 100).await;
        maker.end().await;
        let (page, _) = matches.matches(&pool(), Some(MatchStage::Matched), None, 200).await.unwrap();
        shown = Some(page.into_iter().map(|(client, view)| (client, view.version, view.matched)).collect());
        frontier.stop().await;
        drop((frontier, matches));
        // Tasks that have ended may not be dropped yet, and the folder has one owner at a time.
        while Arc::strong_count(&engine) > 1 {
            tokio::task::yield_now().await;
        }
    }
    assert_eq!(site.workers(), 10, "workers are adopted, not started anew");
}
