"""Examples in documents, to be run by tests: fenced blocks of Python, by what they need."""

from __future__ import annotations

import re
from pathlib import Path

CUDNN_GRAPHS = Path(__file__).parents[1] / "docs" / "cudnn_graphs.md"

WITHOUT_GPU = "python"
ON_GPU = "python gpu"
"""What follows the fence. Renderers take the first word as the language."""


def blocks(document: Path, fence: str) -> list[str]:
    """The blocks that begin with exactly this fence, in order; at least one."""
    found = re.findall(rf"^```{fence}\n(.*?)^```$", document.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert found, f"{document.name} has no block ```{fence}"
    return found
