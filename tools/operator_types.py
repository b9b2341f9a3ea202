"""Which element types a lowering takes, found by asking it: a test's model, with one type after another in it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import islice

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from gossamer.errors import UnsupportedModel
from gossamer.program import Target
from harness import lower_model

FLOATS = ("float16", "bfloat16", "float", "double")
INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
BYTES = ("int8", "uint8")
NARROW_INTEGERS = ("int2", "uint2", "int4", "uint4")
NARROW_FLOATS = (
    "float4e2m1",
    "float6e2m3",
    "float6e3m2",
    "float8e4m3fn",
    "float8e4m3fnuz",
    "float8e5m2",
    "float8e5m2fnuz",
)
GROUPS = {"floats": FLOATS, "integers": INTEGERS, "narrow integers": NARROW_INTEGERS, "narrow floats": NARROW_FLOATS}
ALL = (*FLOATS, *INTEGERS, "bool", *NARROW_INTEGERS, *NARROW_FLOATS, "float8e8m0")
NAMES = {"float": "float32", "double": "float64"}
"""ONNX's words for element types → ours."""
ENOUGH = 4
"""Cases that are asked of: a form that no type but one is allowed in should not speak for the operator."""


def types_taken(models: Iterable[onnx.ModelProto]) -> str:
    """The types of the data that models of one operator may have: `floats, int32, int64`."""
    found = {name for model in islice(models, ENOUGH) for name in _taken(model)}
    words = []
    for group, names in GROUPS.items():
        words += [group] if found >= set(names) else [NAMES.get(name, name) for name in names if name in found]
    return ", ".join([*words, *sorted(found.difference(*GROUPS.values()))])


def _taken(model: onnx.ModelProto) -> Iterator[str]:
    alike, allowed = _variable(model)
    for name in allowed:
        element = TensorProto.DataType.Value(name.upper())
        try:
            lower_model(_with(model, alike, element), Target.named("sm_90"))
        except UnsupportedModel:
            continue
        yield name


def _variable(model: onnx.ModelProto) -> tuple[set[str], Collection[str]]:
    """The inputs and outputs that have the type of the data, and the types that this may be.

    ONNX's own operators have schemas, of which the newest allows the most types: the data is what has the first
    output's type, or else the first input. Of others what has the first input's type is changed together.
    """
    node = model.graph.node[0]
    if node.domain or not onnx.defs.has(node.op_type):
        elements = {info.name: info.type.tensor_type.elem_type for info in (*model.graph.input, *model.graph.output)}
        elements |= {tensor.name: tensor.data_type for tensor in model.graph.initializer}
        element = elements[next(filter(None, node.input))]
        word = TensorProto.DataType.Name(element).lower()
        group = next((group for group in (FLOATS, BYTES) if word in group), (word,))
        return {name for name in elements if elements[name] == element}, group
    schema = onnx.defs.get_schema(node.op_type)
    inputs, outputs = _types_of(schema.inputs, node.input), _types_of(schema.outputs, node.output)
    first = schema.outputs[0].type_str
    variable = first if first in inputs.values() else schema.inputs[0].type_str
    sets = {one.type_param_str: frozenset(one.allowed_type_strs) for one in schema.type_constraints}
    words = sets.get(variable, {variable})
    allowed = [name for name in ALL if f"tensor({name})" in words]
    # Variables of the same types differ in name so that they may differ; kernels want the operands alike.
    return {name for name, kind in (inputs | outputs).items() if sets.get(kind, {kind}) == words}, allowed


def _types_of(formal: Sequence[onnx.defs.OpSchema.FormalParameter], actual: Sequence[str]) -> dict[str, str]:
    """Name → type by the schema, whose last parameter may stand for many."""
    return {name: formal[min(i, len(formal) - 1)].type_str for i, name in enumerate(actual) if name}


def _with(model: onnx.ModelProto, names: Collection[str], element: int) -> onnx.ModelProto:
    """The model with another element type of some inputs and outputs."""
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    for info in (*changed.graph.input, *changed.graph.output):
        if info.name in names:
            info.type.tensor_type.elem_type = element
    for tensor in changed.graph.initializer:
        if tensor.name in names:
            # By way of a float: ml_dtypes' 4-bit ones convert to nothing else.
            array = numpy_helper.to_array(tensor).astype(np.float64).astype(helper.tensor_dtype_to_np_dtype(element))
            tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    return changed
