"""Attention in the interpreter, against NumPy and onnxruntime. (R6)"""

from __future__ import annotations

import pytest

from cases.attention import CASES, SPLIT, fused, in_tf32
from cases.node_case import NodeCase
from gossamer.kernels import attention
from gossamer.kernels.attention_tiles import Extents, Tiles, choose_tiles
from gossamer.program import Target
from harness import kernels_of


@pytest.mark.parametrize("case", CASES, ids=str)
def test_attention(case: NodeCase) -> None:
    case.check("interpreter")


@pytest.mark.parametrize("case", [*CASES, *SPLIT], ids=str)
def test_the_gpus_tiles(case: NodeCase) -> None:
    """What an H200 would launch: several tiles and steps, splits, some of which see no keys, and products in TF32."""
    in_tf32(case).check("sm_90")


@pytest.mark.parametrize("case", SPLIT, ids=str)
def test_cases_of_splits_split(case: NodeCase) -> None:
    assert "combine_splits_kernel" in {kernel.function for kernel in kernels_of(case.model(), "sm_90")}


SEVERAL_STEPS = [
    case for case in CASES if "float16" not in case.name and "Q" not in case.op_type and case.op_type != "Attention"
]


@pytest.mark.parametrize(
    "case", [*SEVERAL_STEPS, *(case for case in CASES if case.name.startswith("Attention-l"))], ids=str
)
@pytest.mark.parametrize("splits", [1, 3])
def test_several_steps_and_splits_give_the_same(case: NodeCase, splits: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def small(extents: Extents, *_: object) -> Tiles:
        return Tiles(4, 4, 4, 1, extents.heads > extents.kv_heads and extents.queries < 3, splits)

    monkeypatch.setattr(attention, "choose_tiles", small)
    case.check("interpreter")


@pytest.mark.parametrize("splits", [1, 2])
def test_causal_tiles_start_with_the_longest_of_several_heads(splits: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Five heads of three tiles, two heads at a time: the last one is alone."""
    monkeypatch.setattr(attention, "choose_tiles", lambda *_: Tiles(4, 4, 4, 1, False, splits))
    assert attention._together(True, 3, Target.named("interpreter")) == 2
    fused("together", (1, 5, 5, 10, 10, 8, 8), causal=1).check("interpreter")


def test_decoding_splits_keys_and_packs_heads() -> None:
    tiles = choose_tiles(Extents(1, 32, 8, 1, 4096, 128, 128), "float16", Target.named("sm_90"))
    assert tiles is not None
    assert tiles.packed
    assert tiles.block_m == 16
    assert tiles.splits == 8  # four steps of 128 keys each: half of them on all multiprocessors took 10 % longer


def test_rows_are_as_many_as_fill_the_device_evenly() -> None:
    """192 tiles of 128 rows keep most of 132 multiprocessors waiting for the rest; 384 of half the rows do not."""
    bert = choose_tiles(Extents(32, 12, 12, 128, 128, 64, 64), "float16", Target.named("sm_90"))
    vit = choose_tiles(Extents(8, 12, 12, 197, 197, 64, 64), "float16", Target.named("sm_90"))
    assert bert is not None
    assert vit is not None
    assert (bert.block_m, vit.block_m) == (128, 64)


def test_a_causal_mask_wants_smaller_tiles() -> None:
    sizes = (1, 32, 32, 2048, 2048, 128, 128)
    full, causal = (choose_tiles(Extents(*sizes, c), "float16", Target.named("sm_90")) for c in (False, True))
    assert full is not None
    assert causal is not None
    assert causal.block_m * causal.block_n < full.block_m * full.block_n


@pytest.mark.parametrize("keys", [1024, 1100, 3000, 5000, 100_000])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_every_split_has_keys(keys: int, dtype: str) -> None:
    for heads in (1, 5, 12, 32):
        tiles = choose_tiles(Extents(1, heads, heads, 1, keys, 64, 64), dtype, Target.named("sm_90"))
        assert tiles is not None
        steps = -(-keys // tiles.block_n)
        assert (tiles.splits - 1) * -(-steps // tiles.splits) < steps


def test_a_full_device_splits_nothing() -> None:
    tiles = choose_tiles(Extents(8, 16, 16, 2048, 2048, 128, 128), "float16", Target.named("sm_90"))
    assert tiles is not None
    assert (tiles.splits, tiles.block_m, tiles.packed) == (1, 128, False)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("size", [16, 64, 128, 256, 512])
@pytest.mark.parametrize("target", ["sm_80", "sm_89", "sm_90"])
def test_tiles_fit_shared_memory(dtype: str, size: int, target: str) -> None:
    itemsize = int(dtype[-2:]) // 8
    for queries in (1, 77, 4096):
        tiles = choose_tiles(Extents(4, 8, 8, queries, 4096, size, size), dtype, Target.named(target))
        assert tiles is None or tiles.shared_bytes(size, size, itemsize) <= Target.named(target).shared_bytes
        assert (tiles is not None) or size * itemsize > 2048
