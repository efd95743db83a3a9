"""The stubs have what the module has, and docstrings say what it is."""

import ast
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import dendrofs
from dendrofs import _native

PACKAGE = Path(__file__).parents[2] / "python/dendrofs"


def stubs():
    """The names of the stubs, and of each class its functions with their parameters."""
    tree = ast.parse((PACKAGE / "_native.pyi").read_text())
    found = {}
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            inside = (item for item in node.body if isinstance(item, ast.FunctionDef))
            found[node.name] = {
                item.name: (
                    [
                        of.arg
                        for of in (*item.args.posonlyargs, *item.args.args, *item.args.kwonlyargs)
                    ],
                    any(getattr(of, "id", "") == "property" for of in item.decorator_list),
                )
                for item in inside
            }
        elif isinstance(node, ast.FunctionDef):
            found[node.name] = None
        elif isinstance(node, ast.AnnAssign):
            found[node.target.id] = None
    return found


IMPLIED = {
    "__new__",
    "__doc__",
    "__module__",
    "__repr__",
    "__weakref__",
    "__ne__",
    "__hash__",
    "__lt__",
    "__le__",
    "__gt__",
    "__ge__",
}


def test_classes_that_cannot_be_subclassed_are_final_in_the_stubs():
    tree = ast.parse((PACKAGE / "_native.pyi").read_text())
    for node in (node for node in tree.body if isinstance(node, ast.ClassDef)):
        # Py_TPFLAGS_BASETYPE.
        is_final = not getattr(_native, node.name).__flags__ & 1 << 10
        assert is_final == any(getattr(of, "id", "") == "final" for of in node.decorator_list)


def test_the_stubs_have_what_the_module_has():
    found = stubs()
    own = {name for name in vars(_native) if not name.startswith("__")}
    assert own == set(found)
    for name, members in found.items():
        if members is None:
            continue
        kind = getattr(_native, name)
        assert set(vars(kind)) - IMPLIED == set(members) - IMPLIED, name
        for member, (parameters, is_property) in members.items():
            real = inspect.getattr_static(kind, member)
            assert inspect.isgetsetdescriptor(real) == is_property, (name, member)
            if is_property or member.startswith("__"):
                continue
            signature = list(inspect.signature(getattr(kind, member)).parameters)
            assert signature == parameters, (name, member)


def test_everything_has_a_docstring():
    for name in dendrofs.__all__:
        thing = getattr(dendrofs, name)
        if not inspect.isclass(thing):
            continue
        assert thing.__doc__, name
        for member, real in vars(thing).items():
            if not member.startswith("_") and member not in (
                "readable",
                "writable",
                "seekable",
                "seek",
                "tell",
            ):
                is_data = (
                    name in ("Stat", "Space") or not real.__doc__ and inspect.isdatadescriptor(real)
                )
                assert real.__doc__ or is_data, (name, member)


def test_what_is_typed_is_used_as_its_types_say():
    pytest.importorskip("mypy")
    examples = [str(path) for path in (PACKAGE.parents[1] / "examples").glob("*.py")]
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--strict",
        "--no-error-summary",
        "--cache-dir=/dev/null",
    ]
    ended = subprocess.run(
        [*command, str(PACKAGE), *examples], capture_output=True, text=True, cwd=PACKAGE.parents[1]
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
