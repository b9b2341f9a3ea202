"""What models spell out, through the whole pipeline into the interpreter, against onnxruntime."""

from __future__ import annotations

import pytest

from cases.spelt_out import CASES, SpeltOut


@pytest.mark.parametrize("model", CASES, ids=str)
def test_model(model: SpeltOut) -> None:
    model.check("interpreter")
