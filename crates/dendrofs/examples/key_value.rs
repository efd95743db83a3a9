//! A key-value store with snapshots.
//!
//! A record holds all pairs whose keys have one hash. A change of any number of pairs is one unit.
//! A snapshot is a version of the volume: it costs some microseconds, and reading it costs what
//! reading the present does.
//!
//!     cargo run --example key_value -- /tmp/pairs.img

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;

use dendrofs::disk::{Aru, View};
use dendrofs::{CreateOptions, Error, OpenOptions, Volume};

/// A store of pairs. A key and its value have up to 255 and 700 bytes.
pub struct Store {
    volume: Volume,
}

/// The record of a key.
fn place(key: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    hasher.finish()
}

/// The pairs in a record: lengths and bytes of key and value.
fn pairs(mut record: &[u8]) -> Vec<(String, Vec<u8>)> {
    let mut pairs = Vec::new();
    while let [key_len, low, high, rest @ ..] = record {
        let key_len = usize::from(*key_len);
        let value_len = usize::from(u16::from_le_bytes([*low, *high]));
        let Some((key, rest)) = rest.split_at_checked(key_len) else { break };
        let Some((value, rest)) = rest.split_at_checked(value_len) else { break };
        pairs.push((String::from_utf8_lossy(key).into_owned(), value.to_vec()));
        record = rest;
    }
    pairs
}

fn encode(pairs: &[(String, Vec<u8>)]) -> Vec<u8> {
    let mut record = Vec::new();
    for (key, value) in pairs {
        record.push(key.len() as u8);
        record.extend((value.len() as u16).to_le_bytes());
        record.extend(key.as_bytes());
        record.extend(value);
    }
    record
}

impl Store {
    /// Opens the store in an image, which is made if there is none.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let volume = match path.exists() {
            true => Volume::open(path, &OpenOptions::new())?,
            false => Volume::create(path, 64 << 20, &CreateOptions::lists())?,
        };
        Ok(Self { volume })
    }

    /// The value of a key, in any version.
    pub fn get_at(&self, version: View, key: &str) -> Result<Option<Vec<u8>>, Error> {
        let record = self.volume.disk().record(version, Volume::ROOT, place(key))?;
        let found = record.and_then(|record| pairs(&record).into_iter().find(|of| of.0 == key));
        Ok(found.map(|(_, value)| value))
    }

    /// The value of a key now.
    pub fn get(&self, key: &str) -> Result<Option<Vec<u8>>, Error> {
        self.get_at(self.volume.main(), key)
    }

    /// Puts pairs, and removes keys whose value is `None`: all of them, or nothing.
    pub fn change(&self, changes: &[(&str, Option<&[u8]>)]) -> Result<(), Error> {
        let head = self.volume.main();
        let mut unit = Aru::new(head);
        for (key, value) in changes {
            let record = self.volume.disk().record(head, Volume::ROOT, place(key))?;
            let mut pairs = record.map_or_else(Vec::new, |record| pairs(&record));
            pairs.retain(|of| of.0 != *key);
            pairs.extend(value.map(|value| ((*key).to_owned(), value.to_vec())));
            match pairs.is_empty() {
                true => unit.delete_record(Volume::ROOT, place(key)),
                false => unit.put_record(Volume::ROOT, place(key), encode(&pairs)),
            };
        }
        self.volume.disk().commit(unit)?;
        Ok(())
    }

    /// Keeps the present as a version.
    pub fn snapshot(&self, name: &str) -> Result<View, Error> {
        self.volume.snapshot(name)
    }

    /// A version that was kept.
    pub fn version(&self, name: &str) -> Result<View, Error> {
        self.volume.view(&format!("@{name}"))
    }

    /// Makes everything durable and closes the store.
    pub fn close(self) -> Result<(), Error> {
        self.volume.close()
    }
}

#[allow(dead_code, reason = "tests use the rest of this file")]
fn main() -> Result<(), Error> {
    let path = std::env::args_os().nth(1).unwrap_or_else(|| "pairs.img".into());
    let store = Store::open(Path::new(&path))?;
    store.change(&[("colour", Some(b"red")), ("size", Some(b"large"))])?;
    let name = format!("red-{}", std::process::id());
    let red = store.snapshot(&name)?;
    store.change(&[("colour", Some(b"blue")), ("size", None)])?;
    for key in ["colour", "size"] {
        let text = |value: Option<Vec<u8>>| {
            value.map_or_else(|| "-".into(), |value| String::from_utf8_lossy(&value).into_owned())
        };
        println!(
            "{key}: {} now, {} at @{name}",
            text(store.get(key)?),
            text(store.get_at(red, key)?)
        );
    }
    store.close()
}
