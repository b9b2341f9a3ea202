"""Inputs for the models of models.json: random, inside the ranges that make sense for each, the same for every run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from fetch import Model


def random_feeds(
    model: Model, seed: int = 0, shapes: Mapping[str, Sequence[int]] | None = None
) -> dict[str, np.ndarray]:
    """One array per input of the model, uniform between its min and max (both included for integers). shapes: of
    inputs that shall have another shape than the list says."""
    random = np.random.default_rng(seed)
    other = {name: {"shape": list(shape)} for name, shape in (shapes or {}).items()}
    return {name: _random(random, **(spec | other.get(name, {}))) for name, spec in model.inputs.items()}


def _random(random: np.random.Generator, shape: list[int], dtype: str, min: float, max: float) -> np.ndarray:
    if dtype == "bool":
        return random.integers(0, 2, shape).astype(bool)
    if np.issubdtype(np.dtype(dtype), np.integer):
        return random.integers(int(min), int(max), shape, dtype=dtype, endpoint=True)
    return random.uniform(min, max, shape).astype(dtype)
