//! The byte tables in the code's documentation and in docs/FORMAT.md say what the structures are.

use std::collections::BTreeMap;

use dendro_format::{
    checkpoint, node, partial, record, removal, retired, superblock, usage, versions,
};

const SOURCES: [&str; 9] = [
    include_str!("../src/superblock.rs"),
    include_str!("../src/partial.rs"),
    include_str!("../src/record.rs"),
    include_str!("../src/node.rs"),
    include_str!("../src/checkpoint.rs"),
    include_str!("../src/usage.rs"),
    include_str!("../src/versions.rs"),
    include_str!("../src/removal.rs"),
    include_str!("../src/retired.rs"),
];
const FORMAT_MD: &str = include_str!("../../../docs/FORMAT.md");

/// A field: its name, where it starts, and its length.
type Fields = Vec<(String, usize, usize)>;

/// The structures are packed: they are unaligned and `repr(C)`.
fn packed<'a>(fields: impl Iterator<Item = (&'a str, &'a str)>) -> Fields {
    let mut offset = 0;
    fields
        .map(|(name, of_type)| {
            let len = match of_type {
                "u8" => 1,
                "U16" => 2,
                "U32" => 4,
                "U64" | "I64" => 8,
                "[u8; LABEL_LEN_BYTES]" => superblock::LABEL_LEN_BYTES,
                array => array
                    .strip_prefix("[u8; ")
                    .and_then(|rest| rest.strip_suffix(']')?.parse().ok())
                    .unwrap_or_else(|| panic!("a field of type {of_type}")),
            };
            offset += len;
            (name.to_owned(), offset - len, len)
        })
        .collect()
}

fn split_fields(body: &str) -> Fields {
    // The only commas inside a type would be in arrays, which have none.
    let fields = body.split(',').map(str::trim).filter(|field| !field.is_empty());
    packed(fields.map(|field| field.split_once(": ").expect("a name and a type")))
}

/// The structures of a source file, by name.
fn structures(source: &str) -> BTreeMap<String, Fields> {
    let mut found = BTreeMap::new();
    for (at, _) in source.match_indices("pub struct ") {
        let (name, rest) = source[at + 11..].split_once(' ').expect("a name");
        if (name.ends_with("V1") || name.ends_with("V2"))
            && let Some(body) = rest.strip_prefix("{")
        {
            let body = &body[..body.find('}').expect("an end")];
            found.insert(name.to_owned(), split_fields(body));
        }
    }
    for piece in source.split("raw! {").skip(1).filter(|piece| piece.contains("V1,")) {
        let piece: String = piece
            .lines()
            .filter(|line| !line.trim().starts_with("///"))
            .collect::<Vec<_>>()
            .join(" ");
        let (name, rest) = piece.trim().split_once(',').expect("a name");
        let body = &rest[rest.find('{').expect("a body") + 1..rest.find('}').expect("an end")];
        found.insert(name.to_owned(), split_fields(body));
    }
    found
}

/// The rows of the first byte table in `lines`.
fn table<'a>(lines: impl Iterator<Item = &'a str>) -> Fields {
    lines
        .skip_while(|line| !line.starts_with("| offset | size |"))
        .skip(2)
        .take_while(|line| line.starts_with('|'))
        .map(|line| {
            let cells: Vec<&str> = line.split('|').map(str::trim).collect();
            let number = |cell: &str| cell.parse().expect("a number");
            (cells[3].trim_matches('`').to_owned(), number(cells[1]), number(cells[2]))
        })
        .collect()
}

fn all_structures() -> BTreeMap<String, Fields> {
    SOURCES.iter().flat_map(|source| structures(source)).collect()
}

#[test]
fn every_structure_is_seen() {
    let found = all_structures();
    let len = |name: &str| found[name].last().map_or(0, |(_, offset, len)| offset + len);
    assert_eq!(found.len(), 22);
    assert_eq!(len("SuperblockV1"), size_of::<superblock::SuperblockV1>());
    assert_eq!(len("PartialHeaderV1"), size_of::<partial::PartialHeaderV1>());
    assert_eq!(len("NodeHeaderV1"), size_of::<node::NodeHeaderV1>());
    assert_eq!(len("CheckpointV1"), size_of::<checkpoint::CheckpointV1>());
    assert_eq!(len("UsageV1"), size_of::<usage::UsageV1>());
    assert_eq!(len("HintsV1"), size_of::<record::HintsV1>());
    assert_eq!(len("DeleteListV1"), size_of::<record::DeleteListV1>());
    assert_eq!(len("RecordV1"), size_of::<record::RecordV1>());
    assert_eq!(len("WriteRunV1"), size_of::<record::WriteRunV1>());
    assert_eq!(len("WriteBlockV1"), size_of::<record::WriteBlockV1>());
    assert_eq!(len("RangeV1"), size_of::<record::RangeV1>());
    assert_eq!(len("MovePagesV1"), size_of::<record::MovePagesV1>());
    assert_eq!(len("SwapPagesV1"), size_of::<record::SwapPagesV1>());
    assert_eq!(len("NodeV1"), size_of::<record::NodeV1>());
    assert_eq!(len("CheckpointPlaceV1"), size_of::<record::CheckpointPlaceV1>());
    assert_eq!(len("VersionV1"), size_of::<record::VersionV1>());
    assert_eq!(len("ReuseV1"), size_of::<record::ReuseV1>());
    assert_eq!(len("CountersV1"), size_of::<versions::CountersV1>());
    assert_eq!(len("RetiredV1"), size_of::<retired::RetiredV1>());
    assert_eq!(len("RemovalV1"), size_of::<removal::RemovalV1>());
    assert_eq!(len("RemovalV2"), size_of::<removal::RemovalV2>());
    assert_eq!(len("VersionEntryV1"), size_of::<versions::VersionEntryV1>());
}

#[test]
fn the_tables_in_the_code_say_what_the_structures_are() {
    let mut tables = 0;
    for source in SOURCES {
        for (name, fields) in structures(source) {
            let Some(at) = source.find(&format!("pub struct {name} {{")) else { continue };
            let lines = source[..at].lines().rev();
            let mut doc: Vec<&str> = lines
                .take_while(|line| line.starts_with("///") || line.starts_with("#["))
                .map(|line| line.trim_start_matches("/// "))
                .collect();
            doc.reverse();
            assert_eq!(table(doc.into_iter()), fields, "{name}");
            tables += 1;
        }
    }
    assert_eq!(tables, 10);
}

#[test]
fn the_tables_in_the_document_say_what_the_structures_are() {
    for (name, fields) in all_structures() {
        let heading = format!(", `{name}` (");
        let at = FORMAT_MD.find(&heading).unwrap_or_else(|| panic!("{name} is not described"));
        let len: usize = fields.iter().map(|(_, _, len)| len).sum();
        let rest = &FORMAT_MD[at + heading.len()..];
        assert!(rest.starts_with(&format!("{len} bytes")), "the length of {name}");
        let section = rest[1..].find("\n### ").map_or(rest, |end| &rest[..end]);
        assert_eq!(table(section.lines()), fields, "{name}");
    }
}
