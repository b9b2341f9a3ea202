"""RNN, LSTM and GRU: one matrix product projects the inputs of all steps, one persistent kernel walks through them.

The projection X · Wᵀ + Wb + Rb knows nothing of time, so it is an ordinary product over steps × batch rows, for both
directions at once. What is left per step is h · Rᵀ and the cell; `recurrent_plan` says which program does what of it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import triton
import triton.language as tl

from gossamer.kernels.extents import power_of_two
from gossamer.kernels.gemm import Epilogue, Matrix, Product, multiply
from gossamer.kernels.launch import launch
from gossamer.kernels.recurrent_activations import Activations, activations_of
from gossamer.kernels.recurrent_cells import (
    COUNTER_WORDS,
    exchange_of,
    gate,
    gru_blend,
    initial_state,
    lengths_of,
    linear_gru_cell,
    load_weights,
    lstm_cell,
    peephole_weights,
    projected,
    recur,
    split_gates,
    store_where,
    summed_biases_kernel,
    time_of,
    unit_weights,
)
from gossamer.kernels.recurrent_plan import STAGES, Plan, choose_plan
from gossamer.kernels.registry import Lowered, lowers
from gossamer.model.node import Node
from gossamer.program import Buffer, Call, Fill, Launch, Refusal, Target

FLOATS = ("float16", "bfloat16", "float32", "float64")


@triton.jit
def recurrent_kernel(
    x_ptr, r_ptr, b_ptr, peephole_ptr, lengths_ptr, h0_ptr, c0_ptr, y_ptr, h_ptr, c_ptr, state_ptr, counter_ptr,
    n_steps, n_batch, n_hidden, n_groups, first_direction, first_backward, slot, x_strides, y_strides, h_strides,
    clip, parameters, CELL: tl.constexpr, KINDS: tl.constexpr, CLIP: tl.constexpr, COUPLED: tl.constexpr,
    GATES: tl.constexpr, LEAD: tl.constexpr, PADDED: tl.constexpr, MULTIPLY: tl.constexpr, UPCAST: tl.constexpr,
    HELD: tl.constexpr, SHARED: tl.constexpr, STAGES: tl.constexpr,
    BLOCK_B: tl.constexpr, BLOCK_H: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """h[s] = cell(x[s], h[s-1] · Rᵀ), y[s] = h[s] for every step s below a sequence's length, y[s] = 0 above.

    x: projected inputs, of GATES gates, the first LEAD of which take h · Rᵀ as it is (PADDED: the power of two above).
    Programs: direction × group × part. A group takes every n_groups-th tile of the batch, a part BLOCK_H hidden units.
    Strides are of direction, step and batch row; of direction and batch row for h. Directions from first_backward on
    read sequences backward. b_ptr: B, of which GRU adds a part within the reset, if linear_before_reset.
    """
    n_parts = tl.cdiv(n_hidden, BLOCK_H)
    group, first = tl.program_id(0) // n_parts % n_groups, tl.program_id(0) % n_parts * BLOCK_H
    direction = (tl.program_id(0) // n_parts // n_groups + first_direction).to(tl.int64)
    backward = direction >= first_backward
    j = first + tl.arange(0, BLOCK_H)
    j_live = j < n_hidden
    gate_of, unit = tl.arange(0, PADDED * BLOCK_H) // BLOCK_H, first + tl.arange(0, PADDED * BLOCK_H) % BLOCK_H
    columns, live = gate_of * n_hidden + unit, (gate_of < LEAD) & (unit < n_hidden)
    rows = r_ptr + (direction * GATES * n_hidden + columns) * n_hidden
    last_rows = r_ptr + (direction * GATES * n_hidden + 2 * n_hidden + j) * n_hidden
    held, held_last = r_ptr, r_ptr
    if HELD:
        held = load_weights(rows, live, tl.arange(0, BLOCK_K), n_hidden, MULTIPLY)
        if CELL == "gru":
            held_last = load_weights(last_rows, j_live, tl.arange(0, BLOCK_K), n_hidden, MULTIPLY)
    TYPE: tl.constexpr = x_ptr.dtype.element_ty
    reset_bias = unit_weights(b_ptr, direction * 6 + 5, j, n_hidden, TYPE)
    peepholes = peephole_weights(peephole_ptr, direction, j, n_hidden, TYPE)
    turn = 0  # how often programs exchanged states
    for tile in range(group, tl.cdiv(n_batch, BLOCK_B), n_groups):
        b = tile * BLOCK_B + tl.arange(0, BLOCK_B)
        b_live = b < n_batch
        length = lengths_of(lengths_ptr, b, b_live, n_steps)
        b = b.to(tl.int64)
        inside = b_live[:, None] & j_live[None, :]
        own = direction * h_strides[0] + b[:, None] * h_strides[1] + j[None, :]
        h = initial_state(h0_ptr, own, inside, BLOCK_B, BLOCK_H, TYPE)
        c = initial_state(c0_ptr, own, inside, BLOCK_B, BLOCK_H, TYPE)
        exchange = exchange_of(state_ptr, counter_ptr, slot, direction, group, n_groups, n_parts, b, j, b_live, inside,
                               n_batch, n_hidden)  # fmt: skip
        x_rows = x_ptr + direction * x_strides[0] + b * x_strides[2]
        x_next = projected(x_rows, x_strides[1], 0, length, backward, columns, live)
        for s in range(n_steps):
            x = x_next
            x_next = projected(x_rows, x_strides[1], s + 1, length, backward, columns, live)
            sums = recur(h, held, rows, live, exchange, turn, MULTIPLY, UPCAST, HELD, SHARED, STAGES,
                         BLOCK_B, PADDED * BLOCK_H, BLOCK_K)  # fmt: skip
            turn += 1
            new_h, new_c = h, c
            if CELL == "rnn":
                new_h = gate(x + sums, 0, clip, parameters, KINDS, CLIP)
            elif CELL == "lstm":
                gates = split_gates(x + sums, PADDED, BLOCK_B, BLOCK_H)
                new_h, new_c = lstm_cell(
                    gates, c, peepholes, clip, parameters, KINDS, CLIP, COUPLED, peephole_ptr is not None
                )
            elif CELL == "gru_linear":
                gates = split_gates(x, PADDED, BLOCK_B, BLOCK_H)
                sums = split_gates(sums, PADDED, BLOCK_B, BLOCK_H)
                new_h = linear_gru_cell(gates, sums, h, reset_bias, clip, parameters, KINDS, CLIP)
            else:
                x_last = projected(x_rows, x_strides[1], s, length, backward, 2 * n_hidden + j, j_live)
                z, r, _, _ = split_gates(x + sums, PADDED, BLOCK_B, BLOCK_H)
                reset = gate(r, 0, clip, parameters, KINDS, CLIP) * h
                sums = recur(reset, held_last, last_rows, j_live, exchange, turn, MULTIPLY, UPCAST, HELD, SHARED,
                             STAGES, BLOCK_B, BLOCK_H, BLOCK_K)  # fmt: skip
                turn += 1
                new_h = gru_blend(z, x_last + sums, h, clip, parameters, KINDS, CLIP)
            alive = (s < length)[:, None] & inside
            h, c = tl.where(alive, new_h, h), tl.where(alive, new_c, c)
            t = time_of(s, length, backward).to(tl.int64)
            at = direction * y_strides[0] + t * y_strides[1] + b * y_strides[2]
            store_where(y_ptr, at[:, None] + j[None, :], h, alive, inside)
        # A sequence of no steps leaves zeros, not its initial state: so onnxruntime reads ONNX's "last output value".
        store_where(h_ptr, own, h, (length > 0)[:, None], inside)
        store_where(c_ptr, own, c, (length > 0)[:, None], inside)


@dataclass(frozen=True, slots=True)
class Recurrence:
    """The extents of a node, and how its tensors lie. first_backward: the first direction that reads backward."""

    steps: int
    batch: int
    inputs: int
    hidden: int
    directions: int
    first_backward: int
    batch_first: bool
    cell: str

    @property
    def gates(self) -> int:
        return {"rnn": 1, "lstm": 4}.get(self.cell, 3)

    @property
    def lead(self) -> int:
        """Gates that h · Rᵀ goes into before anything else happens to it."""
        return {"rnn": 1, "lstm": 4, "gru": 2, "gru_linear": 3}[self.cell]

    @property
    def padded(self) -> int:
        """`lead` as tiles have it."""
        return power_of_two(self.lead)

    @property
    def x_strides(self) -> tuple[int, int, int]:
        row = self.directions * self.gates * self.hidden
        step, batch = (row, self.steps * row) if self.batch_first else (self.batch * row, row)
        return self.gates * self.hidden, step, batch

    @property
    def y_strides(self) -> tuple[int, int, int]:
        row, all_directions = self.hidden, self.directions * self.hidden
        if self.batch_first:
            return row, all_directions, self.steps * all_directions
        return self.batch * row, self.batch * all_directions, row

    @property
    def h_strides(self) -> tuple[int, int]:
        direction, batch = self.batch * self.hidden, self.hidden
        return (self.hidden, self.directions * self.hidden) if self.batch_first else (direction, batch)

    def flops(self, directions: int) -> int:
        return 2 * self.steps * self.batch * directions * self.gates * self.hidden**2


@lowers("RNN", "LSTM", "GRU", since=7)
def lower_recurrent(node: Node, target: Target) -> Lowered:
    """ONNX RNN, LSTM, GRU (-7, -14, -22); halves keep their state in fp32."""
    w, r = node.inputs[1], node.inputs[2]
    assert w is not None
    assert r is not None
    return recurrent_calls(node, target, node.op_type, w, r)


def recurrent_calls(node: Node, target: Target, op_type: str, w: Buffer, r: Buffer) -> Lowered:
    """The calls of a node that is RNN, LSTM or GRU with these weights, all else as ONNX has it."""
    if node.x.dtype not in FLOATS:
        return Refusal(f"{node.op_type} of {node.x.dtype} has no kernel")
    recurrence = recurrence_of(node, op_type, r)
    if isinstance(recurrence, Refusal):
        return recurrence
    activations = activations_of(node, op_type, recurrence.directions)
    if isinstance(activations, Refusal):
        return activations
    x, calls = _project(node, target, recurrence, w)
    return (*calls, *_walk(node, target, recurrence, activations, x, r))


def recurrence_of(node: Node, op_type: str, r: Buffer) -> Recurrence | Refusal:
    """What a node asks for, by its inputs' shapes and its attributes."""
    directions, _, hidden = r.shape
    first_backward = {"forward": 1, "reverse": 0, "bidirectional": 1}.get(node.attribute("direction", "forward"))
    if first_backward is None:
        return Refusal(f"{node.op_type} knows no direction '{node.attribute('direction')}'")
    batch_first = bool(node.attribute("layout", 0))
    batch, steps = node.x.shape[:2] if batch_first else node.x.shape[1::-1]
    linear = op_type == "GRU" and node.attribute("linear_before_reset", 0)
    cell = "gru_linear" if linear else op_type.lower()
    return Recurrence(steps, batch, node.x.shape[2], hidden, directions, first_backward, batch_first, cell)


def _project(node: Node, target: Target, recurrence: Recurrence, w: Buffer) -> tuple[Buffer, tuple[Call, ...]]:
    """X · Wᵀ + biases for all steps and directions, in the type that states are kept in."""
    rows, columns = recurrence.steps * recurrence.batch, w.shape[0] * w.shape[1]
    x = node.temporary((rows, columns), _state_type(node))
    bias, calls = _biases(node, recurrence)
    product = Product(
        Matrix(node.x, (), recurrence.inputs, 1),
        Matrix(w, (), 1, recurrence.inputs),
        x,
        rows,
        columns,
        recurrence.inputs,
        epilogue=Epilogue(bias),
    )
    return x, (*calls, *multiply(node, target, product))


def _biases(node: Node, recurrence: Recurrence) -> tuple[Buffer | None, tuple[Call, ...]]:
    """Wb + Rb of all directions in a row, but without the part of Rb that belongs inside GRU's reset."""
    b, hidden = node.input(3), recurrence.hidden
    if b is None:
        return None, ()
    row = recurrence.gates * hidden
    both = 2 * hidden if recurrence.cell == "gru_linear" else row
    shape, dtype = (recurrence.directions * row,), _state_type(node)

    def summed(biases: np.ndarray) -> np.ndarray:
        of_inputs, of_states = np.split(biases.astype(dtype), 2, axis=1)
        of_inputs[:, :both] += of_states[:, :both]
        return of_inputs.reshape(-1)

    if node.is_constant(b):
        return node.derived(b, f"summed{both}", shape, dtype, summed), ()
    y = node.temporary(shape, dtype)
    call = launch(
        summed_biases_kernel, (recurrence.directions,), writes=y, b_ptr=b, y_ptr=y, n_row=row, n_both=both, BLOCK=1024
    )
    return y, (call,)


def _state_type(node: Node) -> str:
    return "float64" if node.x.dtype == "float64" else "float32"


def _walk(
    node: Node, target: Target, recurrence: Recurrence, activations: tuple[Activations, ...], x: Buffer, r: Buffer
) -> tuple[Call, ...]:
    """The recurrence: one launch, or one per direction where their activations differ."""
    alike = len(set(activations)) == 1
    at_once = recurrence.directions if alike else 1
    plan = choose_plan(recurrence.batch, recurrence.hidden, recurrence.padded, at_once, node.x.dtype, target)
    calls: list[Call] = []
    state = counter = None
    if plan.shared:
        state = node.temporary((2, recurrence.directions, recurrence.batch, recurrence.hidden), node.x.dtype)
        counter = node.temporary((recurrence.directions * plan.groups, int(COUNTER_WORDS)), "int32")
        calls.append(Fill(counter.name))
    for first in range(0, recurrence.directions, at_once):
        calls.append(
            _launch(node, target, recurrence, plan, (first, at_once), activations[first], (x, r, state, counter))
        )
    return tuple(calls)


def _launch(
    node: Node,
    target: Target,
    recurrence: Recurrence,
    plan: Plan,
    directions: tuple[int, int],
    activations: Activations,
    buffers: tuple[Buffer, Buffer, Buffer | None, Buffer | None],
) -> Launch:
    """The launch for `directions` (the first, how many). buffers: projected inputs, R, exchanged states, counters."""
    x, r, state, counter = buffers
    first, count = directions
    y, h, c = node.output(0), node.output(1), node.output(2)
    clip: float | None = node.attribute("clip", None)
    return launch(
        recurrent_kernel,
        (count * plan.groups * plan.parts(recurrence.hidden),),
        writes=[buffer for buffer in (y, h, c, state, counter) if buffer is not None],
        num_warps=plan.num_warps,
        num_stages=1,  # the compiler's pipelining would load a state before it is there
        flops=recurrence.flops(count),
        cooperative=plan.shared,
        x_ptr=x,
        r_ptr=r,
        b_ptr=node.input(3) if recurrence.cell == "gru_linear" else None,
        peephole_ptr=node.input(7),
        lengths_ptr=node.input(4),
        h0_ptr=node.input(5),
        c0_ptr=node.input(6),
        y_ptr=y,
        h_ptr=h,
        c_ptr=c,
        state_ptr=state,
        counter_ptr=counter,
        n_steps=recurrence.steps,
        n_batch=recurrence.batch,
        n_hidden=recurrence.hidden,
        n_groups=plan.groups,
        first_direction=first,
        first_backward=recurrence.first_backward,
        slot=recurrence.directions * recurrence.batch * recurrence.hidden,
        x_strides=recurrence.x_strides,
        y_strides=recurrence.y_strides,
        h_strides=recurrence.h_strides,
        clip=0.0 if clip is None else clip,
        parameters=activations.parameters,
        CELL=recurrence.cell,
        KINDS=activations.kinds,
        CLIP=clip is not None,
        COUPLED=bool(node.attribute("input_forget", 0)),
        GATES=recurrence.gates,
        LEAD=recurrence.lead,
        PADDED=recurrence.padded,
        MULTIPLY=plan.multiply,
        UPCAST=target.interpreted and node.x.dtype in ("float16", "bfloat16"),
        HELD=plan.held,
        SHARED=plan.shared,
        STAGES=STAGES,
        BLOCK_B=plan.block_b,
        BLOCK_H=plan.block_h,
        BLOCK_K=plan.block_k,
    )
