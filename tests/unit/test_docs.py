"""Documents: those that code prints are current, and those that people write speak of things that exist."""

from __future__ import annotations

import importlib
import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

import gossamer
from gossamer import settings

ROOT = Path(__file__).parents[2]
DOCS = sorted((ROOT / "docs").glob("*.md"))
TEXTS = [ROOT / "README.md", *DOCS]


def load_tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("write_docs", ROOT / "tools" / "write_docs.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


WRITE_DOCS = load_tool()


def test_printed_documents_are_current() -> None:
    assert WRITE_DOCS.stale(ROOT / "docs") == [], "run python tools/write_docs.py"


def test_an_outdated_document_is_noticed(tmp_path: Path) -> None:
    for name, text in WRITE_DOCS.DOCUMENTS.items():
        (tmp_path / name).write_text(text(), encoding="utf-8")
    assert WRITE_DOCS.stale(tmp_path) == []
    (tmp_path / "env_vars.md").write_text("# Environment variables\n", encoding="utf-8")
    (tmp_path / "operators.md").unlink()
    assert WRITE_DOCS.stale(tmp_path) == ["env_vars.md", "operators.md"]


def test_every_operator_with_a_kernel_has_cases() -> None:
    rows = [line.split(" | ") for line in WRITE_DOCS.operators().splitlines() if line.startswith("| ")]
    untested = [row[0].removeprefix("| ") for row in rows if row[-1] == f"{WRITE_DOCS.UNTESTED} |"]
    assert untested == []
    assert [row[0] for row in rows if not row[2].strip()] == [], "no lowering takes any type"


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.name)
def test_paths_and_links_exist(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    named = re.findall(r"`((?:src|tests|tools|docs|demo|bench)/[\w./-]*)`", text)
    prose = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    linked = [target for target in re.findall(r"\]\(([^)#]+)\)", prose) if "://" not in target]
    assert [name for name in named if not (ROOT / name).exists()] == []
    assert [target for target in linked if not (path.parent / target).exists()] == []


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.name)
def test_commands_and_variables_exist(path: Path) -> None:
    import typer

    from gossamer.cli.app import app

    text = path.read_text(encoding="utf-8")
    group = typer.main.get_command(app)
    commands = set(re.findall(r"(?:`|^|\$ |=\d )gossamer ([a-z-]+)", text, re.MULTILINE))
    assert commands <= set(group.commands)  # type: ignore[attr-defined]
    assert set(re.findall(r"GOSSAMER_([A-Z_]+)", text)) <= {*settings.SETTINGS, "PYTHON", "MODELS"}


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.name)
def test_names_that_are_imported_exist(path: Path) -> None:
    imports = re.findall(r"^ *from (gossamer[\w.]*) import (.+)", path.read_text(encoding="utf-8"), re.MULTILINE)
    missing = [
        (module, name)
        for module, names in imports
        for name in names.split(", ")
        if not hasattr(importlib.import_module(module), name)
    ]
    assert missing == []


def test_the_layout_names_every_part_of_the_package() -> None:
    text = (ROOT / "docs" / "layout.md").read_text(encoding="utf-8")
    folder = Path(gossamer.__file__).parent
    parts = [p for p in folder.iterdir() if p.suffix == ".py" or (p / "__init__.py").exists()]
    names = [f"`{p.stem}`" if p.suffix else f"`{p.name}/`" for p in parts if p.stem != "__init__"]
    assert [name for name in names if name not in text] == []


def test_the_layout_names_every_operator_that_passes_make() -> None:
    from gossamer import kernels
    from gossamer.model.node import FUSED

    text = (ROOT / "docs" / "layout.md").read_text(encoding="utf-8")
    made = {op_type for domain, op_type, _, _ in kernels.registered() if domain == FUSED}
    assert [name for name in sorted(made) if f"`{name}`" not in text] == []
