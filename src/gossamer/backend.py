"""ONNX's backend interface: `onnx.backend.base.Backend`, as this module's functions.

    import gossamer.backend
    from onnx.backend.test import BackendTest

    tests = BackendTest(gossamer.backend, __name__)

Models run on the CUDA provider alone: a node that it cannot take is an error, never onnxruntime's work. The device is
the GPU, or what GOSSAMER_DEVICE names. Products are computed in full float32 unless `use_tf32=True` is given, since
conformance is what this interface is for.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

import numpy as np

from gossamer import settings
from gossamer.errors import InvalidArgument
from gossamer.model.one_node import OutputInfo, model_of_node
from gossamer.options import CudaOptions
from gossamer.session import InferenceSession
from gossamer.session.engine import HostTensor
from gossamer.session.providers import missing_device

__all__ = ["BackendRep", "prepare", "run_model", "run_node", "supports_device"]


class BackendRep:
    """A model that is ready to run. Leaving a `with` block or `close` releases its device memory."""

    def __init__(self, session: InferenceSession) -> None:
        self._session = session
        self._inputs = [given.name for given in session.get_inputs()]

    def run(self, inputs: Any, **kwargs: Any) -> tuple[HostTensor, ...]:
        """The model's outputs, in their order.

        inputs: one for each input of the model, in its order; an array by itself where the model has one input.
        Errors: InvalidArgument for a wrong number of inputs, or for one of another dtype or shape than the model says.
        """
        if kwargs:
            raise InvalidArgument(f"run takes no options, got {list(kwargs)}")
        given = inputs if isinstance(inputs, (list, tuple)) else [inputs]
        if len(given) != len(self._inputs):
            raise InvalidArgument(f"the model has {len(self._inputs)} inputs {self._inputs}, got {len(given)}")
        return tuple(self._session.run(None, dict(zip(self._inputs, given, strict=True))))

    def close(self) -> None:
        """Release the session."""
        self._session.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def prepare(model: Any, device: str = "CUDA", **kwargs: Any) -> BackendRep:
    """A model, loaded and ready to run.

    model: an onnx.ModelProto, bytes, or a path. device: `CUDA` or `CUDA:1`. kwargs: options of the CUDA provider.
    Errors: those of InferenceSession; InvalidArgument for another device. Operators that have no kernel, or whose
    shapes depend on data, are refused with UnsupportedModel when shapes are known: here or by the first `run`.
    """
    options = {"use_tf32": False, "device_id": _device_id(device), **kwargs}
    return BackendRep(InferenceSession(model, providers=[(CudaOptions.provider, options)]))


def run_model(model: Any, inputs: Any, device: str = "CUDA", **kwargs: Any) -> tuple[HostTensor, ...]:
    """A model's outputs for these inputs: `prepare` and `run`, once."""
    with prepare(model, device, **kwargs) as prepared:
        return prepared.run(inputs)


def run_node(
    node: Any,
    inputs: Sequence[HostTensor],
    device: str = "CUDA",
    outputs_info: Sequence[OutputInfo] | None = None,
    **kwargs: Any,
) -> tuple[HostTensor, ...]:
    """The outputs of one operator.

    node: an onnx.NodeProto. inputs: arrays for those of its inputs that are not omitted. outputs_info: dtype and shape
    of each output, where ONNX cannot infer them. kwargs: `opset_version` (of the node's domain; default: the newest),
    and options as for `prepare`.
    """
    opset = kwargs.pop("opset_version", None)
    arrays = [np.asarray(given) for given in inputs]
    return run_model(model_of_node(node, arrays, outputs_info, opset), arrays, device, **kwargs)


def supports_device(device: str) -> bool:
    """Whether models can run on `CUDA` or `CUDA:<index>` here; a simulated device counts. Nothing else is supported."""
    try:
        index = _device_id(device)
    except InvalidArgument:
        return False
    return settings.DEVICE() != "cuda" or missing_device(index) is None


def _device_id(device: str) -> int:
    """The index of the GPU that a text of ONNX's form `CUDA` or `CUDA:1` names."""
    kind, _, index = device.partition(":")
    if kind != "CUDA" or not (index.isdecimal() if ":" in device else True):
        raise InvalidArgument(f"device {device!r}: accepted are CUDA and CUDA:<index>")
    return int(index or 0)
