"""Write the documents that code can print: docs/env_vars.md, docs/operators.md, docs/provider_options.md.

`python tools/write_docs.py` writes them; `--check` writes nothing and fails, naming each one that is not current.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

from gossamer import kernels, options, settings

ROOT = Path(__file__).resolve().parents[1]
CASES = ROOT / "tests" / "cases"
UNTESTED = "none"

_MADE_BY_FUSION = """Made by passes, never read from files: an operator with what follows it (bias, residual,
activation), and chains of elementwise operators."""
_MADE_BY_LAYOUT = """Made by the pass `channels_last`, never read from files: ONNX's operators, and the fused ones, on
activations of shape n, spatial…, c; weights and attributes are as in ONNX."""
_ABOUT_OPERATORS = """\
# Operators on the GPU

Printed from the registry of lowerings.

* *Since*: the first opset version that the lowering takes, and all later ones up to another row's.
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


def operators() -> str:
    """The operators that run on the GPU, by domain."""
    rows = list(kernels.registered())
    lines = [_ABOUT_OPERATORS]
    for domain, (title, text) in DOMAINS.items():
        mine = [row for row in rows if row[0] == domain]
        lines += ["", f"## {title}", "", text, "", "| operator | since | lowering | cases |", "|---|---|---|---|"]
        for _, op_type, since, lowering in mine:
            family = lowering.__module__.removeprefix("gossamer.")
            lines.append(f"| {op_type} | {since} | `{family}` | {', '.join(cases_of(op_type)) or UNTESTED} |")
    unknown = {row[0] for row in rows} - DOMAINS.keys()
    assert not unknown, f"no section for domains {unknown}"
    return "\n".join(lines) + "\n"


def cases_of(op_type: str) -> Iterator[str]:
    """The modules of tests/cases that name an operator."""
    for name, words in _words_of_cases().items():
        if op_type in words:
            yield f"`{name}`"


@cache
def _words_of_cases() -> dict[str, frozenset[str]]:
    texts = {path.stem: path.read_text(encoding="utf-8") for path in sorted(CASES.glob("*.py"))}
    return {name: frozenset(re.findall(r"\w+", text)) for name, text in texts.items()}


DOCUMENTS: dict[str, Callable[[], str]] = {
    "env_vars.md": env_vars,
    "operators.md": operators,
    "provider_options.md": provider_options,
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
