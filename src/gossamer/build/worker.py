"""A compile worker: reads kernels as JSON lines, answers with machine code as JSON lines.

Runs in a process of its own, because Triton either interprets or compiles in one process, and because compiling in
several processes uses all cores. Start: `python -I -c BOOT` (see `compilation`), first line `sys.path`.
"""

from __future__ import annotations

import base64
import importlib
import json
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from typing import Any


def main() -> None:
    """Serves until standard input ends. Answers go to the original standard output; the compiler's prints do not."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    with tempfile.TemporaryDirectory(prefix="gossamer-triton-") as scratch:
        os.environ["TRITON_CACHE_DIR"] = scratch  # the byte cache is ours; Triton's own would only grow
        os.environ["TRITON_DISABLE_LINE_INFO"] = "1"  # it holds paths: code shall be the same wherever its source lies
        for line in sys.stdin:
            answers.write(json.dumps(_answer(json.loads(line))) + "\n")


def _answer(request: dict[str, Any]) -> dict[str, Any]:
    try:
        return _compile(request)
    except Exception as error:  # whatever stops the compiler is the answer; the asking process raises it
        return {"error": "\ncaused by ".join(f"{type(cause).__name__}: {cause}" for cause in _chain(error))}


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """An error and what led to it: Triton's outermost one names the call, the innermost the reason."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _compile(request: dict[str, Any]) -> dict[str, Any]:
    """request: the fields of a `Kernel`, arch (compute capability × 10), ptx (whether the answer has the PTX, too)."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.backends.nvidia.compiler import get_ptxas_version
    from triton.compiler import ASTSource

    module_name, _, function_name = request["name"].rpartition(".")
    function = getattr(importlib.import_module(f"gossamer.kernels.{module_name}"), function_name)
    types, constants, attributes = _specialise(function.arg_names, request)
    source = ASTSource(fn=function, signature=types, constexprs=constants, attrs=attributes)
    compiled = triton.compile(source, target=GPUTarget("cuda", request["arch"], 32), options=_options(request))
    metadata = compiled.metadata
    return {
        "header": {
            "function": metadata.name,
            "arch": request["arch"],
            "num_warps": metadata.num_warps,
            "shared_bytes": metadata.shared,
            "scratch_bytes": metadata.global_scratch_size,
            "scratch_alignment": metadata.global_scratch_align,
            "tensor_maps": [_tensor_map(layout) for layout in getattr(metadata, "tensordesc_meta", None) or ()],
            "triton": triton.__version__,
            "ptxas": _release(get_ptxas_version(request["arch"])),
        },
        "code": base64.b64encode(compiled.asm["cubin"]).decode(),
        "ptx": compiled.asm["ptx"] if request.get("ptx") else "",
    }


def _release(ptxas: str) -> str:
    """`12.9.86` from what ptxas says of itself: `… release 12.9, V12.9.86 …`."""
    found = re.search(r"\bV(\d[\w.]*)", ptxas)
    return found[1] if found else ptxas.strip()


def _options(request: dict[str, Any]) -> dict[str, Any]:
    """Every option on which Triton versions differ in their defaults is set here."""
    return {
        "num_warps": request["num_warps"],
        "num_stages": request["num_stages"],
        "num_ctas": 1,
        "enable_fp_fusion": True,
        "enable_reflect_ftz": False,
        "launch_cooperative_grid": request["cooperative"],
        "launch_pdl": False,
        "default_dot_input_precision": "ieee",
        "sanitize_overflow": False,
        "debug": False,
    }


def _specialise(
    arg_names: list[str], request: dict[str, Any]
) -> tuple[dict[str, Any], dict[tuple[int, ...], Any], dict[tuple[int, ...], Any]]:
    """Triton's types, constants and attributes by path from the type names of `Kernel.signature`."""
    given, constant_values = dict(request["signature"]), dict(request["constants"])
    types: dict[str, Any] = {}
    constants: dict[tuple[int, ...], Any] = {}
    attributes: dict[tuple[int, ...], Any] = {}

    def convert(type_name: Any, path: tuple[int, ...]) -> Any:
        if isinstance(type_name, list):
            return tuple(convert(item, (*path, i)) for i, item in enumerate(type_name))
        if type_name in ("1", "none"):
            constants[path] = 1 if type_name == "1" else None
            return "constexpr"
        base, _, divisor = type_name.partition(":")
        if divisor:
            attributes[path] = [["tt.divisibility", int(divisor)]]
        return base.replace(" ", "")

    for index, name in enumerate(arg_names):
        if name in constant_values:
            types[name] = "constexpr"
            constants[(index,)] = _tuples(constant_values[name])
        else:
            types[name] = convert(given[name], (index,))
    return types, constants, attributes


def _tuples(value: Any) -> Any:
    """JSON's lists as tuples. Inside tuples, Triton 3.6 takes texts and tuples only as its own objects, 3.9 either."""
    import triton.language as tl

    if not isinstance(value, list):
        return value
    return tuple(tl.tuple(_tuples(item)) if isinstance(item, list) else tl.constexpr(item) for item in value)


def _tensor_map(layout: dict[str, Any]) -> dict[str, Any]:
    return {
        "swizzle": layout["swizzle"],
        "element_size": layout["elem_size"],
        "element_type": layout["elem_type"],
        "box": list(layout["block_size"]),
        "fp4_padded": bool(layout.get("fp4_padded", False)),
    }
