"""Kernels over 8-bit integers compile for every architecture."""

from __future__ import annotations

import pytest

import harness
from cases.quantized_products import CASES, LARGE
from gossamer.kernels.quantized_products import choose_byte_tiles
from gossamer.program import Target

NAMES = (
    *("MatMulInteger-zeros-uint8-uint8", "MatMulInteger-nothing_to_take_off-uint8-int8", "MatMulIntegerToFloat-bias"),
    *("ConvInteger-groups-int8-uint8", "ConvInteger-three_dimensions-int8-int8"),
)


def test_every_kernel_compiles_for_every_architecture() -> None:
    nodes = [*LARGE, *(node for node in CASES if node.name in NAMES)]
    assert len(nodes) == len(LARGE) + len(NAMES)
    kernels = tuple(dict.fromkeys(kernel for node in nodes for kernel in harness.kernels_of(node.model())))
    assert {kernel.function for kernel in kernels} == {"byte_matmul_kernel", "byte_convolution_kernel"}
    harness.compile_all(kernels)


@pytest.mark.parametrize("arch", harness.ARCHITECTURES)
def test_tiles_fit_the_machine(arch: int) -> None:
    target = Target.named(f"sm_{arch}")
    for m, n, k in ((1, 1, 1), (128, 768, 768), (4096, 4096, 4096), (12544, 64, 147)):
        tiles = choose_byte_tiles(m, n, k, 1, target)
        assert tiles.splits == 1
        assert tiles.block_k >= 32
        assert tiles.shared_bytes(1) <= target.shared_bytes
