"""Tensors kept in other files: mapped, and never outside the model's folder."""

from __future__ import annotations

import os

import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir
import pytest

from gossamer.errors import InvalidGraph, NoSuchFile
from gossamer.model.load import load

WEIGHT = np.arange(6, dtype=np.float32).reshape(2, 3)


def external(name, array, location, offset=0, length=None):
    tensor = onnx.TensorProto(name=name, dims=array.shape, data_type=onnx.helper.np_dtype_to_tensor_dtype(array.dtype))
    tensor.data_location = onnx.TensorProto.EXTERNAL
    entries = {"location": location, "offset": offset} | ({} if length is None else {"length": length})
    for key, value in entries.items():
        tensor.external_data.add(key=key, value=str(value))
    return tensor


def write(folder, nodes, outputs, initializers=(), opset=18):
    """folder/model.onnx; what it refers to is not written."""
    x = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1, 2])
    graph = onnx.helper.make_graph(nodes, "g", [x], outputs, initializers)
    imports = [onnx.helper.make_opsetid("", opset)]
    path = folder / "model.onnx"
    path.write_bytes(onnx.helper.make_model(graph, opset_imports=imports, ir_version=10).SerializeToString())
    return path


def output(*shape, kind=onnx.TensorProto.FLOAT):
    return [onnx.helper.make_tensor_value_info("y", kind, shape)]


def save(folder, location="weights.bin", **how):
    node = onnx.helper.make_node("MatMul", ["x", "w"], ["y"])
    return write(folder, [node], output(1, 3), [external("w", WEIGHT, location, **how)])


def weight_of(model):
    return model.graph.initializers["w"].const_value.numpy()


def test_the_file_is_mapped_not_read(tmp_path):
    (tmp_path / "weights.bin").write_bytes(b"\0" * 16 + WEIGHT.tobytes() + b"more")
    weight = weight_of(load(save(tmp_path, offset=16, length=24)))
    np.testing.assert_array_equal(weight, WEIGHT)
    assert not weight.flags.writeable
    base = weight
    while isinstance(base, np.ndarray):
        base = base.base
    assert type(base.obj if isinstance(base, memoryview) else base).__name__ == "mmap"


def test_one_mapping_for_all_tensors_of_a_file(tmp_path):
    count = 600
    (tmp_path / "weights.bin").write_bytes(np.arange(count, dtype=np.float32).tobytes())
    sums = onnx.helper.make_node("Sum", [f"w{i}" for i in range(count)], ["y"])
    tensors = [external(f"w{i}", np.zeros(1, np.float32), "weights.bin", offset=4 * i) for i in range(count)]
    path = write(tmp_path, [sums], output(1), tensors)
    before = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else None
    model = load(path)
    assert [int(model.graph.initializers[f"w{i}"].const_value.numpy()[0]) for i in range(count)] == list(range(count))
    if before is not None:
        assert len(os.listdir("/proc/self/fd")) <= before + 1


def test_folders_below_and_links_inside_are_fine(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "real.bin").write_bytes(WEIGHT.tobytes())
    (tmp_path / "link.bin").symlink_to(tmp_path / "data" / "real.bin")
    for location in ("data/real.bin", "./data/../link.bin"):
        np.testing.assert_array_equal(weight_of(load(save(tmp_path, location))), WEIGHT)


def test_the_models_folder_may_itself_be_reached_through_a_link(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "weights.bin").write_bytes(WEIGHT.tobytes())
    save(tmp_path / "real")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    np.testing.assert_array_equal(weight_of(load(tmp_path / "link" / "model.onnx")), WEIGHT)


def test_hard_links_are_files_like_others(tmp_path):
    """Package managers install with them."""
    (tmp_path / "cache.bin").write_bytes(WEIGHT.tobytes())
    os.link(tmp_path / "cache.bin", tmp_path / "weights.bin")
    np.testing.assert_array_equal(weight_of(load(save(tmp_path))), WEIGHT)


@pytest.mark.parametrize("way", ["above", "absolute", "backslash", "link to a file", "link to a folder", "empty"])
def test_locations_that_leave_the_folder_are_refused_before_anything_is_opened(tmp_path, way, monkeypatch):
    folder = tmp_path / "model"
    folder.mkdir()
    secret = tmp_path / "secret.bin"
    secret.write_bytes(WEIGHT.tobytes())
    (folder / "file.bin").symlink_to(secret)
    (folder / "folder").symlink_to(tmp_path)
    location = {
        "above": "../secret.bin",
        "absolute": str(secret),
        "backslash": "..\\secret.bin",
        "link to a file": "file.bin",
        "link to a folder": "folder/secret.bin",
        "empty": "",
    }[way]
    path = save(folder, location)
    opened = []
    monkeypatch.setattr("gossamer.model.tensors._map", opened.append)
    with pytest.raises(
        InvalidGraph,
        match=r"model\.onnx: the initializer 'w' is kept in .* leaves the model's folder .*copy of the file",
    ):
        load(path)
    assert not opened


def test_constants_in_nodes_are_checked_too(tmp_path):
    node = onnx.helper.make_node("Constant", [], ["w"], name="const")
    node.attribute.add(name="value", type=onnx.AttributeProto.TENSOR, t=external("w", WEIGHT, "weights.bin"))
    path = write(tmp_path, [node, onnx.helper.make_node("Neg", ["w"], ["y"])], output(2, 3))
    with pytest.raises(NoSuchFile, match=r"the attribute 'value' of Constant 'const' is kept in 'weights\.bin'"):
        load(path)
    (tmp_path / "weights.bin").write_bytes(WEIGHT.tobytes())
    np.testing.assert_array_equal(load(path).graph[0].attributes["value"].as_tensor().numpy(), WEIGHT)


def test_missing_and_short_files(tmp_path):
    path = save(tmp_path)
    with pytest.raises(
        NoSuchFile, match=r"model\.onnx: the initializer 'w' is kept in 'weights\.bin', and there is no file"
    ):
        load(path)
    (tmp_path / "weights.bin").write_bytes(WEIGHT.tobytes()[:-1])
    with pytest.raises(
        InvalidGraph, match=r"'w' is kept at bytes 0 to 24 of .*weights\.bin, which has 23; .*truncated"
    ):
        load(path)
    (tmp_path / "weights.bin").write_bytes(b"")
    with pytest.raises(InvalidGraph, match="which has 0"):
        load(path)


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"length": 20}, r"'w', FLOAT\[2, 3\], needs 24 bytes, and the model gives it 20"),
        ({"offset": -4}, "offset must be non-negative, got -4 for tensor .w."),
        ({"offset": "x"}, "invalid literal"),
    ],
)
def test_wrong_lengths_and_offsets(tmp_path, how, words):
    (tmp_path / "weights.bin").write_bytes(WEIGHT.tobytes())
    with pytest.raises(InvalidGraph, match=words):
        load(save(tmp_path, **how))


def test_bytes_and_protobufs_have_no_folder(tmp_path):
    path = save(tmp_path)
    (tmp_path / "weights.bin").write_bytes(WEIGHT.tobytes())
    for source in (path.read_bytes(), onnx.load(path, load_external_data=False)):
        with pytest.raises(
            InvalidGraph,
            match=r"'w' is kept in another file, 'weights.bin', .*give the model's path, or load it with onnx.load",
        ):
            load(source)
    np.testing.assert_array_equal(weight_of(load(onnx.load(path))), WEIGHT)


@pytest.mark.parametrize(
    "dtype",
    [
        *(np.float16, ml_dtypes.bfloat16, np.int64, np.bool_, ml_dtypes.float8_e4m3fn, ml_dtypes.float4_e2m1fn),
        *(ml_dtypes.int2, ml_dtypes.uint2, ml_dtypes.int4, ml_dtypes.uint4),
    ],
)
def test_other_element_types(tmp_path, dtype):
    values = np.array([1, 0, 1], np.float32).astype(dtype)
    raw = onnx.numpy_helper.from_array(values).raw_data
    (tmp_path / "weights.bin").write_bytes(b"\0" + raw)  # unaligned on purpose
    kind = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    weight = external("w", values, "weights.bin", offset=1)
    path = write(tmp_path, [onnx.helper.make_node("Identity", ["w"], ["y"])], output(3, kind=kind), [weight], opset=21)
    found = load(path).graph.initializers["w"].const_value
    assert found.dtype == kind
    np.testing.assert_array_equal(found.numpy().astype(np.float32), values.astype(np.float32))
    assert found.tobytes() == raw


def test_empty_tensors(tmp_path):
    (tmp_path / "weights.bin").write_bytes(b"")
    weight = external("w", np.zeros((0, 3), np.float32), "weights.bin")
    path = write(tmp_path, [onnx.helper.make_node("Neg", ["w"], ["y"])], output(0, 3), [weight])
    assert weight_of(load(path)).shape == (0, 3)


def test_what_is_saved_again_holds_the_weights_itself(tmp_path):
    (tmp_path / "weights.bin").write_bytes(WEIGHT.tobytes())
    proto = ir.to_proto(load(save(tmp_path)))
    assert proto.graph.initializer[0].raw_data == WEIGHT.tobytes()
