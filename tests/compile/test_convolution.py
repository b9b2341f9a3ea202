"""Convolutions compile for every architecture, and the launch choice fits the machine."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf, prod

import ml_dtypes
import numpy as np
import pytest

import harness
from cases import convolution as cases
from gossamer.build.compilation import compile_kernels
from gossamer.kernels import convolution, convolution_inputs
from gossamer.kernels.convolution_box_tiles import BoxTiles, choose_tiles, priced_boxes, programs_at_a_time
from gossamer.kernels.convolution_geometry import Activations, Convolution, Window
from gossamer.kernels.convolution_tiles import TENSOR_CORE_TILES, Extents, choose_convolution_tiles, priced
from gossamer.kernels.depthwise import choose_patch
from gossamer.kernels.gemm_tiles import Tiles, cdiv
from gossamer.program import Kernel, Target

DTYPES = {"float16": np.float16, "bfloat16": np.dtype(ml_dtypes.bfloat16), "float32": np.float32, "float64": np.float64}
RELU = {"pads": [1] * 4, "activation": "relu"}
EVERY_DTYPE = (
    cases.Case("3x3", (1, 32, 14, 14), (32, 32, 3, 3), RELU, "FusedConv", cases.NHWC, residual=True),
    cases.Case("stem", (1, 3, 32, 32), (16, 3, 7, 7), {"pads": [3] * 4, "strides": [2, 2]}, "Conv", cases.NHWC),
    cases.Case("depthwise", (1, 24, 14, 14), (24, 1, 3, 3), {**RELU, "group": 24}, "FusedConv", cases.NHWC),
)
ONE_DTYPE = (
    cases.Case("split_k", (1, 512, 3, 3), (32, 512, 3, 3), RELU, "FusedConv", cases.NHWC, residual=True),
    cases.Case("pointwise", (1, 40, 6, 7), (24, 40, 1, 1), {}, "Conv", cases.NHWC),
    cases.Case("channels_first", (1, 32, 8, 8), (32, 32, 3, 3), {"pads": [1] * 4}),
    cases.Case("3d", (1, 16, 4, 4, 4), (16, 8, 3, 3, 3), {"pads": [1] * 6, "group": 2}),
    cases.Case(
        "transposed", (1, 24, 8, 8), (24, 8, 3, 3), {"strides": [2, 2]}, "ConvTranspose", cases.NHWC, constants=False
    ),
    cases.Case("transposed_depthwise", (1, 24, 8, 8), (24, 1, 4, 4), {"strides": [2, 2], "group": 24}, "ConvTranspose"),
    cases.Case("depthwise_large", (1, 8, 16, 16), (8, 1, 9, 9), {"pads": [4] * 4, "group": 8}),
)
EXTENTS = (
    Extents(12544, 64, 3, 49),
    Extents(49, 512, 512, 9),
    Extents(3136 * 32, 64, 64, 9),
    Extents(49 * 32, 2048, 512, 1),
    Extents(1, 16, 64, 1),
    Extents(196, 4, 4, 9, groups=32),
    Extents(10**9, 8, 8, 9),
)


BOXED = (
    cases.Case("3x3", (8, 64, 14, 14), (64, 64, 3, 3), RELU, "FusedConv", cases.NHWC, residual=True),
    cases.Case("pointwise", (8, 64, 14, 14), (64, 64, 1, 1), {}, "Conv", cases.NHWC),
    cases.Case("3d", (2, 64, 4, 8, 8), (64, 64, 3, 3, 3), {"pads": [1] * 6}, "Conv", cases.NHWC),
)
COPIED = (
    cases.Case("channels_first", (8, 64, 14, 14), (64, 64, 3, 3), RELU, "FusedConv", "gossamer", residual=True),
    cases.Case("stem", (8, 3, 64, 64), (64, 3, 7, 7), {"pads": [3] * 4, "strides": [2, 2]}, "Conv", cases.NHWC),
    cases.Case("stem_channels_first", (8, 3, 64, 64), (64, 3, 7, 7), {"pads": [3] * 4, "strides": [2, 2]}),
)
SM_90 = Target.named("sm_90")


@dataclass(frozen=True)
class Layer:
    """A square convolution with its input padded so that only the stride makes it smaller."""

    channels: int
    size: int
    outputs: int
    stride: int = 1
    groups: int = 1
    taps: int = 3

    def convolution(self, batch: int = 2) -> Convolution:
        out, taps, pad = -(-self.size // self.stride), self.taps, self.taps // 2
        x = Activations.of((batch, self.size, self.size, self.channels), channels_last=True)
        y = Activations.of((batch, out, out, self.outputs), channels_last=True)
        window = Window((1, taps, taps), (1, self.stride, self.stride), (0, pad, pad), (1, 1, 1))
        return Convolution(batch, self.groups, 3, x, y, window).simplified()


def kernels(case: cases.Case, dtype: str, target: str) -> tuple[Kernel, ...]:
    return harness.kernels_of(replace(case, dtype=DTYPES[dtype]).model()[0], target)


def test_every_kernel_and_dtype_compiles_for_every_architecture() -> None:
    """Kernels are chosen as for an L40S, which has no copy engine; `test_tiles_fit…` sees to the choice for the others,
    `test_boxes_compile…` to the kernels that only newer ones have."""
    wanted = [k for dtype in DTYPES for case in EVERY_DTYPE for k in kernels(case, dtype, "sm_89")]
    wanted += [k for case in ONE_DTYPE for k in kernels(case, "float16", "sm_89")]
    assert {k.function for k in wanted} == {
        "convolution_kernel", "split_k_epilogue_kernel", "pack_filters_kernel", "depthwise_kernel",
        "depthwise_transpose_kernel",
    }  # fmt: skip
    harness.compile_all(tuple(dict.fromkeys(wanted)))


BOXES = (
    BoxTiles((4, 4, 4), 64, 64, 4, 3),
    BoxTiles((4, 4, 8), 128, 64, 8, 3),
    BoxTiles((4, 4, 4), 64, 64, 4, 3, splits=3),
    BoxTiles((4, 4, 4), 64, 64, 4, 3, persistent=True),
)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_boxes_compile_where_there_is_a_copy_engine(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = []
    for tiles in BOXES if dtype == "float16" else BOXES[:1]:
        fitting = replace(tiles, block_k=32 if dtype == "float32" else 64)
        rows = replace(fitting, box=(fitting.block_m, 1, 1))
        monkeypatch.setattr(convolution, "choose_tiles", lambda asked, *_, f=fitting, r=rows: f if asked.rank else r)
        wanted += [kernel for case in BOXED for kernel in kernels(case, dtype, "sm_90")]
    assert {kernel.function for kernel in wanted} <= {"convolution_boxes_kernel", "split_k_epilogue_kernel"}
    harness.compile_all(tuple(dict.fromkeys(wanted)), (90, 100, 120))


@pytest.mark.parametrize(("dtype", "arch"), [("float16", 80), ("float16", 90), ("float32", 90)])
def test_convolutions_of_copied_inputs_compile(dtype: str, arch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(convolution_inputs, "_copying", lambda *_: -inf)
    monkeypatch.setattr(convolution_inputs, "cheapest_copy", convolution_inputs.cheapest_copy.__wrapped__)
    wanted = [kernel for case in COPIED for kernel in kernels(case, dtype, f"sm_{arch}")]
    assert "widen_kernel" in {kernel.function for kernel in wanted}
    harness.compile_all(tuple(dict.fromkeys(wanted)), (arch,))


@pytest.mark.parametrize(("channels", "outputs", "taps", "stride"), [(3, 64, 7, 2), (64, 64, 3, 1)])
def test_inputs_are_copied_where_it_pays(channels: int, outputs: int, taps: int, stride: int) -> None:
    """Gathering elements one by one takes far longer than a copy of a batch, but not than a launch."""

    def way(batch: int, size: int) -> object:
        out = -(-size // stride)
        x, y = (Activations.of((batch, c, n, n), channels_last=False) for c, n in ((channels, size), (outputs, out)))
        window = Window((1, taps, taps), (1, stride, stride), (0, taps // 2, taps // 2), (1, 1, 1))
        asked = Convolution(batch, 1, 3, x, y, window).simplified()
        return convolution_inputs.cheapest_copy(asked, "float16", True, SM_90)

    assert isinstance(way(32, 112), convolution_inputs.Widened if channels == 3 else Convolution)
    assert way(1, 4) is None


@pytest.mark.parametrize("name", ["sm_90", "sm_100", "sm_120"])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_every_box_offered_fits_the_machine(name: str, dtype: str) -> None:
    """Also at stride 2, where a box spans twice as much, and with room for what persistent programs write."""
    target, itemsize = Target.named(name), np.dtype(dtype).itemsize
    for layer in (Layer(512, 7, 512), Layer(64, 56, 256), Layer(128, 28, 128, 2), Layer(64, 1, 64)):
        asked = layer.convolution()
        offered = [tiles for _, tiles in priced_boxes(asked, dtype, target)]
        assert offered
        for tiles in offered:
            gaps = (1, *asked.window.strides[1:])
            assert all(side * gap <= 256 for side, gap in zip(tiles.box, gaps, strict=True))
            sums = 4 * tiles.block_m * tiles.block_n if tiles.splits > 1 else 0
            assert tiles.plain.shared_bytes(itemsize) + sums <= target.shared_bytes
            assert tiles.count(asked) * tiles.block_m >= asked.pixels
            assert not tiles.persistent or programs_at_a_time(tiles, dtype, target) < tiles.count(asked)


def test_boxes_waste_little_of_a_small_image() -> None:
    """A box of 8×8 would waste a quarter of a 7×7 image, and one of 8×16 as much of a 14×14 one."""
    for size in (7, 14, 28, 56):
        asked = Layer(64, size, 64).convolution(batch=32)
        best = max(asked.pixels / (t.count(asked) * t.block_m) for _, t in priced_boxes(asked, "float16", SM_90))
        assert best >= 0.87


@pytest.mark.parametrize(
    "layer",
    [Layer(12, 28, 64), Layer(64, 28, 60), Layer(64, 28, 64, groups=2), Layer(3, 28, 64, taps=7)],
    ids=str,
)
def test_what_the_copy_engine_cannot_fetch_is_gathered(layer: Layer) -> None:
    """Rows of half 16 bytes, groups, and blocks of K that run across taps."""
    assert not list(priced_boxes(layer.convolution(), "float16", SM_90))
    assert isinstance(choose_tiles(layer.convolution(), "float16", SM_90), Tiles)


def test_older_machines_and_other_types_gather() -> None:
    asked = Layer(64, 28, 64).convolution()
    assert not list(priced_boxes(asked, "float16", Target.named("sm_89")))
    assert not list(priced_boxes(asked, "float64", SM_90))
    assert not list(priced_boxes(asked, "float32", SM_90.with_tf32(False)))


@pytest.mark.parametrize("name", ["sm_75", "sm_80", "sm_89", "sm_90", "sm_100", "sm_120"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_tiles_fit_the_machine(name: str, dtype: str) -> None:
    target, itemsize = Target.named(name), np.dtype(DTYPES[dtype]).itemsize
    for extents in EXTENTS:
        tiles = choose_convolution_tiles(extents, dtype, target)
        assert tiles.shared_bytes(itemsize) <= target.shared_bytes
        assert 1 <= tiles.splits <= extents.steps(tiles.block_k)
        assert tiles.block_k >= 16
        assert tiles.programs(extents.pixels, extents.outputs, extents.groups) < 2**31


@pytest.mark.parametrize(("name", "tiles"), [("sm_89", Tiles(128, 128, 64, 8, 3)), ("sm_90", TENSOR_CORE_TILES[0])])
def test_the_largest_tiles_compile_within_shared_memory(
    name: str, tiles: Tiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pipeline is what `shared_bytes` counts; the epilogue's exchange has to fit as well."""
    target = Target.named(name)
    offered = [t for _, t in priced(Extents(10**5, 512, 64, 9), "float16", target)]
    assert max(t.block_m * t.block_n for t in offered) == tiles.block_m * tiles.block_n
    monkeypatch.setattr(convolution, "choose_tiles", lambda *_: tiles)
    case = cases.Case(
        "large", (1, 128, 32, 32), (256, 128, 3, 3), RELU, "FusedConv", cases.NHWC, np.float16, residual=True
    )
    (kernel,) = harness.kernels_of(case.model()[0], name)
    assert compile_kernels([kernel], target)[kernel].shared_bytes <= target.shared_bytes


def test_few_tiles_split_k_and_many_do_not() -> None:
    target = Target.named("sm_90")
    assert choose_convolution_tiles(Extents(49, 512, 512, 9), "float16", target).splits > 1
    assert choose_convolution_tiles(Extents(3136 * 64, 512, 512, 9), "float16", target).splits == 1


def test_large_convolutions_use_large_tiles_and_small_ones_fill_the_device() -> None:
    target = Target.named("sm_90")
    large = choose_convolution_tiles(Extents(3136 * 64, 256, 256, 9), "float16", target)
    assert large.block_m * large.block_n >= 128 * 128
    small = Extents(196, 256, 256, 9)
    assert (
        choose_convolution_tiles(small, "float16", target).programs(small.pixels, small.outputs, 1)
        >= target.sm_count // 2
    )


def test_few_channels_are_reduced_across_taps() -> None:
    """49 taps of 3 channels are ten blocks of 16, not 49."""
    stem = EXTENTS[0]
    assert stem.flat
    assert stem.steps(16) == 10
    assert not Extents(1, 1, 3, 1).flat
    assert Extents(1, 1, 40, 9).steps(32) == 18


@pytest.mark.parametrize("shape", [(3136, 32), (49, 960), (1, 1280), (12544 * 32, 96), (49 * 32, 24)], ids=str)
def test_depthwise_patches_occupy_the_device(shape: tuple[int, int]) -> None:
    target = Target.named("sm_90")
    patch = choose_patch(*shape, itemsize=2, channels_last=True, target=target)
    warps = cdiv(shape[0], patch.pixels) * cdiv(shape[1], patch.channels) * patch.num_warps
    assert warps >= min(2 * target.sm_count, prod(shape) / (32 * 8))  # 16 bytes for each thread
