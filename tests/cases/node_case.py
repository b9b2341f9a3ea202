"""A test case of one node: the interpreter's and the GPU's tests run the same lists of them."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import ml_dtypes
import numpy as np
from onnx import ModelProto

from gossamer.program import Target
from gossamer.providers.cudnn import NEVER, Policy
from harness import assert_close, node_model, ort, run_model

MOVED_DTYPES = (
    *("float16", "bfloat16", "float32", "float64"),
    *("bool", "int8", "uint8", "int16", "int32", "int64", "uint64"),
)


@dataclass(frozen=True)
class NodeCase:
    """One node and its inputs. constants: inputs that are initialisers. want: results where onnxruntime has none."""

    name: str
    op_type: str
    inputs: Sequence[np.ndarray | None]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    opset: int = 21
    constants: Sequence[int] = ()
    n_outputs: int = 1
    domain: str = ""
    output_types: Sequence[tuple[int, Sequence[int]]] | None = None
    want: Callable[[], Sequence[np.ndarray]] | None = None
    rtol: float | None = None

    def __str__(self) -> str:
        return self.name

    def model(self) -> ModelProto:
        return node_model(
            self.op_type,
            self.inputs,
            self.attributes,
            opset=self.opset,
            domain=self.domain,
            n_outputs=self.n_outputs,
            constants=self.constants,
            output_types=self.output_types,
        )

    def feeds(self) -> dict[str, np.ndarray]:
        """NumPy's scalars as arrays of rank 0, which executors take alone."""
        return {f"x{i}": np.asarray(a) for i, a in enumerate(self.inputs) if a is not None and i not in self.constants}

    def expected(self) -> Sequence[np.ndarray]:
        """`want`, or else onnxruntime's results. Bindings to it take no bf16: it gets the bits as fp16, which is the
        same thing for operators that only move."""
        if self.want is not None:
            return self.want()
        if not any(a is not None and a.dtype == ml_dtypes.bfloat16 for a in self.inputs):
            return ort(self.model(), self.feeds())
        bits = [a.view(np.float16) if a is not None and a.dtype == ml_dtypes.bfloat16 else a for a in self.inputs]
        moved = replace(self, inputs=bits)
        return [y.view(ml_dtypes.bfloat16) for y in ort(moved.model(), moved.feeds())]

    def check(self, device: str | Target, policy: Policy = NEVER) -> None:
        """Runs the node on `device` (see `run_model`) and compares with what is expected."""
        want = self.expected()
        got = run_model(self.model(), self.feeds(), device, policy)
        assert len(got) == len(want)
        for one, other in zip(got, want, strict=True):
            assert_close(one, other, rtol=self.rtol)


def random_array(name: str, shape: Sequence[int], dtype: str = "float32") -> np.ndarray:
    """Values that look alike in no two places, the same for the same name: integers use their whole range."""
    rng = np.random.default_rng(zlib.crc32(f"{name}{tuple(shape)}{dtype}".encode()))
    if dtype == "bool":
        return rng.random(shape) < 0.5
    if dtype == "bfloat16":
        return rng.standard_normal(shape).astype(ml_dtypes.bfloat16)
    if np.dtype(dtype).kind in "iu":
        limits = np.iinfo(dtype)
        return rng.integers(limits.min, limits.max, shape, dtype, endpoint=True)
    return rng.standard_normal(shape).astype(dtype)


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)
