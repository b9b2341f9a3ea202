"""`gossamer.preload_dlls` and `gossamer.cudnn_version`. (R8.1, R8.2)"""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

import fake_cudnn
import gossamer
from fake_cudnn import Fake, Python, library_path

STATE = "print(json.dumps([loader.load().state, loader.load().path, loader.load().step, gossamer.cudnn_version]))"


def preload(directory: object, after: str = STATE) -> str:
    return f"""
        import json
        import gossamer
        from gossamer.cudnn import loader
        gossamer.preload_dlls(directory={directory!r})
        {after}
    """


def test_signature() -> None:
    """R8.1: onnxruntime's; `msvc` is taken by name."""
    parameters = inspect.signature(gossamer.preload_dlls).parameters
    assert [(name, one.default) for name, one in parameters.items()] == [
        ("cuda", True),
        ("cudnn", True),
        ("directory", None),
        ("msvc", True),
    ]
    assert parameters["msvc"].kind is inspect.Parameter.KEYWORD_ONLY


def test_retry(python: Python, fakes: fake_cudnn.Library, tmp_path: Path) -> None:
    """R1.7: a failure is remembered until preload_dlls succeeds, and only until then."""
    umbrella = fakes.at(tmp_path / "mine")
    seen = python.run(f"""
        import json
        import gossamer
        from gossamer.cudnn import loader
        first = loader.load()
        same = loader.load() is first
        gossamer.preload_dlls(directory={str(tmp_path)!r})
        still = loader.load() is first
        gossamer.preload_dlls(directory={str(umbrella.parent)!r})
        print(json.dumps([first.state, same, still, loader.load().state, loader.load().path, loader.load().step]))
    """)
    assert seen == ["missing", True, True, "available", str(umbrella), "preload_dlls"]


def test_directory_comes_first(python: Python, fakes: fake_cudnn.Library, tmp_path: Path) -> None:
    """R8.1: a directory, then the system's search; not the wheels."""
    fakes.installed(python)
    mine = fakes.at(tmp_path / "mine", Fake(version=92500))
    assert python.run(preload(str(mine.parent))) == ["available", str(mine), "preload_dlls", "9.25.0"]
    empty = tmp_path / "empty"
    empty.mkdir()
    step = "the system's search for the versioned name"
    assert python.run(preload(str(empty)), **library_path([mine.parent])) == ["available", str(mine), step, "9.25.0"]


def test_pytorch_comes_first(python: Python, fakes: fake_cudnn.Library) -> None:
    """R8.1: None means PyTorch's folder, then the wheels; "" means the wheels."""
    wheel = fakes.installed(python)
    theirs = fakes.at(python.packages / "torch" / "lib", Fake(version=92500))
    assert python.run(preload(None)) == ["available", str(theirs), "preload_dlls", "9.25.0"]
    assert python.run(preload("")) == ["available", str(wheel), "installed package", "9.28.1"]


def test_a_copy_that_is_loaded_stays(python: Python, fakes: fake_cudnn.Library, tmp_path: Path) -> None:
    wheel = fakes.installed(python)
    other = fakes.at(tmp_path / "other", Fake(version=92500))
    code = f"""
        import json
        import gossamer
        from gossamer.cudnn import loader
        before = loader.load()
        gossamer.preload_dlls(directory={str(other.parent)!r})
        print(json.dumps([loader.load() is before, before.path]))
    """
    assert python.run(code) == [True, str(wheel)]


def test_missing_cudnn_is_an_error_message_that_names_the_file(python: Python, tmp_path: Path) -> None:
    """R8.1: only when asked for by this call; and no exception, as in onnxruntime."""
    done = python.process(preload(str(tmp_path)))
    assert done.returncode == 0
    assert done.stderr.startswith("preload_dlls: libcudnn.so.9 was not loaded: ")
    assert f"{tmp_path}/libcudnn.so.9 (preload_dlls): not found" in done.stderr
    quiet = "import gossamer; gossamer.preload_dlls(cudnn=False)"
    assert python.process(quiet).stderr == ""


def test_unusable_cudnn_says_why(python: Python, fakes: fake_cudnn.Library, tmp_path: Path) -> None:
    umbrella = fakes.at(tmp_path / "broken", Fake(broken="umbrella"))
    done = python.process(preload(str(umbrella.parent)))
    assert done.returncode == 0
    assert (
        f"{umbrella} (preload_dlls): opening {umbrella}: the process that did this was ended by SIGABRT" in done.stderr
    )


def test_relative_directory_is_not_below_the_working_directory(
    python: Python, fakes: fake_cudnn.Library, tmp_path: Path
) -> None:
    """R1.2: onnxruntime means such a path from its package's folder; so do we."""
    fakes.at(tmp_path / "libraries")
    done = python.process(preload("libraries"), cwd=tmp_path)
    assert done.returncode != 0
    assert "InvalidArgument: preload_dlls: directory='libraries' is no folder" in done.stderr
    assert str(Path(gossamer.__file__).parent / "libraries") in done.stderr


def test_relative_library_path_is_refused_here_too(python: Python, fakes: fake_cudnn.Library, tmp_path: Path) -> None:
    """R1.2: cuDNN would look for its parts in the working directory, whoever opened it."""
    umbrella = fakes.at(tmp_path / "mine")
    done = python.process(preload(str(umbrella.parent)), LD_LIBRARY_PATH=":")
    assert "not opened, because LD_LIBRARY_PATH=: has an empty entry" in done.stderr


def test_cuda_libraries(python: Python, fakes: fake_cudnn.Library, tmp_path: Path) -> None:
    """R8.1: what cuDNN looks up by name, from the wheels or the directory; one that does not load is no error."""
    stand_in = fakes.at(tmp_path / "any")
    for place in (python.packages / "nvidia" / "cu13" / "lib", tmp_path / "cuda"):
        place.mkdir(parents=True)
        (place / "libnvrtc.so.13").write_bytes(stand_in.read_bytes())
        (place / "libcublasLt.so.13").write_text("no library")
    mapped = "print(json.dumps(sorted({line.split()[-1] for line in open('/proc/self/maps') if 'nvrtc' in line})))"
    done = python.run(preload("", mapped))
    assert done == [str(python.packages / "nvidia" / "cu13" / "lib" / "libnvrtc.so.13")]
    assert python.run(preload(str(tmp_path / "cuda"), mapped)) == [str(tmp_path / "cuda" / "libnvrtc.so.13")]
    assert python.run(preload("", mapped).replace("preload_dlls(", "preload_dlls(cuda=False, ")) == []


VERSION = """
    import json, sys
    opened = []
    sys.addaudithook(lambda event, given: opened.append(given[0]) if event == "ctypes.dlopen" else None)
    import gossamer
    version = gossamer.cudnn_version
    mapped = sum("libcudnn" in line for line in open("/proc/self/maps"))
    print(json.dumps([version, mapped, [path for path in opened if path and path.startswith("/")]]))
"""


def test_version(python: Python, fakes: fake_cudnn.Library) -> None:
    """R8.2: of what would be used, and nothing is loaded to say so."""
    fakes.installed(python)
    assert python.run(VERSION) == ["9.28.1", 0, []]


@pytest.mark.parametrize(
    "fake", [None, Fake(broken="graph"), Fake(lacks=("cudnnCreate",))], ids=["none", "aborts", "lacks"]
)
def test_no_version(python: Python, fakes: fake_cudnn.Library, fake: Fake | None) -> None:
    """R8.2: None where none can be used, and never a failure."""
    if fake:
        fakes.installed(python, fake)
    assert python.run(VERSION) == [None, 0, []]


def test_version_follows_what_is_loaded(python: Python, fakes: fake_cudnn.Library, tmp_path: Path) -> None:
    """R8.2: it is asked each time."""
    fakes.installed(python)
    mine = fakes.at(tmp_path / "mine", Fake(version=92500))
    seen = python.run(f"""
        import json
        import gossamer
        from gossamer.cudnn import loader
        before = gossamer.cudnn_version
        gossamer.preload_dlls(directory={str(mine.parent)!r})
        with loader.force_absent():
            absent = gossamer.cudnn_version
        print(json.dumps([before, gossamer.cudnn_version, absent]))
    """)
    assert seen == ["9.28.1", "9.25.0", None]


def test_star_imports_do_not_look_for_cudnn() -> None:
    assert "cudnn_version" not in gossamer.__all__
