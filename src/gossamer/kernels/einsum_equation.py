"""Einsum's equation as labels: one for each axis of each operand and of the output."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from gossamer.program import Refusal

ELLIPSIS = "..."


@dataclass(frozen=True, slots=True)
class Equation:
    """Labels by operand and of the output: letters, and `.0`, `.1` … for the dimensions of the ellipsis, which align at
    the right. extents: of each label, after broadcasting."""

    operands: tuple[tuple[str, ...], ...]
    output: tuple[str, ...]
    extents: dict[str, int]


def parse_equation(text: str, shapes: Sequence[tuple[int, ...]]) -> Equation | Refusal:
    """ONNX Einsum (-12): `ij,...jk->...ik`, spaces anywhere; without an arrow the output has the ellipsis, then the
    labels that occur once, in the order of their characters."""
    left, arrow, right = text.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(shapes):
        return Refusal(f"the equation '{text}' has {len(terms)} operands, the node {len(shapes)}")
    covered = [len(shape) - len(_letters(term)) for term, shape in zip(terms, shapes, strict=True)]
    if any(n < 0 or (n > 0 and ELLIPSIS not in term) for n, term in zip(covered, terms, strict=True)):
        return Refusal(f"the equation '{text}' does not fit operands of rank {', '.join(str(len(s)) for s in shapes)}")
    most = max((n for n, term in zip(covered, terms, strict=True) if ELLIPSIS in term), default=0)
    operands = tuple(_labels(term, most, n) for term, n in zip(terms, covered, strict=True))
    output = _labels(right if arrow else _implied(left), most, most)
    extents = _extents(operands, shapes)
    if extents is None:
        return Refusal(f"the operands' shapes do not agree about the labels of '{text}'")
    if len(set(output)) < len(output) or not set(output) <= extents.keys():
        return Refusal(f"the output of '{text}' repeats a label or has one that no operand has")
    return Equation(operands, output, extents)


def _letters(term: str) -> str:
    return term.replace(ELLIPSIS, "")


def _labels(term: str, most: int, covered: int) -> tuple[str, ...]:
    """The labels of a term whose ellipsis covers the last `covered` of `most` dimensions."""
    before, ellipsis, after = term.partition(ELLIPSIS)
    dimensions = [f".{index}" for index in range(most - covered, most)] if ellipsis else []
    return (*before, *dimensions, *after)


def _implied(left: str) -> str:
    counts = Counter(left.replace(",", "").replace(ELLIPSIS, ""))
    return (ELLIPSIS if ELLIPSIS in left else "") + "".join(sorted(c for c, n in counts.items() if n == 1))


def _extents(operands: Sequence[Sequence[str]], shapes: Sequence[tuple[int, ...]]) -> dict[str, int] | None:
    """The extent of each label, 1 giving way to any other; None where two others differ."""
    extents: dict[str, int] = {}
    for labels, shape in zip(operands, shapes, strict=True):
        for label, extent in zip(labels, shape, strict=True):
            known = extents.setdefault(label, extent)
            if known == 1:
                extents[label] = extent
            elif extent not in (1, known):
                return None
    return extents
