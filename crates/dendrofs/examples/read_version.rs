//! Lists the files of a version, and prints one, without a mount.
//!
//!     cargo run --example read_version -- IMAGE [VERSION [PATH]]
//!
//! VERSION is a branch, `@snapshot` or `branch@snapshot`; the main branch unless given. Nothing is
//! written to the image.

use std::io::Write;
use std::path::{Path, PathBuf};

use dendrofs::{Error, FileType, Files, OpenOptions, Volume};

/// All files below a directory, with their sizes.
pub fn list(files: &Files, dir: &Path, found: &mut Vec<(PathBuf, u64)>) -> Result<(), Error> {
    for entry in files.read_dir(dir)? {
        let path = dir.join(&entry.name);
        match entry.file_type {
            FileType::Directory => list(files, &path, found)?,
            _ => found.push((path.clone(), files.symlink_metadata(&path)?.len_bytes)),
        }
    }
    Ok(())
}

#[allow(dead_code, reason = "tests use the rest of this file")]
fn main() -> Result<(), Error> {
    let mut arguments = std::env::args_os().skip(1);
    let image = arguments.next().unwrap_or_else(|| "disk.img".into());
    let version = arguments.next().map(|version| version.to_string_lossy().into_owned());
    let volume = Volume::open(image, &OpenOptions::new().read_only(true))?;
    let view = match version {
        Some(name) => volume.view(&name)?,
        None => volume.main(),
    };
    let files = volume.files(view)?;
    match arguments.next() {
        Some(path) => std::io::stdout().write_all(&files.read(path)?)?,
        None => {
            let mut found = Vec::new();
            list(&files, Path::new("/"), &mut found)?;
            for (path, len_bytes) in found {
                println!("{len_bytes:>12}  {}", path.display());
            }
        }
    }
    Ok(())
}
