from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper

from gossamer.errors import InvalidGraph, InvalidProtobuf, NoSuchFile, UnsupportedModel
from gossamer.model.load import load
from gossamer.model.text import to_text

SOURCE = """<ir_version: 8, opset_import: ["" : 18]>
g (float[N,2] x) => (float[N,2] y)
<float[2] w = {1.0, 2.0}>
{ a = Add (x, w) y = Relu (a) }"""


def parse(source=SOURCE):
    return onnx.parser.parse_model(source)


@pytest.fixture
def path(tmp_path):
    file = tmp_path / "small.onnx"
    onnx.save(parse(), file)
    return file


def test_a_path_a_string_bytes_and_a_protobuf_are_the_same_model(path):
    texts = {
        to_text(load(source)) for source in (path, str(path), path.read_bytes(), bytearray(path.read_bytes()), parse())
    }
    (text,) = texts
    assert text.splitlines() == [
        "graph g(%x : float32[N,2]) {",
        "  %w : float32[2] = {1,2}",
        "  %a = Add(%x, %w)",
        "  %y = Relu(%a) : float32[N,2]",
        "  return %y",
        "}",
    ]


def test_the_callers_protobuf_is_not_changed():
    proto = parse()
    before = proto.SerializeToString()
    model = load(proto)
    model.graph.initializers["w"].name = "renamed"
    assert proto.SerializeToString() == before


# Files that are no models


def test_no_such_file(tmp_path):
    with pytest.raises(NoSuchFile, match=r"absent\.onnx: there is no such file; the working folder is"):
        load(tmp_path / "absent.onnx")


def test_a_folder(path):
    with pytest.raises(NoSuchFile, match=r"is a folder.*the models in it: small\.onnx"):
        load(path.parent)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "it is empty"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "git lfs pull"),
        (b"PK\x03\x04rest", "zip archive"),
        (b"<!DOCTYPE html>", "web page"),
        (b"\x18\x00\x00\x00ORTM", r"\.ort"),
        (b"\x01\x02\x03not a model", "does not parse as an ONNX model"),
        (b"\x08\x08", "it has no graph"),
        (b"\x3a\x00", "it has no IR version"),
    ],
)
def test_what_is_no_model(tmp_path, content, words):
    file = tmp_path / "wrong.onnx"
    file.write_bytes(content)
    with pytest.raises(InvalidProtobuf, match=rf"wrong\.onnx.*{words}"):
        load(file)
    with pytest.raises(InvalidProtobuf, match=f"given as {len(content)} bytes.*{words}"):
        load(content)


def test_truncated_files_never_load(path):
    content = path.read_bytes()
    for length in range(len(content)):
        with pytest.raises((InvalidProtobuf, InvalidGraph)):
            load(content[:length])


# Versions


@pytest.mark.parametrize("opset", [*range(7, onnx.defs.onnx_opset_version() + 1)])
def test_every_opset_from_7_on_stays_as_it_is(opset):
    model = load(parse(SOURCE.replace("18]", f"{opset}]")))
    assert model.opset_imports == {"": opset}


@pytest.mark.parametrize(
    ("opset", "words"),
    [(6, "opset 6 is older than 7.*convert_version"), (999, "opset 999 is newer than .*upgrade the onnx package")],
)
def test_other_opsets(opset, words):
    with pytest.raises(InvalidGraph, match=f"the ModelProto: {words}"):
        load(parse(SOURCE.replace("18]", f"{opset}]")))


def test_a_newer_ir_version():
    with pytest.raises(InvalidGraph, match=r"ONNX IR version 99 is newer than .*upgrade the onnx package"):
        load(parse(SOURCE.replace("ir_version: 8", "ir_version: 99")))


def test_unused_imports_may_be_of_any_version():
    model = load(
        parse(
            SOURCE.replace(
                '["" : 18]', '["ai.onnx" : 18, "ai.onnx.ml" : 999, "com.microsoft" : 1, "org.pytorch.aten" : 7]'
            )
        )
    )
    assert model.opset_imports[""] == 18
    ml = """<ir_version: 8, opset_import: ["" : 3, "ai.onnx.ml" : 3]>
        g (float[1,2] x) => (float[1,2] y) { y = ai.onnx.ml.Scaler (x) }"""
    assert load(parse(ml)).graph[0].op_type == "Scaler"


def test_a_domain_that_is_not_imported():
    with pytest.raises(
        InvalidGraph,
        match=r"imports no opset of the domain 'com\.microsoft', which com\.microsoft::Gelu 'Gelu_1' is of",
    ):
        load(parse(SOURCE.replace("Relu", "com.microsoft.Gelu")))


# Graphs


def test_all_unknown_operators_in_one_error():
    source = SOURCE.replace("a = Add (x, w) y = Relu (a)", "a = Foo (x, w) b = Bar (a) c = Foo (b, w) y = Gelu (c)")
    with pytest.raises(UnsupportedModel, match=r"4 node\(s\) cannot run here, operators: Bar, Foo, Gelu") as caught:
        load(parse(source))
    assert [str(node) for node in caught.value.nodes] == [
        "Foo 'Foo_0': ONNX has no such operator at opset 18",
        "Bar 'Bar_1': ONNX has no such operator at opset 18",
        "Foo 'Foo_2': ONNX has no such operator at opset 18",
        "Gelu 'Gelu_3': ONNX has no such operator at opset 18",  # it came with 20
    ]
    assert caught.value.remedy


def broken(edit):
    proto = parse()
    edit(proto.graph)
    return proto


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (lambda g: g.node.pop(0), "Relu 'y' reads 'a', which nothing makes"),
        (lambda g: g.node.pop(1), "nothing in the model makes the output 'y'"),
        (lambda g: g.node.append(g.node[0]), "the name 'a' is defined twice"),
        (lambda g: g.node[0].input.__setitem__(0, "y"), "graph 'g' depend on one another in a circle"),
        (
            lambda g: g.sparse_initializer.add().values.MergeFrom(onnx.TensorProto(name="s")),
            "initializer 's' is sparse",
        ),
        (
            lambda g: setattr(g.initializer[0], "raw_data", b"1234"),
            r"initializer 'w', FLOAT\[2\], needs 8 bytes and has 4",
        ),
        (lambda g: g.initializer[0].float_data.append(1.0), r"initializer 'w', FLOAT\[2\], needs 2 values and has 3"),
        (lambda g: g.initializer[0].ClearField("float_data"), "needs 2 values and has 0; .*saved without its weights"),
        (lambda g: setattr(g.initializer[0], "data_type", 0), "initializer 'w' has no element type"),
        (lambda g: setattr(g.initializer[0], "data_type", 777), "777"),
        (lambda g: g.initializer[0].dims.__setitem__(0, -2), "negative dimension"),
    ],
)
def test_broken_graphs(edit, words):
    with pytest.raises(InvalidGraph, match=f"the ModelProto.*: .*{words}"):
        load(broken(edit))


def node_of(*arguments, domain="", **attributes):
    """A model of one node over x; attributes are not checked by anybody before."""
    node = helper.make_node(*arguments, domain=domain, name="it", **attributes)
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in node.output if name]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 4, 6, 6])
    imports = [helper.make_opsetid("", 21), *([helper.make_opsetid(domain, 1)] if domain else [])]
    return helper.make_model(helper.make_graph([node], "g", [x], outputs), opset_imports=imports, ir_version=10)


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (node_of("Conv", ["x"], ["y"]), "Conv 'it' has 1 input(s), and not 2 to 3"),
        (node_of("Conv", ["x", ""], ["y"]), "Conv 'it' has no input 1, which is not optional"),
        (node_of("Concat", [], ["y"], axis=0), "has 0 input(s), and not 1 or more"),
        (node_of("Relu", ["x"], ["y", "z"]), "has 2 output(s), and not 1"),
        (node_of("Relu", ["x"], ["y"], alpha=0.5), "has an attribute 'alpha', which its operator does not have"),
        (node_of("Concat", ["x", "x"], ["y"]), "has no attribute 'axis', which is not optional"),
        (node_of("Softmax", ["x"], ["y"], axis=1.5), "the attribute 'axis' of the type FLOAT, and not INT"),
        (node_of("Transpose", ["x"], ["y"], perm=3), "the attribute 'perm' of the type INT, and not INTS"),
    ],
)
def test_nodes_that_are_not_of_their_operators_form(model, words):
    with pytest.raises(InvalidGraph) as caught:
        load(model)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    "model",
    [
        node_of("Relu", ["x", ""], ["y", ""]),
        node_of("Clip", ["x", "", "x"], ["y"]),
        node_of("Max", ["x"] * 9, ["y"]),
        node_of("Relu", ["x", "x"], ["y"], domain="somebody.elses", anything=1),
        node_of("SimplifiedLayerNormalization", ["x", "x"], ["y"], anything=1),
    ],
)
def test_forms_that_are_nobodys_business(model):
    load(model)


def test_broken_branches_and_functions_say_where():
    branch = """<ir_version: 8, opset_import: ["" : 18]>
        g (bool c, float[2] x) => (float[2] y) {
          y = If (c) <
            then_branch = t () => (float[2] r) { r = Abs (z) },
            else_branch = e () => (float[2] r) { r = Neg (x) }
          >
        }"""
    with pytest.raises(InvalidGraph, match=r"Abs 'r' reads 'z', which nothing makes.*\(inside If 'y'\)"):
        load(parse(branch))
    function = """<ir_version: 8, opset_import: ["" : 18, "local" : 1]>
        g (float[2] x) => (float[2] y) { y = local.F (x) }
        <domain: "local", opset_import: ["" : 18]> F (a) => (b) { b = Neg (c) }"""
    with pytest.raises(InvalidGraph, match="function 'local::F': Neg 'b' reads 'c'"):
        load(parse(function))


def test_nodes_in_any_order():
    proto = parse()
    proto.graph.node.reverse()
    assert [node.op_type for node in load(proto).graph] == ["Add", "Relu"]


def test_branches_may_use_the_same_names_and_nodes_none():
    model = load(
        parse("""<ir_version: 8, opset_import: ["" : 18]>
        g (bool c, float[2] x) => (float[2] y) {
          y = If (c) <
            then_branch = t () => (float[2] r) { r = Abs (x) },
            else_branch = e () => (float[2] r) { r = Neg (x) }
          >
        }""")
    )
    nodes = list(ir.traversal.RecursiveGraphIterator(model.graph))
    assert sorted(node.name for node in nodes) == ["Abs_1", "If_0", "Neg_2"]
    assert sorted(node.outputs[0].name for node in nodes) == ["r", "r_1", "y"]


def test_initializers_listed_as_inputs_are_constants():
    proto = parse()
    proto.graph.input.add().CopyFrom(onnx.helper.make_tensor_value_info("w", onnx.TensorProto.FLOAT, [2]))
    model = load(proto)
    assert [value.name for value in model.graph.inputs] == ["x"]
    assert list(model.graph.initializers) == ["w"]


def test_negative_dimensions_of_inputs_are_unknown_ones():
    model = load(parse(SOURCE.replace("float[N,2] x", "float[1,2] x")))
    assert str(model.graph.inputs[0].shape) == "[1,2]"
    proto = parse()
    proto.graph.input[0].type.tensor_type.shape.dim[0].dim_value = -1
    assert load(proto).graph.inputs[0].shape == ir.Shape([None, 2])


@pytest.mark.parametrize(
    "dtype",
    [
        "float16",
        "bfloat16",
        "float64",
        "int8",
        "uint8",
        "int16",
        "uint16",
        "int32",
        "uint32",
        "int64",
        "uint64",
        "bool",
        "complex64",
        "complex128",
        "float8_e4m3fn",
        "float8_e5m2",
        "float8_e8m0fnu",
        "int2",
        "uint2",
        "int4",
        "uint4",
        "float4_e2m1fn",
    ],
)
@pytest.mark.parametrize("raw", [True, False])
def test_initializers_of_every_type_in_both_encodings(dtype, raw):
    import ml_dtypes

    numpy_dtype = np.dtype(getattr(ml_dtypes, dtype, None) or dtype)
    values = np.array([1, 0, 1], np.float32).astype(numpy_dtype)
    kind = onnx.helper.np_dtype_to_tensor_dtype(numpy_dtype)
    tensor = onnx.numpy_helper.from_array(values, "w") if raw else onnx.helper.make_tensor("w", kind, [3], values)
    assert tensor.HasField("raw_data") == raw
    proto = parse(
        '<ir_version: 11, opset_import: ["" : 23]> g () => (float[3] y) { y = Identity (w) }'.replace(
            "g () => (float[3] y)", "g () => (float[3] y) <float[3] w = {1.0, 2.0, 3.0}>"
        )
    )
    proto.graph.initializer[0].CopyFrom(tensor)
    proto.graph.output[0].type.tensor_type.elem_type = kind
    np.testing.assert_array_equal(
        load(proto).graph.initializers["w"].const_value.numpy().astype(np.complex128), values.astype(np.complex128)
    )
