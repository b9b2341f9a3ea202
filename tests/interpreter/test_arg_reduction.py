"""ArgMax and ArgMin in the interpreter, against onnxruntime or NumPy. (R6)"""

from __future__ import annotations

import numpy as np
import pytest

from cases.arg_reduction import CASES, case
from cases.node_case import NodeCase
from gossamer.errors import UnsupportedModel
from gossamer.kernels import arg_reduction
from gossamer.kernels.reduction_geometry import Tile


@pytest.mark.parametrize("node", CASES, ids=str)
def test_arg_reduction(node: NodeCase) -> None:
    node.check("interpreter")


@pytest.mark.parametrize("last", [0, 1])
@pytest.mark.parametrize("op", ["ArgMax", "ArgMin"])
def test_split_rows_give_the_same(op: str, last: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts with nothing but NaN, a row that starts with one, and ties across parts."""
    monkeypatch.setattr(arg_reduction, "streaming_tile", lambda *_: Tile(2, 2, 1, unroll=2))
    monkeypatch.setattr(arg_reduction, "splits_for", lambda geometry, *_: 4 if geometry.steps > 20 else 1)
    x = (np.arange(5 * 40).reshape(5, 40) * 7 % 13).astype(np.float32)
    x[1, :20] = np.nan
    x[2, 0] = np.nan
    x[3] = np.nan
    x[4, 5:17] = np.nan
    case(op, "split", x, axis=1, select_last_index=last).check("interpreter")


@pytest.mark.parametrize("last", [0, 1])
@pytest.mark.parametrize(
    ("shape", "axis", "dtype"),
    [((3, 1001), 1, "float16"), ((2, 4000), 1, "float32"), ((5, 21, 1100), 1, "float16"), ((400, 24), 0, "int8")],
    ids=str,
)
def test_tiles_of_a_gpu(shape: tuple[int, ...], axis: int, dtype: str, last: int) -> None:
    """Every value is there several times; some rows have nothing but the worst."""
    x = np.random.default_rng(1).integers(-5, 5, shape).astype(dtype)
    worst = np.iinfo(dtype).min if np.dtype(dtype).kind == "i" else -np.inf
    np.moveaxis(x, axis, -1)[..., :1, :] = worst
    want = np.expand_dims(shape[axis] - 1 - np.flip(x, axis).argmax(axis) if last else x.argmax(axis), axis)
    case("ArgMax", f"gpu_{dtype}", x, axis=axis, select_last_index=last, want=want).check("sm_90")


def test_an_empty_axis_is_refused() -> None:
    node = case("ArgMax", "empty", np.zeros((2, 0), np.float32), axis=1, want=np.zeros((2, 1), np.int64))
    with pytest.raises(UnsupportedModel, match="axis 1 of its input has 0 elements"):
        node.check("interpreter")
