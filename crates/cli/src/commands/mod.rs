//! The commands that ask a server one thing and print its answer: one file per command.

pub mod crawls;
pub mod get;
pub mod groups;
pub mod hosts;
pub mod nodes;
pub mod pace;
pub mod put;
pub mod release;
pub mod reservations;
pub mod roles;
pub mod stats;
pub mod urls;
pub mod why;

use futures::{Stream, StreamExt};
use wayleave_client::Error;

/// How much of a listing to print.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct ListArgs {
    /// Print at most this many
    #[arg(long, default_value_t = 100, value_name = "NUMBER")]
    pub limit: usize,
    /// Print all, however many they are
    #[arg(long, conflicts_with = "limit")]
    pub all: bool,
}

impl ListArgs {
    /// The first items of a listing; says on stderr if there are more.
    async fn collect<T>(&self, items: impl Stream<Item = Result<T, Error>>) -> Result<Vec<T>, Error> {
        let most = if self.all { usize::MAX } else { self.limit };
        let mut items = std::pin::pin!(items);
        let mut taken = Vec::new();
        while let Some(item) = items.next().await.transpose()? {
            if taken.len() == most {
                eprintln!("there are more: use --limit or --all");
                break;
            }
            taken.push(item);
        }
        Ok(taken)
    }
}
