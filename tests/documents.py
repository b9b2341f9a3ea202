"""Examples that tests run: the sample, and fenced blocks of Python in documents, by what they need."""

from __future__ import annotations

import re
from pathlib import Path

CHECKOUT = Path(__file__).parents[1]
CUDNN_GRAPHS = CHECKOUT / "docs" / "cudnn_graphs.md"
SAMPLE = CHECKOUT / "demo" / "cudnn_plan.py"

WITHOUT_GPU = "python"
ON_GPU = "python gpu"
"""What follows the fence. Renderers take the first word as the language."""


def blocks(document: Path, fence: str) -> list[str]:
    """The blocks that begin with exactly this fence, in order; at least one."""
    found = re.findall(rf"^```{fence}\n(.*?)^```$", document.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert found, f"{document.name} has no block ```{fence}"
    return found
