"""Recurrent kernels compile for every architecture, and plans are ones that can run."""

from __future__ import annotations

import pytest

import harness
from cases.recurrent import Recurrent
from gossamer.build.compilation import compile_kernels
from gossamer.kernels.recurrent_plan import MOST_BYTES, choose_plan
from gossamer.program import Fill, Target

BOTH, LINEAR = {"direction": "bidirectional"}, {"linear_before_reset": 1}
COMPILED = {
    "alone": Recurrent("LSTM", 8, 1, 32, 64, BOTH, lengths=[8], peepholes=True),
    "shared": Recurrent("LSTM", 8, 1, 32, 256, dtype="bfloat16"),
    "double": Recurrent("RNN", 8, 1, 32, 50, dtype="float64"),
    "double_tiles": Recurrent("GRU", 8, 9, 32, 100, LINEAR, dtype="float64"),
    "tiles_alone": Recurrent("GRU", 8, 9, 32, 64, LINEAR | BOTH, dtype="float16"),
    "tiles_shared": Recurrent("GRU", 8, 9, 32, 256, BOTH, dtype="float16"),
    "tiles_tf32": Recurrent("LSTM", 8, 9, 32, 256, {"clip": 3.0}),
    "anew": Recurrent("LSTM", 8, 9, 32, 1500, BOTH, dtype="bfloat16"),
    "anew_few_rows": Recurrent("RNN", 8, 2, 32, 6000),
}


def test_every_form_compiles_for_every_architecture() -> None:
    kernels = [k for name, made in COMPILED.items() for k in harness.kernels_of(made.case(name).model())]
    recurrent = [kernel for kernel in dict.fromkeys(kernels) if kernel.function == "recurrent_kernel"]
    forms = {(dict(k.constants)["MULTIPLY"], dict(k.constants)["HELD"], k.cooperative) for k in recurrent}
    assert forms == {
        ("sum", True, False), ("sum", True, True), ("sum", False, True), ("tf32", True, True),
        ("ieee", True, False), ("ieee", True, True), ("ieee", False, True),
    }  # fmt: skip
    harness.compile_all(recurrent)


@pytest.mark.parametrize("arch", [89, 120])
@pytest.mark.parametrize("made", [
    Recurrent("LSTM", 8, 9, 32, 64),
    Recurrent("LSTM", 8, 300, 32, 1000, BOTH, dtype="float16"),
    Recurrent("GRU", 8, 9, 32, 512, BOTH, dtype="float16"),
    Recurrent("RNN", 8, 2, 32, 6000),
])  # fmt: skip
def test_plans_fit_small_shared_memories(made: Recurrent, arch: int) -> None:
    target = Target.named(f"sm_{arch}")
    kernels = [k for k in harness.kernels_of(made.case("fit").model(), target.name) if k.function == "recurrent_kernel"]
    for cubin in compile_kernels(kernels, target).values():
        assert cubin.shared_bytes <= target.shared_bytes


def test_biases_are_summed_by_a_kernel_where_they_are_inputs() -> None:
    model = Recurrent("GRU", attributes=LINEAR, constants=()).case("inputs").model()
    kernels = [kernel for kernel in harness.kernels_of(model) if kernel.function == "summed_biases_kernel"]
    assert len(kernels) == 1
    harness.compile_all(kernels)


@pytest.mark.parametrize("made", [Recurrent("LSTM", 100, 4, 32, 512, BOTH), Recurrent("GRU", 100, 1, 8, 32)])
def test_steps_are_walked_in_one_launch(made: Recurrent) -> None:
    """One matrix product and one recurrence, whatever the number of steps; where states are exchanged, a counter is
    zeroed."""
    program = harness.lower_model(made.case("steps").model(), Target.named("sm_90"))[0]
    fills = [call for call in program.calls if isinstance(call, Fill)]
    (recurrence,) = [launch for launch in program.launches if launch.kernel.function == "recurrent_kernel"]
    assert len(list(program.launches)) <= 3  # the product may be split
    assert len(fills) == int(recurrence.kernel.cooperative)


@pytest.mark.parametrize("arch", harness.ARCHITECTURES)
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("gates", [1, 2, 4])
def test_programs_that_wait_for_each_other_fit_the_machine(arch: int, dtype: str, gates: int) -> None:
    target = Target.named(f"sm_{arch}")
    for hidden in (1, 7, 64, 100, 256, 1000, 1024, 5000, 20000):
        for batch in (1, 2, 3, 16, 17, 300, 5000):
            for directions in (1, 2):
                plan = choose_plan(batch, hidden, gates, directions, dtype, target)
                if plan.shared:
                    assert plan.parts(hidden) * plan.groups * directions <= target.sm_count
                else:
                    assert plan.block_h >= hidden
                    assert plan.held
                if plan.held:
                    assert plan.block_k >= hidden
                    assert gates * plan.block_h * plan.block_k * harness.np.dtype(dtype).itemsize <= MOST_BYTES
