"""The tensors of a model that is being loaded: their sizes, and the files they are kept in.

Tensors kept outside the model's file are memory-mapped, each file once. A location may not leave the model's folder,
neither by `..`, nor by being absolute, nor through a link: a model is data that came from somewhere else, and must not
choose which of the machine's files are read.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir

from gossamer.errors import InvalidGraph, NoSuchFile
from gossamer.model.checks import describe
from gossamer.model.edit import nodes_in

_DECODED_BYTES = 512


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a model came from: its name in messages, and its folder if it is a file."""

    name: str
    folder: Path | None = None

    @classmethod
    def of(cls, source: str | os.PathLike[str] | bytes | onnx.ModelProto) -> Origin:
        if isinstance(source, onnx.ModelProto):
            return cls("the ModelProto")
        if isinstance(source, (bytes, bytearray, memoryview)):
            return cls(f"the model given as {len(source)} bytes")
        path = Path(source)
        return cls(str(path), path.parent)


def attach_tensors(model: ir.Model, origin: Origin) -> tuple[Path, ...]:
    """Check the size of every tensor, decode small ones, and memory-map those that are kept in other files.

    Gives these files. Raises InvalidGraph (a size that does not fit, a location that is refused) and NoSuchFile, naming
    model and tensor.
    """
    maps: dict[Path, np.ndarray] = {}

    def attached(tensor: ir.TensorProtocol, owner: str) -> ir.TensorProtocol:
        if isinstance(tensor, ir.ExternalTensor):
            return _external(tensor, owner, origin, maps)
        if isinstance(tensor, ir.serde.TensorProtoTensor):
            _check_size(tensor, owner, origin)
            return _decoded(tensor)
        return tensor

    _change_tensors(model.graph, attached)
    for function in model.functions.values():
        _change_tensors(function.graph, attached)
    return tuple(maps)


def _change_tensors(scope: ir.Graph, change: Callable[[ir.TensorProtocol, str], ir.TensorProtocol]) -> None:
    """Put `change(tensor, owner)` in place of every initializer and every tensor attribute."""
    for graph in (scope, *scope.subgraphs()):
        for value in graph.initializers.values():
            assert value.const_value is not None
            value.const_value = change(value.const_value, f"initializer '{value.name}'")
    for node in nodes_in(scope):
        for attribute in tuple(node.attributes.values()):
            if attribute.type == ir.AttributeType.TENSOR and not attribute.is_ref():
                tensor = attribute.as_tensor()
                changed = change(tensor, f"attribute '{attribute.name}' of {describe(node)}")
                if changed is not tensor:
                    node.attributes.add(ir.AttrTensor(attribute.name, changed))


def _decoded(tensor: ir.serde.TensorProtoTensor) -> ir.TensorProtocol:
    """A small tensor as an array: passes read scalars, axes and shapes often, and protobufs decode each time."""
    if tensor.nbytes > _DECODED_BYTES or tensor.dtype == ir.DataType.STRING or tensor.dtype.bitwidth < 8:
        return tensor
    return ir.Tensor(tensor.numpy(), tensor.dtype, shape=ir.Shape(tensor.shape), name=tensor.name)


def _check_size(tensor: ir.serde.TensorProtoTensor, owner: str, origin: Origin) -> None:
    """Whether the data is as long as element type and shape ask."""
    proto = tensor.raw
    if tensor.dtype == ir.DataType.UNDEFINED or any(dim < 0 for dim in proto.dims):
        raise InvalidGraph(
            f"{origin.name}: the {owner} has no element type or a negative dimension; the file is damaged"
        )
    if proto.HasField("raw_data"):
        wanted, found, unit = tensor.nbytes, len(proto.raw_data), "bytes"
    else:
        numbers = (proto.float_data, proto.int32_data, proto.int64_data, proto.double_data, proto.uint64_data)
        found = sum(len(field) for field in numbers) + len(proto.string_data)
        wanted, unit = _field_entries(tensor), "values"
    if found != wanted:
        raise InvalidGraph(
            f"{origin.name}: the {owner}, {_kind(tensor)}, needs {wanted} {unit} and has {found}; "
            "the file is damaged, or was saved without its weights"
        )


def _kind(tensor: ir.TensorProtocol) -> str:
    return f"{tensor.dtype.name}{list(tensor.shape)}"


def _field_entries(tensor: ir.TensorProtocol) -> int:
    """How many entries a tensor has in its typed field: packed types share one, complex ones take two."""
    if tensor.dtype in (ir.DataType.COMPLEX64, ir.DataType.COMPLEX128):
        return 2 * tensor.size
    if tensor.dtype != ir.DataType.STRING and tensor.dtype.bitwidth < 8:
        return tensor.nbytes
    return tensor.size


def _external(tensor: ir.ExternalTensor, owner: str, origin: Origin, maps: dict[Path, np.ndarray]) -> ir.TensorProtocol:
    location = os.fspath(tensor.location)
    path = _resolve(location, owner, origin)
    offset, nbytes = tensor.offset or 0, tensor.nbytes
    length = nbytes if tensor.length is None else tensor.length
    if length != nbytes or offset < 0:
        raise InvalidGraph(
            f"{origin.name}: the {owner}, {_kind(tensor)}, needs {nbytes} bytes, and the model gives it {length} "
            f"at offset {offset} of '{location}'; save the model again"
        )
    if not path.is_file():
        raise NoSuchFile(
            f"{origin.name}: the {owner} is kept in '{location}', and there is no file {path}; put it beside the model"
        )
    size = path.stat().st_size
    if offset + nbytes > size:
        raise InvalidGraph(
            f"{origin.name}: the {owner} is kept at bytes {offset} to {offset + nbytes} of {path}, which has {size}; "
            "that file is truncated or of another model: copy it again"
        )
    if path not in maps:
        maps[path] = _map(path) if size else np.zeros(0, np.uint8)
    return _view(tensor, maps[path][offset : offset + nbytes])


def _resolve(location: str, owner: str, origin: Origin) -> Path:
    """The real path of a location, refused unless it lies in the model's folder."""
    if origin.folder is None:
        raise InvalidGraph(
            f"{origin.name}: the {owner} is kept in another file, '{location}', and there is no folder to look in; "
            "give the model's path, or load it with onnx.load, which reads such files"
        )
    folder = origin.folder.resolve()
    path = (folder / location).resolve()
    if not location or os.path.isabs(location) or "\\" in location or not path.is_relative_to(folder):
        raise InvalidGraph(
            f"{origin.name}: the {owner} is kept in '{location}', which leaves the model's folder {folder} "
            f"(it is {path}) and is refused; put a copy of the file beside the model and save it with that location"
        )
    return path


def _map(path: Path) -> np.ndarray:
    """The bytes of a file, read when they are touched. One mapping a file: each costs a file descriptor."""
    with path.open("rb") as file:
        return np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), np.uint8)


def _view(tensor: ir.ExternalTensor, data: np.ndarray) -> ir.TensorProtocol:
    shape = ir.Shape(tensor.shape)
    if tensor.dtype.bitwidth < 8:
        return ir.PackedTensor(data, tensor.dtype, shape=shape, name=tensor.name)
    array = data.view(tensor.dtype.numpy().newbyteorder("<")).reshape(shape.numpy())
    return ir.Tensor(array, tensor.dtype, shape=shape, name=tensor.name)
