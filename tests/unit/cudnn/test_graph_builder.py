"""Graphs as data: shapes, memory orders, what is refused, and the dict form. No cuDNN."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import cudnn_graphs
from gossamer.cudnn import Graph
from gossamer.cudnn.builder import GraphBuilder
from gossamer.cudnn.engines import Choice
from gossamer.cudnn.operations import OPERATIONS
from gossamer.cudnn.operations.pointwise import BINARY, MODES
from gossamer.cudnn.tensors import strides_like, strides_of
from gossamer.errors import InvalidArgument, WrongType


def tensor(graph: GraphBuilder, *dims: int, name: str = "", **how: Any) -> Any:
    return graph.tensor(name, dims, how.pop("dtype", "float16"), **how)


@pytest.mark.parametrize(
    ("layout", "strides"),
    [
        (None, (140, 35, 7, 1)),
        ("NCHW", (140, 35, 7, 1)),
        ("NHWC", (140, 1, 28, 4)),
        ("nhwc", (140, 1, 28, 4)),
    ],
)
def test_layouts(layout: str | None, strides: tuple[int, ...]) -> None:
    assert strides_of((2, 4, 5, 7), layout) == strides


def test_layouts_of_other_ranks() -> None:
    assert strides_of((2, 3, 5), "NWC") == (15, 1, 3)
    assert strides_of((2, 3, 4, 5, 6), "NDHWC") == (360, 1, 90, 18, 3)
    for dims, layout in (((2, 3), "NHWC"), ((2, 3, 4, 5), "NHWW"), ((2, 3, 4, 5), "ABDE")):
        with pytest.raises(InvalidArgument, match="layout"):
            strides_of(dims, layout)


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("dims", [(2, 4, 5, 7), (2, 4, 1, 1), (1, 4, 5, 7), (2, 1, 5, 7), (1, 8, 1, 3)])
def test_results_keep_the_memory_order(dims: tuple[int, ...], layout: str) -> None:
    """Whatever sizes of 1 hide: among dimensions larger than 1, the order is the model's."""
    model = Graph().tensor("x", dims, "float16", layout=layout)
    assert strides_like(dims, model) == model.strides


@pytest.mark.parametrize(
    ("how", "dims"),
    [
        ({}, (2, 6, 26, 30)),
        ({"padding": 1}, (2, 6, 28, 32)),
        ({"padding": (1, 2), "padding_after": (0, 1)}, (2, 6, 27, 33)),
        ({"stride": 2, "padding": 1}, (2, 6, 14, 16)),
        ({"dilation": (2, 3)}, (2, 6, 24, 26)),
    ],
)
def test_convolution(how: dict[str, Any], dims: tuple[int, ...]) -> None:
    graph = Graph()
    x, w = tensor(graph, 2, 4, 28, 32, layout="NHWC"), tensor(graph, 6, 4, 3, 3)
    y = graph.convolution(x, w, **how)
    assert y.dims == dims
    assert y.virtual
    assert y.dtype == "float32"
    assert y.strides[1] == 1, "the result is stored as x is"


def test_convolution_groups() -> None:
    graph = Graph()
    x = tensor(graph, 2, 8, 9, 9)
    assert graph.convolution(x, tensor(graph, 8, 1, 3, 3)).dims == (2, 8, 7, 7)
    assert graph.convolution(x, tensor(graph, 6, 4, 3, 3)).dims == (2, 6, 7, 7)
    for dims in ((6, 3, 3, 3), (5, 4, 3, 3), (8, 1, 3), (8, 8, 11, 3)):
        with pytest.raises(InvalidArgument, match="convolution of"):
            graph.convolution(x, tensor(graph, *dims))
    with pytest.raises(InvalidArgument, match="channels do not match"):
        graph.convolution_transpose(x, tensor(graph, 8, 8, 3, 3), groups=0)


@pytest.mark.parametrize(
    ("how", "text"),
    [
        ({"padding": (1, 1, 1)}, r"padding \(1, 1, 1\): one number, or 2"),
        ({"padding": "same"}, "padding: whole numbers are wanted, got 'same'"),
        ({"stride": 0}, r"stride \(0, 0\): at least 1"),
        ({"dilation": (1, 0)}, r"dilation \(1, 0\): at least 1"),
        ({"stride": 1.5}, "stride: whole numbers are wanted"),
    ],
)
def test_windows_that_cannot_move(how: dict[str, Any], text: str) -> None:
    graph = Graph()
    with pytest.raises(InvalidArgument, match=text):
        graph.convolution(tensor(graph, 2, 8, 9, 9), tensor(graph, 8, 8, 3, 3), **how)


def test_numbers_of_numpy_become_pythons() -> None:
    graph = Graph()
    x = graph.tensor("x", np.array([2, 8, 9, 9]), "float16", strides=np.array([648, 81, 9, 1]))
    y = graph.convolution(x, tensor(graph, 8, 8, 3, 3), padding=np.array([1, 1]), stride=np.int64(1))
    assert (x.dims, x.strides, y.dims) == ((2, 8, 9, 9), (648, 81, 9, 1), (2, 8, 9, 9))
    json.dumps(graph.as_dict())


def test_what_is_no_tensor() -> None:
    graph = Graph()
    for given in (3, None, np.zeros((2, 4))):
        with pytest.raises(WrongType, match=f"a {type(given).__name__} is no tensor of this graph"):
            graph.relu(given)  # type: ignore[arg-type]
    for dims in ("2x4", (2.0, 4.0)):
        with pytest.raises(WrongType, match="dims of tensor 'x': whole numbers are wanted"):
            graph.tensor("x", dims, "float16")  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="workspace_limit -1"):
        Choice(workspace_limit=-1)


@pytest.mark.parametrize("extra", [0, 1])
@pytest.mark.parametrize("stride", [1, 2, 3])
def test_transposed_convolution_undoes_a_convolution(stride: int, extra: int) -> None:
    """Its sizes are those from which the forward convolution would come to x's."""
    graph = Graph()
    x, w = tensor(graph, 2, 8, 7, 9), tensor(graph, 8, 3, 3, 5)
    extra = min(extra, stride - 1)
    y = graph.convolution_transpose(x, w, stride=stride, padding=1, groups=2, output_padding=extra)
    assert y.dims[:2] == (2, 6)
    forward = GraphBuilder()
    back = forward.convolution(tensor(forward, *y.dims), tensor(forward, 8, 3, 3, 5), stride=stride, padding=1)
    assert back.dims == x.dims


def test_matmul() -> None:
    graph = Graph()
    a = tensor(graph, 4, 6, 32, 16)
    assert graph.matmul(a, tensor(graph, 4, 6, 16, 8)).dims == (4, 6, 32, 8)
    assert graph.matmul(a, tensor(graph, 1, 1, 16, 8)).dims == (4, 6, 32, 8)
    assert graph.matmul(a, tensor(graph, 4, 2, 16, 8)).dims == (4, 6, 32, 8), "heads may be shared"
    for dims in ((4, 6, 15, 8), (6, 16, 8), (4, 4, 16, 8)):
        with pytest.raises(InvalidArgument, match="matmul of"):
            graph.matmul(a, tensor(graph, *dims))


def test_reductions_and_pools() -> None:
    graph = Graph()
    x = tensor(graph, 2, 4, 28, 32)
    assert graph.reduction("max", x, [-1, 1]).dims == (2, 1, 28, 1)
    assert graph.pool("max", x, 3, stride=2, padding=1).dims == (2, 4, 14, 16)
    assert graph.pool("average", x, (28, 32)).dims == (2, 4, 1, 1)
    for refused in (
        lambda: graph.reduction("max", x, []),
        lambda: graph.reduction("max", x, [4]),
        lambda: graph.reduction("median", x, [1]),
        lambda: graph.pool("median", x, 3),
        lambda: graph.pool("max", x, 40),
        lambda: graph.pool("max", x, 0),
    ):
        with pytest.raises(InvalidArgument):
            refused()


@pytest.mark.parametrize("mode", sorted(MODES))
def test_every_pointwise_mode(mode: str) -> None:
    graph = Graph()
    operands = [tensor(graph, 2, 4, 5, 6), tensor(graph, 1, 4, 1, 1), tensor(graph, 2, 4, 5, 6, dtype="bool")]
    wanted = 3 if mode == "select" else 2 if mode in BINARY else 1
    for count in {1, 2, 3} - {wanted}:
        with pytest.raises(InvalidArgument, match=f"{mode} takes {wanted} tensors, not {count}"):
            graph.pointwise(mode, *operands[:count])
    result = graph.pointwise(mode, *operands[:wanted])
    assert result.dims == (2, 4, 5, 6)
    assert (result.dtype == "bool") == mode.startswith(("cmp_", "logical_"))


def test_pointwise_refusals() -> None:
    graph = Graph()
    x = tensor(graph, 2, 4)
    for refused in (
        lambda: graph.pointwise("sinh", x),
        lambda: graph.pointwise("relu", x, alpha=1.0),
        lambda: graph.add(x, tensor(graph, 3, 4)),
        lambda: graph.add(x, tensor(graph, 4)),
        lambda: graph.relu(GraphBuilder().tensor("another graph's", (2, 4), "float16")),
    ):
        with pytest.raises(InvalidArgument):
            refused()


def test_tensors() -> None:
    graph = Graph()
    x = graph.tensor("x", (2, 3), np.float32)
    assert x.dtype == "float32"
    assert x.uid == 1
    assert x.span_bytes == 24
    for given in (
        {"dims": (2, 3), "dtype": "float12"},
        {"dims": (0, 3), "dtype": "float32"},
        {"dims": (2, 3), "dtype": "float32", "strides": (3,)},
        {"dims": (2, 3), "dtype": "float32", "strides": (-3, 1)},
        {"dims": (2, 3), "dtype": "float32", "alignment": 3},
        {"dims": (2, 3, 4, 5), "dtype": "float32", "layout": "NHWC", "strides": (1, 1, 1, 1)},
    ):
        with pytest.raises(InvalidArgument):
            graph.tensor("other", **given)
    with pytest.raises(InvalidArgument, match="already has a tensor 'x'"):
        graph.tensor("x", (2, 3), "float32")


def test_outputs() -> None:
    graph = Graph()
    x = tensor(graph, 2, 3, name="x")
    y = graph.output(graph.relu(x), name="y")
    z = graph.output(graph.tanh(y), dtype="float32", strides=(1, 2))
    assert [one.name for one in graph.inputs] == ["x"]
    assert [(one.name, one.dtype, one.strides) for one in graph.outputs] == [
        ("y", "float16", (3, 1)),
        ("", "float32", (1, 2)),
    ]
    assert z.virtual is False
    for refused in (x, y):
        with pytest.raises(InvalidArgument, match="not computed by this graph, or already an output"):
            graph.output(refused)


def test_scalars_hold_what_their_type_holds() -> None:
    graph = Graph()
    assert graph.scalar(0.1).value == float(np.float32(0.1))
    assert graph.scalar(0.1, "float16").value == float(np.float16(0.1))
    assert graph.scalar(7, "int32").value == 7


def test_attention() -> None:
    graph = Graph()
    strides = (4 * 10 * 8, 8, 4 * 8, 1)
    q, k, v = (graph.tensor(name, (2, 4, 10, 8), "float16", strides=strides) for name in "qkv")
    o = graph.attention(q, k, v, causal=True)
    assert (o.dims, o.strides) == (q.dims, q.strides)
    assert graph.tensors[k.uid].dims == (2, 4, 8, 10)
    assert {one.value for one in graph.tensors.values() if one.by_value} == {
        float(np.float32(8**-0.5)),
        -3.3895313892515355e38,
    }
    shared = tensor(graph, 2, 4, 10, 8)
    graph.relu(shared)
    with pytest.raises(InvalidArgument, match="nothing else may read them"):
        graph.attention(q, shared, v)
    with pytest.raises(InvalidArgument, match="q's size in k"):
        graph.attention(q, tensor(graph, 2, 4, 10, 9), v)


@pytest.mark.parametrize("case", cudnn_graphs.CASES)
def test_dict_form(case: str) -> None:
    """R10.7: through JSON and back, nothing changes; the name is the container's."""
    made = cudnn_graphs.build(Graph(name="a"), case)
    other = Graph(name="b", compute="float64")
    assert other.deserialize(json.dumps(made.as_dict())) is None
    assert other.as_dict() == made.as_dict() | {"name": "b"}
    assert other.tensors == made.tensors
    assert other.operations == made.operations


def test_the_cases_have_every_operation() -> None:
    built = (cudnn_graphs.build(Graph(), case) for case in cudnn_graphs.CASES)
    assert {type(one).__name__ for graph in built for one in graph.operations} == set(OPERATIONS)


@pytest.mark.parametrize(
    "change",
    [
        {"format": 2},
        {"tensors": [5]},
        {"tensors": []},
        {"operations": [{"operation": "Sort"}]},
        {"operations": [{"operation": "Pointwise", "mode": "relu"}]},
        {"operations": [{"operation": "Pointwise", "mode": "relu", "x": 1, "y": 2, "compute": "float32", "z": 1}]},
        {"compute": "float12"},
    ],
)
def test_what_is_no_graph(change: dict[str, Any]) -> None:
    """The graph stays what it was."""
    graph = cudnn_graphs.build(Graph(), "convolution")
    before = graph.as_dict()
    with pytest.raises(InvalidArgument):
        graph.deserialize(before | change)
    assert graph.as_dict() == before


@pytest.mark.parametrize("text", ["", "[]", "nonsense", "5"])
def test_text_that_is_no_graph(text: str) -> None:
    with pytest.raises(InvalidArgument, match="graph"):
        Graph().deserialize(text)
