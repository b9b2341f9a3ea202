"""Launches made ready for one arena: functions looked up, parameters packed where the driver reads them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

import numpy as np

from gossamer.program import Argument, Call, Launch, Pointer, TensorMap
from gossamer.program.calls import TypeName
from gossamer.program.cubin import Cubin, TensorMapLayout
from gossamer.run import driver

AddressOf: TypeAlias = Callable[[str], int]
Layouts: TypeAlias = Iterator[TensorMapLayout]
_STATIC_SHARED_LIMIT = 48 * 1024

_NUMPY_TYPES: dict[str, Callable[[Any], np.generic]] = {
    "i1": np.int8, "i8": np.int8, "i16": np.int16, "i32": np.int32, "i64": np.int64,
    "u8": np.uint8, "u16": np.uint16, "u32": np.uint32, "u64": np.uint64,
    "fp32": np.float32, "fp64": np.float64,
}  # fmt: skip

# cuTensorMapEncodeTiled's element types for ours. Elements only move: what it has no type for has those of its size.
_TENSOR_MAP_TYPES = {
    "bool": "UINT8",
    "int8": "UINT8",
    "int16": "UINT16",
    **{dtype: dtype.upper() for dtype in ("float16", "bfloat16", "float32", "float64", "int32", "int64")},
    **{dtype: dtype.upper() for dtype in ("uint8", "uint16", "uint32", "uint64")},
}


@dataclass(frozen=True, slots=True)
class LoadedKernel:
    """A cubin in a context. module, function: CUmodule, CUfunction."""

    cubin: Cubin
    module: Any
    function: Any


def load_kernel(cubin: Cubin) -> LoadedKernel:
    """Loads machine code into the current context. Raises DriverError."""
    doing = f"loading {cubin.function} for sm_{cubin.arch}"
    module = driver.call("cuModuleLoadData", cubin.code, doing=doing)
    with driver.undone_on_error("cuModuleUnload", module, doing):
        function = driver.call("cuModuleGetFunction", module, cubin.function.encode(), doing=doing)
        if cubin.shared_bytes > _STATIC_SHARED_LIMIT:
            attribute = driver.constant("CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES")
            driver.call("cuFuncSetAttribute", function, attribute, cubin.shared_bytes, doing=doing)
    return LoadedKernel(cubin, module, function)


class PreparedStep(ABC):
    """A call made ready for the addresses of one arena."""

    __slots__ = ()

    call: Call
    captured_at_once: ClassVar[bool] = True
    """Whether a CUDA graph may capture its first run."""

    @abstractmethod
    def enqueue(self, stream: Any) -> None:
        """Puts it on a stream."""

    def close(self) -> None:  # noqa: B027 - most steps hold nothing
        """Releases what it holds."""


class PreparedLaunch(PreparedStep):
    """One launch with its parameters packed."""

    __slots__ = ("_keep", "_packed", "_shape", "call")

    call: Launch

    def __init__(self, launch: Launch, kernel: LoadedKernel, address_of: AddressOf, scratch: int) -> None:
        self.call = launch
        parameters = list(_parameters(launch, kernel.cubin, address_of))
        parameters += [np.uint64(scratch), np.uint64(0)]  # Triton's hidden ones: global scratch, profiler scratch
        addresses, self._keep = _packed(parameters)
        cubin = kernel.cubin
        self._shape = (*launch.grid, 32 * cubin.num_warps, 1, 1, cubin.shared_bytes)
        self._packed = (kernel.function, int(addresses.ctypes.data))
        self._keep.append(addresses)

    def enqueue(self, stream: Any) -> None:
        function, parameters = self._packed
        name = "cuLaunchCooperativeKernel" if self.call.kernel.cooperative else "cuLaunchKernel"
        extra = () if self.call.kernel.cooperative else (0,)
        driver.call(name, function, *self._shape, stream, parameters, *extra, doing=f"launching {self.call.origin}")


def _packed(parameters: list[Any]) -> tuple[np.ndarray, list[Any]]:
    """The array of addresses that the driver wants, and what must stay alive for it."""
    keep: list[Any] = []
    addresses = np.empty(len(parameters), np.uint64)
    for index, parameter in enumerate(parameters):
        if isinstance(parameter, np.generic):
            cell = np.array([parameter])
            keep.append(cell)
            addresses[index] = cell.ctypes.data
        else:  # a CUtensorMap
            keep.append(parameter)
            addresses[index] = parameter.getPtr()
    return addresses, keep


def _parameters(launch: Launch, cubin: Cubin, address_of: AddressOf) -> Iterator[Any]:
    layouts = iter(cubin.tensor_maps)
    for (_, type_name), argument in zip(launch.kernel.signature, launch.arguments, strict=True):
        yield from _parameter(argument, type_name, address_of, layouts)


def _parameter(argument: Argument, type_name: TypeName, address_of: AddressOf, layouts: Layouts) -> Iterator[Any]:
    if isinstance(argument, tuple):
        for item, kind in zip(argument, type_name, strict=True):
            yield from _parameter(item, kind, address_of, layouts)
    elif isinstance(argument, Pointer):
        yield np.uint64(address_of(argument.buffer) + argument.offset)
    elif isinstance(argument, TensorMap):
        yield encode_tensor_map(argument, address_of(argument.buffer), next(layouts))
        yield from (np.int32(extent) for extent in argument.shape)
        yield from (np.int64(stride) for stride in argument.strides)
    elif type_name not in ("1", "none"):  # those are compiled in
        yield _NUMPY_TYPES[str(type_name).partition(":")[0]](argument)


def encode_tensor_map(what: TensorMap, address: int, layout: TensorMapLayout) -> Any:
    """The driver's TMA descriptor; sizes and strides innermost first, strides in bytes, without the innermost."""
    enum, long, word = driver.constant, driver.constant("cuuint64_t"), driver.constant("cuuint32_t")
    rank = len(what.shape)
    gaps = what.gaps or (1,) * rank
    spans = [extent * gap for extent, gap in zip(layout.box, gaps, strict=True)]
    return driver.call(
        "cuTensorMapEncodeTiled",
        enum(f"CUtensorMapDataType.CU_TENSOR_MAP_DATA_TYPE_{_TENSOR_MAP_TYPES[what.dtype]}"),
        rank,
        address,
        [long(extent) for extent in reversed(what.shape)],
        [long(stride * layout.element_size) for stride in reversed(what.strides[:-1])],
        [word(span) for span in reversed(spans)],
        [word(gap) for gap in reversed(gaps)],
        enum("CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE"),
        enum("CUtensorMapSwizzle")(layout.swizzle),
        enum("CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_128B"),
        enum("CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE"),
        doing=f"describing {what.buffer} to the copy engine",
    )
