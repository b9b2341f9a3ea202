from __future__ import annotations

import dataclasses
from math import inf

import numpy as np
import pytest

import harness
from cases import convolution as cases
from gossamer.errors import UnsupportedModel
from gossamer.kernels import convolution, convolution_geometry, convolution_inputs, convolution_transpose, depthwise
from gossamer.kernels.convolution_box_tiles import BoxTiles
from gossamer.kernels.convolution_geometry import Convolution
from gossamer.kernels.depthwise import Patch
from gossamer.kernels.gemm_tiles import Tiles
from gossamer.program import Target, TensorMap

SM_90 = Target.named("sm_90")
ORACLED = [
    case
    for case in cases.CASES
    if case.domain in ("", "com.microsoft") and case.dtype is np.float32 and case.constants
    and case.name not in ("same_dilated", "same_beyond_filter", "swish", "silu", "gelu")  # docs/disagreements.md
]  # fmt: skip


@pytest.mark.parametrize("case", cases.CASES, ids=str)
def test_convolution(case: cases.Case) -> None:
    case.check("interpreter")


@pytest.mark.parametrize("case", ORACLED, ids=str)
def test_reference_agrees_with_onnxruntime(case: cases.Case) -> None:
    """What the cases call right is right."""
    (want,) = harness.ort(*case.model())
    harness.assert_close(case.want(), want, case.reduction)


def use_tiles(monkeypatch: pytest.MonkeyPatch, splits: int) -> None:
    tiles = Tiles(64, 16, 32, 4, 1, splits=splits)
    monkeypatch.setattr(convolution, "choose_tiles", lambda *_: tiles)
    monkeypatch.setattr(convolution_transpose, "choose_convolution_tiles", lambda *_: tiles)


SPLIT = [
    case
    for case in (*cases.PLAIN, *cases.TRANSPOSED, *cases.FUSED, *cases.typed(np.float16, ["relu"]))
    if case.name in ("pointwise", "few_channels", "relu", "no_bias", "2x2_stride_2")
]


@pytest.mark.parametrize("case", SPLIT, ids=str)
def test_small_tiles_and_split_k_give_the_same(case: cases.Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also with more splits than some have blocks of K: the last ones sum nothing."""
    use_tiles(monkeypatch, splits=3)
    model, _ = case.model()
    functions = [kernel.function for kernel in harness.kernels_of(model, "interpreter")]
    assert functions == ["convolution_kernel", "split_k_epilogue_kernel"]
    case.check("interpreter")


@pytest.mark.parametrize("domain", ["", cases.NHWC])
@pytest.mark.parametrize("name", ["groups", "depthwise_multiplier"])
def test_small_tiles_give_the_same(name: str, domain: str, monkeypatch: pytest.MonkeyPatch) -> None:
    use_tiles(monkeypatch, splits=1)
    monkeypatch.setattr(depthwise, "choose_patch", lambda *_, **__: Patch(32, 8, 4))
    next(c for c in (*cases.PLAIN, *cases.DEPTHWISE) if (c.name, c.domain) == (name, domain)).check("interpreter")


@pytest.mark.parametrize("run", [2, 4])
@pytest.mark.parametrize(
    "case",
    [
        c
        for c in (*cases.DEPTHWISE, *cases.FUSED)
        if "depthwise" in c.name and c.domain and c.name not in ("depthwise_stride_dilation", "depthwise_large_filter")
    ],
    ids=str,
)
def test_runs_of_depthwise_outputs_give_the_same(case: cases.Case, run: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where they reach beyond the end of a row."""
    monkeypatch.setattr(depthwise, "choose_patch", lambda *_, **__: Patch(64, 8, 4, run))
    case.check("interpreter")


@pytest.mark.parametrize(
    "case",
    [
        c
        for c in (*cases.PLAIN, *cases.DEPTHWISE, *cases.TRANSPOSED)
        if c.name in ("3x3", "few_channels", "3d", "pointwise", "depthwise")
    ],
    ids=str,
)
def test_64_bit_offsets_give_the_same(case: cases.Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """Images of 2³¹ elements take this way; a small one stands in for them here, real ones are in the GPU tests."""
    monkeypatch.setattr(convolution_geometry.Convolution, "wide", property(lambda _: True))
    model, _ = case.model()
    (kernel,) = (k for k in harness.kernels_of(model, "interpreter") if "pack" not in k.function)
    assert dict(kernel.constants)["WIDE"] is True
    case.check("interpreter")


@pytest.mark.parametrize("name", ["3x3", "depthwise", "2x2_stride_2"])
def test_an_empty_batch_gives_an_empty_result(name: str) -> None:
    case = next(c for c in (*cases.PLAIN, *cases.DEPTHWISE, *cases.TRANSPOSED) if c.name == name)
    dataclasses.replace(case, x=(0, *case.x[1:])).check("interpreter")


@pytest.mark.parametrize(
    "case", [c for c in (*cases.PLAIN, *cases.TRANSPOSED) if c.name in ("groups", "3x3_stride_2")], ids=str
)
def test_what_is_not_in_the_window_does_not_matter(case: cases.Case) -> None:
    """NaN and infinities reach only the outputs that see them: neither other groups nor taps that do not exist."""
    x, w, b = case.inputs()
    x[0, 1, 2, 2], x[-1, -1, 0, 3] = np.nan, np.inf
    w = np.abs(w)
    types = [(harness.tensor_type(x), (y := case.want()).shape)]
    if case.domain:
        types, x = [(types[0][0], cases.channels_last(y).shape)], cases.channels_last(x)
    (got,) = harness.run_node(
        case.op_type, [x, w, b], case.attributes, domain=case.domain, constants=(1, 2), output_types=types
    )
    clean = np.moveaxis(x, -1, 1) if case.domain else x
    compute = cases.transposed_convolution if case.transposed else cases.convolution
    reached = ~np.isfinite(compute(np.where(np.isfinite(clean), 0.0, np.nan), w.astype(np.float64), case.attributes))
    exact = compute(np.where(np.isfinite(clean), clean, 0.0).astype(np.float64), w.astype(np.float64), case.attributes)
    exact += b.reshape(-1, 1, 1)
    got = np.moveaxis(got, -1, 1) if case.domain else got
    np.testing.assert_array_equal(~np.isfinite(got), reached)
    harness.assert_close(np.where(reached, 0, got), np.where(reached, 0, exact).astype(np.float32), case.reduction)


@pytest.mark.parametrize("domain", ["", cases.NHWC])
def test_copies_of_single_pixels_are_aligned(domain: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One pixel is the same with channels first and last, and the copy engine wants strides of 16 bytes in both."""
    monkeypatch.setattr(convolution, "choose_tiles", lambda *_: BoxTiles((32, 1, 1), 16, 16, 4, 1))
    case = cases.Case("pixel", (2, 24, 1, 1), (16, 24, 3, 3), {"pads": [1] * 4}, domain=domain, dtype=np.float16)
    program, _ = harness.lower_model(case.model()[0], SM_90)
    maps = [a for launch in program.launches for a in launch.arguments if isinstance(a, TensorMap)]
    assert len(maps) == 3
    assert all(stride * 2 % 16 == 0 for a in maps for stride in a.strides[:-1])


def test_varying_filters_are_rounded_to_tf32_as_constant_ones_are() -> None:
    """To the bit, zeros and infinities too: half a unit must not stay behind in what is packed."""
    x, w, _ = next(c for c in cases.PLAIN if c.name == "3x3").inputs()
    assert w is not None
    w[0, 0, 0], w[1, 0, 0] = 0.0, np.inf
    types = [(1, (2, 37, 7, 9))]
    packed, constant = (
        harness.run_node("Conv", [x, w], device="sm_90", constants=constants, output_types=types)
        for constants in ((), (1,))
    )
    np.testing.assert_array_equal(packed, constant)


def test_thousands_of_phases_are_one_launch() -> None:
    """A filter as large as its stride turns every input into a block of outputs."""
    case = cases.Case("blocks", (1, 16, 1, 1, 2), (16, 1, 20, 20, 20), {"strides": [20] * 3}, "ConvTranspose")
    program, _ = harness.lower_model(case.model()[0], SM_90)
    assert [launch.grid[2] for launch in program.launches] == [8000]


@pytest.mark.parametrize("dtype", [np.int32, np.uint8])
def test_integers_are_refused_with_a_reason(dtype: type) -> None:
    x, w = np.ones((1, 4, 5, 5), dtype), np.ones((4, 4, 3, 3), dtype)
    types = [(harness.tensor_type(x), (1, 4, 3, 3))]
    with pytest.raises(UnsupportedModel, match=f"Conv of {np.dtype(dtype).name} has no kernel"):
        harness.run_node("Conv", [x, w], output_types=types)


def test_unknown_activations_and_ranks_are_refused_with_a_reason() -> None:
    x, w = np.ones((1, 4, 5, 5), np.float32), np.ones((4, 4, 3, 3), np.float32)
    types = [(1, (1, 4, 3, 3))]
    with pytest.raises(UnsupportedModel, match="no activation 'Swash'"):
        harness.run_node("FusedConv", [x, w], {"activation": "Swash"}, domain="com.microsoft", output_types=types)
    x, w = np.ones((1, 2, 3, 3, 3, 3), np.float32), np.ones((2, 2, 1, 1, 1, 1), np.float32)
    with pytest.raises(UnsupportedModel, match="4 spatial dimensions"):
        harness.run_node("Conv", [x, w], output_types=[(1, x.shape)])


def test_the_residuals_memory_is_the_results() -> None:
    case = next(c for c in cases.FUSED if c.name == "relu" and c.domain == cases.NHWC)
    program, _ = harness.lower_model(case.model()[0], Target.named("interpreter"))
    assert [launch.inplace for launch in program.launches] == [(("y0", "x3"),)]


def test_an_input_that_is_the_residual_too_is_not_overwritten() -> None:
    """Programs read their neighbours' pixels of it."""
    from onnx import TensorProto, helper, numpy_helper

    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((1, 8, 8, 16)).astype(np.float32), rng.standard_normal((16, 16, 3, 3)).astype(np.float32)
    node = helper.make_node("FusedConv", ["x", "w", "", "x"], ["y"], "node", domain=cases.NHWC, pads=[1, 1, 1, 1])
    info = [helper.make_tensor_value_info(name, TensorProto.FLOAT, x.shape) for name in "xy"]
    graph = helper.make_graph([node], "shared", info[:1], info[1:], [numpy_helper.from_array(w, "w")])
    imports = [helper.make_opsetid("", 21), helper.make_opsetid(cases.NHWC, 1)]
    program, _ = harness.lower_model(
        helper.make_model(graph, opset_imports=imports, ir_version=10), Target.named("interpreter")
    )
    assert [launch.inplace for launch in program.launches] == [()]


@pytest.mark.parametrize("splits", [1, 2])
@pytest.mark.parametrize("box", [(2, 4, 4), (1, 1, 32)], ids=str)
@pytest.mark.parametrize("case", cases.BOXED, ids=str)
def test_boxes_give_the_same(
    case: cases.Case, box: tuple[int, int, int], splits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Boxes that reach beyond the output in every direction, and more channels in the last block than there are."""

    def choose(asked: Convolution, *_: object) -> BoxTiles:
        return BoxTiles(box if asked.rank else (32, 1, 1), 16, 16, 4, 1, splits, persistent=splits == 1)

    monkeypatch.setattr(convolution, "choose_tiles", choose)
    model, _ = case.model()
    (first, *_) = harness.kernels_of(model, "interpreter")
    assert first.function == "convolution_boxes_kernel"
    case.check("interpreter")


@pytest.fixture
def copies_cost_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever may be copied before it is convolved is."""
    monkeypatch.setattr(convolution_inputs, "_copying", lambda *_: -inf)
    for name in ("cheapest_copy", "_turning_pays"):
        monkeypatch.setattr(convolution_inputs, name, getattr(convolution_inputs, name).__wrapped__)


@pytest.mark.usefixtures("copies_cost_nothing")
@pytest.mark.parametrize("case", cases.COPIED, ids=str)
def test_copied_inputs_give_the_same(case: cases.Case) -> None:
    model, _ = case.model()
    copying = "widen_kernel" if case.name.startswith("widened") else "copy_strided_kernel"
    assert copying in {kernel.function for kernel in harness.kernels_of(model, "sm_90")}
    case.check("sm_90")


@pytest.mark.usefixtures("copies_cost_nothing")
def test_a_widened_copy_keeps_what_is_not_in_the_window_out() -> None:
    """Blocks of K are longer than windows: what they see beyond must not be multiplied, not even by zero."""
    x = np.zeros((1, 3, 12, 15), np.float16)
    x[:, :, :, 7:] = np.nan
    w = np.ones((8, 3, 7, 7), np.float16)
    types = [(harness.tensor_type(x), (1, 8, 6, 9))]
    (got,) = harness.run_node("Conv", [x, w], constants=(1,), output_types=types, device="sm_90")
    assert (got[..., 0] == 0).all()
    assert np.isnan(got[..., 1:]).all()


@pytest.mark.parametrize("case", [c for c in cases.PLAIN if c.name == "few_channels"], ids=str)
def test_varying_filters_are_not_widened(case: cases.Case) -> None:
    model, _ = dataclasses.replace(case, x=(32, 3, 224, 224), dtype=np.float16, constants=False).model()
    assert "widen_kernel" not in {kernel.function for kernel in harness.kernels_of(model, "sm_90")}
