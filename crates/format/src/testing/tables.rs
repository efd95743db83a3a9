//! The byte tables in documents and in the documentation of code, compared with the structures.

use std::collections::BTreeMap;

/// A field: its name, where it starts, and its length.
pub type Fields = Vec<(String, usize, usize)>;

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
                "[u8; LABEL_LEN_BYTES]" => crate::superblock::LABEL_LEN_BYTES,
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
///
/// # Panics
/// When the source is not written as those of structures are.
#[must_use]
pub fn structures(source: &str) -> BTreeMap<String, Fields> {
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

/// The structures of several source files, by name.
///
/// # Panics
/// As [`structures`].
#[must_use]
pub fn all_structures(sources: &[&str]) -> BTreeMap<String, Fields> {
    sources.iter().flat_map(|source| structures(source)).collect()
}

/// Checks that the tables in the documentation of the code say what the structures are. Returns how
/// many there are.
///
/// # Panics
/// When one does not.
#[must_use]
pub fn check_code(sources: &[&str]) -> usize {
    let mut tables = 0;
    for source in sources {
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
    tables
}

/// Checks that `document` has a section for each structure, with a table that says what it is.
///
/// # Panics
/// When it does not.
pub fn check_document(sources: &[&str], document: &str) {
    for (name, fields) in all_structures(sources) {
        let heading = format!(", `{name}` (");
        let at = document.find(&heading).unwrap_or_else(|| panic!("{name} is not described"));
        let len: usize = fields.iter().map(|(_, _, len)| len).sum();
        let rest = &document[at + heading.len()..];
        assert!(rest.starts_with(&format!("{len} bytes")), "the length of {name}");
        let section = rest[1..].find("\n### ").map_or(rest, |end| &rest[..end]);
        assert_eq!(table(section.lines()), fields, "{name}");
    }
}
