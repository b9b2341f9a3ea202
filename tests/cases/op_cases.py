"""One-node models from public bug reports of other runtimes, with right values: op_cases.json, run by a session.

Fields: op, domain, opset, attrs, inputs and outputs (dtype, shape, data row-major; "nan", "inf", "-inf" as text; null
for an absent optional input), rtol, atol, note.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from onnx import ModelProto

import gossamer
from harness import node_model


@dataclass(frozen=True)
class OpCase:
    """One case. constants: indices of the inputs that are initializers."""

    name: str
    op_type: str
    domain: str
    opset: int
    attributes: Mapping[str, Any]
    inputs: Sequence[np.ndarray | None]
    outputs: Sequence[np.ndarray]
    rtol: float
    atol: float
    constants: frozenset[int]

    def __str__(self) -> str:
        return f"{self.name}-{len(self.constants)}_constants"

    def model(self) -> ModelProto:
        return node_model(
            self.op_type,
            self.inputs,
            self.attributes,
            opset=self.opset,
            domain=self.domain,
            n_outputs=len(self.outputs),
            constants=tuple(self.constants),
        )

    def check(self, device: str) -> None:
        """Runs the case on a device of the CUDA provider, which alone may take it, in full fp32."""
        provider = ("CUDAExecutionProvider", {"device": device, "use_tf32": False})
        session = gossamer.InferenceSession(self.model().SerializeToString(), providers=[provider])
        fed = {f"x{i}": a for i, a in enumerate(self.inputs) if a is not None and i not in self.constants}
        for got, want in zip(session.run(None, fed), self.outputs, strict=True):
            assert (got.dtype, got.shape) == (want.dtype, want.shape)
            np.testing.assert_allclose(got, want, self.rtol, self.atol)


def _array(field: Mapping[str, Any] | None) -> np.ndarray | None:
    return None if field is None else np.array([float(x) if isinstance(x, str) else x for x in field["data"]],
                                               field["dtype"]).reshape(field["shape"])  # fmt: skip


def _cases() -> list[OpCase]:
    """Every case with all but the first input as initializers, and, where these are weights, with all inputs fed."""
    cases = []
    for record in json.loads(Path(__file__).with_suffix(".json").read_text()):
        inputs, outputs = ([_array(field) for field in record[key]] for key in ("inputs", "outputs"))
        parameters = frozenset(i for i, array in enumerate(inputs) if i and array is not None)
        whole = frozenset(i for i in parameters if inputs[i].dtype.kind in "iu")  # axes and the like
        cases += [
            OpCase(record["name"], record["op"], record["domain"], record["opset"], record["attrs"], inputs, outputs,
                   record["rtol"], record["atol"], constants)
            for constants in dict.fromkeys((parameters, whole))
        ]  # fmt: skip
    return cases


CASES = _cases()
