//! The byte tables in the code's documentation and in docs/FORMAT.md say what the structures are.

use std::collections::BTreeMap;

use dendro_format::testing::tables::{self, Fields};
use dendro_format::{
    checkpoint, node, partial, rearrangement, record, removal, retired, roster, superblock, totals,
    usage, versions,
};

const SOURCES: [&str; 13] = [
    include_str!("../../src/superblock.rs"),
    include_str!("../../src/partial.rs"),
    include_str!("../../src/record.rs"),
    include_str!("../../src/node.rs"),
    include_str!("../../src/checkpoint.rs"),
    include_str!("../../src/usage.rs"),
    include_str!("../../src/totals.rs"),
    include_str!("../../src/versions.rs"),
    include_str!("../../src/removal.rs"),
    include_str!("../../src/rearrangement.rs"),
    include_str!("../../src/retired.rs"),
    include_str!("../../src/roster.rs"),
    include_str!("../../src/roster/extents.rs"),
];
const FORMAT_MD: &str = include_str!("../../../../docs/FORMAT.md");

fn all_structures() -> BTreeMap<String, Fields> {
    tables::all_structures(&SOURCES)
}

#[test]
fn every_structure_is_seen() {
    let found = all_structures();
    let len = |name: &str| found[name].last().map_or(0, |(_, offset, len)| offset + len);
    assert_eq!(found.len(), 31);
    assert_eq!(len("SuperblockV1"), size_of::<superblock::SuperblockV1>());
    assert_eq!(len("PartialHeaderV1"), size_of::<partial::PartialHeaderV1>());
    assert_eq!(len("NodeHeaderV1"), size_of::<node::NodeHeaderV1>());
    assert_eq!(len("CheckpointV1"), size_of::<checkpoint::CheckpointV1>());
    assert_eq!(len("UsageV1"), size_of::<usage::UsageV1>());
    assert_eq!(len("CompressedV1"), size_of::<totals::CompressedV1>());
    assert_eq!(len("HintsV1"), size_of::<record::HintsV1>());
    assert_eq!(len("DeleteListV1"), size_of::<record::DeleteListV1>());
    assert_eq!(len("RecordV1"), size_of::<record::RecordV1>());
    assert_eq!(len("WriteRunV1"), size_of::<record::WriteRunV1>());
    assert_eq!(len("WriteBlockV1"), size_of::<record::WriteBlockV1>());
    assert_eq!(len("RangeV1"), size_of::<record::RangeV1>());
    assert_eq!(len("MovePagesV1"), size_of::<record::MovePagesV1>());
    assert_eq!(len("SwapPagesV1"), size_of::<record::SwapPagesV1>());
    assert_eq!(len("SwapRangeV1"), size_of::<record::SwapRangeV1>());
    assert_eq!(len("RearrangementV1"), size_of::<rearrangement::RearrangementV1>());
    assert_eq!(len("TaskV1"), size_of::<rearrangement::TaskV1>());
    assert_eq!(len("NodeV1"), size_of::<record::NodeV1>());
    assert_eq!(len("CheckpointPlaceV1"), size_of::<record::CheckpointPlaceV1>());
    assert_eq!(len("VersionV1"), size_of::<record::VersionV1>());
    assert_eq!(len("ReuseV1"), size_of::<record::ReuseV1>());
    assert_eq!(len("CountersV1"), size_of::<versions::CountersV1>());
    assert_eq!(len("RetiredV1"), size_of::<retired::RetiredV1>());
    assert_eq!(len("RemovalV1"), size_of::<removal::RemovalV1>());
    assert_eq!(len("RemovalV2"), size_of::<removal::RemovalV2>());
    assert_eq!(len("RosterV1"), size_of::<roster::RosterV1>());
    assert_eq!(len("MemberV1"), size_of::<roster::MemberV1>());
    assert_eq!(len("ExtentV1"), size_of::<roster::extents::ExtentV1>());
    assert_eq!(len("OriginV1"), size_of::<versions::OriginV1>());
    assert_eq!(len("QuotaV1"), size_of::<versions::QuotaV1>());
    assert_eq!(len("VersionEntryV1"), size_of::<versions::VersionEntryV1>());
}

#[test]
fn the_tables_in_the_code_say_what_the_structures_are() {
    assert_eq!(tables::check_code(&SOURCES), 18);
}

#[test]
fn the_tables_in_the_document_say_what_the_structures_are() {
    tables::check_document(&SOURCES, FORMAT_MD);
}
