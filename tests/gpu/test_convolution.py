from __future__ import annotations

import dataclasses

import ml_dtypes
import numpy as np
import pytest

import harness
from cases import convolution as cases
from gossamer.kernels import convolution, convolution_boxes, convolution_inputs
from gossamer.kernels.convolution_box_tiles import BoxTiles
from gossamer.kernels.convolution_geometry import Convolution
from gossamer.program import Target
from gossamer.run.cuda import target_of_device

PADDED, HALVED = {"pads": [1] * 4}, {"strides": [2, 2]}
BLOCK, POINTWISE = {**PADDED, "activation": "relu"}, {"activation": "relu"}
REALISTIC = [
    cases.Case("resnet_3x3", (2, 128, 28, 28), (128, 128, 3, 3), BLOCK, "FusedConv", cases.NHWC, residual=True),
    cases.Case("resnet_split_k", (1, 512, 7, 7), (512, 512, 3, 3), BLOCK, "FusedConv", cases.NHWC, residual=True),
    cases.Case("resnet_stem", (2, 3, 224, 224), (64, 3, 7, 7), {"pads": [3] * 4, **HALVED}, "Conv", cases.NHWC),
    cases.Case(
        "stem_channels_first", (2, 3, 64, 64), (32, 3, 3, 3), {**PADDED, "x_channels_first": 1}, "Conv", cases.NHWC
    ),
    cases.Case("resnet_pointwise", (2, 1024, 14, 14), (512, 1024, 1, 1), {}, "Conv", cases.NHWC),
    cases.Case("resnet_downsample", (2, 256, 56, 56), (512, 256, 1, 1), HALVED, "Conv", cases.NHWC),
    cases.Case("depthwise", (2, 96, 112, 112), (96, 1, 3, 3), {**PADDED, **HALVED, "group": 96}, "Conv", cases.NHWC),
    cases.Case("channels_of_8", (1, 40, 33, 35), (120, 40, 1, 1), {}, "Conv", cases.NHWC),
    cases.Case("upsample", (1, 24, 60, 62), (24, 24, 2, 2), HALVED, "ConvTranspose", cases.NHWC),
    cases.Case("channels_first", (2, 64, 28, 28), (128, 64, 3, 3), PADDED),
]


REALISTIC_BOXED = [
    dataclasses.replace(case, dtype=dtype)
    for case in (
        cases.Case("3x3", (5, 128, 28, 28), (192, 128, 3, 3), PADDED, "Conv", cases.NHWC),
        cases.Case("3x3_stride", (5, 64, 57, 56), (96, 64, 3, 3), {**PADDED, **HALVED}, "Conv", cases.NHWC),
        cases.Case(
            "1x1", (17, 64, 56, 56), (256, 64, 1, 1), {"activation": "relu"}, "FusedConv", cases.NHWC, residual=True
        ),
    )
    for dtype in (np.float16, np.float32)
]


@pytest.mark.parametrize("case", cases.CASES, ids=str)
def test_convolution(case: cases.Case) -> None:
    case.check("cuda")


@pytest.mark.parametrize(
    "dtype", [np.float16, np.dtype(ml_dtypes.bfloat16), np.float32], ids=lambda t: np.dtype(t).name
)
@pytest.mark.parametrize("case", REALISTIC, ids=str)
def test_layers_of_real_networks(case: cases.Case, dtype: type) -> None:
    dataclasses.replace(case, dtype=dtype).check("cuda")


@pytest.mark.parametrize("how", ["plain", "split", "persistent"])
@pytest.mark.parametrize("box", [(2, 8, 8), (1, 2, 32), (16, 2, 2)], ids=str)
@pytest.mark.parametrize("case", [*cases.BOXED, *REALISTIC_BOXED], ids=str)
def test_boxes(case: cases.Case, box: tuple[int, int, int], how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every way to go through the boxes; `persistent` with several tiles for each program."""
    if target_of_device(0).arch < 90:
        pytest.skip("the copy engine (sm_90)")
    splits, persistent = (3 if how == "split" else 1), how == "persistent"

    def choose(asked: Convolution, dtype: str, _: Target) -> BoxTiles:
        block_k = 32 if dtype == "float32" else 64
        at = box if asked.rank else (box[0] * box[1] * box[2], 1, 1)
        return BoxTiles(at, 64, block_k, 4, 3, splits, persistent)

    monkeypatch.setattr(convolution, "choose_tiles", choose)
    if persistent:
        monkeypatch.setattr(convolution_boxes, "programs_at_a_time", lambda *_: 7)
    case.check("cuda")


def test_an_image_of_more_than_2_to_the_31_elements() -> None:
    """Only the corners of the result are compared: they are what overflowing offsets would get wrong."""
    rows, columns, channels = 9000, 15000, 16
    assert rows * columns * channels > 2**31
    rng = np.random.default_rng(0)
    x = np.broadcast_to(
        rng.standard_normal((1, 1, columns, channels)).astype(np.float16), (1, rows, columns, channels)
    ).copy()
    w = rng.standard_normal((16, channels, 3, 3)).astype(np.float16)
    types = [(harness.tensor_type(x), (1, rows, columns, 16))]
    (got,) = harness.run_node(
        "Conv", [x, w], {"pads": [1] * 4}, domain=cases.NHWC, constants=(1,), output_types=types, device="cuda"
    )
    corner = np.moveaxis(x[:, -8:, -8:], -1, 1).astype(np.float64)
    want = cases.channels_last(cases.convolution(corner, w.astype(np.float64), {"pads": [1] * 4}))[:, 1:, 1:].astype(
        np.float16
    )
    harness.assert_close(got[:, -7:, -7:], want, 9 * channels)


@pytest.mark.parametrize("case", cases.COPIED, ids=str)
def test_copied_inputs(case: cases.Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """Copied before they are convolved, wherever that is possible."""
    monkeypatch.setattr(convolution_inputs, "_copying", lambda *_: -np.inf)
    for name in ("cheapest_copy", "_turning_pays"):
        monkeypatch.setattr(convolution_inputs, name, getattr(convolution_inputs, name).__wrapped__)
    case.check("cuda")
