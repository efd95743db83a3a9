"""Lists the files of a version, and prints one, without a mount.

    python examples/read_version.py IMAGE [VERSION [PATH]]

VERSION is a branch, @snapshot or branch@snapshot; the main branch unless given. Nothing is written
to the image.
"""

from __future__ import annotations

import shutil
import sys
from typing import Iterator

from dendrofs import Files, Volume


def list_files(files: Files) -> Iterator[tuple[str, int]]:
    """All files, with their sizes."""
    for folder, _, names in files.walk("/"):
        for name in names:
            path = f"{folder.rstrip('/')}/{name}"
            yield path, files.stat(path, follow_symlinks=False).st_size


def main() -> None:
    image, version, path = (sys.argv[1:] + [None] * 3)[:3]
    if image is None:
        sys.exit(__doc__)
    with Volume.open(image, read_only=True) as volume, volume.files(version) as files:
        if path is not None:
            with files.open(path, "rb") as file:
                shutil.copyfileobj(file, sys.stdout.buffer)
            return
        for path, size in list_files(files):
            print(f"{size:>12}  {path}")


if __name__ == "__main__":
    main()
