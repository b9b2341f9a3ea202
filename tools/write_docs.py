"""Write the documents that code can print: those of `DOCUMENTS`, in docs/.

`python tools/write_docs.py` writes them; `--check` writes nothing and fails, naming each one that is not current.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

import onnx

import cudnn_reference
import requirements
from gossamer import kernels, options, settings

ROOT = Path(__file__).resolve().parents[1]
UNTESTED = "none"

_MADE_BY_FUSION = """Made by passes, never read from files: an operator with what follows it (bias, residual,
activation), and chains of elementwise operators."""
_MADE_BY_LAYOUT = """Made by the pass `channels_last`, never read from files: ONNX's operators, and the fused ones, on
activations of shape n, spatial…, c; weights and attributes are as in ONNX."""
_ABOUT_OPERATORS = """\
# Operators on the GPU

Printed from the registry of lowerings.

* *Since*: the first opset version that the lowering takes, and all later ones up to another row's.
* *Types*: the element types of the data that the lowering takes (of the first input of the first output's type, or else
  of the first input), of those that ONNX allows; `floats` are float16, bfloat16, float32 and float64, `integers` those
  with and without sign of 8 to 64 bits, `narrow integers` those of 2 and 4 bits, `narrow floats` those of 4 to 8
  (float8e8m0, which has powers of two only, by itself). Found by asking it about the cases. An element of less than 8
  bits takes a byte, in the device's memory and in the arrays that a session takes and gives, which are of ml_dtypes'
  types.
* *Cases*: where in `tests/cases` the operator's cases are; they run in the interpreter and on GPUs.

A lowering may refuse a form of its operator (a type, a shape that depends on data): `gossamer inspect MODEL` names each
refusal with its reason. What has no row here, or is refused, runs on `CPUExecutionProvider` where that is listed."""

DOMAINS = {
    "": ("ONNX", "Operators of ONNX's own domain."),
    "com.microsoft": ("com.microsoft", "onnxruntime's operators, as its optimisers and exporters write them."),
    "gossamer": ("gossamer", _MADE_BY_FUSION),
    "gossamer.nhwc": ("gossamer.nhwc", _MADE_BY_LAYOUT),
}
"""Domain → title and text of its section."""


def env_vars() -> str:
    """The environment variables."""
    return settings.as_markdown()


def provider_options() -> str:
    """The CUDA provider's options, and onnxruntime's that have no effect or are refused."""
    lines = [
        "# Provider options",
        "",
        "Printed from the tables in `src/gossamer/options.py`. Options are given as in onnxruntime:",
        '`providers=[("CUDAExecutionProvider", {"use_tf32": 0}), "CPUExecutionProvider"]`; on the command line as',
        "`--option use_tf32=0`. A name that does not exist is refused, with the nearest one that does.",
        "",
        "## CUDAExecutionProvider",
        "",
        options.as_markdown(),
        "## onnxruntime's options without effect",
        "",
        "They are accepted, so that option dictionaries written for onnxruntime keep working.",
        "",
        "| option | why it has no effect |",
        "|---|---|",
        *(
            f"| `{name}` | {reason} |"
            for name, reason in sorted(options.IGNORED.items())
            if name not in options.REFUSED
        ),
        "",
        "## onnxruntime's options that are refused",
        "",
        "| option | why |",
        "|---|---|",
        *(f"| `{name}` | {reason} |" for name, reason in sorted(options.REFUSED.items())),
        "",
        "## CPUExecutionProvider",
        "",
        "None; its threads are `SessionOptions.intra_op_num_threads` and `inter_op_num_threads`.",
    ]
    return "\n".join(lines) + "\n"


@cache
def operators() -> str:
    """The operators that run on the GPU, by domain."""
    sys.path.insert(0, str(ROOT / "tests"))
    from operator_types import types_taken

    rows = list(kernels.registered())
    lines = [_ABOUT_OPERATORS]
    for domain, (title, text) in DOMAINS.items():
        mine = [row for row in rows if row[0] == domain]
        lines += [
            "",
            f"## {title}",
            "",
            text,
            "",
            "| operator | since | types | lowering | cases |",
            "|---|---|---|---|---|",
        ]
        for _, op_type, since, lowering in mine:
            family = lowering.__module__.removeprefix("gossamer.")
            modules = cases().get((domain, op_type), {})
            types = types_taken(map(_model, chain.from_iterable(modules.values())))
            where = ", ".join(f"`{module}`" for module in modules) or UNTESTED
            lines.append(f"| {op_type} | {since} | {types} | `{family}` | {where} |")
    unknown = {row[0] for row in rows} - DOMAINS.keys()
    assert not unknown, f"no section for domains {unknown}"
    return "\n".join(lines) + "\n"


@cache
def cases() -> dict[tuple[str, str], dict[str, list[Any]]]:
    """(domain, operator) → the modules of tests/cases that have cases of it, each with these cases."""
    found: dict[tuple[str, str], dict[str, list[Any]]] = {}
    for path in sorted((ROOT / "tests" / "cases").glob("*.py")):
        module = importlib.import_module(f"cases.{path.stem}")
        for case in _cases_in(vars(module).values()):
            found.setdefault((getattr(case, "domain", ""), case.op_type), {}).setdefault(path.stem, []).append(case)
    return found


def _cases_in(values: Iterable[object]) -> Iterator[Any]:
    """Of the cases in lists of cases: whatever has an operator."""
    for group in values:
        for case in group if isinstance(group, (list, tuple)) else ():
            if hasattr(case, "op_type"):
                yield case


def _model(case: Any) -> onnx.ModelProto:
    model = case.model()
    return model[0] if isinstance(model, tuple) else model


DOCUMENTS: dict[str, Callable[[], str]] = {
    "cudnn_reference.md": cudnn_reference.as_markdown,
    "env_vars.md": env_vars,
    "operators.md": operators,
    "provider_options.md": provider_options,
    "requirements.md": requirements.as_markdown,
}


def stale(folder: Path) -> list[str]:
    """The documents in a folder that are not what code would print now."""
    return [
        name
        for name, text in DOCUMENTS.items()
        if not (folder / name).exists() or (folder / name).read_text(encoding="utf-8") != text()
    ]


def main() -> None:
    """Write, or check."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing; fail where a document is not current")
    check = parser.parse_args().check
    names = stale(ROOT / "docs")
    if check and names:
        sys.exit(f"not current: {', '.join(names)}; run python tools/write_docs.py")
    for name in names:
        (ROOT / "docs" / name).write_text(DOCUMENTS[name](), encoding="utf-8")
        print(f"wrote docs/{name}")


if __name__ == "__main__":
    main()
