"""The manifest as such: what it must have, and that its parts fit together. tests/cudnn/test_audit.py has releases."""

from __future__ import annotations

import subprocess
import sys
from enum import IntEnum

import pytest

from gossamer.cudnn import enums, symbols
from gossamer.cudnn.symbols import FRONTEND_SYMBOLS, FUNCTIONS, POINTER_TYPES, SCALAR_TYPES, STRUCT_TYPES

DIRECT = """
GetVersion GetErrorString GetLastErrorString Create Destroy SetStream GetStream
SetConvolutionGroupCount SetConvolutionMathType DeriveBNTensorDescriptor AddTensor ActivationForward PoolingForward
LRNCrossChannelForward SoftmaxForward SoftmaxBackward BatchNormalizationForwardInference
BatchNormalizationForwardTraining ConvolutionForward ConvolutionBiasActivationForward ConvolutionBackwardData
FindConvolutionForwardAlgorithmEx FindConvolutionBackwardDataAlgorithmEx GetConvolutionForwardAlgorithm_v7
GetConvolutionForwardWorkspaceSize GetReductionIndicesSize GetReductionWorkspaceSize ReduceTensor SetRNNDescriptor_v8
SetRNNDataDescriptor SetDropoutDescriptor DropoutGetStatesSize GetRNNTempSpaceSizes GetRNNWeightSpaceSize
GetRNNWeightParams RNNForward
BackendCreateDescriptor BackendDestroyDescriptor BackendSetAttribute BackendGetAttribute BackendFinalize BackendExecute
"""
"""R2.2 and R2.3, in the words of the requirement."""

DESCRIPTORS = (
    "Tensor",
    "Filter",
    "Convolution",
    "Activation",
    "Pooling",
    "LRN",
    "ReduceTensor",
    "RNN",
    "RNNData",
    "Dropout",
)
GATED = {
    "cudnnBackendPopulateCudaGraph": 90500,
    "cudnnBackendUpdateCudaGraph": 90500,
    "cudnnGetExecutionPlanWorkspaceSize": 92300,
}

ENUMS = [value for name in enums.__all__ if isinstance(value := getattr(enums, name), type)]


@pytest.mark.parametrize("name", DIRECT.split())
def test_required_functions(name: str) -> None:
    """R2.2, R2.3."""
    assert FUNCTIONS[f"cudnn{name}"].required


@pytest.mark.parametrize("kind", DESCRIPTORS)
def test_descriptors_have_their_four_functions(kind: str) -> None:
    """R2.2: create, set, get, destroy."""
    for verb in ("Create", "Set", "Get", "Destroy"):
        names = [f"cudnn{verb}{kind}{form}Descriptor{version}" for form in ("", "Nd") for version in ("", "_v8")]
        assert any(FUNCTIONS[name].required for name in names if name in FUNCTIONS), (verb, kind)


def test_functions_gated_by_version() -> None:
    """R2.3."""
    assert {name: FUNCTIONS[name].since for name in GATED} == GATED
    assert not any(FUNCTIONS[name].required for name in GATED)


def test_nothing_newer_than_the_oldest_release_is_required() -> None:
    """R1.4."""
    assert {function.since for function in FUNCTIONS.values() if function.required} == {symbols.OLDEST}
    assert {name for name, function in FUNCTIONS.items() if function.required} == symbols.REQUIRED


def test_frontend_symbols_are_in_the_manifest() -> None:
    """R2.3."""
    assert set(FUNCTIONS) >= FRONTEND_SYMBOLS


def test_every_type_is_of_a_known_kind() -> None:
    """What is passed by value is C's own, a pointer by another name, or an enum; structures only by pointer."""
    known_enums = {f"{enum.__name__}_t" for enum in ENUMS}
    for function in FUNCTIONS.values():
        for spelling, name in function.arguments:
            assert name.isidentifier()
            assert spelling not in STRUCT_TYPES
            by_value = not spelling.endswith("*")
            if by_value and spelling not in POINTER_TYPES | SCALAR_TYPES:
                assert spelling in known_enums or spelling.startswith("cudnn") or spelling == "libraryPropertyType"
        assert function.returns in {"cudnnStatus_t", "size_t", "const char *", "void"}
    assert not POINTER_TYPES & SCALAR_TYPES | POINTER_TYPES & STRUCT_TYPES


def test_one_function_in_full() -> None:
    function = FUNCTIONS["cudnnBackendGetAttribute"]
    assert (function.returns, function.since, function.required) == ("cudnnStatus_t", 90000, True)
    assert function.arguments == (
        ("cudnnBackendDescriptor_t", "descriptor"),
        ("cudnnBackendAttributeName_t", "attributeName"),
        ("cudnnBackendAttributeType_t", "attributeType"),
        ("int64_t", "requestedElementCount"),
        ("int64_t *", "elementCount"),
        ("void *", "arrayOfElements"),
    )
    assert FUNCTIONS["cudnnGetVersion"].arguments == ()
    assert FUNCTIONS["cudnnGetErrorString"].returns == "const char *"


@pytest.mark.parametrize("enum", ENUMS, ids=lambda enum: enum.__name__)
def test_enum_members_are_distinct_and_known_by_name(enum: type[IntEnum]) -> None:
    assert len(enum) == len(enum.__members__), "no aliases"
    assert all(enums.since(member) == enums.SINCE.get(name, 90000) for name, member in enum.__members__.items())


def test_since_names_members() -> None:
    members = [name for enum in ENUMS for name in enum.__members__]
    assert len(members) == len(set(members)), "a name says which member is meant"
    assert set(enums.SINCE) <= set(members)
    assert enums.since(enums.cudnnBackendAttributeName.CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP) == 90800
    assert enums.since(enums.cudnnBackendAttributeName.CUDNN_ATTR_EXECUTION_PLAN_HANDLE) == 90000


def test_importing_the_manifest_is_light() -> None:
    """R1.1: no ctypes, no library."""
    code = "import sys, gossamer.cudnn.symbols, gossamer.cudnn.enums; assert not {'ctypes', 'numpy'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
