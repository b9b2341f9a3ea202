"""From a file, bytes or a `ModelProto` to a model that keeps the invariants the rest of Gossamer relies on.

After `load`: functions are inlined; nodes are in topological order; every value's name is unique in the whole model and every node
has a name; initializers are no inputs; every tensor has as many bytes as its shape needs; every node of ONNX's own domain is an
operator of the opset that the model imports, which stays as it is (7 to the newest, no version conversion); shapes that the file
claims for intermediate values are dropped, because exporters and editors leave stale ones.

Tensors kept outside the model's file are memory-mapped, each file once. A location may not leave the model's folder, neither by
`..`, nor by being absolute, nor through a link: a model is data that came from somewhere else, and must not choose which of the
machine's files are read.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
from google.protobuf.message import DecodeError

from gossamer.errors import GossamerError, InvalidGraph, InvalidProtobuf, NoSuchFile, UnsupportedModel, UnsupportedNode
from gossamer.model import checks
from gossamer.model.edit import nodes_in
from gossamer.model.passes import run_passes
from gossamer.model.passes.inline_functions import inline_functions

OLDEST_OPSET = 7
"""What onnxruntime guarantees too; older operators differ in broadcasting and in what is an attribute."""

_NOT_ONNX = {
    b"version https://git-lfs": "it is a Git LFS pointer; run `git lfs pull` to get the file itself",
    b"PK\x03\x04": "it is a zip archive (a PyTorch checkpoint or a compiled model?), and an ONNX file is wanted",
    b"<": "it is a text, perhaps a web page that was saved in place of the file; download it again",
    b"{": "it is a text, and an ONNX file is wanted",
}
"""What other files that people mistake for models begin with."""


def load(source: str | os.PathLike[str] | bytes | onnx.ModelProto) -> ir.Model:
    """The model in a file, in bytes or in a protobuf.

    Raises NoSuchFile (a file or a file of tensors is not there), InvalidProtobuf (not a model, or a truncated one), InvalidGraph (a
    model that breaks ONNX's rules, or is newer than the installed onnx package) and UnsupportedModel (operators that ONNX does not
    have at that opset, all of them). Each names file, node and remedy.
    """
    origin = _Origin.of(source)
    proto = _read(source, origin)
    _check_versions(proto, origin)
    problem = checks.problem_in_proto(proto)
    if problem is not None:
        raise InvalidGraph(f"{origin.name}: {problem}")
    model = _deserialise(proto, origin)
    model.meta["gossamer.source"] = origin.name
    _attach_tensors(model, origin)
    _normalise(model, origin)
    _check_operators(model, origin)
    return model


@dataclass(frozen=True, slots=True)
class _Origin:
    """Where a model came from: its name in messages, and its folder if it is a file."""

    name: str
    folder: Path | None = None

    @classmethod
    def of(cls, source: str | os.PathLike[str] | bytes | onnx.ModelProto) -> _Origin:
        if isinstance(source, onnx.ModelProto):
            return cls("the ModelProto")
        if isinstance(source, (bytes, bytearray, memoryview)):
            return cls(f"the model given as {len(source)} bytes")
        path = Path(source)
        return cls(str(path), path.parent)


def _read(source: str | os.PathLike[str] | bytes | onnx.ModelProto, origin: _Origin) -> onnx.ModelProto:
    if isinstance(source, onnx.ModelProto):
        return source
    data = bytes(source) if isinstance(source, (bytes, bytearray, memoryview)) else _read_file(Path(source))
    if not data:
        raise InvalidProtobuf(f"{origin.name}: it is empty; write or download it again")
    kind = "it is in onnxruntime's own format (.ort); use the .onnx file it was made from" if data[4:8] == b"ORTM" else None
    kind = kind or next((text for head, text in _NOT_ONNX.items() if data.startswith(head)), None)
    if kind is not None:
        raise InvalidProtobuf(f"{origin.name} is not an ONNX model: {kind}")
    proto = onnx.ModelProto()
    try:
        proto.ParseFromString(data)
    except DecodeError as error:
        hint = "it is truncated, damaged, or no ONNX file; write or download it again"
        raise InvalidProtobuf(f"{origin.name} ({len(data)} bytes) does not parse as an ONNX model: {hint} ({error})") from error
    if not proto.HasField("graph") or not proto.ir_version:
        lacking = "graph" if not proto.HasField("graph") else "IR version"
        raise InvalidProtobuf(f"{origin.name} is not an ONNX model, or a truncated one: it has no {lacking}")
    return proto


def _read_file(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise NoSuchFile(f"{path}: there is no such file; the working folder is {Path.cwd()}") from None
    except IsADirectoryError:
        models = ", ".join(sorted(file.name for file in path.glob("*.onnx"))) or "none"
        raise NoSuchFile(f"{path} is a folder, and a file is wanted; the models in it: {models}") from None
    except OSError as error:
        raise NoSuchFile(f"{path} cannot be read: {error.strerror}") from error


def _check_versions(proto: onnx.ModelProto, origin: _Origin) -> None:
    remedy = f"upgrade the onnx package (this is {onnx.__version__}), or export the model for an older version"
    if proto.ir_version > onnx.IR_VERSION:
        raise InvalidGraph(f"{origin.name}: ONNX IR version {proto.ir_version} is newer than {onnx.IR_VERSION}; {remedy}")
    if not any(node.domain in ("", "ai.onnx") for node in proto.graph.node):
        return  # functions are checked against the model's import when they are inlined
    imported = {entry.domain: entry.version for entry in proto.opset_import}
    opset = imported.get("", imported.get("ai.onnx"))
    if opset is None:
        raise InvalidGraph(f"{origin.name} imports no opset of ai.onnx, whose operators it uses; export it again")
    if opset > onnx.defs.onnx_opset_version():
        raise InvalidGraph(f"{origin.name}: opset {opset} is newer than {onnx.defs.onnx_opset_version()}; {remedy}")
    if opset < OLDEST_OPSET:
        convert = f"onnx.version_converter.convert_version(model, {OLDEST_OPSET})"
        raise InvalidGraph(f"{origin.name}: opset {opset} is older than {OLDEST_OPSET}, the oldest supported; use {convert}")


def _deserialise(proto: onnx.ModelProto, origin: _Origin) -> ir.Model:
    try:
        return ir.from_proto(proto)
    except ir.serde.SerdeError as error:
        causes = [str(error)]
        cause = error.__cause__
        while cause is not None:
            causes.append(str(cause))
            cause = cause.__cause__
        raise InvalidGraph(f"{origin.name}: {causes[-1]} (in {causes[0]})") from error


# Tensors


def _attach_tensors(model: ir.Model, origin: _Origin) -> None:
    """Check the size of every tensor, and put memory-mapped ones in place of references to other files."""
    maps: dict[Path, np.ndarray] = {}
    for tensor, owner, attach in _tensors(model):
        if isinstance(tensor, ir.ExternalTensor):
            attach(_external(tensor, owner, origin, maps))
        elif isinstance(tensor, ir.serde.TensorProtoTensor):
            _check_size(tensor, owner, origin)


def _tensors(model: ir.Model) -> Iterator[tuple[ir.TensorProtocol, str, Callable[[ir.TensorProtocol], None]]]:
    """Every tensor with its owner's name and a function that puts another in its place."""
    scopes = [model.graph, *(function.graph for function in model.functions.values())]
    for scope in scopes:
        for graph in (scope, *scope.subgraphs()):
            for value in graph.initializers.values():
                assert value.const_value is not None
                yield value.const_value, f"initializer '{value.name}'", lambda tensor, v=value: setattr(v, "const_value", tensor)  # type: ignore[misc]
        for node in nodes_in(scope):
            for attribute in tuple(node.attributes.values()):
                if attribute.type == ir.AttributeType.TENSOR and not attribute.is_ref():
                    owner = f"attribute '{attribute.name}' of {checks.describe(node)}"
                    yield attribute.as_tensor(), owner, lambda tensor, n=node, a=attribute: n.attributes.add(ir.AttrTensor(a.name, tensor))  # type: ignore[misc]


def _check_size(tensor: ir.serde.TensorProtoTensor, owner: str, origin: _Origin) -> None:
    """Whether the data is as long as dtype and shape ask."""
    proto = tensor.raw
    if tensor.dtype == ir.DataType.UNDEFINED or any(dim < 0 for dim in proto.dims):
        raise InvalidGraph(f"{origin.name}: the {owner} has no element type, or a negative dimension; the file is damaged")
    if proto.HasField("raw_data"):
        wanted, found, unit = tensor.nbytes, len(proto.raw_data), "bytes"
    else:
        fields = (proto.float_data, proto.int32_data, proto.int64_data, proto.double_data, proto.uint64_data, proto.string_data)
        wanted, found, unit = _field_entries(tensor), sum(len(field) for field in fields), "values"
    if found != wanted:
        shape = list(proto.dims)
        raise InvalidGraph(
            f"{origin.name}: the {owner} of type {tensor.dtype.name} and shape {shape} needs {wanted} {unit} and has {found}; "
            "the file is damaged, or was saved without its weights"
        )


def _field_entries(tensor: ir.TensorProtocol) -> int:
    """How many entries a tensor has in its typed field: packed types share one, complex ones take two."""
    if tensor.dtype in (ir.DataType.COMPLEX64, ir.DataType.COMPLEX128):
        return 2 * tensor.size
    if tensor.dtype != ir.DataType.STRING and tensor.dtype.bitwidth < 8:
        return tensor.nbytes
    return tensor.size


def _external(tensor: ir.ExternalTensor, owner: str, origin: _Origin, maps: dict[Path, np.ndarray]) -> ir.TensorProtocol:
    location = os.fspath(tensor.location)
    path = _resolve(location, owner, origin)
    offset, nbytes = tensor.offset or 0, tensor.nbytes
    length = nbytes if tensor.length is None else tensor.length
    if length != nbytes or offset < 0:
        raise InvalidGraph(
            f"{origin.name}: the {owner} of type {tensor.dtype.name} and shape {list(tensor.shape)} needs {nbytes} bytes, and the model "
            f"gives it {length} at offset {offset} of '{location}'; save the model again"
        )
    if not path.is_file():
        raise NoSuchFile(f"{origin.name}: the {owner} is kept in '{location}', and there is no file {path}; put it beside the model")
    size = path.stat().st_size
    if offset + nbytes > size:
        raise InvalidGraph(
            f"{origin.name}: the {owner} is kept at bytes {offset} to {offset + nbytes} of {path}, which has {size}; "
            "that file is truncated or of another model: copy it again"
        )
    if path not in maps:
        maps[path] = _map(path) if size else np.zeros(0, np.uint8)
    return _view(tensor, maps[path][offset : offset + nbytes])


def _resolve(location: str, owner: str, origin: _Origin) -> Path:
    """The real path of a location, refused unless it lies in the model's folder."""
    if origin.folder is None:
        raise InvalidGraph(
            f"{origin.name}: the {owner} is kept in another file, '{location}', and bytes have no folder to look in; "
            "give the model's path, or load it with onnx.load, which reads such files"
        )
    folder = origin.folder.resolve()
    path = (folder / location).resolve()
    if not location or os.path.isabs(location) or "\\" in location or not path.is_relative_to(folder):
        raise InvalidGraph(
            f"{origin.name}: the {owner} is kept in '{location}', which leaves the model's folder {folder} (it is {path}); "
            "that is refused: put a copy of the file beside the model and save the model with that location"
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


# Invariants


def _normalise(model: ir.Model, origin: _Origin) -> None:
    graph = model.graph
    if "ai.onnx" in graph.opset_imports:  # the domain's long name, which nodes have lost by now
        graph.opset_imports.setdefault("", graph.opset_imports.pop("ai.onnx"))
    _drop_initializer_inputs(model)
    _sort(model, origin)
    try:
        run_passes(model, (inline_functions,))
    except GossamerError as error:
        raise type(error)(f"{origin.name}: {error}") from error
    _drop_claimed_shapes(model)
    _name_nodes(model)


def _drop_initializer_inputs(model: ir.Model) -> None:
    """Initializers listed as inputs too, as IR 3 demanded and exporters still do, are constants here."""
    for graph in model.graphs():
        kept = [value for value in graph.inputs if not value.is_initializer()]
        if len(kept) < len(graph.inputs):
            graph.inputs.clear()
            graph.inputs.extend(kept)


def _sort(model: ir.Model, origin: _Origin) -> None:
    for graph in (model.graph, *(function.graph for function in model.functions.values())):
        try:
            graph.sort()
        except ValueError as error:
            raise InvalidGraph(f"{origin.name}: the nodes of graph '{graph.name or ''}' read one another's outputs in a circle") from error


def _drop_claimed_shapes(model: ir.Model) -> None:
    """Inputs and outputs of the model keep theirs, and so do outputs of operators that ONNX's shape inference does not know."""
    for node in nodes_in(model.graph):
        for value in node.outputs if node.domain == "" else ():
            if value.shape is not None and not (value.graph is model.graph and value.is_graph_output()):
                value.shape = None


def _name_nodes(model: ir.Model) -> None:
    nodes = list(nodes_in(model.graph))
    taken: set[str] = set()
    for index, node in enumerate(nodes):
        name = node.name or f"{node.op_type}_{index}"
        while name in taken:
            name = f"{name}_{index}"
        taken.add(name)
        if name != node.name:
            node.name = name


def _check_operators(model: ir.Model, origin: _Origin) -> None:
    opset = model.graph.opset_imports.get("", 1)
    unknown = tuple(
        UnsupportedNode(node.name or "", node.op_type, (f"ONNX has no such operator at opset {opset}",))
        for node in nodes_in(model.graph)
        if node.domain == "" and not onnx.defs.has(node.op_type, opset, "")
    )
    if unknown:
        remedy = "Export the model again for an opset that has them; operators of other libraries need their domain on the node."
        raise UnsupportedModel(unknown, origin.name, remedy)
