//! Makes the golden images of the current version of the format.

use std::error::Error;
use std::sync::Arc;

use dendro_base::SystemClock;
use dendro_device::{Device, MemoryDevice};
use dendro_images::contents::{End, image};
use dendro_images::golden::{Golden, keep, name};
use dendro_images::manifest;
use dendro_logdisk::{LogDisk, OpenOptions};

fn main() -> Result<(), Box<dyn Error>> {
    for end in [End::Clean, End::Crashed] {
        let image = image(end)?;
        let device: Arc<dyn Device> = Arc::new(MemoryDevice::from_bytes(&image));
        let options = OpenOptions { read_only: true, ..OpenOptions::default() };
        let disk = LogDisk::open(device, options, Arc::new(SystemClock))?;
        let golden = Golden { name: name(end), image, manifest: manifest::of(&disk)? };
        keep(&golden).map_err(|error| format!("{}: {error}", golden.name))?;
        println!("{}: {} lines", golden.name, golden.manifest.lines().count());
    }
    Ok(())
}
