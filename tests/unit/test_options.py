from __future__ import annotations

import logging
from dataclasses import fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossamer import settings
from gossamer.errors import InvalidArgument
from gossamer.options import (
    IGNORED,
    NO_LIMIT,
    REFUSED,
    CpuOptions,
    CudaOptions,
    as_markdown,
    parse_provider,
)

# What onnxruntime-gpu's get_provider_options() prints for the CUDA provider with nothing set.
ONNXRUNTIME_DEFAULTS = {
    "device_id": "0",
    "has_user_compute_stream": "0",
    "user_compute_stream": "0",
    "gpu_mem_limit": "18446744073709551615",
    "arena_extend_strategy": "kNextPowerOfTwo",
    "cudnn_conv_algo_search": "EXHAUSTIVE",
    "do_copy_in_default_stream": "1",
    "cudnn_conv_use_max_workspace": "1",
    "cudnn_conv1d_pad_to_nc1d": "0",
    "enable_cuda_graph": "0",
    "tunable_op_enable": "0",
    "tunable_op_tuning_enable": "0",
    "tunable_op_max_tuning_duration_ms": "0",
    "enable_skip_layer_norm_strict_mode": "0",
    "prefer_nhwc": "0",
    "use_ep_level_unified_stream": "0",
    "use_tf32": "1",
    "sdpa_kernel": "0",
    "fuse_conv_bias": "0",
    "gpu_external_alloc": "0",
    "gpu_external_free": "0",
    "gpu_external_empty_cache": "0",
}


@pytest.mark.parametrize("value", ["1", "true", "True", True, 1])
def test_enable_cudnn_on(value: object) -> None:
    """R3.1."""
    assert CudaOptions.parse({"enable_cudnn": value}).enable_cudnn is True


@pytest.mark.parametrize("value", ["0", "false", "FALSE", False, 0])
def test_enable_cudnn_off(value: object) -> None:
    """R3.1."""
    assert CudaOptions.parse({"enable_cudnn": value}).enable_cudnn is False


@pytest.mark.parametrize("value", ["yes", "on", "2", "", None, 1.0])
def test_enable_cudnn_refuses_anything_else(value: object) -> None:
    """R3.1."""
    with pytest.raises(InvalidArgument) as caught:
        CudaOptions.parse({"enable_cudnn": value})
    assert "enable_cudnn" in str(caught.value)
    assert "1, 0, true, false" in str(caught.value)


def test_enable_cudnn_defaults_to_true() -> None:
    """R3.1."""
    assert CudaOptions().enable_cudnn is True


@pytest.mark.parametrize(
    ("typed", "meant"),
    [("enable_cudn", "enable_cudnn"), ("gpu_memory_limit", "gpu_mem_limit"), ("deviceid", "device_id")],
)
def test_a_mistyped_name_is_refused_with_the_nearest(typed: str, meant: str) -> None:
    """R3.1."""
    with pytest.raises(InvalidArgument, match=f"'{typed}'; did you mean '{meant}'"):
        CudaOptions.parse({typed: "1"})


def test_cudnn_path_is_refused_with_the_reason_and_the_way() -> None:
    """R3.1."""
    with pytest.raises(InvalidArgument, match=r"cudnn_path.*loading code.*preload_dlls"):
        CudaOptions.parse({"cudnn_path": "/opt/cudnn"})


def test_onnxruntimes_dictionary_is_taken_whole(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "gossamer"):
        parsed = CudaOptions.parse(ONNXRUNTIME_DEFAULTS)
    assert parsed.cudnn_conv_algo_search == "EXHAUSTIVE"
    assert (parsed.prefer_nhwc, parsed.enable_cuda_graph, parsed.stream) == (False, "0", None)
    logged = [record for record in caplog.records if "has no effect" in record.message]
    assert {record.levelno for record in logged} == {logging.DEBUG}
    assert {record.message.split()[2].split("=")[0] for record in logged} == set(IGNORED)


def test_an_outside_allocator_is_refused() -> None:
    with pytest.raises(InvalidArgument, match=r"gpu_external_alloc.*io_binding"):
        CudaOptions.parse({"gpu_external_alloc": "140000000"})


def test_foreign_names_are_no_options_of_ours() -> None:
    own = {field.name for field in fields(CudaOptions)}
    assert own.isdisjoint(IGNORED | REFUSED)


@pytest.mark.parametrize(
    "options",
    [
        {"device_id": "-1"},
        {"device_id": "one"},
        {"gpu_mem_limit": "2GB"},
        {"gpu_mem_limit": str(2**64)},
        {"cudnn_conv_algo_search": "heuristic"},
        {"enable_cuda_graph": "always"},
        {"device": "gpu"},
        {"target": "sm_80 sm_90"},
    ],
)
def test_a_wrong_value_is_refused_by_name(options: dict[str, str]) -> None:
    ((name, value),) = options.items()
    with pytest.raises(InvalidArgument, match=rf"CUDAExecutionProvider option {name}='{value}': accepted are "):
        CudaOptions.parse(options)
    with pytest.raises(InvalidArgument):
        CudaOptions(**options)  # type: ignore[arg-type]


def test_memory_limit() -> None:
    assert CudaOptions().memory_limit is None
    assert CudaOptions.parse({"gpu_mem_limit": 0}) == CudaOptions()
    assert CudaOptions.parse({"gpu_mem_limit": NO_LIMIT}) == CudaOptions()
    assert CudaOptions.parse({"gpu_mem_limit": 2 * 1024**3}).memory_limit == 2147483648


def test_user_stream() -> None:
    assert CudaOptions().stream is None
    assert CudaOptions.parse({"user_compute_stream": "94"}).stream == 94
    assert CudaOptions(user_compute_stream=94).stream == 94
    # PyTorch's current stream is usually the legacy default stream, whose handle is 0.
    assert CudaOptions.parse({"user_compute_stream": "0"}).stream == 0
    assert CudaOptions.parse({"user_compute_stream": "0", "has_user_compute_stream": "0"}).stream is None


def test_defaults_out_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOSSAMER_DEVICE", "interpreter")
    monkeypatch.setenv("GOSSAMER_TARGET", "sm_80")
    monkeypatch.setenv("GOSSAMER_ENABLE_CUDNN", "0")
    assert (CudaOptions().device, CudaOptions.parse({}).target) == ("interpreter", "sm_80")
    assert CudaOptions.parse({}).enable_cudnn is False
    assert CudaOptions.parse({"enable_cudnn": "1"}).enable_cudnn is True
    assert CudaOptions.parse({"device": "null"}).device == "null"


cuda_options = st.builds(
    CudaOptions,
    device=st.sampled_from(["cuda", "interpreter", "null"]),
    device_id=st.integers(0, 7),
    target=st.sampled_from(["", "sm_90", "h100-pcie", "/my folder/gpu.json"]),
    strict=st.booleans(),
    enable_cudnn=st.booleans(),
    cudnn_conv_algo_search=st.sampled_from(["EXHAUSTIVE", "HEURISTIC", "DEFAULT"]),
    prefer_nhwc=st.booleans(),
    use_tf32=st.booleans(),
    enable_cuda_graph=st.sampled_from(["auto", "0", "1"]),
    user_compute_stream=st.integers(0, 2**48),
    has_user_compute_stream=st.booleans(),
    gpu_mem_limit=st.integers(0, NO_LIMIT),
)


@given(cuda_options)
def test_the_inverse_round_trips(options: CudaOptions) -> None:
    """R3.2."""
    texts = options.as_provider_options()
    assert all(type(value) is str for value in texts.values())
    assert set(texts) == {field.name for field in fields(CudaOptions)}
    assert CudaOptions.parse(texts) == options
    assert hash(CudaOptions.parse(texts)) == hash(options)


@given(cuda_options)
def test_enable_cudnn_is_part_of_equality_and_hash(options: CudaOptions) -> None:
    """R3.2."""
    other = replace(options, enable_cudnn=not options.enable_cudnn)
    assert other != options
    assert len({options, other}) == 2


def test_every_option_is_documented() -> None:
    text = as_markdown()
    with settings.override(DEVICE="null"):
        assert as_markdown() == text, "the documentation shows the default of an empty environment"
    for field in fields(CudaOptions):
        assert f"| `{field.name}` |" in text
        assert field.metadata["doc"].endswith(".")


def test_the_cpu_provider_takes_no_options() -> None:
    assert parse_provider("CPUExecutionProvider", {}) == CpuOptions()
    with pytest.raises(InvalidArgument, match="has no option 'threads'; there are none"):
        parse_provider("CPUExecutionProvider", {"threads": 2})


def test_an_unknown_provider_is_refused_with_the_nearest() -> None:
    with pytest.raises(InvalidArgument, match="'CudaExecutionProvider'; did you mean 'CUDAExecutionProvider'"):
        parse_provider("CudaExecutionProvider", {})


def test_the_cpu_provider_ignores_what_onnxruntimes_ignores() -> None:
    assert CpuOptions.parse({"arena_extend_strategy": "kSameAsRequested"}) == CpuOptions()
    with pytest.raises(InvalidArgument, match="no option 'threads'"):
        CpuOptions.parse({"threads": 4})
