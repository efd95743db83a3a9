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
//! Each case is given a new, empty disk with at least 256 MiB of space. [`random::differential`]
//! and [`space::a_full_disk_refuses_and_gives_space_back`] can also be called by themselves, with
//! the disk's background work between the units.

pub mod lists;
pub mod moves;
pub mod pages;
pub mod random;
pub mod records;
mod rig;
pub mod space;
pub mod units;

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
            pages::data_and_holes_are_found
            pages::punching_costs_by_data_not_by_count
            pages::pages_written_backwards_and_scattered_read_back
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
            units::threads_commit_at_the_same_time
            units::readers_see_units_whole
            units::a_flush_covers_what_was_committed
            units::a_disk_that_was_shut_down_is_read_only
            space::space_follows_what_is_stored
            space::reservations_are_counted_and_given_back
            random::random_units_leave_what_the_model_has
            random::many_small_units_leave_what_the_model_has
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
