"""What the tests share."""

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
