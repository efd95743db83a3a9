//! Device numbers of mounts, from the kernel's table of mounts.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The device number of what is mounted on `mount_point`. stat(2) would send a request to the
/// server, which does not run yet.
pub(super) fn device_number(mount_point: &Path) -> Option<(u32, u32)> {
    device_number_in(&fs::read("/proc/self/mountinfo").ok()?, mount_point)
}

fn device_number_in(table: &[u8], mount_point: &Path) -> Option<(u32, u32)> {
    let line = table.split(|&byte| byte == b'\n').rfind(|line| {
        let path = line.split(|&byte| byte == b' ').nth(4);
        path.is_some_and(|path| unescape(path) == mount_point.as_os_str().as_bytes())
    })?;
    let number = std::str::from_utf8(line.split(|&byte| byte == b' ').nth(2)?).ok()?;
    let (major, minor) = number.split_once(':')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// Replaces escapes: the table of mounts has `\040` for a blank.
fn unescape(path: &[u8]) -> Vec<u8> {
    let mut unescaped = Vec::with_capacity(path.len());
    let mut rest = path;
    while let Some((&byte, behind)) = rest.split_first() {
        let octal = behind.get(..3).filter(|_| byte == b'\\').and_then(|digits| {
            let digits = std::str::from_utf8(digits).ok()?;
            u8::from_str_radix(digits, 8).ok()
        });
        unescaped.push(octal.unwrap_or(byte));
        rest = if octal.is_some() { &behind[3..] } else { behind };
    }
    unescaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_device_number_is_found_under_names_with_blanks_and_the_topmost_counts() {
        let table = b"30 1 0:25 / /mnt/a\\040b rw - fuse.x src rw\n\
                      31 1 7:26 / /mnt/c rw - fuse.x src rw\n\
                      32 30 0:27 / /mnt/a\\040b rw - fuse.x src rw\n";
        assert_eq!(device_number_in(table, Path::new("/mnt/a b")), Some((0, 27)));
        assert_eq!(device_number_in(table, Path::new("/mnt/c")), Some((7, 26)));
        assert_eq!(device_number_in(table, Path::new("/mnt")), None);
        assert_eq!(device_number_in(b"no table \\9", Path::new("/mnt")), None);
    }

    #[test]
    fn escapes_that_are_none_stay() {
        assert_eq!(unescape(b"a\\134b\\"), b"a\\b\\");
        assert_eq!(unescape(b"\\0"), b"\\0");
        assert_eq!(unescape(b"\\777x"), b"\\777x");
    }
}
