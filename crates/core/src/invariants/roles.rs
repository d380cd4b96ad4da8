//! Law 6, for roles: checked on a history, and on a single transition of a row.

use std::collections::BTreeMap;

use super::{Span, Verdict, judge};
use crate::ids::Epoch;
use crate::names::{RoleName, Uuid};
use crate::roles::{RoleRow, Runs, Term};
use crate::time::Time;

const LAW: u8 = 6;
const NAME: &str = "one primary";

/// A term as its holder saw it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tenure {
    /// The role.
    pub role: RoleName,
    /// The term's epoch.
    pub epoch: Epoch,
    /// The primary.
    pub holder: Uuid,
    /// From the grant to the release, else to the last deadline granted, by the store's time.
    pub span: Span,
}

/// At most one holder per role and epoch, epochs only grow, and no term starts while another is live. The error is the
/// term that should not have been.
pub fn one_primary(tenures: &[Tenure]) -> Verdict {
    let mut roles: BTreeMap<&str, Vec<&Tenure>> = BTreeMap::new();
    for tenure in tenures {
        roles.entry(&tenure.role).or_default().push(tenure);
    }
    for (role, mut tenures) in roles {
        tenures.sort_by_key(|tenure| (tenure.span.start, tenure.epoch));
        for pair in tenures.windows(2) {
            let [a, b] = pair else { continue };
            judge(LAW, NAME, a.epoch < b.epoch, || format!("role '{role}': epochs do not grow from {a:?} to {b:?}"))?;
            judge(LAW, NAME, a.span.end <= b.span.start, || format!("role '{role}': {b:?} began while {a:?} lived"))?;
        }
    }
    Ok(())
}

/// Whether one role row may follow another at a store time. The error says what the step breaks.
pub fn lawful_step(before: Option<&RoleRow>, after: Option<&RoleRow>, now: Time) -> Verdict {
    let Some(before) = before else { return Ok(()) };
    let lives = before.live(now);
    let Some(after) = after else {
        return judge(LAW, NAME, lives.is_none(), || format!("a role was deleted while {lives:?} lived"));
    };
    let grows = after.version > before.version && after.epoch >= before.epoch;
    judge(LAW, NAME, grows, || format!("version or epoch went back from {before:?} to {after:?}"))?;
    let slots = Runs::may_become(before, after);
    judge(LAW, NAME, slots, || format!("slots changed otherwise than by a release, from {before:?} to {after:?}"))?;
    match (&before.term, &after.term) {
        (Some(old), Some(new)) if old.epoch == new.epoch => {
            let same = old.holder.uuid == new.holder.uuid && old.token == new.token;
            judge(LAW, NAME, same, || format!("epoch {} has two holders: {old:?} and {new:?}", old.epoch.0))?;
            let kept = new.expires_at >= old.expires_at;
            judge(LAW, NAME, kept, || format!("a promise was cut short from {old:?} to {new:?}"))
        }
        (_, Some(new)) => {
            judge(LAW, NAME, lives.is_none(), || format!("{new:?} began while {lives:?} lived"))?;
            let asked = |old: &Term| old.agreement.heard > 0 || now >= old.may_act_until();
            let agreed = before.term.as_ref().is_none_or(asked);
            judge(LAW, NAME, agreed, || {
                format!("{new:?} began although no member can have promised the last primary to wait")
            })?;
            judge(LAW, NAME, new.epoch > before.epoch, || format!("{new:?} took an epoch that was used before"))
        }
        (_, None) => Ok(()),
    }
}
