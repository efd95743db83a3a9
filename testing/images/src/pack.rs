//! An image without its zeros: how many bytes it has, then each run of grains that are not all
//! zero, as the number of the first and how many there are, and their bytes. Numbers have 4 bytes,
//! little-endian, and count grains of 64 bytes.

use dendro_base::units::GRAIN_SIZE;

/// Packs an image of whole grains.
///
/// # Panics
/// When it has too many grains, or not whole ones.
#[must_use]
pub fn pack(image: &[u8]) -> Vec<u8> {
    assert!(image.len().is_multiple_of(GRAIN_SIZE), "an image is made of whole grains");
    let number = |grains: usize| u32::try_from(grains).expect("it is a small image").to_le_bytes();
    let grains: Vec<&[u8]> = image.chunks(GRAIN_SIZE).collect();
    let is_zero = |at: usize| grains[at].iter().all(|&byte| byte == 0);
    let mut out = number(grains.len()).to_vec();
    let mut at = 0;
    while at < grains.len() {
        let start = at;
        while at < grains.len() && !is_zero(at) {
            at += 1;
        }
        if at > start {
            out.extend(number(start));
            out.extend(number(at - start));
            out.extend(&image[start * GRAIN_SIZE..at * GRAIN_SIZE]);
        }
        at += 1;
    }
    out
}

/// The image that was packed.
///
/// # Panics
/// When `packed` is anything else.
#[must_use]
pub fn unpack(packed: &[u8]) -> Vec<u8> {
    let mut rest = packed;
    let mut take = |len: usize| {
        let (head, tail) = rest.split_at(len);
        rest = tail;
        (head, tail.is_empty())
    };
    let number = |bytes: &[u8]| {
        u32::from_le_bytes(bytes.try_into().expect("four bytes")) as usize * GRAIN_SIZE
    };
    let (len, mut at_end) = take(4);
    let mut image = vec![0; number(len)];
    while !at_end {
        let start = number(take(4).0);
        let len = number(take(4).0);
        let (bytes, is_last) = take(len);
        image[start..start + len].copy_from_slice(bytes);
        at_end = is_last;
    }
    image
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_unpack_to_what_was_packed() {
        for bits in 0_u32..64 {
            let image: Vec<u8> = (0..6 * GRAIN_SIZE)
                .map(|at| if bits >> (at / GRAIN_SIZE) & 1 == 1 { at as u8 | 1 } else { 0 })
                .collect();
            assert_eq!(unpack(&pack(&image)), image);
        }
    }
}
