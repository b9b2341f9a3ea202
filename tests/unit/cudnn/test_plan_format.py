"""Plans as bytes, without cuDNN: what is written is read again, in both its own form and that of NVIDIA's frontend."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from typing import Any

import pytest

from cudnn_plan_records import RECORD, backend
from gossamer.cudnn import DeviceProperties, plan_format, ubjson
from gossamer.cudnn.plan_format import PlanRecord, Scalar
from gossamer.errors import PlanError


def test_backend_text() -> None:
    plan = RECORD.backend
    assert plan is not None
    assert (plan.version, plan.engine, plan.device) == (92801, 7, DeviceProperties.named("h200"))
    assert {uid: (one.dims, one.dtype, one.by_value, one.alignment) for uid, one in plan.tensors.items()} == {
        1: ((2, 3), "float16", False, 16),
        2: ((1, 1), "float32", True, 16),
        3: ((2, 3), "float16", False, 16),
    }


@pytest.mark.parametrize(
    "record",
    [
        RECORD,
        PlanRecord(None, graph={"format": 1}),
        replace(RECORD, scalars={2: Scalar(-3, "int64")}, graph=None),
        replace(RECORD, placed={3: 256}, reserved_workspace=512, replacements={3: (17, 64)}),
        replace(RECORD, scalars={2: Scalar(0.1, "float64")}, names={}, behavior_notes=frozenset()),
    ],
)
def test_round_trip(record: PlanRecord) -> None:
    """R10.9: the record, and the bytes."""
    blob = plan_format.encode(record)
    assert plan_format.decode(blob) == record
    assert plan_format.encode(plan_format.decode(blob)) == blob


def test_the_frontend_finds_its_own_names() -> None:
    """R10.10: what NVIDIA's Graph::deserialize reads, in its types."""
    document = ubjson.decode(plan_format.encode(RECORD))
    assert document["json_version"] == "2.0"
    assert document["cudnn_backend_data"].encode() == backend()
    assert document["variant_pack_uids"] == [1, 2, 3]
    assert document["behavior_notes"] == [["RUNTIME_COMPILATION", "SUPPORTS_CUDA_GRAPH_NATIVE_API"]]
    assert document["pass_by_values"] == {"2": {"index": 3, "value": "3E000000"}}
    assert document["variant_pack_replacements"] == document["tensors_to_dump"] == []
    assert (document["workspace_modifications"], document["fe_workspace_size"]) == ({}, 0)


def theirs(**changes: Any) -> bytes:
    """A plan as NVIDIA's frontend writes it, without a checksum."""
    document = {name: value for name, value in ubjson.decode(plan_format.encode(RECORD)).items() if "goss" not in name}
    more = {"cudnn_frontend_version": 13200, "tensors": [{"uid": 1, "name": "image"}, {"uid": 3}]}
    return ubjson.encode(document | more | changes)


def test_plans_of_the_frontend() -> None:
    record = plan_format.decode(theirs())
    assert record.names == {1: "image"}
    assert record.scalars == RECORD.scalars
    assert record.behavior_notes == RECORD.behavior_notes
    assert (record.mode, record.graph) == ("", None)


def test_plans_that_the_frontend_has_to_run() -> None:
    """Tensors that it fills before each execution are its own affair."""
    with pytest.raises(PlanError, match="restore it there") as raised:
        plan_format.decode(theirs(workspace_modifications={"3": [0, 0, [1.0]]}, fe_workspace_size=4))
    assert raised.value.reason == "NOT_SUPPORTED"


@pytest.mark.parametrize(
    "changes",
    [
        {"json_version": "3.0"},
        {"cudnn_backend_data": 5},
        {"cudnn_backend_data": "{}"},
        {"cudnn_backend_data": backend(cudnnVersion="9").decode()},
        {"cudnn_backend_data": backend(GPUProfile={"deviceVer": 900}).decode()},
        {"cudnn_backend_data": backend(engine=[]).decode()},
        {"cudnn_backend_data": backend(operationGraph={"tensors": [{"name": "x"}], "nodes": []}).decode()},
        {"variant_pack_uids": [1, 2, 3, 4]},
        {"variant_pack_uids": None},
        {"pass_by_values": {"2": {"index": 6, "value": 1}}},
        {"pass_by_values": {"2": {"index": 3, "value": "3E00"}}},
        {"pass_by_values": {"1": {"index": 3, "value": "3E000000"}}},
        {"pass_by_values": {"two": {"index": 3, "value": "3E000000"}}},
        {"workspace_modifications": {"3": [2, 64, []]}, "fe_workspace_size": 64},
        {"variant_pack_replacements": [[1, [8, 0]]]},
        {"behavior_notes": [[5]]},
        {"gossamer": {"format": 1}},
        {"gossamer_sha256": "0" * 64},
    ],
)
def test_what_is_no_plan(changes: dict[str, Any]) -> None:
    with pytest.raises(PlanError) as raised:
        plan_format.decode(theirs(**changes))
    assert raised.value.reason == "CORRUPT"


def test_references_that_would_end_the_process() -> None:
    """R10.9: cuDNN turns tensors' names into numbers and does not look whether they are any."""
    graph = json.loads(backend())["operationGraph"]
    for place, key, value in (
        ("nodes", "X", "x"),
        ("nodes", "B", "4"),
        ("nodes", "Y", ""),
        ("tensors", "name", "9" * 30),
    ):
        changed = json.loads(json.dumps(graph))
        changed[place][0][key] = value
        with pytest.raises(ValueError, match="tensor"):
            plan_format.read_backend_plan(backend(operationGraph=changed))


def test_every_byte_is_guarded() -> None:
    """R10.9: any bit, anywhere; any end."""
    blob = plan_format.encode(RECORD)
    for at in range(len(blob)):
        for damaged in (blob[:at], blob[:at] + bytes([blob[at] ^ 1 << at % 8]) + blob[at + 1 :]):
            with pytest.raises(PlanError) as raised:
                plan_format.decode(damaged)
            assert raised.value.reason == "CORRUPT"


def test_newer_formats_are_refused() -> None:
    document = ubjson.decode(plan_format.encode(RECORD))
    document["gossamer"]["format"] = 2
    document["gossamer_sha256"] = "0" * 64
    blank = ubjson.encode(document)
    digest = hashlib.sha256(blank).hexdigest().encode()
    with pytest.raises(PlanError, match="format 2; this Gossamer reads format 1"):
        plan_format.decode(blank[:-65] + digest + blank[-1:])
