"""The null device: everything is compiled and planned, nothing is executed. Outputs are zeros of the right shapes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from gossamer.errors import InvalidArgument
from gossamer.program import Call, Program, Unavailable, dtype_of


@dataclass(slots=True)
class NullExecutor:
    """Remembers the Programs it was asked to run, so that tests can look at them."""

    programs: list[Program] = field(default_factory=list)

    def run(self, program: Program, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Zeros. Raises InvalidArgument where an output's shape depends on data, which only running would tell, and
        CudnnUnavailable where a node needs a cuDNN that cannot be used."""
        self.programs.append(program)
        for call in program.calls:
            if isinstance(call, Unavailable):
                raise call.error
        unknown = [name for name in program.outputs if program.buffers[name].dynamic]
        if unknown:
            raise InvalidArgument(
                f"the null device cannot know the shape of output '{unknown[0]}', which depends on data"
            )
        return {name: np.zeros(b.shape, dtype_of(b.dtype)) for name in program.outputs for b in [program.buffers[name]]}

    def time_calls(self, program: Program, feeds: Mapping[str, np.ndarray]) -> list[tuple[Call, float]]:
        """Nothing: no call is executed."""
        return []
