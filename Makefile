# make run      a volume, mounted, with everything that takes
# make test     what must pass before a change goes in
# make soak     simulated crashes without end, until one is not survived
# make damage   damaged images, until one is read wrong or makes the engine fail
# make bench    what things cost, in ratios to something measured beside it
# make bench-mount  mounts, beside ext4, XFS, btrfs and what FUSE allows
# make bench-cleaner  how close cleaning comes to what is possible, in simulation
# make fuzz     each decoder under libFuzzer, in turn
# make model    the lock protocols under a model checker
# make miri     memory accesses of unsafe code under Miri
# make audit    licences, advisories and sources of dependencies
# make install  the command, its man pages, completions, units, udev rule and magic entry
# make deb      the same as a Debian package, and those of the library for C programs
# make wheel    the Python module as a package for pip
# make package  the library for Rust programs, and the crates that it uses, as packages for cargo
# make install-lib  the library for C programs: shared and static, header, pkg-config file, man page
# make stage-deb  the files of that package, for cargo-deb
# See README.md and docs/DEVELOPMENT.md.

IMG    ?= $(CURDIR)/dendro.img
MNT    ?= $(CURDIR)/mnt
SIZE   ?= 1G

PREFIX  ?= /usr/local
DESTDIR ?=
BINDIR  ?= $(PREFIX)/bin
DATADIR ?= $(PREFIX)/share
MANDIR  ?= $(DATADIR)/man
DOCDIR  ?= $(DATADIR)/doc/dendrofs
# udev looks here below /usr and /usr/local.
UDEVDIR ?= $(PREFIX)/lib/udev/rules.d
# systemd's directory for units of packages, and of what is installed locally.
UNITDIR ?= $(PREFIX)/lib/systemd/system
# mount(8), mkfs(8) and fsck(8) look for their helpers here, wherever the rest is.
SBINDIR ?= /usr/sbin
# zsh's directory for what is not of a package; packages have vendor-completions.
VENDORED_ZSH ?= site-functions
BASHDIR ?= $(DATADIR)/bash-completion/completions
ZSHDIR  ?= $(DATADIR)/zsh/$(VENDORED_ZSH)
FISHDIR ?= $(DATADIR)/fish/vendor_completions.d
# Where the library for C programs goes.
LIBDIR  ?= $(PREFIX)/lib
INCLUDEDIR ?= $(PREFIX)/include
PKGCONFIGDIR ?= $(LIBDIR)/pkgconfig

export PATH := $(HOME)/.cargo/bin:$(PATH)
CARGO   ?= cargo
TARGET  := $(or $(CARGO_TARGET_DIR),$(CURDIR)/target)
DENDRO  := $(TARGET)/release/dendro
# The other names that it answers to.
LINKS   := mkfs.dendro fsck.dendro mount.dendro mount.fuse.dendro mount.fuseblk.dendro \
           umount.fuse.dendro umount.fuseblk.dendro
# Where libdendro.so and libdendro.a are built.
LIBDENDRO := $(TARGET)/release
VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
SOVERSION := $(shell packaging/soversion)

PYTHON  ?= python3
# The virtual environment for the tests of the Python module.
PYENV   := $(TARGET)/python-env

.PHONY: all run stop setup test check-format lint doc unit soak damage bench bench-mount bench-cleaner fuzz model miri audit python-env wheel lib install install-files install-lib install-lib-files uninstall uninstall-lib deb stage-deb package clean

all:
	$(CARGO) build --release --bin dendro

## A volume, mounted

run: setup all
	@if findmnt --noheadings --types fuse.dendro --mountpoint "$(MNT)" > /dev/null 2>&1 \
	    && ls "$(MNT)" > /dev/null 2>&1; then \
	    echo "$(MNT) is mounted already."; \
	else \
	    test -s "$(IMG)" || "$(DENDRO)" mkfs --size "$(SIZE)" "$(IMG)" || exit 1; \
	    mkdir -p "$(MNT)" 2> /dev/null; \
	    "$(DENDRO)" mount "$(IMG)" "$(MNT)" || exit 1; \
	    echo "$(IMG) is mounted on $(MNT)."; \
	fi
	@echo "Look at it with:  $(DENDRO) info $(MNT)"
	@echo "Unmount it with:  $(DENDRO) umount $(MNT)   (or: make stop)"

stop:
	"$(DENDRO)" umount "$(MNT)"

# Installs what is missing, and does nothing where nothing is.
setup:
	@.ci/setup

## Tests

test: setup check-format lint doc unit

check-format:
	$(CARGO) fmt --all --check

lint:
	$(CARGO) clippy --workspace --all-targets -- --deny warnings
	@# The models of `make model` have locks of another kind.
	$(CARGO) clippy --package dendro-logdisk --features shuttle --test model -- --deny warnings

doc:
	RUSTDOCFLAGS="--deny warnings" $(CARGO) doc --workspace --no-deps

unit: python-env
	@test -c /dev/fuse -o -n "$$DENDRO_SKIP_MOUNT" || { \
	    echo "There is no /dev/fuse, so nothing can be mounted: load it with modprobe fuse, or"; \
	    echo "give the container --device /dev/fuse --cap-add SYS_ADMIN."; \
	    echo "DENDRO_SKIP_MOUNT=1 leaves the tests that mount out."; exit 1; }
	$(CARGO) test --workspace

# What the tests of the Python module run in. DENDRO_SKIP_PYTHON=1 leaves them out.
python-env: $(if $(DENDRO_SKIP_PYTHON)$(DENDRO_PYTHON),,$(PYENV)/made)

$(PYENV)/made: crates/python/requirements.txt
	rm -rf "$(PYENV)"
	$(PYTHON) -m venv "$(PYENV)"
	"$(PYENV)/bin/pip" --quiet --disable-pip-version-check install -r crates/python/requirements.txt
	touch "$(PYENV)/made"

## Longer than anyone waits for: not part of `make test`

# More for the command: make soak ARGS="--seed 7"
ARGS ?=
# Where the benchmark's image file goes: best a disk, not a tmpfs.
DIR  ?= $(TARGET)/bench
# What is fuzzed, and how long each.
FUZZ_TARGETS ?= superblock partial records node checkpoint usage block image engine fuse_request stream nbd
FUZZ_SECONDS ?= 60

soak: setup
	$(CARGO) run --profile soak --package dendro-sim --bin soak -- $(ARGS)

# More of them: make damage ARGS="--damaged 1000000 --from 5000"
damage: setup
	$(CARGO) run --profile soak --package dendro-sim --bin soak -- $(or $(ARGS),--damaged 100000)

bench: setup
	mkdir -p "$(DIR)"
	$(CARGO) run --release --package dendro-bench -- "$(DIR)"

# As root. TREE=linux.tar.xz measures with a source tree too; ARGS="--quick", ARGS="--help".
TREE ?=
bench-mount: setup all
	mkdir -p "$(DIR)"
	$(CARGO) build --release --package dendro-bench
	"$(TARGET)/release/dendro-bench" mount $(if $(TREE),--tree "$(TREE)") $(ARGS) "$(DIR)"

# Counts, not times: the same on every machine. POLICIES="ladder greedy" for some only.
POLICIES ?=
bench-cleaner: setup
	$(CARGO) run --release --package dendro-bench --bin bench-cleaner -- $(POLICIES)

fuzz: setup
	@$(CARGO) +nightly fuzz --version > /dev/null 2>&1 || { \
	    echo "This takes cargo-fuzz and the nightly compiler:"; \
	    echo "  rustup toolchain install nightly --profile minimal && cargo install cargo-fuzz"; \
	    exit 1; }
	for target in $(FUZZ_TARGETS); do \
	    $(CARGO) +nightly fuzz run $$target -- -max_total_time=$(FUZZ_SECONDS) || exit 1; done

# The locks, group commit and the writer's queue with shuttle's locks: each test in many orders of events.
model: setup
	$(CARGO) test --package dendro-base --features shuttle --test model
	$(CARGO) test --package dendro-logdisk --features shuttle --test model

# The unsafe code that does not consist of system calls: buffers in huge pages, memory of C programs.
miri: setup
	@$(CARGO) +nightly miri --version > /dev/null 2>&1 || { \
	    echo "This takes the nightly compiler with Miri:"; \
	    echo "  rustup toolchain install nightly --profile minimal --component miri,rust-src"; \
	    exit 1; }
	$(CARGO) +nightly miri test --package dendro-device --lib -- buffer::
	$(CARGO) +nightly miri test --package dendro-capi --lib -- raw::

audit:
	@$(CARGO) deny --version > /dev/null 2>&1 || { \
	    echo "This takes cargo-deny: cargo install cargo-deny --locked"; exit 1; }
	$(CARGO) deny check

## Installation

# Builds only where there is a cargo: `make && sudo make install` needs none for root.
install:
	@if command -v "$(CARGO)" > /dev/null 2>&1; then $(MAKE) all; else \
	    test -x "$(DENDRO)" || { echo "Build it first, with make."; exit 1; }; fi
	$(MAKE) --no-print-directory install-files

# What of $(DENDRO) and this tree goes where.
install-files:
	install -d "$(DESTDIR)$(BINDIR)" "$(DESTDIR)$(SBINDIR)" "$(DESTDIR)$(MANDIR)" \
	    "$(DESTDIR)$(BASHDIR)" "$(DESTDIR)$(ZSHDIR)" "$(DESTDIR)$(FISHDIR)" \
	    "$(DESTDIR)$(UDEVDIR)" "$(DESTDIR)$(UNITDIR)" "$(DESTDIR)$(DATADIR)/dendrofs" "$(DESTDIR)$(DOCDIR)"
	install -m 755 "$(DENDRO)" "$(DESTDIR)$(BINDIR)/dendro"
	for name in $(LINKS); do \
	    ln -srf "$(DESTDIR)$(BINDIR)/dendro" "$(DESTDIR)$(SBINDIR)/$$name"; done
	"$(DENDRO)" man "$(DESTDIR)$(MANDIR)"
	"$(DENDRO)" completions bash > "$(DESTDIR)$(BASHDIR)/dendro"
	for name in $(LINKS); do ln -sf dendro "$(DESTDIR)$(BASHDIR)/$$name"; done
	"$(DENDRO)" completions zsh > "$(DESTDIR)$(ZSHDIR)/_dendro"
	"$(DENDRO)" completions fish > "$(DESTDIR)$(FISHDIR)/dendro.fish"
	sed 's|@BINDIR@|$(BINDIR)|' packaging/udev/61-dendro.rules.in \
	    > "$(DESTDIR)$(UDEVDIR)/61-dendro.rules"
	sed 's|@BINDIR@|$(BINDIR)|' packaging/systemd/dendro-scrub@.service.in \
	    > "$(DESTDIR)$(UNITDIR)/dendro-scrub@.service"
	install -m 644 packaging/systemd/dendro-scrub@.timer "$(DESTDIR)$(UNITDIR)"
	sed 's|@BINDIR@|$(BINDIR)|' packaging/systemd/dendro-replicate@.service.in \
	    > "$(DESTDIR)$(UNITDIR)/dendro-replicate@.service"
	install -m 644 packaging/magic/dendrofs "$(DESTDIR)$(DATADIR)/dendrofs/magic"
	install -m 644 README.md docs/GLOSSARY.md docs/SEMANTICS.md docs/CONTROL.md docs/JSON.md \
	    docs/RECIPES.md "$(DESTDIR)$(DOCDIR)"

uninstall:
	rm -f "$(DESTDIR)$(BINDIR)/dendro" "$(DESTDIR)$(UDEVDIR)/61-dendro.rules" \
	    "$(DESTDIR)$(UNITDIR)"/dendro-scrub@.service "$(DESTDIR)$(UNITDIR)"/dendro-scrub@.timer \
	    "$(DESTDIR)$(UNITDIR)"/dendro-replicate@.service
	for name in $(LINKS); do \
	    rm -f "$(DESTDIR)$(SBINDIR)/$$name" "$(DESTDIR)$(MANDIR)/man8/$$name.8" \
	        "$(DESTDIR)$(BASHDIR)/$$name"; done
	rm -f "$(DESTDIR)$(MANDIR)"/man1/dendro.1 "$(DESTDIR)$(MANDIR)"/man1/dendro-*.1 \
	    "$(DESTDIR)$(MANDIR)/man7/dendro-findings.7"
	rm -f "$(DESTDIR)$(BASHDIR)/dendro" "$(DESTDIR)$(ZSHDIR)/_dendro" \
	    "$(DESTDIR)$(FISHDIR)/dendro.fish"
	rm -rf "$(DESTDIR)$(DATADIR)/dendrofs" "$(DESTDIR)$(DOCDIR)"

# The library for C programs: the same in the same manner.
lib:
	$(CARGO) build --release --package dendro-capi --lib

install-lib:
	@if command -v "$(CARGO)" > /dev/null 2>&1; then $(MAKE) lib; else \
	    test -e "$(LIBDENDRO)/libdendro.so" || { echo "Build it first, with make lib."; exit 1; }; fi
	$(MAKE) --no-print-directory install-lib-files
	@test -n "$(DESTDIR)" || ldconfig 2> /dev/null || \
	    echo "The dynamic linker does not know libdendro yet: run ldconfig as root."

install-lib-files:
	install -d "$(DESTDIR)$(LIBDIR)" "$(DESTDIR)$(INCLUDEDIR)" "$(DESTDIR)$(PKGCONFIGDIR)" \
	    "$(DESTDIR)$(MANDIR)/man3"
	install -m 644 "$(LIBDENDRO)/libdendro.so" "$(DESTDIR)$(LIBDIR)/libdendro.so.$(VERSION)"
	ln -sf "libdendro.so.$(VERSION)" "$(DESTDIR)$(LIBDIR)/libdendro.so.$(SOVERSION)"
	ln -sf "libdendro.so.$(SOVERSION)" "$(DESTDIR)$(LIBDIR)/libdendro.so"
	install -m 644 "$(LIBDENDRO)/libdendro.a" "$(DESTDIR)$(LIBDIR)"
	install -m 644 crates/capi/include/dendro.h "$(DESTDIR)$(INCLUDEDIR)"
	install -m 644 crates/capi/dendro.3 "$(DESTDIR)$(MANDIR)/man3"
	sed 's|@PREFIX@|$(PREFIX)|; s|@LIBDIR@|$(LIBDIR)|; s|@INCLUDEDIR@|$(INCLUDEDIR)|; s|@VERSION@|$(VERSION)|' \
	    packaging/pkgconfig/dendro.pc.in > "$(DESTDIR)$(PKGCONFIGDIR)/dendro.pc"

uninstall-lib:
	rm -f "$(DESTDIR)$(LIBDIR)"/libdendro.so "$(DESTDIR)$(LIBDIR)"/libdendro.so.* \
	    "$(DESTDIR)$(LIBDIR)/libdendro.a" "$(DESTDIR)$(INCLUDEDIR)/dendro.h" \
	    "$(DESTDIR)$(PKGCONFIGDIR)/dendro.pc" "$(DESTDIR)$(MANDIR)/man3/dendro.3"

# Into $(TARGET)/wheels, for pip install: one for all versions of Python.
wheel: setup python-env
	CARGO_TARGET_DIR="$(TARGET)" "$(PYENV)/bin/pip" wheel --quiet --no-deps \
	    --wheel-dir "$(TARGET)/wheels" crates/python

# Into $(TARGET)/debian; takes dpkg-dev.
deb: setup all lib
	packaging/make-deb "$(DENDRO)" "$(TARGET)/debian"
	packaging/make-deb-lib "$(LIBDENDRO)" "$(TARGET)/debian"

# Into $(TARGET)/package, as they would be published; each is built from the packages of the others.
PUBLISHED := dendro-base dendro-block dendro-device dendro-disk dendro-format dendro-fs dendro-logdisk dendro-nbd dendro-policy dendro-set dendro-stream dendro-transfer dendrofs

package: setup
	$(CARGO) package $(addprefix --package ,$(PUBLISHED))

# The files of the package, for cargo-deb.
stage-deb: setup all
	rm -rf "$(TARGET)/release/deb"
	packaging/stage-deb "$(DENDRO)" "$(TARGET)/release/deb"

clean:
	$(CARGO) clean
