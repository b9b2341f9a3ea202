"""Windows of convolutions as cuDNN is told them: always the output's extents, symmetric wherever that is possible."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

import harness
from gossamer.cudnn.operations.convolution import Window as Moves
from gossamer.kernels.convolution_geometry import Activations, convolution_of
from gossamer.model.node import Constants, Node, Scope
from gossamer.program import Refusal
from gossamer.providers.cudnn.convolution import Filters, Window, forward_window, transposed_window

ir = pytest.importorskip("onnx_ir")


def node_of(op_type: str, x: tuple[int, ...], w: tuple[int, ...], attributes: dict[str, object]) -> Node:
    arrays = [np.zeros(x, np.float32), np.zeros(w, np.float32)]
    model = ir.serde.deserialize_model(harness.node_model(op_type, arrays, attributes))
    return Node(next(iter(model.graph)), Scope(Constants(), dict(model.opset_imports)))


def moves_of(window: Window) -> Moves:
    return Moves(window.before, window.after, window.strides, window.dilations)


axis = st.tuples(
    st.integers(1, 12), st.integers(1, 4), st.integers(1, 3), st.integers(1, 2), st.integers(0, 3), st.integers(0, 3)
)


@given(rows=axis, columns=axis)
def test_forward(rows: tuple[int, ...], columns: tuple[int, ...]) -> None:
    size, kernel, strides, dilations, before, after = zip(rows, columns, strict=True)
    total = zip(size, kernel, dilations, before, after, strict=True)
    if any(n + a + b < (k - 1) * d + 1 for n, k, d, a, b in total):
        return  # no output
    attributes = {"strides": strides, "dilations": dilations, "pads": [*before, *after]}
    node = node_of("Conv", (1, 2, *size), (3, 2, *kernel), attributes)
    window = forward_window(convolution_of(node), 2)
    assert tuple(moves_of(window).reduced(size, kernel)) == node.y.shape[2:]
    assert window.before == before
    if before == after:
        assert window.after == before


@pytest.mark.parametrize(
    ("size", "pads", "wanted"),
    [(9, (0, 0, 1, 1), (0, 0)), (10, (1, 1, 0, 0), (1, 1)), (9, (1, 1, 0, 0), (0, 0)), (9, (0, 0, 2, 2), (2, 2))],
)
def test_padding_that_makes_no_difference(size: int, pads: tuple[int, ...], wanted: tuple[int, ...]) -> None:
    """A last column that no window of stride 2 sees may as well be padding, or not: whichever is symmetric."""
    node = node_of("Conv", (1, 2, size, size), (3, 2, 3, 3), {"strides": [2, 2], "pads": pads})
    assert forward_window(convolution_of(node), 2).after == wanted


@given(rows=axis, columns=axis, more=st.tuples(st.integers(0, 2), st.integers(0, 2)))
def test_transposed(rows: tuple[int, ...], columns: tuple[int, ...], more: tuple[int, int]) -> None:
    """The convolution from y to x is one that gives x's extents; its data gradient has y's."""
    size, kernel, strides, dilations, before, after = zip(rows, columns, strict=True)
    extra = tuple(min(e, s - 1) for e, s in zip(more, strides, strict=True))
    sizes = zip(size, kernel, strides, dilations, before, after, extra, strict=True)
    if any((n - 1) * s + (k - 1) * d + 1 + e - a - b < 1 for n, k, s, d, a, b, e in sizes):
        return  # no output
    attributes = {
        "strides": strides, "dilations": dilations, "pads": [*before, *after], "output_padding": extra,
    }  # fmt: skip
    node = node_of("ConvTranspose", (1, 2, *size), (2, 3, *kernel), attributes)
    x, y = (Activations.of(buffer.shape, channels_last=False).extents for buffer in (node.x, node.y))
    moves = transposed_window(node, Filters(node.inputs[1], (2, 3, *kernel), False), x, y)  # type: ignore[arg-type]
    if isinstance(moves, Refusal):
        return
    window, output_padding = moves
    grown = [a + b for a, b in zip(moves_of(window).expanded(size, kernel), output_padding, strict=True)]
    assert tuple(grown) == node.y.shape[2:]
    assert tuple(moves_of(window).reduced(node.y.shape[2:], kernel)) == size


def test_outputs_beyond_every_window() -> None:
    """ONNX may ask for more output than any convolution has as its input."""
    node = node_of("ConvTranspose", (1, 2, 3, 3), (2, 3, 1, 1), {"output_shape": [9, 9]})
    filters = Filters(node.inputs[1], (2, 3, 1, 1), False)  # type: ignore[arg-type]
    assert isinstance(transposed_window(node, filters, (1, 3, 3), (1, 9, 9)), Refusal)
