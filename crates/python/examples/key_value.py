"""A key-value store with snapshots.

A record holds all pairs whose keys have one hash. A change of any number of pairs is one unit. A
snapshot is a version of the volume: it costs some microseconds, and reading it costs what reading
the present does.

    python examples/key_value.py /tmp/pairs.img
"""

from __future__ import annotations

import hashlib
import json
import os
import sys

from dendrofs import ROOT_LIST, Volume


def place(key: str) -> int:
    """The record of a key."""
    return int.from_bytes(hashlib.blake2b(key.encode(), digest_size=8).digest(), "little")


class Store:
    """A store of pairs. What a record holds has up to 1,024 bytes."""

    def __init__(self, path: str) -> None:
        """Opens the store in an image, which is made if there is none."""
        if os.path.exists(path):
            self.volume = Volume.open(path)
        else:
            self.volume = Volume.create(path, 64 << 20, contents="lists")

    def _pairs(self, key: str, version: str | None) -> dict[str, str]:
        record = self.volume.lists(version).record(ROOT_LIST, place(key))
        pairs: dict[str, str] = {} if record is None else json.loads(record)
        return pairs

    def get(self, key: str, version: str | None = None) -> str | None:
        """The value of a key now, or in a version, as "@name"."""
        return self._pairs(key, version).get(key)

    def change(self, changes: dict[str, str | None]) -> None:
        """Puts pairs, and removes keys whose value is None: all of them, or nothing."""
        records: dict[int, dict[str, str]] = {}
        for key, value in changes.items():
            pairs = records.setdefault(place(key), self._pairs(key, None))
            pairs.pop(key, None)
            if value is not None:
                pairs[key] = value
        with self.volume.unit() as unit:
            for index, pairs in records.items():
                if pairs:
                    unit.put_record(ROOT_LIST, index, json.dumps(pairs).encode())
                else:
                    unit.delete_record(ROOT_LIST, index)

    def snapshot(self, name: str) -> None:
        """Keeps the present as a version."""
        self.volume.snapshot(name)

    def close(self) -> None:
        """Makes everything durable and closes the store."""
        self.volume.close()


def main() -> None:
    store = Store(sys.argv[1] if len(sys.argv) > 1 else "pairs.img")
    store.change({"colour": "red", "size": "large"})
    name = f"red-{os.getpid()}"
    store.snapshot(name)
    store.change({"colour": "blue", "size": None})
    for key in ("colour", "size"):
        now, then = store.get(key) or "-", store.get(key, f"@{name}") or "-"
        print(f"{key}: {now} now, {then} at @{name}")
    store.close()


if __name__ == "__main__":
    main()
