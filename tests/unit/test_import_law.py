"""The import law: folders depend on each other in one direction, and foreign libraries come in through doors.

Every import counts, wherever it stands: inside functions and under TYPE_CHECKING too. A type is a dependency as well.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import gossamer

PACKAGE = Path(gossamer.__file__).parent

LAYERS: tuple[tuple[str, ...], ...] = (
    ("errors",),
    ("settings",),
    ("diagnostics", "options"),
    ("program",),
    ("cudnn",),
    ("custom_ops",),
    ("execution",),
    ("compiled_model",),  # what stands above needs onnx or Triton, which a compiled model runs without
    ("model",),
    ("kernels",),
    ("providers",),  # cuDNN's shares geometry with the kernels, and ends in one where its graphs know no activation
    ("place",),
    ("build",),
    ("compiler",),
    ("engines",),
    ("session",),
    ("ahead_of_time",),
    ("backend",),
    ("cli",),
    ("__main__",),
    ("__main__",),
    ("gossamer",),  # the package itself, which names what is public
)
"""A module imports only from its own part and from layers before it."""

RUN_IMPORTS = {"errors", "settings", "diagnostics", "options", "program", "cudnn", "custom_ops", "run"}
"""A compiled file runs without onnx, onnx_ir or Triton, so `run` stands beside the compiler and knows nothing of it."""
IMPORTS_RUN = {"run", "execution", "compiled_model", "engines", "session", "cli"}
"""Who may hand Programs to `run`."""

DOORS = {
    "onnx": ("model/",),
    "onnx_ir": (
        *("model/", "kernels/", "providers/", "place.py", "build/", "compiler.py", "engines.py"),
        "ahead_of_time.py",
    ),
    "triton": ("kernels/", "build/", "run/interpreter.py"),
    "onnxruntime": ("run/host.py",),
    # DLPack capsules are C structs; dlpack.py says so at its top.
    "ctypes": ("cudnn/", "run/dlpack.py"),
    "cuda": ("run/",),
    "torch": (),
}
"""Foreign module → the files that may import it."""

COMPUTED_IMPORTS = {
    "__init__.py": "public names are imported when they are first used",
    "cudnn/__init__.py": "so are those of people who use cuDNN without ONNX",
    "kernels/registry.py": "families register themselves when they are imported",
    "providers/cudnn/__init__.py": "so do cuDNN's, when a node asks for one",
    "cudnn/routines/__init__.py": "a call names its routine, of which a process needs few",
    "build/worker.py": "a worker is told the kernel to compile by name",
    "run/interpreter.py": "a Launch names its kernel; without a GPU, its Triton source is what runs",
}
"""Files that import modules by computed names, and why."""


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def sources() -> list[str]:
    return sorted(path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py"))


def part_of(source: str) -> str:
    """`run/cuda.py` → run, `place.py` → place, `__init__.py` → gossamer."""
    return "gossamer" if source == "__init__.py" else source.partition("/")[0].removesuffix(".py")


def modules_imported(source: str) -> Iterator[str]:
    """Absolute names of the modules that a file imports. `from gossamer import settings` imports a module, too."""
    for node in ast.walk(tree_of(PACKAGE / source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{source}:{node.lineno}: relative imports hide where a module stands"
            yield str(node.module)
            if node.module == "gossamer":
                yield from (f"gossamer.{alias.name}" for alias in node.names)


def parts_imported(source: str) -> set[str]:
    names = (name.split(".") for name in modules_imported(source) if name.startswith("gossamer."))
    return {parts[1] for parts in names if (PACKAGE / parts[1]).is_dir() or (PACKAGE / f"{parts[1]}.py").exists()}


def computed_imports(source: str) -> list[int]:
    """Lines that call `import_module` or `__import__`."""
    calls = (node for node in ast.walk(tree_of(PACKAGE / source)) if isinstance(node, ast.Call))
    names = ("import_module", "__import__")
    return [call.lineno for call in calls if getattr(call.func, "attr", getattr(call.func, "id", "")) in names]


@pytest.mark.parametrize("source", sources())
def test_direction(source: str) -> None:
    part, imported = part_of(source), parts_imported(source)
    if part == "run":
        assert imported <= RUN_IMPORTS
        return
    rank = {name: index for index, layer in enumerate(LAYERS) for name in layer}
    assert part in rank, f"{part} has no place in the layers"
    above = {other for other in imported - {"run", part} if rank[other] >= rank[part]}
    assert not above, f"{source} is below {above}"
    assert "run" not in imported or part in IMPORTS_RUN, f"{source} may not import run"


@pytest.mark.parametrize("source", sources())
def test_doors(source: str) -> None:
    for name in modules_imported(source):
        allowed = DOORS.get(name.partition(".")[0])
        assert allowed is None or source.startswith(allowed), f"{source} imports {name}; only {allowed} may"


def test_computed_imports_are_the_known_ones() -> None:
    assert {source for source in sources() if computed_imports(source)} == set(COMPUTED_IMPORTS)


def test_the_interpreter_imports_nothing_but_kernels_by_computed_name() -> None:
    (call,) = (
        node
        for node in ast.walk(tree_of(PACKAGE / "run/interpreter.py"))
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "import_module"
    )
    assert ast.unparse(call.args[0]).startswith("f'gossamer.kernels.")


def test_every_part_stands_in_the_layers() -> None:
    known = {name for layer in LAYERS for name in layer} | {"run"}
    assert {part_of(source) for source in sources()} == known
