"""Attention in one pass over the keys: y = softmax(scale · q · kᵀ, capped, masked and biased) · v.

A program holds a tile of queries and what it needs of the softmax so far: the largest score of each row and the sum of
exponentials below it. Few queries over many keys leave most of a GPU idle: then the keys are split, and a second
kernel weighs the parts. Scores themselves exist only in registers; `scores_calls` writes them for operators that return
them. Every operand has its own strides: layouts and packings cost nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from gossamer.kernels.attention_kernels import attention_kernel, combine_splits_kernel, scores_kernel
from gossamer.kernels.attention_tiles import MAX_HEAD_SIZE, Extents, Tiles, block_of, choose_tiles
from gossamer.kernels.extents import cdiv, power_of_two
from gossamer.kernels.launch import Address, launch
from gossamer.kernels.reduction_geometry import float_accumulator
from gossamer.kernels.rotary import NO_ROTARY, Rotary
from gossamer.kernels.tf32 import multiplies_in_tf32
from gossamer.model.node import Node
from gossamer.program import Buffer, Call, Launch, Refusal, Target

FLOATS = ("float16", "bfloat16", "float32", "float64")


@dataclass(frozen=True, slots=True)
class Heads:
    """A buffer as [batch, head, row, column]. strides and offset in elements; a stride of 0 repeats."""

    buffer: Buffer
    strides: tuple[int, int, int, int]
    offset: int = 0

    @property
    def argument(self) -> tuple[Any, ...]:
        return (Address(self.buffer, self.offset) if self.offset else self.buffer, *self.strides)


NO_PLANE = (None, 0, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class Lengths:
    """How many keys count, known only on the device: buffer[batch · stride] + add, of any integer type.

    first: where the first query stands (see `key_range`). counts: int32 [batch], queries that count, None for all.
    """

    buffer: Buffer
    stride: int
    add: int
    first: str
    counts: Buffer | None = None


@dataclass(frozen=True, slots=True)
class Attention:
    """One attention. Shapes: q [batch, heads, queries, head_size], k [batch, kv_heads, keys, head_size], v with
    v_head_size columns, y like q with v_head_size columns, of stride 1.

    first: position of the first query among the keys, where lengths do not say. window: keys that a query sees, itself
    and those before, 0 for all. bias: what is added to scores; mask: zero where a score becomes `fill` (or with
    fill_adds, has it added). sink: one score per head without a value; smooth: such a score of zero. q_bias: one number
    per head and column; norm: (weight, epsilon) of an RMS norm over queries. positions: [batch, queries], rows of the
    rotary tables, None for those among the keys. zero_empty: a query that sees nothing gets zeros, else NaN.
    """

    q: Heads
    k: Heads
    v: Heads
    y: Heads
    batch: int
    heads: int
    kv_heads: int
    queries: int
    keys: int
    head_size: int
    v_head_size: int
    scale: float
    causal: bool = False
    first: int = 0
    window: int = 0
    lengths: Lengths | None = None
    softcap: float = 0.0
    bias: Heads | None = None
    mask: Heads | None = None
    fill: float = float("-inf")
    fill_adds: bool = False
    sink: Buffer | None = None
    smooth: bool = False
    q_bias: Buffer | None = None
    norm: tuple[Buffer, float] | None = None
    rotary: Rotary | None = None
    positions: Buffer | None = None
    zero_empty: bool = True

    @property
    def dtype(self) -> str:
        return self.q.buffer.dtype

    @property
    def flops(self) -> int:
        halved = self.causal and self.queries == self.keys
        pairs = self.batch * self.heads * self.queries * self.keys // (2 if halved else 1)
        return 2 * pairs * (self.head_size + self.v_head_size)


def attention_calls(
    node: Node, target: Target, attention: Attention, *, lse: Buffer | None = None
) -> tuple[Call, ...] | Refusal:
    """The launches of an attention. lse: where the logarithms of the sums go, [batch, heads, queries], fp32 (fp64)."""
    reason = unsupported(attention)
    if reason is not None:
        return Refusal(reason)
    if not (attention.batch * attention.heads * attention.queries * attention.v_head_size):
        return ()
    extents = _extents(attention)
    tiles = choose_tiles(extents, attention.dtype, target)
    if tiles is None:
        columns = f"{attention.head_size} columns of {attention.dtype}"
        return Refusal(f"heads of {columns} need more shared memory than {target.name} has")
    if lse is not None:
        tiles = replace(tiles, splits=1, packed=False)
    if tiles.splits == 1:
        return (_attend(attention, extents, tiles, attention.y, 0, lse, target),)
    rows, accumulator = attention.batch * attention.heads * attention.queries, float_accumulator(attention.dtype)
    parts = node.temporary((tiles.splits, rows, attention.v_head_size), accumulator)
    lse = node.temporary((tiles.splits, rows), accumulator)
    size = attention.v_head_size
    y = Heads(parts, (attention.heads * attention.queries * size, attention.queries * size, size, 1))
    first = _attend(attention, extents, tiles, y, rows * size, lse, target)
    return first, _combine(attention, parts, lse, tiles.splits)


def unsupported(attention: Attention) -> str | None:
    """Why there is no kernel for an attention, or None where there is one."""
    q, k, v = attention.q.buffer.dtype, attention.k.buffer.dtype, attention.v.buffer.dtype
    if q not in FLOATS or k != q or v != q:
        return f"no attention of {q}, {k} and {v}"
    if max(attention.head_size, attention.v_head_size) > MAX_HEAD_SIZE:
        return f"heads of more than {MAX_HEAD_SIZE} columns have no kernel"
    if attention.heads % attention.kv_heads:
        return f"{attention.heads} query heads do not divide among {attention.kv_heads} key heads"
    return None


def scores_calls(
    node: Node, target: Target, attention: Attention, scores: Buffer, stage: str, lse: Buffer | None = None
) -> tuple[Call, ...]:
    """The launch that writes scores [batch, heads, queries, columns] at a stage of `scores_kernel`; `softmax` needs the
    lse of `attention_calls`. There may be more columns than keys: they count as not visible."""
    columns = scores.shape[-1]
    if not scores.size:
        return ()
    block = 256 if target.interpreted else 32
    block_m, block_n = max(16, power_of_two(attention.queries, block)), max(16, power_of_two(columns, block))
    return (
        launch(
            scores_kernel,
            (cdiv(attention.queries, block_m) * cdiv(columns, block_n) * attention.batch * attention.heads,),
            writes=scores,
            scores_ptr=scores,
            k=attention.k.argument,
            lse_ptr=lse,
            n_heads=attention.heads,
            group=attention.heads // attention.kv_heads,
            n_columns=columns,
            STAGE=stage,
            BLOCK_M=block_m,
            BLOCK_N=block_n,
            **_queries(attention),
            **_scoring(attention, target, packed=False),
        ),
    )


def _extents(attention: Attention) -> Extents:
    return Extents(
        attention.batch,
        attention.heads,
        attention.kv_heads,
        attention.queries,
        attention.keys,
        block_of(attention.head_size),
        block_of(attention.v_head_size),
        attention.causal,
    )


def _attend(
    attention: Attention,
    extents: Extents,
    tiles: Tiles,
    y: Heads,
    split_stride: int,
    lse: Buffer | None,
    target: Target,
) -> Launch:
    group = attention.heads // attention.kv_heads
    rows, heads = attention.queries * group, attention.kv_heads
    if not tiles.packed:
        rows, heads = attention.queries, attention.heads
    # Minus infinity times `scale`, in fp32, must stay what it is.
    plain = attention.bias is None and attention.mask is None and not attention.softcap and attention.scale > 2**-100
    return launch(
        attention_kernel,
        (cdiv(rows, tiles.block_m) * tiles.splits * heads * attention.batch,),
        writes=[y.buffer, lse] if lse is not None else y.buffer,
        num_warps=tiles.num_warps,
        num_stages=tiles.num_stages,
        flops=attention.flops,
        k=attention.k.argument,
        v=attention.v.argument,
        y=(*y.argument[:4], split_stride),
        lse_ptr=lse,
        sink_ptr=attention.sink,
        n_heads=heads,
        group=group,
        splits=tiles.splits,
        together=_together(attention.causal, cdiv(rows, tiles.block_m), target),
        V_SIZE=attention.v_head_size,
        SINK="heads" if attention.sink is not None else "zero" if attention.smooth else "none",
        # A split that sees nothing has no say in the sum, which its NaN would; `_combine` knows what all splits saw.
        ZERO_EMPTY=attention.zero_empty or tiles.splits > 1,
        PLAIN=plain and attention.dtype != "float64",
        PACKED=tiles.packed,
        UNCHECKED=attention.keys >= tiles.block_n and not attention.window,
        CHECKED=_needs_checks(attention) or attention.keys % tiles.block_n > 0,
        BLOCK_M=tiles.block_m,
        BLOCK_N=tiles.block_n,
        BLOCK_V=extents.block_v,
        **_queries(attention),
        **_scoring(attention, target, packed=tiles.packed),
    )


def _together(causal: bool, tiles: int, target: Target) -> int:
    """Heads that start their tiles together: one after the other unless causal, where tiles differ in length. Then
    enough of them that short tiles fill the device at the end, and few enough that their keys stay in L2."""
    return cdiv(4 * target.sm_count, tiles) if causal else 1


def _needs_checks(attention: Attention) -> bool:
    """Whether there may be keys that some of the queries do not see."""
    return attention.causal or attention.window > 0 or attention.lengths is not None


def _queries(attention: Attention) -> dict[str, Any]:
    rotary, norm = attention.rotary, attention.norm
    return {
        "q": attention.q.argument,
        "q_bias_ptr": attention.q_bias,
        "norm": norm or (None, 0.0),
        "rotary": rotary.arguments if rotary is not None else NO_ROTARY,
        "positions_ptr": attention.positions,
        "n_queries": attention.queries,
        "HEAD_SIZE": attention.head_size,
        "ROTARY": rotary.kind if rotary is not None else "none",
        "BLOCK_D": block_of(attention.head_size),
    }


def _scoring(attention: Attention, target: Target, *, packed: bool) -> dict[str, Any]:
    bias, mask, dtype = attention.bias, attention.mask, attention.dtype
    lengths = attention.lengths
    return {
        "bias": bias.argument if bias is not None else NO_PLANE,
        "mask": mask.argument if mask is not None else NO_PLANE,
        "keys": key_arguments(lengths, attention.keys, attention.first),
        "window": attention.window,
        "scale": float(attention.scale),
        "softcap": float(attention.softcap),
        "fill": float(attention.fill),
        "CAUSAL": attention.causal,
        "WINDOW": attention.window > 0,
        "FIRST": lengths.first if lengths is not None else "given",
        "BIAS": _form(bias, packed),
        "MASK": _form(mask, packed),
        "MASK_ADDS": attention.fill_adds,
        "SOFTCAP": attention.softcap != 0,
        "MULTIPLY": "tf32_both" if multiplies_in_tf32(dtype, target) else "ieee",
        "UPCAST": target.interpreted and dtype != "float64",
        "TYPE": float_accumulator(attention.dtype),
    }


def key_arguments(lengths: Lengths | None, keys: int, first: int) -> tuple[Any, ...]:
    """The `keys` of `key_range`."""
    if lengths is None:
        return (None, 0, 0, None, keys, first)
    return (lengths.buffer, lengths.stride, lengths.add, lengths.counts, keys, first)


def _form(plane: Heads | None, packed: bool) -> str:
    """How a tile of a bias or mask is read: `row` where all rows of the tile have the same."""
    if plane is None:
        return "none"
    same_row = plane.strides[2] == 0 and (not packed or plane.strides[1] == 0)
    return "row" if same_row else "tile"


def _combine(attention: Attention, parts: Buffer, lse: Buffer, splits: int) -> Launch:
    rows, block_v = parts.shape[1], block_of(attention.v_head_size)
    block_rows = power_of_two(rows, max(1, 512 // block_v))
    return launch(
        combine_splits_kernel,
        (cdiv(rows, block_rows),),
        writes=attention.y.buffer,
        parts_ptr=parts,
        lse_ptr=lse,
        y=attention.y.argument[:4],
        n_rows=rows,
        n_heads=attention.heads,
        n_queries=attention.queries,
        v_size=attention.v_head_size,
        ZERO_EMPTY=attention.zero_empty,
        SPLITS=splits,
        BLOCK_ROWS=block_rows,
        BLOCK_V=block_v,
    )
