"""Elementwise operators: one kernel that evaluates a straight-line program of steps (`model/steps`).

Bandwidth is the bar. Dimensions are merged as far as all operands allow, so that the common cases, equal shapes and one
value per channel, have one or two; operands of the output's shape are addressed without any index arithmetic; scalar
constants are launch parameters, so that kernels that differ only in them are one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import gcd, prod
from struct import pack, unpack
from typing import TypeAlias

import triton
import triton.language as tl

from gossamer.kernels.division import divide_by, divisor_of
from gossamer.kernels.elementwise_geometry import Geometry, Layout, broadcast_strides, collapse, layout_of
from gossamer.kernels.elementwise_steps import evaluate
from gossamer.kernels.extents import cdiv, power_of_two
from gossamer.kernels.launch import Address, launch
from gossamer.kernels.narrow_types import in_bits
from gossamer.kernels.registry import Lowered, lowers
from gossamer.model.elementwise import RULES, Expansion, Operator, expand, number_of
from gossamer.model.node import FUSED, Node
from gossamer.model.steps import Expression, Number, Step, is_float
from gossamer.program import Buffer, Call, Launch, Refusal, Target, View

RAGGED_FROM = 1 << 18
"""Elements from which on a size that is no multiple of 16 is worth a second, unmasked copy of the kernel's body: a mask
that may change inside a vector forbids vector loads."""


@triton.jit
def elementwise_kernel(
    inputs,
    outputs,
    parameters,
    extents,
    strides,
    n,
    LAYOUTS: tl.constexpr,
    STEPS: tl.constexpr,
    RESULTS: tl.constexpr,
    VECTOR: tl.constexpr,
    WIDE: tl.constexpr,
    RAGGED: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """outputs[j][i] = value RESULTS[j] of the program STEPS on the inputs at i, for all n elements of dense outputs.

    extents: of each dimension but the first, as divisors. LAYOUTS: for each input ("dense", ()), laid out as
    the outputs, ("scalar", ()), or ("strided", pairs (dimension, position in strides) of the dimensions it moves in).
    STEPS: see `evaluate`. VECTOR: a power of two that divides the last extent. WIDE: offsets pass 2³¹. RAGGED: n is no
    multiple of 16.
    """
    first = tl.program_id(0)
    if WIDE:
        first = first.to(tl.int64)
    i = first * BLOCK + tl.arange(0, BLOCK)
    if RAGGED:
        if (first + 1) * BLOCK <= n:
            elementwise_block(
                inputs, outputs, parameters, extents, strides, i, None, LAYOUTS, STEPS, RESULTS, VECTOR, WIDE, BLOCK
            )
        else:
            elementwise_block(
                inputs, outputs, parameters, extents, strides, i, i < n, LAYOUTS, STEPS, RESULTS, VECTOR, WIDE, BLOCK
            )
    else:
        elementwise_block(
            inputs, outputs, parameters, extents, strides, i, i < n, LAYOUTS, STEPS, RESULTS, VECTOR, WIDE, BLOCK
        )


@triton.jit
def elementwise_block(
    inputs,
    outputs,
    parameters,
    extents,
    strides,
    i,
    mask,
    LAYOUTS: tl.constexpr,
    STEPS: tl.constexpr,
    RESULTS: tl.constexpr,
    VECTOR: tl.constexpr,
    WIDE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """One block of `elementwise_kernel`: the elements i where mask holds. All loads come before the first store."""
    coordinates = unravel(i, extents, VECTOR, WIDE)
    values = ()  # grows step by step; Triton has no unpacking
    for k in tl.static_range(len(inputs)):
        value = load(inputs[k], i, coordinates, strides, mask, LAYOUTS[k], BLOCK)
        values = values + (value,)  # type: ignore[assignment]  # noqa: RUF005
    for s in tl.static_range(len(STEPS)):
        value = evaluate(STEPS[s], values, parameters, BLOCK)
        values = values + (value,)  # type: ignore[assignment]  # noqa: RUF005
    for j in tl.static_range(len(outputs)):
        tl.store(outputs[j] + i, values[RESULTS[j]].to(outputs[j].dtype.element_ty), mask=mask)


@triton.jit
def unravel(i, extents, VECTOR: tl.constexpr, WIDE: tl.constexpr):
    """The coordinates of positions i, the last dimension's first; their contiguity is told to the compiler."""
    coordinates = ()
    rest = i
    for d in tl.static_range(len(extents) - 1, -1, -1):
        quotient = divide_by(rest, extents[d], WIDE)
        coordinate = rest - quotient * extents[d][0]
        if VECTOR > 1 and len(coordinates) == 0:
            coordinate = tl.max_contiguous(tl.multiple_of(coordinate, [VECTOR]), [VECTOR])
            quotient = tl.max_constancy(quotient, [VECTOR])
        elif VECTOR > 1:
            coordinate = tl.max_constancy(coordinate, [VECTOR])
            quotient = tl.max_constancy(quotient, [VECTOR])
        coordinates = coordinates + (coordinate,)  # type: ignore[assignment]  # noqa: RUF005
        rest = quotient
    return coordinates + (rest,)  # noqa: RUF005  # Triton has no unpacking


@triton.jit
def load(x_ptr, i, coordinates, strides, mask, LAYOUT: tl.constexpr, BLOCK: tl.constexpr):
    """The elements of one input at positions i, 16-bit floats as fp32."""
    DIMS: tl.constexpr = LAYOUT[1]
    if LAYOUT[0] == "dense":
        x = tl.load(x_ptr + i, mask=mask)
    elif LAYOUT[0] == "scalar":
        x = tl.broadcast_to(tl.load(x_ptr), (BLOCK,))
    else:
        offset = coordinates[len(coordinates) - 1 - DIMS[0][0]] * strides[DIMS[0][1]]
        for d in tl.static_range(1, len(DIMS)):
            offset += coordinates[len(coordinates) - 1 - DIMS[d][0]] * strides[DIMS[d][1]]
        x = tl.load(x_ptr + offset, mask=mask)
    if x.dtype == tl.float16 or x.dtype == tl.bfloat16:
        return x.to(tl.float32)
    else:
        return x


Source: TypeAlias = "Buffer | Address"


@dataclass(frozen=True, slots=True)
class Tile:
    """How many elements a program takes, and with how many warps."""

    block: int
    num_warps: int


def choose_tile(n: int, target: Target) -> Tile:
    """Eight elements a thread, which is one or two vector loads of each input; smaller blocks where they would leave
    multiprocessors idle."""
    if target.interpreted:
        return Tile(power_of_two(n, 2**18), 1)
    block = 1024
    while block > 256 and n < block * target.sm_count * 2:
        block //= 2
    return Tile(block, block // 256)


def evaluate_elementwise(
    expression: Expression,
    inputs: Sequence[Source],
    strides: Sequence[Sequence[int]],
    outputs: Sequence[Buffer],
    target: Target,
) -> Launch:
    """A launch that evaluates `expression`.

    strides: per input, in elements, one per dimension of the outputs (0 where the input is broadcast, any sign).
    outputs: dense, of one shape. An input that is laid out as the outputs are may share its memory with one of them.
    """
    shape = outputs[0].shape
    n = prod(shape)
    geometry = collapse(shape, strides) if n else Geometry((), ((),) * len(inputs))
    layouts: list[Layout] = []
    moving: list[int] = []
    for steps in geometry.strides:
        layout = layout_of(geometry.extents, steps, len(moving))
        layouts.append(layout)
        moving += [steps[dim] for dim, _ in layout[1]]
    tile = choose_tile(n, target)
    wide = max(n, geometry.farthest) >= 2**31 - tile.block
    encoded, parameters = encode(expression)
    return launch(
        elementwise_kernel,
        (cdiv(n, tile.block),),
        writes=outputs,
        num_warps=tile.num_warps,
        inplace=_inplace(expression, inputs, layouts, outputs),
        inputs=tuple(inputs),
        outputs=tuple(outputs),
        parameters=parameters,
        extents=tuple(divisor_of(extent, wide) for extent in geometry.extents[1:]),
        strides=tuple(moving),
        n=n,
        LAYOUTS=tuple(layouts),
        STEPS=encoded,
        RESULTS=expression.results,
        VECTOR=gcd(geometry.extents[-1], 16) if moving else 1,
        WIDE=wide,
        RAGGED=n % 16 != 0 and n >= RAGGED_FROM and not target.interpreted,
        BLOCK=tile.block,
    )


EncodedStep: TypeAlias = "tuple[str, tuple[int, ...], int, str, int]"


def encode(expression: Expression) -> tuple[tuple[EncodedStep, ...], tuple[Number, ...]]:
    """(the kernel's STEPS, its parameters)."""
    steps: list[EncodedStep] = []
    parameters: list[Number] = []
    for step in expression.steps:
        steps.append((step.op, step.operands, len(parameters), step.to, len(step.parameters)))
        parameters += _stored(step)
    return tuple(steps), tuple(parameters)


def _stored(step: Step) -> tuple[Number, ...]:
    """Parameters as the launch passes them: fp32; fp64 as the integer of the same bits; integers as signed ones."""
    if not step.to or is_float(step.to):
        if step.to == "float64":
            return tuple(unpack("<q", pack("<d", value))[0] for value in step.parameters)
        return tuple(map(float, step.parameters))
    return tuple((int(value) + 2**63) % 2**64 - 2**63 for value in step.parameters)


def _inplace(
    expression: Expression, inputs: Sequence[Source], layouts: Sequence[Layout], outputs: Sequence[Buffer]
) -> tuple[tuple[Buffer, Buffer], ...]:
    """Pairs of an output and an input it may overwrite: read in the same order, by the same threads (elements of one
    size), and the output depends on it, so that no thread stores before the loads of the whole block."""
    pairs = []
    for output, result in zip(outputs, expression.results, strict=True):
        for index in sorted(expression.depends_on(result)):
            source = inputs[index]
            if isinstance(source, Buffer) and layouts[index][0] == "dense" and source.itemsize == output.itemsize:
                pairs.append((output, source))
    return tuple(pairs)


def strided_copy(source: Buffer, offset: int, strides: Sequence[int], out: Buffer, target: Target) -> Launch:
    """out[i, j, …] = source's element `offset` + i · strides[0] + j · strides[1] + …, in elements, converted to out's
    type.

    Any expand, slice or transposition; for the last, `copies` has kernels that go through shared memory and are faster.
    """
    expression = Expression(
        1,
        (Step("cast", (0,), to=out.dtype),) if out.dtype != source.dtype else (),
        (1 if out.dtype != source.dtype else 0,),
    )
    return evaluate_elementwise(expression, [Address(source, offset) if offset else source], [strides], [out], target)


def lower_expression(
    expression: Expression, inputs: Sequence[Buffer], outputs: Sequence[Buffer], target: Target
) -> tuple[Call, ...]:
    """The calls that give `outputs`, of one shape: views where a result is an input unchanged, and one launch for the
    rest."""
    calls: list[Call] = []
    rest: list[tuple[int, Buffer]] = []
    for result, output in zip(expression.results, outputs, strict=True):
        source = inputs[result] if result < expression.n_inputs else None
        if source is not None and source.shape == output.shape and source.dtype == output.dtype:
            calls.append(View(source.name, output.name))
        else:
            rest.append((result, output))
    if rest:
        results, buffers = zip(*rest, strict=True)
        strides = [broadcast_strides(buffer.shape, buffers[0].shape) for buffer in inputs]
        program = Expression(expression.n_inputs, expression.steps, results)
        sources, destinations = (list(map(in_bits, some)) for some in (inputs, buffers))
        calls.append(evaluate_elementwise(program, sources, strides, destinations, target))
    return tuple(calls)


def _names(domain: str) -> Iterable[str]:
    """The operators that have rules, but for Identity, which is a view of any type (`kernels/movement`)."""
    return (op_type for rule_domain, op_type in RULES if rule_domain == domain and op_type != "Identity")


@lowers(*_names("com.microsoft"), domain="com.microsoft")
@lowers(*_names(""), since=7)
def elementwise(node: Node, target: Target) -> Lowered:
    """Every operator of `model/elementwise`, opset 7 and later, and its com.microsoft relatives."""
    expansion = expand(operator_of(node))
    if isinstance(expansion, Refusal):
        return expansion
    return lower_expression(expansion.expression, _sources(node, expansion), _outputs(node), target)


@lowers("Elementwise", domain=FUSED)
def fused_elementwise(node: Node, target: Target) -> Lowered:
    """gossamer::Elementwise, which the pass `elementwise_chains` makes."""
    inputs = [buffer for buffer in node.inputs if buffer is not None]
    expression = Expression.parse(len(inputs), node.attribute("steps"), node.attribute("results"))
    return lower_expression(expression, inputs, _outputs(node), target)


def operator_of(node: Node) -> Operator:
    """The node as the rules of `model/elementwise` see it."""

    def scalar(index: int) -> Number | None:
        buffer = node.input(index)
        if buffer is None or buffer.size != 1:
            return None
        value = node.constant(index)
        return None if value is None else number_of(value)

    return Operator(
        node.op_type,
        node.domain,
        node.version,
        tuple(None if buffer is None else buffer.dtype for buffer in node.inputs),
        tuple(None if buffer is None else buffer.dtype for buffer in node.outputs),
        node.attribute,
        scalar,
    )


def _sources(node: Node, expansion: Expansion) -> list[Buffer]:
    buffers = [node.inputs[index] for index in expansion.sources]
    return [buffer for buffer in buffers if buffer is not None]


def _outputs(node: Node) -> list[Buffer]:
    return [buffer for buffer in node.outputs if buffer is not None]
