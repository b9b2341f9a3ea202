"""Every convolution of ResNet-50 and MobileNetV2 on a GPU: each candidate configuration, the model's choice, and cuDNN.

    python bench/convolution.py [--networks resnet50,mobilenet_v2] [--batches 1,32] [--dtype float16]
                                [--within 2.5] [--output times.json]

Every answer is checked against PyTorch's before it is timed. Times are medians of CUDA-graph replays in which the
activations stay where they are and the filters rotate through more memory than L2 holds, as they do in a network. All
kernels are compiled first, on all cores. `--output` keeps every measurement, for `bench/fit_convolution.py`.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import onnx_ir as ir
from onnx import helper, numpy_helper

from gossamer.build.compilation import compile_kernels
from gossamer.kernels.convolution import _convolve, is_depthwise
from gossamer.kernels.convolution_box_tiles import BoxTiles, choose_tiles, priced_boxes
from gossamer.kernels.convolution_epilogue import Epilogue, epilogue_of
from gossamer.kernels.convolution_geometry import convolution_of
from gossamer.kernels.convolution_inputs import cheapest_copy
from gossamer.kernels.convolution_tiles import extents_of, priced
from gossamer.kernels.depthwise import Patch, choose_patch, convolve_depthwise, runs_of
from gossamer.kernels.gemm_tiles import Tiles
from gossamer.model.node import CHANNELS_LAST, Constants, Node, Scope
from gossamer.program import Buffer, Launch, Target
from networks import NETWORKS, Layer

L2_BYTES = 120 * 2**20

Configuration: TypeAlias = Tiles | BoxTiles | Patch | None
"""None: on a copy of the input, with the tiles that are best for that."""


@dataclass
class Candidate:
    """A configuration of a layer: its launches, and what they refer to."""

    tiles: Configuration
    launches: list[Launch]
    buffers: dict[str, Buffer]
    constants: Constants
    weights: dict[str, str]
    microseconds: float = float("inf")
    error: float = float("inf")


@dataclass
class Problem:
    """A layer at a batch size with all its candidates. chosen: the index of the launch choice's."""

    layer: Layer
    batch: int
    dtype: str
    target: Target
    within: float
    candidates: list[Candidate] = field(default_factory=list)
    chosen: int = 0

    def __post_init__(self) -> None:
        rng = np.random.default_rng(0)
        layer, scale = self.layer, (self.layer.channels // self.layer.groups * self.layer.filter**2) ** -0.5
        shape = (layer.outputs, layer.channels // layer.groups, layer.filter, layer.filter)
        self.w = (rng.standard_normal(shape) * scale).astype(self.dtype)
        self.b = rng.standard_normal(layer.outputs).astype(self.dtype)
        choice, costs = self.configurations()
        wanted = [tiles for tiles, cost in costs.items() if tiles == choice or cost <= self.within * costs[choice]]
        self.candidates = [self._lowered(tiles) for tiles in wanted]
        self.chosen = wanted.index(choice)

    def _node(self) -> tuple[Node, Scope]:
        """A fresh one-node model."""
        layer, kind = self.layer, helper.np_dtype_to_tensor_dtype(np.dtype(self.dtype))
        size = [layer.channels, layer.size, layer.size] if layer.first else [layer.size, layer.size, layer.channels]
        x = helper.make_tensor_value_info("x", kind, [self.batch, *size])
        y, z = (helper.make_tensor_value_info(n, kind, [self.batch, layer.out, layer.out, layer.outputs]) for n in "yz")
        inputs = ["x", "w", "b", "z"] if layer.residual else ["x", "w", "b"]
        node = helper.make_node(
            "FusedConv", inputs, ["y"], "node", domain=CHANNELS_LAST, strides=[layer.stride] * 2, pads=[layer.pad] * 4,
            group=layer.groups, activation="relu", x_channels_first=int(layer.first),
        )  # fmt: skip
        initializers = [numpy_helper.from_array(self.w, "w"), numpy_helper.from_array(self.b, "b")]
        graph = helper.make_graph([node], "layer", [x, z] if layer.residual else [x], [y], initializers)
        model = ir.serde.deserialize_model(
            helper.make_model(graph, opset_imports=[helper.make_opsetid(CHANNELS_LAST, 1)])
        )
        constants = Constants()
        for name, value in model.graph.initializers.items():
            constants.register(name, value.const_value)
        scope = Scope(constants, {CHANNELS_LAST: 1})
        return Node(model.graph.node(0), scope), scope

    def configurations(self) -> tuple[Configuration, dict[Configuration, float]]:
        """The launch choice's, and what the model thinks of each. (Patches have no price.)"""
        node, _ = self._node()
        convolution = convolution_of(node).simplified()
        if is_depthwise(convolution):
            runs = runs_of(convolution)
            size = (convolution.pixels, convolution.y.channels, node.x.itemsize)
            patch = choose_patch(*size, channels_last=True, target=self.target, runs=runs)
            patches = [
                Patch(p, c, w, run)
                for run in (1, *runs)
                for c in (16, 32, 64, 128)
                for p in (4, 8, 16, 32, 64)
                for w in (1, 2, 4, 8)
                if 256 <= p * c // w <= 512
            ]
            return patch, dict.fromkeys([patch, *patches], 1.0)
        plain = priced(extents_of(convolution), self.dtype, self.target)
        boxed = priced_boxes(convolution, self.dtype, self.target)
        costs: dict[Configuration, float] = {tiles: cost for cost, tiles in (*plain, *boxed)}
        if cheapest_copy(convolution, self.dtype, True, self.target) is not None:
            return None, costs | {None: min(costs.values())}
        return choose_tiles(convolution, self.dtype, self.target), costs

    def _lowered(self, tiles: Configuration) -> Candidate:
        node, scope = self._node()
        convolution, epilogue, filters = convolution_of(node).simplified(), epilogue_of(node), node.inputs[1]
        assert isinstance(epilogue, Epilogue)
        assert filters is not None
        if isinstance(tiles, Patch):
            calls = convolve_depthwise(node, self.target, convolution, epilogue, filters, tiles)
        else:
            calls = _convolve(node, self.target, convolution, epilogue, filters, tiles)
        launches = [call for call in calls if isinstance(call, Launch)]
        return Candidate(tiles, launches, scope.buffers, scope.constants, scope.weights)


class Bench:
    """Runs problems on the GPU with PyTorch's memory, streams and graphs, and with Gossamer's kernels."""

    def __init__(self, problems: list[Problem]) -> None:
        import torch

        self.torch = torch
        torch.backends.cudnn.benchmark = True
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
        torch.zeros(1, device="cuda")  # makes the primary context current
        kernels = {launch.kernel for p in problems for c in p.candidates for launch in c.launches}
        print(
            f"{len(problems)} problems, {sum(len(p.candidates) for p in problems)} candidates, {len(kernels)} kernels",
            flush=True,
        )
        cubins = compile_kernels(kernels, problems[0].target)
        from gossamer.run.launching import load_kernel

        self.loaded = {kernel: load_kernel(cubin) for kernel, cubin in cubins.items()}

    def measure(self, problem: Problem) -> float:
        """Times every candidate; gives cuDNN's time without bias, residual and activation."""
        torch, layer = self.torch, problem.layer
        dtype = getattr(torch, problem.dtype)
        x = torch.randn(problem.batch, layer.size, layer.size, layer.channels, device="cuda").to(dtype)
        given = x.permute(0, 3, 1, 2).contiguous() if layer.first else x
        z = torch.randn(problem.batch, layer.out, layer.out, layer.outputs, device="cuda").to(dtype)
        w, b = torch.from_numpy(problem.w).cuda(), torch.from_numpy(problem.b).cuda()
        copies = max(4, min(48, L2_BYTES // max(1, w.nbytes)))
        nchw, filters = x.permute(0, 3, 1, 2), [w.clone(memory_format=torch.channels_last) for _ in range(copies)]

        def convolve(i: int) -> Any:
            return torch.nn.functional.conv2d(nchw, filters[i], None, layer.stride, layer.pad, 1, layer.groups)

        want = convolve(0).permute(0, 2, 3, 1).float() + b.float() + (z.float() if layer.residual else 0)
        want = want.relu()
        peer = self.time(convolve, copies)
        for candidate in problem.candidates:
            y, enqueue = self._prepared(candidate, {"x": given, "z": z}, copies)
            y.fill_(float("nan"))
            enqueue(0)
            torch.cuda.synchronize()
            candidate.error = float((y.float() - want).norm() / want.norm())
            if candidate.error < 5e-3:
                candidate.microseconds = self.time(enqueue, copies)
        return peer

    def _prepared(
        self, candidate: Candidate, tensors: dict[str, Any], copies: int
    ) -> tuple[Any, Callable[[int], None]]:
        """The output, and what enqueues the candidate with the i-th copy of its filters."""
        from gossamer.run.launching import PreparedLaunch

        torch = self.torch
        memory: dict[str, list[Any]] = {name: [tensor] for name, tensor in tensors.items()}
        for name in {n for launch in candidate.launches for n in (*launch.reads, *launch.writes)} - memory.keys():
            buffer = candidate.buffers[name]
            if name in candidate.weights:
                constant = torch.from_numpy(candidate.constants[candidate.weights[name]]).cuda()
                memory[name] = [constant.clone() for _ in range(copies if constant.ndim > 1 else 1)]
            else:
                memory[name] = [torch.empty(buffer.shape, dtype=getattr(torch, buffer.dtype), device="cuda")]
        prepared = [
            [
                PreparedLaunch(
                    launch,
                    self.loaded[launch.kernel],
                    lambda name, i=i: memory[name][i % len(memory[name])].data_ptr(),
                    0,
                )
                for launch in candidate.launches
            ]
            for i in range(copies)
        ]

        def enqueue(i: int) -> None:
            stream = torch.cuda.current_stream().cuda_stream
            for launch in prepared[i]:
                launch.enqueue(stream)

        enqueue.memory = memory  # type: ignore[attr-defined]  # lives as long as what points into it
        return memory["y"][0], enqueue

    def time(self, enqueue: Callable[[int], Any], copies: int) -> float:
        """Median microseconds of one call, over replays of a graph of one call per copy."""
        torch = self.torch
        enqueue(0)
        torch.cuda.synchronize()
        graph, rounds = torch.cuda.CUDAGraph(), max(1, 16 // copies)
        with torch.cuda.graph(graph):
            for i in range(copies * rounds):
                enqueue(i % copies)
        samples = []
        for attempt in range(6):
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            graph.replay()
            end.record()
            end.synchronize()
            if attempt:
                samples.append(1e3 * start.elapsed_time(end) / (copies * rounds))
        return statistics.median(samples)


def short(tiles: Configuration) -> str:
    """A configuration in a few characters."""
    if tiles is None:
        return "copied"
    if isinstance(tiles, Patch):
        return f"{tiles.pixels}×{tiles.channels} w{tiles.num_warps}" + f" r{tiles.run}" * (tiles.run > 1)
    rows = "·".join(map(str, tiles.box)) if isinstance(tiles, BoxTiles) else tiles.block_m
    text = f"{rows}×{tiles.block_n}×{tiles.block_k} w{tiles.num_warps} s{tiles.num_stages}"
    text += f" /{tiles.splits}" if tiles.splits > 1 else ""
    return text + " p" if isinstance(tiles, BoxTiles) and tiles.persistent else text


def report(network: str, batch: int, problems: list[Problem], counts: Counter[Layer], peers: list[float]) -> None:
    """Prints a line per layer and the sums over the network."""
    print(f"\n{network}, batch {batch}: µs of the choice, the best candidate, and cuDNN (no epilogue)")
    sums = [0.0, 0.0, 0.0]
    for problem, peer in zip(problems, peers, strict=True):
        best = min(problem.candidates, key=lambda c: c.microseconds)
        chosen = problem.candidates[problem.chosen]
        wrong = [short(c.tiles) for c in problem.candidates if not c.error < 5e-3]
        count = counts[problem.layer]
        for i, value in enumerate((chosen.microseconds, best.microseconds, peer)):
            sums[i] += value * count
        print(
            f"{count}× {problem.layer!s:28} {chosen.microseconds:7.1f} {short(chosen.tiles):26}"
            f" {best.microseconds:7.1f} {short(best.tiles):26} {peer:6.1f}"
            f" choice/best {chosen.microseconds / best.microseconds:.2f}" + (f"  WRONG: {wrong}" if wrong else ""),
            flush=True,
        )
    print(f"sum: choice {sums[0]:.0f}, best {sums[1]:.0f}, cuDNN {sums[2]:.0f} µs", flush=True)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", default="resnet50,mobilenet_v2")
    parser.add_argument("--batches", default="1,32")
    parser.add_argument("--dtype", default="float16", choices=("float16", "float32"))
    parser.add_argument(
        "--within", type=float, default=2.5, help="leave out candidates that the model thinks this much slower"
    )
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    from gossamer.run.cuda import target_of_device

    target, measured = target_of_device(0), []
    layers = {network: Counter(NETWORKS[network]()) for network in arguments.networks.split(",")}
    runs = [
        (network, batch, [Problem(layer, batch, arguments.dtype, target, arguments.within) for layer in counts])
        for network, counts in layers.items()
        for batch in map(int, arguments.batches.split(","))
    ]
    bench = Bench([problem for _, _, problems in runs for problem in problems])
    for network, batch, problems in runs:
        peers = [bench.measure(problem) for problem in problems]
        report(network, batch, problems, layers[network], peers)
        measured += [
            {
                "layer": asdict(p.layer),
                "batch": batch,
                "dtype": p.dtype,
                "cudnn_us": peer,
                "us": {short(c.tiles): c.microseconds for c in p.candidates},
            }
            for p, peer in zip(problems, peers, strict=True)
        ]
    if arguments.output:
        arguments.output.write_text(json.dumps(measured))


if __name__ == "__main__":
    main()
