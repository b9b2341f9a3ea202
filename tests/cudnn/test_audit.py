"""R2.5: every entry of the manifest against real releases, the newest, an older one and the oldest supported.

`since` is held from both sides: what is newer than a release may be neither in its headers nor in its library.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import audit_cudnn
from conftest import missing
from cudnn_headers import Headers, read
from cudnn_wheels import HEADERS, UMBRELLA
from gossamer.cudnn import enums, symbols

VERSIONS = {"cudnn-9.28": 92801, "cudnn-9.19": 91900, "cudnn-9.8": 90800}

Members = Callable[..., Path]


@pytest.fixture(scope="module", params=VERSIONS)
def release(request: pytest.FixtureRequest, wheel_members: Members) -> tuple[str, Headers, frozenset[str]]:
    """Name, headers and exported symbols of a real cuDNN."""
    if shutil.which("nm") is None:
        missing("nm (binutils)")
    folder = wheel_members(request.param, HEADERS, UMBRELLA)
    return request.param, read(folder / "nvidia/cudnn/include"), audit_cudnn.exported_symbols(folder / UMBRELLA)


def test_manifest_agrees_with_the_release(release: tuple[str, Headers, frozenset[str]]) -> None:
    """R2.5."""
    name, headers, exported = release
    assert headers.version == VERSIONS[name]
    assert audit_cudnn.differences(headers, exported) == []


def test_every_required_function_is_in_every_release(release: tuple[str, Headers, frozenset[str]]) -> None:
    """R2.2, R1.4: no supported release is refused for want of a function."""
    _, _, exported = release
    assert {name for name, function in symbols.FUNCTIONS.items() if function.required} <= exported


def test_newest_release_knows_every_entry(wheel_members: Members) -> None:
    """Nothing in the manifest is from a release that nobody could compare it with."""
    headers = read(wheel_members("cudnn-9.28", HEADERS) / "nvidia/cudnn/include")
    assert list(symbols.FUNCTIONS) == list(headers.functions), "and in header order"
    assert max(function.since for function in symbols.FUNCTIONS.values()) <= headers.version
    assert max(enums.SINCE.values()) <= headers.version


def edited(release: Path, folder: Path, header: str, before: str, after: str) -> Headers:
    """The headers of a release with one edit."""
    shutil.copytree(release / "nvidia/cudnn/include", folder)
    text = (folder / header).read_text(encoding="utf-8")
    assert text.count(before) == 1
    (folder / header).write_text(text.replace(before, after), encoding="utf-8")
    return read(folder)


@pytest.mark.parametrize(
    ("header", "before", "after", "difference"),
    [
        (
            "cudnn_ops.h",
            "cudnnGetReductionIndicesSize(cudnnHandle_t handle,",
            "cudnnGetReductionIndicesSize(cudnnHandle_t *handle,",
            "cudnnGetReductionIndicesSize takes",
        ),
        (
            "cudnn_graph.h",
            "cudnnGetMaxDeviceVersion(void)",
            "cudnnGetLeastDevice(void)",
            "cudnnGetLeastDevice is declared",
        ),
        (
            "cudnn_graph.h",
            "cudnnGetMaxDeviceVersion(void)",
            "cudnnGetLeastDevice(void)",
            "cudnnGetMaxDeviceVersion is not",
        ),
        (
            "cudnn_graph.h",
            "CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP                   = 407",
            "CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP = 409",
            "CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP is 409, the manifest says 407",
        ),
        (
            "cudnn_graph.h",
            "/**< Device properties for execution plan. @since cuDNN 9.8.0 */",
            "/**< Device properties for execution plan. @since cuDNN 9.7.0 */",
            "CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP came with 90700, the manifest says 90800",
        ),
        (
            "cudnn_ops.h",
            "typedef struct cudnnLRNStruct *cudnnLRNDescriptor_t;",
            "typedef struct cudnnLRNStruct *cudnnOtherDescriptor_t;",
            "cudnnOtherDescriptor_t is a pointer",
        ),
    ],
)
def test_a_difference_in_the_headers_is_reported(
    wheel_members: Members, tmp_path: Path, header: str, before: str, after: str, difference: str
) -> None:
    headers = edited(wheel_members("cudnn-9.28", HEADERS), tmp_path / "include", header, before, after)
    found = audit_cudnn.differences(headers, frozenset(symbols.FUNCTIONS))
    assert [text for text in found if text.startswith(difference)]
    assert len(found) <= 2


def test_a_difference_in_the_library_is_reported(wheel_members: Members) -> None:
    headers = read(wheel_members("cudnn-9.28", HEADERS) / "nvidia/cudnn/include")
    exported = frozenset(symbols.FUNCTIONS) - {"cudnnCreate"} | {"cudnnNews"}
    assert audit_cudnn.differences(headers, exported) == [
        "cudnnCreate is not exported, the manifest has it since 90000",
        "cudnnNews is exported, but not in the manifest",
    ]


def test_a_newer_function_in_an_older_release_is_reported(wheel_members: Members) -> None:
    headers = read(wheel_members("cudnn-9.28", HEADERS) / "nvidia/cudnn/include")
    headers.version = 92200
    found = audit_cudnn.differences(headers, frozenset(symbols.FUNCTIONS))
    newer = {name for name, function in symbols.FUNCTIONS.items() if function.since > 92200}
    for name in newer:
        since = symbols.FUNCTIONS[name].since
        assert f"{name} is exported, the manifest has it since {since}" in found
        assert any(text.startswith(f"{name} is declared in 92200") for text in found) or name in headers.since
    newer_members = {name for name, since in enums.SINCE.items() if since > 92200}
    assert newer_members
    assert newer_members <= {text.split()[0] for text in found}


def test_exit_status(wheel_members: Members, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if shutil.which("nm") is None:
        missing("nm (binutils)")
    newest = wheel_members("cudnn-9.28", HEADERS, UMBRELLA) / "nvidia/cudnn"
    assert audit_cudnn.main([str(newest)]) == 0
    assert "cuDNN 92801, 0 differences" in capsys.readouterr().out
    mixed = tmp_path / "mixed"
    shutil.copytree(newest / "include", mixed / "include")
    (mixed / "lib").mkdir()
    (mixed / "lib/libcudnn.so.9").symlink_to(wheel_members("cudnn-9.8", HEADERS, UMBRELLA) / UMBRELLA)
    assert audit_cudnn.main([str(mixed)]) == 1
    assert "cudnnGnnMhaGatForward is not exported" in capsys.readouterr().out
    assert audit_cudnn.main([str(tmp_path)]) == 2
    assert audit_cudnn.main([]) == 2


def test_frontend_symbols_are_those_that_the_frontend_looks_up(wheel_members: Members) -> None:
    """R2.3: the audit list, against the shim header of NVIDIA's own frontend."""
    shim = wheel_members("frontend-1.32", "include/cudnn_frontend_shim.h") / "include/cudnn_frontend_shim.h"
    found = audit_cudnn.frontend_symbols(shim.read_text(encoding="utf-8"))
    assert found == symbols.FRONTEND_SYMBOLS
    assert set(symbols.FUNCTIONS) >= symbols.FRONTEND_SYMBOLS
