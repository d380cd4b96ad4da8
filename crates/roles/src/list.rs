//! All roles, page by page, each with its standbys.

use wayleave_core::limits;
use wayleave_core::names;
use wayleave_core::roles::{self as core, Facts, Refusal, RoleRow, RoleView, StandbyRow};
use wayleave_core::wire::Damaged;
use wayleave_engine::rows::{Kind, key as keys, role, standby};
use wayleave_engine::{Error, Row, Scan};

use crate::Roles;
use crate::counters::Totals;
use crate::store;

/// One page of roles.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RolesPage {
    /// The roles, by name.
    pub roles: Vec<RoleView>,
    /// Where the next page starts, if there is one.
    pub next: Option<String>,
}

impl Roles {
    /// The roles from the one after `after`, at most `limit` and never more than 100.
    ///
    /// # Errors
    /// If the cursor is not one, or the store cannot serve it.
    pub async fn list(&self, after: Option<&str>, limit: usize) -> Result<RolesPage, Refusal> {
        let after = after.map(names::role).transpose().map_err(|_| Refusal::BadCursor)?;
        let _settled = self.0.settled().await;
        let listed = self.page(after.as_deref().unwrap_or_default(), limit.clamp(1, limits::ROLES_PAGE_MAX)).await;
        listed.map_err(|error| store::refusal(error, false))
    }

    async fn page(&self, after: &str, limit: usize) -> Result<RolesPage, Error> {
        let (_, to) = keys::range(keys::OUTSIDE, Kind::Role, Kind::Role);
        // The first key after the cursor's; without one, after the origin's, which has no name.
        let mut from = role::key(after);
        from.push(0);
        let roles = self.0.engine.look(&[Scan { from, to, limit: limit + 1 }]).await?;
        let rows = roles.rows.into_iter().next().unwrap_or_default();
        let more = rows.len() > limit;
        let rows: Vec<(names::RoleName, RoleRow)> =
            rows.iter().take(limit).map(read_role).collect::<Result<_, _>>().map_err(damaged)?;
        let scans: Vec<Scan> = rows.iter().map(|(name, _)| standby::scan(name, limits::STANDBYS_READ)).collect();
        // The later time counts for both: a term that ended in between is over.
        let look = self.0.engine.look(&scans).await?;
        let mut views = Vec::with_capacity(rows.len());
        for ((name, row), standbys) in rows.into_iter().zip(look.rows) {
            let standbys: Result<Vec<StandbyRow>, _> = standbys.iter().map(|row| standby::decode(&row.value)).collect();
            let facts = Facts {
                role: name,
                row: Some(row),
                standbys: standbys.map_err(damaged)?,
                origin: None,
                now: look.now,
                incarnation: look.incarnation,
                stepped_at: look.stepped_at,
            };
            views.push(core::view(&facts));
        }
        let next = views.last().filter(|_| more).map(|view| view.role.to_string());
        Ok(RolesPage { roles: views, next })
    }

    /// How the roles stand, over all of them.
    ///
    /// # Errors
    /// If the store cannot serve it.
    pub async fn totals(&self) -> Result<Totals, Refusal> {
        let mut totals = Totals::default();
        let mut after = None;
        loop {
            let page = self.list(after.as_deref(), limits::ROLES_PAGE_MAX).await?;
            for role in &page.roles {
                let ready = role.standbys.iter().filter(|standby| standby.ready).count() as u64;
                totals.roles += 1;
                totals.primaries += u64::from(role.primary.is_some());
                totals.standbys_ready += ready;
                totals.standbys_not_ready += role.standbys.len() as u64 - ready;
                totals.unguarded += u64::from(role.primary.is_some() && ready == 0);
            }
            after = page.next;
            if after.is_none() {
                return Ok(totals);
            }
        }
    }
}

fn read_role(row: &Row) -> Result<(names::RoleName, RoleRow), Damaged> {
    Ok((role::parse_key(&row.key)?, role::decode(&row.value)?))
}

fn damaged(error: Damaged) -> Error {
    Error::Corrupt(format!("roles: {error}"))
}
