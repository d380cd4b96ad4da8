//! Lists all roles, page by page, each with its standbys.

use wayleave_core::limits;
use wayleave_core::names::{self, RoleName};
use wayleave_core::roles::{self as core, Refusal, RoleView};
use wayleave_engine::rows::{Kind, key as keys, role};
use wayleave_engine::{Error, Scan};

use crate::Roles;
use crate::counters::Totals;
use crate::store;

/// One page of roles.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RolesPage {
    /// The roles, by name.
    pub roles: Vec<RoleView>,
    /// The cursor of the next page, if there is one.
    pub next: Option<String>,
}

impl Roles {
    /// The roles after `after`, at most `limit` and never more than 100.
    ///
    /// # Errors
    /// If the cursor is invalid, or the store cannot serve it.
    pub async fn list(&self, after: Option<&str>, limit: usize) -> Result<RolesPage, Refusal> {
        let after = after.map(names::role).transpose().map_err(|_| Refusal::BadCursor)?;
        let after = after.as_deref().unwrap_or_default();
        self.page(after, limit.clamp(1, limits::ROLES_PAGE_MAX)).await
    }

    /// Reads names first, then the roles. A role with a write in flight may not be listed yet, nor skipped if it seems
    /// to be deleted: it is read individually, after that write. All others are read together, and only those are
    /// locked meanwhile, so a listing that waits for one role blocks no other.
    async fn page(&self, after: &str, limit: usize) -> Result<RolesPage, Refusal> {
        let refused = |error| store::refusal(error, false);
        let mut written = self.0.locks.being_written();
        let (mut names, more) = self.names(after, limit).await.map_err(refused)?;
        written.extend(self.0.locks.being_written());
        let last = names.last().filter(|_| more).cloned();
        let within = |name: &RoleName| **name > *after && last.as_ref().is_none_or(|last| name <= last);
        names.extend(written.into_iter().filter(within));
        names.sort_unstable();
        names.dedup();
        let mut facts = Vec::with_capacity(names.len());
        let mut busy = Vec::new();
        let mut settled = Vec::with_capacity(names.len());
        for name in names {
            match self.0.locks.try_read(&name) {
                Some(reading) => settled.push((name, reading)),
                None => busy.push(name),
            }
        }
        let free: Vec<RoleName> = settled.iter().map(|(name, _)| name.clone()).collect();
        facts.extend(store::look_many(&*self.0.engine, &free).await.map_err(refused)?);
        drop(settled);
        for name in busy {
            facts.push(self.0.look(&name).await?.facts);
        }
        // A role that was never set up, or was deleted meanwhile, has no row.
        facts.retain(|facts| facts.row.is_some());
        facts.sort_unstable_by(|a, b| a.role.cmp(&b.role));
        let more = more || facts.len() > limit;
        facts.truncate(limit);
        let roles: Vec<RoleView> = facts.iter().map(core::view).collect();
        // If all names of a page are gone, the next page still begins after them.
        let next = roles.last().map(|view| view.role.to_string()).or_else(|| last.map(|last| last.to_string()));
        Ok(RolesPage { roles, next: next.filter(|_| more) })
    }

    /// The names of a page, and whether there are more. The roles may be deleted or not yet durable.
    async fn names(&self, after: &str, limit: usize) -> Result<(Vec<RoleName>, bool), Error> {
        let (_, to) = keys::range(keys::OUTSIDE, Kind::Role, Kind::Role);
        // The first key after the cursor's; without a cursor, after the origin's, which has an empty name.
        let mut from = role::key(after);
        from.push(0);
        let look = self.0.engine.look(&[Scan { from, to, limit: limit + 1 }]).await?;
        let rows = look.rows.into_iter().next().unwrap_or_default();
        let names: Result<Vec<RoleName>, _> = rows.iter().take(limit).map(|row| role::parse_key(&row.key)).collect();
        let names = names.map_err(|error| Error::Corrupt(format!("roles: {error}")))?;
        Ok((names, rows.len() > limit))
    }

    /// The totals over all roles.
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
