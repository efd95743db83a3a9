//! What a fuzzer runs: whatever bytes come, it returns, and what is read is read again from its own
//! encoding.

use crate::decoder::Decoder;
use crate::encoder::Encoder;
use crate::error::StreamError;
use crate::header::Header;
use crate::testing::forge;
use crate::testing::sample::OwnItem;

/// Reads a whole stream: its header and its items.
///
/// # Errors
/// What is wrong with it.
pub fn read(bytes: &[u8]) -> Result<(Header, Vec<OwnItem>), StreamError> {
    let mut decoder = Decoder::begin(bytes)?;
    let mut items = Vec::new();
    while let Some(item) = decoder.next_item()? {
        items.push(OwnItem::from(item));
    }
    let header = decoder.header().clone();
    decoder.finish()?;
    Ok((header, items))
}

/// [`Decoder`], with the bytes as they are and with their checksums put right.
///
/// # Panics
/// When the decoder is wrong.
pub fn stream(bytes: &[u8]) {
    check(bytes);
    let mut forged = bytes.to_vec();
    forge(&mut forged);
    check(&forged);
}

fn check(bytes: &[u8]) {
    let Ok(mut decoder) = Decoder::begin(bytes) else { return };
    let header = decoder.header().clone();
    let mut encoder = Encoder::begin(Vec::new(), &header, None).expect("a vector grows");
    loop {
        match decoder.next_item() {
            Ok(Some(item)) => encoder.put(&item).expect("the decoder has checked the order"),
            Ok(None) => break,
            Err(error) => {
                assert!(error.offset_bytes <= bytes.len() as u64, "{error}");
                // An error stays one, whoever reads on.
                assert!(decoder.finish().is_err());
                return;
            }
        }
    }
    let (written, counts) = encoder.end().expect("a vector grows");
    assert_eq!(counts, *decoder.counts());
    let mut again = Decoder::begin(&written[..]).expect("it was encoded just now");
    let expected = Header { is_compressed: false, ..header };
    assert_eq!(*again.header(), expected);
    while again.next_item().expect("it was encoded just now").is_some() {}
    assert_eq!(again.finish().expect("it was encoded just now"), counts);
}
