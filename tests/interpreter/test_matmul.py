from __future__ import annotations

import numpy as np
import pytest

from cases import matmul as cases
from gossamer.kernels import gemm
from gossamer.kernels.gemm_tiles import Strip, Tiles


@pytest.mark.parametrize("case", cases.CASES, ids=str)
def test_product(case: cases.Case) -> None:
    case.check("interpreter")


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.float64, np.int32])
@pytest.mark.parametrize("name", ["bias_residual_silu", "batched_b", "clip"])
def test_split_k_gives_the_same(name: str, dtype: type, monkeypatch: pytest.MonkeyPatch) -> None:
    want, attributes, shapes = cases.FUSED[name]
    if np.dtype(dtype).kind == "i":
        want, attributes = cases.fused(), {}
    monkeypatch.setattr(gemm, "choose_tiles", lambda *_: Tiles(16, 16, 16, 4, 1, splits=2))
    cases.Case(f"{name}_split", "FusedMatMul", shapes, want, attributes, dtype, domain="gossamer").check("interpreter")


@pytest.mark.parametrize("splits", [2, 3, 5])
def test_split_vector_gives_the_same(splits: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also with more splits than blocks of K: the last ones sum nothing."""
    monkeypatch.setattr(gemm, "choose_strip", lambda *_: Strip(32, 64, 4, splits))
    cases.Case("split", "MatMul", ((1, 250), (250, 90)), np.matmul).check("interpreter")
    cases.Case("split", "Gemm", ((20, 130), (130, 1), (20, 1)), cases.gemm()).check("interpreter")


def test_tiles_in_groups_cover_the_output(monkeypatch: pytest.MonkeyPatch) -> None:
    """More rows of tiles than a group holds, and not a multiple of it."""
    monkeypatch.setattr(gemm, "choose_tiles", lambda *_: Tiles(16, 16, 32, 4, 1))
    cases.Case("groups", "MatMul", ((16 * 10, 20), (20, 40)), np.matmul).check("interpreter")


def test_no_c_where_beta_is_zero() -> None:
    """BLAS's rule, which onnxruntime follows: C is not read."""
    a, b, c = np.ones((3, 4), np.float32), np.ones((4, 5), np.float32), np.full((5,), np.nan, np.float32)
    (got,) = cases.harness.run_node("Gemm", [a, b, c], {"beta": 0.0})
    np.testing.assert_array_equal(got, np.full((3, 5), 4, np.float32))


def test_nan_and_infinity_stay_in_their_rows() -> None:
    a, b = np.ones((40, 20), np.float32), np.ones((20, 30), np.float32)
    a[3, 5], a[7, 0] = np.nan, np.inf
    (got,) = cases.harness.run_node("MatMul", [a, b])
    np.testing.assert_array_equal(got, a @ b)


@pytest.mark.parametrize("dtype", [np.int8, np.bool_])
def test_other_types_are_refused_with_a_reason(dtype: type) -> None:
    from gossamer.errors import UnsupportedModel

    types = [(cases.harness.tensor_type(np.zeros(1, dtype)), (4, 4))]
    with pytest.raises(UnsupportedModel, match="no matrix product"):
        cases.harness.run_node("FusedMatMul", [np.zeros((4, 4), dtype)] * 2, domain="gossamer", output_types=types)
