"""What `gossamer doctor` says about cuDNN. (R1.8)"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fake_cudnn
import fake_driver
from fake_cudnn import Fake, Python
from gossamer.cli import doctor
from gossamer.cudnn import loader, self_test
from gossamer.cudnn.loader import Library, State
from gossamer.errors import CudnnError
from gossamer.run import driver

REPORT = """
    import json
    from gossamer.cli import doctor
    print(json.dumps([[finding.subject, finding.detail, finding.good, finding.required] for finding in doctor.cudnn()]))
"""


def test_every_cudnn_and_which_is_used(python: Python, fakes: fake_cudnn.Library) -> None:
    used = fakes.installed(python)
    other = fakes.installed(python, Fake(version=92700, parts=fake_cudnn.JIT_PARTS), "cudnn_jit")
    first, second, *_ = python.run(REPORT)
    assert first[:3] == ["cuDNN", first[1], True]
    assert first[1].startswith(f"9.28.1, {used} (installed package): used; its parts: graph 9.28.1, ops 9.28.1, ")
    assert second[1].startswith(f"9.27.0, {other} (installed package): good, but an earlier one is used; its parts: ")


def test_why_one_is_not_used(python: Python, fakes: fake_cudnn.Library) -> None:
    """Nothing of it is required: the report is good as a whole."""
    umbrella = fakes.installed(python, Fake(versions=(("ops", 91900),)))
    bad, none = python.run(REPORT)
    assert bad[1].startswith(f"installed package: {umbrella} has parts of different versions")
    assert bad[2:] == [False, False]
    assert none[1:] == [
        "none that can be used, and none is needed: pip install 'gossamer[cudnn]' to have it",
        True,
        False,
    ]


def test_it_looks_again(python: Python, fakes: fake_cudnn.Library) -> None:
    """A remembered verdict is no answer to somebody who asks what is wrong."""
    fakes.installed(python)
    python.run(REPORT)
    python.openings()
    python.run(REPORT)
    assert {name for name, _ in python.openings()} > {"umbrella", "graph"}


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU of host memory, and a cuDNN that has everything."""
    fake_driver.install(monkeypatch)

    class Active:
        def __enter__(self) -> None: ...
        def __exit__(self, *_: object) -> None: ...

    class Device:
        def active(self) -> Active:
            return Active()

    monkeypatch.setattr(driver, "why_unavailable", lambda: ())
    monkeypatch.setattr(driver, "device", lambda ordinal: Device())
    monkeypatch.setattr(fake_driver.FakeMemory, "__enter__", lambda self: self, raising=False)
    monkeypatch.setattr(fake_driver.FakeMemory, "__exit__", lambda self, *_: self.close(), raising=False)
    library = Library(State.AVAILABLE, path="/opt/libcudnn.so.9", version=92801, lacking=frozenset())
    monkeypatch.setattr(loader, "load", lambda: library)


def fill_by_numpy(pointer: int, count: int, value: float) -> None:
    driver.copy_to_device(pointer, np.full(count, value, np.float32))


def refuse(*_: Any) -> None:
    raise CudnnError("cudnnCreate", 1001, "no", "testing cuDNN")


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize(
    ("fill", "detail", "good"),
    [
        (fill_by_numpy, "cuDNN 9.28.1 works on GPU 0", True),
        (lambda *_: None, "cuDNN 9.28.1 gave [0. 0.", False),
        (refuse, "cudnnCreate returned 1001 (no) while testing cuDNN", False),
    ],
)
def test_self_test(monkeypatch: pytest.MonkeyPatch, fill: Any, detail: str, good: bool) -> None:
    """The answer is looked at, and an error is a finding."""
    monkeypatch.setattr(self_test, "fill", fill)
    (finding,) = doctor._cudnn_self_test()
    assert finding.detail.startswith(detail)
    assert (finding.subject, finding.good) == ("cuDNN self-test", good)


def test_fill_gives_back_what_it_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """Handle and descriptor, also when the last call fails."""
    called = []

    class Calls:
        def __getattr__(self, name: str) -> Any:
            def call(*arguments: Any) -> int:
                called.append(name)
                if name.startswith("cudnnCreate"):
                    arguments[0]._obj.value = 1
                return 2000 if name == "cudnnSetTensor" else 0

            return call

    monkeypatch.setattr(self_test, "calls", Calls())
    with pytest.raises(CudnnError, match="cudnnSetTensor returned 2000"), loader.force_absent():
        self_test.fill(0, 16, 0.5)
    assert called == [
        "cudnnCreate",
        "cudnnCreateTensorDescriptor",
        "cudnnSetTensor4dDescriptor",
        "cudnnSetTensor",
        "cudnnDestroyTensorDescriptor",
        "cudnnDestroy",
    ]
