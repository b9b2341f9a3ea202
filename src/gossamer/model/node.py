"""Node: what a lowering sees of one ONNX node once every shape is known."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar, overload

import numpy as np
import onnx_ir as ir

from gossamer.model.edit import dtype_name, name_of, static_shape
from gossamer.program import Buffer, Call, Origin

CHANNELS_LAST = "gossamer.nhwc"
"""The domain of ONNX operators whose activations are N, spatial…, C, not N, C, spatial…; weights are unchanged."""
CONTRIB_CHANNELS_LAST = (("com.microsoft", "NhwcConv"), ("com.microsoft", "NhwcFusedConv"))
"""onnxruntime's operators with such activations."""
FUSED = "gossamer"
"""The domain of operators that only passes make; `docs/layout.md` lists them."""

T = TypeVar("T")
_REQUIRED: Any = object()


@dataclass(slots=True)
class Constants(Mapping[str, np.ndarray]):
    """The constants of a model by key, made anew each time they are asked for: whoever uploads one keeps the copy.

    Initialisers that were there when the model was loaded keep their names as keys, so that all signatures share them;
    those that folding made for one signature are told apart by their content.
    """

    derived: set[str] = field(default_factory=set)
    """Keys of what is computed each time, and not only read."""
    _makers: dict[str, Callable[[], np.ndarray]] = field(default_factory=dict)
    _key_by_tensor: dict[int, str] = field(default_factory=dict)
    _alive: list[ir.TensorProtocol] = field(default_factory=list)

    def register(self, name: str, tensor: ir.TensorProtocol) -> str:
        """The key of a constant that belongs to the model itself, whatever the signature."""
        return self._remember(name if name not in self._makers else f"{name}@{len(self._alive)}", tensor)

    def key_of(self, name: str, tensor: ir.TensorProtocol) -> str:
        """The key of a tensor, registered or not."""
        key = self._key_by_tensor.get(id(tensor))
        if key is not None:
            return key
        array = tensor.numpy()
        digest = hashlib.sha256(f"{array.dtype.name}{array.shape}".encode() + array.tobytes()).hexdigest()
        return self._remember(f"{name}@{digest[:16]}", tensor)

    def _remember(self, key: str, tensor: ir.TensorProtocol) -> str:
        self._key_by_tensor[id(tensor)] = key
        self._alive.append(tensor)  # an id is only good while its object lives
        self._makers[key] = tensor.numpy
        return key

    def derive(self, key: str, make: Callable[[], np.ndarray]) -> None:
        """Adds a constant that is computed from others, if no signature has asked for it before."""
        if key not in self._makers:
            self._makers[key] = make
            self.derived.add(key)

    def __getitem__(self, key: str) -> np.ndarray:
        """The constant as a C-contiguous array."""
        return np.asarray(self._makers[key](), order="C")

    def __contains__(self, key: object) -> bool:
        return key in self._makers  # Mapping's own would make the constant

    def __iter__(self) -> Iterator[str]:
        return iter(self._makers)

    def __len__(self) -> int:
        return len(self._makers)


@dataclass(slots=True)
class Scope:
    """What the nodes of one graph share while they are lowered: buffers by name and the constants among them."""

    constants: Constants
    opset: dict[str, int]
    buffers: dict[str, Buffer] = field(default_factory=dict)
    weights: dict[str, str] = field(default_factory=dict)
    """Buffer name → key in `constants`."""

    def buffer(self, value: ir.Value) -> Buffer:
        """The buffer of a value; raises `UnknownShape` where type or shape are not known before running."""
        name = value.name or ""
        known = self.buffers.get(name)
        if known is not None:
            return known
        buffer = self.buffers[name] = _buffer_of(value)
        if value.const_value is not None:
            self.weights[name] = self.constants.key_of(name, value.const_value)
        return buffer

    def buffer_or_dynamic(self, value: ir.Value) -> Buffer:
        """The buffer of a value of any kind; one whose type or shape is not known before running is dynamic."""
        try:
            return self.buffer(value)
        except UnknownShape:
            name = value.name or ""
            dtype = dtype_name(value.dtype) if value.dtype is not None else "object"
            buffer = self.buffers[name] = Buffer(name, dtype, (), dynamic=True)
            return buffer


class UnknownShape(Exception):
    """A value's type or shape depends on data."""


def _buffer_of(value: ir.Value) -> Buffer:
    name = value.name or ""
    if value.const_value is not None:
        return Buffer(name, dtype_name(value.const_value.dtype), tuple(value.const_value.shape.numpy()))
    shape = static_shape(value)  # of what is no tensor: of its elements
    if value.dtype is None or shape is None or not isinstance(value.type, ir.TensorType):
        raise UnknownShape(f"the shape of '{name}' is known only when the model runs")
    return Buffer(name, dtype_name(value.dtype), shape)


class Node:
    """One node with static shapes: inputs and outputs as buffers, attributes as Python values.

    inputs, outputs: buffers in ONNX's order, None for an omitted optional one (trailing omitted ones are absent: use
    `input(i)`). version: the opset version of the node's domain.
    """

    __slots__ = ("_counter", "_node", "_scope", "inputs", "outputs", "version")

    def __init__(self, node: ir.Node, scope: Scope) -> None:
        self._node = node
        self._scope = scope
        self._counter = 0
        self.version = node.version or scope.opset.get(node.domain, 1)
        self.inputs: tuple[Buffer | None, ...] = tuple(None if v is None else scope.buffer(v) for v in node.inputs)
        self.outputs: tuple[Buffer | None, ...] = tuple(scope.buffer(v) if v.name else None for v in node.outputs)

    @property
    def name(self) -> str:
        return name_of(self._node)

    @property
    def op_type(self) -> str:
        return self._node.op_type

    @property
    def domain(self) -> str:
        return self._node.domain

    @property
    def channels_last(self) -> bool:
        return self._node.domain == CHANNELS_LAST or (self._node.domain, self._node.op_type) in CONTRIB_CHANNELS_LAST

    @property
    def origin(self) -> Origin:
        return Origin(self.name, self.op_type, self.domain)

    def input(self, index: int) -> Buffer | None:
        return self.inputs[index] if index < len(self.inputs) else None

    def output(self, index: int) -> Buffer | None:
        return self.outputs[index] if index < len(self.outputs) else None

    @property
    def x(self) -> Buffer:
        """The first input."""
        first = self.inputs[0]
        assert first is not None
        return first

    @property
    def y(self) -> Buffer:
        """The first output."""
        first = self.outputs[0]
        assert first is not None
        return first

    @overload
    def attribute(self, name: str) -> Any: ...
    @overload
    def attribute(self, name: str, default: T) -> T: ...
    def attribute(self, name: str, default: Any = _REQUIRED) -> Any:
        """An attribute as int, float, str, tuple of these or np.ndarray; the default where it is not set."""
        attribute = self._node.attributes.get(name)
        if attribute is None:
            if default is _REQUIRED:
                raise KeyError(f"{self.origin} lacks the attribute '{name}'")
            return default
        return _attribute_value(attribute)

    @property
    def attributes(self) -> dict[str, Any]:
        """All attributes that are set, as `attribute` gives them."""
        return attributes_of(self._node)

    def constant(self, index: int) -> np.ndarray | None:
        """The value of input `index` where it is known before running, else None."""
        value = self._node.inputs[index] if index < len(self._node.inputs) else None
        return None if value is None or value.const_value is None else value.const_value.numpy()

    def derived(
        self, source: Buffer, tag: str, shape: Sequence[int], dtype: str, make: Callable[[np.ndarray], np.ndarray]
    ) -> Buffer:
        """A constant computed once from the constant `source`: a packed weight, say.

        tag names the computation: equal (source, tag) must mean equal results. make gets the source's array and gives
        one of `shape` and `dtype`; it runs when the constant is uploaded, once for all signatures.
        """
        constants, source_key = self._scope.constants, self._scope.weights[source.name]
        return self.constant_buffer(f"{source_key}#{tag}", shape, dtype, lambda: make(constants[source_key]))

    def constant_buffer(self, key: str, shape: Sequence[int], dtype: str, make: Callable[[], np.ndarray]) -> Buffer:
        """A constant under a key of the caller's; equal keys must mean equal contents, in all signatures."""
        self._scope.constants.derive(key, make)
        self._scope.weights[key] = key
        buffer = self._scope.buffers[key] = Buffer(key, dtype, tuple(shape))
        return buffer

    def is_constant(self, buffer: Buffer) -> bool:
        return buffer.name in self._scope.weights

    def memory_of(self, calls: Iterable[Call]) -> tuple[dict[str, Buffer], dict[str, str]]:
        """The buffers that calls made for this node use, by name, and which of them are constants, with their keys."""
        used = dict.fromkeys(name for call in calls for name in (*call.reads, *call.writes))
        weights = {name: self._scope.weights[name] for name in used if name in self._scope.weights}
        return {name: self._scope.buffers[name] for name in used}, weights

    def temporary(self, shape: Sequence[int], dtype: str) -> Buffer:
        """Scratch memory that lives from the first of this node's calls that names it to the last."""
        self._counter += 1
        name = f"{self._node.outputs[0].name}/temporary{self._counter}"
        buffer = self._scope.buffers[name] = Buffer(name, dtype, tuple(shape))
        return buffer


def attributes_of(node: ir.Node) -> dict[str, Any]:
    """A node's attributes by name, as Python values."""
    return {name: _attribute_value(attribute) for name, attribute in node.attributes.items()}


def _attribute_value(attribute: ir.Attr) -> Any:
    if attribute.type in (ir.AttributeType.INTS, ir.AttributeType.FLOATS, ir.AttributeType.STRINGS):
        return tuple(attribute.value)
    if attribute.type == ir.AttributeType.TENSORS:
        return tuple(tensor.numpy() for tensor in attribute.as_tensors())
    if attribute.type == ir.AttributeType.TENSOR:
        return attribute.as_tensor().numpy()
    return attribute.value
