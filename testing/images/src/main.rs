//! Makes the golden images of the current version of the format.

use std::error::Error;
use std::sync::Arc;

use dendro_base::SystemClock;
use dendro_device::{Device, MemoryDevice};
use dendro_images::contents::{Contents, End, image};
use dendro_images::golden::{Golden, keep, name};
use dendro_images::sets::Kind;
use dendro_images::{manifest, sets};
use dendro_logdisk::{LogDisk, OpenOptions};

fn main() -> Result<(), Box<dyn Error>> {
    for contents in Contents::ALL {
        for end in [End::Clean, End::Crashed] {
            let image = image(contents, end)?;
            let device: Arc<dyn Device> = Arc::new(MemoryDevice::from_bytes(&image));
            let options = OpenOptions { read_only: true, ..OpenOptions::default() };
            let disk = LogDisk::open(device, options, Arc::new(SystemClock))?;
            let name = name(contents, end);
            let golden = Golden { name, image, manifest: manifest::of(&disk)? };
            let what = if keep(&golden)? { "made" } else { "is there" };
            println!("{}: {what}, {} lines", golden.name, golden.manifest.lines().count());
        }
    }
    for kind in Kind::ALL {
        for end in [End::Clean, End::Crashed] {
            let set = sets::make(kind, end)?;
            let what = if sets::keep(&set)? { "made" } else { "is there" };
            println!("{}: {what}, {} lines", set.name, set.manifest.lines().count());
        }
    }
    Ok(())
}
