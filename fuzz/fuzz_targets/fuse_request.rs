#![no_main]

use dendro_fuse_transport::testing;

// A request as it comes from /dev/fuse, and the same bytes as the parts of one in a ring.
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    testing::request(bytes);
    if let Some((header, rest)) = bytes.split_first_chunk()
        && let Some((op_in, rest)) = rest.split_first_chunk()
        && let Some((len, payload)) = rest.split_first_chunk()
    {
        testing::arrival(*header, op_in, usize::from(u16::from_le_bytes(*len)), payload);
    }
});
