//! The commands that make one request and print the response: one file per command.

mod chunk_work;
pub mod chunks;
pub mod crawls;
pub mod fleet;
pub mod get;
pub mod groups;
pub mod hosts;
pub mod jobs;
pub mod map;
pub mod match_client;
mod match_run;
pub mod matches;
pub mod nodes;
mod outcomes;
pub mod pace;
pub mod placements;
mod pool_args;
pub mod pools;
pub mod put;
pub mod release;
pub mod reservations;
pub mod rework;
pub mod roles;
pub mod stats;
pub mod urls;
pub mod why;
mod why_match;

use futures::{Stream, StreamExt};
use wayleave_client::Error;

use crate::exit::Usage;
use crate::values;

/// The default number of rows printed.
const ROWS: usize = 100;

/// How much of a listing to print.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::Args)]
pub struct ListArgs {
    /// Print at most this many
    #[arg(long, default_value_t = ROWS, value_name = "NUMBER", value_parser = values::rows)]
    pub limit: usize,
    /// Print all
    #[arg(long, conflicts_with = "limit")]
    pub all: bool,
}

impl Default for ListArgs {
    fn default() -> Self {
        Self { limit: ROWS, all: false }
    }
}

/// The subcommand, or listing by default. Not by clap's own mechanism, which would also refuse `--json` before a
/// subcommand.
fn or_list<C, L: Default + PartialEq>(command: Option<C>, list: L, lists: impl FnOnce(L) -> C) -> Result<C, Usage> {
    match command {
        None => Ok(lists(list)),
        Some(command) if list == L::default() => Ok(command),
        Some(_) => Err(Usage("options of `list` precede another subcommand: put them after `list`".to_owned())),
    }
}

impl ListArgs {
    /// The first items of a listing; notes on stderr if there are more.
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
