"""A convolution with bias and relu, planned where there is no GPU and run where there is one: `gossamer.cudnn` alone.

    python demo/cudnn_plan.py describe gpu.json          on the machine with the GPU, once: which one it is
    python demo/cudnn_plan.py plan gpu.json conv.plan    anywhere: no GPU, no driver
    python demo/cudnn_plan.py run conv.plan              on the machine with the GPU

The first step can be left out: `plan` also takes the name of a device that Gossamer knows, such as `h200`.

Planning and restoring are handle-free: they need no cuDNN handle and no CUDA context. They are not device-free: a plan
is for the device that it was made for, and one of another architecture, or with another number of multiprocessors,
refuses it. Running needs that device, and a handle, which is only made then.

Needs cuDNN 9.8 or newer (`pip install 'gossamer[cudnn]'`), of one version for `plan` and `run`; for `plan`, where there
is no driver, a C compiler, which builds a stand-in for it once.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

from gossamer import GossamerError, OrtValue
from gossamer.cudnn import DeviceProperties, Graph, driver_stand_in

X, W, B, Y = (2, 32, 16, 16), (64, 32, 3, 3), (1, 64, 1, 1), (2, 64, 16, 16)


def describe(properties_file: Path) -> None:
    """Write what cuDNN has to know about this machine's GPU, as `gossamer target dump` does."""
    properties = DeviceProperties.from_device(0)
    properties_file.write_bytes(properties.serialize())
    print(f"{properties_file}: {properties}")


def plan(device: str, plan_file: Path) -> None:
    """Plan for a device that need not be here, and write the plan."""
    driver_stand_in.load()  # does nothing where there is a driver
    properties = (
        DeviceProperties.from_json(Path(device).read_bytes())
        if device.endswith(".json")
        else DeviceProperties.named(device)
    )
    with Graph(properties=properties, name="convolution") as graph:
        x = graph.tensor("x", X, "float16", layout="NHWC")
        w = graph.tensor("w", W, "float16", layout="NHWC")
        b = graph.tensor("b", B, "float16")
        graph.output(graph.relu(graph.add(graph.convolution(x, w, padding=1), b)), name="y")
        with graph.build() as made:
            plan_file.write_bytes(made.serialize())
            print(f"{plan_file}: {made}")


def run(plan_file: Path) -> float:
    """Restore the plan for this machine's GPU, run it, and return the largest error of its result."""
    blob = plan_file.read_bytes()
    graph = Graph(properties=DeviceProperties.from_device(0))
    with graph.deserialize(blob, enforce_precompiled=True) as restored:
        print(f"restored, graph.handle is {graph.handle}: {restored}")
        x, w, b = arrays()
        # Anything on the GPU will do that has __dlpack__ or __cuda_array_interface__, and so will addresses.
        given = {name: OrtValue.ortvalue_from_numpy(array, "cuda") for name, array in {"x": x, "w": w, "b": b}.items()}
        y = OrtValue.ortvalue_from_shape_and_type(channels_last(Y), np.float16, "cuda")
        scratch = OrtValue.ortvalue_from_shape_and_type([max(1, restored.workspace_size)], np.uint8, "cuda")
        restored.execute(given | {"y": y}, workspace=scratch)
        return float(np.abs(y.numpy() - expected(x, w, b)).max())


def arrays() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """x, w and b as they lie in memory: channels last. Small whole numbers, which float16 adds up without rounding."""
    random = np.random.default_rng(0)
    shapes = (channels_last(X), channels_last(W), B)
    x, w, b = (random.integers(-2, 3, shape).astype(np.float16) for shape in shapes)
    return x, w, b


def channels_last(dims: tuple[int, ...]) -> tuple[int, ...]:
    """[N, C, spatial] → [N, spatial, C]."""
    return (dims[0], *dims[2:], dims[1])


def expected(x: np.ndarray, w: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The same by NumPy, in float32."""
    padded = np.pad(x.astype(np.float32), ((0, 0), (1, 1), (1, 1), (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, W[2:], (1, 2))
    sums = np.einsum("nhwcrs,krsc->nhwk", windows, w.astype(np.float32), optimize=True)
    return np.maximum(sums + b.reshape(-1), 0)


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="Plan a convolution where there is no GPU, and run it where there is.")
    steps = parser.add_subparsers(dest="step", required=True)
    first = steps.add_parser("describe", help="write the properties of this machine's GPU")
    first.add_argument("properties_file", type=Path, help="to write, e.g. gpu.json")
    second = steps.add_parser("plan", help="plan for a device that need not be here")
    second.add_argument("device", help="a file that `describe` wrote, or a name, e.g. h200")
    second.add_argument("plan_file", type=Path, help="to write")
    third = steps.add_parser("run", help="restore a plan and run it on this machine's GPU")
    third.add_argument("plan_file", type=Path, help="that `plan` wrote")
    return parser.parse_args()


def main() -> None:
    """One of the three steps; exit status 1 and one line where it cannot be taken."""
    given = parse_arguments()
    try:
        if given.step == "describe":
            describe(given.properties_file)
        elif given.step == "plan":
            plan(given.device, given.plan_file)
        elif (error := run(given.plan_file)) > 0:
            sys.exit(f"the result is wrong by up to {error}")
        else:
            print("the result is right, to the last digit")
    except (GossamerError, OSError) as error:
        sys.exit(f"{given.step}: {error}")


if __name__ == "__main__":
    main()
