"""CudnnCalls that were made elsewhere, for the cuDNN and the device that are here.

A plan is good for one version of cuDNN and one kind of device. The graph that it was made of, which every call keeps,
is good for all: a plan that does not fit is made anew from it.
"""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache, partial

from gossamer.cudnn import loader, plan_format
from gossamer.cudnn.device_properties import DeviceProperties
from gossamer.cudnn.graph import Graph
from gossamer.cudnn.plan_cache import Task, planned
from gossamer.cudnn.routines import GRAPH, routine_type
from gossamer.cudnn.routines.direct import DirectRoutine
from gossamer.diagnostics import logger
from gossamer.errors import PlanError
from gossamer.program import CudnnCall, Program

__all__ = ["fitted"]


def fitted(program: Program, properties: DeviceProperties) -> Program:
    """The Program with plans that this process's cuDNN takes for a device with these properties.

    Needs no handle and no device. PlanError, CudnnError say why cuDNN does not do one of the calls at all.
    """
    plan_of = cache(partial(_fitting, properties=properties))  # many calls have the same one
    calls = tuple(
        replace(call, plan=plan_of(call.routine, call.description, call.plan)) if isinstance(call, CudnnCall) else call
        for call in program.calls
    )
    return replace(program, calls=calls)


def _fitting(routine: str, description: str, plan: bytes, properties: DeviceProperties) -> bytes:
    """The plan of a call with these fields, or another one. Of a routine without plans there is none."""
    if routine != GRAPH:
        _require_routine(routine, description)
    elif not _is_taken(plan, properties):
        return planned(Task.from_dict(json.loads(description)), properties)[0].plan
    return plan


def _is_taken(plan: bytes, properties: DeviceProperties) -> bool:
    """Whether cuDNN restores a plan. One of another version it is not even asked about: it does not have to notice."""
    made_by = plan_format.decode(plan).backend
    if made_by is None or made_by.version != loader.load().version:
        return False
    try:
        Graph(properties=properties).deserialize(plan).close()
    except PlanError as error:
        logger.debug("a cuDNN plan is made anew: %s", error)
        return False
    return True


def _require_routine(routine: str, description: str) -> None:
    kind = routine_type(routine)
    assert issubclass(kind, DirectRoutine), f"{kind} is no routine of cuDNN's direct API"
    if objection := kind.objection(loader.load(), kind.dtype_of(json.loads(description))):
        raise PlanError("NOT_SUPPORTED", objection)
