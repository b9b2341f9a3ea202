from __future__ import annotations

import ast
import inspect
from pathlib import Path

import pytest

import gossamer


@pytest.mark.parametrize("name", gossamer.__all__)
def test_every_public_name_is_there(name: str) -> None:
    value = getattr(gossamer, name)
    assert getattr(gossamer, name) is value
    if inspect.isclass(value) or inspect.isfunction(value):
        assert value.__module__ == "gossamer"
        assert value.__doc__


def test_all_is_sorted_and_star_imports_replace_nothing_of_pythons() -> None:
    import builtins

    assert sorted(gossamer.__all__) == gossamer.__all__
    assert [name for name in gossamer.__all__ if hasattr(builtins, name)] == []


def test_type_checkers_see_what_is_there() -> None:
    """The imports under TYPE_CHECKING and the table of homes say the same."""
    tree = ast.parse(Path(gossamer.__file__).read_text("utf-8"))
    block = next(node for node in tree.body if isinstance(node, ast.If))
    imported = {
        alias.name: str(node.module).removeprefix("gossamer.")
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert imported == gossamer._HOME
    assert {*imported, "__version__"} == set(gossamer.__all__)


def test_unknown_names() -> None:
    with pytest.raises(AttributeError, match="'gossamer' has no attribute 'InferenceSesion'"):
        gossamer.InferenceSesion  # noqa: B018
    assert dir(gossamer) == gossamer.__all__


def test_the_package_is_typed() -> None:
    assert Path(gossamer.__file__).with_name("py.typed").exists()
