"""Modes and algorithms of operations, in graphs and in direct calls."""

# ruff: noqa: N801 - cuDNN's own names
from __future__ import annotations

from enum import IntEnum


class cudnnConvolutionMode(IntEnum):
    """Convolution proper flips the filter; ONNX means CUDNN_CROSS_CORRELATION."""

    CUDNN_CONVOLUTION = 0
    CUDNN_CROSS_CORRELATION = 1


class cudnnPointwiseMode(IntEnum):
    """Elementwise operations."""

    CUDNN_POINTWISE_ADD = 0
    CUDNN_POINTWISE_ADD_SQUARE = 5
    CUDNN_POINTWISE_DIV = 6
    CUDNN_POINTWISE_MAX = 3
    CUDNN_POINTWISE_MIN = 2
    CUDNN_POINTWISE_MOD = 7
    CUDNN_POINTWISE_MUL = 1
    CUDNN_POINTWISE_POW = 8
    CUDNN_POINTWISE_SUB = 9
    CUDNN_POINTWISE_ABS = 10
    CUDNN_POINTWISE_CEIL = 11
    CUDNN_POINTWISE_COS = 12
    CUDNN_POINTWISE_EXP = 13
    CUDNN_POINTWISE_FLOOR = 14
    CUDNN_POINTWISE_LOG = 15
    CUDNN_POINTWISE_NEG = 16
    CUDNN_POINTWISE_RSQRT = 17
    CUDNN_POINTWISE_SIN = 18
    CUDNN_POINTWISE_SQRT = 4
    CUDNN_POINTWISE_TAN = 19
    CUDNN_POINTWISE_ERF = 20
    CUDNN_POINTWISE_IDENTITY = 21
    CUDNN_POINTWISE_RECIPROCAL = 22
    CUDNN_POINTWISE_ATAN2 = 23
    CUDNN_POINTWISE_FLOOR_MOD = 24
    CUDNN_POINTWISE_RELU_FWD = 100
    CUDNN_POINTWISE_TANH_FWD = 101
    CUDNN_POINTWISE_SIGMOID_FWD = 102
    CUDNN_POINTWISE_ELU_FWD = 103
    CUDNN_POINTWISE_GELU_FWD = 104
    CUDNN_POINTWISE_SOFTPLUS_FWD = 105
    CUDNN_POINTWISE_SWISH_FWD = 106
    CUDNN_POINTWISE_GELU_APPROX_TANH_FWD = 107
    CUDNN_POINTWISE_RELU_BWD = 200
    CUDNN_POINTWISE_TANH_BWD = 201
    CUDNN_POINTWISE_SIGMOID_BWD = 202
    CUDNN_POINTWISE_ELU_BWD = 203
    CUDNN_POINTWISE_GELU_BWD = 204
    CUDNN_POINTWISE_SOFTPLUS_BWD = 205
    CUDNN_POINTWISE_SWISH_BWD = 206
    CUDNN_POINTWISE_GELU_APPROX_TANH_BWD = 207
    CUDNN_POINTWISE_CMP_EQ = 300
    CUDNN_POINTWISE_CMP_NEQ = 301
    CUDNN_POINTWISE_CMP_GT = 302
    CUDNN_POINTWISE_CMP_GE = 303
    CUDNN_POINTWISE_CMP_LT = 304
    CUDNN_POINTWISE_CMP_LE = 305
    CUDNN_POINTWISE_LOGICAL_AND = 400
    CUDNN_POINTWISE_LOGICAL_OR = 401
    CUDNN_POINTWISE_LOGICAL_NOT = 402
    CUDNN_POINTWISE_GEN_INDEX = 501
    CUDNN_POINTWISE_BINARY_SELECT = 601


class cudnnReduceTensorOp(IntEnum):
    """Reductions."""

    CUDNN_REDUCE_TENSOR_ADD = 0
    CUDNN_REDUCE_TENSOR_MUL = 1
    CUDNN_REDUCE_TENSOR_MIN = 2
    CUDNN_REDUCE_TENSOR_MAX = 3
    CUDNN_REDUCE_TENSOR_AMAX = 4
    CUDNN_REDUCE_TENSOR_AVG = 5
    CUDNN_REDUCE_TENSOR_NORM1 = 6
    CUDNN_REDUCE_TENSOR_NORM2 = 7
    CUDNN_REDUCE_TENSOR_MUL_NO_ZEROS = 8


class cudnnResampleMode(IntEnum):
    """Pooling and interpolation."""

    CUDNN_RESAMPLE_NEAREST = 0
    CUDNN_RESAMPLE_BILINEAR = 1
    CUDNN_RESAMPLE_AVGPOOL = 2
    CUDNN_RESAMPLE_AVGPOOL_EXCLUDE_PADDING = 4
    CUDNN_RESAMPLE_MAXPOOL = 3


class cudnnPaddingMode(IntEnum):
    """What pooling sees outside of its input."""

    CUDNN_ZERO_PAD = 0
    CUDNN_NEG_INF_PAD = 1
    CUDNN_EDGE_VAL_PAD = 2


class cudnnBackendNormMode(IntEnum):
    """Normalisations."""

    CUDNN_LAYER_NORM = 0
    CUDNN_INSTANCE_NORM = 1
    CUDNN_BATCH_NORM = 2
    CUDNN_GROUP_NORM = 3
    CUDNN_RMS_NORM = 4
    CUDNN_ADA_LAYER_NORM = 5


class cudnnBackendNormFwdPhase(IntEnum):
    """Inference or training."""

    CUDNN_NORM_FWD_INFERENCE = 0
    CUDNN_NORM_FWD_TRAINING = 1


class cudnnActivationMode(IntEnum):
    """Activations."""

    CUDNN_ACTIVATION_SIGMOID = 0
    CUDNN_ACTIVATION_RELU = 1
    CUDNN_ACTIVATION_TANH = 2
    CUDNN_ACTIVATION_CLIPPED_RELU = 3
    CUDNN_ACTIVATION_ELU = 4
    CUDNN_ACTIVATION_IDENTITY = 5
    CUDNN_ACTIVATION_SWISH = 6


class cudnnPoolingMode(IntEnum):
    """Pooling."""

    CUDNN_POOLING_MAX = 0
    CUDNN_POOLING_AVERAGE_COUNT_INCLUDE_PADDING = 1
    CUDNN_POOLING_AVERAGE_COUNT_EXCLUDE_PADDING = 2
    CUDNN_POOLING_MAX_DETERMINISTIC = 3


class cudnnLRNMode(IntEnum):
    """Local response normalisation."""

    CUDNN_LRN_CROSS_CHANNEL_DIM1 = 0


class cudnnSoftmaxAlgorithm(IntEnum):
    """Forms of softmax."""

    CUDNN_SOFTMAX_FAST = 0
    CUDNN_SOFTMAX_ACCURATE = 1
    CUDNN_SOFTMAX_LOG = 2


class cudnnSoftmaxMode(IntEnum):
    """What softmax sums over."""

    CUDNN_SOFTMAX_MODE_INSTANCE = 0
    CUDNN_SOFTMAX_MODE_CHANNEL = 1


class cudnnBatchNormMode(IntEnum):
    """What a mean is taken over."""

    CUDNN_BATCHNORM_PER_ACTIVATION = 0
    CUDNN_BATCHNORM_SPATIAL = 1
    CUDNN_BATCHNORM_SPATIAL_PERSISTENT = 2


class cudnnConvolutionFwdAlgo(IntEnum):
    """Algorithms of cudnnConvolutionForward."""

    CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM = 0
    CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM = 1
    CUDNN_CONVOLUTION_FWD_ALGO_GEMM = 2
    CUDNN_CONVOLUTION_FWD_ALGO_DIRECT = 3
    CUDNN_CONVOLUTION_FWD_ALGO_FFT = 4
    CUDNN_CONVOLUTION_FWD_ALGO_FFT_TILING = 5
    CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD = 6
    CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD_NONFUSED = 7


class cudnnConvolutionBwdDataAlgo(IntEnum):
    """Algorithms of cudnnConvolutionBackwardData."""

    CUDNN_CONVOLUTION_BWD_DATA_ALGO_0 = 0
    CUDNN_CONVOLUTION_BWD_DATA_ALGO_1 = 1
    CUDNN_CONVOLUTION_BWD_DATA_ALGO_FFT = 2
    CUDNN_CONVOLUTION_BWD_DATA_ALGO_FFT_TILING = 3
    CUDNN_CONVOLUTION_BWD_DATA_ALGO_WINOGRAD = 4
    CUDNN_CONVOLUTION_BWD_DATA_ALGO_WINOGRAD_NONFUSED = 5


class cudnnReorderType(IntEnum):
    """Whether int8 filters are reordered."""

    CUDNN_DEFAULT_REORDER = 0
    CUDNN_NO_REORDER = 1


class cudnnDeterminism(IntEnum):
    """Whether an algorithm gives the same bits each time."""

    CUDNN_NON_DETERMINISTIC = 0
    CUDNN_DETERMINISTIC = 1


class cudnnReduceTensorIndices(IntEnum):
    """Whether a reduction gives indices, too."""

    CUDNN_REDUCE_TENSOR_NO_INDICES = 0
    CUDNN_REDUCE_TENSOR_FLATTENED_INDICES = 1


class cudnnIndicesType(IntEnum):
    """The type of those indices."""

    CUDNN_32BIT_INDICES = 0
    CUDNN_64BIT_INDICES = 1
    CUDNN_16BIT_INDICES = 2
    CUDNN_8BIT_INDICES = 3


class cudnnRNNAlgo(IntEnum):
    """Algorithms of cudnnRNNForward."""

    CUDNN_RNN_ALGO_STANDARD = 0
    CUDNN_RNN_ALGO_PERSIST_STATIC = 1
    CUDNN_RNN_ALGO_PERSIST_DYNAMIC = 2
    CUDNN_RNN_ALGO_PERSIST_STATIC_SMALL_H = 3


class cudnnForwardMode(IntEnum):
    """Inference or training."""

    CUDNN_FWD_MODE_INFERENCE = 0
    CUDNN_FWD_MODE_TRAINING = 1


class cudnnRNNMode(IntEnum):
    """Kinds of cells."""

    CUDNN_RNN_RELU = 0
    CUDNN_RNN_TANH = 1
    CUDNN_LSTM = 2
    CUDNN_GRU = 3


class cudnnRNNBiasMode(IntEnum):
    """How many biases a cell has."""

    CUDNN_RNN_NO_BIAS = 0
    CUDNN_RNN_SINGLE_INP_BIAS = 1
    CUDNN_RNN_DOUBLE_BIAS = 2
    CUDNN_RNN_SINGLE_REC_BIAS = 3


class cudnnDirectionMode(IntEnum):
    """One or both directions."""

    CUDNN_UNIDIRECTIONAL = 0
    CUDNN_BIDIRECTIONAL = 1


class cudnnRNNInputMode(IntEnum):
    """Whether the input is multiplied by weights."""

    CUDNN_LINEAR_INPUT = 0
    CUDNN_SKIP_INPUT = 1


class cudnnRNNClipMode(IntEnum):
    """Whether cell states are clipped."""

    CUDNN_RNN_CLIP_NONE = 0
    CUDNN_RNN_CLIP_MINMAX = 1


class cudnnRNNDataLayout(IntEnum):
    """Layouts of sequences."""

    CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_UNPACKED = 0
    CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_PACKED = 1
    CUDNN_RNN_DATA_LAYOUT_BATCH_MAJOR_UNPACKED = 2
