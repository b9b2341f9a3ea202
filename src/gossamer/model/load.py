"""From a file, bytes or a `ModelProto` to a model that keeps the invariants the rest of Gossamer relies on.

After `load`: functions are inlined; nodes are in topological order; every value's name is unique in the whole model and
every node has a name; initializers are no inputs; every tensor has as many bytes as its shape needs; every node of
ONNX's own domain is an operator of the opset that the model imports, with the inputs, outputs and attributes that it
has there, or one that onnxruntime adds to it; that opset stays as it is (7 to the newest, no version conversion);
shapes that the file claims for intermediate values are dropped, because exporters and editors leave stale ones.

Tensors kept outside the model's file are memory-mapped, each file once. A location may not leave the model's folder,
neither by `..`, nor by being absolute, nor through a link: a model is data that came from somewhere else, and must not
choose which of the machine's files are read.
"""

from __future__ import annotations

import os
from pathlib import Path

import onnx
import onnx_ir as ir
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from gossamer.errors import GossamerError, InvalidGraph, InvalidProtobuf, NoSuchFile, UnsupportedModel, UnsupportedNode
from gossamer.model import checks
from gossamer.model.custom_nodes import is_custom
from gossamer.model.edit import nodes_in
from gossamer.model.passes import run_passes
from gossamer.model.passes.inline_functions import inline_functions
from gossamer.model.tensors import Origin, attach_tensors

_TOO_NEW = f"upgrade the onnx package (this is {onnx.__version__}), or export the model for an older version"
OLDEST_OPSET = 7
"""What onnxruntime guarantees too; older operators differ in broadcasting and in what is an attribute."""
FILES = "gossamer.files"
"""In a model's `meta`: paths of the file it was read from and of those that hold its tensors."""
_ONNXRUNTIMES = frozenset({"LayerNormalization", "SimplifiedLayerNormalization"})
"""Operators that onnxruntime, and the tools that come with it, have in ONNX's own domain at every opset."""

_NOT_ONNX = {
    b"version https://git-lfs": "it is a Git LFS pointer; run `git lfs pull` to get the file itself",
    b"PK\x03\x04": "it is a zip archive (a PyTorch checkpoint or a compiled model?), and an ONNX file is wanted",
    b"<": "it is a text, perhaps a web page that was saved in place of the file; download it again",
    b"{": "it is a text, and an ONNX file is wanted",
}
"""What other files that people mistake for models begin with."""


def load(source: str | os.PathLike[str] | bytes | onnx.ModelProto) -> ir.Model:
    """The model in a file, in bytes or in a protobuf.

    Raises NoSuchFile (a file or a file of tensors is not there), InvalidProtobuf (not a model, or a truncated one),
    InvalidGraph (a model that breaks ONNX's rules, or is newer than the installed onnx package) and UnsupportedModel
    (operators that ONNX does not have at that opset, all of them). Each names file, node and remedy.
    """
    origin = Origin.of(source)
    proto = _read(source, origin)
    _check_ir_version(proto, origin)
    problem = checks.problem_in_proto(proto)
    if problem is not None:
        raise InvalidGraph(f"{origin.name}: {problem}")
    model = _deserialise(proto, origin)
    outside = attach_tensors(model, origin)
    model.meta[FILES] = outside if origin.folder is None else (Path(origin.name), *outside)
    _normalise(model, origin)
    _check_domains(model, origin)
    _check_operators(model, origin)
    return model


def _read(source: str | os.PathLike[str] | bytes | onnx.ModelProto, origin: Origin) -> onnx.ModelProto:
    if isinstance(source, onnx.ModelProto):
        proto = onnx.ModelProto()
        proto.CopyFrom(source)  # passes rename tensors, and the caller's stay as they are
        return proto
    data = bytes(source) if isinstance(source, (bytes, bytearray, memoryview)) else _read_file(Path(source))
    if not data:
        raise InvalidProtobuf(f"{origin.name}: it is empty; write or download it again")
    kind = (
        "it is in onnxruntime's own format (.ort); use the .onnx file it was made from"
        if data[4:8] == b"ORTM"
        else None
    )
    kind = kind or next((text for head, text in _NOT_ONNX.items() if data.startswith(head)), None)
    if kind is not None:
        raise InvalidProtobuf(f"{origin.name} is not an ONNX model: {kind}")
    proto = onnx.ModelProto()
    try:
        proto.ParseFromString(data)
    except DecodeError as error:
        hint = "it is truncated, damaged, or no ONNX file; write or download it again"
        raise InvalidProtobuf(
            f"{origin.name} ({len(data)} bytes) does not parse as an ONNX model: {hint} ({error})"
        ) from error
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


def _check_ir_version(proto: onnx.ModelProto, origin: Origin) -> None:
    if proto.ir_version > onnx.IR_VERSION:
        raise InvalidGraph(
            f"{origin.name}: ONNX IR version {proto.ir_version} is newer than {onnx.IR_VERSION}; {_TOO_NEW}"
        )


def _deserialise(proto: onnx.ModelProto, origin: Origin) -> ir.Model:
    try:
        return ir.from_proto(proto)
    except ir.serde.SerdeError as error:
        first: BaseException = error
        while (earlier := first.__cause__ or first.__context__) is not None:
            first = earlier
        raise InvalidGraph(f"{origin.name} is damaged, export it again: {first}") from error


def _normalise(model: ir.Model, origin: Origin) -> None:
    graph = model.graph
    if "ai.onnx" in graph.opset_imports:  # the domain's long name, which nodes have lost by now
        graph.opset_imports.setdefault("", graph.opset_imports.pop("ai.onnx"))
    _drop_initializer_inputs(model)
    _sort(model, origin)
    try:
        run_passes(model, (inline_functions,))
    except GossamerError as error:
        raise type(error)(f"{origin.name}: {error}") from error
    _forget_negative_dimensions(model)
    _drop_claimed_shapes(model)
    _name_nodes(model)


def _drop_initializer_inputs(model: ir.Model) -> None:
    """Initializers listed as inputs too, as IR 3 demanded and exporters still do, are constants here."""
    for graph in model.graphs():
        kept = [value for value in graph.inputs if not value.is_initializer()]
        if len(kept) < len(graph.inputs):
            graph.inputs.clear()
            graph.inputs.extend(kept)


def _sort(model: ir.Model, origin: Origin) -> None:
    for graph in (model.graph, *(function.graph for function in model.functions.values())):
        try:
            graph.sort()
        except ValueError as error:
            raise InvalidGraph(
                f"{origin.name}: the nodes of graph '{graph.name or ''}' depend on one another in a circle"
            ) from error


def _forget_negative_dimensions(model: ir.Model) -> None:
    """Some exporters write -1 for a dimension that is not known."""
    for value in (*model.graph.inputs, *model.graph.outputs):
        if value.shape is not None and any(isinstance(dim, int) and dim < 0 for dim in value.shape):
            value.shape = ir.Shape([None if isinstance(dim, int) and dim < 0 else dim for dim in value.shape])


def _drop_claimed_shapes(model: ir.Model) -> None:
    """Inputs and outputs of the model keep theirs, and so do outputs of operators unknown to shape inference."""
    for node in nodes_in(model.graph):
        for value in node.outputs if node.domain == "" or is_custom(node) else ():
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


def _check_domains(model: ir.Model, origin: Origin) -> None:
    """Imports that no node uses may have any version."""
    imports = model.graph.opset_imports
    domains: set[str] = set()
    for node in nodes_in(model.graph):
        if node.domain not in imports:
            domain = node.domain or "ai.onnx"
            raise InvalidGraph(
                f"{origin.name} imports no opset of the domain '{domain}', which {checks.describe(node)} is of; "
                "export it again"
            )
        domains.add(node.domain)
    opset, newest = imports.get("", OLDEST_OPSET), onnx.defs.onnx_opset_version()
    if "" in domains and opset > newest:
        raise InvalidGraph(f"{origin.name}: opset {opset} is newer than {newest}; {_TOO_NEW}")
    if "" in domains and opset < OLDEST_OPSET:
        raise InvalidGraph(
            f"{origin.name}: opset {opset} is older than {OLDEST_OPSET}, the oldest supported; "
            f"use onnx.version_converter.convert_version(model, {OLDEST_OPSET})"
        )


def _check_operators(model: ir.Model, origin: Origin) -> None:
    opset = model.graph.opset_imports.get("", OLDEST_OPSET)
    unknown = tuple(
        UnsupportedNode(node.name or "", node.op_type, (f"ONNX has no such operator at opset {opset}",))
        for node in nodes_in(model.graph)
        if node.domain == "" and node.op_type not in _ONNXRUNTIMES and not onnx.defs.has(node.op_type, opset, "")
    )
    if unknown:
        remedy = (
            "Export the model for an opset that has them; operators of other libraries need their domain on the node."
        )
        raise UnsupportedModel(unknown, origin.name, remedy)
    for node in nodes_in(model.graph):
        problem = None if node.domain else checks.problem_in_form(node, opset)
        if problem:
            raise InvalidGraph(f"{origin.name}: {checks.describe(node)} {problem}; export it again")
