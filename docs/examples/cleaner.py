#!/usr/bin/env python3
"""A cleaner for dendrofs in a few lines: the operations of BSD-LFS over the control socket.

    cleaner.py SOCKET COUNT

cleans up to COUNT segments of a mounted volume, those with the fewest live bytes first.
`dendro info MOUNTPOINT` names the socket; docs/CONTROL.md describes the requests.
It may be killed at any moment, and may run beside other cleaners.
"""

import json
import socket
import sys

MOST_LIVE = 0.9  # Moving more gains too little.


class Refused(Exception):
    """The reason why the daemon refused a request."""


def ask(path, command, **arguments):
    """Sends one request on a new connection; returns the value of the reply."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        request = {"version": 1, "command": command, **arguments}
        connection.sendall(json.dumps(request).encode() + b"\n")
        reply = json.loads(connection.makefile("rb").readline())
    if reply["outcome"] == "error":
        raise Refused(reply["value"])
    return reply["value"]


def all_segments(path):
    """The state of the volume, and its segments."""
    answer = ask(path, "segments")
    segments = answer["segments"]
    while answer["next"] is not None:
        answer = ask(path, "segments", **{"from": answer["next"]})
        segments += answer["segments"]
    return answer["present"], segments


def victim(path, tried):
    """The segment with the fewest live bytes, if it is worth cleaning."""
    present, segments = all_segments(path)
    most = MOST_LIVE * present["segment_bytes"]
    candidates = [
        segment
        for segment in segments
        if segment["state"] == "dirty"
        and segment["live_bytes"] <= most
        and segment["number"] not in tried
    ]
    return min(candidates, key=lambda segment: segment["live_bytes"], default=None)


def live_blocks(path, number, source):
    """The live blocks among those that `source` lists."""
    cursor, live = None, []
    while True:
        arguments = {"segment": number, "source": source, "cursor": cursor}
        answer = ask(path, "blocks", **arguments)
        places = ask(path, "bmapv", blocks=answer["blocks"])
        live += [block for block, lives in zip(answer["blocks"], places["live"]) if lives]
        cursor = answer["next"]
        if cursor is None:
            return live


def clean(path, number):
    """Moves the live blocks of a segment elsewhere; returns the state of the segment after that."""
    # The map is asked only where the summaries are incomplete, as after files exchanged contents.
    for source in ("summaries", "map"):
        blocks = live_blocks(path, number, source)
        blocks.sort(key=lambda block: (block.get("list", 0), block.get("page", 0)))
        for start in range(0, len(blocks), 1000):
            ask(path, "markv", blocks=blocks[start : start + 1000])
        outcome = ask(path, "segclean", segments=[number])["segments"][0]
        if outcome != "live":
            break
    return outcome


def main():
    if len(sys.argv) != 3 or not sys.argv[2].isdecimal():
        sys.exit(__doc__)
    path, count = sys.argv[1], int(sys.argv[2])
    tried, cleaned = set(), 0
    while cleaned < count:
        segment = victim(path, tried)
        if segment is None:
            break
        number = segment["number"]
        tried.add(number)
        try:
            outcome = clean(path, number)
        except Refused as why:  # Another cleaner has cleaned it.
            outcome = str(why)
        print(f"segment {number}, {segment['live_bytes']} bytes alive: {outcome}")
        cleaned += outcome == "clean"
    # Wait until cleaning is needed, or for a while, as a daemon would between rounds.
    waited = ask(path, "segwait", clean_below=1, timeout_ms=100)
    print(f"{cleaned} segments cleaned, {waited['present']['clean_count']} are clean")


if __name__ == "__main__":
    main()
