//! The conformance suite: what every engine must do, as plain async functions over a [`harness::Harness`].
//!
//! An engine's tests implement the harness and call [`conformance!`](crate::conformance), which turns each function
//! into a test. The suite knows no particular store; a guarantee that is not checked here is not a guarantee.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "every function here is the body of a test"
)]

pub mod batches;
pub mod durability;
pub mod fences;
pub mod harness;
mod pass_on;
pub mod reads;

/// Defines one `#[tokio::test]` for every function of the suite, with the given harness.
#[macro_export]
macro_rules! conformance {
    ($harness:ty) => {
        $crate::conformance! { @tests $harness;
            reads::a_batch_is_seen_as_soon_as_commit_returns,
            reads::values_come_in_the_order_of_their_keys,
            reads::no_keys_and_no_scans_give_empty_answers,
            reads::a_scan_gives_rows_in_key_order_within_its_bounds,
            reads::a_scan_stops_at_its_limit,
            reads::a_scan_that_ends_before_it_begins_is_empty,
            reads::several_scans_are_answered_in_their_order,
            reads::keys_of_any_bytes_keep_their_order,
            reads::a_whole_shard_holds_only_what_was_written,
            reads::a_look_gives_durable_rows_and_the_time,
            reads::a_damaged_block_costs_what_it_holds,
            batches::a_deleted_row_is_gone,
            batches::deleting_an_absent_row_is_no_error,
            batches::the_later_write_of_a_key_counts,
            batches::an_empty_value_is_a_value,
            batches::an_empty_batch_commits,
            batches::a_large_batch_commits_as_one,
            batches::expected_rows_that_hold_let_the_batch_pass,
            batches::a_conflict_leaves_nothing,
            batches::an_expected_row_is_judged_by_what_is_visible,
            fences::owning_raises_the_epoch_by_one,
            fences::commits_in_turn_pass,
            fences::a_wrong_epoch_is_fenced_and_leaves_nothing,
            fences::a_wrong_number_is_fenced_and_leaves_nothing,
            fences::an_unowned_shard_is_fenced,
            fences::a_new_owner_fences_the_old_one,
            fences::a_refused_batch_uses_up_no_number,
            fences::several_fences_hold_all_or_none,
            fences::fences_of_one_shard_count_one_after_the_other,
            fences::owning_with_an_expectation_that_does_not_hold_changes_nothing,
            durability::committed_rows_survive_a_reopen,
            durability::turns_survive_a_reopen,
            durability::commits_in_flight_resolve_in_any_order_of_waiting,
            durability::time_never_goes_back,
            durability::time_does_not_go_back_over_a_reopen,
        }
    };
    (@tests $harness:ty; $($group:ident :: $name:ident,)+) => {
        $(
            #[tokio::test]
            async fn $name() {
                $crate::suite::$group::$name::<$harness>().await;
            }
        )+
    };
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_check_is_listed() {
        let listed = include_str!("mod.rs");
        let files = [
            ("reads", include_str!("reads.rs")),
            ("batches", include_str!("batches.rs")),
            ("fences", include_str!("fences.rs")),
            ("durability", include_str!("durability.rs")),
        ];
        let mut found = 0;
        for (group, text) in files {
            for line in text.lines().filter_map(|line| line.strip_prefix("pub async fn ")) {
                let name = line.split('<').next().unwrap();
                assert!(listed.contains(&format!("{group}::{name},")), "{group}::{name} is in no engine's tests");
                found += 1;
            }
        }
        assert_eq!(
            found,
            listed
                .lines()
                .filter(|line| line.starts_with("            ") && line.ends_with(',') && line.contains("::"))
                .count()
        );
    }
}
