//! Notices a store whose database was copied by the database's own tools, or moved: it is not where it was first opened.
//!
//! Such a store has everything of the original, and may be open beside it. A standby that is promoted has the identity of its
//! primary, and so does every physical copy: those are not noticed here.

use tokio_postgres::{Client, Error};

use crate::link;
use crate::open_error::OpenError;
use crate::target::Target;
use crate::trouble::Trouble;
use crate::vendor;

const NOTE: &str = "INSERT INTO wayleave_place (one, identity) VALUES (true, $1::text) ON CONFLICT (one) DO NOTHING";
const FOUND: &str = "SELECT identity FROM wayleave_place WHERE one";
const SETTLE: &str = "UPDATE wayleave_place SET identity = $1::text WHERE one";

/// Notes where a store is, if that is not noted yet. Returns whether it was first opened elsewhere.
pub(crate) async fn is_elsewhere(client: &Client) -> Result<bool, Error> {
    let Some(here) = vendor::identity(client).await else { return Ok(false) };
    let noted = match client.query_opt(FOUND, &[]).await? {
        Some(noted) => noted,
        None => {
            client.execute(NOTE, &[&here]).await?;
            client.query_one(FOUND, &[]).await?
        }
    };
    Ok(noted.try_get::<_, String>(0)? != here)
}

/// Takes the database of a store for its own: [`crate::Postgres::is_elsewhere`] is false from the next open on.
///
/// # Errors
/// If the database cannot be used.
pub async fn settle(url: &str) -> Result<(), OpenError> {
    let target = Target::parse(url)?;
    let client = link::bare(&target).await.map_err(|trouble| OpenError::sort(&target, &trouble))?;
    let Some(here) = vendor::identity(&client).await else { return Ok(()) };
    let settled = client.execute(SETTLE, &[&here]).await;
    settled.map(drop).map_err(|error| OpenError::sort(&target, &Trouble::Said(error)))
}
