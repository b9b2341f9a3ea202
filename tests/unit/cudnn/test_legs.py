"""The environments that the suite runs in, without cuDNN and with it, are what they are said to be. (R9.1, R9.3)

`make test` says CUDNN_LEG=absent, `make test-cudnn` CUDNN_LEG=installed; who says nothing has the tests that fit the
environment. Nothing is forced or faked here: processes of this very interpreter find what is there.
"""

from __future__ import annotations

import importlib.metadata
import json
import math
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from conftest import no_triton
from cudnn_legs import LEG as SAID
from cudnn_wheels import installed_cudnn
from fake_cudnn import Library

TESTS = Path(__file__).parents[2]
SOURCE = TESTS.parent / "src"
LEG = SAID or ("installed" if installed_cudnn() else "absent")

absent = pytest.mark.skipif(LEG != "absent", reason="this environment has cuDNN")
installed = pytest.mark.skipif(LEG != "installed", reason="this environment has no cuDNN")

MODELS = """
    import json, sys
    opened = []
    sys.addaudithook(lambda event, given: opened.append(str(given[0])) if event == "ctypes.dlopen" else None)

    import numpy as np
    import gossamer
    from gossamer.cudnn import loader

    X = np.arange(-8, 8, dtype=np.float32).reshape(1, 4, 2, 2)

    def session(body, **options):
        from onnx import parser

        text = f'<ir_version: 10, opset_import: ["" : 21]> g (float[1,4,2,2] x) => (y) {{ {body} }}'
        model = parser.parse_model(text)
        model.graph.node[0].name = "the_node"
        options = {"target": "sm_90", **options}
        return gossamer.InferenceSession(model.SerializeToString(), providers=[("CUDAExecutionProvider", options)])

    def mapped():
        return sorted({line.split()[-1] for line in open("/proc/self/maps") if "libcudnn" in line})
"""


def process(code: str, **environment: str) -> Any:
    """What a process of this interpreter prints last, as JSON; it must end well, and say nothing else."""
    inherited = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(MODELS) + textwrap.dedent(code)],
        env=inherited | {"PYTHONPATH": str(SOURCE)} | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "cuDNN" not in done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture
def compiling() -> None:
    pytest.importorskip("onnx")
    if lack := no_triton():
        pytest.skip(lack)


def test_the_environment_is_what_it_is_said_to_be() -> None:
    """R9.1, R9.3: by what is installed, and by what the loader finds."""
    assert (installed_cudnn() is not None) == (LEG != "absent")
    state, path, version = process("""
        library = loader.load()
        print(json.dumps([library.state, library.path, library.version_text]))
    """)
    if LEG == "absent":
        assert (state, path, version) == ("missing", "", "")
    else:
        assert state == "available"
        assert Path(path).is_relative_to(installed_cudnn() or "")
        assert importlib.metadata.version("nvidia-cudnn-cu13").startswith(version)


@pytest.mark.usefixtures("compiling")
def test_a_model_without_need_of_cudnn_runs() -> None:
    """R9.1, R9.3: in either environment, and to the same result; whatever is installed, nothing of it is opened."""
    answer, opened = process(
        """
        made = session("a = Relu (x) y = Softmax <axis = 1> (a)", device="interpreter")
        (y,) = made.run(None, {"x": X})
        print(json.dumps([[float(y.sum()), float(y[0, 3, 1, 1])], [p for p in opened if "cudnn" in p] + mapped()]))
        """,
        TRITON_INTERPRET="1",
    )
    assert answer == pytest.approx([4, 1 / (1 + math.exp(-4) + 2 * math.exp(-7))])
    assert opened == []


@absent
@pytest.mark.usefixtures("compiling")
def test_what_insists_on_cudnn_says_that_there_is_none() -> None:
    """R9.1, R5: the text, when the node runs; and no error of the loader's."""
    kinds, text, code, tried, placed = process("""
        made = session("y = LRN <size = 3> (x)", device="null", cudnn_only=["LRN"])
        try:
            made.run(None, {"x": X})
        except gossamer.CudnnUnavailable as error:
            kinds = [kind.__name__ for kind in type(error).__mro__]
            print(json.dumps([kinds, str(error), error.code, error.tried, made.placement().counts()]))
    """)
    assert text == (
        "Operator 'LRN' on the CUDA EP requires cuDNN, but cuDNN was not found at runtime. "
        "Install cuDNN, or disable CUDA execution for this op/model. (node 'the_node')"
    )
    assert code == "NOT_IMPLEMENTED"
    assert "OSError" not in kinds
    assert [attempt for attempt in tried if not attempt.endswith(": not found")] == []
    assert placed == {"CUDAExecutionProvider": 1}


@absent
@pytest.mark.usefixtures("compiling")
def test_without_insisting_native_kernels_do_it() -> None:
    """R9.1, R7."""
    answer, version = process(
        """
        made = session("y = LRN <size = 3, bias = 2.0> (x)", device="interpreter")
        (y,) = made.run(None, {"x": X})
        print(json.dumps([float(y[0, 0, 0, 0]), gossamer.cudnn_version]))
        """,
        TRITON_INTERPRET="1",
    )
    assert answer == pytest.approx(-8 / (2 + 1e-4 / 3 * (64 + 16)) ** 0.75, rel=1e-6)
    assert version is None


@installed
@pytest.mark.usefixtures("compiling")
@pytest.mark.parametrize(("option", "setting"), [({"enable_cudnn": 0}, "1"), ({}, "0")], ids=["option", "setting"])
def test_disabled_opens_nothing_although_it_is_installed(option: dict[str, int], setting: str) -> None:
    """R3.3, R9.3: also where a node insists on cuDNN, whose answer is the text for that."""
    code = """
        made = session("y = LRN <size = 3> (x)", device="null", cudnn_only=["LRN"], **OPTION)
        try:
            made.run(None, {"x": X})
        except gossamer.CudnnUnavailable as error:
            text = str(error)
        before = [path for path in opened if "libcudnn" in path] + mapped()
        print(json.dumps([before, text, loader.load().state]))
    """
    opened, text, state = process(code.replace("OPTION", str(option)), GOSSAMER_ENABLE_CUDNN=setting)
    assert opened == []
    assert "but cuDNN was disabled by the CUDA provider option 'enable_cudnn'." in text
    assert state == "available", "it would have been found"


@installed
@pytest.mark.usefixtures("compiling")
def test_enabled_uses_it() -> None:
    """R9.3, R7: cuDNN, where it is there, is the choice, unless native kernels were measured to be faster."""
    from gossamer.providers.cudnn.preference import NATIVE

    assert "LRN" not in NATIVE.get(80, ())
    before, after = process("""
        made = session("y = LRN <size = 3> (x)", device="null", target="sm_80")
        before = mapped()
        made.run(None, {"x": X})
        print(json.dumps([before, mapped()]))
    """)
    assert before == []
    assert any(path.endswith("libcudnn.so.9") for path in after)


REPORT = """
import subprocess, sys
import numpy
from cudnn_wheels import installed_cudnn
from gossamer.cudnn import loader
print(loader.load().state, installed_cudnn(), flush=True)
if sys.argv[1:]:
    sys.exit(3 + subprocess.run([sys.executable, "-c", sys.argv[1]]).returncode)
"""


def without_cudnn(**environment: str) -> subprocess.CompletedProcess[str]:
    """What such an interpreter and a child of it say of cuDNN; the exit status is 3."""
    path = os.pathsep.join((str(SOURCE), str(TESTS)))
    return subprocess.run(
        [sys.executable, TESTS / "without_cudnn.py", "-c", REPORT, REPORT],
        env=os.environ | {"PYTHONPATH": path} | environment,
        capture_output=True,
        text=True,
        check=False,
    )


@installed
def test_an_interpreter_without_cudnn_has_the_same_packages() -> None:
    """R1.2, R9.1: what runs the first leg on machines whose environment has cuDNN; a child of it is no different."""
    done = without_cudnn()
    assert (done.returncode, done.stdout) == (3, "missing None\n" * 2), done.stderr


def test_a_copy_that_the_system_finds_is_hidden_or_nothing_runs(fakes: Library, tmp_path: Path) -> None:
    """R9.1: of two folders; hidden takes root's rights to mount, which containers may withhold."""
    copies = [fakes.at(tmp_path / name) for name in ("one", "two")]
    done = without_cudnn(LD_LIBRARY_PATH=os.pathsep.join(str(copy.parent) for copy in copies))
    if done.returncode == 2:
        assert f"the loader finds {copies[0]}" in done.stderr
        assert done.stdout == ""
    else:
        assert (done.returncode, done.stdout) == (3, "missing None\n" * 2), done.stderr
    assert all(copy.exists() for copy in copies), "for everybody else it is where it was"
