//! The images that are kept.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use dendro_format::superblock::{MAJOR_VERSION, MINOR_VERSION};

use crate::contents::{Contents, End};

/// A golden image.
#[derive(Clone, Debug)]
pub struct Golden {
    /// Its name: the version and how it ended.
    pub name: String,
    /// The image.
    pub image: Vec<u8>,
    /// What it holds.
    pub manifest: String,
}

/// Where they are kept.
#[must_use]
pub fn dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("golden")
}

/// The name of the current version's image that holds that and ended so.
#[must_use]
pub fn name(contents: Contents, end: End) -> String {
    name_of(kind(contents), end)
}

fn kind(contents: Contents) -> &'static str {
    match contents {
        Contents::Plain => "",
        Contents::Versions => "-versions",
        Contents::History => "-history",
        Contents::Reuse => "-reuse",
        Contents::Mirrored => "-mirrored",
        Contents::Growing => "-growing",
        Contents::Clients => "-clients",
        Contents::Compressed => "-compressed",
        Contents::Counted => "-counted",
        Contents::Neighbours => "-neighbours",
        Contents::Quotas => "-quotas",
        Contents::Frames => "-frames",
        Contents::Rearranged => "-rearranged",
        Contents::Block => "-block",
        Contents::BackedUp => "-backed-up",
        Contents::Remade => "-remade",
        Contents::Retired => "-retired",
    }
}

/// The name of the current version's image of this kind that ended so.
pub(crate) fn name_of(kind: &str, end: End) -> String {
    let end = match end {
        End::Clean => "clean",
        End::Crashed => "crashed",
    };
    format!("v{MAJOR_VERSION}.{MINOR_VERSION}{kind}-{end}")
}

/// All golden images, of every version, by name.
///
/// # Errors
/// When they cannot be read.
pub fn all() -> io::Result<Vec<Golden>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(dir())? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "packed") {
            names.extend(path.file_stem().map(|stem| stem.to_string_lossy().into_owned()));
        }
    }
    names.sort();
    names
        .into_iter()
        .map(|name| {
            let image = crate::unpack(&fs::read(dir().join(format!("{name}.packed")))?);
            let manifest = fs::read_to_string(dir().join(format!("{name}.manifest")))?;
            Ok(Golden { name, image, manifest })
        })
        .collect()
}

/// Keeps an image, unless there is one of that name; says whether it did.
///
/// # Errors
/// When it cannot be written.
pub fn keep(golden: &Golden) -> io::Result<bool> {
    let path = dir().join(format!("{}.packed", golden.name));
    if path.exists() {
        return Ok(false);
    }
    let mut file = fs::File::create_new(&path)?;
    io::Write::write_all(&mut file, &crate::pack(&golden.image))?;
    fs::write(path.with_extension("manifest"), &golden.manifest)?;
    Ok(true)
}
