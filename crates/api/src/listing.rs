//! Pagination, shared by all listings.

use serde::{Deserialize, Serialize};
use utoipa::IntoParams;

use crate::BadValue;
use crate::bounds::PAGE;

/// A page of a listing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct PageQuery {
    /// The `next` of the previous page; absent for the first page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    /// Rows per page, 1 to 1,000; 100 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
}

/// The page size: as requested, or the default.
pub fn page_rows(limit: Option<u64>) -> Result<usize, BadValue> {
    Ok(PAGE.check_or_default("limit", limit)? as usize)
}

#[cfg(test)]
mod tests {
    use wayleave_core::limits;

    use super::*;

    #[test]
    fn a_page_has_at_least_one_row_and_at_most_the_limit() {
        assert_eq!(page_rows(None), Ok(limits::PAGE_DEFAULT));
        assert_eq!(page_rows(Some(1)), Ok(1));
        assert_eq!(page_rows(Some(limits::PAGE_MAX as u64)), Ok(limits::PAGE_MAX));
        for bad in [0, limits::PAGE_MAX as u64 + 1] {
            assert_eq!(page_rows(Some(bad)).expect_err("over the bounds").field, "limit");
        }
    }
}
