"""Plans of real cuDNN: chosen, written, restored, refused. No driver, no GPU. (R10)"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cudnn_releases import Release


def test_another_architecture_is_refused(release: Release) -> None:
    """R10.5: the error names the plan's device and this one, and in what they differ."""
    refused = release.run("""
        blob = graph("h100-sxm", "convolution").build().serialize()
        print(json.dumps({name: refusal(lambda: graph(name).deserialize(blob))
                          for name in ("a100-80gb", "b200", "rtx-4090", "h100-pcie")}))
    """)
    for name, device in {"a100-80gb": "NVIDIA A100-SXM4-80GB (sm_80, 108", "b200": "NVIDIA B200 (sm_100, 148"}.items():
        reason, text = refused[name]
        assert reason == "ARCH_MISMATCH"
        assert "NVIDIA H100 80GB HBM3 (sm_90, 132 multiprocessors)" in text
        assert device in text
    reason, text = refused["h100-pcie"]  # the same architecture, another number of multiprocessors
    assert reason == "ARCH_MISMATCH"
    assert "multiProcessorCount 132 and 114" in text
    assert "deviceVer" not in text
    assert refused["rtx-4090"][0] == "ARCH_MISMATCH"


def test_drivers(release: Release) -> None:
    """A plan is restored for a newer driver, although cuDNN 9.19 itself takes it for the same one only."""
    older, same, newer = release.run("""
        blob = graph("h200", "convolution").build().serialize()
        properties = DeviceProperties.named("h200")
        print(json.dumps([refusal(lambda: Graph(properties=properties.with_driver(version)).deserialize(blob))
                          for version in (12080, 13000, 13020)]))
    """)
    assert older[0] == "DRIVER_MISMATCH"
    assert "driverVer 13000 and 12080" in older[1]
    assert same.startswith("none, but Plan(")
    assert newer.startswith("none, but Plan(")


def test_runtime_compilation_is_chosen_by_note(release: Release) -> None:
    """R10.6: asked for, and got; also after it was restored."""
    chosen, restored, plain, notes = release.run("""
        made = graph("h200", "convolution_bias_relu")
        plan = made.build(require=["RUNTIME_COMPILATION"])
        restored = graph("h200").deserialize(plan.serialize())
        plain = made.build(forbid=["RUNTIME_COMPILATION", "NONDETERMINISTIC"])
        print(json.dumps([sorted(one) for one in (plan.behavior_notes, restored.behavior_notes, plain.behavior_notes,
                          plan.numerical_notes)]))
    """)
    assert "RUNTIME_COMPILATION" in chosen
    assert chosen == restored
    assert "RUNTIME_COMPILATION" not in plain
    assert "TENSOR_CORE" in notes


def test_choices(release: Release) -> None:
    """R10.6: modes, conditions and the limit on workspace; refusals say what was proposed."""
    found = release.run("""
        made = graph("h200", "convolution")
        plans = list(made.plans(modes=["A", "B", "fallback"], forbid=["RUNTIME_COMPILATION"]))
        last = plans[-1]
        print(json.dumps({
            "modes": sorted({plan.mode for plan in plans}),
            "fallback": made.build(modes=["fallback"], forbid=["RUNTIME_COMPILATION"]).mode,
            "engine": [made.build(modes=["A", "B", "fallback"], where=lambda c: c.index == last.engine).engine,
                       last.engine],
            "limit": [made.build(workspace_limit=0, forbid=["RUNTIME_COMPILATION"]).workspace_size,
                      max(plan.workspace_size for plan in plans)],
            "none": refusal(lambda: made.build(require=["TENSOR_CORE", "FFT"])),
            "by caller": refusal(lambda: made.build(where=lambda config: False)),
            "no such note": refusal(lambda: made.build(require=["FASTEST"])),
            "no such mode": refusal(lambda: made.build(modes=["C"])),
        }))
    """)
    assert found["modes"] == ["A", "B", "fallback"]
    assert found["fallback"] == "fallback"
    assert found["engine"][0] == found["engine"][1]
    assert found["limit"][0] == 0 < found["limit"][1]
    assert found["none"][0] == "NOT_SUPPORTED"
    assert "of mode A (TENSOR_CORE): without FFT" in found["none"][1]
    assert "refused by the caller's condition" in found["by caller"][1]
    assert found["no such note"][0] == found["no such mode"][0] == "InvalidArgument"


def test_enforce_precompiled(newest: Release) -> None:
    """R10.4: bytes that carry a graph only are built, unless a precompiled plan is insisted on."""
    built, refused = newest.run("""
        blob = graph("h200", "convolution").serialize()
        print(json.dumps([refusal(lambda: graph("h200").deserialize(blob)),
                          refusal(lambda: graph("h200").deserialize(blob, enforce_precompiled=True))]))
    """)
    assert built.startswith("none, but Plan(")
    assert refused[0] == "NOT_PRECOMPILED"
    assert (
        newest.run("""
        plan = graph("h200").deserialize(graph("h200", "convolution").build().serialize(), enforce_precompiled=True)
        print(json.dumps(plan.architecture))
    """)
        == "sm_90"
    )


def test_graphs_and_plans_are_not_confused(newest: Release) -> None:
    """R10.7: bytes are a plan, text and dicts a graph, and a graph that was restored is planned like the first."""
    found = newest.run("""
        made = graph("h200", "convolution_bias_relu", name="first")
        values, text, plan = made.as_dict(), json.dumps(made.as_dict()), made.build()
        again = graph("h200", name="second")
        nothing = again.deserialize(text)
        print(json.dumps({
            "text": [nothing, again.as_dict() == values | {"name": "second"}],
            "dict": [graph("h200").deserialize(values), None],
            "planned": again.build().serialize() == plan.serialize().replace(b"first", b"second"),
            "plan as text": refusal(lambda: again.deserialize(plan.serialize().decode("latin-1"))),
            "graph as bytes": refusal(lambda: again.deserialize(text.encode())),
            "others": [refusal(lambda: again.deserialize(one))[0] for one in (None, 5, [1, 2], object())],
        }))
    """)
    assert found["text"] == [None, True]
    assert found["dict"] == [None, None]
    assert found["plan as text"][0] == "InvalidArgument"
    assert found["graph as bytes"][0] == "CORRUPT"
    assert found["others"] == ["WrongType"] * 4


def test_damaged_bytes(release: Release) -> None:
    """R10.9: truncated anywhere, or one bit wrong anywhere: CORRUPT each time, and the process lives."""
    reasons, count = release.run("""
        blob = graph("h200", "causal_attention").build().serialize()
        step = max(1, len(blob) // 400)
        damaged = [blob[:at] for at in range(0, len(blob), step)]
        damaged += [blob + b"N", b"{}", b"{" * 500, b"[$U#L" + b"\\x7f" * 8]
        for at in range(0, len(blob), step):
            damaged.append(blob[:at] + bytes([blob[at] ^ 1 << at % 8]) + blob[at + 1:])
        reasons = {refusal(lambda: graph("h200").deserialize(one))[0] for one in damaged}
        print(json.dumps([sorted(reasons), len(damaged)]))
    """)
    assert reasons == ["CORRUPT"]
    assert count > 800


MUTATED = """
import copy, os
from gossamer.cudnn import plan_format, ubjson

blob = graph("h200", "convolution_bias_relu").build(require=["RUNTIME_COMPILATION"]).serialize()
document = {key: value for key, value in ubjson.decode(blob).items() if not key.startswith("gossamer")}
plan = json.loads(document["cudnn_backend_data"])

def leaves(value, path=()):
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    yield from ((path, key) for key, _ in items)
    for key, item in items:
        yield from leaves(item, (*path, key))

def outcome(path, key, other):
    changed = copy.deepcopy(plan)
    place = changed
    for step in path:
        place = place[step]
    place[key] = other
    given = ubjson.encode(document | {"cudnn_backend_data": json.dumps(changed)})
    try:
        graph("h200").deserialize(given)
    except PlanError as error:
        return error.reason
    return "restored"

sys.stdout.flush()
silence = os.open(os.devnull, os.O_WRONLY)
os.dup2(silence, 2)
values = [None, -1, 2**63, "", "9" * 40, "CUDNN_DATA_HALF", [], {}]
found = [outcome(*place, other) for place in leaves(plan) for other in values]
print(json.dumps({reason: found.count(reason) for reason in set(found)}))
"""


def test_damaged_plans_without_a_checksum(release: Release) -> None:
    """R10.9: NVIDIA's frontend writes none. Every value of the backend's text replaced by others: errors, no abort."""
    found = release.run(MUTATED)
    assert set(found) <= {
        "CORRUPT",
        "NOT_SUPPORTED",
        "ARCH_MISMATCH",
        "DRIVER_MISMATCH",
        "VERSION_MISMATCH",
        "restored",
    }
    assert found["CORRUPT"] > 300


def test_plans_of_another_version(release_named: Callable[[str], Release], tmp_path: Path) -> None:
    """VERSION_MISMATCH names both versions."""
    texts = {}
    for name in ("9.19", "9.28"):
        path = tmp_path / name
        release_named(name).run(f"""
            open({str(path)!r}, "wb").write(graph("h200", "convolution").build().serialize())
            print("null")
        """)
    for name, other in (("9.19", "9.28"), ("9.28", "9.19")):
        reason, texts[name] = release_named(name).run(f"""
            blob = open({str(tmp_path / other)!r}, "rb").read()
            print(json.dumps(refusal(lambda: graph("h200").deserialize(blob))))
        """)
        assert reason == "VERSION_MISMATCH"
        assert "9.28.1" in texts[name]
        assert "9.19.0" in texts[name]


def test_kernel_caches(release: Release) -> None:
    """R10.13: kept while a plan is restored; written and restored themselves."""
    found = release.run("""
        def matmul(rows, cache):
            made = graph("h200", name=f"{rows} rows", kernel_cache=cache, dynamic_shapes=True)
            a, b = made.tensor("a", (1, rows, 256), "float16"), made.tensor("b", (1, 256, 128), "float16")
            made.output(made.relu(made.matmul(a, b)), name="c")
            return made

        cache = KernelCache()
        early = refusal(cache.serialize)
        plan = matmul(64, cache).build(require=["RUNTIME_COMPILATION"])
        again = KernelCache.deserialize(cache.serialize())
        other = matmul(128, again)
        other.build(require=["RUNTIME_COMPILATION"])
        other.deserialize(plan.serialize())
        print(json.dumps({
            "early": early[0],
            "kept": [other.kernel_cache is again, other.name, [tensor.dims for tensor in other.inputs]],
            "damaged": [refusal(lambda: KernelCache.deserialize(one))[0]
                        for one in (b"", b"[", cache.serialize()[:-9])],
            "type": refusal(lambda: KernelCache.deserialize("{}"))[0],
            "static": refusal(lambda: Graph(kernel_cache=again))[0],
        }))
    """)
    assert found["early"] == "InvalidArgument"
    assert found["kept"] == [True, "128 rows", [[1, 64, 256], [1, 256, 128]]]
    assert found["damaged"] == ["CORRUPT"] * 3
    assert (found["type"], found["static"]) == ("WrongType", "InvalidArgument")


FRONTEND = """
from gossamer.cudnn import prerequisites
ours = {case: graph("h200", case).build().serialize() for case in ("convolution_bias_relu", "causal_attention")}

import cudnn  # finds libcublasLt and libcuda in the process by now
half, single = cudnn.data_type.HALF, cudnn.data_type.FLOAT
device = cudnn.create_device_properties(DeviceProperties.named("h200").serialize().decode())

def begin(name):
    return cudnn.pygraph(io_data_type=half, intermediate_data_type=single, compute_data_type=single,
                         device_property=device, name=name, sm_version=90)

def end(made):
    made.validate(); made.build_operation_graph()
    made.create_execution_plans([cudnn.heur_mode.A, cudnn.heur_mode.FALLBACK])
    made.build_plans()  # not check_support, which asks for a GPU
    return bytes(made.serialize()), made.get_workspace_size()

convolution = begin("theirs")
x = convolution.tensor(name="x", dim=[8, 64, 56, 56], stride=[64 * 56 * 56, 1, 64 * 56, 64])
w = convolution.tensor(name="w", dim=[64, 64, 3, 3], stride=[576, 1, 192, 64])
y = convolution.relu(input=convolution.conv_fprop(image=x, weight=w, padding=[1, 1], stride=[1, 1], dilation=[1, 1]))
y.set_output(True).set_name("y")

attention = begin("theirs")
strides = [12 * 128 * 64, 64, 12 * 64, 1]
q, k, v = (attention.tensor(name=name, dim=[2, 12, 128, 64], stride=strides) for name in "qkv")
o, _ = attention.sdpa(q=q, k=k, v=v, is_inference=True, attn_scale=0.125, use_causal_mask=True,
                      implementation=cudnn.attention_implementation.COMPOSITE)
o.set_output(True).set_dim([2, 12, 128, 64]).set_stride(strides)

found = {}
for name, made in {"convolution": convolution, "attention": attention}.items():
    blob, workspace = end(made)
    mine = graph("h200", name="mine")
    plan = mine.deserialize(blob)
    found[f"their {name}"] = {
        "workspaces": [workspace, plan.workspace_size], "name": mine.name, "handle": mine.handle,
        "inputs": [tensor.name for tensor in plan.tensors.values() if not tensor.by_value][:3],
        "scalars": sorted(scalar.value for scalar in plan.scalars.values()),
        "notes": sorted(plan.behavior_notes),
        "again": graph("h200").deserialize(plan.serialize()).serialize() == plan.serialize(),
    }
for name, blob in ours.items():
    theirs = cudnn.pygraph(device_property=device, name="theirs")
    theirs.deserialize(blob)
    back = graph("h200").deserialize(bytes(theirs.serialize()))
    mine = graph("h200").deserialize(blob)
    found[f"our {name}"] = {
        "workspaces": [mine.workspace_size, theirs.get_workspace_size(), back.workspace_size],
        "scalars": [sorted(scalar.value for scalar in one.scalars.values()) for one in (mine, back)],
        "tensors": [sorted(one.tensors) for one in (mine, back)],
    }
print(json.dumps(found))
"""


def test_plans_are_exchanged_with_nvidias_frontend(release: Release, wheel_members: Any) -> None:
    """R10.10: both ways, convolution and attention, without a handle or a GPU."""
    if sys.version_info[:2] != (3, 11):
        pytest.skip("the wheel of NVIDIA's frontend is for Python 3.11")
    frontend = wheel_members("frontend-1.32", "*")
    (release.python.packages / "frontend.pth").write_text(f"{frontend}\n", encoding="utf-8")
    found = release.run(FRONTEND)
    for name, inputs in {"convolution": ["x", "w", "y"], "attention": ["q", "k", "v"]}.items():
        theirs = found[f"their {name}"]
        assert theirs["workspaces"][0] == theirs["workspaces"][1]
        assert (theirs["name"], theirs["handle"], theirs["inputs"], theirs["again"]) == ("mine", None, inputs, True)
    assert found["their attention"]["scalars"][1] == 0.125
    assert "RUNTIME_COMPILATION" in found["their attention"]["notes"]
    for name in ("convolution_bias_relu", "causal_attention"):
        ours = found[f"our {name}"]
        assert len(set(ours["workspaces"])) == 1
        assert ours["scalars"][0] == ours["scalars"][1]
        assert ours["tensors"][0] == ours["tensors"][1]
