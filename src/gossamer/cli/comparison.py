"""How far results are from a reference, and how far they may be."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from gossamer.cli.feeds import Array

# Rounding of a result of this type, and of what a deep network adds up before: measured relative to an output's largest
# magnitude, because sums cancel and small elements carry the error of large ones.
_ALLOWED = {"float64": 1e-9, "float32": 1e-3, "float16": 2e-2, "bfloat16": 1e-1}
_ALLOWED_WITH_TF32 = 1e-2


@dataclass(frozen=True)
class Difference:
    """One output against the reference.

    absolute: largest absolute error. relative: that, divided by the reference's largest finite magnitude. problem: why
    the two cannot be compared at all, or nothing.
    """

    output: str
    absolute: float
    relative: float
    allowed: float
    problem: str = ""

    @property
    def acceptable(self) -> bool:
        return not self.problem and self.relative <= self.allowed

    def __str__(self) -> str:
        if self.problem:
            return f"{self.output}: {self.problem}"
        verdict = "" if self.acceptable else f", and {self.allowed:.1e} is allowed"
        return f"{self.output}: largest error {self.absolute:.2e}, {self.relative:.2e} of the largest value{verdict}"


def allowed_error(float_types: Iterable[str], *, tf32: bool) -> float:
    """The relative error that the least precise type of a model makes likely. float_types: those that occur in it."""
    allowed = max((_ALLOWED[name] for name in float_types if name in _ALLOWED), default=_ALLOWED["float32"])
    return max(allowed, _ALLOWED_WITH_TF32) if tf32 else allowed


def compare(got: Mapping[str, Any], want: Mapping[str, Any], allowed: float) -> list[Difference]:
    """One Difference for each output of `want`. Whole numbers, bools and texts must be equal."""
    return [_compare(name, got[name], reference, allowed) for name, reference in want.items()]


def _compare(name: str, got: Any, want: Any, allowed: float) -> Difference:
    if not isinstance(want, np.ndarray) or not isinstance(got, np.ndarray):
        problem = "" if got == want else f"is {got!r}, the reference {want!r}"
        return Difference(name, 0.0, 0.0, 0.0, problem)
    if got.shape != want.shape or got.dtype != want.dtype:
        problem = f"is {got.dtype}{list(got.shape)}, the reference {want.dtype}{list(want.shape)}"
        return Difference(name, np.inf, np.inf, allowed, problem)
    if not _is_floating(want.dtype):
        unequal = int(np.count_nonzero(got != want))
        return Difference(name, 0.0, 0.0, 0.0, f"{unequal} of {want.size} elements differ" if unequal else "")
    return _compare_floating(name, got.astype(np.float64), want.astype(np.float64), allowed)


def _compare_floating(name: str, got: Array, want: Array, allowed: float) -> Difference:
    finite = np.isfinite(want)
    if not np.array_equal(got[~finite], want[~finite], equal_nan=True) or not np.isfinite(got[finite]).all():
        return Difference(name, np.inf, np.inf, allowed, "infinities or NaNs are not where the reference has them")
    absolute = float(np.abs(got[finite] - want[finite]).max(initial=0.0))
    scale = float(np.abs(want[finite]).max(initial=0.0))
    return Difference(name, absolute, absolute / scale if scale else absolute, allowed)


def _is_floating(dtype: np.dtype[Any]) -> bool:
    return "float" in dtype.name  # NumPy files some of ml_dtypes' under V
