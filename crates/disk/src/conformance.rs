//! What every logical disk must do, as tests.
//!
//! An implementation runs them all with one line in a test file of its own:
//!
//! ```
//! use dendro_disk::model::ModelDisk;
//!
//! dendro_disk::conformance_tests!(|| Box::new(ModelDisk::new(None)));
//! ```
//!
//! One that has versions runs those for it as well:
//!
//! ```
//! use dendro_disk::model::ModelDisk;
//!
//! dendro_disk::versions_conformance_tests!(|| Box::new(ModelDisk::new(None)));
//! ```
//!
//! Each case is given a new, empty disk with at least 256 MiB of space. Some can also be called by
//! themselves, with the disk's background work between the units: [`random::differential`],
//! [`versions::differential`], [`space::a_full_disk_refuses_and_gives_space_back`],
//! [`space::what_is_reserved_stays_writable_while_others_fill_the_disk`],
//! [`space::pages_of_a_snapshot_are_moved_with_what_was_reserved_for_them`],
//! [`snapshots::space_comes_back_when_versions_go`], [`snapshots::a_full_disk_lets_versions_go`].

pub mod branches;
pub mod clients;
pub mod conditions;
pub mod lists;
pub mod moves;
pub mod pages;
pub mod parts;
pub mod quotas;
pub mod random;
pub mod receiving;
pub mod records;
mod rig;
pub mod snapshots;
pub mod space;
pub mod units;
pub mod versions;

/// Calls the macro `$with` with the arguments given and the path of every case. There is one list
/// of them, and it is here.
#[doc(hidden)]
#[macro_export]
macro_rules! conformance_cases {
    ($with:path, $argument:expr) => {
        $with! {
            $argument;
            lists::an_empty_disk_has_nothing
            lists::numbers_count_up_and_are_never_given_out_twice
            lists::a_number_that_was_not_allocated_can_be_created_and_is_passed_over
            lists::lists_are_found_in_order_and_in_parts
            lists::creating_a_list_that_exists_is_refused
            lists::a_change_to_a_missing_list_is_refused
            lists::a_deleted_list_takes_everything_with_it
            lists::a_list_deleted_and_created_in_one_unit_starts_empty
            lists::a_list_created_and_deleted_in_one_unit_leaves_nothing
            lists::hints_are_kept_until_changed
            lists::a_list_keeps_the_neighbour_that_it_was_given_last
            lists::the_disks_own_lists_are_not_seen
            lists::views_that_do_not_exist_are_refused
            records::a_record_is_put_replaced_and_deleted
            records::records_of_every_length_read_back
            records::record_lengths_outside_the_limits_are_refused
            records::records_are_read_in_order_and_in_parts
            records::records_and_pages_do_not_share_indices
            records::thousands_of_records_come_and_go
            pages::writes_of_every_length_read_back
            pages::a_tail_is_filled_up_with_zeros
            pages::trailing_zeros_read_back
            pages::a_page_of_zeros_is_not_a_hole
            pages::zeroing_overwrites_and_allocates
            pages::punching_makes_holes
            pages::parts_of_a_run_are_overwritten
            pages::runs_cross_groups_of_32_pages_at_any_place
            pages::the_last_pages_can_be_used_and_none_behind_them
            pages::empty_ranges_change_nothing
            pages::reads_cross_data_and_holes
            pages::scattered_ranges_read_back_as_one_by_one
            pages::data_and_holes_are_found
            pages::punching_costs_by_data_not_by_count
            pages::pages_written_backwards_and_scattered_read_back
            parts::parts_of_pages_are_written_and_the_rest_stays
            parts::parts_that_cannot_be_written_are_refused
            parts::a_part_is_written_into_what_the_unit_has_made
            parts::threads_write_parts_of_the_same_pages
            parts::a_unit_of_parts_has_conditions_and_a_reservation
            moves::pages_move_within_a_list
            moves::pages_move_to_another_list
            moves::overlapping_moves_go_both_ways
            moves::a_range_moved_onto_itself_stays
            moves::a_part_is_cut_out_and_put_in_as_files_ask_for
            moves::moving_costs_by_data_not_by_count
            moves::moves_reach_the_last_page_and_no_further
            moves::a_unit_moves_what_it_wrote
            moves::moved_pages_are_changed_without_changing_others
            moves::pages_are_swapped_and_records_stay
            moves::swapping_with_itself_changes_nothing
            moves::random_moves_leave_what_the_model_has
            units::a_wrong_change_anywhere_undoes_the_whole_unit
            units::changes_of_a_unit_see_the_earlier_ones
            units::a_page_written_many_times_in_a_unit_is_as_written_last
            units::an_empty_unit_is_allowed
            units::commits_are_numbered_upwards
            units::units_under_construction_do_not_see_each_other
            units::a_unit_larger_than_any_buffer_is_atomic
            units::a_unit_that_changes_too_many_groups_is_refused
            units::a_unit_punches_moves_and_swaps_any_number_of_groups
            units::threads_commit_at_the_same_time
            units::readers_see_units_whole
            units::a_flush_covers_what_was_committed
            units::a_disk_that_was_shut_down_is_read_only
            conditions::a_unit_requires_what_records_are
            conditions::a_unit_requires_that_lists_are_unchanged
            conditions::a_unit_comes_back_when_it_fails_and_empty_when_it_does_not
            conditions::threads_that_set_conditions_lose_no_update
            conditions::who_waits_for_durability_is_called_once
            conditions::a_list_is_flushed
            conditions::a_flush_is_for_a_kind_of_failure
            space::space_follows_what_is_stored
            space::reservations_are_counted_and_given_back
            space::what_is_free_is_told_and_given_back_to_the_device
            random::random_units_leave_what_the_model_has
            random::many_small_units_leave_what_the_model_has
        }
    };
}

/// As [`conformance_cases`], the cases for disks that have versions.
#[doc(hidden)]
#[macro_export]
macro_rules! versions_conformance_cases {
    ($with:path, $argument:expr) => {
        $with! {
            $argument;
            snapshots::a_new_disk_has_one_branch_and_no_snapshots
            snapshots::records_that_are_replaced_and_deleted_are_kept
            snapshots::pages_that_are_overwritten_in_part_are_kept
            snapshots::holes_and_pages_of_zeros_are_kept
            snapshots::tails_of_pages_are_kept
            snapshots::lists_that_are_deleted_are_kept_and_later_ones_are_not_seen
            snapshots::hints_are_kept
            snapshots::pages_that_are_moved_or_swapped_are_kept
            snapshots::a_number_that_a_version_has_cannot_be_created
            snapshots::a_list_that_others_have_is_restored_and_goes_its_own_way
            snapshots::a_snapshot_of_nothing_new_is_one_of_its_own
            snapshots::commits_to_the_past_are_refused
            snapshots::what_does_not_exist_cannot_be_read_or_changed
            snapshots::names_are_checked_and_changed
            snapshots::held_snapshots_are_not_deleted
            snapshots::snapshots_are_deleted_in_every_order
            snapshots::hundreds_of_snapshots_each_keep_their_moment
            snapshots::a_snapshot_falls_between_two_units
            snapshots::shares_follow_what_versions_hold
            snapshots::lists_that_may_differ_are_told_and_others_are_not
            snapshots::records_and_pages_that_differ_are_told_and_others_are_not
            snapshots::a_disk_that_was_shut_down_changes_no_versions
            receiving::a_version_is_received_with_numbers_that_are_in_use
            receiving::a_version_is_received_on_top_of_its_base
            receiving::what_is_not_complete_is_no_version
            receiving::lists_of_one_number_go_their_own_ways
            clients::clients_number_their_lists_by_themselves
            clients::clients_have_their_own_versions
            clients::a_client_is_begun_filled_and_named
            quotas::what_a_client_uses_is_exact
            quotas::versions_of_a_client_count_together
            quotas::a_unit_over_the_quota_is_refused_whole
            quotas::a_unit_that_gives_space_back_takes_no_pages_beyond_the_quota
            quotas::a_page_that_is_written_twice_does_not_exceed_the_quota
            quotas::a_reservation_counts_against_the_quota
            quotas::a_reservation_pays_for_copies_of_what_a_snapshot_has
            quotas::the_space_of_a_client_is_that_of_its_quota
            quotas::quotas_are_set_changed_and_end
            branches::a_branch_from_a_head_goes_its_own_way
            branches::a_branch_from_a_snapshot_starts_there
            branches::branches_of_branches_do_not_see_each_other
            branches::deletions_in_a_branch_do_not_uncover_what_is_below
            branches::a_chain_of_200_branches_shows_through
            branches::branches_are_deleted_in_every_order
            branches::numbers_of_lists_are_given_out_once_for_all_branches
            branches::promotion_exchanges_names_and_leaves_contents
            branches::a_head_is_rolled_back_again_and_again
            branches::a_branch_is_put_back_to_any_snapshot
            branches::threads_write_to_branches_at_the_same_time
            versions::random_versions_are_as_the_model_has_them
            versions::random_deep_versions_are_as_the_model_has_them
        }
    };
}

/// Makes a `#[test]` of every case of [`conformance`](crate::conformance). The argument is a
/// closure without parameters that makes an empty disk, as a `Box<dyn LogicalDisk>` or anything
/// else that points to one.
#[macro_export]
macro_rules! conformance_tests {
    ($make:expr) => {
        $crate::conformance_cases!($crate::__conformance_test_functions, $make);
    };
}

/// Makes a `#[test]` of every case for disks that have [`Versions`](crate::Versions). The argument
/// is as for [`conformance_tests`].
#[macro_export]
macro_rules! versions_conformance_tests {
    ($make:expr) => {
        $crate::versions_conformance_cases!($crate::__conformance_test_functions, $make);
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __conformance_test_functions {
    ($make:expr; $($module:ident::$case:ident)*) => { $(
        #[test]
        fn $case() {
            let disk = ($make)();
            $crate::conformance::$module::$case(&*disk);
        }
    )* };
}
