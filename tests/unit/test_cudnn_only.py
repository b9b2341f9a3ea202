"""What happens to nodes that must run through cuDNN where there is none. The null device compiles and places them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import parser

import gossamer
from gossamer.cli import app
from gossamer.cudnn import loader
from gossamer.errors import CudnnUnavailable, NotImplemented
from gossamer.options import CUDNN_OPERATORS, CudaOptions

ONE_NODE = {
    "Conv": "y = Conv (x, w)",
    "ConvTranspose": "y = ConvTranspose (x, w)",
    "FusedConv": 'y = com.microsoft.FusedConv <activation = "Relu"> (x, w)',
    "NhwcConv": "y = com.microsoft.NhwcConv (n, nw)",
    "MaxPool": "y = MaxPool <kernel_shape = [2,2]> (x)",
    "AveragePool": "y = AveragePool <kernel_shape = [2,2]> (x)",
    "GlobalMaxPool": "y = GlobalMaxPool (x)",
    "GlobalAveragePool": "y = GlobalAveragePool (x)",
    "BatchNormalization": "y = BatchNormalization (x, v, v, v, v)",
    "InstanceNormalization": "y = InstanceNormalization (x, v, v)",
    "LRN": "y = LRN <size = 3> (x)",
    "RNN": "y = RNN <hidden_size = 2> (t, r1, r2)",
    "LSTM": "y = LSTM <hidden_size = 2> (t, l1, l2)",
    "GRU": "y = GRU <hidden_size = 2> (t, g1, g2)",
    "Attention": "y = Attention (q, q, q)",
    "MultiHeadAttention": "y = com.microsoft.MultiHeadAttention <num_heads = 2> (h, h, h)",
}
SHAPES = {
    "x": (1, 4, 8, 8), "w": (4, 4, 1, 1), "v": (4,), "t": (3, 2, 4), "q": (1, 2, 8, 16), "h": (1, 8, 32),
    "n": (1, 8, 8, 4), "nw": (4, 1, 1, 4),
    "r1": (1, 2, 4), "r2": (1, 2, 2), "l1": (1, 8, 4), "l2": (1, 8, 2), "g1": (1, 6, 4), "g2": (1, 6, 2),
}  # fmt: skip


def feeds_of(body: str) -> dict[str, np.ndarray]:
    arguments = body[body.rindex("(") + 1 : body.rindex(")")].replace(" ", "").split(",")
    return {name: np.full(SHAPES[name], 0.5, np.float32) for name in dict.fromkeys(arguments)}


def session_of(body: str, **options: object) -> gossamer.InferenceSession:
    inputs = ", ".join(f"float[{','.join(map(str, SHAPES[name]))}] {name}" for name in feeds_of(body))
    text = (
        f"""<ir_version: 10, opset_import: ["" : 23, "com.microsoft" : 1]> g ({inputs}) => (float[?] y) {{ {body} }}"""
    )
    model = parser.parse_model(text.replace("float[?] y", "y"))
    model.graph.node[0].name = "the_node"
    providers = [("CUDAExecutionProvider", {"device": "null", **options}), "CPUExecutionProvider"]
    return gossamer.InferenceSession(model.SerializeToString(), providers=providers)


def test_every_operator_is_here() -> None:
    assert set(ONE_NODE) == set(CUDNN_OPERATORS)


@pytest.mark.parametrize("op", CUDNN_OPERATORS)
def test_disabled(op: str) -> None:
    """R5: the exact text, and the node; R3.4: it is not the text for a cuDNN that is missing."""
    session = session_of(ONE_NODE[op], cudnn_only=[op], enable_cudnn=0)
    with pytest.raises(NotImplemented) as raised:
        session.run(None, feeds_of(ONE_NODE[op]))
    text = f"Operator '{op}' on the CUDA EP requires cuDNN, "
    wanted = text + "but cuDNN was disabled by the CUDA provider option 'enable_cudnn'."
    assert str(raised.value) == f"{wanted} (node 'the_node')"
    assert raised.value.code == "NOT_IMPLEMENTED"


@pytest.mark.parametrize("op", CUDNN_OPERATORS)
def test_missing(op: str) -> None:
    """R5: raised when the node runs, not when the session is made, and nothing goes to the CPU."""
    with loader.force_absent():
        session = session_of(ONE_NODE[op], cudnn_only=op)
        with pytest.raises(CudnnUnavailable) as raised:
            session.run(None, feeds_of(ONE_NODE[op]))
    wanted = (
        f"Operator '{op}' on the CUDA EP requires cuDNN, but cuDNN was not found at runtime. "
        "Install cuDNN, or disable CUDA execution for this op/model."
    )
    assert str(raised.value).startswith(wanted)
    assert set(session.placement().counts()) == {"CUDAExecutionProvider"}
    assert wanted in str(session.placement())


@pytest.mark.parametrize(("enabled", "reason"), [(0, "was disabled by"), (1, "was not found at runtime")])
def test_inspect_shows_what_would_raise_before_it_runs(
    enabled: int, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """R5."""
    model = tmp_path / "two.onnx"
    text = """<ir_version: 10, opset_import: ["" : 21]> g (float[1,4,8,8] x) => (float[1,4,8,8] y) {
        [fine] a = Relu (x) [the_node] y = LRN <size = 3> (a) }"""
    onnx.save(parser.parse_model(text), model)

    def printed(*more: str) -> str:
        options = ("--option", "cudnn_only=LRN", "--option", f"enable_cudnn={enabled}")
        monkeypatch.setattr("sys.argv", ["gossamer", "inspect", str(model), "--device", "null", *options, *more])
        with loader.force_absent(), pytest.raises(SystemExit):
            app.main()
        return capsys.readouterr().out

    error = f"Operator 'LRN' on the CUDA EP requires cuDNN, but cuDNN {reason}"
    (line,) = [line for line in printed().splitlines() if "would raise" in line]
    assert line.startswith(f"  would raise: {error}")
    assert line.endswith("(node 'the_node')")
    fine, raising = json.loads(printed("--json"))["placement"]
    assert (fine["node"], fine["would_raise"]) == ("fine", "")
    assert raising["would_raise"].startswith(error)


def test_others_run_natively() -> None:
    with loader.force_absent():
        session = session_of(ONE_NODE["Conv"], cudnn_only="LRN,MaxPool")
        session.run(None, feeds_of(ONE_NODE["Conv"]))
    assert session.placement().nodes[0].would_raise == ""


def test_a_cudnn_that_comes_later_is_noticed() -> None:
    """R1.7: what was missing when a signature was compiled is looked for again once something was preloaded."""
    with loader.force_absent():
        session = session_of(ONE_NODE["Conv"], cudnn_only="Conv")
        with pytest.raises(CudnnUnavailable, match="not found"):
            session.run(None, feeds_of(ONE_NODE["Conv"]))
    found = loader.Library(loader.State.INCOMPATIBLE, "of another reason.")
    with loader.forced(found), pytest.raises(CudnnUnavailable, match="of another reason"):
        session.run(None, feeds_of(ONE_NODE["Conv"]))


def test_names_are_checked_and_kept_in_order() -> None:
    """R3.1, R3.2 for this option."""
    options = CudaOptions.parse({"cudnn_only": ["LRN", "Conv"]})
    assert options.cudnn_only == ("Conv", "LRN")
    assert CudaOptions.parse(options.as_provider_options()) == options
    assert CudaOptions.parse({"cudnn_only": "Conv, LRN"}) == options
    assert CudaOptions.parse({}).cudnn_only == ()
    with pytest.raises(gossamer.InvalidArgument, match="cudnn_only='Softmax': accepted are names separated by commas"):
        CudaOptions.parse({"cudnn_only": "Softmax"})
