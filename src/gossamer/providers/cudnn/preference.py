"""Where cuDNN is preferred to the native kernels, when it is there."""

from __future__ import annotations

from gossamer.options import CUDNN_OPERATORS
from gossamer.program import Target

ATTENTION = frozenset({"Attention", "MultiHeadAttention"})
"""cuDNN does these only where the option `sdpa_kernel` says so."""

NATIVE: dict[int, frozenset[str]] = {
    90: frozenset(
        {
            *("MaxPool", "AveragePool", "GlobalMaxPool", "GlobalAveragePool"),  # 0.61 to 0.69 of cuDNN's time
            *("BatchNormalization", "InstanceNormalization", "LRN"),  # 0.50 to 0.70
            *("RNN", "LSTM", "GRU"),  # 0.44 to 0.53
        }
    )
}
"""Architecture → operators of which the native kernels were measured to be faster than cuDNN's, in every case of
bench/against_cudnn.py: an H200 with cuDNN 9.19, rows in bench/results.csv."""


def prefers_cudnn(op: str, target: Target, *, attention: bool) -> bool:
    """Whether cuDNN, where it is there, does this operator on `target`: unless native kernels were measured faster."""
    if op in ATTENTION:
        return attention
    return op in CUDNN_OPERATORS and not target.interpreted and op not in NATIVE.get(target.arch, frozenset())
