"""TF32, the form in which tensor cores take fp32 operands: 10 bits of mantissa.

The hardware cuts the other 13 bits off. That makes every product smaller, by 7e-4 on average, which does not cancel:
the 53 convolutions of ResNet-50 lost 1.9 % of their output that way. So operands are rounded first: constants when they
are packed, others in registers.
"""

from __future__ import annotations

import numpy as np
import triton
import triton.language as tl

from gossamer.kernels.gemm_tiles import uses_tensor_cores
from gossamer.program import Target

_HALF = 1 << 12
"""Half a unit in the last of the 10 bits."""
_CUT = np.uint32(0xFFFFE000)


def multiplies_in_tf32(dtype: str, target: Target) -> bool:
    """Whether products of this type are made in TF32. The interpreter's are made in full precision."""
    return dtype == "float32" and not target.interpreted and uses_tensor_cores(dtype, target)


@triton.jit
def round_to_tf32(x, CUT: tl.constexpr = False):
    """x plus half a unit in its 10th bit of mantissa, so that cutting rounds to nearest; NaN stays NaN.

    CUT: do that too. Infinity is NaN in between, so that it cannot be done later.
    """
    bits = x.to(tl.int32, bitcast=True)
    is_number = x == x  # noqa: PLR0124  # false for NaN alone
    rounded = (bits + 4096) & -8192 if CUT else bits + 4096
    return tl.where(is_number, rounded, bits).to(tl.float32, bitcast=True)


def rounded_to_tf32(array: np.ndarray) -> np.ndarray:
    """fp32 values rounded to TF32, ties away from zero, as `round_to_tf32` and cutting do together."""
    bits = np.ascontiguousarray(array, np.float32).view(np.uint32)
    rounded = bits + np.uint32(_HALF)
    rounded &= _CUT
    np.copyto(rounded, bits, where=np.isnan(array))
    return rounded.view(np.float32)
