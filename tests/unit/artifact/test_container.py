"""Compiled models as files: written the same way each time, read by other programs, and read back whole."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

from compiled_files import ALL_DTYPES, DESCRIPTION, KERNEL, WEIGHTS, compiled, program, tensor, variant
from gossamer.errors import ArtifactError, InvalidArgument, NoSuchFile
from gossamer.program import Call, Origin, PythonCall, Target, TensorValue, Unavailable
from gossamer.program.archive import Archive, write_archive
from gossamer.program.artifact import WEIGHTS as WEIGHTS_MEMBER
from gossamer.program.artifact import Artifact, Variant, is_compiled, open_artifact, write_artifact
from gossamer.program.manifest import Slot
from gossamer.program.tensors import read_tensors, tensor_chunks


@pytest.fixture
def artifact(tmp_path: Path) -> Artifact:
    return open_artifact(compiled(tmp_path))


def test_programs_and_machine_code_come_back(artifact: Artifact) -> None:
    for target in ("sm_80", "sm_90"):
        for rows in (2, 8):
            for cudnn in (False, True):
                got = artifact.variant(target, {"x": (rows, 4)}, cudnn=cudnn)
                want = variant(target, rows, cudnn=cudnn)
                assert str(got.program) == str(want.program)
                assert got.program.calls == want.program.calls
                assert got.program.locations == want.program.locations
                assert got.cubins == want.cubins
                assert got.placement == want.placement


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


def test_threads_that_ask_at_once_compare_the_weights_once(artifact: Artifact, monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[str] = []
    compare = artifact._compare

    def slowly(name: str, data: bytes | memoryview) -> None:
        compared.append(name)
        time.sleep(0.05)
        compare(name, data)

    monkeypatch.setattr(artifact, "_compare", slowly)
    threads = [threading.Thread(target=lambda: artifact.weights) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert compared == [WEIGHTS_MEMBER]


def test_verify_passes(artifact: Artifact) -> None:
    artifact.verify()


def test_weights_outlive_the_artifact(tmp_path: Path) -> None:
    weight = open_artifact(compiled(tmp_path)).weights["w"]
    (tmp_path / "small.gossamer").unlink()
    np.testing.assert_array_equal(weight, WEIGHTS["w"])


def test_same_input_same_bytes_in_any_order(tmp_path: Path) -> None:
    variants = [
        variant(target, rows, cudnn=cudnn)
        for target in ("sm_90", "sm_80")
        for cudnn in (True, False)
        for rows in (8, 2)
    ]
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
    assert folders.count("programs") == 8


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
        with_second = replace(
            made,
            inputs=("x", "x2"),
            buffers={**made.buffers, "x2": second},
            locations={**made.locations, "x2": made.locations["x"]},
        )
        return replace(variant(), program=with_second)

    both = replace(DESCRIPTION, inputs=(*DESCRIPTION.inputs, Slot("x2", "float32", ("M",))))
    write_artifact(tmp_path / "f", both, [of_two(2, 1), of_two(8, 4)], WEIGHTS)
    opened = open_artifact(tmp_path / "f")
    with pytest.raises(InvalidArgument, match=r"x=2×4, x2=4 are no signature .* x=2×4, x2=1; x=8×4, x2=4"):
        opened.variant("sm_90", {"x": (2, 4), "x2": (4,)})


def held(folder: Path, *targets: Target) -> Artifact:
    """A file for these targets."""
    of_each = [replace(variant(), program=replace(program(), target=target)) for target in targets]
    return open_artifact(compiled(folder, tuple(of_each)))


ORIN = Target("sm_87", 87, 16, 167936)


@pytest.mark.parametrize(
    ("present", "name"), [("a100-40gb", "sm_80"), (ORIN, "sm_80"), ("sm_90", "sm_90"), ("gh200", "sm_90")]
)
def test_the_target_for_a_gpu(artifact: Artifact, present: str | Target, name: str) -> None:
    assert artifact.target_for(Target.named(present) if isinstance(present, str) else present).name == name


@pytest.mark.parametrize("present", ["sm_75", "sm_86", "sm_89", "sm_100", "sm_120"])
def test_no_target_for_a_gpu(artifact: Artifact, present: str) -> None:
    """Kernels for sm_80 may use shared memory that sm_86 and sm_89 do not have."""
    with pytest.raises(ArtifactError) as caught:
        artifact.target_for(Target.named(present))
    assert caught.value.reason == "TARGET_MISMATCH"
    for part in ("compiled for sm_80, sm_90", f"this GPU is {present};", f"--target sm_80,sm_90,{present}"):
        assert part in str(caught.value)


def test_machine_code_for_an_earlier_revision(tmp_path: Path) -> None:
    opened = held(tmp_path, Target.named("sm_86"))
    assert opened.target_for(Target.named("l4")).name == "sm_86"
    with pytest.raises(ArtifactError, match=r"compiled for sm_86, and this GPU is sm_80;"):
        opened.target_for(Target.named("sm_80"))


def test_a_mismatch_names_what_is_held_and_how_to_get_the_rest(tmp_path: Path) -> None:
    opened = held(tmp_path, *map(Target.named, ("h100-pcie", "h200")))
    with pytest.raises(
        ArtifactError, match=r"compiled for h100-pcie \(sm_90\), h200 \(sm_90\), and this GPU is sm_80; "
    ):
        opened.target_for(Target.named("a100-80gb"))
    unknown = Target("sm_103", 103, 160, 232448)
    with pytest.raises(ArtifactError, match=r"target dump -o this-gpu\.json, and then gossamer .*h200,this-gpu\.json"):
        opened.target_for(unknown)


def test_of_two_targets_for_a_gpu_the_one_of_its_size(tmp_path: Path) -> None:
    opened = held(tmp_path, *map(Target.named, ("h100-pcie", "h200")))
    assert opened.target_for(Target.named("h100-pcie")).name == "h100-pcie"
    assert opened.target_for(Target.named("h100-sxm")).name == "h200"
    assert opened.target_for(replace(Target.named("sm_90"), sm_count=120)).name == "h100-pcie"


def test_the_interpreter_needs_no_machine_code(tmp_path: Path) -> None:
    opened = open_artifact(compiled(tmp_path, (replace(variant("interpreter"), cubins={}),)))
    assert opened.variant("interpreter", {"x": (2, 4)}).cubins == {}
    assert opened.needs("interpreter", {"x": (2, 4)}) == ("onnxruntime", "triton")
    with pytest.raises(ArtifactError, match="TARGET_MISMATCH"):
        opened.target_for(Target.named("sm_90"))


@pytest.mark.parametrize(("cudnn", "text"), [(False, "x=2×4$"), (True, "x=2×4 that use cuDNN$")])
def test_two_programs_of_a_kind_for_one_signature_are_refused(tmp_path: Path, cudnn: bool, text: str) -> None:
    with pytest.raises(InvalidArgument, match=f"two Programs for sm_90 and inputs {text}"):
        compiled(tmp_path, (variant(), *[variant(cudnn=cudnn)] * 2))


def test_a_program_that_uses_cudnn_is_never_alone(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="sm_90 and inputs x=8×4 uses cuDNN, and there is none that runs without"):
        compiled(tmp_path, (variant(), variant(cudnn=True), variant(rows=8, cudnn=True)))


def test_the_native_program_is_given_unless_the_other_is_asked_for_and_there(tmp_path: Path) -> None:
    opened = open_artifact(compiled(tmp_path, (variant(), variant(cudnn=True), variant(rows=8))))
    small, large = {"x": (2, 4)}, {"x": (8, 4)}
    assert opened.signatures("sm_90") == (small, large)
    assert [opened.variant("sm_90", small, cudnn=cudnn).uses_cudnn for cudnn in (False, True)] == [False, True]
    assert not opened.variant("sm_90", small).uses_cudnn
    assert not opened.variant("sm_90", large, cudnn=True).uses_cudnn


def test_what_programs_need_is_known_without_reading_them(tmp_path: Path) -> None:
    opened = open_artifact(compiled(tmp_path))
    shapes = {"x": (2, 4)}
    assert opened.needs("sm_90", shapes) == ("onnxruntime",)
    assert opened.needs("sm_90", shapes, cudnn=True) == ("cudnn", "onnxruntime")
    with pytest.raises(InvalidArgument, match="input 'x' has shape 9×4, and the file holds 2×4 and 8×4"):
        opened.needs("sm_90", {"x": (9, 4)})


def with_calls(*calls: Call) -> Variant:
    made = program()
    return replace(variant(), program=replace(made, calls=(*made.calls[:2], *calls)))


def test_custom_operators_are_named_among_what_is_needed(tmp_path: Path) -> None:
    """Their attributes, tensors and tuples among them, come back too."""
    table = TensorValue("int64", (2,), bytes(range(16)))
    attributes = (("alpha", 0.5), ("axes", (0, (1, "two"))), ("table", table))
    call = PythonCall("my.domain", "Filter", attributes, ("b", None), ("y",), cudnn=True)
    opened = open_artifact(compiled(tmp_path, (with_calls(call),)))
    assert opened.needs("sm_90", {"x": (2, 4)}) == ("python:my.domain.Filter",)
    assert opened.variant("sm_90", {"x": (2, 4)}).program.calls[-1] == call


def test_a_node_that_waits_for_a_cudnn_is_refused(tmp_path: Path) -> None:
    waiting = Unavailable("Conv", "cuDNN is not here.", ("b",), ("y",), origin=Origin("c1", "Conv"))
    with pytest.raises(InvalidArgument, match="small has to run through a cuDNN that is not here: Conv 'c1'"):
        compiled(tmp_path, (with_calls(waiting),))


def test_where_nodes_run_reads_as_it_did_when_they_were_placed(tmp_path: Path) -> None:
    placed = variant(cudnn=True).placement
    got = open_artifact(compiled(tmp_path)).variant("sm_90", {"x": (2, 4)}, cudnn=True).placement
    assert got.summary() == "CUDAExecutionProvider: 2 nodes, CPUExecutionProvider: 1 node (NonZero)"
    assert str(got) == str(placed)
    assert str(got).splitlines()[1:3] == ["CUDAExecutionProvider  Conv 'conv', through cuDNN", "    measured"]


@pytest.mark.parametrize(
    ("content", "is_one"),
    [(b"PK\3\4" + bytes(26) + b"manifest.json", True), (b"PK\3\4" + bytes(40), False), (b"", False), (b"\x08", False)],
)
def test_a_compiled_model_is_known_by_its_beginning(tmp_path: Path, content: bytes, is_one: bool) -> None:
    (tmp_path / "f.onnx").write_bytes(content)
    assert is_compiled(tmp_path / "f.onnx") == is_one
    assert is_compiled(compiled(tmp_path))
    assert not is_compiled(tmp_path)
    assert not is_compiled(tmp_path / "absent")


def test_two_targets_of_one_name_are_refused(tmp_path: Path) -> None:
    other = replace(program(rows=8), target=replace(Target.named("sm_90"), sm_count=114))
    with pytest.raises(InvalidArgument, match="two targets 'sm_90' that differ"):
        compiled(tmp_path, (variant(), replace(variant(), program=other)))


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"inputs": ()}, "small has the inputs x, and the model $"),
        ({"inputs": (Slot("x", "float64", ("N", 4)),)}, "small has 'x' of dtype float32, and the model of float64"),
        ({"outputs": (Slot("z", "float32", ("N", 4)),)}, "small has the outputs y, and the model z"),
    ],
    ids=str,
)
def test_programs_of_another_model_are_refused(tmp_path: Path, changes: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidArgument, match=text):
        write_artifact(tmp_path / "f", replace(DESCRIPTION, **changes), [variant()], WEIGHTS)


def test_a_model_without_programs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="there is no Program of small"):
        write_artifact(tmp_path / "f", DESCRIPTION, [], WEIGHTS)


def test_two_threads_that_write_one_file(tmp_path: Path) -> None:
    """One of them is the last; the other one's bytes are never mixed with its own."""
    both = threading.Barrier(2, timeout=5)

    def write(content: bytes) -> None:
        def chunks() -> Iterator[bytes]:
            yield content
            both.wait()
            yield content

        write_archive(tmp_path / "f", {"x": chunks}, lambda _: b"{}")

    writers = [threading.Thread(target=write, args=(bytes([number]) * 100_000,)) for number in range(2)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert len(set(bytes(Archive(tmp_path / "f").data_of("x")))) == 1
    assert os.listdir(tmp_path) == ["f"]


def test_missing_weights_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="weights are missing for small: w"):
        write_artifact(tmp_path / "f", DESCRIPTION, [variant()], {})


def test_missing_machine_code_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match=f"machine code is missing for small on sm_90: {KERNEL.name}"):
        write_artifact(tmp_path / "f", DESCRIPTION, [replace(variant(), cubins={})], WEIGHTS)


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
