//! Lists all roles, page by page, each with its standbys.

use wayleave_core::limits;
use wayleave_core::names::{self, RoleName};
use wayleave_core::roles::{self as core, Facts, Refusal, RoleView};
use wayleave_engine::Scan;
use wayleave_engine::rows::role;
use wayleave_registry::Subject;

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
    /// The roles after `after`, at most `limit` and never more than 100. Fails if the cursor is invalid, or the store
    /// cannot serve it.
    pub async fn list(&self, after: Option<&str>, limit: usize) -> Result<RolesPage, Refusal> {
        let after = after.map(names::role).transpose().map_err(|_| Refusal::BadCursor)?;
        let after = after.as_deref().unwrap_or_default();
        self.page(after, limit.clamp(1, limits::ROLES_PAGE_MAX)).await
    }

    /// Reads names first, then the roles. A role with a write in flight may not be listed yet, nor skipped if it seems
    /// to be deleted: the registry includes it, and reads it after that write.
    async fn page(&self, after: &str, limit: usize) -> Result<RolesPage, Refusal> {
        let (names, more) = self.names(after, limit).await?;
        let last = names.last().filter(|_| more).cloned();
        let subjects: Vec<Subject> = names.iter().map(store::shown).collect();
        let looks = self.0.registry.look_at_each(&subjects).await.map_err(store::refusal)?;
        let facts: Result<Vec<Facts>, Refusal> =
            names.iter().zip(&looks).map(|(name, look)| store::read(name, look)).collect();
        let mut facts = facts?;
        // A role that was never set up, or was deleted meanwhile, has no row.
        facts.retain(|facts| facts.row.is_some());
        let more = more || facts.len() > limit;
        facts.truncate(limit);
        let roles: Vec<RoleView> = facts.iter().map(core::view).collect();
        // If all names of a page are gone, the next page still begins after them.
        let next = roles.last().map(|view| view.role.to_string()).or_else(|| last.map(|last| last.to_string()));
        Ok(RolesPage { roles, next: next.filter(|_| more) })
    }

    /// The names of a page, and whether there are more. The roles may be deleted or not yet durable.
    async fn names(&self, after: &str, limit: usize) -> Result<(Vec<RoleName>, bool), Refusal> {
        // System roles are not listed.
        let to = role::key(names::SYSTEM_ROLES);
        // The first key after the cursor's; without a cursor, after the origin's, which has an empty name.
        let mut from = role::key(after);
        from.push(0);
        let (keys, more) = self.0.registry.keys(Scan { from, to, limit }).await.map_err(store::refusal)?;
        let names: Result<Vec<RoleName>, _> = keys.iter().map(|key| role::parse_key(key)).collect();
        Ok((names.map_err(|error| Refusal::Corrupt(format!("roles: {error}")))?, more))
    }

    /// The totals over all roles.
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
