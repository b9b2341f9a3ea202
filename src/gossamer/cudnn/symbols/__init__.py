"""The manifest: every public function of cuDNN 9 with its prototype, and what Gossamer asks of a library.

The loader, the Python trampolines and the C sources of `gossamer cudnn-shim` are made from it; tools/audit_cudnn.py
compares it with real releases. The modules of this package hold the prototypes in C, in the order of cuDNN 9.28's
headers; `@92300` before one is the version that brought it, as `cudnnGetVersion` counts: 9.23.0. What has no mark is
as old as 9.0.
"""

# ruff: noqa: SIM905 - names in rows are easier to read and to compare than a column of quoted strings

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from gossamer.cudnn.symbols import adv, cnn, graph, ops, recent

MAJOR = 9
"""The major version that the prototypes and enums are of. No other is used."""

OLDEST = MAJOR * 10000
"""`since` of functions that every cuDNN 9 has."""


@dataclass(frozen=True)
class Function:
    """One C function.

    returns: its C type. arguments: (C type, name) each; arrays are pointers, and an argument's own `const` is left out,
    as C does in the type of a function. since: the version that brought it. required: a library without it is not used;
    the rest is there for C programs (`gossamer cudnn-shim`), or asked for with `Library.has`.
    """

    name: str
    returns: str
    arguments: tuple[tuple[str, str], ...]
    since: int = OLDEST
    required: bool = True


POINTER_TYPES = frozenset(
    """
    cudnnHandle_t cudaStream_t cudaGraph_t cudnnCallback_t cudnnBackendDescriptor_t
    cudnnTensorDescriptor_t cudnnFilterDescriptor_t cudnnPoolingDescriptor_t cudnnLRNDescriptor_t
    cudnnActivationDescriptor_t cudnnSpatialTransformerDescriptor_t cudnnOpTensorDescriptor_t
    cudnnReduceTensorDescriptor_t cudnnCTCLossDescriptor_t cudnnTensorTransformDescriptor_t cudnnDropoutDescriptor_t
    cudnnConvolutionDescriptor_t cudnnFusedOpsConstParamPack_t cudnnFusedOpsVariantParamPack_t cudnnFusedOpsPlan_t
    cudnnRNNDescriptor_t cudnnRNNDataDescriptor_t cudnnSeqDataDescriptor_t cudnnAttnDescriptor_t
    """.split()
)
"""Types whose names hide that they are pointers: `cudnnHandle_t` is `struct cudnnContext *`."""

SCALAR_TYPES = frozenset(
    ("int", "unsigned", "unsigned long long", "int32_t", "uint32_t", "int64_t", "size_t", "float", "double")
)
"""C's own types that are passed by value."""

STRUCT_TYPES = frozenset(
    """
    cudnnRuntimeTag_t cudnnConvolutionFwdAlgoPerf_t cudnnConvolutionBwdDataAlgoPerf_t
    cudnnConvolutionBwdFilterAlgoPerf_t cudnnGnnCscGraph_t cudnnGnnMhaParams_t
    """.split()
)
"""Structures, which only pointers are passed of. Every type that is none of these three, nor void, is an enum."""

REQUIRED = frozenset(
    f"cudnn{name}"
    for name in """
    GetVersion GetErrorString GetLastErrorString Create Destroy SetStream GetStream
    BackendCreateDescriptor BackendDestroyDescriptor BackendSetAttribute BackendGetAttribute BackendFinalize
    BackendExecute
    CreateTensorDescriptor SetTensorNdDescriptor SetTensor4dDescriptor GetTensorNdDescriptor GetTensor4dDescriptor
    DestroyTensorDescriptor
    CreateFilterDescriptor SetFilterNdDescriptor SetFilter4dDescriptor GetFilterNdDescriptor GetFilter4dDescriptor
    DestroyFilterDescriptor
    CreateConvolutionDescriptor SetConvolutionNdDescriptor SetConvolution2dDescriptor GetConvolutionNdDescriptor
    GetConvolution2dDescriptor DestroyConvolutionDescriptor SetConvolutionGroupCount SetConvolutionMathType
    CreateActivationDescriptor SetActivationDescriptor GetActivationDescriptor DestroyActivationDescriptor
    CreatePoolingDescriptor SetPoolingNdDescriptor SetPooling2dDescriptor GetPoolingNdDescriptor
    GetPooling2dDescriptor DestroyPoolingDescriptor
    CreateLRNDescriptor SetLRNDescriptor GetLRNDescriptor DestroyLRNDescriptor
    CreateReduceTensorDescriptor SetReduceTensorDescriptor GetReduceTensorDescriptor DestroyReduceTensorDescriptor
    CreateRNNDescriptor SetRNNDescriptor_v8 GetRNNDescriptor_v8 DestroyRNNDescriptor
    CreateRNNDataDescriptor SetRNNDataDescriptor GetRNNDataDescriptor DestroyRNNDataDescriptor
    CreateDropoutDescriptor SetDropoutDescriptor GetDropoutDescriptor DestroyDropoutDescriptor DropoutGetStatesSize
    DeriveBNTensorDescriptor AddTensor ActivationForward PoolingForward LRNCrossChannelForward
    SoftmaxForward SoftmaxBackward BatchNormalizationForwardInference BatchNormalizationForwardTraining
    ConvolutionForward ConvolutionBiasActivationForward ConvolutionBackwardData
    FindConvolutionForwardAlgorithmEx FindConvolutionBackwardDataAlgorithmEx
    GetConvolutionForwardAlgorithm_v7 GetConvolutionForwardWorkspaceSize
    GetReductionIndicesSize GetReductionWorkspaceSize ReduceTensor
    GetRNNTempSpaceSizes GetRNNWeightSpaceSize GetRNNWeightParams RNNForward
    """.split()
)
"""What a library must have to be used: requirement R2.2 and the ungated half of R2.3, all of them in 9.0."""

FRONTEND_SYMBOLS = frozenset(
    f"cudnn{name}"
    for name in """
    GetVersion GetErrorString GetLastErrorString Create Destroy SetStream GetStream
    BackendCreateDescriptor BackendDestroyDescriptor BackendSetAttribute BackendGetAttribute BackendFinalize
    BackendExecute BackendPopulateCudaGraph BackendUpdateCudaGraph GetExecutionPlanWorkspaceSize
    CreateFilterDescriptor SetFilterNdDescriptor DestroyFilterDescriptor ReorderFilterAndBias
    CausalConv1dForward CausalConv1dBackward CausalConv1dNwhForward CausalConv1dNwhBackward
    B2BCausalConv1dForward B2BCausalConv1dBackward FFTCausalConv1dForward FFTCausalConv1dBackward
    LongFFTCausalConv1dGetBufferSizes LongFFTCausalConv1dForward LongFFTCausalConv1dBackward
    GnnAggSimpleForward GnnAggSimpleBackward GnnMhaGatForward GnnMhaGatBackward GnnMhaGatV2Forward GnnMhaGatV2Backward
    """.split()
)
"""What NVIDIA's frontend 1.32 looks up in a library handle when it is built for dynamic loading (R2.3)."""

_PROTOTYPE = re.compile(r"(?:@(?P<since>\d+) )?(?P<returns>[^(]+?)(?P<name>cudnn\w+)\((?P<arguments>[^)]*)\)")


def _functions(text: str) -> Iterator[Function]:
    for piece in text.split(";"):
        prototype = " ".join(piece.split())
        if not prototype:
            continue
        match = _PROTOTYPE.fullmatch(prototype)
        if match is None:
            raise ValueError(f"not a prototype: {prototype}")
        arguments = () if match["arguments"] == "void" else tuple(map(_argument, match["arguments"].split(", ")))
        since, name = int(match["since"] or OLDEST), match["name"]
        yield Function(name, match["returns"].rstrip(), arguments, since, name in REQUIRED)


def _argument(text: str) -> tuple[str, str]:
    name = text.rsplit(maxsplit=1)[-1].lstrip("*")
    return text.removesuffix(name).rstrip(), name


FUNCTIONS: dict[str, Function] = {
    function.name: function for family in (graph, ops, cnn, adv, recent) for function in _functions(family.PROTOTYPES)
}
"""Every function by name, in header order."""
