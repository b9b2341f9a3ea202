"""What stands for a node in shape inference: operators of ONNX with outputs of the same types and shapes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import onnx_ir as ir

Operand: TypeAlias = "ir.Value | str | None"
"""A value of the model, the name of one that a stand-in makes for itself, or an omitted one."""


@dataclass(frozen=True, slots=True)
class StandIn:
    """One operator of ONNX, as of `stand_ins.OPSET`."""

    op_type: str
    inputs: Sequence[Operand]
    outputs: Sequence[Operand]
    attributes: Sequence[ir.Attr] = ()
