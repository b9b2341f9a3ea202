"""Triton kernels by family. In each file kernel, launch choice and lowering stand together.

A lowering is a function `(node, target) -> tuple[Call, ...] | Refusal`, registered with `@lowers`; `launch` turns a kernel and
its arguments into a Launch. Kernels must not use `from __future__ import annotations`' string types in ways Triton
cannot see: `tl.constexpr` annotations are matched by name, which both forms satisfy.
"""

import pkgutil

from gossamer.kernels.launch import Address, launch
from gossamer.kernels.registry import Lowered, find, lowers, registered

FAMILIES = tuple(m.name for m in pkgutil.iter_modules(__path__) if m.name not in ("launch", "registry"))
"""The modules that register lowerings."""

__all__ = ["FAMILIES", "Address", "Lowered", "find", "launch", "lowers", "registered"]
