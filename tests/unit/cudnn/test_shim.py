"""R2.6: the shim for C programs, with no cuDNN, with fake ones, and with its own stand-in in the way."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import missing
from fake_cudnn import Fake, Library
from gossamer.cudnn import calls, shim
from gossamer.cudnn.enums import cudnnStatus
from gossamer.cudnn.symbols import FUNCTIONS
from gossamer.errors import Fail, InvalidArgument, NotFound
from shim_programs import Probed, Shim, compile_c, dynamic_section, run, symbols

NOT_INITIALIZED = int(cudnnStatus.CUDNN_STATUS_NOT_INITIALIZED)
UNAVAILABLE = int(cudnnStatus.CUDNN_STATUS_NOT_SUPPORTED_SUBLIBRARY_UNAVAILABLE)
STRICT = ("-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wshadow", "-Wstrict-prototypes", "-Werror")

ECHO = """
#include "cudnn_shim.h"
#define RETURN_STATUS return (cudnnStatus_t)(10000 + __COUNTER__);
#define RETURN_SIZE return VERSION;
#define RETURN_TEXT return "an echo";
#define RETURN_MESSAGE message[0] = (char)max_size; message[1] = 0;
#define CUDNN_FUNCTION(kind, returns, name, parameters, arguments, since, required) \\
    returns name parameters { RETURN_##kind }
#include "cudnn_symbols.inc"
"""
"""A library without parts, in which every function returns a status of its own."""


@pytest.fixture(scope="module")
def built(fakes: Library, tmp_path_factory: pytest.TempPathFactory) -> Shim:
    if shutil.which("readelf") is None:
        missing("readelf and nm (binutils)")
    return Shim.build(tmp_path_factory.mktemp("shim"))


def echo(built: Shim, folder: Path, version: int = 92801, before: str = "") -> Path:
    """An ECHO in a folder, with C text before it."""
    folder.mkdir()
    options = (f"-I{built.folder}", f"-DVERSION={version}", "-shared", "-fPIC", "-Wno-unused-parameter")
    return compile_c(folder / "libcudnn.so.9", before + ECHO, *options)


def assert_absent(probed: Probed) -> None:
    """R2.4, the same as from Python."""
    assert probed.statuses == {NOT_INITIALIZED} == {calls.ABSENT["cudnnStatus_t"]}
    assert probed.results["cudnnGetVersion"] == str(calls.ABSENT["size_t"]) == "0"
    text = calls.ABSENT["const char *"].decode()
    assert probed.results["cudnnGetErrorString"] == text
    assert probed.results["cudnnGetLastErrorString"] == text
    assert not probed.handle


def test_sources_compile_without_warnings(built: Shim, tmp_path: Path) -> None:
    """R2.6: with the flags it asks for, and with stricter ones."""
    paths = shim.write(tmp_path / "sources")
    assert shim.build(tmp_path / "sources") == (tmp_path / "sources" / shim.ARCHIVE, "")
    assert shim.build(tmp_path / "sources", stand_in=True) == (tmp_path / "sources" / shim.STAND_IN, "")
    assert {path.name for path in (tmp_path / "sources").iterdir()} == {path.name for path in paths} | {
        shim.ARCHIVE,
        shim.STAND_IN,
    }
    for define in ((), ("-DCUDNN_SHIM_STAND_IN",)):
        command = ["cc", *STRICT, *define, "-fsyntax-only", *shim.COMPILED]
        subprocess.run(command, cwd=built.folder, check=True)


def test_header_is_cplusplus_as_well(built: Shim) -> None:
    if shutil.which("c++") is None:
        missing("a C++ compiler (c++)")
    command = [
        "c++",
        "-std=c++17",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-fsyntax-only",
        f"-I{built.folder}",
        "-x",
        "c++",
        "-",
    ]
    subprocess.run(command, input='#include "cudnn_shim.h"\n', text=True, check=True)


def test_probe_of_every_function_links_and_runs_without_cudnn(built: Shim) -> None:
    """R2.6, R2.4."""
    probed = built.probe()
    assert set(probed.results) == set(FUNCTIONS)
    assert_absent(probed)
    assert "cannot open shared object file" in probed.found, "the dynamic loader's own search is the last to be tried"


def test_nothing_built_needs_cudnn(built: Shim) -> None:
    """R2.6, R9.2."""
    for path in (built.folder / "archive_probe", built.stand_in):
        assert not [name for name in dynamic_section(path, "NEEDED") if "cudnn" in name]


def test_trampolines_are_hidden(built: Shim) -> None:
    """R2.6: a library that links the archive exports none of them, whatever flags it is compiled with."""
    source = (
        '#include "cudnn_shim.h"\ncudnnStatus_t plugin(void);\ncudnnStatus_t plugin(void) { return cudnnCreate(0); }\n'
    )
    whole = ("-Wl,--whole-archive", str(built.archive), "-Wl,--no-whole-archive")
    plugin = compile_c(built.folder / "plugin.so", source, f"-I{built.folder}", "-shared", "-fPIC", *whole, "-ldl")
    exported = symbols(plugin, "--defined-only")
    assert "plugin" in exported
    assert not [name for name in exported if "cudnn" in name]


def test_stand_in_exports_every_function_under_its_version(built: Shim) -> None:
    """R2.6: name, version and SONAME are those that binaries linked with the real one ask for."""
    assert dynamic_section(built.stand_in, "SONAME") == ["libcudnn.so.9"]
    exported = {name for name in symbols(built.stand_in, "--defined-only") if name.startswith("cudnn")}
    own = {"cudnn_shim_load", "cudnn_shim_handle", "cudnn_shim_retry", "cudnn_shim_describe", "cudnn_shim_stand_in"}
    assert exported == {f"{name}@@libcudnn.so.9" for name in (*FUNCTIONS, *own)}
    assert built.stand_in.stat().st_size < 400_000


def test_every_trampoline_reaches_its_own_function(built: Shim, tmp_path: Path) -> None:
    path = echo(built, tmp_path / "echo")
    statuses = [name for name, function in FUNCTIONS.items() if function.returns == "cudnnStatus_t"]
    for probed in (built.probe(path.parent), built.probe_stand_in(path.parent)):
        assert [probed.results[name] for name in statuses] == [str(10000 + index) for index in range(len(statuses))]
        assert probed.results["cudnnGetVersion"] == "92801"
        assert probed.results["cudnnGetErrorString"] == "an echo"


def test_arguments_arrive(built: Shim, tmp_path: Path) -> None:
    """Integers, floats and pointers beside each other, by value, and results through pointers."""
    own = """
    #include "cudnn_shim.h"
    #define cudnnSetLRNDescriptor hidden_away
    #define RETURN_STATUS return CUDNN_STATUS_SUCCESS;
    #define RETURN_SIZE return 92801;
    #define RETURN_TEXT return "";
    #define RETURN_MESSAGE (void)message; (void)max_size;
    #define CUDNN_FUNCTION(kind, returns, name, parameters, arguments, since, required) \\
        returns name parameters; returns name parameters { RETURN_##kind }
    #include "cudnn_symbols.inc"
    #undef cudnnSetLRNDescriptor
    cudnnStatus_t cudnnSetLRNDescriptor(cudnnLRNDescriptor_t d, unsigned n, double alpha, double beta, double k) {
        *(double *)d = n + 10 * alpha + 100 * beta + 1000 * k;
        return CUDNN_STATUS_BAD_PARAM;
    }
    """
    (tmp_path / "own").mkdir()
    compile_c(tmp_path / "own/libcudnn.so.9", own, f"-I{built.folder}", "-shared", "-fPIC", "-Wno-unused-parameter")
    source = """
    #include <stdio.h>
    #include "cudnn_shim.h"
    int main(void) {
        double got = 0;
        cudnnStatus_t status = cudnnSetLRNDescriptor((cudnnLRNDescriptor_t)(void *)&got, 5, 0.5, 0.25, 2.0);
        printf("%d %g", (int)status, got);
        return 0;
    }
    """
    assert run(built.compile("arguments", source), folders=[tmp_path / "own"]) == "2000 2035"


def test_a_library_that_is_used(built: Shim, fakes: Library, tmp_path: Path) -> None:
    path = fakes.at(tmp_path / "fake", Fake())
    probed = built.probe(path.parent)
    assert probed.results["cudnnGetVersion"] == "92801"
    assert probed.statuses == {0}
    assert probed.handle
    assert probed.found == f"{path}: this is used\n"


def test_an_unversioned_name_is_found_after_the_versioned(built: Shim, fakes: Library, tmp_path: Path) -> None:
    path = fakes.at(tmp_path / "fake", Fake(unversioned=True))
    assert built.probe(path.parent).found == f"{path}: this is used\n"
    versioned = fakes.at(tmp_path / "fake", Fake())
    assert built.probe(path.parent).found == f"{versioned}: this is used\n"


def test_functions_that_the_library_is_too_old_for(built: Shim, fakes: Library, tmp_path: Path) -> None:
    """An optional function's absence is refused call by call, with the same status as in Python."""
    newer = tuple(name for name, function in FUNCTIONS.items() if function.since > 90800)
    path = fakes.at(tmp_path / "fake", Fake(version=90800, lacks=newer))
    probed = built.probe(path.parent)
    assert probed.results["cudnnGetVersion"] == "90800"
    assert {name for name, result in probed.results.items() if result == str(UNAVAILABLE)} == set(newer)
    assert probed.results["cudnnCreate"] == "0"


@pytest.mark.parametrize(
    ("fake", "reason"),
    [
        (Fake(version=100000), "its version is 100000, this program needs cuDNN 9"),
        (Fake(version=8907), "its version is 8907, this program needs cuDNN 9"),
        (Fake(lacks=("cudnnConvolutionForward",)), "it has no function cudnnConvolutionForward"),
    ],
    ids=["newer major", "older major", "required function missing"],
)
def test_a_library_that_is_refused(built: Shim, fakes: Library, tmp_path: Path, fake: Fake, reason: str) -> None:
    """R1.4, R1.5, R1.8 for C programs; the search goes on after a refusal."""
    path = fakes.at(tmp_path / "fake", fake)
    probed = built.probe(path.parent)
    assert_absent(probed)
    assert f"{path}: {reason}" in probed.found
    assert_absent(built.probe_stand_in(path.parent))
    good = echo(built, tmp_path / "good")
    assert built.probe(path.parent, good.parent).found == f"{good}: this is used\n"


def test_a_file_that_is_no_library(built: Shim, tmp_path: Path) -> None:
    (tmp_path / "libcudnn.so.9").write_bytes(b"not a library")
    probed = built.probe(tmp_path)
    assert_absent(probed)
    assert f"{tmp_path}/libcudnn.so.9: " in probed.found


def test_folders_compiled_in_come_first(built: Shim, tmp_path: Path) -> None:
    ours, other = echo(built, tmp_path / "ours"), echo(built, tmp_path / "other", 92000)
    shim.write(tmp_path / "sources", [str(ours.parent)])
    shim.build(tmp_path / "sources")
    source = (
        '#include <stdio.h>\n#include "cudnn_shim.h"\nint main(void) { printf("%zu", cudnnGetVersion()); return 0; }\n'
    )
    own = (f"-I{tmp_path}/sources", str(tmp_path / "sources" / shim.ARCHIVE), "-ldl")
    program = compile_c(tmp_path / "program", source, *own)
    assert run(program, folders=[other.parent]) == "92801"
    shutil.rmtree(ours.parent)
    assert run(program, folders=[other.parent]) == "92000"


def test_stand_in_never_finds_itself(built: Shim, fakes: Library, tmp_path: Path) -> None:
    """Nor another stand-in: a copy, a link. A real one further on is found."""
    assert_absent(built.probe_stand_in())
    (tmp_path / "copy").mkdir()
    (tmp_path / "link").mkdir()
    shutil.copy(built.stand_in, tmp_path / "copy")
    (tmp_path / "link" / "libcudnn.so.9").symlink_to(built.stand_in)
    (tmp_path / "link" / "libcudnn.so").hardlink_to(built.stand_in)
    in_the_way = (tmp_path / "copy", tmp_path / "link")
    assert_absent(built.probe_stand_in(*in_the_way))
    assert built.probe_stand_in(*in_the_way, fakes.at(tmp_path / "fake").parent).statuses == {0}
    probed = built.probe(*in_the_way)
    assert_absent(probed)
    assert f"{tmp_path}/copy/libcudnn.so.9: this is a stand-in for cuDNN" in probed.found


@pytest.mark.parametrize("library_path", [None, "", ":", "::/nowhere", ".:/nowhere", "lib:/nowhere"])
def test_working_directory_is_not_searched(
    built: Shim, fakes: Library, tmp_path: Path, library_path: str | None
) -> None:
    """R1.2: not even where LD_LIBRARY_PATH has the dynamic loader look into it."""
    fakes.at(tmp_path, Fake())
    fakes.at(tmp_path / "lib", Fake())
    environment = {} if library_path is None else {"LD_LIBRARY_PATH": library_path}
    log = tmp_path / "opened.log"
    assert_absent(built.probe(cwd=tmp_path, FAKE_CUDNN_LOG=str(log), **environment))
    assert not log.exists()


LOCALITY = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include "cudnn_shim.h"
int main(int argc, char **argv) {
    size_t (*other)(void);
    void *symbol;
    printf("%zu ", cudnnGetVersion());
    printf("%d ", dlsym(RTLD_DEFAULT, "cudnnCreate") != NULL);
    if (argc != 2 || dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL) == NULL) return 1;
    symbol = dlsym(RTLD_DEFAULT, "cudnnGetVersion");
    *(void **)&other = symbol;
    printf("%zu %zu", other(), cudnnGetVersion());
    return 0;
}
"""


def test_the_real_library_is_local(built: Shim, tmp_path: Path) -> None:
    """R2.6: nobody else sees its symbols, and a second cuDNN in the process keeps its own."""
    first, second = echo(built, tmp_path / "first"), echo(built, tmp_path / "second", 91900)
    program = built.compile("locality", LOCALITY)
    assert run(program, str(second), folders=[first.parent]) == "92801 0 91900 92801"


RESIDENT = """
#include <dlfcn.h>
#include <stdio.h>
#include "cudnn_shim.h"
int main(int argc, char **argv) {
    if (argc != 2 || dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) == NULL) return 1;
    printf("%zu", cudnnGetVersion());
    return 0;
}
"""


def test_a_library_already_in_the_process_is_used(built: Shim, tmp_path: Path) -> None:
    """R1.2."""
    resident, other = echo(built, tmp_path / "resident", 92000), echo(built, tmp_path / "other")
    program = built.compile("resident", RESIDENT)
    assert run(program, str(resident), folders=[other.parent]) == "92000"


RETRY = """
#include <stdio.h>
#include "cudnn_shim.h"
int main(int argc, char **argv) {
    char text[4096];
    cudnn_shim_describe(text, sizeof text);
    if (argc != 3) return 1;
    printf("%s%zu ", text, cudnnGetVersion());
    if (rename(argv[1], argv[2]) != 0) return 1;
    printf("%zu ", cudnnGetVersion());
    cudnn_shim_retry();
    printf("%zu ", cudnnGetVersion());
    cudnn_shim_retry();
    cudnn_shim_describe(text, 8);
    printf("%zu %s", cudnnGetVersion(), text);
    return 0;
}
"""


def test_a_failure_is_remembered_until_retry(built: Shim, tmp_path: Path) -> None:
    """R1.7 for C programs; and describing loads nothing."""
    away, here = echo(built, tmp_path / "away").parent, tmp_path / "here"
    output = run(built.compile("retry", RETRY), str(away), str(here), folders=[here])
    assert output == f"cuDNN was not needed yet\n0 0 92801 92801 {str(here)[:7]}"


THREADS = """
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include "cudnn_shim.h"
enum { THREADS = 32 };
static pthread_barrier_t barrier;
static void *ask(void *answer) {
    char text[256];
    pthread_barrier_wait(&barrier);
    *(size_t *)answer = cudnnGetVersion() + (size_t)cudnnCreate(NULL) + (cudnn_shim_handle() != NULL);
    cudnn_shim_describe(text, sizeof text);
    cudnn_shim_retry();
    return NULL;
}
int main(void) {
    pthread_t threads[THREADS];
    size_t answers[THREADS], same = 1;
    pthread_barrier_init(&barrier, NULL, THREADS);
    for (int i = 0; i < THREADS; i++) {
        if (pthread_create(&threads[i], NULL, ask, &answers[i]) != 0) return 1;
    }
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    for (int i = 1; i < THREADS; i++) same += answers[i] == answers[0];
    printf("%zu %zu", same, answers[0]);
    return 0;
}
"""


@pytest.mark.parametrize("sanitizer", ["thread", "address,undefined"])
def test_32_threads_under_a_sanitizer(built: Shim, fakes: Library, tmp_path: Path, sanitizer: str) -> None:
    """R1.6: one load, one answer, no data race, no error of memory, with cuDNN and without."""
    trial = subprocess.run(
        ["cc", f"-fsanitize={sanitizer}", "-x", "c", "-", "-o", tmp_path / "trial"],
        input="int main(void) { return 0; }",
        text=True,
        check=False,
    )
    if trial.returncode != 0:
        missing(f"a C compiler with -fsanitize={sanitizer}")
    program = built.sanitized(f"threads_{sanitizer[:4]}", THREADS, sanitizer)
    log = tmp_path / "opened.log"
    options = {"TSAN_OPTIONS": "halt_on_error=1 exitcode=66", "ASAN_OPTIONS": "detect_leaks=0"}
    fake = fakes.at(tmp_path / "fake", Fake())
    assert run(program, folders=[fake.parent], FAKE_CUDNN_LOG=str(log), **options) == "32 92802"
    assert log.read_text(encoding="utf-8").count("umbrella") == 1
    assert run(program, **options) == f"32 {NOT_INITIALIZED}"


REENTRANT = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include "cudnn_shim.h"
__attribute__((constructor)) static void call_cudnn_while_it_is_opened(void) {
    char text[100] = "?";
    size_t (*version)(void);
    void (*describe)(char *, size_t);
    *(void **)&version = dlsym(RTLD_DEFAULT, "cudnnGetVersion");
    *(void **)&describe = dlsym(RTLD_DEFAULT, "cudnn_shim_describe");
    describe(text, sizeof text);
    printf("%zu %s", version(), text);
}
"""


def test_a_library_may_call_cudnn_while_it_is_opened(built: Shim, tmp_path: Path) -> None:
    """What it then finds is the stand-in, which must neither wait for itself nor open the library again."""
    echo(built, tmp_path / "reentrant", before=REENTRANT)
    output = run(built.folder / "stand_in_probe", folders=[built.stand_in.parent, tmp_path / "reentrant"])
    assert output.startswith("0 cuDNN is being opened\ncudnnGetVersion 92801\n")


def test_folders_to_search_are_absolute_and_quoted(tmp_path: Path) -> None:
    for folder in ("relative", "", "/with\nnewline"):
        with pytest.raises(InvalidArgument, match="absolute"):
            shim.write(tmp_path / "refused", [folder])
    assert not (tmp_path / "refused").exists()
    shim.write(tmp_path / "quoted", ['/with "quotes" and \\ and ??/'])
    text = (tmp_path / "quoted/cudnn_config.h").read_text(encoding="utf-8")
    assert r'CUDNN_SHIM_FOLDERS "/with \"quotes\" and \\ and \?\?/", "/usr/lib64"' in text


def test_building_says_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shim.write(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NotFound, match=r"'cc'.*--no-build"):
        shim.build(tmp_path)


def test_a_failed_build_shows_what_the_compiler_said(built: Shim, tmp_path: Path) -> None:
    shim.write(tmp_path)
    (tmp_path / "cudnn_config.h").write_text("#error nobody can build this\n", encoding="utf-8")
    with pytest.raises(Fail, match="nobody can build this"):
        shim.build(tmp_path)


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "gossamer", "cudnn-shim", *arguments], capture_output=True, text=True, check=False
    )


def test_command(built: Shim, tmp_path: Path) -> None:
    done = command(str(tmp_path / "made"), "--stand-in", "--search", "/opt/cudnn/lib")
    assert done.returncode == 0, done.stderr
    assert str(tmp_path / "made" / "libcudnn.so.9") in done.stdout
    assert (tmp_path / "made" / "libcudnn.so.9").is_file()
    assert '"/opt/cudnn/lib"' in (tmp_path / "made" / "cudnn_config.h").read_text(encoding="utf-8")
    done = command(str(tmp_path / "sources"), "--no-build")
    assert done.returncode == 0, done.stderr
    assert {path.suffix for path in (tmp_path / "sources").iterdir()} == {".c", ".h", ".inc", ".map"}
    assert "cc -std=c11" in done.stdout
    assert command(str(tmp_path / "both"), "--no-build", "--stand-in").returncode == 2
