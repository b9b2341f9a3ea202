"""What a session needs from below: the engine that runs one model.

`gossamer.engines.create_engine` makes one that compiles, `gossamer.compiled_model` has the one for compiled models. The
session checks names, dtypes and dimensions before it calls the engine, so an engine sees only feeds that fit `inputs`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np

from gossamer.program import Program
from gossamer.program.model_metadata import ModelMetadata
from gossamer.run.device_tensor import DeviceTensor

HostTensor: TypeAlias = np.ndarray[Any, np.dtype[Any]]
"""C-contiguous, in native byte order; strings are arrays of `str` objects."""

Tensor: TypeAlias = HostTensor | DeviceTensor


class NodeArgInfo(Protocol):
    """One input or output of a model.

    `dtype` is the element type of a tensor by NumPy's and ml_dtypes' name (`float32`, `bfloat16`), or `string`; for
    what is not a tensor it is ONNX's text for the type (`seq(tensor(float))`). `shape` has a number, a name, or None
    for each dimension; it is None where the model does not even say the rank.
    """

    @property
    def name(self) -> str: ...
    @property
    def dtype(self) -> str: ...
    @property
    def shape(self) -> Sequence[int | str | None] | None: ...


class Placement(Protocol):
    """Where each node runs, and why not elsewhere."""

    def summary(self) -> str: ...


class Engine(Protocol):
    """One model, compiled for the session's providers. Every method may be called from many threads."""

    @property
    def inputs(self) -> Sequence[NodeArgInfo]:
        """The inputs that must be fed."""

    @property
    def outputs(self) -> Sequence[NodeArgInfo]: ...

    @property
    def overridable_initializers(self) -> Sequence[NodeArgInfo]:
        """Inputs that have a default value and may be fed."""

    @property
    def metadata(self) -> ModelMetadata:
        """The caller's own."""

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
    ) -> Mapping[str, Tensor]:
        """Run the model and return the outputs that were named.

        An output in `bound` is written into that tensor, which is also what is returned for it; InvalidArgument if its
        shape is not the output's. An output in `on_device` comes back as a DeviceTensor that owns its memory (as an
        array, where the device is simulated). Every other output is an array of its own.

        `stream` is the caller's stream; None: the execution context's own. With `synchronize` the results are complete
        on return; without it they are once the caller's stream has come that far, for outputs in device memory.
        `capture=False` keeps this call out of CUDA graphs.

        Feeds and bound tensors are used only until this call returns (without `synchronize`: until the stream has come
        that far); an engine keeps no reference to them.
        """

    def placement(self) -> Placement: ...

    def program(self, shapes: Mapping[str, tuple[int, ...]]) -> Program:
        """The Program for inputs of these shapes. InvalidArgument where there is none: on the CPU alone."""

    def close(self) -> None:
        """Release everything, after the calls of `run` that are under way have ended. Closing twice is closing once."""
