"""The registry of lowerings: every module that registers some is imported, and nothing is registered twice."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from gossamer import kernels
from gossamer.kernels import registry
from gossamer.program import Refusal

FOLDER = Path(kernels.__file__).parent


def registers(path: Path) -> bool:
    """Whether a module decorates a function with `@lowers(...)`, or calls it otherwise."""
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    return any(isinstance(node, ast.Call) and getattr(node.func, "id", "") == "lowers" for node in nodes)


def test_the_families_are_the_modules_that_register_lowerings() -> None:
    modules = sorted(path.stem for path in FOLDER.glob("*.py") if registers(path))
    assert list(kernels.FAMILIES) == modules


def test_every_family_has_lowerings_of_its_own() -> None:
    makers = {lowering.__module__.rpartition(".")[2] for *_, lowering in kernels.registered()}
    assert makers == set(kernels.FAMILIES)


def test_a_second_registration_is_refused() -> None:
    domain, op_type, since, lowering = next(kernels.registered())
    with pytest.raises(RuntimeError, match=f"{op_type} since {since} is lowered by both"):
        kernels.lowers(op_type, domain=domain, since=since)(lowering)


def test_find_takes_the_latest_registration_that_the_model_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    kernels.find("", "Relu", 1)  # the families register themselves now, not below
    monkeypatch.setattr(registry, "_LOWERINGS", {})
    first, second = (kernels.lowers("Both", since=since)(lambda node, target: ()) for since in (7, 13))
    assert [kernels.find("", "Both", version) for version in (7, 12, 13, 21)] == [first, first, second, second]
    assert kernels.find("", "Both", 6) == Refusal("Both has kernels from opset 7 on, the model uses 6")


def test_unknown_operators_are_refused_by_name_and_domain() -> None:
    refusal = kernels.find("somewhere.else", "Frobnicate", 1)
    assert isinstance(refusal, Refusal)
    assert refusal.reason == "no kernel for operator Frobnicate of domain somewhere.else"
