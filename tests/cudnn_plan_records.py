"""One plan as cuDNN describes it, for tests that have no cuDNN."""

from __future__ import annotations

import json
from typing import Any

from gossamer.cudnn import DeviceProperties, plan_format
from gossamer.cudnn.plan_format import PlanRecord, Scalar


def backend(**changes: Any) -> bytes:
    """The backend's text for y = x · s on an H200, as cuDNN 9.28 writes it."""
    tensor = {"dim": [2, 3], "stride": [3, 1], "isVirtual": False, "isByValue": False, "ptrAlignment": 16}
    tensors = [
        tensor | {"name": "1", "dataType": "CUDNN_DATA_HALF"},
        tensor | {"name": "2", "dataType": "CUDNN_DATA_FLOAT", "dim": [1, 1], "stride": [1, 1], "isByValue": True},
        tensor | {"name": "3", "dataType": "CUDNN_DATA_HALF"},
        tensor | {"name": "9", "dataType": "CUDNN_DATA_FLOAT", "isVirtual": True},
    ]
    node = {"operation": "CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR", "pointwiseMode": "CUDNN_POINTWISE_MUL"}
    values = {
        "cudnnVersion": 92801,
        "operationGraph": {"tensors": tensors, "nodes": [node | {"X": "1", "B": "2", "Y": "3"}]},
        "GPUProfile": DeviceProperties.named("h200").values,
        "engine": {"engineId": 7},
    }
    return json.dumps(values | changes).encode()


RECORD = PlanRecord(
    plan_format.read_backend_plan(backend()),
    behavior_notes=frozenset(("RUNTIME_COMPILATION", "SUPPORTS_CUDA_GRAPH_NATIVE_API")),
    numerical_notes=frozenset(("TENSOR_CORE",)),
    mode="A",
    scalars={2: Scalar(0.125, "float32")},
    names={1: "x", 3: "y"},
    graph={"format": 1, "name": "é"},
)
