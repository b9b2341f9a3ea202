"""IOBinding: inputs and outputs in memory that the caller chose."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gossamer.errors import InvalidArgument
from gossamer.run.device_tensor import DeviceTensor
from gossamer.session import memory
from gossamer.session.element_types import of_given
from gossamer.session.engine import HostTensor, Tensor
from gossamer.session.memory import Device
from gossamer.session.ort_value import OrtValue

if TYPE_CHECKING:
    from gossamer.session.inference_session import InferenceSession


@dataclass(frozen=True, slots=True)
class BoundOutput:
    """Where an output goes. tensor: the memory, or None where the run makes it."""

    device: Device
    tensor: Tensor | None = None


class IOBinding:
    """What a session's inputs are read from and its outputs written to. For one thread at a time; a session can have
    many.

    Lifetimes: the binding keeps bound arrays and OrtValues until their name is bound again or cleared, and reads arrays
    anew in every run, so they may be changed between runs. Memory bound by address is the caller's, who keeps it valid
    until the run that uses it has ended. The OrtValues that `get_outputs` returns for outputs without memory of their
    own belong to the caller: the next run makes new ones.
    """

    def __init__(self, session: InferenceSession) -> None:
        self._session = session
        self._inputs: dict[str, Any] = {}
        self._outputs: dict[str, BoundOutput] = {}
        self._results: dict[str, OrtValue] = {}

    @property
    def session(self) -> InferenceSession:
        return self._session

    @property
    def inputs(self) -> Mapping[str, Any]:
        return self._inputs

    @property
    def outputs(self) -> Mapping[str, BoundOutput]:
        return self._outputs

    def bind_cpu_input(self, name: str, arr_on_cpu: HostTensor) -> None:
        """Bind an input to an array. Errors, here and below: InvalidArgument as in `InferenceSession.run`."""
        self._session.input_slot(name).take(arr_on_cpu)
        self._inputs[name] = arr_on_cpu

    def bind_input(
        self, name: str, device_type: str, device_id: int, element_type: Any, shape: Sequence[int], buffer_ptr: int
    ) -> None:
        """Bind an input to memory at an address. element_type: a dtype, or a number of onnx.TensorProto.DataType."""
        device = Device.named(device_type, device_id)
        value = memory.at_address(buffer_ptr, of_given(element_type).dtype, memory.checked_shape(shape), device)
        self._inputs[name] = self._session.input_slot(name).take(value)

    def bind_ortvalue_input(self, name: str, ortvalue: OrtValue) -> None:
        """Bind an input to an OrtValue."""
        self._session.input_slot(name).take(_tensor_of(ortvalue))
        self._inputs[name] = ortvalue.tensor

    def bind_output(
        self,
        name: str,
        device_type: str = "cpu",
        device_id: int = 0,
        element_type: Any = None,
        shape: Sequence[int] | None = None,
        buffer_ptr: int | None = None,
    ) -> None:
        """Bind an output to a device, where each run makes memory for it, or to memory at an address."""
        device = Device.named(device_type, device_id)
        slot = self._session.output_slot(name)
        self._session.require_writable(name, device)
        if buffer_ptr is None:
            self._outputs[name] = BoundOutput(device)
            return
        if element_type is None or shape is None:
            raise InvalidArgument(f"output {name!r}: with buffer_ptr, element_type and shape are needed too")
        tensor = memory.at_address(buffer_ptr, of_given(element_type).dtype, memory.checked_shape(shape), device)
        slot.check(tensor.dtype, tensor.shape)
        self._outputs[name] = BoundOutput(device, tensor)

    def bind_ortvalue_output(self, name: str, ortvalue: OrtValue) -> None:
        """Bind an output to an OrtValue, which has the output's dtype and shape."""
        tensor = _tensor_of(ortvalue)
        self._session.output_slot(name).check(tensor.dtype, tensor.shape)
        self._session.require_writable(name, ortvalue.device)
        self._outputs[name] = BoundOutput(ortvalue.device, tensor)

    def clear_binding_inputs(self) -> None:
        """Forget all inputs, and release what was kept for them."""
        self._inputs.clear()

    def clear_binding_outputs(self) -> None:
        """Forget all outputs and the results of the last run."""
        self._outputs.clear()
        self._results.clear()

    def synchronize_inputs(self) -> None:
        """Wait until all work queued on the devices of bound inputs has ended (that of other packages, too)."""
        _synchronize(self._inputs.values())

    def synchronize_outputs(self) -> None:
        """Wait until all work queued on the devices of outputs has ended."""
        _synchronize(value.tensor for value in self._results.values())

    def get_outputs(self) -> list[OrtValue]:
        """The outputs of the last run, in the order in which they were bound; empty before the first run."""
        return list(self._results.values())

    def copy_outputs_to_cpu(self) -> list[HostTensor]:
        """The outputs of the last run as arrays. Arrays of outputs that are in host memory already share that
        memory.
        """
        return [value.numpy() for value in self._results.values()]

    def store_results(self, results: Mapping[str, Tensor]) -> None:
        """Keep what a run returned, for `get_outputs`."""
        self._results = {name: OrtValue(results[name], bound.device) for name, bound in self._outputs.items()}


def _tensor_of(ortvalue: object) -> Tensor:
    if not isinstance(ortvalue, OrtValue):
        raise InvalidArgument(f"expected an OrtValue, got a {type(ortvalue).__name__}")
    return ortvalue.tensor


def _synchronize(tensors: Any) -> None:
    devices = {tensor.device_id for tensor in tensors if isinstance(tensor, DeviceTensor)}
    if not devices:
        return
    from gossamer.run import driver

    for device_id in sorted(devices):
        driver.synchronize(device_id)
