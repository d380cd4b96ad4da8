//! The release of a role on the wire: which term, what was done in it, and what was released.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use wayleave_core::ids::Token;
use wayleave_core::names;
use wayleave_core::roles::{self as core, Was};

use crate::bad_value::BadValue;
use crate::roles::token;
use crate::slots::slot;

/// The term to release.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ReleaseRoleQuery {
    /// The term's token; required from a primary, a standby has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// The slot whose work the primary has done in this term: recorded with the release, and never handed out again.
    /// Requires the token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slot: Option<String>,
}

impl ReleaseRoleQuery {
    /// The slot that was run, if one was. Fails if the text is not the name of a slot, or there is no token.
    pub fn slot(&self) -> Result<Option<names::Slot>, BadValue> {
        match (&self.slot, &self.token) {
            (Some(_), None) => {
                Err(BadValue::contradiction("slot", "is recorded for the primary alone; give its token as well"))
            }
            _ => slot(self.slot.as_deref()),
        }
    }

    /// The token, if one was given.
    pub fn token(&self) -> Result<Option<Token>, BadValue> {
        token(self.token.as_deref())
    }
}

/// What the released candidate was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Released {
    /// The primary: the role is free at once.
    Primary,
    /// A standby: it is withdrawn.
    Standby,
    /// Neither: there was nothing to release.
    Nobody,
}

/// The result of a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReleaseRoleResponse {
    /// What was released.
    pub released: Released,
    /// The last epoch of the role.
    pub epoch: u64,
}

impl From<core::Released> for ReleaseRoleResponse {
    fn from(answer: core::Released) -> Self {
        let released = match answer.was {
            Was::Primary => Released::Primary,
            Was::Standby => Released::Standby,
            Was::Nobody => Released::Nobody,
        };
        Self { released, epoch: answer.epoch.0 }
    }
}
