"""PythonCalls: functions that users registered as operators, called with tensors on a stream or with NumPy arrays."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from gossamer import custom_ops
from gossamer.custom_ops import CustomNode, KernelContext
from gossamer.errors import Fail
from gossamer.program import AttributeValue, PythonCall, TensorValue, dtype_of
from gossamer.run import driver
from gossamer.run.device_tensor import DeviceTensor

if TYPE_CHECKING:
    from gossamer.cudnn.loader import Library

_LEGACY_STREAM = 1
"""CU_STREAM_LEGACY, which 0 means too."""
_NO_STREAM = -1
"""What a DLPack consumer passes that will order its work itself."""


class KernelTensor:
    """A dense row-major tensor in device memory, for a custom operator's function.

    Valid for work that is on the kernel's stream, or on a stream that a DLPack consumer named, when the function
    returns; afterwards the memory is used for other things.
    """

    __slots__ = ("_streams", "_tensor")

    def __init__(self, tensor: DeviceTensor, streams: _Streams) -> None:
        self._tensor, self._streams = tensor, streams

    @property
    def shape(self) -> tuple[int, ...]:
        return self._tensor.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """NumPy's dtype; ml_dtypes' for bfloat16 and types of up to 8 bits that NumPy lacks."""
        return self._tensor.dtype

    @property
    def size(self) -> int:
        """Elements."""
        return self._tensor.size

    @property
    def nbytes(self) -> int:
        return self._tensor.nbytes

    def data_ptr(self) -> int:
        """The device address of the first element."""
        return self._tensor.pointer

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """Version 3. It names no stream: what uses it is meant to work on the kernel's, where nothing has to be waited
        for. Missing (AttributeError) for dtypes that NumPy lacks; DLPack has them.
        """
        if self.dtype.kind not in "biufc":
            raise AttributeError(f"the CUDA array interface has no dtype {self.dtype.name}; use DLPack")
        address = self.data_ptr() if self.size else 0
        return {"shape": self.shape, "typestr": self.dtype.str, "data": (address, False), "strides": None, "version": 3}

    def __dlpack_device__(self) -> tuple[int, int]:
        """DLPack's (device type, index)."""
        return (2, self._tensor.device_id)

    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> object:
        """A capsule that shares this memory. A consumer on another stream than the kernel's is ordered: its stream
        waits for the tensor here, and the kernel's stream for it when the function returns.

        Errors: BufferError where a copy or another device is demanded, InvalidArgument for types of less than 8 bits.
        """
        from gossamer.run import dlpack

        if copy or (dl_device is not None and tuple(dl_device) != self.__dlpack_device__()):
            raise BufferError("a kernel's tensor is exported in place, without a copy")
        if stream != _NO_STREAM:
            self._streams.hand_over(stream or _LEGACY_STREAM)
        tensor = self._tensor
        kind = dlpack.DeviceType.CUDA
        return dlpack.make_capsule(tensor.pointer, tensor.dtype, tensor.shape, kind, tensor.device_id, self)

    def __repr__(self) -> str:
        return f"KernelTensor({self.dtype.name}{list(self.shape)} on cuda:{self._tensor.device_id})"


class _Streams:
    """The kernel's stream, and those on which consumers of its tensors work."""

    def __init__(self, stream: int) -> None:
        self._own = stream or _LEGACY_STREAM
        self._others: set[int] = set()

    def hand_over(self, consumer: int) -> None:
        """What the consumer does from now on comes after what is on the kernel's stream."""
        if consumer != self._own:
            _order(self._own, consumer)
            self._others.add(consumer)

    def take_back(self) -> None:
        """What is put on the kernel's stream from now on comes after what consumers did."""
        for consumer in self._others:
            _order(consumer, self._own)


def _order(first: int, second: int) -> None:
    doing = "ordering a custom operator's streams"
    event = driver.call("cuEventCreate", driver.constant("CUevent_flags.CU_EVENT_DISABLE_TIMING"), doing=doing)
    try:
        driver.call("cuEventRecord", event, first, doing=doing)
        driver.call("cuStreamWaitEvent", second, event, 0, doing=doing)
    finally:
        driver.call("cuEventDestroy", event, doing=doing)  # which waits until nobody waits for it


class PythonStep:
    """One PythonCall with its addresses looked up. lend_handle: stream → cuDNN's handle on it."""

    __slots__ = ("_device_id", "_inputs", "_lend_handle", "_node", "_outputs", "call")

    def __init__(
        self,
        call: PythonCall,
        tensor_of: Callable[[str], DeviceTensor],
        lend_handle: Callable[[Any], int],
        device_id: int,
    ) -> None:
        self.call = call
        self._node = _node_of(call)
        self._inputs, self._outputs = (
            tuple(None if name is None else tensor_of(name) for name in names) for names in (call.inputs, call.outputs)
        )
        self._lend_handle, self._device_id = lend_handle, device_id

    def enqueue(self, stream: Any) -> None:
        """Calls the function, which puts its work on `stream`."""
        streams = _Streams(int(stream))
        inputs, outputs = (
            tuple(None if tensor is None else KernelTensor(tensor, streams) for tensor in tensors)
            for tensors in (self._inputs, self._outputs)
        )
        ctx = KernelContext(
            self._node,
            inputs,
            outputs,
            library=partial(_cudnn_of, self.call),
            lend_handle=partial(self._lend_handle, stream),
            stream=int(stream),
            device_id=self._device_id,
        )
        try:
            custom_ops.run(ctx)
        finally:
            streams.take_back()


def run_on_host(call: PythonCall, array_of: Callable[[str], np.ndarray]) -> None:
    """Calls the function with NumPy arrays."""
    inputs, outputs = (
        tuple(None if name is None else array_of(name) for name in names) for names in (call.inputs, call.outputs)
    )
    library = partial(_cudnn_of, call, simulated=True)
    custom_ops.run(KernelContext(_node_of(call), inputs, outputs, library=library, lend_handle=_no_handle))


def _cudnn_of(call: PythonCall, *, simulated: bool = False) -> Library:
    """What the call has of cuDNN. simulated: there is no GPU, and therefore none."""
    from gossamer.cudnn import loader  # not for functions that never ask

    if simulated and call.cudnn:
        return loader.Library(loader.State.MISSING, "cuDNN needs a GPU, and this session runs in the interpreter.")
    return loader.effective(call.cudnn)


def _no_handle() -> int:
    raise Fail("a handle was asked for where there is no cuDNN")


def _node_of(call: PythonCall) -> CustomNode:
    attributes = {name: _python_value(value) for name, value in call.attributes}
    name = call.origin.name
    return CustomNode(name, call.op_type, call.domain, MappingProxyType(attributes), len(call.outputs))


def _python_value(value: AttributeValue) -> Any:
    """Tensors as read-only arrays."""
    match value:
        case tuple():
            return tuple(map(_python_value, value))
        case TensorValue():
            return np.frombuffer(value.content, dtype_of(value.dtype)).reshape(value.shape)
    return value
