"""Where cuDNN is preferred to the native kernels, when it is there."""

from __future__ import annotations

from gossamer.options import CUDNN_OPERATORS
from gossamer.program import Target

ATTENTION = frozenset({"Attention", "MultiHeadAttention"})
"""cuDNN does these only where the option `sdpa_kernel` says so."""

NATIVE: dict[int, frozenset[str]] = {}
"""Architecture → operators of which the native kernels were measured to be faster than cuDNN's."""


def prefers_cudnn(op: str, target: Target, *, attention: bool) -> bool:
    """Whether cuDNN, where it is there, does this operator on `target`: unless native kernels were measured faster."""
    if op in ATTENTION:
        return attention
    return op in CUDNN_OPERATORS and not target.interpreted and op not in NATIVE.get(target.arch, frozenset())
