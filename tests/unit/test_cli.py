"""The command line: what it prints, its exit status, and that errors are one clear text."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest

import blocked_imports
from gossamer import diagnostics, errors, settings
from gossamer.cli import app, arguments, comparison, doctor, feeds, inspect_model, progress
from gossamer.errors import InvalidArgument, NoSuchFile
from gossamer.options import CudaOptions
from gossamer.program.cubin import Cubin

pytest.importorskip("onnxruntime")

MODEL = """
<ir_version: 10, opset_import: ["": 21]>
tiny (float[n,3] x) => (float[n,3] y, int64[2,k] found) {
    [add] a = Add(x, x)
    [act] y = Relu(a)
    [find] found = NonZero(y)
}
"""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.onnx"
    onnx.save(onnx.parser.parse_model(MODEL), path)
    return path


@pytest.fixture(autouse=True)
def _environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for setting in settings.SETTINGS.values():
        monkeypatch.delenv(setting.name, raising=False)
    monkeypatch.setenv("GOSSAMER_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(diagnostics.logger, "handlers", [])  # GOSSAMER_DEBUG adds one, for good


@dataclass(frozen=True)
class Result:
    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@pytest.fixture
def gossamer(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Result]:
    """Runs a command in this process."""

    def run(*arguments: object) -> Result:
        monkeypatch.setattr(sys, "argv", ["gossamer", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            app.main()
        printed = capsys.readouterr()
        return Result(int(ended.value.code or 0), printed.out, printed.err)

    return run


def child(*arguments: str, code: str = "from gossamer.cli import main; main()") -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False)


Gossamer = Callable[..., Result]

# Start


def test_help_is_immediate_and_imports_nothing_heavy() -> None:
    watched = "('numpy', 'onnx', 'onnx_ir', 'triton', 'onnxruntime', 'cuda')"
    code = f"""
import atexit, sys
atexit.register(lambda: print([name for name in {watched} if name in sys.modules]))
from gossamer.cli import main
main()"""
    started = time.perf_counter()
    result = child("--help", code=code)
    seconds = time.perf_counter() - started
    assert result.returncode == 0
    for command in ("run", "inspect", "compile", "bench", "doctor", "cache", "target"):
        assert f"\n  {command} " in result.stdout
    assert result.stdout.endswith("[]\n")
    assert seconds < 3, "0.2 s on a machine that does nothing else"


def test_version(gossamer: Gossamer) -> None:
    from gossamer import __version__

    assert gossamer("--version").out == f"gossamer {__version__}\n"


# Running


def test_run_prints_outputs_placement_and_time(gossamer: Gossamer, model: Path) -> None:
    result = gossamer("run", model, "--device", "cpu", "--input", "zeros", "--repeat", 3)
    assert result.status == 0
    assert "y       float32[1, 3]  0    0    0     0" in result.out
    assert "found   int64[2, 0]" in result.out
    assert "nodes: CPUExecutionProvider: 3 nodes" in result.out
    assert "time: open " in result.out
    assert ", median " in result.out


def test_run_on_the_null_device_says_that_nothing_ran(gossamer: Gossamer, tmp_path: Path) -> None:
    path = tmp_path / "static.onnx"
    onnx.save(
        onnx.parser.parse_model(MODEL.replace(", int64[2,k] found", "").replace("[find] found = NonZero(y)", "")), path
    )
    result = gossamer("run", path, "--device", "null")
    assert result.status == 0
    assert "the device null runs nothing: outputs are zeros" in result.out


def test_run_as_json(gossamer: Gossamer, model: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.array([[1, -1, 2]], np.float32))
    given = ("--input", f"x={tmp_path / 'x.npy'}", "--json", "--output", tmp_path / "out", "--compare", "onnxruntime")
    result = gossamer("run", model, "--device", "cpu", *given).json
    assert result["outputs"]["y"] == {
        "dtype": "float32",
        "shape": [1, 3],
        "min": 0.0,
        "max": 4.0,
        "mean": 2.0,
        "std": pytest.approx(np.std([2, 0, 4])),
        "not_finite": 0,
    }
    assert [(one["output"], one["acceptable"]) for one in result["differences"]] == [("y", True), ("found", True)]
    np.testing.assert_array_equal(np.load(tmp_path / "out" / "y.npy"), [[2, 0, 4]])
    np.testing.assert_array_equal(np.load(tmp_path / "out" / "found.npy"), [[0, 0], [0, 2]])


def test_a_comparison_beyond_the_tolerance_fails(
    gossamer: Gossamer, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from gossamer.session import InferenceSession

    real, runs = InferenceSession.run, []

    def drifting(self: InferenceSession, *given: Any) -> list[np.ndarray]:
        runs.append(self)
        return [y + y.dtype.type(0.01 * len(runs)) if y.dtype == np.float32 else y for y in real(self, *given)]

    monkeypatch.setattr(InferenceSession, "run", drifting)
    shape = ("--input-shape", "100x3")
    result = gossamer("run", model, "--device", "cpu", "--compare", "onnxruntime", *shape)
    assert result.status == 1
    assert "FAIL  y: largest error 1.00e-02" in result.out
    assert "ok    found: largest error 0" in result.out
    result = gossamer("run", model, "--device", "cpu", "--compare", "onnxruntime", "--tolerance", "1", *shape)
    assert result.status == 0


def test_products_with_weights_of_4_bits_are_compared_with_exact_ones(tmp_path: Path) -> None:
    from cases.compiled_models import narrow_weights

    onnx.save(narrow_weights(), tmp_path / "narrow.onnx")
    result = child("run", str(tmp_path / "narrow.onnx"), "--device", "interpreter", "--compare", "onnxruntime")
    assert result.returncode == 0, result.stdout + result.stderr
    assert "ok    y: largest error" in result.stdout


def test_comparing_the_null_device_is_refused(gossamer: Gossamer, model: Path) -> None:
    result = gossamer("run", model, "--device", "null", "--compare", "onnxruntime")
    assert (result.status, result.out) == (2, "")
    assert "--compare has nothing to compare on the device null" in result.err


def test_without_a_gpu_the_default_falls_back_with_one_warning(gossamer: Gossamer, model: Path) -> None:
    from gossamer.run import driver

    if not driver.why_unavailable():
        pytest.skip("a machine without a GPU")
    result = gossamer("run", model)
    assert result.status == 0
    assert result.err.count("gossamer: warning: CUDAExecutionProvider is not used") == 1
    refused = gossamer("run", model, "--device", "cuda")
    assert refused.status == 1
    assert refused.err.startswith("gossamer: CUDA device 0 is not available; looked for:\n")


def test_the_interpreter_runs_what_a_gpu_would(model: Path) -> None:
    """In a process of its own: this one may have imported Triton to compile."""
    result = child("run", str(model), "--device", "interpreter", "--compare", "onnxruntime", "-s", "4x3")
    assert result.returncode == 0, result.stderr
    assert "CPUExecutionProvider: 1 node (NonZero)" in result.stdout
    assert "ok    y: largest error" in result.stdout


def test_bench_checks_and_measures(gossamer: Gossamer, model: Path) -> None:
    result = gossamer("bench", model, "--device", "cpu", "--repeat", 5, "--warmup", 2, "--json").json
    assert result["checked"] is True
    assert 0 < result["min_us"] <= result["p10_us"] <= result["median_us"] <= result["p90_us"]
    printed = gossamer("bench", model, "--device", "cpu", "--repeat", 5, "--warmup", 2, "--no-check")
    assert "answer not checked" in printed.out
    assert gossamer("bench", model, "--device", "null").status == 2


# Looking


def test_inspect_shows_placement_memory_and_program(gossamer: Gossamer, model: Path) -> None:
    result = gossamer("inspect", model, "--device", "null", "--program")
    assert result.status == 0
    assert "program tiny for sm_90 (x: float32[1,3])" in result.out
    assert "NonZero not on CUDAExecutionProvider: no kernel for operator NonZero (find)" in result.out
    assert "1 node (NonZero)" in result.out
    assert "an arena of " in result.out


def test_inspect_as_json(gossamer: Gossamer, model: Path) -> None:
    result = gossamer("inspect", model, "--target", "sm_80", "-s", "x=7x3", "--json", "--program").json
    assert result["target"] == "sm_80"
    assert result["inputs"] == {"x": "float32[7,3]"}
    assert result["outputs"] == {"y": "float32[7,3]", "found": "int64[?]"}
    assert result["nodes"]["NonZero"] == {"CPUExecutionProvider": 1}
    assert result["host_calls"] == 1
    assert result["arena_bytes"] >= result["arena_lower_bound_bytes"] > 0
    assert result["program"].startswith("program tiny for sm_80")
    (refused,) = (node for node in result["placement"] if node["refusals"])
    assert refused == {
        "node": "find",
        "op": "NonZero",
        "provider": "CPUExecutionProvider",
        "through_cudnn": False,
        "refusals": {"CUDAExecutionProvider": "no kernel for operator NonZero"},
        "would_raise": "",
    }


UNSUPPORTED = MODEL.replace('["": 21]', '["": 21, "tests": 1]').replace("Relu(a)", "tests.Twist(a)")


def test_inspect_lists_everything_unsupported_without_a_traceback(gossamer: Gossamer, tmp_path: Path) -> None:
    path = tmp_path / "unsupported.onnx"
    onnx.save(onnx.parser.parse_model(UNSUPPORTED), path)
    result = gossamer("inspect", path, "--device", "null")
    assert result.status == 1
    assert "tests.Twist 'act': CUDAExecutionProvider: no kernel for operator Twist" in result.err
    assert "Traceback" not in result.err
    listed = gossamer("inspect", path, "--device", "null", "--json")
    assert listed.status == 1
    assert [(node["node"], node["op"]) for node in listed.json["unsupported"]] == [("act", "tests.Twist")]
    strict = gossamer("inspect", path, "--device", "null", "--option", "strict=1", "--json")
    assert [node["node"] for node in strict.json["unsupported"]] == ["act", "find"]


@pytest.mark.parametrize("arguments", [("--device", "cpu"), ("--device", "interpreter", "--target", "sm_80")])
def test_inspect_refuses_what_contradicts_itself(gossamer: Gossamer, model: Path, arguments: Sequence[str]) -> None:
    result = gossamer("inspect", model, *arguments)
    assert (result.status, result.out) == (2, "")


# Errors


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["run", "absent.onnx", "--device", "cpu"], "absent.onnx: there is no such file"),
        (["run", "MODEL", "-s", "1xtwo"], "--input-shape '1xtwo': whole numbers joined by x are wanted"),
        (["run", "MODEL", "-s", "z=1x3", "--device", "cpu"], "the model has no such input; it has x"),
        (["run", "MODEL", "-i", "y=zeros", "--device", "cpu"], "--input y=...: the model has no such input; it has x"),
        (["run", "MODEL", "-i", "x=zeros", "-i", "x=random"], "'x' was given before"),
        (["run", "MODEL", "-i", "x=absent.npy", "--device", "cpu"], "absent.npy: there is no such file"),
        (["run", "MODEL", "-i", "x=photo.png", "--device", "cpu"], "a picture needs an input of shape [n, c, h, w]"),
        (["run", "MODEL", "-s", "2x2x3", "--device", "cpu"], "input 'x' expects tensor(float) of shape [n, 3]"),
        (["run", "MODEL", "--option", "use_tf32"], "NAME=VALUE is wanted"),
        (["run", "MODEL", "--device", "null", "--option", "use_tf=1"], "did you mean 'use_tf32'?"),
        (["run", "MODEL", "--device", "cpu", "--option", "use_tf32=1"], "--device cpu does not use it"),
        (["run", "MODEL", "--device", "gpu"], "'gpu' is not one of"),
        (["run"], "Missing argument"),
        (["cache", "prune"], "say what to keep"),
        (["cache", "prune", "--max-size", "much"], "size 'much': a number of bytes is wanted"),
        (["target", "show", "h300"], "no device 'h300'; there are sm_75"),
        (["target", "show", "absent.json"], "target absent.json: no such file"),
        (["target", "show", "interpreter"], "the interpreter is no device"),
        (["target", "dump", "-o", "here.txt"], "-o here.txt: a name that ends in .json is wanted"),
        (["inspect", "MODEL", "--target", "sm_91"], "unknown target: no device 'sm_91'"),
        (["inspect", "MODEL", "--target", "sm_80,sm_90"], "option target='sm_80,sm_90': accepted are a name such as"),
    ],
)
def test_a_wrong_command_line_is_one_clear_text(
    gossamer: Gossamer, model: Path, arguments: list[str], said: str
) -> None:
    result = gossamer(*(str(model) if argument == "MODEL" else argument for argument in arguments))
    assert (result.status, result.out) == (2, "")
    assert said in result.err
    assert "Traceback" not in result.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["run", "MODEL", "--device", "cpu", "--output", "MODEL"], "tiny.onnx: File exists\n"),
        (["run", "MODEL", "--device", "cpu", "-i", "x=FOLDER.npy"], "folder.npy: Is a directory\n"),
        (["cudnn-shim", "MODEL"], "tiny.onnx: File exists\n"),
        (["run", "MODEL", "--device", "cpu", "-s", f"{2**50}x3"], "Unable to allocate"),
    ],
)
def test_what_the_machine_refuses_is_one_clear_text(
    gossamer: Gossamer, model: Path, arguments: list[str], said: str
) -> None:
    folder = model.with_name("folder.npy")
    folder.mkdir()
    named = {"MODEL": str(model), "x=FOLDER.npy": f"x={folder}"}
    result = gossamer(*(named.get(argument, argument) for argument in arguments))
    assert (result.status, result.err.count("\n")) == (1, 1)
    assert said in result.err


def test_debug_adds_the_traceback(gossamer: Gossamer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOSSAMER_DEBUG", "1")
    result = gossamer("run", "absent.onnx", "--device", "cpu")
    assert result.status == 2
    assert "Traceback" in result.err
    monkeypatch.setenv("GOSSAMER_DEBUG", "9")
    result = gossamer("run", "absent.onnx", "--device", "cpu")
    assert (result.status, result.out) == (2, "")
    assert result.err == "gossamer: GOSSAMER_DEBUG='9': accepted are whole numbers from 0 to 5\n"


def test_a_missing_package_is_named_with_its_command(
    gossamer: Gossamer, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unavailable(*_: object) -> None:
        raise ModuleNotFoundError("No module named 'onnx_ir'", name="onnx_ir")

    monkeypatch.setattr("gossamer.cli.run_model.run_model", unavailable)
    result = gossamer("run", model)
    assert result.status == 1
    assert result.err == (
        "gossamer: this needs the package onnx_ir, which is not installed: pip install 'gossamer[compile]'\n"
    )


def test_bugs_keep_their_traceback(gossamer: Gossamer, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ModuleNotFoundError("No module named 'nothing'", name="nothing")

    monkeypatch.setattr("gossamer.cli.run_model.run_model", broken)
    monkeypatch.setattr(sys, "argv", ["gossamer", "run", str(model)])
    with pytest.raises(ModuleNotFoundError):
        app.main()


# Doctor and cache


def test_doctor_lists_everything_and_knows_what_to_do(gossamer: Gossamer) -> None:
    findings = {finding["subject"]: finding for finding in gossamer("doctor", "--json").json}
    for distribution in ("numpy", "cuda-bindings", "onnx", "onnx-ir", "triton", "onnxruntime"):
        assert findings[distribution]["detail"]
    assert findings["cuDNN"]["detail"]
    assert "0 kernels, 0 bytes" in findings["kernel cache"]["detail"]
    assert "GOSSAMER_CACHE_DIR=" in findings["settings"]["detail"]
    printed = gossamer("doctor")
    assert printed.status == 0
    assert re.search(rf"^ok  numpy +{re.escape(np.__version__)} *$", printed.out, re.MULTILINE)


def test_doctor_finds_settings_that_are_not_taken(gossamer: Gossamer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOSSAMER_DEBUG", "9")
    monkeypatch.setenv("GOSSAMER_CACHE_DIR", __file__)
    findings = [finding for finding in gossamer("doctor", "--json").json if not finding["good"]]
    found = {finding["subject"]: finding["detail"] for finding in findings}
    assert found["settings"] == "GOSSAMER_DEBUG='9': accepted are whole numbers from 0 to 5"
    assert f"{__file__} cannot be written" in found["kernel cache"]


def test_doctor_says_how_to_get_what_is_missing(gossamer: Gossamer, monkeypatch: pytest.MonkeyPatch) -> None:
    from importlib import metadata

    real = metadata.version

    def version(name: str) -> str:
        if name in missing:
            raise metadata.PackageNotFoundError(name)
        return real(name)

    monkeypatch.setattr(metadata, "version", version)
    missing = ["triton", "onnx"]
    result = gossamer("doctor")
    assert result.status == 0, "the base is complete"
    assert "--  triton" in result.out
    assert result.out.count("pip install 'gossamer[compile]'") == 1
    missing.append("numpy")
    assert gossamer("doctor").status == 1


def test_doctors_packages_are_those_of_pyproject() -> None:
    import tomllib

    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = {"": project["dependencies"]} | project["optional-dependencies"]
    for extra, distributions in doctor.PACKAGES.items():
        assert [requirement.split(">=")[0] for requirement in extras[extra]] == list(distributions)
    assert doctor.command_for("onnx_ir.passes") == "pip install 'gossamer[compile]'"
    assert doctor.command_for("torch") is None


def test_the_cache_can_be_looked_at_and_emptied(gossamer: Gossamer) -> None:
    from gossamer.build import cache

    for number in range(3):
        cache.store(f"{number:064}", Cubin("softmax_kernel", 90, 4, 0, 0, 1, (), "3.9.0", bytes(1000)))
    assert gossamer("cache", "path").out == f"{cache.folder()}\n"
    assert [row["function"] for row in gossamer("cache", "list", "--json").json] == ["softmax_kernel"] * 3
    listed = gossamer("cache", "list").out
    assert listed.count("softmax_kernel") == 3
    assert "3 kernels, " in listed
    assert gossamer("cache", "prune", "--days", "1").out.startswith("0 kernels removed")
    assert gossamer("cache", "prune", "--max-size", "2.5k").out.startswith("1 kernels removed")
    assert gossamer("cache", "clear").out.startswith("2 kernels removed")
    assert gossamer("cache", "list").out.startswith("0 kernels, 0 bytes")


@pytest.mark.parametrize("arguments", [("doctor",), ("cache", "list"), ("target", "list"), ("target", "show", "l4")])
def test_what_the_base_install_can_do(arguments: Sequence[str]) -> None:
    assert blocked_imports.child("from gossamer.cli import main; main()", *arguments)


# Targets


def test_targets_are_listed_with_where_their_figures_are_from(gossamer: Gossamer) -> None:
    listed = gossamer("target", "list")
    rows = {line.split()[0]: line.split()[1:] for line in listed.out.splitlines()[1:15]}
    assert rows["h200"] == ["sm_90", "132", "232,448", "read", "off", "one"]
    assert rows["h100-sxm"] == ["sm_90", "*", "132", "232,448", "public"]
    as_json = gossamer("target", "list", "--json").json
    assert [entry["name"] for entry in as_json] == list(rows)
    (h200,) = (entry for entry in as_json if entry["name"] == "h200")
    assert (h200["measured"], h200["represents_architecture"], h200["multiprocessors"]) == (True, False, 132)
    assert "CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION" in h200["source"]


def test_what_show_prints_as_json_is_a_target_again(gossamer: Gossamer, model: Path, tmp_path: Path) -> None:
    shown = gossamer("target", "show", "H100_PCIE")
    assert shown.out.startswith("h100-pcie: NVIDIA H100 PCIe, sm_90, 114 multiprocessors\nfigures: public figures, not")
    assert "\nl2CacheSize                   52428800" in shown.out
    path = tmp_path / "mine.json"
    path.write_text(gossamer("target", "show", "h100-pcie", "--json").out)
    assert gossamer("target", "show", path).out.startswith(
        f"mine: NVIDIA H100 PCIe, sm_90, 114 multiprocessors\nfigures: the file {path}"
    )
    assert gossamer("target", "show", path, "--json").json == gossamer("target", "show", "h100-pcie", "--json").json
    assert gossamer("inspect", model, "--target", path, "--json").json["target"] == "mine"


@pytest.mark.parametrize("name", ["h100-pcie", "H200", "sm_120"])
def test_inspect_takes_every_target(gossamer: Gossamer, model: Path, name: str) -> None:
    assert gossamer("inspect", model, "--target", name, "--json").json["target"] == name.lower()


def test_inspect_goes_by_the_environment(gossamer: Gossamer, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOSSAMER_TARGET", "l4")
    assert gossamer("inspect", model, "--json").json["target"] == "l4"
    assert gossamer("inspect", model, "--target", "sm_80", "--json").json["target"] == "sm_80"
    monkeypatch.setenv("GOSSAMER_DEVICE", "interpreter")  # too late for Triton in this process
    assert inspect_model._options(request(), "").device == "interpreter"
    assert inspect_model._options(request(), "sm_80") == CudaOptions(device="null", target="sm_80")


def test_dump_writes_what_the_driver_says(gossamer: Gossamer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from gossamer.cudnn import DeviceProperties
    from gossamer.run import device_properties

    monkeypatch.setattr(device_properties, "device_properties", lambda _: DeviceProperties.named("l4"))
    path = tmp_path / "this.json"
    said = gossamer("target", "dump", "-o", path)
    assert said.out == f"{path}: NVIDIA L4 (sm_89, 58 multiprocessors); compile for it with --target {path}\n"
    assert gossamer("target", "dump").json == gossamer("target", "show", path, "--json").json
    nowhere = gossamer("target", "dump", "-o", tmp_path / "absent" / "this.json")
    assert (nowhere.status, nowhere.out) == (2, "")
    assert "this.json: No such file or directory" in nowhere.err


def test_dump_without_a_gpu(gossamer: Gossamer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from gossamer.run import driver

    monkeypatch.setattr(driver, "why_unavailable", lambda: ("NVIDIA driver (libcuda.so.1): not found",))
    result = gossamer("target", "dump", "-o", tmp_path / "this.json")
    assert (result.status, result.out) == (1, "")
    assert "CUDA device 0 is not available; looked for:\n  NVIDIA driver (libcuda.so.1): not found" in result.err
    assert "run it on the machine with the GPU" in result.err
    assert not (tmp_path / "this.json").exists()


# Parts


@pytest.mark.parametrize(
    ("text", "size"), [("0", 0), ("1500", 1500), ("2k", 2048), ("1.5M", 1572864), ("2GiB", 2**31), ("1 TB", 2**40)]
)
def test_sizes(text: str, size: int) -> None:
    assert arguments.parse_size(text) == size


@dataclass(frozen=True)
class Slot:
    name: str
    dtype: str = "float32"
    shape: tuple[int | str | None, ...] | None = (1, 3, 4, 6)


def request(*inputs: str, shapes: Sequence[str] = (), seed: int = 0) -> arguments.Request:
    return arguments.Request.parse(Path("m.onnx"), inputs, shapes, None, None, seed)


def test_random_inputs_are_repeatable_and_fit_their_type() -> None:
    slots = [
        Slot("a"),
        Slot("b", "int64", ("n", 5)),
        Slot("c", "bool"),
        Slot("d", "bfloat16"),
        Slot("e", "float16", ()),
        Slot("f", "int4"),
        Slot("g", "float8_e8m0fnu"),
    ]
    first, again = (feeds.make_feeds(request(), slots) for _ in range(2))
    assert {name: (array.dtype.name, array.shape) for name, array in first.items()} == {
        "a": ("float32", (1, 3, 4, 6)),
        "b": ("int64", (1, 5)),
        "c": ("bool", (1, 3, 4, 6)),
        "d": ("bfloat16", (1, 3, 4, 6)),
        "e": ("float16", ()),
        "f": ("int4", (1, 3, 4, 6)),
        "g": ("float8_e8m0fnu", (1, 3, 4, 6)),
    }
    assert set(first["b"].ravel()) <= {0, 1}
    assert np.isfinite(first["g"].astype(np.float32)).all()
    for name, array in first.items():
        np.testing.assert_array_equal(array, again[name])
    assert not np.array_equal(first["a"], feeds.make_feeds(request(seed=1), slots)["a"])


def test_open_dimensions_are_asked_for_all_at_once() -> None:
    slots = [Slot("a", shape=(None, "h", 3)), Slot("b", shape=("n",)), Slot("c", shape=None)]
    with pytest.raises(InvalidArgument, match=r"give --input-shape a=\?xhx3 --input-shape c=\.\.\. \(of any rank\)$"):
        feeds.make_feeds(request(), slots)
    made = feeds.make_feeds(request("zeros", shapes=["a=2x5x3"]), slots[:1])
    assert made["a"].shape == (2, 5, 3)
    assert not made["a"].any()


def test_dimensions_of_one_name_are_of_one_size() -> None:
    """A name that the given shapes contradict, and "?", which is no name, say nothing of other inputs."""
    slots = [Slot("a", shape=("n", "s")), Slot("b", shape=("n", 4, "s")), Slot("c", shape=("s",)), Slot("d", shape=())]
    made = feeds.make_feeds(request(shapes=["a=2x5"]), slots)
    assert [made[name].shape for name in "abcd"] == [(2, 5), (2, 4, 5), (5,), ()]
    assert feeds.make_feeds(request(shapes=["a=2x5", "b=2x4x7"]), slots)["c"].shape == (1,)
    with pytest.raises(InvalidArgument, match=r"give --input-shape f=1x\?$"):
        feeds.make_feeds(request(shapes=["e=7"]), [Slot("e", shape=("?",)), Slot("f", shape=(1, "?"))])


def test_what_cannot_be_made_up_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="input 's' is string"):
        feeds.make_feeds(request(), [Slot("s", "string")])
    with pytest.raises(InvalidArgument, match="say for which input"):
        feeds.make_feeds(request("zeros"), [Slot("a"), Slot("b")])


def test_bfloat16_survives_npy(tmp_path: Path) -> None:
    array = np.array([1.5, -2], ml_dtypes.bfloat16)
    np.save(tmp_path / "x.npy", array)
    loaded = feeds.make_feeds(request(f"x={tmp_path / 'x.npy'}"), [Slot("x", "bfloat16", (2,))])["x"]
    np.testing.assert_array_equal(loaded, array, strict=True)


def test_pickles_are_not_loaded(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.array([{}], object), allow_pickle=True)
    with pytest.raises(InvalidArgument, match="not a readable"):
        feeds.make_feeds(request(f"x={tmp_path / 'x.npy'}"), [Slot("x")])


@pytest.fixture
def picture(tmp_path: Path) -> Path:
    """8 × 4 pixels, red on the left and black on the right."""
    image = pytest.importorskip("PIL.Image", reason="Pillow (pip install pillow)")
    pixels = np.zeros((4, 8, 3), np.uint8)
    pixels[:, :4, 0] = 255
    path = tmp_path / "red.png"
    image.fromarray(pixels).save(path)
    return path


def test_pictures_become_what_the_input_wants(picture: Path) -> None:
    def load(shape: tuple[int | str | None, ...], dtype: str = "float32", given: tuple[int, ...] | None = None) -> Any:
        return feeds.load_picture(Slot("x", dtype, shape), picture, given)

    first = load(("n", 3, "h", "w"))
    assert first.shape == (1, 3, 4, 8)
    np.testing.assert_array_equal(first[0, 0, 0], [1, 1, 1, 1, 0, 0, 0, 0])
    assert not first[0, 1:].any()
    np.testing.assert_array_equal(load((1, None, None, 3))[0], first[0].transpose(1, 2, 0))
    assert load((2, 3, 6, 10)).shape == (2, 3, 6, 10)
    assert load(("n", 3, "h", "w"), given=(1, 3, 2, 2)).shape == (1, 3, 2, 2)
    whole = load((1, 3, 4, 8), "uint8")
    assert (whole.dtype, whole.max()) == (np.uint8, 255)
    grey = load((1, 1, 4, 8))
    assert grey.shape == (1, 1, 4, 8)
    assert grey[0, 0, 0, 0] == pytest.approx(0.299, abs=0.01)


def test_what_is_no_picture(tmp_path: Path) -> None:
    pytest.importorskip("PIL", reason="Pillow (pip install pillow)")
    (tmp_path / "text.png").write_text("hello")
    with pytest.raises(InvalidArgument, match="nor a picture, nor"):
        feeds.load_picture(Slot("x"), tmp_path / "text.png", None)
    with pytest.raises(NoSuchFile):
        feeds.load_picture(Slot("x"), tmp_path / "absent.png", None)


def test_pictures_need_pillow(picture_free: None) -> None:
    with pytest.raises(InvalidArgument, match="pip install pillow"):
        feeds.load_picture(Slot("x"), Path("x.png"), None)


@pytest.fixture
def picture_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)


def compare(got: Any, want: Any, allowed: float = 1e-3) -> comparison.Difference:
    (difference,) = comparison.compare({"y": got}, {"y": want}, allowed)
    return difference


def test_errors_are_relative_to_the_largest_value() -> None:
    want = np.array([100, 1e-3, np.nan, np.inf], np.float32)
    off = want + np.float32(0.05)
    assert compare(off, want).acceptable
    assert not compare(off, want, 1e-4).acceptable
    assert compare(off, want).relative == pytest.approx(5e-4, rel=1e-2)
    assert compare(np.zeros(3), np.zeros(3)).relative == 0
    assert compare(np.full(3, 1e-9), np.zeros(3)).relative == 1e-9
    assert compare(np.zeros(0), np.zeros(0)).acceptable


@pytest.mark.parametrize(
    ("got", "want"),
    [
        (np.zeros(3, np.float32), np.zeros(4, np.float32)),
        (np.zeros(3, np.float32), np.zeros(3, np.float16)),
        (np.array([np.nan]), np.array([1.0])),
        (np.array([1.0]), np.array([np.nan])),
        (np.array([np.inf]), np.array([-np.inf])),
        (np.array([1, 2]), np.array([1, 3])),
        (np.array(["a"], object), np.array(["b"], object)),
        ([1], [2]),
    ],
)
def test_what_no_tolerance_excuses(got: Any, want: Any) -> None:
    difference = compare(got, want, 1e9)
    assert not difference.acceptable
    assert difference.problem in str(difference)


def test_results_of_narrow_types() -> None:
    """Floats by their size, NaN included; integers exactly."""
    for dtype in (ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2fnuz, ml_dtypes.float8_e8m0fnu):
        want = np.array([1, 2, np.nan], np.float32).astype(dtype)
        assert compare(want.copy(), want).acceptable
        assert compare(want[::-1], want).problem
        assert compare(want[[1, 1, 2]], want, 0.5).relative == 0.5
    four = np.array([1, -8], ml_dtypes.int4)
    assert compare(four.copy(), four).acceptable
    assert not compare(four[::-1], four, 1e9).acceptable


def test_the_least_precise_type_decides() -> None:
    allowed = comparison.allowed_error
    assert allowed({"float32", "int64"}, tf32=False) < allowed({"float32", "float16"}, tf32=False)
    assert allowed({"float32"}, tf32=True) > allowed({"float32"}, tf32=False)
    assert allowed({"int64"}, tf32=False) == allowed({"float32"}, tf32=False)
    assert allowed({"bfloat16"}, tf32=True) == allowed({"bfloat16"}, tf32=False)


def test_progress_shows_slow_stages_on_terminals_only(monkeypatch: pytest.MonkeyPatch) -> None:
    import io

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    def drawn(stream: io.StringIO, visible_after: float) -> str:
        monkeypatch.setattr(sys, "stderr", stream)
        monkeypatch.setattr(progress, "_VISIBLE_AFTER_SECONDS", visible_after)
        with progress.progress_bars(), diagnostics.stage("compile kernels"):
            diagnostics.advance(1, 2)
            time.sleep(0.3)
        return stream.getvalue()

    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "compile kernels" in drawn(Terminal(), -1)
    assert "compile kernels" not in drawn(Terminal(), 60)
    assert drawn(io.StringIO(), -1) == ""


def test_every_error_has_an_exit_status() -> None:
    """2 where the caller can mend the command line, 1 for everything else."""
    statuses = {}
    for name in errors.__all__:
        kind = getattr(errors, name)
        if isinstance(kind, type) and issubclass(kind, errors.GossamerError):
            statuses[name] = 2 if issubclass(kind, app.USAGE_ERRORS) else 1
    assert {name for name, status in statuses.items() if status == 2} == {"InvalidArgument", "NoSuchFile", "WrongType"}


def test_the_entry_point_is_installed() -> None:
    script = Path(sys.executable).with_name("gossamer")
    if not script.exists():
        pytest.skip("the package is not installed in this environment")
    result = subprocess.run([script, "--version"], capture_output=True, text=True, check=True, env=os.environ)
    assert result.stdout.startswith("gossamer ")
