"""Which providers there are, and which ones a session gets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from gossamer import settings
from gossamer.diagnostics import warn
from gossamer.errors import DeviceNotFound, InvalidArgument
from gossamer.options import PROVIDERS, CpuOptions, CudaOptions, ProviderOptions, parse_provider
from gossamer.run.host import has_onnxruntime

CUDA = CudaOptions.provider
CPU = CpuOptions.provider

_ELSEWHERE = {
    "AzureExecutionProvider",
    "CoreMLExecutionProvider",
    "DmlExecutionProvider",
    "DnnlExecutionProvider",
    "MIGraphXExecutionProvider",
    "NvTensorRTRTXExecutionProvider",
    "OpenVINOExecutionProvider",
    "QNNExecutionProvider",
    "ROCMExecutionProvider",
    "TensorrtExecutionProvider",
    "WebGpuExecutionProvider",
    "XnnpackExecutionProvider",
}
"""onnxruntime's other providers: skipped with a warning, as onnxruntime does where it was built without them."""

_INSTALL_CPU = "CPUExecutionProvider needs onnxruntime: pip install 'gossamer[cpu]'"

_ON_PURPOSE = f"`gossamer doctor` shows what is there; list {CPU} alone if the CPU is what is wanted"

_CPU_NEEDS_ONNX = f"to run on {CPU} alone, give the ONNX file that it was compiled from"

GivenProviders = Sequence[str | tuple[str, Mapping[str, object]]]


def get_all_providers() -> list[str]:
    """Every execution provider that Gossamer has, in the order of preference."""
    return list(PROVIDERS)


def get_available_providers() -> list[str]:
    """The execution providers that can work on this machine, in the order of preference.

    CUDAExecutionProvider is available where there is a driver with a GPU, or where GOSSAMER_DEVICE names a device that
    needs none; CPUExecutionProvider where onnxruntime is installed.
    """
    available = {CUDA: settings.DEVICE() != "cuda" or missing_device(0) is None, CPU: has_onnxruntime()}
    return [name for name in PROVIDERS if available[name]]


def get_device() -> str:
    """`GPU` where there is a driver with a GPU, else `CPU`."""
    return "CPU" if missing_device(0) else "GPU"


def missing_device(device_id: int) -> DeviceNotFound | None:
    """Why the GPU with this index cannot be used, or None if it can."""
    from gossamer.run import driver

    try:
        driver.require_device(device_id)
    except DeviceNotFound as error:
        return error
    return None


def resolve(
    providers: GivenProviders | None,
    provider_options: Sequence[Mapping[str, object]] | None,
    *,
    compiled: bool = False,
) -> tuple[ProviderOptions, ...]:
    """The providers that a session runs on, in order, from what its caller gave; None or nothing means all.

    Without a driver or GPU, CUDAExecutionProvider is dropped with one warning if CPUExecutionProvider is listed too.
    compiled: whether the model is a compiled one, which CPUExecutionProvider cannot run alone.
    Errors: InvalidArgument for wrong names, options or forms; DeviceNotFound if no provider is left.
    """
    if provider_options and not providers:
        raise InvalidArgument("provider_options are options of the providers that are given, and none are given")
    listed = _parse(_pair(providers or get_all_providers(), provider_options if providers else None))
    if compiled and not isinstance(listed[0], CudaOptions):
        raise InvalidArgument(f"a compiled model runs on {CUDA}, which has to be the first provider; {_CPU_NEEDS_ONNX}")
    usable = tuple(options for options in listed if not _dropped(options, listed, compiled))
    if all(isinstance(options, CpuOptions) for options in usable) and not has_onnxruntime():
        raise DeviceNotFound(CPU, ("the package onnxruntime: not installed",), _INSTALL_CPU)
    return usable


def with_config(providers: tuple[ProviderOptions, ...], config: Mapping[str, str]) -> tuple[ProviderOptions, ...]:
    """The providers with what configuration entries of SessionOptions say about them."""
    if config.get("session.disable_cpu_ep_fallback") != "1":
        return providers
    return tuple(
        replace(options, strict=True) if isinstance(options, CudaOptions) else options for options in providers
    )


def _dropped(options: ProviderOptions, listed: Sequence[ProviderOptions], compiled: bool) -> bool:
    """Whether the session has to do without this provider; DeviceNotFound if it cannot."""
    if not isinstance(options, CudaOptions) or options.device != "cuda":
        return False
    missing = missing_device(options.device_id)
    if missing is None:
        return False
    if compiled:
        raise replace(missing, remedy=f"a compiled model runs on a GPU; {_CPU_NEEDS_ONNX}")
    if not any(isinstance(other, CpuOptions) for other in listed):
        raise missing
    if not has_onnxruntime():
        missing.add_note(f"CPUExecutionProvider is listed too, but {_INSTALL_CPU}")
        raise missing
    why = replace(missing, remedy=_ON_PURPOSE)
    warn(f"{CUDA} is not used, the model runs on {CPU}: {why}")
    return True


def _pair(
    providers: GivenProviders, provider_options: Sequence[Mapping[str, object]] | None
) -> list[tuple[str, Mapping[str, object]]]:
    """Names with options, from the two forms in which onnxruntime takes them."""
    if isinstance(providers, str) or not isinstance(providers, Sequence):
        raise InvalidArgument(f"providers is a sequence of names or (name, options) pairs, got {providers!r}")
    if provider_options is None:
        return [_named(provider) for provider in providers]
    if isinstance(provider_options, Mapping) or not isinstance(provider_options, Sequence):
        raise InvalidArgument(f"provider_options is a sequence of dictionaries, got {provider_options!r}")
    if len(provider_options) != len(providers):
        raise InvalidArgument(f"{len(providers)} providers, but {len(provider_options)} provider_options")
    if not all(isinstance(provider, str) for provider in providers):
        raise InvalidArgument("with provider_options, providers is a sequence of names")
    return [_named((str(name), options)) for name, options in zip(providers, provider_options, strict=True)]


def _named(provider: object) -> tuple[str, Mapping[str, object]]:
    match provider:
        case str():
            return provider, {}
        case (str() as name, Mapping() as options):
            return name, options
    raise InvalidArgument(f"a provider is a name or a pair of a name and a dictionary of options, got {provider!r}")


def _parse(pairs: Sequence[tuple[str, Mapping[str, object]]]) -> list[ProviderOptions]:
    parsed: dict[str, ProviderOptions] = {}
    for name, options in pairs:
        if name in _ELSEWHERE:
            warn(f"Gossamer has no {name}; it is skipped")
        elif name in parsed:
            warn(f"{name} is listed twice; the first one counts")
        else:
            parsed[name] = parse_provider(name, options)
    if not parsed:
        raise InvalidArgument(f"no provider is left; Gossamer has {', '.join(PROVIDERS)}")
    return list(parsed.values())
