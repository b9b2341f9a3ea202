"""What kernel tests share: one-node models, the CPU oracle, tolerances, and compiling kernels for architectures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir
from onnx import TensorProto, helper, numpy_helper

from gossamer.build.programs import build
from gossamer.model.node import Constants, Scope
from gossamer.place import CUDA, place
from gossamer.program import Kernel, Program, Target
from gossamer.providers.cudnn import NEVER, Policy

DOMAINS = {"com.microsoft": 1, "gossamer": 1}
ARCHITECTURES = (80, 89, 90, 100, 120)


def tensor_type(array: np.ndarray) -> int:
    if array.dtype == ml_dtypes.bfloat16:
        return TensorProto.BFLOAT16
    return helper.np_dtype_to_tensor_dtype(array.dtype)


def node_model(
    op_type: str,
    inputs: Sequence[np.ndarray | None],
    attributes: Mapping[str, Any] = {},
    *,
    opset: int = 21,
    domain: str = "",
    n_outputs: int = 1,
    constants: Sequence[int] = (),
    output_types: Sequence[tuple[int, Sequence[int]]] | None = None,
) -> onnx.ModelProto:
    """A model of one node. constants: indices of inputs that are initialisers. output_types: (element type, shape) per
    output, needed where onnx cannot infer them (operators of our own domains)."""
    names = ["" if array is None else f"x{i}" for i, array in enumerate(inputs)]
    outputs = [f"y{i}" for i in range(n_outputs)]
    domain = "ai.onnx.ml" if domain == "ml" else domain
    node = helper.make_node(op_type, names, outputs, name="node", domain=domain, **attributes)
    given = [(i, array) for i, array in enumerate(inputs) if array is not None]
    infos = [helper.make_tensor_value_info(f"x{i}", tensor_type(a), a.shape) for i, a in given if i not in constants]
    initializers = [numpy_helper.from_array(a, f"x{i}") for i, a in given if i in constants]
    if output_types is None:
        output_infos = [helper.make_empty_tensor_value_info(name) for name in outputs]
    else:
        output_infos = [helper.make_tensor_value_info(n, t, s) for n, (t, s) in zip(outputs, output_types, strict=True)]
    graph = helper.make_graph([node], "one_node", infos, output_infos, initializers)
    domains = DOMAINS | {"": opset, "gossamer.nhwc": opset}  # the channels-last domain has ONNX's versions
    imports = [helper.make_opsetid(d, v) for d, v in domains.items()]
    model = helper.make_model(graph, opset_imports=imports, ir_version=10)
    return model if output_types is not None else onnx.shape_inference.infer_shapes(model, data_prop=True)


def lower_model(model: onnx.ModelProto, target: Target, policy: Policy = NEVER) -> tuple[Program, Constants]:
    """The model's Program exactly as it stands: no pass touches it, no CPU provider helps. policy: about cuDNN."""
    graph_model = ir.serde.deserialize_model(model)
    constants = Constants()
    for name, value in graph_model.graph.initializers.items():
        constants.register(name, value.const_value)
    scope = Scope(constants, dict(graph_model.opset_imports))
    placement = place(graph_model, [CUDA], target, scope, policy=policy)
    return build(graph_model, placement, target, scope), constants


SMALL_GPU = replace(Target.named("sm_90"), sm_count=1)
"""A GPU of one multiprocessor: small inputs get the launches that large ones get elsewhere."""


def run_model(
    model: onnx.ModelProto,
    feeds: Mapping[str, np.ndarray],
    device: str | Target = "interpreter",
    policy: Policy = NEVER,
) -> list[np.ndarray]:
    """device: `cuda`; `interpreter`; or a target, or its name like `sm_90`, whose launches then are interpreted, with
    the tiles, splits and precision of products that a GPU has. policy: what a GPU does with cuDNN."""
    if device != "cuda":
        from gossamer.run.interpreter import InterpreterExecutor, enter_interpreter_mode

        enter_interpreter_mode()
        target = Target.named(device) if isinstance(device, str) else device
        program, constants = lower_model(model, target)
        results = InterpreterExecutor(constants).run(program, feeds)
    else:
        from gossamer.build.compilation import compile_kernels
        from gossamer.run.cuda import CudaExecutor, target_of_device

        program, constants = lower_model(model, target_of_device(0), policy)
        with CudaExecutor(constants, compile_kernels) as executor:
            results = executor.run(program, feeds)
    return [results[value.name] for value in model.graph.output]


def run_node(
    op_type: str,
    inputs: Sequence[np.ndarray | None],
    attributes: Mapping[str, Any] = {},
    *,
    device: str = "interpreter",
    constants: Sequence[int] = (),
    **model_arguments: Any,
) -> list[np.ndarray]:
    model = node_model(op_type, inputs, attributes, constants=constants, **model_arguments)
    feeds = {f"x{i}": a for i, a in enumerate(inputs) if a is not None and i not in constants}
    return run_model(model, feeds, device)


def ort(model: onnx.ModelProto, feeds: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """onnxruntime's CPU provider without its optimisations."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, dict(feeds))


def tolerance(dtype: np.dtype | str, reduction: int = 1) -> float:
    """Relative tolerance for results of `dtype` that add `reduction` products: rounding of the result plus the random
    walk of rounding errors of fp32 accumulation."""
    name = np.dtype(dtype).name if not isinstance(dtype, str) else dtype
    unit = {"float16": 2.0**-11, "bfloat16": 2.0**-8, "float32": 2.0**-24, "float64": 2.0**-53}[name]
    accumulation = 2.0**-53 if name == "float64" else 2.0**-24
    return 4 * unit + 8 * accumulation * reduction**0.5


def assert_close(
    got: np.ndarray,
    want: np.ndarray,
    reduction: int = 1,
    *,
    tf32: bool = False,
    scale: float | None = None,
    rtol: float | None = None,
) -> None:
    """got and want agree in shape, dtype and value. The error is measured against `scale`, by default the largest
    finite magnitude of `want`: sums cancel, so elementwise relative error says nothing. NaN and infinities must match.
    tf32: both operands of products were rounded to 10 bits of mantissa."""
    assert got.shape == want.shape, f"shape {got.shape}, expected {want.shape}"
    assert got.dtype == want.dtype, f"dtype {got.dtype}, expected {want.dtype}"
    if got.dtype.kind in "biuSOU" and got.dtype != ml_dtypes.bfloat16:
        np.testing.assert_array_equal(got, want)
        return
    exact, expected = got.astype(np.float64), want.astype(np.float64)
    finite = np.isfinite(expected)
    np.testing.assert_array_equal(exact[~finite], expected[~finite])
    if not finite.any():
        return
    allowed = rtol if rtol is not None else (2.0**-10 if tf32 else 0.0) + tolerance(got.dtype, reduction)
    size = scale if scale is not None else max(float(np.abs(expected[finite]).max()), 1e-30)
    error = np.abs(exact[finite] - expected[finite])
    worst = float(np.nan_to_num(error, nan=np.inf).max()) / size
    assert worst <= allowed, f"relative error {worst:.3g} at scale {size:.3g}, allowed {allowed:.3g}"


def kernels_of(model: onnx.ModelProto, target: str = "sm_90") -> tuple[Kernel, ...]:
    return lower_model(model, Target.named(target))[0].kernels


def compile_all(kernels: Sequence[Kernel], architectures: Sequence[int] = ARCHITECTURES) -> None:
    """Compiles every kernel for every architecture, in worker processes; raises what the compiler says."""
    from gossamer.build.compilation import compile_kernels

    for architecture in architectures:
        cubins = compile_kernels(kernels, Target.named(f"sm_{architecture}"))
        assert all(cubins[kernel].code[:4] == b"\x7fELF" for kernel in kernels)
