"""What nodes become with a real cuDNN, as JSON can say it. The tests' child processes import it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir

from cases import attention, contrib_convolution, convolution
from cases.node_case import NodeCase
from gossamer.cudnn import DeviceProperties, Graph, driver_stand_in
from gossamer.model.node import Constants, Scope
from gossamer.place import CUDA, Placement, place
from gossamer.program import CudnnCall, Target, Unavailable
from gossamer.providers.cudnn import Policy

OPERATORS = ("Conv", "ConvTranspose", "FusedConv", "NhwcConv", "Attention", "MultiHeadAttention")
POLICY = Policy(enabled=True, only=OPERATORS, attention=True)
SM_90 = Target.named("sm_90")
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)

driver_stand_in.load()


def convolutions(*dtypes: str) -> Iterator[convolution.Case]:
    every = (*convolution.PLAIN, *convolution.DEPTHWISE, *convolution.TRANSPOSED, *convolution.FUSED)
    for name in dtypes:
        dtype = BFLOAT16 if name == "bfloat16" else np.dtype(name)
        yield from (replace(case, dtype=dtype) for case in (*every, *convolution.CONTRIB))


def contributed() -> list[NodeCase]:
    return contrib_convolution.CASES


def attentions() -> Iterator[NodeCase]:
    """Those that cost a second each to compile, but for two, are left out."""
    named = {"FusedAttention-bert_1", "Attention-float16"}
    for case in (*attention.CASES, *attention.SPLIT, *attention.LARGE):
        half = case.inputs[0] is not None and case.inputs[0].dtype.itemsize == 2
        taken = case.op_type in ("Attention", "FusedAttention", "MultiHeadAttention") and "contrib" not in case.name
        if taken and (not half or case.name in named or "bias" in case.name):
            yield case


def placed(model: onnx.ModelProto, policy: Policy = POLICY, target: Target = SM_90) -> Placement:
    graph = ir.serde.deserialize_model(model)
    constants = Constants()
    for name, value in graph.graph.initializers.items():
        constants.register(name, value.const_value)
    return place(graph, [CUDA], target, Scope(constants, dict(graph.opset_imports)), policy=policy)


def of(cases: Iterable[Any], policy: Policy = POLICY, target: Target = SM_90) -> dict[str, list[Any]]:
    """Case → its calls: of a plan, restored from its bytes, notes and so on; of what does not go, the reason."""
    properties = DeviceProperties.named(target.name)
    described = {}
    for case in cases:
        model = case.model()[0] if isinstance(case, convolution.Case) else case.model()
        (node,) = placed(model, policy, target).nodes
        described[str(case)] = [_described(call, properties) for call in node.calls]
    return described


def _described(call: Any, properties: DeviceProperties) -> Any:
    if isinstance(call, Unavailable):
        return call.reason
    if not isinstance(call, CudnnCall):
        return type(call).__name__
    with Graph(properties=properties).deserialize(call.plan, enforce_precompiled=True) as plan:
        return {
            "mode": plan.mode,
            "notes": sorted(plan.behavior_notes | plan.numerical_notes),
            "workspace": plan.workspace_size,
            "bound": sorted(tensor.name for tensor in plan.tensors.values() if not tensor.by_value),
            "roles": sorted(role for role, _ in call.arguments),
        }
