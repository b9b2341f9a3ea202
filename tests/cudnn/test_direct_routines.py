"""cuDNN's direct routines as far as they go without a GPU: every description that lowering makes is one that real cuDNN
makes descriptors from. (R7)"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cudnn_direct_cases import OPERATORS, RANDOM, TAKEN
from cudnn_releases import Release
from gossamer.cudnn import loader
from gossamer.program import CudnnCall, Target
from gossamer.providers.cudnn import Policy
from harness import lower_model

OPEN = """
from gossamer.cudnn import loader
from gossamer.cudnn.routines import open_routine
from gossamer.cudnn.routines.recurrent import Recurrent

class Described(Recurrent):
    "Without what cuDNN tells only to those who have a handle."
    def open(self, settings, handle):
        self.describe(settings)

assert loader.load().version == VERSION, loader.load().tried

def opened(routine, description):
    if routine == "recurrent":
        return Described(json.loads(description), None)
    return open_routine(routine, description, None)
"""


@pytest.fixture(scope="module")
def descriptions(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """Version of cuDNN → a file of [routine, description] that lowering makes for it."""
    folder, policy = tmp_path_factory.mktemp("descriptions"), Policy(enabled=True, only=OPERATORS)
    files = {}
    for version in (91900, 92801):
        library = loader.Library(loader.State.AVAILABLE, version=version, lacking=frozenset())
        made = set()
        with loader.forced(library):
            for node in (*TAKEN, *RANDOM):
                program, _ = lower_model(node.model(), Target.named("sm_90"), policy)
                made |= {(c.routine, c.description) for c in program.calls if isinstance(c, CudnnCall)}
        files[version] = folder / f"{version}.json"
        files[version].write_text(json.dumps(sorted(made)), encoding="utf-8")
    return files


def version_of(release: Release) -> int:
    major, minor = map(int, release.name.split("."))
    return {(9, 19): 91900, (9, 28): 92801}[major, minor]


def test_every_description_makes_descriptors(release: Release, descriptions: dict[int, Path]) -> None:
    version = version_of(release)
    count, failed = release.run(
        OPEN.replace("VERSION", str(version))
        + f"""
descriptions, failed = json.load(open({str(descriptions[version])!r})), []
for routine, description in descriptions:
    try:
        made = opened(routine, description)
        made.close()
        made.close()
    except Exception as error:
        failed.append([routine, description, str(error)])
print(json.dumps([len(descriptions), failed]))
"""
    )
    assert count > 100
    assert failed == []


def test_what_lowering_refuses_is_what_cudnn_refuses(newest: Release) -> None:
    """Limits that lowering knows by heart."""
    refused = newest.run(
        OPEN.replace("VERSION", "92801")
        + """
x = {"dtype": "float32", "dims": [2, 3, 4, 5], "strides": [60, 20, 5, 1]}
lrn = {"x": x, "size": 3, "alpha": 0.5, "beta": 0.75, "k": 1.0}
changes = {"least": {"size": 1, "beta": 0.01, "k": 1e-5}, "most": {"size": 16}, "size": {"size": 17},
           "beta": {"beta": 0.009}, "k": {"k": 0.9e-5}}
answers = {name: refusal(lambda: opened("lrn", json.dumps(lrn | change)).close()) for name, change in changes.items()}
layer = {"cell": "lstm", "gates": ["input", "output", "forget", "cell"], "dtype": "bfloat16", "steps": 4, "batch": 2,
         "inputs": 3, "hidden": 5, "directions": 2, "batch_first": False, "lengths": [5, 1], "bias": True, "fma": False,
         "fixed": True}
answers["long"] = refusal(lambda: opened("recurrent", json.dumps(layer)).close())
answers["few"] = refusal(lambda: opened("recurrent", json.dumps(layer | {"lengths": [4]})).close())
answers["short"] = refusal(lambda: opened("recurrent", json.dumps(layer | {"lengths": [4, 1]})).close())
print(json.dumps(answers))
"""
    )
    for name in ("least", "most", "short"):
        assert refused[name] == "none, but None", name
    for name in ("size", "beta", "k"):
        assert "cudnnSetLRNDescriptor" in refused[name][1]
        assert "CUDNN_STATUS_BAD_PARAM" in refused[name][1]
    assert "cudnnSetRNNDataDescriptor" in refused["long"][1]
    assert refused["few"] == ["InvalidArgument", "1 numbers [4] where cuDNN reads 2"]


def test_descriptors_are_freed_where_a_later_one_fails(newest: Release) -> None:
    refused, counts = newest.run(
        OPEN.replace("VERSION", "92801")
        + """
from collections import Counter
from gossamer.cudnn.routines.direct import DirectRoutine

counts, original = Counter(), DirectRoutine.call
def counted(self, function, *arguments):
    counts[function] += 1
    original(self, function, *arguments)

DirectRoutine.call = counted
x = {"dtype": "float32", "dims": [2, 3, 4, 5], "strides": [60, 20, 5, 1]}
bad = {"x": x, "y": x, "mode": "max", "window": [2, 2], "padding": [0, 0], "strides": [0, 1]}
refused = refusal(lambda: opened("pooling", json.dumps(bad)))
print(json.dumps([refused, counts]))
"""
    )
    assert "while pooling" in refused[1]
    assert "cudnnSetPoolingNdDescriptor" in refused[1]
    for kind, count in {"Tensor": 2, "Pooling": 1}.items():
        assert counts[f"cudnnCreate{kind}Descriptor"] == counts[f"cudnnDestroy{kind}Descriptor"] == count
