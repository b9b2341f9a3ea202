"""Einsum has no kernels of its own: those it uses compile for what it asks of them."""

from __future__ import annotations

import harness
from cases.einsum import LARGE, case


def test_every_kernel_compiles_for_every_architecture() -> None:
    nodes = [
        *LARGE,
        case("iij,jk->ik", ((30, 30, 40), (40, 50)), "bfloat16"),
        case("ij,jk,kl->il", ((3, 4), (4, 5), (5, 6)), "int8"),
    ]
    kernels = dict.fromkeys(kernel for node in nodes for kernel in harness.kernels_of(node.model()))
    names = {kernel.function for kernel in kernels}
    assert {"matmul_kernel", "matvec_kernel", "copy_strided_kernel", "reduce_kernel", "elementwise_kernel"} <= names
    harness.compile_all(tuple(kernels))
