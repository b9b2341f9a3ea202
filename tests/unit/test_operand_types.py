"""Operands of several types where an operator's text has one are found before a kernel reads beyond the smaller one."""

from __future__ import annotations

import pytest

from gossamer.errors import InvalidGraph
from gossamer.model import passes
from gossamer.model.load import load
from our_operators import parse

INPUTS = "float[2,3] x, float16[2,3] h, int64[2,3] k, bool[2,3] c, float16[3] v, float s, int64 n, bool b"


def specialised(nodes: str) -> None:
    model = load(parse(f"g ({INPUTS}) => (y) {{ {nodes} }}", opset=21))
    passes.prepare(model)
    passes.specialise(model, {})


@pytest.mark.parametrize(
    ("nodes", "text"),
    [
        ("y = Add (x, h)", r"\(Add\): its inputs 'x' \(float32\) and 'h' \(float16\) have to be of one type"),
        ("y = Concat <axis = 0> (h, h, x)", r"'h' \(float16\) and 'x' \(float32\)"),
        ("y = Where (c, x, k)", r"'x' \(float32\) and 'k' \(int64\)"),
        ("y = Clip (h, , s)", r"'h' \(float16\) and 's' \(float32\)"),
        ("y = LayerNormalization (x, v)", r"'x' \(float32\) and 'v' \(float16\)"),
        ("y = ScatterElements (x, k, h)", r"'x' \(float32\) and 'h' \(float16\)"),
        ("a = Relu (x) y = Mul (a, h)", r"'a' \(float32\) and 'h' \(float16\)"),
    ],
)
def test_mixed_types(nodes: str, text: str) -> None:
    with pytest.raises(InvalidGraph, match=text):
        specialised(nodes)


@pytest.mark.parametrize(
    "nodes",
    [
        "y = Pow (h, x)",
        "y = Where (c, x, x)",
        "y = GatherElements (h, k)",
        "y = Concat <axis = 0> (h, h, h)",
        "a = Cast <to = 1> (h) y = Add (x, a)",
        "y = Loop <body = l (i, c1, a1) => (c2, a2) { c2 = Identity (c1) a2 = Neg (a1) }> (n, b, h)",
    ],
)
def test_types_that_the_text_lets_differ(nodes: str) -> None:
    specialised(nodes)


def test_an_output_of_another_type_than_is_declared() -> None:
    model = load(parse(f"g ({INPUTS}) => (int64[2,3] y) {{ y = Relu (x) }}"))
    with pytest.raises(InvalidGraph, match="the output 'y' is declared as int64, and what makes it gives float32"):
        passes.prepare(model)
