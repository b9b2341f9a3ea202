"""Einsum: equations against NumPy's."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from cases.node_case import NodeCase, random_array
from cases.references import FLOAT_DTYPES, floats
from harness import tensor_type, tolerance

EQUATIONS: dict[str, tuple[tuple[int, ...], ...]] = {
    # one operand
    "ijk->ki": ((2, 3, 4),),
    "ij->ji": ((3, 4),),
    "ij->": ((3, 4),),
    "ij": ((3, 4),),
    "ba": ((3, 4),),
    "ii->i": ((4, 4),),
    "ii": ((4, 4),),
    "iji->j": ((3, 4, 3),),
    "iij->ji": ((3, 3, 4),),
    "...ii->...i": ((2, 3, 3),),
    "a...b->b...": ((2, 3, 4),),
    "...a": ((2, 3, 4),),
    "->": ((),),
    # two
    "ij,jk": ((3, 4), (4, 5)),
    "ij , jk -> ki": ((3, 4), (4, 5)),
    "ij,kj->ik": ((20, 40), (30, 40)),
    "...ij,...jk->...ik": ((2, 3, 4), (4, 5)),
    "b...ij,...jk->...bik": ((2, 6, 3, 4), (6, 4, 5)),
    "...ij,...jk": ((2, 1, 3, 4), (5, 4, 5)),
    "i,i->": ((7,), (7,)),
    "i,i": ((7,), (7,)),
    "bi,bi->b": ((3, 7), (3, 7)),
    "i,j->ij": ((7,), (5,)),
    "ij,ij->ij": ((3, 4), (3, 4)),
    "ij,ij->": ((3, 4), (3, 4)),
    "ij,ji->": ((3, 4), (4, 3)),
    "ij,j->i": ((3, 4), (1,)),
    "ij,jk->ik": ((3, 1), (4, 5)),
    "iij,jk->ik": ((3, 3, 4), (4, 5)),
    "ij,kl->": ((3, 4), (5, 6)),
    "ijk,jl->kl": ((3, 4, 5), (4, 6)),
    ",ij->ij": ((), (3, 4)),
    "...,...->...": ((3, 4), (4,)),
    "bqhd,bkhd->bhqk": ((2, 5, 3, 4), (2, 6, 3, 4)),
    "bhqk,bkhd->bqhd": ((2, 3, 5, 6), (2, 6, 3, 4)),
    "abcd,cdef->abef": ((2, 3, 4, 5), (4, 5, 6, 2)),
    "abcd,dcef->afeb": ((2, 3, 4, 5), (5, 4, 6, 2)),
    "aB,Bc": ((2, 3), (3, 4)),
    "iA,Ai->": ((3, 4), (4, 3)),
    # more
    "ij,jk,kl->il": ((3, 4), (4, 5), (5, 6)),
    "a,b,c->cab": ((2,), (3,), (4,)),
    "ab,ab,ab->ba": ((2, 3), (2, 3), (1, 3)),
    "bi,ij,bj->b": ((5, 3), (3, 4), (5, 4)),
    "...a,ab,b...,c->...c": ((3, 2), (2, 4), (4, 3), (5,)),
    "a,a,a,a,a,a,a,a,a->a": ((3,),) * 9,
    # nothing
    "ij,jk->ik ": ((3, 0), (0, 5)),
    "ij->i": ((3, 0),),
    "ij->j": ((3, 0),),
}


def case(equation: str, shapes: tuple[tuple[int, ...], ...], dtype: str = "float32") -> NodeCase:
    inputs = [_array(f"{equation}{index}", shape, dtype) for index, shape in enumerate(shapes)]
    exact = [array.astype(np.float64) if dtype in FLOAT_DTYPES else array for array in inputs]
    operands = [np.broadcast_to(array, shape) for array, shape in zip(exact, _broadcast(equation, shapes), strict=True)]
    want = np.asarray(np.einsum(equation, *operands, dtype=None if dtype in FLOAT_DTYPES else dtype))
    result = want.astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    steps = len(shapes)  # each rounds what the next one takes
    return NodeCase(
        f"{equation}-{dtype}",
        "Einsum",
        inputs,
        {"equation": equation},
        output_types=[(tensor_type(result), result.shape)],
        want=lambda: [result],
        rtol=steps * tolerance(dtype, 64) if dtype in FLOAT_DTYPES else None,
    )


def _array(name: str, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    return floats(name, shape, dtype) if dtype in FLOAT_DTYPES else random_array(name, shape, dtype)


def _broadcast(equation: str, shapes: tuple[tuple[int, ...], ...]) -> list[tuple[int, ...]]:
    """The shapes with 1 replaced where another operand has more of the same letter: NumPy's einsum has that for the
    ellipsis only."""
    terms = equation.replace(" ", "").partition("->")[0].split(",")
    if any("..." in term for term in terms):
        return list(shapes)
    extents = {letter: 1 for term in terms for letter in term}
    for term, shape in zip(terms, shapes, strict=True):
        for letter, extent in zip(term, shape, strict=True):
            extents[letter] = extent if extent != 1 else extents[letter]
    return [tuple(extents[letter] for letter in term) for term in terms]


TYPED = ("ij,jk", "ijk->ki", "a,b,c->cab", "iji->j", "ij,jk,kl->il")
CASES = [case(equation, shapes) for equation, shapes in EQUATIONS.items()] + [
    case(equation, EQUATIONS[equation], dtype)
    for equation in TYPED
    for dtype in (
        "float16",
        "bfloat16",
        "float64",
        "int8",
        "uint8",
        "int16",
        "uint16",
        "int32",
        "int64",
        "uint32",
        "uint64",
    )
]
LARGE = [
    case("bqhd,bkhd->bhqk", ((2, 130, 4, 64), (2, 150, 4, 64)), "float16"),
    case("bhqk,bkhd->bqhd", ((2, 4, 130, 150), (2, 150, 4, 64)), "float16"),
    case("ijk->ki", ((70, 500, 90),)),
    case("...ij,jk,k->...i", ((3, 70, 90), (90, 300), (300,))),
]
