//! Notices a store whose database was copied by the database's own tools, or moved: it is not where it was first opened. A store
//! that [`crate::BulkLoad`] made from another one is not settled anywhere either.
//!
//! Such a store has everything of the original, and may be open beside it. A standby that is promoted has the identity of its
//! primary, and so does every physical copy: those are not noticed here.

use tokio_postgres::{Client, Error};

use crate::open_error::OpenError;
use crate::session;
use crate::target::Target;
use crate::trouble::Trouble;
use crate::vendor;

const NOTE: &str = "INSERT INTO wayleave_place (one, identity) VALUES (true, $1::text) ON CONFLICT (one) DO NOTHING";
const FOUND: &str = "SELECT identity FROM wayleave_place WHERE one";
const SETTLE: &str = "UPDATE wayleave_place SET identity = $1::text WHERE one";
const FORGET: &str = "DELETE FROM wayleave_place WHERE one";
/// A store that was made from another one is nowhere until it is settled.
pub(crate) const NOWHERE: &str =
    "INSERT INTO wayleave_place (one, identity) VALUES (true, '') ON CONFLICT (one) DO UPDATE SET identity = ''";

/// Notes where a store is, if that is not noted yet. Returns whether it was first opened elsewhere, or was made from another one.
pub(crate) async fn is_elsewhere(client: &Client) -> Result<bool, Error> {
    let here = vendor::identity(client).await;
    let noted = match (client.query_opt(FOUND, &[]).await?, &here) {
        (Some(noted), _) => noted,
        (None, Some(here)) => {
            client.execute(NOTE, &[here]).await?;
            client.query_one(FOUND, &[]).await?
        }
        (None, None) => return Ok(false),
    };
    let noted: String = noted.try_get(0)?;
    Ok(noted.is_empty() || here.is_some_and(|here| here != noted))
}

/// Takes the database of a store for its own: [`crate::Postgres::is_elsewhere`] is false from the next open on.
pub async fn settle(url: &str) -> Result<(), OpenError> {
    let target = Target::parse(url)?;
    let client = session::bare(&target).await.map_err(|trouble| OpenError::sort(&target, &trouble))?;
    let settled = match vendor::identity(&client).await {
        Some(here) => client.execute(SETTLE, &[&here]).await,
        None => client.execute(FORGET, &[]).await,
    };
    settled.map(drop).map_err(|error| OpenError::sort(&target, &Trouble::Said(error)))
}
