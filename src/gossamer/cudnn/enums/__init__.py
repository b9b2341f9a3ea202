"""Enums and attributes by cuDNN's own names, those that Gossamer uses.

A class has the C enum's name without `_t`. Left out are names that cuDNN deprecated for others of the same value, and
counts of members, which change with every release.
"""

from __future__ import annotations

from enum import IntEnum

from gossamer.cudnn.enums.attributes import (
    cudnnBackendAttributeName,
)
from gossamer.cudnn.enums.backend import (
    cudnnBackendAttributeType,
    cudnnBackendBehaviorNote,
    cudnnBackendDescriptorType,
    cudnnBackendHeurMode,
    cudnnBackendKnobType,
    cudnnBackendLayoutType,
    cudnnBackendNumericalNote,
    cudnnBackendOperationGraphMode,
    cudnnBackendTensorReordering,
    cudnnCudaGraphRetention,
)
from gossamer.cudnn.enums.general import (
    cudnnDataType,
    cudnnMathType,
    cudnnNanPropagation,
    cudnnStatus,
    cudnnTensorFormat,
)
from gossamer.cudnn.enums.operations import (
    cudnnActivationMode,
    cudnnBackendNormFwdPhase,
    cudnnBackendNormMode,
    cudnnBatchNormMode,
    cudnnConvolutionBwdDataAlgo,
    cudnnConvolutionFwdAlgo,
    cudnnConvolutionMode,
    cudnnDeterminism,
    cudnnDirectionMode,
    cudnnForwardMode,
    cudnnIndicesType,
    cudnnLRNMode,
    cudnnPaddingMode,
    cudnnPointwiseMode,
    cudnnPoolingMode,
    cudnnReduceTensorIndices,
    cudnnReduceTensorOp,
    cudnnReorderType,
    cudnnResampleMode,
    cudnnRNNAlgo,
    cudnnRNNBiasMode,
    cudnnRNNClipMode,
    cudnnRNNDataLayout,
    cudnnRNNInputMode,
    cudnnRNNMode,
    cudnnSoftmaxAlgorithm,
    cudnnSoftmaxMode,
)

__all__ = [
    "OLDEST",
    "SINCE",
    "cudnnActivationMode",
    "cudnnBackendAttributeName",
    "cudnnBackendAttributeType",
    "cudnnBackendBehaviorNote",
    "cudnnBackendDescriptorType",
    "cudnnBackendHeurMode",
    "cudnnBackendKnobType",
    "cudnnBackendLayoutType",
    "cudnnBackendNormFwdPhase",
    "cudnnBackendNormMode",
    "cudnnBackendNumericalNote",
    "cudnnBackendOperationGraphMode",
    "cudnnBackendTensorReordering",
    "cudnnBatchNormMode",
    "cudnnConvolutionBwdDataAlgo",
    "cudnnConvolutionFwdAlgo",
    "cudnnConvolutionMode",
    "cudnnCudaGraphRetention",
    "cudnnDataType",
    "cudnnDeterminism",
    "cudnnDirectionMode",
    "cudnnForwardMode",
    "cudnnIndicesType",
    "cudnnLRNMode",
    "cudnnMathType",
    "cudnnNanPropagation",
    "cudnnPaddingMode",
    "cudnnPointwiseMode",
    "cudnnPoolingMode",
    "cudnnRNNAlgo",
    "cudnnRNNBiasMode",
    "cudnnRNNClipMode",
    "cudnnRNNDataLayout",
    "cudnnRNNInputMode",
    "cudnnRNNMode",
    "cudnnReduceTensorIndices",
    "cudnnReduceTensorOp",
    "cudnnReorderType",
    "cudnnResampleMode",
    "cudnnSoftmaxAlgorithm",
    "cudnnSoftmaxMode",
    "cudnnStatus",
    "cudnnTensorFormat",
    "since",
]

OLDEST = 90000
"""`since` of what every cuDNN 9 has."""

_BROUGHT_BY: dict[int, str] = {
    90100: "CUDNN_NUMERICAL_NOTE_STRICT_NAN_PROP CUDNN_POINTWISE_ATAN2",
    90200: """
        CUDNN_STATUS_SUBLIBRARY_LOADING_FAILED CUDNN_ATTR_ENGINECFG_WORKSPACE_SIZE
        CUDNN_ATTR_ENGINECFG_SHARED_MEMORY_USED
    """,
    90400: """
        CUDNN_BACKEND_KERNEL_CACHE_DESCRIPTOR CUDNN_ATTR_EXECUTION_PLAN_KERNEL_CACHE
        CUDNN_ATTR_OPERATIONGRAPH_IS_DYNAMIC_SHAPE_ENABLED CUDNN_ATTR_KERNEL_CACHE_IS_ENGINECFG_KERNEL_CACHED
    """,
    90500: """
        CUDNN_STATUS_BAD_PARAM_CUDA_GRAPH_MISMATCH CUDNN_STATUS_NOT_SUPPORTED_CUDA_GRAPH_NATIVE_API
        CUDNN_BEHAVIOR_NOTE_SUPPORTS_CUDA_GRAPH_NATIVE_API CUDNN_ATTR_KERNEL_CACHE_OPERATION_GRAPH
    """,
    90600: "CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE CUDNN_ATTR_OPERATIONGRAPH_IS_SAME_TOPOLOGY",
    90700: """
        CUDNN_DATA_FP8_E8M0 CUDNN_DATA_FP4_E2M1 CUDNN_KNOB_TYPE_IDX_MODE CUDNN_KNOB_TYPE_CTA_COUNT
        CUDNN_KNOB_TYPE_STREAM_K CUDNN_KNOB_TYPE_SPLIT_P_SLC CUDNN_KNOB_TYPE_TILE_M CUDNN_KNOB_TYPE_TILE_N
        CUDNN_KNOB_TYPE_WARP_SPEC_CFG CUDNN_TENSOR_REORDERING_F8_128x4 CUDNN_ADA_LAYER_NORM
    """,
    90800: """
        CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR CUDNN_ATTR_ENGINEHEUR_DEVICEPROP CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP
        CUDNN_ATTR_ENGINE_DEVICEPROP CUDNN_ATTR_DEVICEPROP_DEVICE_ID CUDNN_ATTR_DEVICEPROP_HANDLE
        CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION
    """,
    91000: "CUDNN_ATTR_KERNEL_CACHE_JSON_REPRESENTATION",
    91100: "CUDNN_DATA_INT4 CUDNN_DATA_UINT4 CUDNN_DATA_UINT32 CUDNN_ATTR_REDUCTION_IS_DETERMINISTIC",
    91300: """
        CUDNN_BACKEND_OPERATION_SDPA_FWD_DESCRIPTOR CUDNN_ATTR_OPERATION_SDPA_FWD_QDESC
        CUDNN_ATTR_OPERATION_SDPA_FWD_KDESC CUDNN_ATTR_OPERATION_SDPA_FWD_VDESC CUDNN_ATTR_OPERATION_SDPA_FWD_ODESC
        CUDNN_ATTR_OPERATION_SDPA_FWD_STATSDESC CUDNN_ATTR_OPERATION_SDPA_FWD_SCALEDESC
    """,
    91400: "CUDNN_DATA_COMPLEX_FP32 CUDNN_DATA_COMPLEX_FP64 CUDNN_ATTR_OPERATION_SDPA_FWD_BLOCK_MASK_DESC",
    91500: """
        CUDNN_TYPE_MOE_GROUPED_MATMUL_MODE CUDNN_BEHAVIOR_NOTE_CUBLASLT_DEPENDENCY
        CUDNN_ATTR_OPERATION_SDPA_FWD_PAGE_TABLE_KDESC CUDNN_ATTR_OPERATION_SDPA_FWD_PAGE_TABLE_VDESC
        CUDNN_ATTR_OPERATION_SDPA_FWD_SEQ_LEN_QDESC CUDNN_ATTR_OPERATION_SDPA_FWD_SEQ_LEN_KVDESC
    """,
    91700: "CUDNN_ATTR_ENGINE_DISABLE_CLUSTER_COOPERATIVE",
    91800: """
        CUDNN_STATUS_NOT_SUPPORTED_INVALID_DYNAMIC_SHAPE CUDNN_KNOB_TYPE_SWAP_AB
        CUDNN_ATTR_VARIANT_PACK_OVERRIDE_UNIQUE_IDS CUDNN_ATTR_VARIANT_PACK_OVERRIDE_SHAPES
        CUDNN_ATTR_VARIANT_PACK_OVERRIDE_STRIDES
    """,
    92100: """
        CUDNN_ATTR_OPERATIONGRAPH_IS_OVERRIDE_SHAPE_ENABLED CUDNN_ATTR_OPERATION_SDPA_FWD_SUBGRAPH
        CUDNN_ATTR_OPERATION_SDPA_FWD_SUBGRAPH_INPUT_UID CUDNN_ATTR_OPERATION_SDPA_FWD_SUBGRAPH_OUTPUT_UID
        CUDNN_ATTR_OPERATION_SDPA_FWD_SOFTMAX_DESC CUDNN_ATTR_OPERATION_SDPA_FWD_DROPOUT_SEED_DESC
        CUDNN_ATTR_OPERATION_SDPA_FWD_DROPOUT_OFFSET_DESC CUDNN_ATTR_OPERATION_SDPA_FWD_DROPOUT_RNG_DUMP_DESC
        CUDNN_ATTR_OPERATION_SDPA_FWD_DROPOUT_PROBABILITY
    """,
    92200: """
        CUDNN_TYPE_RESHAPE_MODE CUDNN_KNOB_TYPE_INPUT_TMA_ENABLE CUDNN_KNOB_TYPE_OUTPUT_TMA_ENABLE
        CUDNN_ATTR_TENSOR_CONSTANT_VALUE CUDNN_ATTR_OPERATION_SDPA_FWD_UNFUSE_FMA
    """,
    92300: """
        CUDNN_TYPE_OPERATIONGRAPH_MODE CUDNN_OPERATIONGRAPH_MODE_AUTO CUDNN_OPERATIONGRAPH_MODE_CONV_FORWARD
        CUDNN_OPERATIONGRAPH_MODE_CONV_BWD_DATA CUDNN_OPERATIONGRAPH_MODE_CONV_BWD_FILTER
        CUDNN_OPERATIONGRAPH_MODE_NORM_FWD_INFER CUDNN_OPERATIONGRAPH_MODE_NORM_FWD_TRAIN
        CUDNN_OPERATIONGRAPH_MODE_NORM_BWD CUDNN_OPERATIONGRAPH_MODE_GENERIC_CONV_FUSION
        CUDNN_OPERATIONGRAPH_MODE_RESAMPLE_FWD CUDNN_OPERATIONGRAPH_MODE_RESAMPLE_BWD
        CUDNN_OPERATIONGRAPH_MODE_BLAS_MATMUL CUDNN_OPERATIONGRAPH_MODE_GENERIC_MATMUL_FUSION
        CUDNN_OPERATIONGRAPH_MODE_GENERIC_POINTWISE_FUSION CUDNN_OPERATIONGRAPH_MODE_SDPA_FWD
        CUDNN_OPERATIONGRAPH_MODE_SDPA_BWD CUDNN_OPERATIONGRAPH_MODE_UNIFIED_SDPA_FWD
        CUDNN_OPERATIONGRAPH_MODE_UNIFIED_SDPA_BWD CUDNN_ATTR_OPERATIONGRAPH_MODE
    """,
    92400: """
        CUDNN_ATTR_TENSOR_RAGGED_OFFSET_MULTIPLIER CUDNN_ATTR_OPERATION_REDUCTION_GROUP_OFFSET_DESC
        CUDNN_ATTR_OPERATION_SDPA_FWD_CU_SEQ_LEN_QDESC CUDNN_ATTR_OPERATION_SDPA_FWD_CU_SEQ_LEN_KVDESC
    """,
    92500: """
        CUDNN_DATA_BYTE_BOOLEAN CUDNN_ATTR_OPERATION_SDPA_FWD_DESCALE_QDESC
        CUDNN_ATTR_OPERATION_SDPA_FWD_DESCALE_KDESC CUDNN_ATTR_OPERATION_SDPA_FWD_DESCALE_VDESC
        CUDNN_ATTR_OPERATION_SDPA_FWD_DESCALE_SDESC CUDNN_ATTR_OPERATION_SDPA_FWD_SCALE_SDESC
        CUDNN_ATTR_OPERATION_SDPA_FWD_SCALE_ODESC CUDNN_ATTR_OPERATION_SDPA_FWD_AMAX_SDESC
        CUDNN_ATTR_OPERATION_SDPA_FWD_AMAX_ODESC
    """,
    92600: "CUDNN_DATA_FP8_E5M3",
    92700: """
        CUDNN_ATTR_OPERATION_REDUCTION_DIMS CUDNN_ATTR_OPERATION_REDUCTION_INIT_VALUES
        CUDNN_ATTR_OPERATION_REDUCTION_SUBGRAPH CUDNN_ATTR_OPERATION_REDUCTION_SUBGRAPH_ACCUMULATOR_UIDS
        CUDNN_ATTR_OPERATION_REDUCTION_SUBGRAPH_CURRENT_UIDS CUDNN_ATTR_OPERATION_REDUCTION_SUBGRAPH_OUTPUT_UIDS
        CUDNN_ATTR_OPERATION_REDUCTION_SUBGRAPH_COMPUTE_TYPES CUDNN_ATTR_KERNEL_CACHE_REVISION
        CUDNN_ATTR_KERNEL_CACHE_ENTRY_COUNT CUDNN_POINTWISE_FLOOR_MOD
    """,
    92800: """
        CUDNN_TYPE_CUDA_GRAPH_RETENTION CUDNN_CUDA_GRAPH_RETENTION_PER_GRAPH CUDNN_CUDA_GRAPH_RETENTION_NONE
        CUDNN_ATTR_ENGINEHEUR_SHARED_MEMORY_LIMIT CUDNN_ATTR_EXECUTION_PLAN_CUDA_GRAPH_RETENTION
        CUDNN_ATTR_ENGINE_SHARED_MEMORY_LIMIT
    """,
}

SINCE: dict[str, int] = {name: version for version, names in _BROUGHT_BY.items() for name in names.split()}
"""Name of a member newer than 9.0 → the version that brought it, as `cudnnGetVersion` counts.

By name, because members of different enums with one value are equal to each other, and one key of a dict.
"""


def since(member: IntEnum) -> int:
    """The version of cuDNN that brought a member: 90800 for 9.8.0."""
    return SINCE.get(member.name, OLDEST)
