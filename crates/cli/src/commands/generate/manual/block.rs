//! The examples of the commands for block devices.

/// The pages that each of them refers to.
pub(super) const SEE_ALSO: &[(&str, u8)] =
    &[("dendro-block", 1), ("dendro-nbd", 1), ("dendro-clone", 1), ("nbdinfo", 1), ("qemu-img", 1)];

type Examples = &'static [(&'static str, &'static str)];

/// The examples, by the titles of the pages.
pub(super) const EXAMPLES: &[(&str, Examples)] = &[
    (
        "dendro-block",
        &[(
            "A virtual disk, and a clone of it:",
            "dendro block create vms.img/debian 20G\ndendro snapshot create vms.img:debian@installed\ndendro clone vms.img:debian@installed web-1",
        )],
    ),
    (
        "dendro-block-create",
        &[
            ("A disk of 20 GiB:", "dendro block create vms.img/debian 20G"),
            (
                "One whose contents are compressed:",
                "dendro block create --compress zstd vms.img/logs 20G",
            ),
        ],
    ),
    (
        "dendro-block-list",
        &[
            ("Devices and their snapshots:", "dendro block list vms.img"),
            ("Who is connected to them:", "dendro block list --connections vms.img"),
        ],
    ),
    (
        "dendro-block-resize",
        &[
            ("To 40 GiB:", "dendro block resize vms.img/debian 40G"),
            ("To less:", "dendro block resize --shrink vms.img/debian 10G"),
        ],
    ),
    (
        "dendro-block-delete",
        &[("With its snapshots:", "dendro block delete --snapshots vms.img/debian")],
    ),
    (
        "dendro-nbd",
        &[
            (
                "To programs of this machine:",
                "dendro nbd --socket /run/vms.sock vms.img\nqemu-system-x86_64 -drive file='nbd+unix:///debian?socket=/run/vms.sock',if=virtio",
            ),
            (
                "To other machines that have a certificate:",
                "dendro nbd --listen 192.0.2.7 --tls-certificates /etc/pki/dendro vms.img",
            ),
        ],
    ),
];
