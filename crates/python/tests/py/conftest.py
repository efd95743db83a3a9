"""What the tests share."""

import os
import shutil
from pathlib import Path
from typing import Iterator

import pytest

from dendrofs import Volume


@pytest.fixture
def lists() -> Iterator[Volume]:
    """A volume of lists."""
    with Volume.in_memory(32 << 20, contents="lists") as volume:
        yield volume


@pytest.fixture
def volume() -> Iterator[Volume]:
    """A volume of files."""
    with Volume.in_memory(32 << 20) as volume:
        yield volume


@pytest.fixture
def image(tmp_path: Path) -> Path:
    """Where an image can be made."""
    return tmp_path / "disk.img"


@pytest.fixture
def mirror(tmp_path: Path) -> tuple[Path, Path]:
    """The two images of a mirrored volume."""
    for name in ("one.img", "two.img"):
        shutil.copy(Path(os.environ["DENDRO_MIRROR"]) / name, tmp_path)
    return tmp_path / "one.img", tmp_path / "two.img"
