"""The interpreter executor: a Program on NumPy memory, each Launch run by Triton's interpreter.

Proves indexing and numbers on machines without a GPU; it proves nothing about machine code or races.
"""

from __future__ import annotations

import importlib
import math
import os
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np

from gossamer.diagnostics import advance, stage
from gossamer.errors import Fail
from gossamer.program import (
    ARENA_ALIGNMENT,
    Arena,
    Argument,
    Call,
    Copy,
    CudnnCall,
    Fill,
    HostCall,
    Kernel,
    Launch,
    Pointer,
    Program,
    PythonCall,
    TensorMap,
    Unavailable,
    View,
    Weight,
    dtype_of,
)
from gossamer.program.calls import TypeName
from gossamer.run.host import HostRunner, checked
from gossamer.run.python_calls import run_on_host
from gossamer.run.spans import Spans

_interpreter = threading.Lock()  # Triton's interpreter keeps grid and builder in globals


def enter_interpreter_mode() -> None:
    """Makes Triton interpret in this process. Raises Fail where it was imported to compile already."""
    if "triton" not in sys.modules:
        os.environ["TRITON_INTERPRET"] = "1"
    elif os.environ.get("TRITON_INTERPRET") != "1":
        raise Fail(
            "device 'interpreter' needs a process in which Triton was not imported before it; start the process with "
            "GOSSAMER_DEVICE=interpreter, or create the interpreter's session first"
        )


class InterpreterExecutor:
    """Runs Programs on the host. constants: arrays by the keys that Programs use."""

    def __init__(self, constants: Mapping[str, np.ndarray], host: HostRunner | None = None) -> None:
        self._constants = constants
        self._uploaded: dict[str, np.ndarray] = {}
        self._host = host or HostRunner()

    def run(self, program: Program, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The outputs of `program`. feeds: an array for each input, of the Program's shapes and dtypes."""
        memory = self.start(program, feeds)
        with stage("interpret"):
            for done, call in enumerate(program.calls, 1):
                self.step(memory, call)
                advance(done, len(program.calls))
        return {name: memory.array(name).copy() for name in program.outputs}

    def time_calls(self, program: Program, feeds: Mapping[str, np.ndarray]) -> list[tuple[Call, float]]:
        """(call, seconds) of each call that does something. The seconds are the interpreter's, not a GPU's."""
        memory, timings = self.start(program, feeds), []
        for call in program.calls:
            started = time.perf_counter()
            self.step(memory, call)
            timings.append((call, time.perf_counter() - started))
        return [(call, seconds) for call, seconds in timings if not isinstance(call, View)]

    def start(self, program: Program, feeds: Mapping[str, np.ndarray]) -> Memory:
        """Memory with the inputs in place, for running call by call with `step`."""
        for key in program.weights:
            if key not in self._uploaded:
                self._uploaded[key] = aligned_copy(self._constants[key])
        memory = Memory(program, self._uploaded)
        for name in program.inputs:
            memory.store(name, feeds[name])
        return memory

    def step(self, memory: Memory, call: Call) -> None:
        match call:
            case Launch():
                _interpret(call, memory)
            case HostCall():
                arrays = {name: memory.array(name) for name in call.reads}
                for name, made in self._host.run(call, arrays).items():
                    memory.store(name, checked(call, memory.program, name, made))
            case PythonCall():
                run_on_host(call, memory.array)
            case Copy():
                source = memory.bytes_of(call.source)[call.source_offset :][: call.nbytes]
                memory.bytes_of(call.out)[call.out_offset :][: call.nbytes] = source
            case Fill():
                memory.bytes_of(call.out)[:] = call.byte
            case Unavailable():
                raise call.error
            case CudnnCall():
                raise Fail(f"{call.origin} was placed on cuDNN, which needs a GPU, for the interpreter")
            case View():
                pass


class Memory:
    """The arena and the host arrays of one run. Arenas start full of 0xFF (NaN, -1): reads before writes show."""

    def __init__(self, program: Program, weights: Mapping[str, np.ndarray]) -> None:
        self.program = program
        self._weights = weights
        self._arena = aligned_empty(max(1, program.arena_bytes))
        self._arena[:] = 0xFF
        self._host: dict[str, np.ndarray] = {}

    def bytes_of(self, name: str) -> np.ndarray:
        """The memory of a buffer as uint8."""
        buffer, place = self.program.buffers[name], self.program.locations[name]
        if isinstance(place, Arena):
            return self._arena[place.offset :][: buffer.nbytes]
        if isinstance(place, Weight):
            return self._weights[place.key].reshape(-1).view(np.uint8)[place.offset :][: buffer.nbytes]
        return self._host[name].reshape(-1).view(np.uint8)

    def array(self, name: str) -> np.ndarray:
        """A buffer as an array that shares its memory."""
        if name in self._host:
            return self._host[name]
        buffer = self.program.buffers[name]
        return self.bytes_of(name).view(dtype_of(buffer.dtype)).reshape(buffer.shape)

    def store(self, name: str, array: Any) -> None:
        """array: or what is none, a sequence or the like, which only HostCalls read."""
        if isinstance(self.program.locations.get(name), Arena):
            self.array(name)[...] = array
        else:
            has_axes = isinstance(array, np.ndarray) and array.ndim > 0  # a scalar would get one
            self._host[name] = np.ascontiguousarray(array) if has_axes else array

    def address(self, name: str) -> int:
        data: int = self.bytes_of(name).ctypes.data
        return data


def aligned_empty(nbytes: int) -> np.ndarray:
    """uint8 memory that starts at a multiple of the arena's alignment."""
    memory = np.empty(nbytes + ARENA_ALIGNMENT, np.uint8)
    return memory[-memory.ctypes.data % ARENA_ALIGNMENT :][:nbytes]


def aligned_copy(array: np.ndarray) -> np.ndarray:
    """A copy that starts at a multiple of the arena's alignment."""
    copy = aligned_empty(max(1, array.nbytes))[: array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


@dataclass(frozen=True, slots=True)
class _HostPointer:
    """What Triton's interpreter takes for a tensor: an address and Triton's name of the element type."""

    address: int
    dtype: str

    def data_ptr(self) -> int:
        return self.address


def _interpret(launch: Launch, memory: Memory) -> None:
    enter_interpreter_mode()
    module_name, _, function_name = launch.kernel.name.rpartition(".")
    kernel = getattr(importlib.import_module(f"gossamer.kernels.{module_name}"), function_name)
    values = _constants(launch.kernel)
    for (parameter, type_name), argument in zip(launch.kernel.signature, launch.arguments, strict=True):
        values[parameter] = _value(argument, type_name, memory)
    written = Spans(memory.bytes_of(name) for name in launch.writes)
    touched = Spans(memory.bytes_of(name) for name in (*launch.reads, *launch.writes))
    with _interpreter, np.errstate(all="ignore"), _interpreting(touched, written):
        _executor(kernel, launch.grid)(**values)


def _constants(kernel: Kernel) -> dict[str, Any]:
    """As the interpreter wants them, of kernels for a GPU too: it multiplies the bits of bf16, not the numbers, and has
    no PTX. With UPCAST kernels do without; those in fp64, which would lose digits, have neither.
    """
    values: dict[str, Any] = dict(kernel.constants)
    if "UPCAST" in values and "fp64" not in str(kernel.signature):
        values["UPCAST"] = True
    return values


def _value(argument: Argument, type_name: TypeName, memory: Memory) -> Any:
    if isinstance(argument, tuple):
        return tuple(_value(item, kind, memory) for item, kind in zip(argument, type_name, strict=True))
    if type_name == "none":
        return None
    if isinstance(argument, Pointer):
        return _HostPointer(memory.address(argument.buffer) + argument.offset, _element_type(type_name))
    if isinstance(argument, TensorMap):
        return _descriptor(argument, _HostPointer(memory.address(argument.buffer), _element_type(type_name)))
    return argument


def _descriptor(what: TensorMap, base: _HostPointer) -> Any:
    """A TMA descriptor as interpreted kernels see it."""
    import triton.language as tl

    interpreter, _ = _triton()

    class Handle(interpreter.TensorDescHandle):  # type: ignore[misc, name-defined, unused-ignore]  # Triton is not typed
        """Triton's own has no gaps between the elements it takes: this one spans them and skips what lies there."""

        def materialize_pointers(self, offsets: Any) -> Any:
            pointers, inside = super().materialize_pointers(offsets)
            taken = tuple(slice(None, None, gap) for gap in what.gaps)
            mask = inside if isinstance(inside, np.ndarray) else inside.data  # Triton 3.6 gives the array itself
            pointers.data = pointers.data[taken]
            return pointers, interpreter.TensorHandle(mask[taken], tl.int1)

    wrapped = interpreter._implicit_cvt
    *strides, _ = map(wrapped, what.strides)
    descriptor = interpreter.interpreter_semantic.make_tensor_descriptor(
        wrapped(base), [*map(wrapped, what.shape)], [*strides, tl.constexpr(1)], [*map(tl.constexpr, what.box)], "zero"
    )
    plain, gaps = descriptor.handle, what.gaps or (1,) * len(what.box)
    spans = [extent * gap for extent, gap in zip(what.box, gaps, strict=True)]
    descriptor.handle = Handle(plain.base, plain.shape, plain.strides, spans, plain.padding)
    return descriptor


def _element_type(type_name: TypeName) -> str:
    return str(type_name).removeprefix("*").removeprefix("tensordesc<").partition(":")[0].partition("[")[0]


def erf_of_float32(x: np.ndarray) -> np.ndarray:
    """erf by linear interpolation, with a relative error under 1e-9. Triton's interpreter, for want of an erf in NumPy,
    calls Python for each element."""
    table = _erf_table()
    at = np.fmin(np.abs(x), np.float32(ERF_END)) * float(ERF_STEPS)
    left = at.astype(np.int64)
    value = table[left] + (at - left) * (table[left + 1] - table[left])
    return np.where(np.isnan(x), x, np.copysign(value, x).astype(np.float32))


ERF_END, ERF_STEPS = 4, 2**14
"""From 4 on, erf is 1 in float32. The table has 2¹⁴ steps between two integers."""


@cache
def _erf_table() -> np.ndarray:
    return np.array([math.erf(i / ERF_STEPS) for i in range(ERF_END * ERF_STEPS + 2)])


@cache
def _triton() -> tuple[Any, Any]:
    """Triton's interpreter module, and a builder class for it that reads and writes through `Spans`."""
    from triton.runtime import interpreter

    class Builder(interpreter.InterpreterBuilder):  # type: ignore[misc, unused-ignore]  # Triton is not typed
        """The interpreter's operations, for one launch.

        Left out is the check for integer overflow: it triples integer operations, and asserts only in debug mode.
        Conversions to bf16 round to the nearest, as a GPU's do; Triton's own cut fp32 off, take fp64 for integers, and
        lose subnormals both ways.
        """

        def __init__(self, touched: Spans, written: Spans) -> None:
            super().__init__()
            self.options = interpreter.InterpreterOptions(sanitize_overflow=False)
            self._touched, self._written = touched, written

        def create_masked_load(self, ptrs: Any, mask: Any, other: Any, *_: Any, **__: Any) -> Any:
            element_type = ptrs.get_element_ty()
            dtype = interpreter._get_np_dtype(element_type)
            fill = np.zeros((), dtype) if other is None else other.data
            return interpreter.TensorHandle(self._touched.load(ptrs.data, mask.data, fill, dtype), element_type)

        def create_masked_store(self, ptrs: Any, value: Any, mask: Any, *_: Any) -> None:
            self._written.store(ptrs.data, value.data, mask.data)

        def cast_impl(self, src: Any, dst_type: Any) -> Any:
            float32, bf16 = interpreter.tl.float32, interpreter.tl.bfloat16
            source, wanted = src.dtype.scalar, dst_type.scalar
            if source == bf16 and wanted != bf16:
                src = interpreter.TensorHandle((src.data.astype(np.uint32) << 16).view(np.float32), float32)
            if wanted != bf16 or source == bf16:
                return super().cast_impl(src, dst_type)  # to its own, too: truth values bear it
            rounded = src.data.astype(np.float32).astype(dtype_of("bfloat16"))
            return interpreter.TensorHandle(rounded.view(np.uint16), bf16)

        def create_erf(self, arg: Any) -> Any:
            if arg.data.dtype != np.float32:
                return super().create_erf(arg)
            return interpreter.TensorHandle(erf_of_float32(arg.data), arg.dtype.scalar)

    return interpreter, Builder


def _executor(kernel: Any, grid: tuple[int, int, int]) -> Any:
    interpreter, _ = _triton()

    class InPlaceExecutor(interpreter.GridExecutor):  # type: ignore[misc, name-defined, unused-ignore]  # Triton is not typed
        """Leaves arguments where they are: they are host memory already."""

        def _init_args_hst(self, args_dev: Any, kwargs: Any) -> Any:
            return list(args_dev), kwargs

        def _restore_args_dev(self, *_: Any) -> None:
            pass

    return InPlaceExecutor(kernel.rewrite(), kernel.arg_names, grid, [])


@contextmanager
def _interpreting(touched: Spans, written: Spans) -> Iterator[None]:
    """Triton's interpreter with our builder, its language patched once.

    Triton itself replaces the functions of its language for each launch, and again for each call of a device function,
    of which a launch makes hundreds: those find nothing left to do.
    """
    import triton.language as tl

    interpreter, builder_type = _triton()
    patch, builder = interpreter._patch_lang, interpreter.interpreter_builder
    # The builder comes first: Triton 3.6 binds the one there is when it patches.
    interpreter.interpreter_builder = interpreter.interpreter_semantic.builder = builder_type(touched, written)
    scope = patch(SimpleNamespace(__globals__={"tl": tl, "core": tl.core}))
    # Triton 3.6 asks int() of an array with one dimension, which NumPy refuses from 2.4 on.
    scope.set_attr(tl.tensor, "__index__", lambda tensor: int(tensor.handle.data.item()))
    done = type(scope)()
    interpreter._patch_lang = lambda _: done
    try:
        yield
    finally:
        interpreter.interpreter_builder = interpreter.interpreter_semantic.builder = builder
        interpreter._patch_lang = patch
        scope.restore()
