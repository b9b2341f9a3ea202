"""Backend descriptors: the one kind of object that cuDNN's graphs, engines and plans are made of.

A descriptor is created, given attributes, finalized, and then only read. `Descriptor` owns one and frees it; the C type
of an attribute follows from the Python value, so that a caller writes

    with Descriptor(Kind.CUDNN_BACKEND_TENSOR_DESCRIPTOR, "tensor 'x'") as tensor:
        tensor.set(Attribute.CUDNN_ATTR_TENSOR_DIMENSIONS, 8, 64, 56, 56)
        tensor.set(Attribute.CUDNN_ATTR_TENSOR_DATA_TYPE, cudnnDataType.CUDNN_DATA_HALF)
        tensor.finalize()

cuDNN copies what an attribute refers to: a descriptor may be freed once what was made from it is finalized. (NVIDIA's
own frontend and PyTorch's plan cache depend on that too.)

Source: cudnn_graph.h, "Backend descriptor" functions; cuDNN documentation, Backend API.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from gossamer.cudnn import calls, enums
from gossamer.cudnn.enums import cudnnBackendAttributeName as Attribute
from gossamer.cudnn.enums import cudnnBackendAttributeType as Type
from gossamer.cudnn.enums import cudnnBackendDescriptorType as Kind
from gossamer.errors import Fail

__all__ = ["Attribute", "Descriptor", "Kind", "Type"]

_C_TYPE: dict[Type, Any] = {
    Type.CUDNN_TYPE_HANDLE: ctypes.c_void_p,
    Type.CUDNN_TYPE_BOOLEAN: ctypes.c_bool,
    Type.CUDNN_TYPE_INT64: ctypes.c_int64,
    Type.CUDNN_TYPE_FLOAT: ctypes.c_float,
    Type.CUDNN_TYPE_DOUBLE: ctypes.c_double,
    Type.CUDNN_TYPE_VOID_PTR: ctypes.c_void_p,
    Type.CUDNN_TYPE_BACKEND_DESCRIPTOR: ctypes.c_void_p,
    Type.CUDNN_TYPE_INT32: ctypes.c_int32,
    Type.CUDNN_TYPE_CHAR: ctypes.c_char,
}
"""C type of each attribute type; the ones that are missing are enums, which C passes as int."""

_TYPE_OF: dict[type, Type] = {
    bool: Type.CUDNN_TYPE_BOOLEAN,
    int: Type.CUDNN_TYPE_INT64,
    float: Type.CUDNN_TYPE_FLOAT,
    enums.cudnnDataType: Type.CUDNN_TYPE_DATA_TYPE,
    enums.cudnnConvolutionMode: Type.CUDNN_TYPE_CONVOLUTION_MODE,
    enums.cudnnBackendHeurMode: Type.CUDNN_TYPE_HEUR_MODE,
    enums.cudnnPointwiseMode: Type.CUDNN_TYPE_POINTWISE_MODE,
    enums.cudnnReduceTensorOp: Type.CUDNN_TYPE_REDUCTION_OPERATOR_TYPE,
    enums.cudnnResampleMode: Type.CUDNN_TYPE_RESAMPLE_MODE,
    enums.cudnnPaddingMode: Type.CUDNN_TYPE_PADDING_MODE,
    enums.cudnnNanPropagation: Type.CUDNN_TYPE_NAN_PROPOGATION,
    enums.cudnnBackendNormMode: Type.CUDNN_TYPE_NORM_MODE,
    enums.cudnnBackendNormFwdPhase: Type.CUDNN_TYPE_NORM_FWD_PHASE,
}
"""Attribute type of a Python value, where it is not said."""


class Descriptor:
    """One backend descriptor, freed by `close`, by leaving `with`, or when nothing refers to it any more.

    kind: what to create. what: words for it in error texts (`tensor 'x'`, `the convolution`).

    Every method raises CudnnError with cuDNN's own reason when a call fails.
    """

    def __init__(self, kind: Kind, what: str = "") -> None:
        self.kind = kind
        self.what = what or kind.name.removeprefix("CUDNN_BACKEND_").removesuffix("_DESCRIPTOR").lower()
        address = ctypes.c_void_p()
        status = calls.cudnnBackendCreateDescriptor(kind, ctypes.byref(address))
        calls.check(status, "cudnnBackendCreateDescriptor", f"creating {self.what}")
        if not address.value:
            raise Fail(f"cuDNN created {self.what} at a null address")
        self._address: int = address.value
        self._free = weakref.finalize(self, _destroy, address.value)
        self._free.atexit = False  # the library may have been torn down by then

    @property
    def address(self) -> int:
        """The `cudnnBackendDescriptor_t`, valid until `close`."""
        if self.closed:
            raise Fail(f"{self.what} was closed")
        return self._address

    @property
    def closed(self) -> bool:
        """Whether it was freed."""
        return not self._free.alive

    def close(self) -> None:
        """Free it; again does nothing."""
        self._free()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def set(self, attribute: Attribute, *values: Any, type: Type | None = None) -> Self:
        """Set an attribute to one or more values: ints (int64), bools, floats, cuDNN's enums, Descriptors, or bytes.

        type: the attribute's type, where it does not follow from the values (double, int32, pointers, handles).
        """
        if type is None:
            type, values = _typed(values)
        array = (_C_TYPE.get(type, ctypes.c_int) * len(values))(*values)
        return self._set(attribute, type, len(values), array)

    def set_text(self, attribute: Attribute, text: bytes) -> Self:
        """Set an attribute of characters. cuDNN's parser reads up to a zero, which is added and not counted."""
        return self._set(attribute, Type.CUDNN_TYPE_CHAR, len(text), ctypes.create_string_buffer(text, len(text) + 1))

    def _set(self, attribute: Attribute, type: Type, count: int, array: Any) -> Self:
        status = calls.cudnnBackendSetAttribute(self.address, attribute, type, count, array)
        calls.check(status, "cudnnBackendSetAttribute", f"setting {_short(attribute)} of {self.what}")
        return self

    def finalize(self) -> Self:
        """Let cuDNN check it; from then on attributes can only be read."""
        calls.check(calls.cudnnBackendFinalize(self.address), "cudnnBackendFinalize", f"finalizing {self.what}")
        return self

    def get(self, attribute: Attribute, type: Type) -> list[Any]:
        """Every value of an attribute: numbers; enums come as ints."""
        count = self._count(attribute, type)
        array = (_C_TYPE.get(type, ctypes.c_int) * count)()
        return list(array[: self._get(attribute, type, count, array)]) if count else []

    def get_int(self, attribute: Attribute) -> int:
        """The value of an attribute that holds one int64."""
        value = ctypes.c_int64()
        self._get(attribute, Type.CUDNN_TYPE_INT64, 1, ctypes.byref(value))
        return value.value

    def get_text(self, attribute: Attribute) -> bytes:
        """The characters of an attribute, without a terminating zero."""
        count = self._count(attribute, Type.CUDNN_TYPE_CHAR)
        buffer = ctypes.create_string_buffer(count)
        written = self._get(attribute, Type.CUDNN_TYPE_CHAR, count, buffer)
        return buffer.raw[:written].rstrip(b"\0")

    def get_descriptors(self, attribute: Attribute, kind: Kind, most: int | None = None) -> list[Descriptor]:
        """Descriptors that an attribute holds, filled into new ones that the caller owns."""
        count = self._count(attribute, Type.CUDNN_TYPE_BACKEND_DESCRIPTOR)
        filled = [Descriptor(kind) for _ in range(count if most is None else min(count, most))]
        array = (ctypes.c_void_p * len(filled))(*(descriptor.address for descriptor in filled))
        written = self._get(attribute, Type.CUDNN_TYPE_BACKEND_DESCRIPTOR, len(filled), array) if filled else 0
        for spare in filled[written:]:
            spare.close()
        return filled[:written]

    def get_descriptor(self, attribute: Attribute, kind: Kind) -> Descriptor:
        """The one descriptor that an attribute holds, filled into a new one that the caller owns."""
        filled = Descriptor(kind)
        try:
            self._get(attribute, Type.CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, (ctypes.c_void_p * 1)(filled.address))
        except BaseException:
            filled.close()
            raise
        return filled

    def _count(self, attribute: Attribute, type: Type) -> int:
        return self._get(attribute, type, 0, None)

    def _get(self, attribute: Attribute, type: Type, most: int, into: Any) -> int:
        """Read at most `most` values; returns how many there are to read, or were read."""
        count = ctypes.c_int64()
        status = calls.cudnnBackendGetAttribute(self.address, attribute, type, most, ctypes.byref(count), into)
        calls.check(status, "cudnnBackendGetAttribute", f"reading {_short(attribute)} of {self.what}")
        return count.value if most == 0 else min(count.value, most)


def _destroy(address: int) -> None:
    calls.check(calls.cudnnBackendDestroyDescriptor(address), "cudnnBackendDestroyDescriptor", "freeing a descriptor")


def _typed(values: tuple[Any, ...]) -> tuple[Type, tuple[Any, ...]]:
    """The attribute type of values of one Python type, and the values as C takes them."""
    if not values:
        raise Fail("an attribute needs a value")
    if isinstance(values[0], Descriptor):
        return Type.CUDNN_TYPE_BACKEND_DESCRIPTOR, tuple(value.address for value in values)
    known = _TYPE_OF.get(type(values[0]))
    if known is None:
        raise Fail(f"no attribute type for {type(values[0]).__name__}")
    convert: Callable[[Any], Any] = float if known is Type.CUDNN_TYPE_FLOAT else int
    return known, tuple(convert(value) for value in values)


def _short(attribute: Attribute) -> str:
    return attribute.name.removeprefix("CUDNN_ATTR_")
