"""An engine on NumPy, for tests of the session alone: `y = x + 1` (float32 [n, 3]) and `total`, the sum of x.

It keeps what the session handed over in `calls`, so that tests can assert on both sides of the seam.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gossamer.errors import InvalidArgument
from gossamer.program.model_metadata import ModelMetadata
from gossamer.session.engine import Tensor


@dataclass(frozen=True)
class Info:
    name: str
    dtype: str
    shape: tuple[int | str | None, ...] | None


METADATA = ModelMetadata("tests", "add one", "ai.example", "adds one", "", 7, {"character": "a\nb"})


class Everywhere:
    def summary(self) -> str:
        return "1 node on CUDAExecutionProvider"


@dataclass
class FakeEngine:
    inputs: Sequence[Info] = (Info("x", "float32", ("n", 3)),)
    outputs: Sequence[Info] = (Info("y", "float32", ("n", 3)), Info("total", "float32", ()))
    overridable_initializers: Sequence[Info] = ()
    metadata: ModelMetadata = METADATA
    calls: list[dict[str, Any]] = field(default_factory=list)
    closed: int = 0

    def run(
        self,
        feeds: Mapping[str, Tensor],
        outputs: Sequence[str],
        *,
        bound: Mapping[str, Tensor] = {},
        on_device: Collection[str] = (),
        stream: int | None = None,
        synchronize: bool = True,
        capture: bool = True,
    ) -> dict[str, Tensor]:
        how = {"stream": stream, "synchronize": synchronize, "capture": capture}
        self.calls.append({"feeds": dict(feeds), "outputs": list(outputs), "on_device": list(on_device), **how})
        first = feeds[self.inputs[0].name]
        assert isinstance(first, np.ndarray)
        computed = self.compute(first)
        return {name: self._deliver(name, computed[name], bound.get(name)) for name in outputs}

    def compute(self, x: np.ndarray) -> dict[str, np.ndarray]:
        if x.dtype.kind != "f":
            return {info.name: x for info in self.outputs}
        return {"y": np.asarray(x + np.float32(1)), "total": np.asarray(x.sum(), x.dtype)}

    @staticmethod
    def _deliver(name: str, value: np.ndarray, target: Tensor | None) -> Tensor:
        if target is None:
            return value
        assert isinstance(target, np.ndarray)
        if target.shape != value.shape:
            raise InvalidArgument(f"output {name!r} has shape {value.shape}, the bound memory has {target.shape}")
        target[...] = value
        return target

    def placement(self) -> Everywhere:
        return Everywhere()

    def close(self) -> None:
        self.closed += 1
