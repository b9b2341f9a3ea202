"""The loader against libraries that are good, bad and dangerous. Each case has a process of its own. (R1)"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import fake_cudnn
from fake_cudnn import JIT_PARTS, PARTS, Fake, Python, library_path
from gossamer.cudnn.symbols import FUNCTIONS

LOAD = """
    import json
    from gossamer.cudnn import loader
    library = loader.load()
    print(json.dumps({
        "state": library.state, "reason": library.reason, "version": library.version_text, "path": library.path,
        "step": library.step, "handle": library.handle, "tried": [str(attempt) for attempt in library.tried],
        "lacking": sorted(library.lacking), "parts": [part.name for part in library.parts],
    }))
"""


def load(python: Python, **environment: str) -> dict[str, Any]:
    loaded: dict[str, Any] = python.run(LOAD, **environment)
    return loaded


def test_absent(python: Python) -> None:
    """R1.8: nothing found is no error, and says where it was looked."""
    loaded = load(python)
    assert (loaded["state"], loaded["version"], loaded["handle"]) == ("missing", "", None)
    assert loaded["reason"] == (
        "cuDNN was not found at runtime. Install cuDNN, or disable CUDA execution for this op/model."
    )
    assert loaded["tried"] == [
        "libcudnn.so.9 (already loaded in the process): not found",
        "libcudnn.so.9 (the system's search for the versioned name): not found",
        "libcudnn.so (the system's search for the unversioned name): not found",
    ]


def test_wheel(python: Python, fakes: fake_cudnn.Library) -> None:
    """R1.2, R1.3, R1.4: found in the package folder; this process opens the umbrella once, which opens one part."""
    umbrella = fakes.installed(python)
    loaded = load(python)
    assert (loaded["state"], loaded["version"]) == ("available", "9.28.1")
    assert (loaded["path"], loaded["step"]) == (str(umbrella), "installed package")
    assert loaded["handle"]
    assert set(loaded["parts"]) == set(PARTS)
    assert loaded["tried"][-1] == f"{umbrella} (installed package): used"
    assert [name for name in loaded["lacking"] if FUNCTIONS[name].required] == []
    processes = {process for _, process in python.openings()}
    assert len(processes) == 2, "this one, and the one that examined"
    load(python)  # the verdict is known now
    assert {name for name, _ in python.openings()} == {"umbrella"}


def test_symbols_stay_local(python: Python, fakes: fake_cudnn.Library) -> None:
    """R1.3: nobody who looks up a name without a handle is given cuDNN's."""
    fakes.installed(python)
    code = """
        import ctypes, json
        from gossamer.cudnn import loader
        library, everybody = loader.load(), ctypes.CDLL(None)
        print(json.dumps([hasattr(library.opened, "cudnnGetVersion"), hasattr(everybody, "cudnnGetVersion")]))
    """
    assert python.run(code) == [True, False]


def test_jit_wheel_has_fewer_functions(python: Python, fakes: fake_cudnn.Library) -> None:
    """R1.4: a feature whose part is not installed is refused, not the library."""
    fakes.installed(python, Fake(parts=JIT_PARTS), "cudnn_jit")
    loaded = load(python)
    assert loaded["state"] == "available"
    assert {"cudnnRNNForward", "cudnnConvolutionForward"} <= set(loaded["lacking"])
    assert {"cudnnCreate", "cudnnBackendExecute"}.isdisjoint(loaded["lacking"])


def test_versioned_name_comes_before_unversioned(python: Python, fakes: fake_cudnn.Library, tmp_path: Path) -> None:
    """R1.2."""
    unversioned = fakes.at(tmp_path / "b", Fake(version=92600, unversioned=True))
    loaded = load(python, **library_path([unversioned.parent]))
    assert (loaded["version"], loaded["path"]) == ("9.26.0", str(unversioned))
    versioned = fakes.at(tmp_path / "a", Fake(version=92500))
    loaded = load(python, **library_path([versioned.parent, unversioned.parent]))
    assert (loaded["version"], loaded["path"]) == ("9.25.0", str(versioned))


def test_wrong_major(python: Python, fakes: fake_cudnn.Library, tmp_path: Path) -> None:
    """R1.5: both versions are named."""
    umbrella = fakes.at(tmp_path / "old", Fake(version=8907, parts=(), unversioned=True))
    loaded = load(python, **library_path([umbrella.parent]))
    assert loaded["state"] == "incompatible"
    assert f"{umbrella} is cuDNN 8.9.7, and Gossamer needs cuDNN 9" in loaded["reason"]
    assert {process for _, process in python.openings()} != set()


def test_required_function_missing(python: Python, fakes: fake_cudnn.Library) -> None:
    """R1.4: named."""
    umbrella = fakes.installed(python, Fake(lacks=("cudnnSetStream", "cudnnBackendFinalize")))
    loaded = load(python)
    assert loaded["state"] == "incompatible"
    assert f"{umbrella} (cuDNN 9.28.1) lacks cudnnSetStream, cudnnBackendFinalize" in loaded["reason"]


def test_optional_function_missing(python: Python, fakes: fake_cudnn.Library) -> None:
    """R1.4: what asks for it is told; the library is used."""
    fakes.installed(python, Fake(lacks=("cudnnBackendPopulateCudaGraph",)))
    loaded = load(python)
    assert loaded["state"] == "available"
    assert "cudnnBackendPopulateCudaGraph" in loaded["lacking"]
    assert "cudnnBackendExecute" not in loaded["lacking"]


@pytest.mark.parametrize("part", PARTS)
def test_half_installed(python: Python, fakes: fake_cudnn.Library, part: str) -> None:
    """R1.5: a part is missing, which real cuDNN would abort for."""
    umbrella = fakes.installed(python)
    (umbrella.parent / f"libcudnn_{part}.so.9").unlink()
    loaded = load(python)
    assert loaded["state"] == "incompatible"
    missing = f"{umbrella} is half-installed: libcudnn_{part}.so.9 missing from {umbrella.parent}"
    assert missing in loaded["reason"]


def test_mixed_versions(python: Python, fakes: fake_cudnn.Library) -> None:
    """R1.5: paths and versions are named."""
    umbrella = fakes.installed(python, Fake(versions=(("ops", 91900),)))
    loaded = load(python)
    assert loaded["state"] == "incompatible"
    assert f"{umbrella} has parts of different versions" in loaded["reason"]
    assert f"{umbrella.parent}/libcudnn_graph.so.9 is 9.28.1" in loaded["reason"]
    assert f"{umbrella.parent}/libcudnn_ops.so.9 is 9.19.0" in loaded["reason"]


def test_parts_of_another_folder_are_found_out(python: Python, fakes: fake_cudnn.Library, tmp_path: Path) -> None:
    """R1.5: LD_LIBRARY_PATH goes before RUNPATH, so that cuDNN does not open the parts that lie beside it."""
    umbrella = fakes.installed(python)
    system = fakes.at(tmp_path / "system", Fake(version=91900))
    system.unlink()  # parts only
    loaded = load(python, **library_path([system.parent]))
    assert loaded["state"] == "incompatible"
    other = f"{umbrella} is of another version than its parts (9.19.0): cudnnOpsVersionCheck returned 1002 for"
    assert f"{other} {system.parent}/libcudnn_ops.so.9" in loaded["reason"]


@pytest.mark.parametrize("broken", ["umbrella", "graph", "engines_precompiled"])
def test_aborting_constructor(python: Python, fakes: fake_cudnn.Library, broken: str) -> None:
    """R1.5: the process survives, and says which library and which signal."""
    umbrella = fakes.installed(python, Fake(broken=broken))
    file = umbrella if broken == "umbrella" else umbrella.parent / f"libcudnn_{broken}.so.9"
    loaded = load(python)
    assert loaded["state"] == "incompatible"
    assert re.search(rf"{file}: the process that did this was ended by SIGABRT", loaded["reason"])


def test_next_candidate_is_tried(python: Python, fakes: fake_cudnn.Library) -> None:
    """R1.8: what was wrong with the first is kept."""
    broken = fakes.installed(python, Fake(broken="umbrella"))
    good = fakes.installed(python, Fake(parts=JIT_PARTS), "cudnn_jit")
    loaded = load(python)
    assert (loaded["state"], loaded["path"]) == ("available", str(good))
    assert any(
        attempt.startswith(f"{broken} (installed package): ") and "SIGABRT" in attempt for attempt in loaded["tried"]
    )


def test_copy_that_is_loaded_already_comes_first(python: Python, fakes: fake_cudnn.Library, tmp_path: Path) -> None:
    """R1.2, R1.10: PyTorch's, say, which opens its libraries RTLD_GLOBAL."""
    fakes.installed(python)
    theirs = fakes.at(tmp_path / "theirs", Fake(version=92500))
    before = f"import ctypes; theirs = ctypes.CDLL({str(theirs)!r}, mode=ctypes.RTLD_GLOBAL)"
    loaded = python.run(f"    {before}\n{LOAD}    assert library.handle == theirs._handle")
    assert (loaded["path"], loaded["version"]) == (str(theirs), "9.25.0")
    assert loaded["step"] == "already loaded in the process"


def test_stand_in_is_no_cudnn(python: Python, fakes: fake_cudnn.Library, tmp_path: Path) -> None:
    """R2.6: the library of `gossamer cudnn-shim` has cuDNN's name, in the process or where the system looks."""
    stand_in = fakes.at(tmp_path / "stand_in", Fake(parts=("graph",), stand_in=True))
    loaded = load(python, **library_path([stand_in.parent]))
    assert loaded["state"] == "missing"
    assert f"{stand_in} is a stand-in for cuDNN" in loaded["tried"][1]
    wheel = fakes.installed(python)
    loaded = python.run(f"    import ctypes; theirs = ctypes.CDLL({str(stand_in)!r})\n{LOAD}")
    assert (loaded["state"], loaded["path"]) == ("available", str(wheel))


def test_parts_of_another_cudnn_in_the_process(python: Python, fakes: fake_cudnn.Library, tmp_path: Path) -> None:
    """R1.5: same SONAMEs, so that cuDNN would be given the other's parts."""
    umbrella = fakes.installed(python)
    fakes.at(tmp_path / "theirs", Fake(version=92500))
    theirs = tmp_path / "theirs" / "libcudnn_graph.so.9"
    loaded = python.run(f"    import ctypes; ctypes.CDLL({str(theirs)!r})\n{LOAD}")
    assert loaded["state"] == "incompatible"
    mix = f"{umbrella} would mix with parts of another cuDNN that this process has loaded: {theirs}"
    assert mix in loaded["reason"]


def test_threads_load_once_and_agree(python: Python, fakes: fake_cudnn.Library) -> None:
    """R1.6."""
    umbrella = fakes.installed(python)
    counted = python.run("""
        import json, sys, threading
        opened = []
        sys.addaudithook(lambda event, given: opened.append(given[0]) if event == "ctypes.dlopen" else None)
        from gossamer.cudnn import loader
        barrier, seen = threading.Barrier(32), []

        def ask():
            barrier.wait()
            seen.append(loader.load())

        threads = [threading.Thread(target=ask) for _ in range(32)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        print(json.dumps([len(seen), len(set(map(id, seen))), seen[0].available, opened]))
    """)
    assert counted[:3] == [32, 1, True]
    assert [path for path in counted[3] if path and path.startswith("/")] == [str(umbrella)]
    assert counted[3].count("libcudnn.so.9") == 1, "asked once whether one is loaded already"
    assert max(python.openings().values()) == 1


def test_policies_of_two_sessions(python: Python, fakes: fake_cudnn.Library) -> None:
    """R3.3, R3.4, R1.10: 0 opens nothing, and says so; 1 loads in the same process, and 0 stays without."""
    fakes.installed(python)
    seen = python.run("""
        import json, sys
        opened = []
        sys.addaudithook(lambda event, given: opened.append(given[0]) if event == "ctypes.dlopen" else None)
        from gossamer.cudnn import loader

        def mapped():
            return sum("libcudnn" in line for line in open("/proc/self/maps"))

        first = loader.effective(False)
        before = [[path for path in opened if path], mapped(), loader.loaded_without_loading()]
        second = loader.effective(True)
        again = loader.effective(False)
        print(json.dumps([before, first.state, first.reason, first.handle, second.state, mapped() > 0, again is first]))
    """)
    disabled = "cuDNN was disabled by the CUDA provider option 'enable_cudnn'."
    assert seen == [[[], 0, None], "disabled", disabled, None, "available", True, True]


def test_forced_absence(python: Python, fakes: fake_cudnn.Library) -> None:
    """R1.9: whatever is there, and loaded, is not found inside; afterwards all is as it was."""
    umbrella = fakes.installed(python)
    seen = python.run(f"""
        import json
        from gossamer.cudnn import calls, loader
        from gossamer import preload_dlls
        with loader.force_absent():
            unseen = loader.load().state, calls.cudnnGetVersion()
        library = loader.load()
        with loader.force_absent():
            preload_dlls(directory={str(umbrella.parent)!r})
            inside = loader.load().state, loader.load().handle, calls.cudnnGetVersion()
        print(json.dumps([unseen, library.state, inside, loader.load() is library, calls.cudnnGetVersion()]))
    """)
    assert seen == [["missing", 0], "available", ["missing", None, 0], True, 92801]


def test_error_carries_what_was_tried(python: Python, fakes: fake_cudnn.Library) -> None:
    """R1.8: on the error object."""
    umbrella = fakes.installed(python, Fake(lacks=("cudnnSetStream",)))
    seen = python.run("""
        import json
        import gossamer
        from gossamer.cudnn import loader
        try:
            loader.load().require("Conv", "conv_1")
        except gossamer.CudnnUnavailable as error:
            print(json.dumps([str(error), error.tried, error.code, isinstance(error, NotImplementedError)]))
    """)
    assert seen[0].startswith(
        "Operator 'Conv' on the CUDA EP requires cuDNN, but the cuDNN found at runtime cannot be used: "
    )
    assert f"{umbrella} (cuDNN 9.28.1) lacks cudnnSetStream" in seen[0]
    assert any("lacks cudnnSetStream" in attempt for attempt in seen[1])
    assert len(seen[1]) == 4
    assert seen[2:] == ["NOT_IMPLEMENTED", True]


def test_log_at_debug(python: Python, fakes: fake_cudnn.Library) -> None:
    """R1.8: in the log at DEBUG; and nothing above it, nor anything printed, in normal use (R8.1)."""
    umbrella = fakes.installed(python, Fake(broken="umbrella"))
    log = python.process(f"    import logging; logging.basicConfig(level=logging.DEBUG)\n{LOAD}").stderr
    assert "libcudnn.so.9 (already loaded in the process): not found" in log
    assert f"{umbrella} (installed package): opening {umbrella}" in log
    assert python.process(LOAD).stderr == ""


# Attempts to steer the load: whatever they bring in would end the process, or its examination, and be in the log.

HOSTILE = Fake(broken="umbrella")


@pytest.mark.parametrize("how", ["working directory", "sys.path", "PYTHONPATH", "environment set later"])
def test_nothing_steers_the_load(python: Python, fakes: fake_cudnn.Library, tmp_path: Path, how: str) -> None:
    """R1.2: no working directory, no sys.path, no PYTHONPATH."""
    folder = tmp_path / "hostile"
    fakes.at(folder, HOSTILE)
    fakes.at(folder / "nvidia" / "cudnn" / "lib", HOSTILE)
    environment = {"PYTHONPATH": str(folder)} if how == "PYTHONPATH" else {}
    prepare = {
        "sys.path": f"import sys; sys.path.insert(0, {str(folder)!r}); sys.path.insert(0, '')",
        "environment set later": f"import os; os.environ['LD_LIBRARY_PATH'] = {str(folder)!r}",
    }
    loaded = python.run(f"    {prepare.get(how, 'pass')}\n{LOAD}", cwd=folder, **environment)
    assert loaded["state"] == "missing"
    assert python.openings() == {}


@pytest.mark.parametrize("path", [":", ".", "sub", "/usr/lib:", "{absolute}:"])
def test_relative_library_path_does_not_steer_the_load(
    python: Python, fakes: fake_cudnn.Library, tmp_path: Path, path: str
) -> None:
    """R1.2: neither what is found, nor which parts it opens. Absolute folders of the user's are the user's choice."""
    folder = tmp_path / "hostile"
    for place in (folder, folder / "sub"):
        fakes.at(place, Fake(broken="graph"))
        (place / "libcudnn.so.9").unlink()
    own = fakes.at(tmp_path / "own")
    fakes.installed(python)
    given = path.format(absolute=own.parent)
    loaded = python.run(LOAD, cwd=folder, LD_LIBRARY_PATH=given)
    assert (loaded["state"], loaded["handle"]) == ("incompatible", None)
    assert f"not opened, because LD_LIBRARY_PATH={given} has " in loaded["reason"]
    assert "SIGABRT" not in loaded["reason"], "the hostile part was opened while examining"


def test_unnamed_options_cannot_name_a_library() -> None:
    """R1.2, R3.1: no option of any name or value is a path to load from."""
    from gossamer.errors import InvalidArgument
    from gossamer.options import CudaOptions

    for name in ("cudnn_path", "cudnn_dir", "cudnn_library"):
        with pytest.raises(InvalidArgument):
            CudaOptions.parse({name: "/hostile"})
    with pytest.raises(InvalidArgument):
        CudaOptions.parse({"enable_cudnn": "/hostile/libcudnn.so.9"})
    with pytest.raises(InvalidArgument, match="preload_dlls"):
        CudaOptions.parse({"cudnn_path": "/hostile"})
