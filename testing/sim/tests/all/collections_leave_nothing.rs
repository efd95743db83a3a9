//! Work in which versions are deleted while what other deleted versions saw is collected.

use dendro_sim::{crash, workload};

/// A snapshot is deleted during a collection that has passed a part of a deleted list, and the
/// volume is inconsistent afterwards if the rest of the list is not found again.
#[test]
fn a_version_deleted_during_a_collection_leaves_nothing_of_a_deleted_list() {
    let seed = 12_000_074;
    let (system, effort) = workload::of_seed(seed);
    crash::record(&system, seed, effort.device_len_bytes, effort.step_count)
        .unwrap_or_else(|failure| panic!("{failure}"));
}
