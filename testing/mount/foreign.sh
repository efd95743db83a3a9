#!/bin/bash
# Test suites by others, on mounted volumes: fsx (random operations on one file, everything read
# back; see fsx.py) with several seeds at a time, and pjdfstest (the rules of POSIX), as root.
#
#     cargo install fsx pjdfstest
#     foreign.sh [OPERATIONS [SEED...]]
set -eu
# mount(8) looks for its helpers in /usr/sbin alone: in a mount namespace of its own, this puts them there.
if [ "$(id -u)" = 0 ] && [ -z "${DENDRO_FOREIGN_NAMESPACE:-}" ]; then
    DENDRO_FOREIGN_NAMESPACE=1 exec unshare --mount bash "$0" "$@"
fi
here=$(cd "$(dirname "$0")" && pwd)
operations=${1:-100000}
[ $# -gt 0 ] && shift
seeds=${*:-1 2 3}
dendro=${DENDRO:-${CARGO_TARGET_DIR:-$here/../../target}/release/dendro}
work=$(mktemp -d "${DENDRO_TEST_DIR:-/var/tmp}/dendro-foreign-XXXXXX")
# Sockets' paths must be short.
mnt=$(mktemp -d /tmp/XXXXXX)
failed=0

finish() {
    umount "$work/second" 2> /dev/null || true
    umount /usr/sbin 2> /dev/null || true
    umount "$work/sbin" 2> /dev/null || true
    "$dendro" umount "$mnt" 2> /dev/null || umount -l "$mnt" 2> /dev/null || true
    rmdir "$mnt"
    rm -rf "$work"
}
trap finish EXIT

mkdir "$work/second"
if [ -n "${DENDRO_FOREIGN_NAMESPACE:-}" ]; then
    mkdir "$work/sbin" "$work/helpers"
    mount --bind /usr/sbin "$work/sbin"
    for file in "$work"/sbin/*; do ln -s "$file" "$work/helpers/"; done
    for name in mount.fuse.dendro mount.fuseblk.dendro; do
        ln -sf "$(realpath "$dendro")" "$work/helpers/$name"
    done
    mount --bind "$work/helpers" /usr/sbin
fi
DENDRO=$dendro python3 "$here/fsx.py" --operations "$operations" --seeds "${seeds// /,}" \
    --options "${DENDRO_TEST_OPTIONS:-rw}" || failed=1

"$dendro" -q mkfs --size 4G "$work/img"
"$dendro" mount -o "${DENDRO_TEST_OPTIONS:-rw}" --log-file "$work/log" "$work/img" "$mnt"
chmod 755 "$mnt"

if command -v pjdfstest > /dev/null && [ "$(id -u)" = 0 ]; then
    mount -t tmpfs none "$work/second"
    mkdir "$mnt/p"
    cp "$here/pjdfstest.toml" "$work/all.toml"
    # The kernel's clock advances every few milliseconds, and sets the times there.
    case ${DENDRO_TEST_OPTIONS:-} in
        *order=close*) sed -i 's/^naptime = .*/naptime = 0.02/' "$work/all.toml" ;;
    esac
    sed 's/^allow_remount = false/allow_remount = true/' "$work/all.toml" > "$work/erofs.toml"
    pjdfstest -c "$work/erofs.toml" -p "$mnt/p" -s "$work/second" erofs \
        > "$work/pjdfstest.txt" 2>&1 || failed=1
    pjdfstest -c "$work/all.toml" -p "$mnt/p" -s "$work/second" \
        >> "$work/pjdfstest.txt" 2>&1 || failed=1
    grep -i -A3 "failed$\|panicked" "$work/pjdfstest.txt" | head -60
    # Read-only mounts, and then all of it, without these.
    grep "^Summary" "$work/pjdfstest.txt" | sed "s/^Summary/pjdfstest/"
else
    echo "pjdfstest is left out: it takes root and cargo install pjdfstest"
fi
if grep panick "$work/log"; then failed=1; fi
exit $failed
