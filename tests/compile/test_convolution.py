"""Convolutions compile for every architecture, and the launch choice fits the machine."""

from __future__ import annotations

from dataclasses import replace
from math import prod

import ml_dtypes
import numpy as np
import pytest

import harness
from cases import convolution as cases
from gossamer.build.compilation import compile_kernels
from gossamer.kernels import convolution
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


def kernels(case: cases.Case, dtype: str) -> tuple[Kernel, ...]:
    return harness.kernels_of(replace(case, dtype=DTYPES[dtype]).model()[0])


def test_every_kernel_and_dtype_compiles_for_every_architecture() -> None:
    """Kernels are chosen as for an H100; `test_tiles_fit…` sees to the choice for the others."""
    wanted = [k for dtype in DTYPES for case in EVERY_DTYPE for k in kernels(case, dtype)]
    wanted += [k for case in ONE_DTYPE for k in kernels(case, "float16")]
    assert {k.function for k in wanted} == {
        "convolution_kernel", "split_k_epilogue_kernel", "pack_filters_kernel", "depthwise_kernel"
    }  # fmt: skip
    harness.compile_all(tuple(dict.fromkeys(wanted)))


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
    programs = cdiv(shape[0], patch.pixels) * cdiv(shape[1], patch.channels)
    work = prod(shape) / (32 * 2 * 8)  # two warps of 16-byte vectors
    assert programs >= min(2 * target.sm_count, work)
