"""Operators that users write as Python functions, and what such a function is given when its node runs.

    @gossamer.custom_op("my.domain", "Scale")
    def scale(ctx: gossamer.KernelContext) -> None:
        with torch.cuda.stream(torch.cuda.ExternalStream(ctx.stream)):
            x, y = map(torch.from_dlpack, (*ctx.inputs, *ctx.outputs))
            torch.mul(x, ctx.attributes["factor"], out=y)

The registry is the process's: every session that is created later may have such nodes in its model. They run where the
CUDA provider's Programs do: on the GPU, on NumPy arrays in the interpreter, and not at all on the null device.
"""

from __future__ import annotations

import operator
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np

from gossamer.errors import CudnnUnavailable, InvalidArgument, NotFound, WrongType
from gossamer.program import dtype_of

if TYPE_CHECKING:
    from gossamer.cudnn.loader import Library

_TAKEN = frozenset(
    (
        *("", "ai.onnx", "ai.onnx.ml", "ai.onnx.preview", "ai.onnx.preview.training", "ai.onnx.training"),
        *("com.microsoft", "com.microsoft.experimental", "com.microsoft.nchwc", "gossamer", "gossamer.nhwc"),
    )
)
"""Domains whose operators have a meaning already, which passes, kernels and onnxruntime go by."""


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """What is known of a tensor before running. shape: sizes. dtype: NumPy's, or ml_dtypes' for what NumPy lacks."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    read: Callable[[], np.ndarray | None] | None = field(default=None, repr=False, compare=False)

    @property
    def value(self) -> np.ndarray | None:
        """The content of a constant of the model; None for what is computed when the model runs."""
        return self.read() if self.read else None


@dataclass(frozen=True, slots=True)
class CustomNode:
    """A node of a custom operator. attributes: int, float, str, arrays for tensors, and tuples of these, by name; only
    those that the node has. n_outputs: how many outputs it lists, omitted ones in between included."""

    name: str
    op_type: str
    domain: str
    attributes: Mapping[str, Any]
    n_outputs: int

    def __str__(self) -> str:
        return f"custom operator {self.domain}.{self.op_type} (node '{self.name}')"


class KernelContext:
    """What a custom operator's function works with while its node runs.

    node: name, attributes. inputs, outputs: tensors in the node's order, None for an omitted one (trailing omitted
    inputs may be absent); each has `shape`, `dtype` and `nbytes` and speaks DLPack. On a GPU they have `data_ptr()` and
    `__cuda_array_interface__`, too, and are valid for work that is on the stream when the function returns; in the
    interpreter they are NumPy arrays. Inputs must not be written; outputs hold anything until they are. stream: the
    CUstream on which inputs are ready and outputs have to be; 0 in the interpreter. device_id: the GPU's index.
    """

    __slots__ = ("_lend_handle", "_library", "device_id", "inputs", "node", "outputs", "stream")

    def __init__(
        self,
        node: CustomNode,
        inputs: Sequence[Any],
        outputs: Sequence[Any],
        *,
        library: Callable[[], Library],
        lend_handle: Callable[[], int],
        stream: int = 0,
        device_id: int = 0,
    ) -> None:
        """For executors. library: cuDNN as this session may use it. lend_handle: asked only where that is available."""
        self.node = node
        self.inputs, self.outputs = tuple(inputs), tuple(outputs)
        self.stream, self.device_id = stream, device_id
        self._library, self._lend_handle = library, lend_handle

    @property
    def name(self) -> str:
        """The node's name."""
        return self.node.name

    @property
    def attributes(self) -> Mapping[str, Any]:
        """The node's attributes."""
        return self.node.attributes

    @property
    def cudnn_handle(self) -> int | None:
        """A `cudnnHandle_t` on this stream, made when first asked for; None where `enable_cudnn` is 0 or no cuDNN can
        be used. It belongs to the execution context: not to be destroyed, nor used after the function returned. (R4)
        """
        return self._lend_handle() if self._library().available else None

    def require_cudnn(self, op: str) -> int:
        """The handle for what cannot do without. Raises CudnnUnavailable, naming `op`, the node and the reason. (R5)"""
        self._library().require(op, self.name)
        return self._lend_handle()


Function: TypeAlias = Callable[[KernelContext], object]
Outputs: TypeAlias = "Callable[..., Sequence[tuple[Sequence[int], Any] | TensorInfo]]"
"""A shape function: `(node: CustomNode, *inputs: TensorInfo | None) -> [(shape, dtype), …]`, one for each output."""
F = TypeVar("F", bound=Function)


@dataclass(frozen=True, slots=True)
class CustomOp:
    """One registration."""

    domain: str
    name: str
    function: Function
    outputs: Outputs | None

    def output_types(self, node: CustomNode, inputs: Sequence[TensorInfo | None]) -> list[TensorInfo]:
        """Shape and dtype of each output of a node. Raises InvalidArgument where the shape function does not say them;
        what it raises itself passes with a note that names the node."""
        if self.outputs is None:
            return [_like_first(node, inputs)]
        try:
            given = self.outputs(node, *inputs)
        except Exception as error:
            error.add_note(f"in the shape function of {node}")
            raise
        try:
            types = [_tensor_info(entry) for entry in given]
        except (TypeError, ValueError) as error:
            raise InvalidArgument(f"{_SHAPES_OF} {node} gave {given!r}; {_EXPECTED}: {error}") from error
        if len(types) < node.n_outputs:
            raise InvalidArgument(
                f"{_SHAPES_OF} {node} gave {len(types)} outputs, and the node has {node.n_outputs}; {_EXPECTED}"
            )
        return types[: node.n_outputs]


_SHAPES_OF = "the shape function of"
_EXPECTED = "expected a list of (shape, dtype), one for each output"
_operators: dict[tuple[str, str], CustomOp] = {}
_lock = threading.Lock()


def custom_op(domain: str, name: str, *, outputs: Outputs | None = None, replace: bool = False) -> Callable[[F], F]:
    """Registers the decorated function as the operator `name` of `domain`, for all sessions of this process.

    The function is called with a KernelContext each time such a node runs, from the thread that runs the session; what
    it returns is ignored, what it raises leaves `session.run` with the node's name as a note. On a GPU its work goes to
    `ctx.stream`, and the function should not wait for it.

    outputs: gives shapes and dtypes, `outputs(node, *inputs) -> [(shape, dtype), …]`, from the node (a CustomNode) and
    from each input's `shape`, `dtype` and (of constants) `value`, None for omitted inputs; called when a signature of
    input shapes is compiled. Without it there is one output like the first input. replace: take the place of an earlier
    registration; existing sessions call the new function from then on, with the shapes they know.

    A model's function of the same domain and name is not used. Raises InvalidArgument for a second registration, and
    for ONNX's, onnxruntime's and Gossamer's own domains; WrongType (a TypeError) for what is no name or no function.
    """
    _check_names(domain, name)
    if outputs is not None and not callable(outputs):
        raise WrongType(f"outputs of {domain}.{name} must be a function of the node and its inputs, not {outputs!r}")

    def register(function: F) -> F:
        if not callable(function):
            raise WrongType(f"{domain}.{name} must be a function of a KernelContext, not {function!r}")
        with _lock:
            earlier = _operators.get((domain, name))
            if earlier is not None and not replace:
                raise InvalidArgument(
                    f"{domain}.{name} is a custom operator already, {_named(earlier.function)}; pass replace=True to "
                    f"let {_named(function)} take its place"
                )
            _operators[domain, name] = CustomOp(domain, name, function, outputs)
        return function

    return register


def _check_names(domain: object, name: object) -> None:
    if not isinstance(domain, str) or not isinstance(name, str):
        raise WrongType(
            f"custom_op takes a domain and an operator's name, as in @gossamer.custom_op('my.domain', 'Scale'); "
            f"got {domain!r} and {name!r}"
        )
    if not may_register(domain):
        raise InvalidArgument(
            f"the domain '{domain}' is ONNX's, onnxruntime's or Gossamer's, and its operators have a meaning already; "
            "give the node a domain of your own"
        )
    if not name:
        raise InvalidArgument(f"the name of a custom operator of domain '{domain}' is empty")


def _named(function: object) -> str:
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", None)
    return f"{module}.{name}" if name else repr(function)


def may_register(domain: str) -> bool:
    """Whether operators of the domain are the users' to define."""
    return domain not in _TAKEN


def find(domain: str, name: str) -> CustomOp | None:
    """The registration, or None."""
    return _operators.get((domain, name))


def run(ctx: KernelContext) -> None:
    """Calls the function of `ctx.node`, as it is registered now.

    Raises NotFound where none is: Programs outlive processes. What the function raises gets a note.
    """
    node = ctx.node
    registered = find(node.domain, node.op_type)
    if registered is None:
        raise NotFound(f"{node} is not registered in this process: import the module that does, before running")
    try:
        registered.function(ctx)
    except Exception as error:
        if not isinstance(error, CudnnUnavailable):  # which names operator and node itself
            error.add_note(f"in {node}")
        raise


def _like_first(node: CustomNode, inputs: Sequence[TensorInfo | None]) -> TensorInfo:
    first = inputs[0] if inputs else None
    if first is None or node.n_outputs > 1:
        lacking = f"has {node.n_outputs} outputs" if first is not None else "has no first input"
        raise InvalidArgument(
            f"{node} {lacking}, and without a shape function there is one output like the first input; "
            f"pass outputs=... to custom_op: a function of the node and its inputs that gives {_EXPECTED[9:]}"
        )
    return TensorInfo(first.shape, first.dtype)


def _tensor_info(entry: Any) -> TensorInfo:
    """One output as the shape function gave it. Raises TypeError or ValueError."""
    if isinstance(entry, TensorInfo):
        return TensorInfo(entry.shape, entry.dtype)
    shape, given = entry
    extents = tuple(map(operator.index, shape))
    if any(extent < 0 for extent in extents):
        raise ValueError(f"{extents} has a negative extent")
    dtype = dtype_of(given) if isinstance(given, str) else np.dtype(given)
    if dtype.hasobject or dtype.kind in "SUMm":
        raise ValueError(f"{dtype} cannot be on a GPU")
    return TensorInfo(extents, dtype)
