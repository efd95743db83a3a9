//! The security context of a new file: the attributes that the kernel's security modules want it to
//! have, in an extension of the request that creates it.

use zerocopy::FromBytes;

use super::abi::{EXTENSION_ALIGN, ExtensionHead, MAX_SECURITY_ATTRIBUTES, SecurityAttributeHead};
use crate::errno::Errno;

/// Extended attributes in the namespace `security` that a new file gets when it is created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SecurityContext<'a> {
    /// The first `count` attributes in it were checked.
    bytes: &'a [u8],
    count: u32,
}

impl<'a> SecurityContext<'a> {
    /// Finds the security context among the extensions of a request.
    ///
    /// # Errors
    /// `EIO` if the bytes are malformed.
    pub(crate) fn parse(mut extension: &'a [u8]) -> Result<Self, Errno> {
        let mut context = Self::default();
        while !extension.is_empty() {
            let (head, _) = ExtensionHead::read_from_prefix(extension).map_err(|_| Errno::IO)?;
            let (part, rest) = extension.split_at_checked(head.len as usize).ok_or(Errno::IO)?;
            let bytes = part.get(size_of::<ExtensionHead>()..).ok_or(Errno::IO)?;
            if head.kind <= MAX_SECURITY_ATTRIBUTES {
                context = Self { bytes, count: head.kind };
                let mut left = bytes;
                for _ in 0..head.kind {
                    take(&mut left).ok_or(Errno::IO)?;
                }
            }
            extension = rest;
        }
        Ok(context)
    }

    /// The name, with the prefix `security.`, and the value of each attribute.
    pub fn iter(&self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> + use<'a> {
        let mut left = self.bytes;
        (0..self.count).map_while(move |_| take(&mut left))
    }
}

/// Takes the name and value of an attribute from the front of `bytes`.
fn take<'a>(bytes: &mut &'a [u8]) -> Option<(&'a [u8], &'a [u8])> {
    let (head, rest) = SecurityAttributeHead::read_from_prefix(bytes).ok()?;
    let name_len = rest.iter().position(|&byte| byte == 0).filter(|&len| len > 0)?;
    let value = rest.get(name_len + 1..)?.get(..head.value_len as usize)?;
    let len = size_of::<SecurityAttributeHead>() + name_len + 1 + value.len();
    // The last one may lack the padding.
    *bytes = bytes.get(len.next_multiple_of(EXTENSION_ALIGN)..).unwrap_or_default();
    Some((&rest[..name_len], value))
}

#[cfg(test)]
mod tests {
    use zerocopy::IntoBytes;

    use super::*;

    fn attribute(name: &str, value: &[u8]) -> Vec<u8> {
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
    fn attributes_are_found_among_other_extensions() {
        assert_eq!(SecurityContext::parse(&[]).unwrap().iter().count(), 0);
        assert_eq!(SecurityContext::parse(&part(0, &[])).unwrap().iter().count(), 0);
        let two = [
            attribute("security.selinux", b"user_u:object_r:t\0"),
            attribute("security.other", b""),
        ];
        let extension = [part(32, &[1; 16]), part(2, &two.concat()), part(33, &[])].concat();
        let attributes: Vec<_> = SecurityContext::parse(&extension).unwrap().iter().collect();
        let expected: [(&[u8], &[u8]); 2] =
            [(b"security.selinux", b"user_u:object_r:t\0"), (b"security.other", b"")];
        assert_eq!(attributes, expected);
    }

    #[test]
    fn malformed_extensions_are_refused() {
        let whole = part(1, &attribute("security.selinux", b"value"));
        assert!(SecurityContext::parse(&whole).is_ok());
        for len in 1..whole.len() {
            assert_eq!(SecurityContext::parse(&whole[..len]), Err(Errno::IO), "{len}");
        }
        assert_eq!(
            SecurityContext::parse(&part(2, &attribute("security.selinux", b"value"))),
            Err(Errno::IO)
        );
        assert_eq!(SecurityContext::parse(&part(1, &attribute("", b"value"))), Err(Errno::IO));
        // A length that is shorter than its own header.
        assert_eq!(SecurityContext::parse([7_u32, 1].as_bytes()), Err(Errno::IO));
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 0xff;
            let _ = SecurityContext::parse(&damaged).map(|context| context.iter().count());
        }
    }
}
