"""A queue that survives crashes: what was pushed is popped once, in order.

A list has a record for each message, and the root list a record with the place of the first one. A
push is one unit, and so is a pop. Neither waits for the device: after a crash the queue is as it
was after one of them. sync() is for a message that somebody was told of.

    python examples/message_queue.py /tmp/queue.img

The images of this example and of the Rust and C ones are the same.
"""

from __future__ import annotations

import os
import struct
import sys

from dendrofs import ROOT_LIST, Volume

HEAD = 0
"""The record of the root list that names the queue's list and its first message."""

_PLACE = struct.Struct("<QQ")


class Queue:
    """A queue of messages of up to 1,024 bytes."""

    def __init__(self, path: str) -> None:
        """Opens the queue in an image, which is made if there is none."""
        if os.path.exists(path):
            self.volume = Volume.open(path)
        else:
            self.volume = Volume.create(path, 64 << 20, contents="lists")
        self.lists = self.volume.lists()
        place = self.lists.record(ROOT_LIST, HEAD)
        if place is None:
            # It is new, or a crash came before this.
            with self.volume.unit() as unit:
                self.list, self.first = unit.create_list(), 0
                unit.put_record(ROOT_LIST, HEAD, _PLACE.pack(self.list, 0))
        else:
            self.list, self.first = _PLACE.unpack(place)
        self.end = self.first
        for index, _ in self.lists.records(self.list, self.first):
            self.end = index + 1

    def push(self, message: bytes) -> None:
        """Adds a message."""
        with self.volume.unit() as unit:
            unit.put_record(self.list, self.end, message)
        self.end += 1

    def pop(self) -> bytes | None:
        """Takes the first message."""
        message = self.lists.record(self.list, self.first)
        if message is None:
            return None
        with self.volume.unit() as unit:
            unit.delete_record(self.list, self.first)
            unit.put_record(ROOT_LIST, HEAD, _PLACE.pack(self.list, self.first + 1))
        self.first += 1
        return message

    def __len__(self) -> int:
        return self.end - self.first

    def sync(self) -> None:
        """Makes everything durable."""
        self.volume.flush()

    def close(self) -> None:
        self.volume.close()


def main() -> None:
    queue = Queue(sys.argv[1] if len(sys.argv) > 1 else "queue.img")
    print(f"{len(queue)} messages wait")
    message = queue.pop()
    if message is not None:
        print(f"the first was: {message.decode()}")
    for number in range(3):
        queue.push(f"message {number} of process {os.getpid()}".encode())
    queue.sync()
    print(f"{len(queue)} wait now, whatever happens")
    queue.close()


if __name__ == "__main__":
    main()
