"""cudnn_subquadratic_ops.h and cudnn_gnn_ops.h: causal convolutions and graph networks, from 9.22 on."""

from __future__ import annotations

PROTOTYPES = """
@92200 cudnnStatus_t cudnnSubquadraticOpsVersionCheck(void);
@92200 cudnnStatus_t cudnnCausalConv1dForward(cudaStream_t stream, const void *x, const void *weight,
    const void *bias, void *y, int batch, int dim, int seqLen, int kernelSize, cudnnDataType_t dataType,
    cudnnCausalConv1dActivation_t activation);
@92200 cudnnStatus_t cudnnCausalConv1dBackward(cudaStream_t stream, const void *x, const void *weight,
    const void *bias, const void *dy, void *dx, void *dweight, void *dbias, int batch, int dim, int seqLen,
    int kernelSize, cudnnDataType_t dataType, cudnnDataType_t dwDataType, cudnnCausalConv1dActivation_t activation);
@92400 cudnnStatus_t cudnnCausalConv1dNwhForward(cudaStream_t stream, const void *x, const void *weight,
    const void *bias, void *y, int batch, int dim, int seqLen, int kernelSize, cudnnDataType_t dataType,
    cudnnCausalConv1dActivation_t activation);
@92400 cudnnStatus_t cudnnCausalConv1dNwhBackward(cudaStream_t stream, const void *x, const void *weight,
    const void *bias, const void *dy, void *dx, void *dweight, void *dbias, int batch, int dim, int seqLen,
    int kernelSize, cudnnDataType_t dataType, cudnnDataType_t dwDataType, cudnnCausalConv1dActivation_t activation);
@92400 cudnnStatus_t cudnnB2BCausalConv1dForward(cudaStream_t stream, const void *x, const void *weightsProj,
    const void *weightsMixer, const void *skipBias, void *y, void *yGated, int batch, int dim, int seqLen,
    int kernelSizeProj, int kernelSizeMixer, cudnnDataType_t dataType);
@92400 cudnnStatus_t cudnnB2BCausalConv1dBackward(cudaStream_t stream, const void *x, const void *weightsProj,
    const void *weightsMixer, const void *skipBias, const void *y, const void *dy, void *dx, void *dweightsProj,
    void *dweightsMixer, void *dskipBias, int batch, int dim, int seqLen, int kernelSizeProj, int kernelSizeMixer,
    cudnnDataType_t dataType, cudnnDataType_t dwDataType);
@92600 cudnnStatus_t cudnnFFTCausalConv1dForward(cudaStream_t stream, const void *x, const void *weight, void *y,
    int batch, int dim, int seqLen, int kernelSize, cudnnDataType_t dataType);
@92600 cudnnStatus_t cudnnFFTCausalConv1dBackward(cudaStream_t stream, const void *x, const void *weight,
    const void *dy, void *dx, void *dweight, int batch, int dim, int seqLen, int kernelSize,
    cudnnDataType_t dataType);
@92600 cudnnStatus_t cudnnLongFFTCausalConv1dGetBufferSizes(int batch, int dim, int seqLen, int kernelSize,
    cudnnDataType_t dataType, size_t *workspaceSizeInBytes, size_t *reserveSpaceSizeInBytes);
@92600 cudnnStatus_t cudnnLongFFTCausalConv1dForward(cudaStream_t stream, const void *x, const void *weight, void *y,
    int batch, int dim, int seqLen, int kernelSize, cudnnDataType_t dataType, void *workspace,
    size_t workspaceSizeInBytes, void *reserveSpace, size_t reserveSpaceSizeInBytes);
@92600 cudnnStatus_t cudnnLongFFTCausalConv1dBackward(cudaStream_t stream, const void *dy, void *dx, void *dweight,
    int batch, int dim, int seqLen, int kernelSize, cudnnDataType_t dataType, void *workspace,
    size_t workspaceSizeInBytes, void *reserveSpace, size_t reserveSpaceSizeInBytes);
@92600 cudnnStatus_t cudnnGnnAggSimpleForward(cudaStream_t stream, const cudnnGnnCscGraph_t *graph,
    const void *nodeFeatures, const void *edgeFeatures, const void *concatFeatures, void *output, void *outPositions,
    int nodeFeatDim, int edgeFeatDim, int concatFeatDim, cudnnDataType_t dataType, cudnnGnnAggOp_t aggOp);
@92600 cudnnStatus_t cudnnGnnAggSimpleBackward(cudaStream_t stream, const cudnnGnnCscGraph_t *graph,
    const void *gradOutput, const void *outPositions, void *gradNodeFeatures, void *gradEdgeFeatures,
    void *gradConcatFeatures, int nodeFeatDim, int edgeFeatDim, int concatFeatDim, cudnnDataType_t dataType,
    cudnnGnnAggOp_t aggOp);
@92800 cudnnStatus_t cudnnGnnMhaGatForward(cudaStream_t stream, const cudnnGnnCscGraph_t *graph,
    const void *srcFeatures, const void *dstFeatures, const void *edgeFeatures, const void *attnWeights,
    const float *dropoutMask, void *output, void *smScores, int dimNode, int dimEdge,
    const cudnnGnnMhaParams_t *params, cudnnDataType_t dataType);
@92800 cudnnStatus_t cudnnGnnMhaGatBackward(cudaStream_t stream, const cudnnGnnCscGraph_t *graph, const void *gradOut,
    const void *srcFeatures, const void *dstFeatures, const void *edgeFeatures, const void *attnWeights,
    const void *smScores, const float *dropoutMask, const float *gradAttention, void *gradSrcFeatures,
    void *gradDstFeatures, void *gradEdgeFeatures, void *gradWeights, void *gradSmScores, void *gradWspaceFeat,
    void *gradWspaceWeights, int dimNode, int dimEdge, const cudnnGnnMhaParams_t *params, cudnnDataType_t dataType,
    cudnnDataType_t gradDataType, cudnnDataType_t gradWeightType);
@92800 cudnnStatus_t cudnnGnnMhaGatV2Forward(cudaStream_t stream, const cudnnGnnCscGraph_t *graph,
    const void *srcFeatures, const void *dstFeatures, const void *edgeFeatures, const void *attnWeights,
    const float *dropoutMask, void *output, void *smScores, void *actScores, int dimNode,
    const cudnnGnnMhaParams_t *params, cudnnDataType_t dataType);
@92800 cudnnStatus_t cudnnGnnMhaGatV2Backward(cudaStream_t stream, const cudnnGnnCscGraph_t *graph,
    const void *gradOut, const void *srcFeatures, const void *dstFeatures, const void *edgeFeatures,
    const void *attnWeights, const void *smScores, const void *actScores, const float *dropoutMask,
    const float *gradAttention, void *gradSrcFeatures, void *gradDstFeatures, void *gradEdgeFeatures,
    void *gradWeights, void *gradSmScores, void *gradWspaceFeat, void *gradWspaceWeights, int dimNode,
    const cudnnGnnMhaParams_t *params, cudnnDataType_t dataType, cudnnDataType_t gradType);
"""
