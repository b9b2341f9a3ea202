"""What the kernels of norms compute: sums with a skip connection, spreads, scales, and parameters by element."""

from __future__ import annotations

import triton
import triton.language as tl

from gossamer.kernels.elementwise_math import divide, reciprocal, square_root
from gossamer.kernels.reduction_geometry import as_type


@triton.jit
def load_summed(
    x_ptr, skip_ptr, bias_ptr, offsets, row, step, index, exists, n_steps, groups, skip_period, mask,
    SKIP: tl.constexpr, TYPE: tl.constexpr,
):  # fmt: skip
    """x, plus a skip connection, and a bias that has the parameters' index, where given.

    SKIP: `rows`, which repeat after skip_period rows; `same`, laid out as x; or `image`, one value for each parameter
    and image, which has `groups` rows and skip_period parameters.
    """
    x = as_type(tl.load(x_ptr + offsets, mask, other=0.0), TYPE)
    if skip_ptr is not None:
        if SKIP == "rows":
            x += as_type(tl.load(skip_ptr + row % skip_period * n_steps + step, mask, other=0.0), TYPE)
        elif SKIP == "same":
            x += as_type(tl.load(skip_ptr + offsets, mask, other=0.0), TYPE)
        else:
            tl.static_assert(SKIP == "image")
            x += as_type(tl.load(skip_ptr + row // groups * skip_period + index, mask, other=0.0), TYPE)
    if bias_ptr is not None:
        x += as_type(tl.load(bias_ptr + index, exists, other=0.0), TYPE)
    return x


@triton.jit
def spread_of(x, mask, KIND: tl.constexpr):
    """Sum of squares along the steps, or of magnitudes."""
    terms = tl.abs(x) if KIND == "l1" else x * x
    return tl.sum(tl.where(mask, terms, 0.0), axis=1, keep_dims=True)


@triton.jit
def scale_of(spread, count, KIND: tl.constexpr, EPSILON: tl.constexpr):
    """What deviations are multiplied by; or divided by, for norms: the reciprocal of a small one overflows."""
    if KIND == "l1" or KIND == "l2":
        norm = spread if KIND == "l1" else square_root(spread)
        return tl.where(norm == 0.0, float("inf"), norm)
    else:
        variance = divide(spread, count + tl.zeros_like(spread))
        if KIND == "mean_variance":
            return reciprocal(square_root(variance) + EPSILON)
        else:
            return reciprocal(square_root(variance + EPSILON))


@triton.jit
def normalized(x, scale, KIND: tl.constexpr):
    """Deviations with a scale of `scale_of`."""
    return divide(x, scale) if KIND == "l1" or KIND == "l2" else x * scale


@triton.jit
def parameter_index(row, step, k, n_rows, n_steps, n_inner, groups, per_group, repeat, BY: tl.constexpr):
    """Which gamma and beta belong to an element, and whether they exist; no larger than they differ.

    `group`: those of the row's group, each for `repeat` steps in turn.
    """
    if BY == "step":
        return step, step < n_steps
    elif BY == "inner":
        return k // repeat, k < n_inner
    elif BY == "row":
        return row % groups // repeat, row < n_rows
    elif BY == "element":
        return row * n_steps + step, (row < n_rows) & (step < n_steps)
    else:
        tl.static_assert(BY == "group")
        return (row % groups) * per_group + (step // repeat) % per_group, (row < n_rows) & (step < n_steps)


@triton.jit
def scaled(x, gamma_ptr, beta_ptr, index, mask):
    """x · gamma + beta, as far as they are given."""
    if gamma_ptr is not None:
        x *= tl.load(gamma_ptr + index, mask, other=0.0).to(x.dtype)
    if beta_ptr is not None:
        x += tl.load(beta_ptr + index, mask, other=0.0).to(x.dtype)
    return x
