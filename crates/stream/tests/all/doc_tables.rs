//! The byte tables in the code's documentation and in docs/STREAM.md say what the structures are.

use dendro_format::testing::tables;
use dendro_stream::{EndV1, FrameHeaderV1, HeaderV1, ItemV1, RestV1};

const SOURCES: [&str; 3] = [
    include_str!("../../src/frame.rs"),
    include_str!("../../src/header.rs"),
    include_str!("../../src/payload.rs"),
];

#[test]
fn every_structure_is_seen() {
    let found = tables::all_structures(&SOURCES);
    let len = |name: &str| found[name].last().map_or(0, |(_, offset, len)| offset + len);
    assert_eq!(found.len(), 5);
    assert_eq!(len("HeaderV1"), size_of::<HeaderV1>());
    assert_eq!(len("RestV1"), size_of::<RestV1>());
    assert_eq!(len("FrameHeaderV1"), size_of::<FrameHeaderV1>());
    assert_eq!(len("ItemV1"), size_of::<ItemV1>());
    assert_eq!(len("EndV1"), size_of::<EndV1>());
}

#[test]
fn the_tables_in_the_code_say_what_the_structures_are() {
    assert_eq!(tables::check_code(&SOURCES), 5);
}

#[test]
fn the_tables_in_the_document_say_what_the_structures_are() {
    tables::check_document(&SOURCES, include_str!("../../../../docs/STREAM.md"));
}
