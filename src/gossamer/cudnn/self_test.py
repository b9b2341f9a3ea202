"""The smallest use of cuDNN on a GPU: a handle, a tensor descriptor, one call. For `gossamer doctor`."""

from __future__ import annotations

from ctypes import byref, c_float, c_void_p

from gossamer.cudnn import calls
from gossamer.cudnn.calls import check
from gossamer.cudnn.enums import cudnnDataType, cudnnTensorFormat

_DOING = "testing cuDNN"


def fill(pointer: int, count: int, value: float) -> None:
    """Sets `count` float32 in device memory to `value`, on the legacy default stream of the current context.

    Raises CudnnError; that a cuDNN has no `cudnnSetTensor` (the jit package) is one, too.
    """
    handle, tensor = c_void_p(), c_void_p()
    check(calls.cudnnCreate(byref(handle)), "cudnnCreate", _DOING)
    try:
        check(calls.cudnnCreateTensorDescriptor(byref(tensor)), "cudnnCreateTensorDescriptor", _DOING)
        form = cudnnTensorFormat.CUDNN_TENSOR_NCHW, cudnnDataType.CUDNN_DATA_FLOAT
        check(calls.cudnnSetTensor4dDescriptor(tensor, *form, 1, 1, 1, count), "cudnnSetTensor4dDescriptor", _DOING)
        check(calls.cudnnSetTensor(handle, tensor, pointer, byref(c_float(value))), "cudnnSetTensor", _DOING)
    finally:
        if tensor.value:
            calls.cudnnDestroyTensorDescriptor(tensor)
        calls.cudnnDestroy(handle)
