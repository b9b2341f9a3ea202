"""Cases of Transpose, DepthToSpace and SpaceToDepth."""

from __future__ import annotations

import itertools

import numpy as np
from onnx import TensorProto

from cases.node_case import MOVED_DTYPES, NodeCase, random_array


def _transpose(detail: str, x: np.ndarray, *perm: int) -> NodeCase:
    return NodeCase(f"Transpose-{detail}", "Transpose", [x], {"perm": perm} if perm else {}, opset=13)


def _blocks(op_type: str, x: np.ndarray, block: int, mode: str | None, channels_last: bool) -> NodeCase:
    """In the channels-last domain the result is that of ONNX on the permuted input."""
    attributes = {"blocksize": block} | ({"mode": mode} if mode else {})
    plain = NodeCase(f"{op_type}-{mode}_{block}_{x.dtype}", op_type, [x], attributes, opset=13)
    if not channels_last:
        return plain
    (want,) = plain.expected()
    want = want.transpose(0, 2, 3, 1)
    return NodeCase(
        f"{plain.name}_channels_last",
        op_type,
        [np.ascontiguousarray(x.transpose(0, 2, 3, 1))],
        attributes,
        opset=13,
        domain="gossamer.nhwc",
        output_types=[(TensorProto.FLOAT, want.shape)],
        want=lambda: [want],
    )


def _space_to_depth_crd(block: int, channels_last: bool) -> NodeCase:
    """The mode that SpaceToDepth has since opset 28, which onnxruntime lacks."""
    n, channels, height, width = 2, 3, 4, 5
    x = random_array("space", (n, channels, height * block, width * block))
    want = x.reshape(n, channels, height, block, width, block).transpose(0, 1, 3, 5, 2, 4)
    want = want.reshape(n, channels * block**2, height, width)
    if channels_last:
        x, want = (np.ascontiguousarray(array.transpose(0, 2, 3, 1)) for array in (x, want))
    return NodeCase(
        f"SpaceToDepth-CRD_{block}{'_channels_last' * channels_last}",
        "SpaceToDepth",
        [x],
        {"blocksize": block, "mode": "CRD"},
        opset=28,
        domain="gossamer.nhwc" if channels_last else "",
        output_types=[(TensorProto.FLOAT, want.shape)],
        want=lambda: [want],
    )


_X = random_array("transpose", (3, 4, 5, 6))
INTERLEAVED = [
    *(
        _blocks("DepthToSpace", random_array("wide", (2, 3 * block**2, 3, width), dtype), block, mode, False)
        for block, width, dtype in ((2, 40, "float16"), (4, 19, "float32"), (8, 130, "int8"))
        for mode in ("DCR", "CRD")
    ),
    *(
        _blocks("SpaceToDepth", random_array("wide", (2, 3, 2 * block, width * block), dtype), block, None, False)
        for block, width, dtype in ((2, 300, "float16"), (4, 19, "float32"), (8, 130, "int8"))
    ),
    *(
        _transpose(
            f"{way}_{c}", random_array("t", (2, 7, c, 29) if way == "together" else (2, 7, 29, c), d), 0, 1, 3, 2
        )
        for way in ("together", "apart")
        for c, d in ((2, "float64"), (4, "float16"), (8, "bool"))
    ),
]
"""Planes that are interleaved, or set apart: wide ones of two, four and eight."""

CASES = [
    *(_transpose("".join(map(str, p)), _X, *p) for p in itertools.permutations(range(4))),
    *(_transpose(dtype, random_array("t", (2, 40, 70), dtype), 0, 2, 1) for dtype in MOVED_DTYPES),
    _transpose("default", random_array("t", (3, 70, 5))),
    _transpose("rank_0", np.array(7, np.float32)),
    _transpose("rank_1", random_array("t", (70,)), 0),
    _transpose("ones_move", random_array("t", (4, 1, 5)), 1, 0, 2),
    _transpose("empty", np.zeros((3, 0, 2), np.float32), 2, 0, 1),
    _transpose("nchw_to_nhwc_3", random_array("t", (2, 3, 37, 41), "float16"), 0, 2, 3, 1),
    _transpose("nhwc_to_nchw_3", random_array("t", (2, 37, 41, 3), "float16"), 0, 3, 1, 2),
    _transpose("nchw_to_nhwc_64", random_array("t", (2, 64, 9, 13)), 0, 2, 3, 1),
    _transpose("heads", random_array("t", (2, 17, 3, 32), "float16"), 0, 2, 1, 3),
    _transpose("keys", random_array("t", (2, 17, 3, 32), "float16"), 0, 2, 3, 1),
    _transpose("rank_6", random_array("t", (2, 3, 2, 3, 4, 5)), 5, 0, 3, 1, 4, 2),
    *(
        _blocks("DepthToSpace", random_array("depth", (2, 12 * block, 5, 6)), block, mode, channels_last)
        for block in (1, 2, 3)
        for mode in (None, "DCR", "CRD")
        for channels_last in (False, True)
        if 12 * block % block**2 == 0
    ),
    *(
        _blocks("SpaceToDepth", random_array("space", (2, 3, 6 * block, 4 * block)), block, None, channels_last)
        for block in (1, 2, 3)
        for channels_last in (False, True)
    ),
    *(_space_to_depth_crd(block, channels_last) for block in (2, 3) for channels_last in (False, True)),
    *INTERLEAVED,
]
