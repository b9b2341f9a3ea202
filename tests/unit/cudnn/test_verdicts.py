"""Examining in a child process, and remembering what came of it. (R1.5)"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

import fake_cudnn
from fake_cudnn import Fake, Python
from gossamer.cudnn import verdicts
from gossamer.cudnn.search import Candidate, Step
from gossamer.cudnn.symbols import FUNCTIONS
from gossamer.cudnn.verdicts import FULL, JIT, Verdict, judge, part_file

LOAD = """
    import json
    from gossamer.cudnn import loader
    library = loader.load()
    print(json.dumps([library.state, library.reason]))
"""


def examined(python: Python) -> bool:
    """Whether a process needed another one to examine cuDNN."""
    python.openings()
    python.run(LOAD)
    return len({process for _, process in python.openings()}) > 1


def test_only_the_first_start_after_an_install_pays(python: Python, fakes: fake_cudnn.Library) -> None:
    fakes.installed(python)
    assert examined(python)
    assert not examined(python)


@pytest.mark.parametrize("file", ["libcudnn.so.9", "libcudnn_ops.so.9", "libcudnn_engines_precompiled.so.9"])
def test_a_file_that_changed_is_examined_again(python: Python, fakes: fake_cudnn.Library, file: str) -> None:
    umbrella = fakes.installed(python)
    assert examined(python)
    os.utime(umbrella.parent / file, ns=(0, 1))
    assert examined(python)
    assert not examined(python)


def test_a_part_that_went_away_is_noticed(python: Python, fakes: fake_cudnn.Library) -> None:
    umbrella = fakes.installed(python)
    assert python.run(LOAD)[0] == "available"
    (umbrella.parent / "libcudnn_cnn.so.9").unlink()
    state, reason = python.run(LOAD)
    assert state == "incompatible"
    assert "libcudnn_cnn.so.9 missing" in reason


def test_bad_verdicts_are_remembered_until_the_files_change(python: Python, fakes: fake_cudnn.Library) -> None:
    fakes.installed(python, Fake(broken="umbrella"))
    state, reason = python.run(LOAD)
    assert (state, "SIGABRT" in reason) == ("incompatible", True)
    python.openings()
    assert python.run(LOAD) == [state, reason]
    assert python.openings() == {}
    fakes.installed(python)
    assert python.run(LOAD)[0] == "available"


def test_what_another_library_is_missing_for_is_not_remembered(python: Python, fakes: fake_cudnn.Library) -> None:
    """That library may be installed any time, and none of cuDNN's files change then."""
    umbrella = fakes.installed(python)
    umbrella.write_text("no library")
    for _ in range(2):
        state, reason = python.run(LOAD)
        assert state == "incompatible"
        assert f"does not load: {umbrella}: " in reason
    assert [file for file in python.cache.rglob("*.json") if str(umbrella) in file.read_text()] == []


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"watched": {}}', '{"watched": {}, "verdict": {"odd": 1, "parts": []}}']
)
def test_a_damaged_entry_is_found_anew(python: Python, fakes: fake_cudnn.Library, text: str) -> None:
    fakes.installed(python)
    assert examined(python)
    entries = list((python.cache / "cudnn").iterdir())
    assert entries
    for entry in entries:
        entry.write_text(text)
    done = python.process(LOAD)
    assert json.loads(done.stdout)[0] == "available"
    assert "is damaged and will be found anew" in done.stderr
    assert not examined(python)


def test_a_cache_that_cannot_be_written_costs_time_only(python: Python, fakes: fake_cudnn.Library) -> None:
    fakes.installed(python)
    python.cache.write_text("a file, where a folder should be")
    assert examined(python)
    assert examined(python)
    assert python.process(LOAD).stderr == ""


def test_entries_that_others_could_have_written_do_not_count(
    python: Python, fakes: fake_cudnn.Library, tmp_path: Path
) -> None:
    """R1.2: an entry names the library that is opened, and so could steer the load."""
    fakes.installed(python)
    assert examined(python)
    assert not examined(python)
    for entry in (python.cache / "cudnn").iterdir():
        entry.chmod(0o666)
    assert examined(python)
    for _ in range(2):
        python.openings()
        assert python.run(LOAD, cwd=tmp_path, GOSSAMER_CACHE_DIR="relative")[0] == "available"
        assert len({process for _, process in python.openings()}) > 1
    assert not examined(python), "the folder of before"


def test_an_absent_name_is_remembered(python: Python, tmp_path: Path) -> None:
    """Where no cuDNN is, no process examines anything after the first; one that is put there is found."""
    libraries = tmp_path / "libraries"
    libraries.mkdir()
    asked = """
        import json, subprocess
        real, started = subprocess.Popen, []
        subprocess.Popen = lambda *a, **k: (started.append(1), real(*a, **k))[1]
        from gossamer.cudnn import loader
        print(json.dumps([loader.load().state, len(started)]))
    """
    environment = fake_cudnn.library_path([libraries])
    assert python.run(asked, **environment) == ["missing", 2]
    assert python.run(asked, **environment) == ["missing", 0]


def test_a_library_that_appears_is_found(python: Python, fakes: fake_cudnn.Library, tmp_path: Path) -> None:
    libraries = tmp_path / "libraries"
    libraries.mkdir()
    environment = fake_cudnn.library_path([libraries])
    assert python.run(LOAD, **environment)[0] == "missing"
    fakes.at(libraries)
    assert python.run(LOAD, **environment)[0] == "available"


def test_the_child_inherits_nothing_of_pythons_environment(
    python: Python, fakes: fake_cudnn.Library, tmp_path: Path
) -> None:
    """A PYTHONPATH with modules of Python's names in it does not reach the examination."""
    (tmp_path / "json.py").write_text("import os; os.abort()")
    fakes.installed(python)
    # Gossamer's own process is asked to ignore it, too; the child would inherit the variable.
    assert (
        python.run(LOAD, options=("-I",), PYTHONPATH=str(tmp_path), PYTHONSTARTUP="x", cwd=tmp_path)[0] == "available"
    )


# In this process: what is made of reports and deaths.

UMBRELLA = "/opt/cudnn/libcudnn.so.9"


def report(**changes: Any) -> dict[str, Any]:
    """What a good cuDNN 9.28.1 gives."""
    parts = [{"name": name, "path": f"/opt/cudnn/libcudnn_{name}.so.9", "version": 0, "error": ""} for name in FULL]
    good = {
        "path": UMBRELLA,
        "version": 92801,
        "parts": parts,
        "checks": {"graph": 0, "ops": 0},
        "unexported": [],
        "lacking": [],
        "resident": [UMBRELLA],
    }
    return good | changes


def with_part(name: str, **changes: Any) -> list[dict[str, Any]]:
    return [part | changes if part["name"] == name else part for part in report()["parts"]]


def test_good() -> None:
    verdict = judge(UMBRELLA, report())
    assert verdict.good
    assert (verdict.path, verdict.version, len(verdict.parts)) == (UMBRELLA, 92801, len(FULL))


def test_without_a_driver_some_engines_do_not_load() -> None:
    """No fault of the cuDNN's: on a machine without a GPU nothing brings libcuda.so.1."""
    error = "libcuda.so.1: cannot open shared object file: No such file or directory"
    assert judge(UMBRELLA, report(parts=with_part("engines_runtime_compiled", error=error))).good


def test_functions_newer_than_the_library_are_not_required() -> None:
    newer = next(name for name, function in FUNCTIONS.items() if function.since > 90800)
    assert judge(UMBRELLA, report(version=90800, unexported=[newer], lacking=[newer])).good


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"version": 8907}, f"{UMBRELLA} is cuDNN 8.9.7, and Gossamer needs cuDNN 9"),
        ({"version": 100000}, f"{UMBRELLA} is cuDNN 10.0.0, and Gossamer needs cuDNN 9"),
        ({"version": 0}, f"{UMBRELLA} is no cuDNN: it lacks cudnnGetVersion"),
        ({"unexported": ["cudnnCreate"]}, f"{UMBRELLA} (cuDNN 9.28.1) lacks cudnnCreate"),
        (
            {"version": 0, "parts": []},
            f"is half-installed: {part_file('graph')}, {part_file('engines_runtime_compiled')} missing",
        ),
        ({"checks": {"graph": 1002}}, "another version than its parts (9.28.1): cudnnGraphVersionCheck returned 1002"),
    ],
)
def test_bad(changes: dict[str, Any], problem: str) -> None:
    verdict = judge(UMBRELLA, report(**changes))
    assert problem in verdict.problem
    assert not verdict.good


def test_part_that_does_not_load() -> None:
    for error, lasting in (
        ("undefined symbol: x", True),
        ("libcudnn_ops.so.9: gone", True),
        ("libz.so.1: gone", False),
    ):
        verdict = judge(UMBRELLA, report(parts=with_part("cnn", error=error)))
        assert verdict.problem == f"/opt/cudnn/libcudnn_cnn.so.9 does not load: {error}"
        assert verdict.lasting is lasting


def test_jit_needs_two_parts() -> None:
    parts = [part for part in report()["parts"] if part["name"] in JIT]
    assert judge(UMBRELLA, report(parts=parts)).good


@pytest.mark.skipif(sys.platform != "linux", reason="the words are those of its dynamic loader")
def test_absent_is_not_the_same_as_unloadable() -> None:
    absent = "libcudnn.so.9: cannot open shared object file: No such file or directory"
    assert judge("libcudnn.so.9", {"error": absent}) == Verdict("not found", found=False)
    needs = "libz.so.1: cannot open shared object file: No such file or directory"
    assert judge("libcudnn.so.9", {"error": needs}) == Verdict(f"does not load: {needs}", lasting=False)


@pytest.mark.parametrize(
    ("version", "text"), [(92801, "9.28.1"), (90800, "9.8.0"), (8907, "8.9.7"), (100102, "10.1.2")]
)
def test_versions(version: int, text: str) -> None:
    assert verdicts.version_text(version) == text


def candidate(path: Path) -> Candidate:
    path.touch()
    return Candidate(str(path), Step.PACKAGE)


def examine_in(monkeypatch: pytest.MonkeyPatch, code: str, target: Candidate) -> Verdict:
    """The verdict when the child runs `code` instead of the examination."""
    monkeypatch.setattr(verdicts, "_BOOT", code)
    return verdicts.verdict_on(target, anew=True)


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_deaths(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The path, the signal or exit code, what was being done, what was said; and whether it would be so again."""
    monkeypatch.setenv("GOSSAMER_CACHE_DIR", str(tmp_path / "cache"))
    target = candidate(tmp_path / "libcudnn.so.9")
    said = "import os, sys, json; print(json.dumps({'doing': 'opening X'}), flush=True); "
    verdict = examine_in(monkeypatch, said + "sys.stderr.write('no such part'); sys.stderr.flush(); os.abort()", target)
    assert verdict.problem == "opening X: the process that did this was ended by SIGABRT; it said: no such part"
    assert verdict.lasting
    verdict = examine_in(monkeypatch, said + "print('{\"doing', end='', flush=True); os._exit(7)", target)
    assert verdict.problem == "opening X: the process that did this ended with code 7"
    verdict = examine_in(monkeypatch, f"import os; os.kill(os.getpid(), {int(signal.SIGKILL)})", target)
    assert verdict.problem == f"before opening {target.target}: the process that did this was ended by SIGKILL"
    assert not verdict.lasting, "memory may suffice the next time"


def test_a_child_that_hangs_is_ended(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("GOSSAMER_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(verdicts, "TIMEOUT_S", 0.5)
    verdict = examine_in(monkeypatch, "import time; time.sleep(60)", candidate(tmp_path / "libcudnn.so.9"))
    assert "gave no answer in 0.5 s" in verdict.problem
    assert not verdict.lasting


def test_a_program_that_is_no_python_is_not_started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Where Python is a part of a program, sys.executable is that program."""
    monkeypatch.setenv("GOSSAMER_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(sys, "executable", "/usr/bin/blender")
    for prefix in ("prefix", "base_prefix"):
        monkeypatch.setattr(sys, prefix, str(tmp_path))
    verdict = verdicts.verdict_on(candidate(tmp_path / "libcudnn.so.9"))
    assert "no Python interpreter" in verdict.problem
    assert not verdict.lasting
