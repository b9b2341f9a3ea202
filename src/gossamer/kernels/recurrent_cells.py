"""What one step of RNN, LSTM and GRU computes, and how programs that share a hidden state hand it to each other."""

from __future__ import annotations

import triton
import triton.language as tl

from gossamer.kernels.activations import activate
from gossamer.kernels.elementwise_math import maximum, minimum, tanh
from gossamer.kernels.tf32 import round_to_tf32

COUNTER_WORDS = tl.constexpr(32)
"""A group's counter has a cache line to itself."""
PAST_L1 = tl.constexpr(".cg")
"""How states are read: other programs' stores do not reach L1."""


@triton.jit
def gate(x, PLACE: tl.constexpr, clip, parameters, KINDS: tl.constexpr, CLIP: tl.constexpr):
    """Activation number PLACE of a cell, its argument clipped to ±clip first; parameters: alpha, beta of each."""
    if CLIP:
        x = maximum(minimum(x, clip), -clip)
    return activation(x, KINDS[PLACE], parameters[2 * PLACE], parameters[2 * PLACE + 1])


@triton.jit
def activation(x, KIND: tl.constexpr, alpha, beta):
    """KIND(x; alpha, beta): the kinds of `activate`, and two that only recurrent operators have."""
    if KIND == "affine":
        return x * alpha + beta
    elif KIND == "scaled_tanh":
        return tanh(x * beta) * alpha
    else:
        return activate(x, KIND, alpha, beta)


@triton.jit
def split_gates(x, GATES: tl.constexpr, BLOCK_B: tl.constexpr, BLOCK_H: tl.constexpr):
    """The 1, 2 or 4 gates that lie side by side in the columns of x, as a tuple of four (repeated where fewer)."""
    if GATES == 1:
        return x, x, x, x
    elif GATES == 2:
        first, second = tl.split(tl.permute(tl.reshape(x, (BLOCK_B, 2, BLOCK_H)), (0, 2, 1)))
        return first, second, first, second
    else:
        even, odd = tl.split(tl.permute(tl.reshape(x, (BLOCK_B, 2, 2, BLOCK_H)), (0, 3, 1, 2)))
        first, third = tl.split(even)
        second, fourth = tl.split(odd)
        return first, second, third, fourth


@triton.jit
def lstm_cell(
    gates, c, peepholes, clip, parameters,
    KINDS: tl.constexpr, CLIP: tl.constexpr, COUPLED: tl.constexpr, PEEPHOLES: tl.constexpr,
):  # fmt: skip
    """(H, C) of LSTM from the arguments of its gates i, o, f, c; peepholes: weights of i, o, f.

    The input of h is not clipped: neither onnxruntime nor the implementations ONNX took `clip` from do that.
    """
    i, o, f, g = gates
    if PEEPHOLES:
        i += peepholes[0] * c
        f += peepholes[2] * c
    i = gate(i, 0, clip, parameters, KINDS, CLIP)
    f = 1.0 - i if COUPLED else gate(f, 0, clip, parameters, KINDS, CLIP)
    c = f * c + i * gate(g, 1, clip, parameters, KINDS, CLIP)
    if PEEPHOLES:
        o += peepholes[1] * c
    return gate(o, 0, clip, parameters, KINDS, CLIP) * gate(c, 2, clip, parameters, KINDS, False), c


@triton.jit
def gru_blend(z, candidate, h, clip, parameters, KINDS: tl.constexpr, CLIP: tl.constexpr):
    """H of GRU: (1 − z) ⊙ g(candidate) + z ⊙ h, from the argument of its update gate."""
    z = gate(z, 0, clip, parameters, KINDS, CLIP)
    return (1.0 - z) * gate(candidate, 1, clip, parameters, KINDS, CLIP) + z * h


@triton.jit
def linear_gru_cell(x, sums, h, bias, clip, parameters, KINDS: tl.constexpr, CLIP: tl.constexpr):
    """H of GRU with linear_before_reset, from x and h · Rᵀ apart: the reset scales the candidate's h · Rᵀ + bias."""
    candidate = x[2] + gate(x[1] + sums[1], 0, clip, parameters, KINDS, CLIP) * (sums[2] + bias)
    return gru_blend(x[0] + sums[0], candidate, h, clip, parameters, KINDS, CLIP)


@triton.jit
def product(v, r, MULTIPLY: tl.constexpr, UPCAST: tl.constexpr):
    """v[b, k] · r[n, k]ᵀ, summed in fp32 (fp64 for fp64).

    MULTIPLY: `sum` element by element, for few rows; `tf32`, r being rounded to it; or `ieee`.
    """
    WIDE: tl.constexpr = tl.float64 if v.dtype == tl.float64 else tl.float32
    if MULTIPLY == "sum":
        return tl.sum(v.to(WIDE)[:, None, :] * r.to(WIDE)[None, :, :], axis=2)
    elif UPCAST:  # Triton's interpreter multiplies the bits of bf16, not the numbers
        return tl.dot(v.to(tl.float32), tl.trans(r.to(tl.float32)), input_precision="ieee")
    elif MULTIPLY == "tf32":
        return tl.dot(round_to_tf32(v), tl.trans(r), input_precision="tf32")
    else:
        return tl.dot(v, tl.trans(r), input_precision="ieee", out_dtype=WIDE)


@triton.jit
def recur(
    v, held, rows, live, exchange, turn,
    MULTIPLY: tl.constexpr, UPCAST: tl.constexpr, HELD: tl.constexpr, SHARED: tl.constexpr, STAGES: tl.constexpr,
    BLOCK_B: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """v · Rᵀ for the rows of R that this program owns: [BLOCK_B, BLOCK_N].

    HELD: `held` are those rows, kept in registers from step to step; else they are read anew. SHARED: v is only this
    program's part of the state, which all programs of the group put together first. exchange: (where the state stands,
    distance of its two slots, this program's part in it, which of that exists, rows that exist, width, counter,
    programs).
    """
    if not SHARED:
        return product(v.to(held.dtype), held, MULTIPLY, UPCAST)
    else:
        n_hidden = exchange[5]
        state_at = exchange[0] + (turn % 2) * exchange[1]
        publish(v, exchange[2] + (turn % 2) * exchange[1], exchange[3], exchange[6], (turn + 1) * exchange[7])
        if HELD:
            whole = load_rows(state_at, exchange[4], tl.arange(0, BLOCK_K), n_hidden, PAST_L1)
            return product(whole, held, MULTIPLY, UPCAST)
        else:
            acc = tl.zeros((BLOCK_B, BLOCK_N), v.dtype)
            for start in tl.range(0, n_hidden, BLOCK_K, num_stages=STAGES):
                k = start + tl.arange(0, BLOCK_K)
                whole = load_rows(state_at, exchange[4], k, n_hidden, PAST_L1)
                r = load_weights(rows, live, k, n_hidden, MULTIPLY)
                acc += product(whole, r, MULTIPLY, UPCAST)
            return acc


@triton.jit
def exchange_of(
    state_ptr, counter_ptr, slot, direction, group, n_groups, n_parts, b, j, b_live, inside, n_batch, n_hidden
):
    """What `recur` calls `exchange`, for a tile of the batch; nothing where the program has the state to itself."""
    if state_ptr is None:
        return (n_hidden,)
    else:
        state = state_ptr + (direction * n_batch + b) * n_hidden
        counter = counter_ptr + (direction * n_groups + group) * COUNTER_WORDS
        return (state, slot, state[:, None] + j[None, :], inside, b_live, n_hidden, counter, n_parts)


@triton.jit
def load_rows(rows, live, k, n_columns, CACHE: tl.constexpr):
    """Columns k of the rows that are live: [rows, columns], 0 where there are none."""
    mask = live[:, None] & (k < n_columns)[None, :]
    return tl.load(rows[:, None] + k[None, :], mask=mask, other=0, cache_modifier=CACHE)


@triton.jit
def load_weights(rows, live, k, n_columns, MULTIPLY: tl.constexpr):
    """Columns k of R's rows as `product` wants them."""
    r = load_rows(rows, live, k, n_columns, "")
    return round_to_tf32(r) if MULTIPLY == "tf32" else r


@triton.jit
def publish(v, at, mask, counter_ptr, goal):
    """Stores v where the other programs of the group read it, and waits until all of them, who count up to `goal`, have
    stored theirs."""
    tl.store(at, v.to(at.dtype.element_ty), mask=mask)
    tl.debug_barrier()  # one thread's release speaks for the stores of all only behind a barrier
    tl.atomic_add(counter_ptr, 1, sem="release")
    while tl.atomic_add(counter_ptr, 0, sem="acquire") < goal:
        pass


@triton.jit
def projected(x_rows, step_stride, s, length, backward, columns, live):
    """The projected inputs of step s, counted from the end of a sequence where that is read backward."""
    at = x_rows + time_of(s, length, backward).to(tl.int64) * step_stride
    return tl.load(at[:, None] + columns[None, :], mask=(s < length)[:, None] & live[None, :], other=0)


@triton.jit
def time_of(s, length, backward):
    """Which time a step is about. Steps past a sequence's end are the times past its end, backward too."""
    return tl.where((s < length) & backward, length - 1 - s, s)


@triton.jit
def initial_state(at, own, inside, BLOCK_B: tl.constexpr, BLOCK_H: tl.constexpr, TYPE: tl.constexpr):
    """h or c before the first step: zero where it is not given."""
    if at is None:
        return tl.zeros((BLOCK_B, BLOCK_H), TYPE)
    else:
        return tl.load(at + own, mask=inside, other=0).to(TYPE)


@triton.jit
def unit_weights(at, row, j, n_hidden, TYPE: tl.constexpr):
    """One weight for each hidden unit j, from row `row` of a matrix: [1, BLOCK_H]; 0 where there is no matrix."""
    if at is None:
        return tl.zeros_like(j).to(TYPE)[None, :]
    else:
        return tl.load(at + row * n_hidden + j, mask=j < n_hidden, other=0).to(TYPE)[None, :]


@triton.jit
def peephole_weights(at, direction, j, n_hidden, TYPE: tl.constexpr):
    """Those of i, o and f."""
    return (
        unit_weights(at, direction * 3, j, n_hidden, TYPE),
        unit_weights(at, direction * 3 + 1, j, n_hidden, TYPE),
        unit_weights(at, direction * 3 + 2, j, n_hidden, TYPE),
    )


@triton.jit
def lengths_of(at, b, live, n_steps):
    """Of the sequences b; n_steps where lengths are not given, 0 where there is no sequence."""
    if at is None:
        return tl.where(live, n_steps, 0)
    else:
        return tl.load(at + b, mask=live, other=0)


@triton.jit
def store_where(at, offsets, values, alive, inside):
    """Stores values where alive, and zeros elsewhere; nothing where the output is not wanted."""
    if at is not None:
        tl.store(at + offsets, tl.where(alive, values, 0.0).to(at.dtype.element_ty), mask=inside)


@triton.jit
def summed_biases_kernel(b_ptr, y_ptr, n_row, n_both, BLOCK: tl.constexpr):
    """y[d, i] = b[d, i] + b[d, n_row + i] for i < n_both, b[d, i] for n_both <= i < n_row."""
    direction = tl.program_id(0).to(tl.int64)
    for start in range(0, n_row, BLOCK):
        i = start + tl.arange(0, BLOCK)
        at = b_ptr + direction * 2 * n_row + i
        b = tl.load(at, mask=i < n_row, other=0).to(y_ptr.dtype.element_ty)
        b += tl.load(at + n_row, mask=i < n_both, other=0)
        tl.store(y_ptr + direction * n_row + i, b, mask=i < n_row)
