//! The byte tables in the code's documentation and in docs/FORMAT.md say what the structures are.

use dendro_format::testing::tables;

const SOURCES: [&str; 1] = [include_str!("../../src/description.rs")];
const FORMAT_MD: &str = include_str!("../../../../docs/FORMAT.md");

#[test]
fn the_tables_say_what_the_structures_are() {
    assert_eq!(tables::check_code(&SOURCES), 1);
    tables::check_document(&SOURCES, FORMAT_MD);
}
