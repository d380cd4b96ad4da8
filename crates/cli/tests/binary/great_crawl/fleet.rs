//! Workers as tasks that are killed: after every so many visits one of them is aborted, wherever it is (between request
//! and response, in the middle of a page, while its report is in flight), and a new one replaces it.

use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::great_crawl::ledger::Ledger;
use crate::great_crawl::web::scatter;
use crate::prelude::*;

pub const WORKERS: usize = 48;

/// What a worker is given.
#[derive(Clone)]
pub struct Post {
    pub ledger: Arc<Ledger>,
    pub name: String,
    kill_every: usize,
    kill: mpsc::UnboundedSender<()>,
}

impl Post {
    /// Records that visits have begun; every so often this kills a worker.
    pub fn visits(&self, count: usize) {
        let before = self.ledger.visits.fetch_add(count, Ordering::Relaxed);
        if before / self.kill_every != (before + count) / self.kill_every {
            _ = self.kill.send(());
        }
    }
}

/// Runs workers until all of them have learned that the crawl is finished. Returns how many were killed.
pub async fn run<W, F>(ledger: &Arc<Ledger>, kill_every: usize, work: W) -> usize
where
    W: Fn(Post) -> F,
    F: Future<Output = ()> + Send + 'static,
{
    let (kill, mut killings) = mpsc::unbounded_channel();
    let hire = |no: usize| -> JoinHandle<()> {
        let post = Post { ledger: Arc::clone(ledger), name: format!("w{no}"), kill_every, kill: kill.clone() };
        tokio::spawn(work(post))
    };
    let mut workers: Vec<_> = (0..WORKERS).map(hire).collect();
    let mut killed = 0;
    while !workers.is_empty() {
        tokio::select! {
            Some(()) = killings.recv() => {
                let one = (scatter(killed as u64, 1) % workers.len() as u64) as usize;
                workers[one].abort();
                let ended = std::mem::replace(&mut workers[one], hire(WORKERS + killed)).await;
                assert!(ended.is_ok() || ended.is_err_and(|e| e.is_cancelled()), "a worker failed");
                killed += 1;
            }
            ended = futures::future::select_all(workers.iter_mut()) => {
                let (ended, one, _) = ended;
                drop(workers.swap_remove(one));
                ended.unwrap();
            }
        }
    }
    killed
}
