//! `dendro damage`, and the summary of damage for `dendro info`.

use std::path::Path;

use dendro_base::Timestamp;
use dendro_control::damage::{DamageInfo, DamageRequest, DamagedPlace};
use dendro_daemon::damage::where_text;
use dendro_daemon::text;

use crate::args::DamageArgs;
use crate::failure::Failure;
use crate::offline;
use crate::output::{self, columns, json};
use crate::target::{self, Target};

/// A summary in one line, for `dendro info`.
pub(crate) fn summary(info: &DamageInfo) -> String {
    let places = match info.place_count {
        1 => "1 place".to_owned(),
        count => format!("{count} places"),
    };
    let time = |ns: Option<i64>| ns.map_or_else(String::new, |ns| text::time(Timestamp(ns).secs()));
    format!(
        "{places}, met {} times from {} to {}; `dendro damage` lists them",
        info.met_count,
        time(info.first_unix_ns),
        time(info.last_unix_ns)
    )
}

pub(crate) fn run(args: &DamageArgs, quiet: bool) -> Result<(), Failure> {
    let request = DamageRequest { clear: args.clear };
    let info = match target::find(&args.target)? {
        Target::Mounted(served) => served
            .client
            .damage(request)
            .map_err(|error| Failure::new(format_args!("{}: {error}", args.target.display())))?,
        Target::Unmounted(source) => offline(&source, request)?,
    };
    if args.json {
        return json::print(&info);
    }
    if !quiet || !args.clear {
        output::print(&list(&info))?;
    }
    Ok(())
}

fn offline(source: &Path, request: DamageRequest) -> Result<DamageInfo, Failure> {
    offline::damage(source, request)
}

fn list(info: &DamageInfo) -> String {
    if info.place_count == 0 {
        return "no damage was met, or it was taken note of\n".into();
    }
    let time = |ns: i64| text::time(Timestamp(ns).secs());
    let row = |place: &DamagedPlace| {
        [
            time(place.first_unix_ns),
            time(place.last_unix_ns),
            place.met_count.to_string(),
            place.addr_bytes.to_string(),
            where_text(place),
        ]
    };
    let rows: Vec<_> = info.places.iter().map(row).collect();
    let more = match info.place_count - rows.len() as u64 {
        0 => String::new(),
        count => format!("and {count} more places, of which there is no record\n"),
    };
    columns(["FIRST MET", "LAST MET", "TIMES", "ON DEVICE", "WHERE"], &rows, &[2, 3]) + &more
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_met_is_told_in_words() {
        let page = DamagedPlace {
            path: Some("/dir/file".into()),
            version: Some(":main".into()),
            offset_bytes: Some(8192),
            part: dendro_control::damage::Part::Page,
            inode: Some(7),
            addr_bytes: 1 << 20,
            problem: "the checksum is wrong".into(),
            first_unix_ns: 1_000_000_000,
            last_unix_ns: 9_000_000_000,
            met_count: 3,
        };
        let node = DamagedPlace {
            part: dendro_control::damage::Part::Map,
            path: None,
            version: None,
            offset_bytes: None,
            inode: None,
            ..page.clone()
        };
        let damage = DamageInfo {
            place_count: 2,
            met_count: 6,
            first_unix_ns: Some(1_000_000_000),
            last_unix_ns: Some(9_000_000_000),
            places: vec![page, node],
        };
        assert!(summary(&damage).starts_with("2 places, met 6 times from 1970-01-01 00:00:01"));
        assert!(list(&damage).contains("/dir/file in :main"));
        assert!(list(&DamageInfo::default()).starts_with("no damage"));
    }
}
