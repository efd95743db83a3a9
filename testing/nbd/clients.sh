#!/bin/bash
# Serves a volume to clients of NBD that others wrote: nbdinfo, nbdcopy, qemu-img, qemu-io,
# qemu-nbd, fio, libnbd's Python, and as root nbdfuse with ext4 on a loop device, whose server is
# killed. First the volume is not mounted, and then it is.
#
#   testing/nbd/clients.sh [DENDRO]
#
# DENDRO is the command, by default target/release/dendro. What is not installed is left out, and
# said; Debian has it in libnbd-bin, python3-libnbd, qemu-utils, fio and e2fsprogs.
set -euo pipefail

here=$(cd "$(dirname "$0")/../.." && pwd)
dendro=$(realpath "${1:-$here/target/release/dendro}")
certificates=$here/crates/nbd/tests/tls
scratch=$(mktemp -d "${TMPDIR:-/tmp}/dendro-nbd-XXXXXX")
export DENDRO_RUNTIME_DIR=$scratch/run
socket=$scratch/socket
through="nbd+unix:///?socket=$scratch/relay"
volume=$scratch/volume
server=
relay=
loop=

clean_up() {
    set +e
    [ -z "$loop" ] || { umount -l "$scratch/ext4"; losetup -d "$loop"; } 2> /dev/null
    fusermount3 -uz "$scratch/fuse" 2> /dev/null
    "$dendro" umount --force "$scratch/mnt" 2> /dev/null
    [ -z "$relay" ] || { kill -9 "$relay"; wait "$relay"; } 2> /dev/null
    [ -z "$server" ] || { kill -9 "$server"; wait "$server"; } 2> /dev/null
    rm -rf "$scratch"
}
trap clean_up EXIT

say() { echo "--- $*"; }
fail() { echo "FAILED: $*" >&2; exit 1; }
has() { command -v "$1" > /dev/null || { say "$1 is not installed: left out"; return 1; }; }
uri() { echo "nbd+unix:///$1?socket=$socket"; }

# Waits until a program of this name and number serves, which the command behind them tells.
await() {
    local name=$1 process=$2
    shift 2
    for _ in $(seq 200); do
        if "$@"; then return; fi
        kill -0 "$process" 2> /dev/null || fail "$name ended"
        sleep 0.05
    done
    fail "$name does not begin"
}

serve() {
    : > "$scratch/serving"
    "$dendro" nbd --json --socket "$socket" "$@" "$volume" > "$scratch/serving" &
    server=$!
    await "the server" "$server" grep -q '^}' "$scratch/serving"
}

stop() { kill -TERM "$server"; wait "$server" || fail "the server's exit status"; server=; }

copies() {
    say "nbdcopy, there and back"
    head -c 200M /dev/urandom > "$scratch/data"
    truncate -s 512M "$scratch/data"
    dd if=/dev/urandom of="$scratch/data" bs=1M seek=400 count=20 conv=notrunc status=none
    nbdcopy --flush "$scratch/data" "$(uri disk)"
    nbdcopy "$(uri disk)" "$scratch/back"
    cmp "$scratch/data" "$scratch/back"
    [ "$(du -m "$scratch/back" | cut -f 1)" -lt 300 ] || fail "holes were copied as data"
    nbdinfo --map "$(uri disk)" | tee "$scratch/map"
    [ "$(grep -c hole "$scratch/map")" = 2 ] || fail "the map has not two holes"
}

exports() {
    say "nbdinfo: exports"
    nbdinfo --list "$(uri '')" | grep '^export='
    [ "$(nbdinfo --size "$(uri disk)")" = $((512 << 20)) ] || fail "the size"
    nbdinfo --can multi-conn "$(uri disk)" || fail "several connections"
    nbdinfo --is read-only "$(uri disk@empty)" || fail "a snapshot can be written"
    if nbdinfo "$(uri none)" 2> /dev/null; then fail "there is an export that nobody made"; fi
}

qemu() {
    say "qemu-img: convert and compare; qemu-io: discard, zeroes, FUA"
    qemu-img convert -n -f raw -O raw "$scratch/data" "$(uri other)"
    qemu-img compare -f raw -F raw "$scratch/data" "$(uri other)"
    qemu-img create -q -f qcow2 -b "$(uri disk)" -F raw "$scratch/overlay"
    qemu-img compare -F raw -f qcow2 "$scratch/overlay" "$scratch/data"
    qemu-io -f raw -d unmap -c "write -P 5 4k 64k" -c "discard 8k 8k" -c "read -P 0 8k 8k" \
        -c "write -z 20k 10k" -c "read -P 0 20k 10k" -c "read -P 5 30k 38k" \
        -c "write -zu 40k 4k" -c "read -P 0 40k 4k" -c "write -f -P 9 1000001 77" \
        -c "read -P 9 1000001 77" -c "aio_write -P 3 2M 1M" -c "aio_read 0 4M" -c aio_flush \
        -c flush -c "read -P 3 2M 1M" "$(uri other)" > "$scratch/qemu-io" || fail "qemu-io"
    if grep -i "fail\|error" "$scratch/qemu-io"; then fail "qemu-io"; fi
}

# qemu-nbd as a client: it serves an export, which its arguments name, as its image.
relay() {
    rm -f "$scratch/relay"
    qemu-nbd --persistent --shared 8 --discard unmap --socket "$scratch/relay" "$@" &
    relay=$!
    await "qemu-nbd $*" "$relay" test -S "$scratch/relay"
}

end_relay() { kill -TERM "$relay"; wait "$relay" || fail "qemu-nbd's exit status"; relay=; }

# What qemu-nbd serves is the file with the data.
relayed() {
    [ "$(nbdinfo --size "$through")" = $((512 << 20)) ] || fail "the size through qemu-nbd"
    nbdcopy "$through" "$scratch/back"
    cmp "$scratch/data" "$scratch/back"
    qemu-img compare -f raw -F raw "$scratch/data" "$through"
}

qemu_nbd() {
    say "qemu-nbd: an export as its image, read and written through it"
    relay -f raw "$(uri disk)"
    relayed
    nbdinfo --map "$through" | diff "$scratch/map" - || fail "the holes through qemu-nbd"
    end_relay
    relay -f raw "$(uri other)"
    nbdcopy --flush "$scratch/data" "$through"
    qemu-img compare -f raw -F raw "$scratch/data" "$(uri other)"
    qemu-io -f raw -d unmap -c "write -P 7 1M 1M" -c "discard 1M 512k" -c "write -z 1600k 64k" \
        -c "write -f -P 9 1000001 77" -c flush "$through" > "$scratch/qemu-io" || fail "qemu-io"
    end_relay
    qemu-io -f raw -c "read -P 0 1M 512k" -c "read -P 7 1536k 64k" -c "read -P 0 1600k 64k" \
        -c "read -P 7 1664k 384k" -c "read -P 9 1000001 77" "$(uri other)" >> "$scratch/qemu-io" \
        || fail "qemu-io"
    if grep -i "fail\|error" "$scratch/qemu-io"; then fail "qemu-io"; fi
}

threads() {
    # No two requests that are under way may overlap: fio would not know which one counts.
    for size in 512 4k 100k; do
        say "fio: verified writes of $size, 32 at a time, on 4 connections"
        (cd "$scratch" && fio --name=verify --ioengine=nbd --uri="$(uri fio)" --rw=randrw \
            --bs=$size --size=8M --numjobs=4 --offset_increment=8M --iodepth=32 --verify=crc32c \
            --verify_fatal=1 --fsync=50 --output-format=terse > fio.out) || fail "fio"
    done
}

python() {
    /usr/bin/python3 -c 'import nbd' 2> /dev/null || { say "python3-libnbd: left out"; return; }
    say "libnbd's Python: 64 connections, and some that vanish"
    /usr/bin/python3 - "$(uri other)" << 'END'
import nbd, sys
handles = []
for number in range(64):
    handle = nbd.NBD()
    handle.add_meta_context(nbd.CONTEXT_BASE_ALLOCATION)
    handle.connect_uri(sys.argv[1])
    handles.append(handle)
for number, handle in enumerate(handles):
    handle.pwrite(bytes([number]) * 700, number * 1000)
    if number % 3 == 0:
        # It vanishes with requests under way.
        for at in range(20):
            handle.aio_pread(nbd.Buffer(1 << 20), at << 20)
        handles[number] = None
        del handle
handles[1].flush()
for number in range(64):
    assert handles[1].pread(700, number * 1000) == bytes([number]) * 700, number
found = []
handles[2].trim(1 << 20, 4 << 20)
handles[2].block_status(16 << 20, 0, lambda context, at, entries, error: found.extend(entries))
assert sum(found[0::2]) == 16 << 20 and 3 in found[1::2], found
END
}

encrypted() {
    say "TLS"
    stop
    serve --tls-certificates "$certificates"
    local with="tls-certificates=$certificates&tls-hostname=localhost"
    nbdinfo --size "nbds+unix:///disk?socket=$socket&$with" || fail "TLS"
    nbdcopy "nbds+unix:///disk?socket=$socket&$with" "$scratch/encrypted"
    cmp "$scratch/data" "$scratch/encrypted"
    if has qemu-nbd; then
        local image="driver=raw,file.driver=nbd,file.export=disk,file.server.type=unix"
        image+=",file.server.path=$socket,file.tls-creds=tls,file.tls-hostname=localhost"
        relay --object "tls-creds-x509,id=tls,endpoint=client,dir=$certificates" \
            --image-opts "$image"
        relayed
        end_relay
    fi
    if nbdinfo "$(uri disk)" 2> /dev/null; then fail "it is served without TLS"; fi
    stop
    serve
}

# ext4 that is written while its server is killed is as it was at one moment, with all that fsync
# has returned for.
killed() {
    [ "$(id -u)" = 0 ] || { say "ext4 through nbdfuse takes root: left out"; return; }
    say "ext4 through nbdfuse and a loop device; kill -9"
    mkdir -p "$scratch/fuse" "$scratch/ext4"
    for round in 1 2 3; do
        # It fails when its server is gone, and says so.
        nbdfuse "$scratch/fuse" "$(uri ext4)" 2> /dev/null &
        for _ in $(seq 100); do [ -e "$scratch/fuse/nbd" ] && break; sleep 0.05; done
        loop=$(losetup -f --show "$scratch/fuse/nbd")
        [ "$round" != 1 ] || mkfs.ext4 -q "$loop"
        mount "$loop" "$scratch/ext4"
        [ "$round" = 1 ] || (cd "$scratch/ext4" && sha256sum --quiet -c "$scratch/sums")
        head -c 5M /dev/urandom > "$scratch/ext4/safe-$round"
        sync -f "$scratch/ext4"
        (cd "$scratch/ext4" && sha256sum safe-*) > "$scratch/sums"
        (for number in $(seq 100000); do
            mkdir "$scratch/ext4/$round-$number" && head -c 20000 /dev/urandom \
                > "$scratch/ext4/$round-$number/file" || exit; done) 2> /dev/null &
        local writer=$!
        sleep 2
        kill -9 "$server"
        wait "$server" 2> /dev/null || true
        kill "$writer" 2> /dev/null || true
        wait "$writer" 2> /dev/null || true
        umount "$scratch/ext4" 2> /dev/null || umount -l "$scratch/ext4"
        losetup -d "$loop"
        loop=
        fusermount3 -uz "$scratch/fuse"
        serve
        nbdcopy "$(uri ext4)" "$scratch/image"
        # The journal is replayed, and after that nothing is wrong.
        e2fsck -p "$scratch/image" > "$scratch/fsck" || [ $? = 1 ] || { cat "$scratch/fsck"; fail "e2fsck -p"; }
        e2fsck -fn "$scratch/image" > "$scratch/fsck" 2>&1 || { cat "$scratch/fsck"; fail "e2fsck"; }
    done
}

# Clients of a volume that is mounted, while devices and files come and go.
mounted() {
    say "the same volume, mounted"
    stop
    mkdir -p "$scratch/mnt"
    "$dendro" mount "$volume" "$scratch/mnt"
    serve
    nbdcopy "$(uri disk)" "$scratch/back"
    cmp "$scratch/data" "$scratch/back"
    (for number in $(seq 200); do
        head -c 100k /dev/urandom > "$scratch/mnt/$number" && sync "$scratch/mnt/$number" \
            && "$dendro" -q block create "$volume/new-$number" 1M \
            && "$dendro" -q block resize "$volume/new-$number" 2M \
            && "$dendro" -q block delete "$volume/new-$number" || exit
        [ ! -e "$scratch/enough" ] || exit 0
    done) &
    local writer=$!
    nbdcopy --flush "$scratch/data" "$(uri other)"
    if has qemu-img; then qemu; fi
    if has qemu-nbd; then qemu_nbd; fi
    if has fio; then threads; fi
    python
    touch "$scratch/enough"
    wait "$writer" || fail "files and devices beside the clients"
    "$dendro" info "$scratch/mnt" | grep "^  served" || fail "it is not told that it is served"
    # A client that is connected keeps its device.
    qemu-io -f raw -c "sleep 3000" "$(uri other)" > /dev/null &
    local client=$!
    sleep 1
    if "$dendro" block delete "$volume/other" 2> "$scratch/said"; then fail "it was deleted"; fi
    grep "disconnect" "$scratch/said" || fail "the reason"
    "$dendro" block resize "$volume/other" 600M
    wait "$client"
    [ "$(nbdinfo --size "$(uri other)")" = $((600 << 20)) ] || fail "the new size"
    # The last mount takes it away.
    "$dendro" umount "$scratch/mnt"
    if wait "$server"; then fail "the server's exit status"; fi
    server=
    "$dendro" check "$volume"
    serve
}

"$dendro" mkfs -q --size 2G "$volume"
for device in disk:512M other:512M fio:512M ext4:256M huge:100G; do
    "$dendro" -q block create "$volume/${device%:*}" "${device#*:}"
done
"$dendro" -q snapshot create "$volume:disk@empty"
serve
has nbdcopy || exit 1
copies
exports
if has qemu-img; then qemu; fi
if has qemu-nbd; then qemu_nbd; fi
if has fio; then threads; fi
python
encrypted
if has nbdfuse && has mkfs.ext4; then killed; fi
if [ -w /dev/fuse ] && has qemu-io; then mounted; fi
say "a clone of 100 GiB"
stop
"$dendro" -q clone "$volume:huge" copy
serve
[ "$(nbdinfo --size "$(uri copy)")" = $((100 << 30)) ] || fail "the clone"
stop
"$dendro" check "$volume"
say "all is well"
