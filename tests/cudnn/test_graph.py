"""Graphs planned by real cuDNN, for devices that are not here, with no driver, handle or GPU. (R10)"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import cudnn_graphs
from cudnn_releases import Release, link
from fake_cudnn import Python
from gossamer.cudnn import driver_stand_in

ARCHITECTURES = ("sm_80", "sm_90", "sm_100")

PLAN_ALL = """
from gossamer.cudnn import calls
def no_handle(*_): raise AssertionError("a handle was made")
calls.cudnnCreate = no_handle
found = {}
for case, dtype in PAIRS:
    made = graph(ARCHITECTURE, case, dtype, name="first")
    plan = made.build()
    blob = plan.serialize()
    other = graph(ARCHITECTURE, name="second")
    restored = other.deserialize(blob)
    found[f"{case}-{dtype}"] = {
        "same bytes": restored.serialize() == blob,
        "same graph": other.as_dict() == made.as_dict() | {"name": "second"},
        "same tensors": restored.tensors == plan.tensors,
        "same scalars": restored.scalars == plan.scalars,
        "workspaces": [plan.workspace_size, restored.workspace_size],
        "same notes": [restored.behavior_notes, restored.numerical_notes]
            == [plan.behavior_notes, plan.numerical_notes],
        "architecture": restored.architecture,
        "names": sorted(tensor.name for tensor in restored.tensors.values() if tensor.name),
        "handles": [made.handle, other.handle],
    }
    plan.close(); restored.close(); made.close(); other.close()
print(json.dumps(found))
"""

PAIRS = [(case, dtype) for case, (_, dtypes) in cudnn_graphs.CASES.items() for dtype in dtypes]
EXPECTED = [
    (release, architecture, case, dtype)
    for release in ("9.28", "9.19")
    for architecture in ARCHITECTURES
    for case, dtype in PAIRS
]


@pytest.fixture(scope="module")
def planned(release_named: Callable[[str], Release]) -> Callable[[str, str], dict[str, Any]]:
    """(release, architecture) → what was planned for each case, all in one process."""
    done: dict[tuple[str, str], dict[str, Any]] = {}

    def plan(release: str, architecture: str) -> dict[str, Any]:
        if (release, architecture) not in done:
            pairs = [(case, dtype) for *which, case, dtype in EXPECTED if which == [release, architecture]]
            code = PLAN_ALL.replace("PAIRS", repr(pairs)).replace("ARCHITECTURE", repr(architecture))
            done[release, architecture] = release_named(release).run(code)
        return done[release, architecture]

    return plan


@pytest.mark.parametrize(("release", "architecture", "case", "dtype"), EXPECTED, ids=map("-".join, EXPECTED))
def test_planned_and_restored(
    planned: Callable[[str, str], dict[str, Any]], release: str, architecture: str, case: str, dtype: str
) -> None:
    """R10.2, R10.8, R10.9, R10.13: without a handle; plan → bytes → plan → bytes changes nothing; the name stays."""
    found = planned(release, architecture)[f"{case}-{dtype}"]
    assert all(value for name, value in found.items() if name.startswith("same")), found
    assert found["workspaces"][0] == found["workspaces"][1] >= 0
    assert found["architecture"] == architecture
    assert "y" in found["names"]
    assert found["handles"] == [None, None]


LEAKS = """
import gc
from itertools import islice
from gossamer.cudnn import calls

alive, counts = set(), {}
create, destroy = calls.cudnnBackendCreateDescriptor, calls.cudnnBackendDestroyDescriptor

def created(kind, into):
    status = create(kind, into)
    alive.add(into._obj.value)
    return status

def destroyed(address):
    alive.remove(address)  # a KeyError where one is freed twice
    return destroy(address)

calls.cudnnBackendCreateDescriptor, calls.cudnnBackendDestroyDescriptor = created, destroyed
gc.disable()  # what nobody frees, nobody frees later

made = graph("h200", "convolution_bias_relu")
with made.build() as plan:
    counts["planned"] = len(alive)
    blob = plan.serialize()
with graph("h200").deserialize(blob):
    counts["restored"] = len(alive)
first, second = islice(made.plans(modes=["A", "B", "fallback"]), 2)
counts["two of many"] = len(alive)
first.close(); second.close(); second.close()
sizes = set()
for plan in made.plans(workspace_limit=0):  # most of what is planned needs more, and is dropped
    with plan:
        sizes.add(plan.workspace_size)
counts["workspaces"] = list(sizes)
counts["refused"] = [
    refusal(lambda: made.build(require=["FFT"]))[0],
    refusal(lambda: graph("t4").deserialize(blob))[0],
]
with KernelCache() as cache:
    dynamic = graph("h200", "matmul_bias_gelu", kernel_cache=cache, dynamic_shapes=True)
    dynamic.build(require=["RUNTIME_COMPILATION"]).close()
    KernelCache.deserialize(cache.serialize()).close()
    counts["cache"] = len(alive)
counts["left"] = len(alive)
print(json.dumps(counts))
"""


def test_descriptors_are_freed(release: Release) -> None:
    """Of all that planning makes inside cuDNN only plans and caches live on, until they are closed."""
    assert release.run(LEAKS) == {
        "planned": 1,
        "restored": 1,
        "two of many": 2,
        "workspaces": [0],
        "refused": ["NOT_SUPPORTED", "ARCH_MISMATCH"],
        "cache": 1,
        "left": 0,
    }


def test_the_stand_in_is_loaded_by_those_who_plan(release: Release) -> None:
    """Nothing loads it unasked, where there is no driver: not looking for cuDNN, not restoring a plan."""
    if driver_stand_in.driver_available():
        pytest.skip("there is a driver here, so that no stand-in is loaded")
    made = release.run("print(json.dumps(list(graph('h200', 'convolution').build().serialize())))")
    reason, before, mapped = release.run(
        f"""
        def drivers():
            return sorted({{line.split()[-1] for line in open("/proc/self/maps") if "libcuda.so" in line}})
        reason, _ = refusal(lambda: graph("h200").deserialize(bytes({made})))
        before = drivers()
        driver_stand_in.load()
        print(json.dumps([reason, before, drivers()]))
        """,
        stand_in=False,
    )
    assert (reason, before) == ("PREREQUISITE_MISSING", [])
    assert mapped == [str(next((release.python.cache / "driver_stand_in").glob("*/libcuda.so.1")))]


def test_runtime_compiled_engines_are_proposed(release: Release) -> None:
    """The stand-in is enough for engines that compile at run time: without them, no plan for a matmul with a gelu."""
    notes = release.run("""
        plan = graph("h100-sxm", "matmul_bias_gelu").build()
        print(json.dumps(sorted(plan.behavior_notes)))
    """)
    assert "RUNTIME_COMPILATION" in notes


def test_without_a_driver_or_its_stand_in(release: Release) -> None:
    """The error says what to call; nothing aborts."""
    reason, text = release.run("""
        from gossamer.cudnn import driver_stand_in
        driver_stand_in._loaded.clear()
        driver_stand_in.driver_available = lambda: False
        print(json.dumps(refusal(lambda: graph("h200", "convolution").build())))
    """)
    assert reason == "PREREQUISITE_MISSING"
    assert "driver_stand_in.load()" in text


def test_without_cublaslt(release: Release) -> None:
    """cuDNN would end the process ("Cannot load symbol cublasLtGetVersion"); Gossamer says what to install."""
    reason, text = release.run("""
        from gossamer.cudnn import prerequisites
        prerequisites._places = lambda name, file, library: iter(["/nowhere/" + file])
        print(json.dumps(refusal(lambda: graph("h200", "convolution").build())))
    """)
    assert reason == "PREREQUISITE_MISSING"
    assert "libcublasLt.so.13" in text
    assert "pip install nvidia-cublas" in text


def test_what_cudnn_has_no_engine_for(release: Release) -> None:
    """The error lists why, and names the graph."""
    reason, text = release.run("""
        made = Graph(properties=DeviceProperties.named("h200"), name="odd")
        x = made.tensor("x", (64, 128, 256), "float16")
        made.output(made.reduction("add", x, [1]))
        print(json.dumps(refusal(made.build)))
    """)
    assert reason == "NOT_SUPPORTED"
    assert "'odd' (Reduction)" in text


def test_the_package_with_runtime_compiled_engines_only(wheel_members: Callable[..., Path], tmp_path: Path) -> None:
    """nvidia-cudnn-jit, a fifth of the size, needs no cuBLASLt; all its plans compile at run time."""
    python = Python.create(tmp_path / "python")
    link(wheel_members("cudnn-jit-9.27", "nvidia/cudnn_jit/lib/*"), python, "nvidia/cudnn_jit/lib/libcudnn*")
    link(wheel_members("nvrtc-13.5", "nvidia/cu13/lib/*"), python, "nvidia/cu13/lib/*")
    notes = Release("jit", python).run("""
        found = {}
        for case in ("convolution_bias_relu", "matmul_bias_gelu", "attention"):
            blob = graph("h200", case).build().serialize()
            found[case] = sorted(graph("h200").deserialize(blob).behavior_notes)
        print(json.dumps(found))
    """)
    assert all("RUNTIME_COMPILATION" in one for one in notes.values())
    assert len(notes) == 3
