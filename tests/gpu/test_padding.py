"""The cases of the padding family on a GPU."""

from __future__ import annotations

import pytest

from cases.node_case import NodeCase
from cases.padding import CASES


@pytest.mark.parametrize("case", CASES, ids=str)
def test_padding(case: NodeCase) -> None:
    case.check("cuda")
