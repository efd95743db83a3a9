"""The examples do what they say, also after a crash. The tour in docs/PYTHON.md is true."""

import doctest
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from dendrofs import Volume

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "examples"))

import key_value  # noqa: E402
import message_queue  # noqa: E402
import read_version  # noqa: E402


def run(name, *arguments):
    command = [sys.executable, str(ROOT / "examples" / name), *map(str, arguments)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def test_the_queue_returns_what_was_pushed_once_and_in_order(tmp_path):
    path = str(tmp_path / "queue.img")
    queue = message_queue.Queue(path)
    for number in range(300):
        queue.push(b"%d" % number)
    assert [queue.pop() for _ in range(100)] == [b"%d" % number for number in range(100)]
    queue.close()
    queue = message_queue.Queue(path)
    assert len(queue) == 200
    assert [queue.pop() for _ in range(200)] == [b"%d" % number for number in range(100, 300)]
    assert queue.pop() is None
    queue.close()


def test_after_a_crash_the_queue_is_as_after_one_of_its_operations_at_or_past_the_last_sync(
    tmp_path,
):
    path, copy = str(tmp_path / "queue.img"), str(tmp_path / "copy.img")
    queue = message_queue.Queue(path)
    for number in range(50):
        queue.push(b"%d" % number)
    assert queue.pop() == b"0"
    queue.sync()
    queue.push(b"50")
    # The image as it is now is what a crash of the process leaves.
    shutil.copyfile(path, copy)
    after = message_queue.Queue(copy)
    assert len(after) in (49, 50)
    assert [after.pop() for _ in range(49)] == [b"%d" % number for number in range(1, 50)]
    after.close()
    queue.close()


def test_the_store_changes_pairs_together_and_shows_versions(tmp_path):
    path = str(tmp_path / "pairs.img")
    store = key_value.Store(path)
    store.change({"a": "1", "b": "2"})
    store.snapshot("one")
    store.change({"a": None, "b": "3", "c": "4"})
    store.close()
    store = key_value.Store(path)
    assert [store.get(key) for key in "abc"] == [None, "3", "4"]
    assert [store.get(key, "@one") for key in "abc"] == ["1", "2", None]
    store.close()


def test_files_of_a_version_are_listed_without_a_mount(tmp_path):
    path = tmp_path / "disk.img"
    with Volume.create(path, 64 << 20) as volume:
        files = volume.files()
        files.makedirs("a/b")
        files.write_bytes("a/b/file", b"7" * 5000)
        volume.snapshot("kept")
        files.unlink("a/b/file")
    with Volume.open(path, read_only=True) as volume:
        assert list(read_version.list_files(volume.files("@kept"))) == [("/a/b/file", 5000)]
        assert list(read_version.list_files(volume.files())) == []
    assert run("read_version.py", path, "@kept") == "        5000  /a/b/file\n"
    assert run("read_version.py", path, "@kept", "/a/b/file") == "7" * 5000


def test_the_programs_run(tmp_path):
    queue = tmp_path / "queue.img"
    assert run("message_queue.py", queue) == "0 messages wait\n3 wait now, whatever happens\n"
    second = run("message_queue.py", queue).splitlines()
    assert second[0] == "3 messages wait" and second[2] == "5 wait now, whatever happens"
    assert second[1].startswith("the first was: message 0 of process ")
    pairs = run("key_value.py", tmp_path / "pairs.img").splitlines()
    assert pairs[0].startswith("colour: blue now, red at @red-")
    assert pairs[1].startswith("size: - now, large at @red-")


def test_the_package_has_the_license_of_the_project():
    described = (ROOT / "pyproject.toml").read_text()
    assert 'license-files = ["LICENSE"]' in described and 'readme = "README.md"' in described
    assert (ROOT / "LICENSE").read_bytes() == (ROOT.parents[1] / "LICENSE").read_bytes()


@pytest.mark.parametrize(
    "path",
    [
        ROOT / "python/dendrofs/__init__.py",
        ROOT / "README.md",
        ROOT.parents[1] / "docs/PYTHON.md",
    ],
)
def test_what_the_documents_show_is_what_is_printed(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tests = doctest.DocTestParser().get_doctest(path.read_text(), {}, path.name, str(path), 0)
    assert len(tests.examples) >= 2
    report = []
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    runner.run(tests, out=report.append)
    assert runner.failures == 0, "".join(report)
