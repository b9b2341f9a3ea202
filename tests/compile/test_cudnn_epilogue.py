"""The native launch behind a cuDNN convolution compiles for the types in which cuDNN leaves its sums."""

from __future__ import annotations

import pytest

import harness
from gossamer.kernels.convolution_epilogue import Epilogue, add_partial_sums
from gossamer.kernels.convolution_geometry import Activations
from gossamer.program import Buffer, Target


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_epilogue(dtype: str) -> None:
    shape = (2, 9, 11, 24)
    sums, y, z = (Buffer(name, dtype, shape) for name in ("sums", "y", "z"))
    epilogue = Epilogue(Buffer("bias", dtype, (24,)), z, "gelu")
    call = add_partial_sums(sums, 1, epilogue, y, Activations.of(shape, channels_last=True), Target.named("sm_90"))
    harness.compile_all([call.kernel])
