"""Matrix products compile for every architecture, and the launch choice fits the machine."""

from __future__ import annotations

import pytest

import harness
from cases import matmul as cases
from gossamer.kernels import gemm
from gossamer.kernels.gemm_tiles import Strip, cdiv, choose_strip, choose_tiles, uses_tensor_cores
from gossamer.program import Target

DTYPES = ("float16", "bfloat16", "float32", "float64", "int32", "int64")
SHAPES = (
    (128, 768, 768, 1),
    (4096, 4096, 4096, 1),
    (1000, 1000, 7, 1),
    (2, 64, 32768, 1),
    (197, 197, 64, 96),
    (40, 6625, 120, 1),
)


def test_every_kernel_and_dtype_compiles_for_every_architecture() -> None:
    """Kernels are chosen as for an H100; `test_tiles_fit…` sees to the choice for the others."""
    kernels = [kernel for case in cases.COMPILED for kernel in harness.kernels_of(cases.compiled_model(*case))]
    assert {kernel.function for kernel in kernels} == {"matmul_kernel", "matvec_kernel", "matmul_reduce_kernel"}
    harness.compile_all(tuple(dict.fromkeys(kernels)))


@pytest.mark.parametrize("arch", harness.ARCHITECTURES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_tiles_fit_the_machine(arch: int, dtype: str) -> None:
    target = Target.named(f"sm_{arch}")
    for m, n, k, batch in SHAPES:
        tiles = choose_tiles(m, n, k, batch, dtype, target)
        itemsize = harness.np.dtype("float16" if dtype == "bfloat16" else dtype).itemsize
        assert tiles.shared_bytes(itemsize) <= target.shared_bytes
        assert 1 <= tiles.splits <= cdiv(k, tiles.block_k)
        assert tiles.programs(m, n, batch) < 2**31


def test_few_tiles_split_k_and_many_do_not() -> None:
    target = Target.named("sm_90")
    assert choose_tiles(64, 64, 16384, 1, "float16", target).splits > 1
    assert choose_tiles(8192, 8192, 8192, 1, "float16", target).splits == 1


def test_large_products_use_large_tiles_and_small_ones_fill_the_device() -> None:
    target = Target.named("sm_90")
    large = choose_tiles(8192, 8192, 1024, 1, "float16", target)
    assert large.block_m * large.block_n >= 128 * 128
    small = choose_tiles(128, 768, 768, 1, "float16", target)
    assert small.programs(128, 768, 1) >= target.sm_count // 2


def test_vectors_prefetch_through_shared_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """What `bench/tiles.py` offers besides loads into registers."""
    monkeypatch.setattr(gemm, "choose_strip", lambda *_: Strip(32, 128, 4, 2, num_stages=3))
    inputs = [harness.np.zeros(shape, harness.np.float16) for shape in ((1, 512), (512, 64))]
    harness.compile_all(harness.kernels_of(harness.node_model("MatMul", inputs, constants=(1,))))


def test_tf32_is_the_callers_choice() -> None:
    target = Target.named("sm_90")
    assert uses_tensor_cores("float32", target)
    assert not uses_tensor_cores("float32", target.with_tf32(False))


def test_a_constant_fp32_matrix_is_transposed_once_for_hopper() -> None:
    """TF32 instructions want K innermost there."""
    shapes = ((64, 48), (48, 80))
    model = harness.node_model(
        "MatMul", [harness.np.zeros(shape, harness.np.float32) for shape in shapes], constants=(1,)
    )
    (launch,) = harness.lower_model(model, Target.named("sm_90"))[0].launches
    strides = dict(zip((name for name, _ in launch.kernel.signature), launch.arguments, strict=True))
    assert (strides["b_k_stride"], strides["b_n_stride"]) == (1, 48)
    (launch,) = harness.lower_model(model, Target.named("sm_80"))[0].launches
    strides = dict(zip((name for name, _ in launch.kernel.signature), launch.arguments, strict=True))
    assert (strides["b_k_stride"], strides["b_n_stride"]) == (80, 1)


def test_rows_that_begin_anywhere_get_tiles_of_few_elements() -> None:
    """Each takes an instruction and registers for its address: 128 × 64 spilled 1 kB and took four times as long."""
    target = Target.named("sm_90")
    even, uneven = (
        choose_tiles(256, 6625, 120, 1, "float16", target, gathered) for gathered in ((False,) * 2, (True,) * 2)
    )
    assert (uneven.block_m + uneven.block_n) * uneven.block_k <= 48 * 32 * uneven.num_warps
    assert even.block_m * even.block_n > uneven.block_m * uneven.block_n


def test_what_is_aligned_is_not_gathered() -> None:
    """ResNet's last layer as exporters write it, [2048, 1000] and transposed."""
    buffer = gemm.Buffer("w", "float16", (2048, 1000))
    assert not gemm._gathered(gemm.Matrix(buffer, (), 1000, 1), 2048, 1000)
    assert gemm._gathered(gemm.Matrix(buffer, (), 1004, 1), 2048, 1004)
    assert not gemm._gathered(gemm.Matrix(buffer, (), 1, 2048), 2048, 1000)
    assert not gemm._gathered(gemm.Matrix(buffer, (0,), 1024, 1), 2048, 1024)
    assert gemm._gathered(gemm.Matrix(buffer, (1004,), 1024, 1), 2048, 1024)
    assert gemm._gathered(gemm.Matrix(buffer, (), 1024, 2), 2048, 1024)


def test_long_strips_read_whole_bursts_and_short_ones_fill_the_device() -> None:
    target = Target.named("sm_90")
    assert choose_strip(11008, 4096, 1, 2, False, target).block_n * 2 >= 64
    assert choose_strip(768, 768, 1, 2, False, target).programs(768, 1) >= target.sm_count // 2
    assert choose_strip(1000, 2048, 1, 2, True, target).programs(1000, 1) >= target.sm_count
    assert choose_strip(64, 100_000, 1, 2, False, target).splits > 1


@pytest.mark.parametrize("itemsize", [2, 4, 8])
@pytest.mark.parametrize("gathered", [False, True])
def test_every_strip_fits_registers(itemsize: int, gathered: bool) -> None:
    for n, k in ((1, 1), (1000, 7), (50257, 768), (3, 100_000)):
        strip = choose_strip(n, k, 1, itemsize, False, Target.named("sm_80"), gathered)
        assert strip.block_n * strip.block_k * itemsize <= 32768
