//! `placements`: the copies of built chunks on index servers.

use wayleave_api::placements::{CopyState, ListPlacementsQuery};

use super::ListArgs;
use crate::output::{self, or_dash, size, word};
use crate::remote::Remote;
use crate::values::{self, words};

/// Arguments of `placements`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = HELP)]
pub struct Args {
    /// Only those on this index server
    #[arg(long, value_name = "MACHINE", value_parser = values::name)]
    on: Option<String>,
    /// Only those in this row, 0 to 63
    #[arg(long, value_parser = values::between::<u8>(0, 63))]
    row: Option<u8>,
    /// Only those in this state
    #[arg(long, value_enum)]
    state: Option<StateArg>,
    #[command(flatten)]
    page: ListArgs,
}

const HELP: &str = "\
Every row of index servers holds one copy of every built chunk. A copy is assigned to a server, which fetches it and reports it
ready; a copy that is no longer wanted is draining until its server has deleted it.

Examples:
  wayleave placements                            the first hundred copies, by server and chunk, with reason
  wayleave placements --on index-1 --all         all that one server holds or should fetch
  wayleave placements --row 0 --state assigned   what nobody has begun to fetch
  wayleave chunks show 281474976710657           all copies of one chunk";

words! {
    /// The state of a copy.
    StateArg = CopyState {
        /// The server should fetch it
        Assigned,
        /// The server fetches it
        Fetching,
        /// The server has it
        Ready,
        /// The server should delete it
        Draining,
    }
}

/// Lists the copies.
pub async fn run(remote: &Remote, args: Args) -> anyhow::Result<()> {
    let Args { on: server, row, state, page } = args;
    let (row, state) = (row.map(u64::from), state.map(CopyState::from));
    let query = ListPlacementsQuery { server, row, state, ..ListPlacementsQuery::default() };
    let copies = page.collect(remote.client.all_placements(query)).await?;
    output::list(remote.json, ["chunk", "server", "row", "state", "size", "sources", "reason"], &copies, |copy| {
        [
            copy.chunk.clone(),
            copy.server.clone(),
            copy.row.to_string(),
            word(copy.state),
            or_dash(copy.artifact.as_ref().map(|artifact| size(artifact.bytes))),
            copy.sources.len().to_string(),
            copy.reason.clone(),
        ]
    })
}
