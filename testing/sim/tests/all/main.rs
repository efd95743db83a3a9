//! The integration tests of the crate, in one program: each program takes time to link.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so")]

mod collected_writes_survive_crashes;
mod collections_leave_nothing;
mod common;
mod damaged_images_are_never_read_wrong;
mod file_system_survives_crashes;
mod files_of_scattered_pages;
mod flipped_bits_lose_nothing_in_silence;
mod frames_survive_crashes;
mod full_volumes_can_be_emptied;
mod harness_finds_planted_bugs;
mod log_disk_survives_crashes;
mod mirrored_disks_survive_crashes;
mod pages_changed_in_part;
mod repairs_survive_crashes;
mod resizes_survive_crashes;
mod scrubs_survive_crashes;
mod space_and_time_of_scattered_pages;
mod spread_disks_survive_crashes;
mod spread_disks_survive_failures;
