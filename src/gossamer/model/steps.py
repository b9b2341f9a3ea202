"""Steps: the vocabulary of elementwise computation, and straight-line programs written in it.

The one elementwise kernel evaluates such programs; `model/elementwise` says which program an ONNX operator is; the pass
`elementwise_chains` joins the programs of several nodes into one, which `gossamer::Elementwise` carries as text:

```
%y = gossamer::Elementwise[steps=["add 0 1","leaky_relu 2 alpha=0.01","mul 3 0"], results=[4]](%x0, %x1)
```

Values are numbered: inputs first, then one for each step. float16 and bfloat16 are computed in float32 and rounded when
stored, or by a `cast`; every other type is computed in itself, integers wrap around.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

Number = int | float


@dataclass(frozen=True, slots=True)
class Operation:
    """What a step may be: how many operands it has, the names of its parameters, whether it names its result's type."""

    operands: int
    parameters: tuple[str, ...] = ()
    typed: bool = False


def _of_arity(operands: int, names: str) -> dict[str, Operation]:
    return dict.fromkeys(names.split(), Operation(operands))


OPERATIONS: Mapping[str, Operation] = {
    **_of_arity(
        1,
        "abs acos acosh asin asinh atan atanh bitwise_not ceil cos cosh cube erf exp floor is_nan log neg not "
        "reciprocal round sign sin sinh sqrt square tan",
    ),
    **_of_arity(
        2,
        "add sub mul div pow mod fmod max min equal less less_equal "
        "bitwise_and bitwise_or bitwise_xor shift_left shift_right prelu",
    ),
    **_of_arity(3, "where"),
    # The activations, by the names of kernels/activations.
    **_of_arity(1, "relu hard_swish mish sigmoid softplus softsign tanh gelu gelu_tanh"),
    **dict.fromkeys(("celu", "elu", "leaky_relu", "silu", "thresholded_relu"), Operation(1, ("alpha",))),
    **dict.fromkeys(("clip", "hard_sigmoid", "selu"), Operation(1, ("alpha", "beta"))),
    "shrink": Operation(1, ("alpha", "beta")),
    "is_inf": Operation(1, ("alpha", "beta")),
    "cast": Operation(1, typed=True),
    "round_to_odd": Operation(1),
    "encode_integer": Operation(1, typed=True),
    "encode_float": Operation(1, ("saturate",), typed=True),
    "encode_scale": Operation(1, ("saturate", "rounding"), typed=True),
    "decode": Operation(1, typed=True),
    "constant": Operation(0, ("value",), typed=True),
}
"""Every step by name. pow: both operands of one type. mod has the sign of the divisor, fmod of the dividend. max, min:
NaN where an operand is. prelu: x, slope. where: condition, then, else. clip: alpha ≤ y ≤ beta. silu: x sigmoid(alpha
x). shrink: alpha is `lambd`, beta `bias`. is_inf: alpha and beta say whether −∞ and +∞ count. round_to_odd: float64 to
float32 so that rounding once more is as good as rounding once. encode_…, decode: between numbers and their bits in the
format, of `NARROW`, that the step names. Parameters are fp32 except a constant's value, which has the type that the
step names."""


@dataclass(frozen=True, slots=True)
class Step:
    """One operation on numbered values. parameters: in the order of `OPERATIONS`. to: the dtype name of a typed
    step."""

    op: str
    operands: tuple[int, ...] = ()
    parameters: tuple[Number, ...] = ()
    to: str = ""

    def __post_init__(self) -> None:
        operation = OPERATIONS[self.op]
        assert len(self.operands) == operation.operands, f"{self.op} takes {operation.operands} operands"
        assert len(self.parameters) == len(operation.parameters), f"{self.op} takes {operation.parameters}"
        assert bool(self.to) == operation.typed, f"{self.op} with result type '{self.to}'"

    def __str__(self) -> str:
        names = OPERATIONS[self.op].parameters
        given = [f"{name}={_number_text(value, self.to)}" for name, value in zip(names, self.parameters, strict=True)]
        return " ".join([self.op, *map(str, self.operands), *given, *([f"to={self.to}"] if self.to else [])])


def parse_step(text: str) -> Step:
    """The inverse of `str`. Raises ValueError for text that is no step."""
    op, *words = text.split()
    if op not in OPERATIONS:
        raise ValueError(f"'{text}' is no elementwise step")
    named = dict(word.split("=", 1) for word in words if "=" in word)
    to = named.pop("to", "")
    names = OPERATIONS[op].parameters
    if named.keys() != set(names):
        raise ValueError(f"'{text}': {op} takes the parameters {', '.join(names) or 'none'}")
    return Step(
        op,
        tuple(int(word) for word in words if "=" not in word),
        tuple(_number_from(named[name], to) for name in names),
        to,
    )


NARROW_INTEGERS: Mapping[str, str] = {"int2": "int8", "int4": "int8", "uint2": "uint8", "uint4": "uint8"}
"""Integers of less than 8 bits → the type that they are decoded to."""
NARROW_FLOATS = (
    *("float4_e2m1fn", "float6_e2m3fn", "float6_e3m2fn"),
    *("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"),
)
"""Floats of up to 8 bits. They are decoded to float32."""
SCALE = "float8_e8m0fnu"
"""The format of the scales of blocks: powers of two and nothing else. Decoded to float32."""
NARROW = frozenset((*NARROW_INTEGERS, *NARROW_FLOATS, SCALE))
"""Formats whose values are handled as their bits, one a byte, in uint8."""


def is_float(dtype: str) -> bool:
    """Whether a dtype name is that of a float of any width."""
    return "float" in dtype


def _number_text(value: Number, to: str) -> str:
    if isinstance(value, float) and to != "float64":
        return str(np.float32(value))  # the shortest text that fp32 reads back as the same number
    return repr(value)


def _number_from(text: str, to: str) -> Number:
    if to and not is_float(to):
        return int(text)
    return float(text) if to == "float64" else float(np.float32(text))


@dataclass(frozen=True, slots=True)
class Expression:
    """A straight-line program. results: the numbers of the values it gives. steps: in an order that can be run."""

    n_inputs: int
    steps: tuple[Step, ...]
    results: tuple[int, ...]

    @staticmethod
    def parse(n_inputs: int, steps: Iterable[str], results: Iterable[int]) -> Expression:
        return Expression(n_inputs, tuple(parse_step(text) for text in steps), tuple(results))

    def depends_on(self, result: int) -> frozenset[int]:
        """The inputs that value number `result` is computed from."""
        pending, inputs = [result], set()
        while pending:
            value = pending.pop()
            if value < self.n_inputs:
                inputs.add(value)
            else:
                pending.extend(self.steps[value - self.n_inputs].operands)
        return frozenset(inputs)


class ExpressionBuilder:
    """Collects steps. Values are handled by references that `finish` turns into numbers; equal steps are one."""

    def __init__(self) -> None:
        self._inputs: dict[object, int] = {}
        self._steps: dict[tuple[Step, str], int] = {}  # the text tells 0.0 from −0.0

    def input(self, key: object) -> int:
        """The reference of an input; `keys` lists them in order of first mention."""
        return -1 - self._inputs.setdefault(key, len(self._inputs))

    @property
    def keys(self) -> tuple[object, ...]:
        return tuple(self._inputs)

    def __len__(self) -> int:
        return len(self._steps)

    def step(self, op: str, *operands: int, parameters: Iterable[Number] = (), to: str = "") -> int:
        """The reference of a step's result."""
        return self.add(Step(op, operands, tuple(_as_stored(value, to) for value in parameters), to))

    def add(self, step: Step) -> int:
        """The reference of the result of a step whose operands are references."""
        return self._steps.setdefault((step, repr(step.parameters)), len(self._steps))

    def constant(self, value: Number, dtype: str) -> int:
        """The reference of a constant; value in the range of `dtype`."""
        return self.step("constant", parameters=(value,), to=dtype)

    def append(self, expression: Expression, inputs: Iterable[int]) -> tuple[int, ...]:
        """Runs another expression on the referenced inputs; the references of its results."""
        known = list(inputs)
        assert len(known) == expression.n_inputs
        for step in expression.steps:
            operands = tuple(known[operand] for operand in step.operands)
            known.append(self.add(Step(step.op, operands, step.parameters, step.to)))
        return tuple(known[result] for result in expression.results)

    def finish(self, results: Iterable[int]) -> Expression:
        """The expression that gives the referenced values."""
        n_inputs = len(self._inputs)

        def number(reference: int) -> int:
            return -1 - reference if reference < 0 else n_inputs + reference

        steps = (Step(s.op, tuple(map(number, s.operands)), s.parameters, s.to) for s, _ in self._steps)
        return Expression(n_inputs, tuple(steps), tuple(map(number, results)))


def _as_stored(value: Number, to: str) -> Number:
    """As the kernel gets it: fp32 parameters, constants in their own type."""
    if to and not is_float(to):
        return int(value)
    return float(value) if to == "float64" else float(np.float32(value))
