"""Weights as one safetensors member: written piece by piece, read in place.

The safetensors package reads files, not members of a zip, and copies; the format is a length, a JSON header and the
data (https://huggingface.co/docs/safetensors, "Format"). What it has no type for is stored as bytes and named in the
header's metadata. Larger elements come first, so that every tensor is aligned to its elements.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from gossamer.errors import ArtifactError, InvalidArgument
from gossamer.program import strict_json
from gossamer.program.archive import ALIGNMENT, Chunks
from gossamer.program.buffers import dtype_from_file, dtype_of

_METADATA = "__metadata__"
_TYPES: Mapping[str, str] = {
    "bool": "BOOL",
    "uint8": "U8",
    "int8": "I8",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
    "uint16": "U16",
    "int16": "I16",
    "float16": "F16",
    "bfloat16": "BF16",
    "uint32": "U32",
    "int32": "I32",
    "float32": "F32",
    "uint64": "U64",
    "int64": "I64",
    "float64": "F64",
}
"""dtype → safetensors' name for it."""
_DTYPES: Mapping[str, str] = {name: dtype for dtype, name in _TYPES.items()}


def tensor_chunks(tensors: Mapping[str, np.ndarray]) -> Chunks:
    """The bytes of a safetensors file. Each tensor is asked for once here and once per reading, and held no longer.

    Raises InvalidArgument for a tensor that is no plain data, or of a name that the format keeps for itself.
    """
    if _METADATA in tensors:
        raise InvalidArgument(f"no constant of a compiled model can have the name '{_METADATA}'")
    specs = {key: _spec(key, tensors[key]) for key in tensors}
    order = sorted(specs, key=lambda key: (-specs[key][0].itemsize, key))
    header = _header({key: specs[key] for key in order})

    def chunks() -> Iterator[bytes | memoryview]:
        yield header
        for key in order:
            array = np.ascontiguousarray(tensors[key])
            if array.size:
                yield array.reshape(-1).view(np.uint8).data

    return chunks


def _spec(key: str, array: np.ndarray) -> tuple[np.dtype, tuple[int, ...]]:
    try:
        known = dtype_of(array.dtype.name) == array.dtype and not array.dtype.hasobject
    except TypeError:
        known = False
    if not known:
        raise InvalidArgument(f"constant '{key}' is of dtype {array.dtype}, which compiled models cannot hold")
    return array.dtype, array.shape


def _header(specs: Mapping[str, tuple[np.dtype, tuple[int, ...]]]) -> bytes:
    """The length and the JSON header, filled up with spaces so that the data are aligned."""
    entries: dict[str, Any] = {}
    foreign = {
        key: f"{dtype.name}:{','.join(map(str, shape))}"
        for key, (dtype, shape) in specs.items()
        if dtype.name not in _TYPES
    }
    if foreign:
        entries[_METADATA] = foreign
    begin = 0
    for key, (dtype, shape) in specs.items():
        end = begin + math.prod(shape) * dtype.itemsize
        stored = [end - begin] if key in foreign else list(shape)
        entry = {"dtype": _TYPES.get(dtype.name, "U8"), "shape": stored, "data_offsets": [begin, end]}
        entries[key], begin = entry, end
    return _framed(json.dumps(entries, separators=(",", ":")).encode())


def _framed(header: bytes) -> bytes:
    header += b" " * (-(8 + len(header)) % ALIGNMENT)
    return len(header).to_bytes(8, "little") + header


def read_tensors(data: memoryview) -> dict[str, np.ndarray]:
    """The tensors of a safetensors file, as read-only arrays over `data`. Raises ArtifactError (MALFORMED)."""
    try:
        header_bytes = int.from_bytes(data[:8], "little")
        header = strict_json.parse(bytes(data[8 : 8 + header_bytes]))
        foreign = header.pop(_METADATA, {})
        arrays, position = {}, 8 + header_bytes
        for key, entry in header.items():
            dtype, shape = _type_of(entry, foreign.get(key))
            end = position + math.prod(shape) * dtype.itemsize
            if entry["data_offsets"] != [position - 8 - header_bytes, end - 8 - header_bytes]:
                raise ValueError(f"'{key}', {dtype}{list(shape)}, is not at byte {position}")
            arrays[key] = np.ndarray(shape, dtype, buffer=data, offset=position)
            position = end
        if position != len(data):
            raise ValueError(f"{len(data) - position} bytes follow the last tensor")
    except (ValueError, OverflowError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ArtifactError("MALFORMED", f"the weights cannot be read: {error!r}") from None
    return arrays


def _type_of(entry: Mapping[str, Any], foreign: str | None) -> tuple[np.dtype, tuple[int, ...]]:
    if foreign is None:
        dtype, shape = dtype_of(_DTYPES[entry["dtype"]]), tuple(entry["shape"])
    else:
        name, _, sizes = foreign.partition(":")
        dtype, shape = dtype_from_file(name), tuple(int(size) for size in sizes.split(",") if size)
    if dtype.hasobject or not all(type(size) is int and size >= 0 for size in shape):
        raise ValueError(f"{dtype}{list(shape)} is no tensor")
    return dtype, shape
