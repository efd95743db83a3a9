//! Security labels that a request carries for the file that it makes.

use zerocopy::FromBytes;

use crate::abi::{EXTENSION_ALIGN, ExtensionHead, LabelHead, MAX_LABEL_COUNT};
use crate::errno::Errno;

/// Extended attributes, in the namespace `security`, that a new file is to have from its beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Labels<'a> {
    /// Sound, as far as `count` reaches.
    bytes: &'a [u8],
    count: u32,
}

impl<'a> Labels<'a> {
    /// The labels among what a request is extended by.
    ///
    /// # Errors
    /// `EIO` when the bytes are not what the kernel sends.
    pub(crate) fn parse(mut extension: &'a [u8]) -> Result<Self, Errno> {
        let mut labels = Self::default();
        while !extension.is_empty() {
            let (head, _) = ExtensionHead::read_from_prefix(extension).map_err(|_| Errno::IO)?;
            let (part, rest) = extension.split_at_checked(head.len as usize).ok_or(Errno::IO)?;
            let bytes = part.get(size_of::<ExtensionHead>()..).ok_or(Errno::IO)?;
            if head.kind <= MAX_LABEL_COUNT {
                labels = Self { bytes, count: head.kind };
                let mut left = bytes;
                for _ in 0..head.kind {
                    take(&mut left).ok_or(Errno::IO)?;
                }
            }
            extension = rest;
        }
        Ok(labels)
    }

    /// Each label's name, `security.` included, and value.
    pub fn iter(&self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> + use<'a> {
        let mut left = self.bytes;
        (0..self.count).map_while(move |_| take(&mut left))
    }
}

/// Takes a label's name and value from the front of `bytes`.
fn take<'a>(bytes: &mut &'a [u8]) -> Option<(&'a [u8], &'a [u8])> {
    let (head, rest) = LabelHead::read_from_prefix(bytes).ok()?;
    let name_len = rest.iter().position(|&byte| byte == 0).filter(|&len| len > 0)?;
    let value = rest.get(name_len + 1..)?.get(..head.value_len as usize)?;
    let len = size_of::<LabelHead>() + name_len + 1 + value.len();
    // The last one may go without what would align the next.
    *bytes = bytes.get(len.next_multiple_of(EXTENSION_ALIGN)..).unwrap_or_default();
    Some((&rest[..name_len], value))
}

#[cfg(test)]
mod tests {
    use zerocopy::IntoBytes;

    use super::*;

    fn label(name: &str, value: &[u8]) -> Vec<u8> {
        let mut bytes = (value.len() as u32).as_bytes().to_vec();
        bytes.extend([0; 4]);
        bytes.extend(name.as_bytes());
        bytes.push(0);
        bytes.extend(value);
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        bytes
    }

    fn part(kind: u32, content: &[u8]) -> Vec<u8> {
        let mut bytes = (content.len() as u32 + 8).as_bytes().to_vec();
        bytes.extend(kind.as_bytes());
        bytes.extend(content);
        bytes
    }

    #[test]
    fn labels_are_found_beside_other_extensions() {
        assert_eq!(Labels::parse(&[]).unwrap().iter().count(), 0);
        assert_eq!(Labels::parse(&part(0, &[])).unwrap().iter().count(), 0);
        let two = [label("security.selinux", b"user_u:object_r:t\0"), label("security.other", b"")];
        let extension = [part(32, &[1; 16]), part(2, &two.concat()), part(33, &[])].concat();
        let labels: Vec<_> = Labels::parse(&extension).unwrap().iter().collect();
        let expected: [(&[u8], &[u8]); 2] =
            [(b"security.selinux", b"user_u:object_r:t\0"), (b"security.other", b"")];
        assert_eq!(labels, expected);
    }

    #[test]
    fn malformed_extensions_are_refused() {
        let whole = part(1, &label("security.selinux", b"value"));
        assert!(Labels::parse(&whole).is_ok());
        for len in 1..whole.len() {
            assert_eq!(Labels::parse(&whole[..len]), Err(Errno::IO), "{len}");
        }
        assert_eq!(Labels::parse(&part(2, &label("security.selinux", b"value"))), Err(Errno::IO));
        assert_eq!(Labels::parse(&part(1, &label("", b"value"))), Err(Errno::IO));
        // A length that does not even hold itself.
        assert_eq!(Labels::parse([7_u32, 1].as_bytes()), Err(Errno::IO));
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 0xff;
            let _ = Labels::parse(&damaged).map(|labels| labels.iter().count());
        }
    }
}
