"""R2.6: the shim against real cuDNN, its headers, and binaries that nobody here wrote."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from conftest import missing
from cudnn_wheels import BINARIES, HEADERS, LIBRARIES
from gossamer.cudnn import shim
from gossamer.cudnn.symbols import FUNCTIONS
from shim_programs import Shim, compile_c, dynamic_section, probe_source, run, symbols

Members = Callable[..., Path]

VERSIONS = {"cudnn-9.28": 92801, "cudnn-9.8": 90800}

CALLS = """
#include <stdio.h>
#include "cudnn_shim.h"
int main(void) {
    char text[512] = "";
    cudnnTensorDescriptor_t tensor = NULL;
    cudnnBackendDescriptor_t backend = NULL;
    cudnnLRNDescriptor_t lrn = NULL;
    int dims[4] = {1, 2, 3, 4}, strides[4] = {24, 12, 4, 1}, got[4] = {0}, got_strides[4], count = 0;
    unsigned n = 0;
    double alpha = 0, beta = 0, k = 0;
    cudnnDataType_t type;
    printf("%zu\\n", cudnnGetVersion());
    printf("%s\\n", cudnnGetErrorString(CUDNN_STATUS_BAD_PARAM));
    printf("%d %d %d\\n", cudnnOpsVersionCheck(), cudnnCnnVersionCheck(), cudnnAdvVersionCheck());
    printf("%d ", cudnnCreateTensorDescriptor(&tensor));
    printf("%d ", cudnnSetTensorNdDescriptor(tensor, CUDNN_DATA_HALF, 4, dims, strides));
    printf("%d ", cudnnGetTensorNdDescriptor(tensor, 4, &type, &count, got, got_strides));
    printf("%d %d %d %d ", cudnnDestroyTensorDescriptor(tensor), count, got[3], type);
    printf("%d ", cudnnCreateLRNDescriptor(&lrn));
    printf("%d ", cudnnSetLRNDescriptor(lrn, 5, 0.5, 0.75, 2.0));
    printf("%d ", cudnnGetLRNDescriptor(lrn, &n, &alpha, &beta, &k));
    printf("%d %u %g %g %g\\n", cudnnDestroyLRNDescriptor(lrn), n, alpha, beta, k);
    printf("%d ", cudnnBackendCreateDescriptor(CUDNN_BACKEND_TENSOR_DESCRIPTOR, &backend));
    printf("%d ", cudnnBackendFinalize(backend));
    cudnnGetLastErrorString(text, sizeof text);
    printf("%d %d\\n", cudnnBackendDestroyDescriptor(backend), text[0] != 0);
    return 0;
}
"""
CALLS_RESULT = r"""CUDNN_STATUS_BAD_PARAM
0 0 0
0 0 0 0 4 4 2 0 0 0 0 5 0.5 0.75 2
0 [1-9]\d\d\d 0 1
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Shim:
    for tool in ("cc", "readelf", "ldd"):
        if shutil.which(tool) is None:
            missing(tool)
    return Shim.build(tmp_path_factory.mktemp("shim"))


def library_folder(wheel_members: Members, name: str) -> Path:
    return wheel_members(name, LIBRARIES) / "nvidia/cudnn/lib"


@pytest.mark.parametrize("name", VERSIONS)
def test_calls_reach_the_real_library(built: Shim, wheel_members: Members, name: str) -> None:
    """R2.6: real cuDNN present → its version; and its parts work, which it opens itself."""
    folder = library_folder(wheel_members, name)
    archive = run(built.compile("calls", CALLS), folders=[folder])
    stand_in = compile_c(built.folder / "calls_stand_in", CALLS, f"-I{built.folder}", str(built.stand_in))
    for output in (archive, run(stand_in, folders=[built.stand_in.parent, folder])):
        assert re.fullmatch(f"{VERSIONS[name]}\n{CALLS_RESULT}", output)


def test_parts_of_cudnn_bind_to_each_other_and_not_to_the_stand_in(built: Shim, wheel_members: Members) -> None:
    """They ask for functions that the stand-in exports, too; the version of the symbols tells them apart."""
    program = compile_c(built.folder / "bindings", CALLS, f"-I{built.folder}", str(built.stand_in))
    folders = [built.stand_in.parent, library_folder(wheel_members, "cudnn-9.28")]
    trace = built.folder / "bindings.trace"
    for left in built.folder.glob("bindings.trace.*"):
        left.unlink()
    run(program, folders=folders, LD_DEBUG="bindings", LD_DEBUG_OUTPUT=str(trace))
    (written,) = built.folder.glob("bindings.trace.*")
    bindings = re.findall(r"binding file (\S+) \[0\] to (\S+) \[0\]: normal symbol `(cudnn\w*)'", written.read_text())
    real = [(source, target) for source, target, _ in bindings if Path(source).parent == folders[1]]
    assert real, "parts of cuDNN bind symbols"
    assert {Path(target).parent for _, target in real} == {folders[1]}
    assert {target for source, target, _ in bindings if source.endswith("bindings")} == {str(built.stand_in)}


def test_manifest_compiles_against_the_real_headers(built: Shim, wheel_members: Members, tmp_path: Path) -> None:
    """A compiler that sees NVIDIA's prototypes and ours accepts ours: R2.5 by other means."""
    headers = wheel_members("cudnn-9.28", HEADERS) / "nvidia/cudnn/include"
    # What these headers need of CUDA's.
    (tmp_path / "cuda_runtime_api.h").write_text(
        "#include <stddef.h>\ntypedef struct CUstream_st *cudaStream_t;\ntypedef struct CUgraph_st *cudaGraph_t;\n",
        encoding="utf-8",
    )
    (tmp_path / "library_types.h").write_text(
        "typedef enum { MAJOR_VERSION, MINOR_VERSION, PATCH_LEVEL } libraryPropertyType;\n", encoding="utf-8"
    )
    flags = (
        *shim.COMPILE_FLAGS,
        "-Werror",
        f"-I{tmp_path}",
        f"-I{headers}",
        "-D_GNU_SOURCE",
        "-include",
        "cudnn.h",
        "-fsyntax-only",
    )
    subprocess.run(["cc", *flags, *shim.COMPILED], cwd=built.folder, check=True)
    probe = ["cc", *flags, f"-I{built.folder}", "-DREAL_HEADERS", "-Wno-enum-conversion", "-x", "c", "-"]
    subprocess.run(probe, input=probe_source(own_api=True), text=True, check=True)
    older = wheel_members("cudnn-9.8", HEADERS) / "nvidia/cudnn/include"
    with_older = [flag if flag != f"-I{headers}" else f"-I{older}" for flag in flags]
    done = subprocess.run(
        ["cc", *with_older, *shim.COMPILED], cwd=built.folder, capture_output=True, text=True, check=False
    )
    assert "lacks functions of the manifest" in done.stderr


@pytest.mark.parametrize("wheel", BINARIES)
def test_foreign_binaries_find_the_stand_in(built: Shim, wheel_members: Members, wheel: str) -> None:
    """onnxruntime's TensorRT provider of 1.31.1 and its CUDA provider of 1.22.0, which need libcudnn.so.9 to load."""
    binary = wheel_members(wheel, BINARIES[wheel]) / BINARIES[wheel]
    assert "libcudnn.so.9" in dynamic_section(binary, "NEEDED")
    wanted = {name for name in symbols(binary, "--undefined-only") if name.startswith("cudnn")}
    assert wanted
    assert {name.partition("@")[0] for name in wanted} <= set(FUNCTIONS)
    assert {name.replace("@", "@@") for name in wanted} <= set(symbols(built.stand_in, "--defined-only"))

    def listed(*folders: Path) -> list[str]:
        output = run(Path(shutil.which("ldd") or ""), "-r", str(binary), folders=folders, cwd=built.folder)
        return [line.strip() for line in output.splitlines() if "cudnn" in line]

    assert listed(Path("/nowhere"))[0] == "libcudnn.so.9 => not found"
    (found,) = listed(built.stand_in.parent)
    assert found.startswith(f"libcudnn.so.9 => {built.stand_in} ")
