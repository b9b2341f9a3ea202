"""Activations: one device function that every family's epilogue and the elementwise kernel share.

A kind has at most two parameters, `alpha` and `beta`, by ONNX's names where ONNX has them; what is unused is ignored.
`KINDS` names them all.
"""

from __future__ import annotations

import triton
import triton.language as tl

from gossamer.kernels.elementwise_math import divide, exp, expm1, log1p, maximum, minimum, sigmoid, tanh

KINDS = (
    "none",
    "relu",
    "clip",
    "leaky_relu",
    "thresholded_relu",
    "elu",
    "celu",
    "selu",
    "sigmoid",
    "hard_sigmoid",
    "hard_swish",
    "affine_relu",
    "affine_hard_swish",
    "silu",
    "mish",
    "softplus",
    "softsign",
    "tanh",
    "gelu",
    "gelu_tanh",
)


@triton.jit
def activate(x, KIND: tl.constexpr, alpha, beta):
    """KIND(x; alpha, beta) of an fp32 or fp64 tensor of any shape, in its type. NaN gives NaN (thresholded_relu: 0).

    clip: alpha ≤ y ≤ beta. leaky_relu: alpha x below zero. thresholded_relu: x above alpha, else 0. elu, celu: alpha as
    ONNX has it. selu: beta (x or alpha (eˣ − 1)). hard_sigmoid: alpha x + beta within 0 … 1. silu: x sigmoid(alpha x).
    affine_relu, affine_hard_swish: alpha f(x) + beta.
    """
    if KIND == "none":
        return x
    elif KIND == "relu":
        return maximum(x, 0.0)
    elif KIND == "clip":
        return minimum(maximum(x, alpha), beta)
    elif KIND == "leaky_relu":
        return tl.where(x < 0.0, x * alpha, x)
    elif KIND == "thresholded_relu":
        return tl.where(x > alpha, x, 0.0)
    elif KIND == "elu":
        return tl.where(x < 0.0, alpha * expm1(x), x)
    elif KIND == "celu":
        return maximum(x, 0.0) + minimum(alpha * expm1(divide(x, alpha)), 0.0)
    elif KIND == "selu":
        return beta * tl.where(x <= 0.0, alpha * expm1(x), x)
    elif KIND == "sigmoid":
        return sigmoid(x)
    elif KIND == "hard_sigmoid":
        return maximum(minimum(x * alpha + beta, 1.0), 0.0)
    elif KIND == "hard_swish":
        return x * maximum(minimum(x * (1.0 / 6.0) + 0.5, 1.0), 0.0)
    elif KIND == "silu":
        return x * sigmoid(x * alpha)
    elif KIND == "affine_relu":
        return maximum(x, 0.0) * alpha + beta
    elif KIND == "affine_hard_swish":
        return x * maximum(minimum(x * (1.0 / 6.0) + 0.5, 1.0), 0.0) * alpha + beta
    elif KIND == "mish":
        # tanh(log(1 + e)) = (e² + 2e) / (e² + 2e + 2); past 20 that is one, and e² would overflow.
        e = exp(minimum(x, 20.0))
        n = e * (e + 2.0)
        return x * (n / (n + 2.0))
    elif KIND == "softplus":
        return maximum(x, 0.0) + log1p(exp(tl.abs(x) * -1.0))
    elif KIND == "softsign":
        return divide(x, 1.0 + tl.abs(x))
    elif KIND == "tanh":
        return tanh(x)
    elif KIND == "gelu":
        return 0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476))
    elif KIND == "gelu_tanh":
        # (1 + tanh u) / 2 = sigmoid(2u)
        return x * sigmoid(1.5957691216057308 * x * (1.0 + 0.044715 * x * x))
    else:
        tl.static_assert(False, "unknown activation")
