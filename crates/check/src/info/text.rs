//! Bytes, checksums and heads as text.

use dendro_format::Head;

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(super) fn hex32(number: u32) -> String {
    format!("{number:08x}")
}

pub(super) const fn head_name(head: Head) -> &'static str {
    match head {
        Head::Main => "main",
        Head::Map => "map",
        Head::Payload => "payload",
    }
}
