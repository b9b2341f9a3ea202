"""Nodes as real cuDNN's plans, made without a GPU: every case of the families has one, or a refusal that says why not.

(R7, R10.8; what the plans compute, tests/interpreter/test_cudnn_lowerings.py and tests/gpu show.)
"""

from __future__ import annotations

from typing import Any

import pytest

from cudnn_releases import Release


def described(release: Release, cases: str, how: str = "") -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = release.run(f"""
        from dataclasses import replace
        import cudnn_lowerings as lowerings
        print(json.dumps(lowerings.of(lowerings.{cases}{how})))
    """)
    return found


def plans(calls: dict[str, list[Any]]) -> dict[str, dict[str, Any]]:
    """Case → its plan; every case has one."""
    missing = {case: call for case, call in calls.items() if not isinstance(call[0], dict)}
    assert not missing
    return {case: call[0] for case, call in calls.items()}


def notes(found: dict[str, dict[str, Any]]) -> set[str]:
    return {note for plan in found.values() for note in plan["notes"]}


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_convolutions(newest: Release, dtype: str) -> None:
    """Each one runs through cuDNN, by an engine that is compiled already: a new shape costs milliseconds. Its tensors
    are those that the call has memory for."""
    found = plans(described(newest, f"convolutions('{dtype}')"))
    assert len(found) > 80
    assert not notes(found) & {"RUNTIME_COMPILATION", "REDUCED_PRECISION_REDUCTION"}
    assert all(plan["bound"] == plan["roles"] for plan in found.values())


def test_an_older_release(release_named: Any) -> None:
    found = plans(described(release_named("9.19"), "convolutions('float16')"))
    assert "RUNTIME_COMPILATION" not in notes(found)


def test_contributed_operators(newest: Release) -> None:
    plans(described(newest, "contributed()"))


def test_fast_engines_are_found(newest: Release) -> None:
    """Half precision goes through tensor cores, epilogue included, wherever shapes allow it."""
    calls = described(newest, "convolutions('float16')")
    assert [len(calls[case]) for case in calls if case.startswith("FusedConv-relu")] == [1, 1, 1]
    for case in ("Conv-3x3-nhwc-float16", "FusedConv-relu-nhwc-float16", "Conv-3d-nhwc-float16"):
        assert "TENSOR_CORE" in calls[case][0]["notes"], case
    assert calls["FusedConv-no_bias-nhwc-float16"][1:] == ["Launch"]  # no engine knows hard_swish


def test_float32_without_tf32(newest: Release) -> None:
    calls = described(newest, "convolutions('float32')", ", target=lowerings.SM_90.with_tf32(False)")
    assert not notes(plans(calls)) & {"TENSOR_CORE", "DOWN_CONVERT_INPUTS", "WINOGRAD"}
    assert "TENSOR_CORE" in notes(plans(described(newest, "convolutions('float32')")))


def test_deterministic(newest: Release) -> None:
    calls = described(newest, "convolutions('float32')", ", target=lowerings.SM_90.with_deterministic(True)")
    assert "NONDETERMINISTIC" not in notes(plans(calls))


def test_default_search(newest: Release) -> None:
    """The option's DEFAULT takes what works without heuristics."""
    how = ", replace(lowerings.POLICY, search='DEFAULT')"
    found = plans(described(newest, "convolutions('float16')", how))
    assert {plan["mode"] for case, plan in found.items() if case.startswith("Conv-3x3")} == {"fallback"}


@pytest.mark.parametrize("target", ["sm_75", "sm_80", "sm_89", "sm_100", "sm_120"])
def test_other_architectures(newest: Release, target: str) -> None:
    how = f", target=__import__('gossamer.program').program.Target.named('{target}')"
    calls = described(newest, "contributed()", how)
    assert all(isinstance(call[0], dict) for call in calls.values())


def test_attention(newest: Release) -> None:
    """Two plans, and every reason there is for having none."""
    calls = described(newest, "attentions()")
    taken = {case for case, call in calls.items() if isinstance(call[0], dict)}
    assert taken == {"FusedAttention-bert_1", "Attention-float16"}
    reasons = {call[0].split(": ")[1] for case, call in calls.items() if case not in taken}
    kinds = ("one of halves, not of", "has no 'x", "biases of projections, padding, or past", "see nothing")
    assert all(any(kind in reason for kind in kinds) for reason in reasons), reasons
    assert all(any(kind in reason for reason in reasons) for kind in kinds)


def test_a_shape_is_planned_once(newest: Release) -> None:
    counted = newest.run("""
        import cudnn_lowerings as lowerings
        from gossamer.cudnn import plan_cache
        from cases import convolution
        counts, plans = [0], plan_cache.Task.plans
        def counting(self, **how):
            counts[0] += 1
            return plans(self, **how)
        plan_cache.Task.plans = counting
        case = convolution.PLAIN[0]
        model, _ = case.model()
        first = lowerings.placed(model).nodes[0].calls
        once = counts[0]
        again = lowerings.placed(model).nodes[0].calls
        print(json.dumps([once, counts[0], first == again]))
    """)
    assert counted == [1, 1, True]


def test_without_the_gpu_that_is_meant(newest: Release) -> None:
    """A target that stands for a GPU of this machine, which is not there: native, and the report says why. (R7)"""
    if not no_gpu_here():
        pytest.skip("a machine without a GPU")
    report = newest.run("""
        from dataclasses import replace
        import cudnn_lowerings as lowerings
        from gossamer.providers.cudnn import Policy
        from cases import convolution
        target = replace(lowerings.SM_90, device=0)
        placement = lowerings.placed(convolution.PLAIN[0].model()[0], Policy(enabled=True), target)
        print(json.dumps([str(placement), [type(call).__name__ for call in placement.nodes[0].calls]]))
    """)
    assert "not on cuDNN: cudnnBackend" in report[0]
    assert set(report[1]) == {"Launch"}


def no_gpu_here() -> bool:
    from conftest import no_gpu

    return no_gpu() is not None


def test_no_tensors_without_elements(newest: Release) -> None:
    found = newest.run("""
        import numpy as np, harness, cudnn_lowerings as lowerings
        x, w = np.zeros((0, 4, 8, 8), np.float32), np.zeros((4, 4, 3, 3), np.float32)
        model = harness.node_model("Conv", [x, w], constants=(1,))
        print(json.dumps(lowerings.placed(model).nodes[0].would_raise))
    """)
    assert "cuDNN has no tensors without elements" in found
