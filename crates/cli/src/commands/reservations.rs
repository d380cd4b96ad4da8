//! `reservations`: those that are not over.

use super::ListArgs;
use crate::output::{self, Table, relative};
use crate::remote::Remote;

/// Lists the reservations that are not over.
///
/// # Errors
/// If the server does not answer.
pub async fn run(remote: &Remote, args: ListArgs) -> anyhow::Result<()> {
    let now = output::now();
    let mut table = Table::new(["group", "host", "holder", "granted", "ends", "urls"]);
    for live in args.collect(remote.client.all_reservations()).await? {
        if remote.json {
            output::json(&live)?;
            continue;
        }
        let (granted, ends) = (relative(live.granted_at, now), relative(live.expires_at, now));
        table.row([live.group, live.host, live.holder, granted, ends, live.urls.to_string()]);
    }
    if remote.json { Ok(()) } else { table.print() }
}
