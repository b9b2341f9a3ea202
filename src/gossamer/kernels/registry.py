"""Which function lowers which operator: explicit registration, keyed (domain, op_type, since_version)."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from functools import cache
from typing import TypeAlias

from gossamer.model.node import Node
from gossamer.program import Call, Refusal, Target

Lowered: TypeAlias = "tuple[Call, ...] | Refusal"
Lowering: TypeAlias = Callable[[Node, Target], Lowered]

_LOWERINGS: dict[tuple[str, str], dict[int, Lowering]] = {}


def lowers(*op_types: str, domain: str = "", since: int = 1) -> Callable[[Lowering], Lowering]:
    """Registers a lowering for operators of `domain` from opset version `since` on, until a later registration's.

    Raises RuntimeError where the same (domain, op_type, since) is registered twice.
    """

    def register(lowering: Lowering) -> Lowering:
        for op_type in op_types:
            versions = _LOWERINGS.setdefault((domain, op_type), {})
            if since in versions:
                raise RuntimeError(
                    f"{domain}.{op_type} since {since} is lowered by both {versions[since]} and {lowering}"
                )
            versions[since] = lowering
        return lowering

    return register


def find(domain: str, op_type: str, version: int) -> Lowering | Refusal:
    """The lowering of an operator in opset `version` of its domain, or a refusal; the native provider's door."""
    _import_families()
    versions = _LOWERINGS.get((domain, op_type))
    if versions is None:
        return Refusal(f"no kernel for operator {op_type}" + (f" of domain {domain}" if domain else ""))
    fitting = [since for since in versions if since <= version]
    if not fitting:
        return Refusal(f"{op_type} has kernels from opset {min(versions)} on, the model uses {version}")
    return versions[max(fitting)]


def registered() -> Iterator[tuple[str, str, int, Lowering]]:
    """Every registration as (domain, op_type, since, lowering), sorted."""
    _import_families()
    for (domain, op_type), versions in sorted(_LOWERINGS.items()):
        for since, lowering in sorted(versions.items()):
            yield domain, op_type, since, lowering


@cache
def _import_families() -> None:
    from gossamer.kernels import FAMILIES

    for family in FAMILIES:
        importlib.import_module(f"gossamer.kernels.{family}")
