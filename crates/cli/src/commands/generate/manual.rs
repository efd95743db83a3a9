//! The text of the man pages that the help does not have: examples, exit status, files, and
//! references to other pages.

mod block;
mod cleaning;

/// The text on the page of a command.
#[derive(Clone, Copy)]
pub(super) struct Page {
    /// Purposes, and the commands to type.
    pub(super) examples: &'static [(&'static str, &'static str)],
    /// Exit statuses and their meanings.
    pub(super) exit_status: &'static [(&'static str, &'static str)],
    /// Names of other pages and their sections.
    pub(super) see_also: &'static [(&'static str, u8)],
}

/// The files that every page lists.
pub(super) const FILES: &[(&str, &str)] = &[
    (
        "/run/dendro, $XDG_RUNTIME_DIR/dendro",
        "control sockets of root's daemons, and of a user's; $DENDRO_RUNTIME_DIR overrides both",
    ),
    ("/etc/fstab", "mounts of type dendro, fuse.dendro or fuseblk.dendro; see fstab(5)"),
];

const DEVICES: &[(&str, u8)] =
    &[("dendro-device", 1), ("dendro-migrate", 1), ("dendro-mkfs", 1), ("dendro-mount", 1)];
const PLAIN: &[(&str, &str)] =
    &[("0", "success"), ("1", "it could not be done"), ("2", "the command line is wrong")];
const MOUNT: &[(&str, &str)] = &[
    ("0", "success"),
    ("1", "the command line is wrong, as in mount(8)"),
    ("32", "the mount could not be made, or taken away"),
];
const CHECK: &[(&str, &str)] = &[
    ("0", "nothing is wrong"),
    ("1", "what was wrong was mended"),
    ("4", "something is wrong, and stays so, if only in snapshots; 5 if something else was mended"),
    (
        "8",
        "it could not be checked: there is no volume, it cannot be read, or is mounted and was to be mended",
    ),
    ("16", "the command line is wrong"),
];
const READ: &[(&str, &str)] = &[
    ("0", "success"),
    ("1", "something could not be read, or not all of it; messages name it"),
    ("2", "the command line is wrong"),
];
const SCRUB: &[(&str, &str)] = &[
    ("0", "success; a scrub that has come to the end found no damage"),
    ("1", "it could not be done"),
    ("2", "the command line is wrong"),
    ("4", "the scrub has come to the end, and found damage"),
];
const REBUILD: &[(&str, &str)] = &[
    ("0", "nothing had to be rebuilt"),
    ("1", "it was rebuilt, and nothing is lost"),
    ("2", "the command line is wrong"),
    ("4", "something is lost, which the report names; with -n: something would be rebuilt"),
    ("8", "it could not be rebuilt: nothing of a volume is left, or there is no room for its map"),
];
const IMAGE: &[(&str, &str)] = &[
    ("0", "the metadata was copied"),
    ("1", "it could not be copied"),
    ("2", "the command line is wrong"),
    ("4", "it was copied, and something in the volume is damaged"),
];
const TRY: &[(&str, &str)] = &[
    ("0", "COMMAND succeeded, and what it did is in the tree"),
    ("125", "COMMAND could not be run on a clone, or what it did not be taken over"),
    ("other", "that of COMMAND, and nothing of what it did stays"),
];

const VERSIONS: &[(&str, u8)] = &[("dendro-snapshot", 1), ("dendro-clone", 1), ("dendro-usage", 1)];
const FORKS: &[(&str, u8)] = &[
    ("dendro-fork", 1),
    ("dendro-forks", 1),
    ("dendro-drop", 1),
    ("dendro-branch", 1),
    ("dendro-clone", 1),
    ("dendro-try", 1),
    ("dendro-diff", 1),
];
const CLIENTS: &[(&str, u8)] = &[("dendro-client", 1), ("dendro-mount", 1), ("dendro-snapshot", 1)];
const READING: &[(&str, u8)] = &[
    ("dendro-ls", 1),
    ("dendro-cat", 1),
    ("dendro-cp", 1),
    ("dendro-check", 1),
    ("dendro-mount", 1),
];
const CREATE_CLIENT: &str = "dendro client create a.img:b\ndendro mount a.img:b mnt";
const CLEANING: &[(&str, u8)] = &[("dendro-clean", 1), ("dendro-segments", 1), ("dendro-stat", 1)];

/// A page of a command with the usual exit statuses.
const fn plain(
    examples: &'static [(&'static str, &'static str)],
    see_also: &'static [(&'static str, u8)],
) -> Page {
    Page { examples, exit_status: PLAIN, see_also }
}

/// The page of a verb of `dendro scrub`.
const fn scrubbing(examples: &'static [(&'static str, &'static str)]) -> Page {
    Page { examples, exit_status: SCRUB, see_also: &[("dendro-scrub", 1), ("dendro-damage", 1)] }
}

/// The text on the page `title`. A page without an entry has neither examples nor references.
pub(super) fn of(title: &str) -> Page {
    let known = PAGES.iter().find(|(known, _)| *known == title).map(|(_, page)| *page);
    let of_block = block::EXAMPLES.iter().find(|(known, _)| *known == title);
    let of_block = of_block.map(|(_, examples)| plain(examples, block::SEE_ALSO));
    known.or(of_block).unwrap_or(plain(&[], &[]))
}

const PAGES: &[(&str, Page)] = &[
    (
        "dendro",
        plain(
            &[
                (
                    "Make a volume of 10 GiB in a file, and use it:",
                    "dendro mkfs --size 10G -L home home.img\nmkdir mnt\ndendro mount home.img mnt\ndendro umount mnt",
                ),
                (
                    "Keep how it is, change something, and see what that was:",
                    "dendro snapshot create mnt@before\ntouch mnt/new\ndendro diff mnt@before",
                ),
            ],
            &[
                ("dendro-mount", 1),
                ("mkfs.dendro", 8),
                ("fsck.dendro", 8),
                ("mount.dendro", 8),
                ("fuse", 4),
            ],
        ),
    ),
    (
        "dendro-mkfs",
        plain(
            &[
                ("In a file that is made for it:", "dendro mkfs --size 10G -L home home.img"),
                ("With all its room taken at once:", "dendro mkfs --allocate --size 10G home.img"),
                (
                    "Small, and longer when it gets full:",
                    "dendro mkfs --size 1G --max-size 100G home.img",
                ),
                (
                    "On a disk, with the map of files kept once, since a RAID below it keeps all twice:",
                    "dendro mkfs --metadata-copies 1 /dev/md0",
                ),
                ("On a block device, as mkfs(8) calls it:", "mkfs -t dendro -L home /dev/vdb"),
                ("Again, with what is there destroyed:", "mkfs.dendro -f /dev/vdb"),
            ],
            &[("dendro-mount", 1), ("dendro-info", 1), ("mkfs", 8)],
        ),
    ),
    (
        "dendro-check",
        Page {
            examples: &[
                ("All but the contents of files:", "fsck -t dendro /dev/vdb"),
                ("The contents of files, too; as JSON:", "dendro check --data --json home.img"),
                ("Mend what can be mended:", "fsck.dendro -f -y /dev/vdb"),
                (
                    "Progress for a program, as e2fsck(8) tells it:",
                    "fsck.dendro -f -C 3 /dev/vdb 3>progress",
                ),
            ],
            exit_status: CHECK,
            see_also: &[
                ("dendro-dump", 1),
                ("dendro-mount", 1),
                ("dendro-findings", 7),
                ("fsck", 8),
            ],
        },
    ),
    (
        "dendro-rebuild",
        Page {
            examples: &[
                ("What would be done:", "dendro rebuild -n /dev/vdb"),
                (
                    "Without a change: all files into a directory, and those of a snapshot:",
                    "mkdir saved before\ndendro rebuild --to saved /dev/vdb\n\
                     dendro rebuild --to before /dev/vdb@before",
                ),
                ("On a copy:", "dendro rebuild --to copy.img /dev/vdb"),
                ("In place, and then the check:", "dendro rebuild home.img\nfsck.dendro home.img"),
            ],
            exit_status: REBUILD,
            see_also: &[("dendro-check", 1), ("dendro-cp", 1), ("dendro-dump", 1)],
        },
    ),
    (
        "dendro-image",
        Page {
            examples: &[(
                "For a report of an error, and what a check finds in it:",
                "dendro image --metadata --data home.img report.img\nfsck.dendro -f report.img\nxz report.img",
            )],
            exit_status: IMAGE,
            see_also: &[("dendro-check", 1), ("dendro-dump", 1), ("dendro-rebuild", 1)],
        },
    ),
    (
        "dendro-mount",
        Page {
            examples: &[
                ("As the user who calls it:", "dendro mount home.img mnt"),
                ("By its label, all users let in:", "mount -t dendro LABEL=home /home"),
                ("How it was a quarter of an hour ago:", "dendro mount -o at=-15m home.img then"),
                (
                    "A line of /etc/fstab:",
                    "UUID=4d61981b-b714-4d0e-affc-ccbe84950c6f /home dendro noatime,nofail 0 2",
                ),
            ],
            exit_status: MOUNT,
            see_also: &[
                ("dendro-umount", 1),
                ("dendro-snapshot", 1),
                ("mount", 8),
                ("fstab", 5),
                ("fuse", 4),
            ],
        },
    ),
    (
        "dendro-umount",
        Page {
            examples: &[
                (
                    "By the mount point, or what is mounted there:",
                    "dendro umount mnt\ndendro umount home.img",
                ),
                ("Although files are open:", "dendro umount --lazy mnt"),
                ("All of them, at the end of the day:", "dendro umount --all"),
            ],
            exit_status: MOUNT,
            see_also: &[("dendro-mount", 1), ("umount", 8)],
        },
    ),
    (
        "dendro-sync",
        plain(
            &[("Before the power is cut:", "dendro sync mnt")],
            &[("dendro-mount", 1), ("sync", 1)],
        ),
    ),
    (
        "dendro-send",
        plain(
            &[
                ("All of a snapshot, compressed:", "dendro send -z -o monday.dendro mnt@monday"),
                (
                    "What changed since, into a pipe:",
                    "dendro send --from @monday mnt@tuesday | ssh host 'cat > tuesday.dendro'",
                ),
                (
                    "All snapshots and branches, to another machine:",
                    "dendro send --all mnt | ssh host dendro receive --branches copy.img",
                ),
            ],
            &[("dendro-receive", 1), ("dendro-stream", 1), ("dendro-replicate", 1)],
        ),
    ),
    (
        "dendro-receive",
        plain(
            &[
                (
                    "A copy on another machine:",
                    "dendro send mnt@monday | ssh host dendro receive backup.img",
                ),
                (
                    "What changed since, on top of that:",
                    "dendro send --from @monday mnt@tuesday | ssh host dendro receive backup.img",
                ),
                ("From a file, under another name:", "dendro receive mnt@old monday.dendro"),
                (
                    "Over a connection that may break off, and what to do then:",
                    "dendro send mnt@monday | ssh host dendro receive -s backup.img\n\
                     dendro send --resume d1… mnt | ssh host dendro receive -s backup.img",
                ),
            ],
            &[("dendro-send", 1), ("dendro-stream", 1), ("dendro-clone", 1)],
        ),
    ),
    (
        "dendro-stream",
        plain(
            &[("Whether a file is as it was written:", "dendro stream verify monday.dendro")],
            &[("dendro-send", 1), ("dendro-receive", 1)],
        ),
    ),
    (
        "dendro-stream-restore",
        Page {
            examples: &[
                ("One file:", "dendro stream restore monday.dendro /home/doc --to ."),
                (
                    "All files, of a stream that goes on from another one:",
                    "dendro stream restore --base monday.dendro tuesday.dendro --to /tmp/tuesday",
                ),
            ],
            exit_status: READ,
            see_also: &[("dendro-stream", 1), ("dendro-cp", 1), ("dendro-receive", 1)],
        },
    ),
    (
        "dendro-replicate",
        plain(
            &[
                ("Ten seconds behind:", "dendro replicate /home host:/srv/home.img"),
                (
                    "On the other machine, to go on with what was sent last:",
                    "dendro clone /srv/home.img@replica-… live\ndendro promote /srv/home.img:live",
                ),
                (
                    "Every night from a timer, with snapshots of the last month:",
                    "dendro replicate --once --keep 30d:1d /home host:/srv/home.img",
                ),
            ],
            &[("dendro-send", 1), ("dendro-receive", 1), ("dendro-promote", 1)],
        ),
    ),
    (
        "dendro-stream-verify",
        plain(
            &[
                ("Whether a file is as it was written:", "dendro stream verify monday.dendro"),
                (
                    "While it is being received:",
                    "ssh host dendro send mnt@monday | tee monday.dendro | dendro stream verify -",
                ),
            ],
            &[("dendro-send", 1), ("dendro-stream", 1)],
        ),
    ),
    (
        "dendro-stream-list",
        plain(
            &[("Which files changed:", "dendro stream list tuesday.dendro")],
            &[("dendro-send", 1), ("dendro-stream", 1)],
        ),
    ),
    (
        "dendro-damage",
        plain(
            &[
                ("What was met while it was in use:", "dendro damage mnt"),
                ("When the files have been brought back from a copy:", "dendro damage --clear mnt"),
            ],
            &[("dendro-check", 1), ("dendro-info", 1), ("dendro-undelete", 1)],
        ),
    ),
    (
        "dendro-scrub",
        Page {
            examples: &[
                ("Of a volume in use, reporting at the end:", "dendro scrub --wait mnt"),
                ("At 50 MiB in a second:", "dendro scrub --rate 50M mnt"),
                (
                    "Each month:",
                    "systemctl enable --now \"dendro-scrub@$(systemd-escape -p /mnt).timer\"",
                ),
                ("Of one that is not mounted:", "dendro scrub home.img"),
            ],
            exit_status: SCRUB,
            see_also: &[("dendro-damage", 1), ("dendro-check", 1), ("dendro-stat", 1)],
        },
    ),
    ("dendro-scrub-start", scrubbing(&[("In the background:", "dendro scrub start mnt")])),
    ("dendro-scrub-status", scrubbing(&[("As JSON:", "dendro scrub status --json mnt")])),
    ("dendro-scrub-pause", scrubbing(&[("During the day:", "dendro scrub pause mnt")])),
    ("dendro-scrub-resume", scrubbing(&[("Faster:", "dendro scrub resume --rate 200M mnt")])),
    ("dendro-scrub-cancel", scrubbing(&[("For good:", "dendro scrub cancel mnt")])),
    (
        "dendro-info",
        plain(
            &[
                ("Of the volume that one is in:", "dendro info"),
                ("One fact, for a program:", "dendro info --json home.img | jq -r .uuid"),
            ],
            &[("dendro-stat", 1), ("dendro-usage", 1)],
        ),
    ),
    (
        "dendro-stat",
        plain(
            &[
                ("What it does, each second:", "dendro stat --watch mnt"),
                (
                    "For Prometheus, at a port of this machine:",
                    "dendro mount -o metrics=9350 home.img mnt\ncurl http://localhost:9350/metrics",
                ),
                (
                    "For node-exporter's textfile collector, each minute by cron(8):",
                    "dendro stat --metrics --to /var/lib/prometheus/node-exporter/home.prom mnt",
                ),
            ],
            &[("dendro-info", 1), ("dendro-segments", 1)],
        ),
    ),
    (
        "dendro-segments",
        plain(
            &[
                ("In figures and as a picture of characters:", "dendro segments mnt"),
                (
                    "As a drawing, and that as pixels:",
                    "dendro segments --plot home.svg mnt\nrsvg-convert home.svg > home.png",
                ),
            ],
            &[("dendro-clean", 1), ("dendro-usage", 1)],
        ),
    ),
    (
        "dendro-clean",
        plain(
            &[("See how it stands, and clean:", "dendro clean status mnt\ndendro clean run mnt")],
            &[("dendro-cleanerd", 1), ("dendro-segments", 1)],
        ),
    ),
    ("dendro-clean-status", plain(&[("As JSON:", "dendro clean status --json mnt")], CLEANING)),
    (
        "dendro-clean-run",
        plain(
            &[("Until 1000 segments are clean:", "dendro clean run --until-clean 1000 mnt")],
            CLEANING,
        ),
    ),
    (
        "dendro-resize",
        plain(
            &[
                ("To 20 GiB, while it is in use:", "dendro resize mnt 20G"),
                ("By 5 GiB:", "dendro resize home.img +5G"),
                (
                    "To 8 GiB before the logical volume below is made smaller:",
                    "dendro resize /dev/vg/home 8G\nlvreduce -L 8196M vg/home",
                ),
                (
                    "After the logical volume below was made larger:",
                    "lvextend -L +10G vg/home\ndendro resize /dev/vg/home max",
                ),
            ],
            &[("dendro-mkfs", 1), ("dendro-info", 1), ("lvextend", 8), ("losetup", 8)],
        ),
    ),
    (
        "dendro-device",
        plain(
            &[
                (
                    "On two disks, each of which holds all of it:",
                    "dendro mkfs --copies 2 /dev/sda /dev/sdb",
                ),
                ("See how they are:", "dendro device list mnt"),
                ("Without the one that is lost:", "dendro mount -o degraded /dev/sda mnt"),
                ("With a new one in its place:", "dendro device replace mnt /dev/sdb /dev/sdc"),
                ("On a slow and a fast one:", "dendro mkfs --copies 1 /dev/sda --fast /dev/sdb"),
            ],
            DEVICES,
        ),
    ),
    ("dendro-device-list", plain(&[("As JSON:", "dendro device list --json mnt")], DEVICES)),
    (
        "dendro-device-add",
        plain(
            &[("A second one, or one that was away:", "dendro device add mnt /dev/sdb")],
            DEVICES,
        ),
    ),
    (
        "dendro-device-set",
        plain(&[("A fast one:", "dendro device set --fast mnt /dev/sdb")], DEVICES),
    ),
    ("dendro-device-remove", plain(&[("For good:", "dendro device remove mnt /dev/sdb")], DEVICES)),
    (
        "dendro-device-replace",
        plain(
            &[("A disk that fails by another:", "dendro device replace mnt /dev/sda /dev/sdc")],
            DEVICES,
        ),
    ),
    (
        "dendro-device-forget",
        plain(
            &[(
                "Of two disks that were used without each other, keep the first:",
                "dendro device forget /dev/sdb\ndendro mount -o degraded /dev/sda mnt",
            )],
            DEVICES,
        ),
    ),
    (
        "dendro-device-offline",
        plain(
            &[(
                "To take a disk out and put it back:",
                "dendro device offline mnt /dev/sdb\ndendro device add mnt /dev/sdb",
            )],
            DEVICES,
        ),
    ),
    (
        "dendro-migrate",
        plain(
            &[
                ("From an image to a disk, while it is in use:", "dendro migrate mnt /dev/sdb"),
                ("And back, into a new image:", "dendro migrate mnt home.img"),
            ],
            DEVICES,
        ),
    ),
    ("dendro-clean-coalesce", plain(cleaning::COALESCE, CLEANING)),
    (
        "dendro-clean-suspend",
        plain(&[("While something is measured:", "dendro clean suspend mnt")], CLEANING),
    ),
    ("dendro-clean-resume", plain(&[("Afterwards:", "dendro clean resume mnt")], CLEANING)),
    (
        "dendro-clean-set",
        plain(
            &[(
                "Another policy, and more in reserve:",
                "dendro clean set --policy greedy --min-clean-segments 200 mnt",
            )],
            CLEANING,
        ),
    ),
    (
        "dendro-cleanerd",
        plain(&[("In the foreground, telling what it does:", "dendro cleanerd -v mnt")], CLEANING),
    ),
    (
        "dendro-snapshot",
        plain(
            &[(
                "Make one, and list all:",
                "dendro snapshot create mnt@before\ndendro snapshot list mnt",
            )],
            &[("dendro-clone", 1), ("dendro-rollback", 1), ("dendro-diff", 1)],
        ),
    ),
    (
        "dendro-snapshot-create",
        plain(
            &[(
                "With a name, and without, for retention to thin out:",
                "dendro snapshot create mnt@before\ndendro snapshot create mnt",
            )],
            VERSIONS,
        ),
    ),
    (
        "dendro-snapshot-list",
        plain(&[("Those with names:", "dendro snapshot list --named mnt")], VERSIONS),
    ),
    (
        "dendro-snapshot-delete",
        plain(
            &[(
                "See what that would free, then do it:",
                "dendro snapshot delete -n mnt@before @after\ndendro snapshot delete mnt@before @after",
            )],
            VERSIONS,
        ),
    ),
    (
        "dendro-snapshot-rename",
        plain(
            &[("Keep one that retention would take:", "dendro snapshot rename mnt@1234 good")],
            VERSIONS,
        ),
    ),
    (
        "dendro-snapshot-hold",
        plain(&[("While a backup reads it:", "dendro snapshot hold mnt@before")], VERSIONS),
    ),
    (
        "dendro-snapshot-release",
        plain(&[("After that:", "dendro snapshot release mnt@before")], VERSIONS),
    ),
    (
        "dendro-clone",
        plain(
            &[(
                "Work on a copy of how it was:",
                "dendro clone home.img@before draft\ndendro mount -o clone=draft home.img draft",
            )],
            VERSIONS,
        ),
    ),
    (
        "dendro-promote",
        plain(&[("Make the copy the one that counts:", "dendro promote home.img:draft")], VERSIONS),
    ),
    (
        "dendro-rollback",
        plain(
            &[
                (
                    "Go back to a snapshot, or by an hour:",
                    "dendro rollback mnt@before\ndendro rollback mnt@-1h",
                ),
                ("Take that back:", "dendro rollback --undo mnt"),
            ],
            VERSIONS,
        ),
    ),
    (
        "dendro-diff",
        plain(
            &[
                (
                    "Since a snapshot, and between two:",
                    "dendro diff mnt@before\ndendro diff mnt@before..after",
                ),
                ("Between a tree and a fork of it:", "dendro diff mnt draft"),
                (
                    "What was done in a fork, in a git work tree elsewhere:",
                    "dendro diff --patch mnt draft | git -C ~/src/project apply",
                ),
            ],
            VERSIONS,
        ),
    ),
    (
        "dendro-history",
        plain(
            &[("Of a file, also if it is gone:", "dendro history mnt/thesis.tex")],
            &[("dendro-undelete", 1), ("dendro-snapshot", 1)],
        ),
    ),
    (
        "dendro-undelete",
        plain(
            &[
                (
                    "What can be had back, and one of it:",
                    "dendro undelete --list mnt\ndendro undelete mnt/thesis.tex",
                ),
                (
                    "How it was yesterday, beside what is there now:",
                    "dendro undelete --from -1d --to mnt/old mnt/thesis.tex",
                ),
            ],
            &[("dendro-history", 1), ("dendro-snapshot", 1)],
        ),
    ),
    (
        "dendro-log",
        plain(
            &[
                ("The branches and snapshots as a graph:", "dendro log --graph mnt"),
                (
                    "As a drawing, and that as pixels:",
                    "dendro log --plot home.svg mnt\nrsvg-convert home.svg > home.png",
                ),
            ],
            VERSIONS,
        ),
    ),
    (
        "dendro-usage",
        plain(
            &[
                ("Which snapshot is worth deleting:", "dendro usage mnt"),
                ("As a drawing:", "dendro usage --plot home.svg mnt"),
                ("What compression gains for a tree:", "dendro usage --files mnt/src"),
            ],
            &[("dendro-snapshot", 1), ("dendro-info", 1)],
        ),
    ),
    (
        "dendro-try",
        Page {
            examples: &[
                (
                    "Install all of it or nothing:",
                    "cd mnt\ndendro try -- sh -c 'make && make check && make install'",
                ),
                (
                    "Look first at what a script does, and keep it apart:",
                    "cd mnt\ndendro try --keep --name trial -- ./cleanup.sh\ndendro diff .@head :trial@head",
                ),
            ],
            exit_status: TRY,
            see_also: &[("dendro-clone", 1), ("dendro-promote", 1), ("dendro-diff", 1)],
        },
    ),
    (
        "dendro-fork",
        plain(
            &[
                ("Work on a tree beside the one that others use:", "dendro fork mnt/project draft"),
                ("Twenty of them, for as many agents:", "dendro fork -n 20 mnt/project agents"),
            ],
            FORKS,
        ),
    ),
    ("dendro-forks", plain(&[("Of the volume that one is in:", "dendro forks")], FORKS)),
    (
        "dendro-drop",
        plain(
            &[
                ("Throw away what was done there:", "dendro drop draft"),
                ("Also where it is mounted nowhere:", "dendro drop home.img:draft"),
            ],
            FORKS,
        ),
    ),
    ("dendro-branch", plain(&[("All branches:", "dendro branch list mnt")], FORKS)),
    ("dendro-branch-list", plain(&[("As JSON:", "dendro branch list --json mnt")], FORKS)),
    (
        "dendro-branch-rename",
        plain(&[("Give one another name:", "dendro branch rename mnt:draft thesis")], FORKS),
    ),
    (
        "dendro-branch-delete",
        plain(&[("See what that would free:", "dendro branch delete -n mnt:draft")], FORKS),
    ),
    ("dendro-client", plain(&[("A second file system:", "dendro client create a.img:b")], CLIENTS)),
    ("dendro-client-list", plain(&[("As JSON:", "dendro client list --json mnt")], CLIENTS)),
    ("dendro-client-create", plain(&[("Make one and mount it:", CREATE_CLIENT)], CLIENTS)),
    ("dendro-client-rename", plain(&[("Rename it:", "dendro client rename a.img:b c")], CLIENTS)),
    ("dendro-client-set", plain(&[("Limit it:", "dendro client set a.img:b --quota 9G")], CLIENTS)),
    ("dendro-client-delete", plain(&[("All of it:", "dendro client delete a.img:b")], CLIENTS)),
    (
        "dendro-set",
        plain(
            &[
                ("Commit each second, from now on:", "dendro set mnt commit=1"),
                ("See what is in force:", "dendro set mnt"),
            ],
            &[("dendro-mount", 1), ("dendro-info", 1)],
        ),
    ),
    (
        "dendro-ls",
        Page {
            examples: &[
                ("What is in the root of a volume:", "dendro ls -l home.img"),
                ("All that a snapshot has:", "dendro ls -R home.img@before /doc"),
            ],
            exit_status: READ,
            see_also: READING,
        },
    ),
    (
        "dendro-cat",
        Page {
            examples: &[
                ("A file as it was:", "dendro cat home.img@-15m /etc/fstab"),
                ("What can be read of a damaged one:", "dendro cat -k home.img /log > log"),
            ],
            exit_status: READ,
            see_also: READING,
        },
    ),
    (
        "dendro-cp",
        Page {
            examples: &[
                ("A directory of a snapshot:", "dendro cp -r home.img@before /doc ."),
                (
                    "All that can be read of a volume that does not mount:",
                    "mkdir rescued\ndendro cp -rk home.img / rescued",
                ),
            ],
            exit_status: READ,
            see_also: READING,
        },
    ),
    (
        "dendro-dump",
        plain(
            &[
                ("Where a volume begins:", "dendro dump home.img"),
                ("What the next mount rolls forward:", "dendro dump home.img records --log"),
                ("Where a file of a snapshot lies:", "dendro dump home.img@before --path /doc/a"),
                ("Which file a bad sector belongs to:", "dendro dump home.img --offset 12582912"),
            ],
            &[("dendro-check", 1), ("dendro-segments", 1)],
        ),
    ),
];
