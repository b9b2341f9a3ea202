"""Plans as bytes: the format of NVIDIA's frontend, with a part of our own.

A plan is a UBJSON object. What the frontend (1.28 and newer) writes and reads is there under its own names, so that
plans go either way: `cudnn_backend_data` is the backend's own JSON text with everything about tensors, engine and
device, `pass_by_values` the scalars, and so on. Ours are two more, which the frontend ignores: `gossamer`, with the
names of tensors, notes, and the graph that the plan was made of; and `gossamer_sha256`, over all bytes with its own
digits taken as zeros. A plan that has one but not the other, or whose digest differs, is damaged.

Equal plans have equal bytes. `decode` believes nothing: every field is checked, and PlanError CORRUPT says which is
wrong.

Source: cudnn_frontend/graph_interface.h (Graph::serialize, Graph::deserialize), json_version 2.0.
"""

from __future__ import annotations

import hashlib
import json
import re
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from gossamer.cudnn import ubjson
from gossamer.cudnn.device_properties import DeviceProperties
from gossamer.cudnn.tensors import DATA_TYPES, Tensor
from gossamer.errors import PlanError

__all__ = ["BackendPlan", "PlanRecord", "Scalar", "check_references", "decode", "encode", "read_backend_plan"]

T = TypeVar("T")

JSON_VERSION = "2.0"
FORMAT = 1
"""Version of our own part; newer ones are refused."""

_DIGITS = 64
_SCALAR_TYPES = ("int64", "int32", "float16", "float32", "float64", "bfloat16")
"""Data types of scalars by the number that the frontend gives them."""


@dataclass(frozen=True)
class Scalar:
    """A number given by value, and its data type."""

    value: float | int
    dtype: str


@dataclass(frozen=True)
class BackendPlan:
    """What the backend's JSON text says: who made it, for what, over which tensors.

    version: of cuDNN, as cudnnGetVersion counts. device: what it was made for. tensors: those in memory, and scalars,
    by uid, without names.
    """

    text: bytes
    version: int
    device: DeviceProperties
    engine: int
    tensors: dict[int, Tensor]


@dataclass(frozen=True)
class PlanRecord:
    """All that a plan's bytes hold. backend: None where they carry no precompiled plan.

    replacements: uid → (uid, byte offset): its address is that of the other, which is given, plus the offset. placed:
    uid → offset of it in the frontend's part of the workspace, which comes first and has reserved_workspace bytes.
    graph: the dict form of the graph.
    """

    backend: BackendPlan | None
    behavior_notes: frozenset[str] = frozenset()
    numerical_notes: frozenset[str] = frozenset()
    mode: str = ""
    scalars: dict[int, Scalar] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)
    replacements: dict[int, tuple[int, int]] = field(default_factory=dict)
    placed: dict[int, int] = field(default_factory=dict)
    reserved_workspace: int = 0
    graph: dict[str, Any] | None = None


def encode(record: PlanRecord) -> bytes:
    """The bytes of a plan."""
    document: dict[str, Any] = {"json_version": JSON_VERSION}
    if record.backend is not None:
        document["cudnn_backend_data"] = record.backend.text.decode()
        document["variant_pack_uids"] = sorted(record.backend.tensors)
    document |= {
        "behavior_notes": [sorted(record.behavior_notes)],
        "pass_by_values": {str(uid): _scalar_json(scalar) for uid, scalar in sorted(record.scalars.items())},
        "workspace_modifications": {str(uid): [2, at, []] for uid, at in sorted(record.placed.items())},
        "variant_pack_replacements": [
            [given, [meant, offset]] for meant, (given, offset) in sorted(record.replacements.items())
        ],
        "fe_workspace_size": record.reserved_workspace,
        "tensors_to_dump": [],
        "gossamer": {
            "format": FORMAT,
            "graph": None if record.graph is None else json.dumps(record.graph, sort_keys=True, separators=(",", ":")),
            "mode": record.mode,
            "names": {str(uid): name for uid, name in sorted(record.names.items())},
            "numerical_notes": sorted(record.numerical_notes),
        },
        "gossamer_sha256": "0" * _DIGITS,
    }
    blank = ubjson.encode(document)
    digest = hashlib.sha256(blank).hexdigest().encode()
    return blank[: -_DIGITS - 1] + digest + blank[-1:]  # the digest is the last value of the last key


def decode(blob: bytes) -> PlanRecord:
    """What a plan's bytes hold; PlanError CORRUPT where they are no plan or a damaged one."""
    try:
        document = ubjson.decode(blob)
        if not isinstance(document, dict):
            raise ValueError("they are no object")
        if document.get("json_version") != JSON_VERSION:
            raise ValueError(f"json_version is {document.get('json_version')!r}, not {JSON_VERSION!r}")
        _check_digest(blob, document)
        return _record(document)
    except (ValueError, TypeError, KeyError, AttributeError, IndexError, OverflowError) as error:
        what = f"no {error}" if isinstance(error, KeyError) else error
        raise PlanError("CORRUPT", f"these {len(blob)} bytes are no plan, or a damaged one: {what}") from error


def _check_digest(blob: bytes, document: Mapping[str, Any]) -> None:
    digest = document.get("gossamer_sha256")
    if ("gossamer" in document) != (digest is not None):
        raise ValueError("the checksum, or what it belongs to, is missing")
    if digest is None:
        return  # from NVIDIA's frontend, which has none
    if not isinstance(digest, str) or len(digest) != _DIGITS or blob[-_DIGITS - 1 : -1] != digest.encode():
        raise ValueError("the checksum is not where it belongs")
    if hashlib.sha256(blob[: -_DIGITS - 1] + b"0" * _DIGITS + blob[-1:]).hexdigest() != digest:
        raise ValueError("the checksum differs")


def _record(document: Mapping[str, Any]) -> PlanRecord:
    text = document.get("cudnn_backend_data")
    backend = None if text is None else read_backend_plan(_of(str, text).encode())
    own = _of(dict, document.get("gossamer", {"format": FORMAT}))
    if own["format"] != FORMAT:
        raise ValueError(f"format {own['format']!r}; this Gossamer reads format {FORMAT}")
    placed, reserved = _placed(document)
    names = {int(uid): _of(str, name) for uid, name in own.get("names", _names(document)).items()}
    notes = document.get("behavior_notes") or [[]]
    graph = own.get("graph")
    record = PlanRecord(
        backend,
        behavior_notes=frozenset(_of(str, note) for note in notes[0]),
        numerical_notes=frozenset(_of(str, note) for note in own.get("numerical_notes", ())),
        mode=_of(str, own.get("mode", "")),
        scalars={int(uid): _scalar(value) for uid, value in document.get("pass_by_values", {}).items()},
        names=names,
        replacements=_replacements(document.get("variant_pack_replacements") or []),
        placed=placed,
        reserved_workspace=reserved,
        graph=None if graph is None else _of(dict, json.loads(_of(str, graph))),
    )
    _check_uids(document, record)
    return record


def _check_uids(document: Mapping[str, Any], record: PlanRecord) -> None:
    """Everything that the document says about tensors is about tensors that the backend's plan has."""
    if record.backend is None:
        return
    tensors = record.backend.tensors
    if listed := set(map(_whole, document["variant_pack_uids"])) - tensors.keys():
        raise ValueError(f"the variant pack has tensors {sorted(listed)}, which the plan has not")
    for uid in record.scalars:
        if uid in tensors and not tensors[uid].by_value:
            raise ValueError(f"tensor {uid} has a value, and the plan has it in memory")
    for uid, (_, offset) in record.replacements.items():
        if uid not in tensors or offset < 0:
            raise ValueError(f"tensor {uid} is to be found at offset {offset} of another")


def read_backend_plan(text: bytes) -> BackendPlan:
    """What the backend's JSON text says about itself. ValueError, KeyError or TypeError where it is none."""
    values = json.loads(text)
    profile, graph, engine = _of(dict, values["GPUProfile"]), values["operationGraph"], values["engine"]
    check_references(graph)
    tensors = (_backend_tensor(one) for one in graph["tensors"] if not one["isVirtual"])
    return BackendPlan(
        text,
        version=_whole(values["cudnnVersion"]),
        device=DeviceProperties(profile),
        engine=_whole(engine["engineId"]),
        tensors={tensor.uid: tensor for tensor in tensors},
    )


def check_references(graph: Mapping[str, Any]) -> None:
    """ValueError unless operations refer to tensors by uid: cuDNN ends the process where one is none, or unknown."""
    listed = [_of(str, one["name"]) for one in graph["tensors"]]
    names = set(listed)
    if len(names) != len(listed) or not all(_UID.fullmatch(name) and -(2**63) <= int(name) < 2**63 for name in names):
        raise ValueError(f"tensors are named {', '.join(listed)}")
    for node in graph["nodes"]:
        for key, value in node.items():
            if _refers(key, value) and value not in names:
                raise ValueError(f"{node['operation']} has the unknown tensor {value!r} as {key}")


def _refers(key: str, value: Any) -> bool:
    """Whether an operation's value is the name of a tensor; other texts are enums, by cuDNN's names."""
    return isinstance(value, str) and (_REFERRING.match(key) is not None or not value.startswith("CUDNN_"))


_UID = re.compile(r"-?[0-9]{1,19}", re.ASCII)
_REFERRING = re.compile(r"[A-Z]|mat[A-Z]|d[XYWB]$|.*Desc$")
"""Keys of an operation that hold a tensor's name: X, matA, dY, Scale, epsilonDesc."""

_DTYPE_OF = {value.name: name for name, value in DATA_TYPES.items()}


def _backend_tensor(values: Mapping[str, Any]) -> Tensor:
    dims, strides = (tuple(map(_whole, values[key])) for key in ("dim", "stride"))
    if not dims or len(dims) != len(strides) or min(dims) < 1:
        raise ValueError(f"tensor {values['name']} has dims {dims} and strides {strides}")
    return Tensor(
        uid=int(values["name"]),
        name="",
        dims=dims,
        strides=strides,
        dtype=_DTYPE_OF.get(values["dataType"], values["dataType"]),
        alignment=_whole(values["ptrAlignment"]),
        value=0 if values["isByValue"] else None,
    )


def _scalar_json(scalar: Scalar) -> dict[str, Any]:
    """As the frontend writes it: floats of up to 32 bits as the hexadecimal digits of a float32."""
    if scalar.dtype in ("float16", "bfloat16", "float32"):
        return {"index": _SCALAR_TYPES.index(scalar.dtype), "value": struct.pack(">f", scalar.value).hex().upper()}
    return {"index": _SCALAR_TYPES.index(scalar.dtype), "value": scalar.value}


def _scalar(values: Mapping[str, Any]) -> Scalar:
    index, value = _whole(values["index"]), values["value"]
    if not 0 <= index < len(_SCALAR_TYPES):
        raise ValueError(f"a scalar has type {index}")
    dtype = _SCALAR_TYPES[index]
    if isinstance(value, str):
        digits = bytes.fromhex(value)
        if len(digits) != 4:
            raise ValueError(f"a scalar has the value {value!r}")
        return Scalar(struct.unpack(">f", digits)[0], dtype)
    convert: Callable[[Any], float | int] = _whole if dtype.startswith("int") else float
    return Scalar(convert(value), dtype)


def _placed(document: Mapping[str, Any]) -> tuple[dict[int, int], int]:
    """Offsets of tensors in the frontend's own part of the workspace, and its size."""
    placed = {}
    for uid, (kind, offset, _) in document.get("workspace_modifications", {}).items():
        if _whole(kind) in (0, 1):  # filled by a copy or by zeros before each execution
            raise PlanError(
                "NOT_SUPPORTED",
                f"this plan of NVIDIA's frontend has it fill tensor {uid} before each execution; restore it there",
            )
        placed[int(uid)] = _whole(offset)
    reserved = _whole(document.get("fe_workspace_size", 0))
    if reserved < 0 or any(not 0 <= offset < reserved for offset in placed.values()):
        raise ValueError(f"a workspace of {reserved} bytes, and tensors at {sorted(placed.values())}")
    return placed, reserved


def _replacements(pairs: list[Any]) -> dict[int, tuple[int, int]]:
    """NVIDIA's pairs are (uid that is given, (uid that is meant, offset)); ours are by the uid that is meant."""
    return {_whole(meant): (_whole(given), _whole(offset)) for given, (meant, offset) in pairs}


def _names(document: Mapping[str, Any]) -> dict[str, str]:
    """Names of tensors as the frontend writes them, where it wrote the structure too."""
    return {str(one["uid"]): one["name"] for one in document.get("tensors", ()) if one.get("name")}


def _whole(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError(f"{value!r} is no whole number")
    return value


def _of(kind: type[T], value: Any) -> T:
    if not isinstance(value, kind):
        raise ValueError(f"{value!r} is no {kind.__name__}")
    return value
