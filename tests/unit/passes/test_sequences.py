"""The runner, and the two sequences on real models."""

from __future__ import annotations

import logging
from collections import Counter

import numpy as np
import onnx_ir as ir
import onnxruntime
import pytest

import fetch
from feeds import random_feeds
from gossamer import settings
from gossamer.errors import Fail
from gossamer.model.checks import problem_in
from gossamer.model.load import load
from gossamer.model.passes import lift_constants, prepare, run_passes, specialise
from gossamer.model.text import to_text

SOURCE = "g (float[2] x) => (float[2] y) { a = Relu (x) b = Abs (a) y = Neg (b) }"


def reads_too_early(model):
    first, _, last = model.graph
    first.replace_input_with(0, last.outputs[0])
    return True


def loses_a_node(model):
    model.graph.remove(model.graph[1])
    return True


def doubles_a_name(model):
    model.graph[0].outputs[0].name = "b"
    return True


def loses_an_output(model):
    model.graph.outputs[0] = ir.Value(name="z")
    return True


@pytest.mark.parametrize(
    ("culprit", "problem"),
    [
        (reads_too_early, "Relu 'Relu_0' reads 'y', which nothing before it makes"),
        (loses_a_node, "Neg 'Neg_2' reads 'b', which nothing before it makes"),
        (doubles_a_name, "the name 'b' of an output of Abs 'Abs_1' is missing or taken"),
        (loses_an_output, "nothing makes the output 'z' of graph 'g'"),
    ],
)
def test_the_runner_names_the_pass_that_breaks_a_model(bench, culprit, problem):
    with pytest.raises(Fail, match=f"pass {culprit.__name__} broke the model: {problem}"):
        run_passes(bench.load(SOURCE), (lift_constants, culprit))


def test_the_check_sees_into_subgraphs(bench):
    model = bench.load("""
        g (bool c, float[2] x) => (float[2] y) {
          y = If (c) <
            then_branch = t () => (float[2] r) { r = Abs (x) },
            else_branch = e () => (float[2] r) { q = Neg (x) r = Abs (q) }
          >
        }""")
    assert problem_in(model) is None
    branch = model.graph[0].attributes["else_branch"].as_graph()
    branch.remove(branch[0])
    assert problem_in(model) == "Abs 'Abs_3' reads 'q', which nothing before it makes (inside If 'If_0')"


def test_the_graph_is_logged_after_each_pass_that_changed_it(bench, caplog):
    caplog.set_level(logging.INFO, logger="gossamer")
    source = "g (float x) => (float y) { k = Constant <value_float : float = 2.0> () y = Mul (x, k) }"
    run_passes(bench.load(source), (lift_constants, lift_constants))
    assert not caplog.records
    with settings.override(DEBUG=4):
        run_passes(bench.load(source), (lift_constants, lift_constants))
    assert [record.getMessage().splitlines()[:2] for record in caplog.records] == [
        ["after lift_constants:", "graph g(%x : float32[]) {"]
    ]


def test_preparing_and_specialising(bench, text):
    """Constants, a scale, a flatten that is computed from shapes, and an If that decides on a shape."""
    model = bench.load("""
        g (float[N,2,4] x) => (float[N,M] y) {
          w = Constant <value = float[3,2,1] {1.0, 2.0, 3.0, 4.0, 5.0, 6.0}> ()
          k = Constant <value = float[1] {2.0}> ()
          c = Conv (x, w)
          d = Mul (c, k)
          s = Shape (d)
          zero = Constant <value = int64[1] {0}> ()
          n = Gather (s, zero)
          rest = Constant <value = int64[1] {-1}> ()
          t = Concat <axis = 0> (n, rest)
          f = Reshape (d, t)
          one = Constant <value_int : int = 1> ()
          m = Size (n)
          e = Equal (m, one)
          y = If (e) <
            then_branch = a () => (float[u,v] r) { r = Identity (f) },
            else_branch = b () => (float[u,v] r) { r = Neg (f) }
          >
        }""")
    prepare(model)
    assert to_text(specialise(model, {"x": (5, 2, 4)})) == text("""
        graph g(%x : float32[5,2,4]) {
          %c_weight : float32[3,2,1] = {2,4,6,8,10,12}
          %c_bias : float32[3] = {0,0,0}
          %t : int64[2] = {5,-1}
          %c = Conv(%x, %c_weight, %c_bias) : float32[5,3,4]
          %y = Reshape(%c, %t) : float32[5,12]
          return %y
        }
    """)
    assert "%x : float32[N,2,4]" in to_text(model), "specialising changed the prepared model"


SHAPE_COMPUTATIONS = {"Shape", "Size", "Constant", "Cast", "Gather", "ConstantOfShape", "Range", "Identity"}


@pytest.fixture(scope="session")
def names():
    """Names in models.json by file."""
    return {model.path_in_archive.rsplit("/", 1)[-1]: name for name, model in fetch.catalogue().items()}


@pytest.mark.models
@pytest.mark.parametrize(
    ("file", "most_nodes"),
    [
        ("ch_PP-OCRv4_det_infer.onnx", 280),
        ("ch_PP-OCRv4_rec_infer.onnx", 350),
        ("ch_ppocr_mobile_v2.0_cls_infer.onnx", 190),
        ("PP-OCRv6_det_tiny.onnx", 250),
        ("PP-OCRv6_rec_tiny.onnx", 130),
    ],
)
def test_ocr_models_become_static_and_answer_the_same(model_path, names, file, most_nodes):
    path, entry = model_path(names[file]), fetch.catalogue()[names[file]]
    model = load(path)
    prepare(model)
    special = specialise(model, {name: tuple(spec["shape"]) for name, spec in entry.inputs.items()})
    assert not SHAPE_COMPUTATIONS & Counter(node.op_type for node in special.graph).keys()
    assert "BatchNormalization" not in {node.op_type for node in special.graph}
    assert all(value.shape is not None and value.shape.is_static() for node in special.graph for value in node.outputs)
    assert len(special.graph) <= most_nodes
    feeds = random_feeds(entry)
    expected = run(path.read_bytes(), feeds)
    for wanted, found in zip(expected, run(ir.to_proto(special).SerializeToString(), feeds), strict=True):
        assert wanted.shape == found.shape
        np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=2e-4)


@pytest.mark.models
@pytest.mark.parametrize("file", ["silero_vad.onnx", "slanet-plus.onnx", "model.onnx"])
def test_models_with_control_flow_answer_the_same(model_path, names, file):
    path, entry = model_path(names[file]), fetch.catalogue()[names[file]]
    model = load(path)
    prepare(model)
    feeds = random_feeds(entry)
    if "sr" in feeds:
        feeds["sr"] = np.array(16000)
    special = ir.to_proto(specialise(model, {name: array.shape for name, array in feeds.items()}))
    # onnxruntime refuses to load Silero's own file with static inputs: the branch that is not taken does not fit them.
    del special.graph.value_info[:]
    for value in special.graph.input:
        for dim in value.type.tensor_type.shape.dim:
            dim.Clear()
    for wanted, found in zip(run(path.read_bytes(), feeds), run(special.SerializeToString(), feeds), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-4)


def run(model, feeds):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"]).run(None, feeds)
