//! The examples of `dendro clean coalesce`.

/// Purposes, and the commands to type.
pub(super) const COALESCE: &[(&str, &str)] = &[
    ("What it would come to for one directory:", "dendro clean coalesce -n mnt/db"),
    (
        "Compress what was written before compression was on:",
        "dendro clean coalesce --compress=zstd mnt",
    ),
    ("Compress a block device of a volume:", "dendro clean coalesce --compress=lz4 vms.img:debian"),
];
