"""What the kernels of a norm are told: its kind, its parameters, what is added first, and what else is asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gossamer.kernels.reduction_geometry import Geometry, float_accumulator
from gossamer.program import Buffer

DEFAULT_EPSILON = 9.999999747378752e-06
"""1e-5 as ONNX has it: in fp32."""


@dataclass(frozen=True, slots=True)
class Parameters:
    """Where gamma and beta come from.

    by: `step`, `row` (row modulo groups) or `inner`, of which `repeat` in turn have the same; `group` (groups ×
    per_group of them, each for `repeat` steps); or `element` (one for each row and step).
    """

    gamma: Buffer | None = None
    beta: Buffer | None = None
    by: str = "row"
    groups: int = 1
    per_group: int = 1
    repeat: int = 1

    def arguments(self) -> dict[str, Any]:
        return {"gamma_ptr": self.gamma, "beta_ptr": self.beta, **self.index_arguments()}

    def index_arguments(self) -> dict[str, Any]:
        """What `parameter_index` needs to know."""
        return {"groups": self.groups, "per_group": self.per_group, "repeat": self.repeat, "BY": self.by}


@dataclass(frozen=True, slots=True)
class Channels:
    """A tensor by channel, of which `width` in turn share their statistics.

    In `geometry` each row is of one channel, with parameters by `row`, or channels are its inner dimension, with
    parameters by `inner`.
    """

    geometry: Geometry
    parameters: Parameters
    width: int


@dataclass(frozen=True, slots=True)
class Statistics:
    """Buffers for what else a norm is asked for, one element per row and inner index; variance is not fp16."""

    mean: Buffer | None = None
    scale: Buffer | None = None
    variance: Buffer | None = None

    def arguments(self) -> dict[str, Any]:
        return {"mean_ptr": self.mean, "scale_ptr": self.scale, "variance_ptr": self.variance}

    def buffers(self) -> tuple[Buffer, ...]:
        return tuple(b for b in (self.mean, self.scale, self.variance) if b is not None)


@dataclass(frozen=True, slots=True)
class Norm:
    """What deviations are multiplied by, and whether they are from the mean or from zero.

    kind: `variance` (1 / √(variance + epsilon)), `mean_variance` (1 / (√variance + epsilon)), `l1` or `l2` (1 / norm).
    activation: a kind of `kernels.activations` without parameters, or silu, applied last.
    """

    kind: str
    epsilon: float = 0.0
    centred: bool = True
    activation: str = "none"

    def constants(self, dtype: str) -> dict[str, Any]:
        return {"KIND": self.kind, "CENTRED": self.centred, "TYPE": float_accumulator(dtype)}


@dataclass(frozen=True, slots=True)
class Skip:
    """What is added to x before it is normalised: a tensor, and a bias with as many numbers as gamma.

    total: takes the sum. by: `rows` (the tensor repeats along the rows), `same` (it has x's shape), or `image` (it has
    as many numbers as gamma for each image).
    """

    skip: Buffer | None = None
    bias: Buffer | None = None
    total: Buffer | None = None
    by: str = "rows"

    def arguments(self, geometry: Geometry, parameters: Parameters) -> dict[str, Any]:
        repeats = {"rows": max(1, geometry.steps), "image": max(1, geometry.rows // max(1, parameters.groups))}
        return {
            "skip_ptr": self.skip,
            "bias_ptr": self.bias,
            "sum_ptr": self.total,
            "skip_period": 1 if self.skip is None or self.by == "same" else self.skip.size // repeats[self.by],
            "SKIP": self.by,
        }


NO_PARAMETERS, NO_STATISTICS, NO_SKIP = Parameters(), Statistics(), Skip()
