"""Compiled models as files: written the same way each time, read by other programs, and read back whole."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

from compiled_files import ALL_DTYPES, DESCRIPTION, KERNEL, WEIGHTS, compiled, program, tensor, variant
from gossamer.errors import ArtifactError, InvalidArgument, NoSuchFile
from gossamer.program import Target
from gossamer.program.archive import write_archive
from gossamer.program.artifact import WEIGHTS as WEIGHTS_MEMBER
from gossamer.program.artifact import Artifact, Variant, open_artifact, write_artifact
from gossamer.program.tensors import read_tensors, tensor_chunks


@pytest.fixture
def artifact(tmp_path: Path) -> Artifact:
    return open_artifact(compiled(tmp_path))


def test_programs_and_machine_code_come_back(artifact: Artifact) -> None:
    for target in ("sm_80", "sm_90"):
        for rows in (2, 8):
            got, want = artifact.variant(target, {"x": (rows, 4)}), variant(target, rows)
            assert str(got.program) == str(want.program)
            assert got.program.calls == want.program.calls
            assert got.program.locations == want.program.locations
            assert got.cubins == want.cubins


def test_the_description_comes_back(artifact: Artifact) -> None:
    assert artifact.description == DESCRIPTION
    assert artifact.targets == (Target.named("sm_80"), Target.named("sm_90"))
    assert artifact.signatures("sm_80") == ({"x": (2, 4)}, {"x": (8, 4)})


def test_weights_are_those_in_use_once_in_place_and_read_only(artifact: Artifact) -> None:
    assert list(artifact.weights) == ["w"]
    weight = artifact.weights["w"]
    np.testing.assert_array_equal(weight, WEIGHTS["w"])
    assert not weight.flags.owndata
    assert not weight.flags.writeable
    assert sum(name == WEIGHTS_MEMBER for name in artifact.members) == 1


def test_verify_passes(artifact: Artifact) -> None:
    artifact.verify()


def test_weights_outlive_the_artifact(tmp_path: Path) -> None:
    weight = open_artifact(compiled(tmp_path)).weights["w"]
    (tmp_path / "small.gossamer").unlink()
    np.testing.assert_array_equal(weight, WEIGHTS["w"])


def test_same_input_same_bytes_in_any_order(tmp_path: Path) -> None:
    variants = [variant(target, rows) for target in ("sm_90", "sm_80") for rows in (8, 2)]
    write_artifact(tmp_path / "a", DESCRIPTION, variants, WEIGHTS)
    write_artifact(tmp_path / "b", DESCRIPTION, variants[::-1], dict(reversed(WEIGHTS.items())))
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_the_device_it_was_compiled_on_is_forgotten(tmp_path: Path) -> None:
    on_second = compiled(tmp_path, (variant(device=1),)).read_bytes()
    assert on_second == compiled(tmp_path, (variant(),)).read_bytes()
    assert open_artifact(tmp_path / "small.gossamer").variant("sm_90", {"x": (2, 4)}).program.target.device is None


def test_other_programs_read_it(tmp_path: Path) -> None:
    path = compiled(tmp_path)
    with zipfile.ZipFile(path) as file:
        assert file.testzip() is None
        names = [info.filename for info in file.infolist()]
        assert names[0] == "manifest.json"
        assert names[1:] == sorted(names[1:])
        assert {info.compress_type for info in file.infolist()} == {zipfile.ZIP_STORED}
        assert {info.date_time for info in file.infolist()} == {(1980, 1, 1, 0, 0, 0)}
        manifest = json.loads(file.read("manifest.json"))
        assert manifest["versions"]["triton"] == "3.9.0"
        assert manifest["members"].keys() == set(names[1:])
        tensors = safetensors.numpy.load(file.read(WEIGHTS_MEMBER))
    np.testing.assert_array_equal(tensors["w"], WEIGHTS["w"])


def test_data_begin_at_multiples_of_64_bytes(tmp_path: Path) -> None:
    path = compiled(tmp_path)
    data = path.read_bytes()
    with zipfile.ZipFile(path) as file:
        for info in file.infolist():
            name_bytes, extra_bytes = (int.from_bytes(data[info.header_offset + at :][:2], "little") for at in (26, 28))
            begin = info.header_offset + 30 + name_bytes + extra_bytes
            assert begin % 64 == 0
            assert data[begin : begin + info.file_size] == file.read(info)
    assert open_artifact(path).weights["w"].ctypes.data % 64 == 0


def test_equal_bytes_are_one_member(tmp_path: Path) -> None:
    names = open_artifact(compiled(tmp_path)).members
    folders = [name.partition("/")[0] for name in names]
    assert folders.count("cubins") == 2, "one per target, for two signatures each"
    assert folders.count("data") == 3, "a plan per target, one ONNX model"
    assert folders.count("programs") == 4


@pytest.mark.parametrize("dtype", ALL_DTYPES)
@pytest.mark.parametrize("shape", [(), (0, 3), (3, 5)])
def test_weights_of_every_dtype_and_rank(dtype: str, shape: tuple[int, ...]) -> None:
    tensors = {"first": tensor(dtype, shape), "bytes": np.ones(3, np.uint8), "longs": np.ones(2, np.int64)}
    read = read_tensors(memoryview(b"".join(tensor_chunks(tensors)())))
    assert read.keys() == tensors.keys()
    for key, array in tensors.items():
        assert (read[key].dtype, read[key].shape) == (array.dtype, array.shape)
        assert read[key].tobytes() == array.tobytes()


@pytest.mark.parametrize("dtype", dict.fromkeys(ALL_DTYPES))
def test_the_safetensors_package_reads_every_weight(dtype: str) -> None:
    data = b"".join(tensor_chunks({"first": tensor(dtype, (3, 5)), "scalar": tensor("float32", ())})())
    ((_, scalar), (_, first)) = sorted(safetensors.deserialize(data), key=lambda entry: entry[0] == "first")
    assert bytes(first["data"]) == tensor(dtype, (3, 5)).tobytes()
    assert scalar["shape"] == []


def test_weights_without_order_in_memory_are_stored_in_order() -> None:
    transposed = np.arange(6, dtype=np.float16).reshape(2, 3).T
    read = read_tensors(memoryview(b"".join(tensor_chunks({"t": transposed})())))
    np.testing.assert_array_equal(read["t"], transposed)


@pytest.mark.parametrize("array", [np.array(["text"], object), np.array(["text"]), np.zeros(2, "V3")], ids=repr)
def test_weights_that_are_no_data_are_refused(array: np.ndarray) -> None:
    with pytest.raises(InvalidArgument, match="constant 'w' is of dtype"):
        tensor_chunks({"w": array})


def test_a_target_that_is_not_in_the_file(artifact: Artifact) -> None:
    with pytest.raises(InvalidArgument, match="no target 'sm_100'; it was compiled for sm_80, sm_90"):
        artifact.variant("sm_100", {"x": (2, 4)})


@pytest.mark.parametrize(
    ("shapes", "text"),
    [
        ({"x": (3, 4)}, "input 'x' has shape 3×4, and the file holds 2×4 and 8×4"),
        ({"z": (2, 4)}, "there is no input 'z'; the inputs are x"),
        ({}, "the shape of input 'x' is not given; the file holds 2×4 and 8×4"),
    ],
)
def test_shapes_that_are_not_in_the_file(artifact: Artifact, shapes: dict[str, tuple[int, ...]], text: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        artifact.variant("sm_90", shapes)
    assert text in str(caught.value)
    assert artifact.path in str(caught.value)


def test_shapes_that_are_in_the_file_but_not_together(tmp_path: Path) -> None:
    def of_two(rows: int, columns: int) -> Variant:
        made = program(rows=rows)
        second = replace(made.buffers["x"], name="x2", shape=(columns,))
        return Variant(
            replace(
                made,
                inputs=("x", "x2"),
                buffers={**made.buffers, "x2": second},
                locations={**made.locations, "x2": made.locations["x"]},
            ),
            variant().cubins,
        )

    opened = open_artifact(compiled(tmp_path, (of_two(2, 1), of_two(8, 4))))
    with pytest.raises(InvalidArgument, match=r"x=2×4, x2=4 are no signature .* x=2×4, x2=1; x=8×4, x2=4"):
        opened.variant("sm_90", {"x": (2, 4), "x2": (4,)})


@pytest.mark.parametrize(("arch", "name"), [(80, "sm_80"), (86, "sm_80"), (89, "sm_80"), (90, "sm_90")])
def test_the_target_for_a_gpu(artifact: Artifact, arch: int, name: str) -> None:
    assert artifact.target_for(arch, 1).name == name


@pytest.mark.parametrize("arch", [75, 100, 120])
def test_no_target_for_a_gpu(artifact: Artifact, arch: int) -> None:
    with pytest.raises(ArtifactError) as caught:
        artifact.target_for(arch, 1)
    assert caught.value.reason == "TARGET_MISMATCH"
    for part in ("compiled for sm_80, sm_90", f"this GPU is sm_{arch}", f"--target sm_80,sm_90,sm_{arch}"):
        assert part in str(caught.value)


def test_of_two_targets_for_a_gpu_the_one_of_its_size(tmp_path: Path) -> None:
    small = replace(program(), target=replace(Target.named("sm_90"), name="h100_pcie", sm_count=114))
    opened = open_artifact(compiled(tmp_path, (variant(), Variant(small, variant().cubins))))
    assert opened.target_for(90, 114).name == "h100_pcie"
    assert opened.target_for(90, 132).name == "sm_90"


def test_the_interpreter_needs_no_machine_code(tmp_path: Path) -> None:
    opened = open_artifact(compiled(tmp_path, (Variant(program("interpreter"), {}),)))
    assert opened.variant("interpreter", {"x": (2, 4)}).cubins == {}
    with pytest.raises(ArtifactError, match="TARGET_MISMATCH"):
        opened.target_for(90, 132)


def test_two_programs_for_one_signature_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="two Programs for sm_90 and inputs x=2×4"):
        compiled(tmp_path, (variant(), variant()))


def test_two_targets_of_one_name_are_refused(tmp_path: Path) -> None:
    other = replace(program(rows=8), target=replace(Target.named("sm_90"), sm_count=114))
    with pytest.raises(InvalidArgument, match="two targets 'sm_90' that differ"):
        compiled(tmp_path, (variant(), Variant(other, variant().cubins)))


def test_missing_weights_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="weights are missing for small: w"):
        write_artifact(tmp_path / "f", DESCRIPTION, [variant()], {})


def test_missing_machine_code_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match=f"machine code is missing for small on sm_90: {KERNEL.name}"):
        write_artifact(tmp_path / "f", DESCRIPTION, [Variant(program(), {})], WEIGHTS)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(NoSuchFile, match="no file"):
        open_artifact(tmp_path / "absent")


def test_nothing_is_left_of_a_file_that_could_not_be_written(tmp_path: Path) -> None:
    readings = iter([[b"whole"]])

    def failing() -> list[bytes]:
        """Gives its bytes for the checksum, and fails when they are to be written."""
        for reading in readings:
            return reading
        raise OSError("no space")

    (tmp_path / "f").write_bytes(b"what was there")
    with pytest.raises(OSError, match="no space"):
        write_archive(tmp_path / "f", {"x": failing}, lambda _: b"{}")
    assert os.listdir(tmp_path) == ["f"]
    assert (tmp_path / "f").read_bytes() == b"what was there"


def test_reading_imports_neither_onnx_nor_triton_nor_the_driver(tmp_path: Path) -> None:
    code = (
        "import sys; from gossamer.program.artifact import open_artifact; "
        f"open_artifact({str(compiled(tmp_path))!r}).verify(); "
        "print(sorted({'onnx', 'onnx_ir', 'triton', 'cuda', 'onnxruntime'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
