"""What real cuDNN does without the libraries that it opens: why `prerequisites` and the stand-in for the driver exist.

Each test takes one precaution away. Where cuDNN one day does better, it fails, and the precaution can go.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from cudnn_releases import RELEASES, Release, link
from fake_cudnn import Python
from gossamer.cudnn import driver_stand_in

UNPREPARED = """
from gossamer.cudnn import prerequisites
prerequisites.prepare = lambda: None
print(json.dumps(refusal(lambda: graph("h200", "convolution").build())))
"""

WITHOUT_STAND_IN = """
from gossamer.cudnn import prerequisites
prerequisites._require_driver = lambda: None
print(json.dumps([refusal(lambda: graph("h200", case).build()) for case in ("convolution", "matmul_bias_gelu")]))
"""

LINKED = (
    *("cuGetErrorString", "cuModuleGetFunction", "cuModuleLoadData", "cuModuleUnload"),
    *("cuTensorMapEncodeIm2col", "cuTensorMapEncodeTiled"),
)
"""What the runtime-compiled engines are linked against; the rest of the driver they look up."""


@pytest.fixture
def no_driver() -> None:
    if driver_stand_in.driver_available():
        pytest.skip("there is a driver here")


@pytest.mark.parametrize("name", RELEASES)
def test_without_cublaslt_cudnn_ends_the_process(wheel_members: Callable[..., Path], tmp_path: Path, name: str) -> None:
    python = Python.create(tmp_path / "python")
    link(wheel_members(RELEASES[name], "nvidia/cudnn/lib/*"), python, "nvidia/cudnn/lib/libcudnn*")
    done = Release(name, python).process(UNPREPARED)
    assert done.returncode < 0, "by a signal"
    assert "Cannot load symbol cublasLtGetVersion" in done.stderr


@pytest.mark.usefixtures("no_driver")
def test_without_a_driver_there_are_fewer_engines(release: Release) -> None:
    """9.28 does not even read device properties; 9.19 has precompiled engines only."""
    convolution, product = release.run(WITHOUT_STAND_IN, stand_in=False)
    if release.name == "9.28":
        assert all("CUDNN_STATUS_SUBLIBRARY_LOADING_FAILED" in text for _, text in (convolution, product))
    else:
        assert convolution.startswith("none, but Plan(")
        assert product[0] == "NOT_SUPPORTED"


@pytest.mark.usefixtures("no_driver")
def test_what_is_linked_is_not_enough(release: Release, tmp_path: Path) -> None:
    """A stand-in of the six functions has cuDNN propose no runtime-compiled engine, and complain of each lookup."""
    source = "".join(f"int {name}(void) {{ return 100; }}\n" for name in LINKED)
    done = release.process(
        f"""
        driver_stand_in.SOURCE = {source!r}
        driver_stand_in.load()
        print(json.dumps(refusal(lambda: graph("h200", "matmul_bias_gelu").build())))
    """,
        stand_in=False,
    )
    assert done.returncode == 0, done.stderr
    assert "nothing was proposed" in done.stdout
    assert "Could not load symbol cuLaunchKernel" in done.stderr


def test_newer_drivers(release: Release) -> None:
    """9.19 takes a plan for a device with the same driver only; that is what `with_driver` is for."""
    same, newer = release.run("""
        blob = graph("h200", "convolution").build().serialize()
        asked = Graph._properties
        Graph._properties = lambda self, stack, driver=None: asked(self, stack)
        properties = DeviceProperties.named("h200")
        print(json.dumps([refusal(lambda: Graph(properties=properties.with_driver(version)).deserialize(blob))
                          for version in (13000, 13020)]))
    """)
    assert same.startswith("none, but Plan(")
    assert (newer[0] == "DRIVER_MISMATCH") == (release.name == "9.19")
