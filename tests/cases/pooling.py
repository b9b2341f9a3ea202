"""Cases of the pools and MaxUnpool: chosen ones, and random attributes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from cases.node_case import NodeCase, ints, random_array
from cases.references import FLOAT_DTYPES, HALF_DTYPES, channels_last, floats, through_float32, within

RANDOM = 72


def case(
    op: str, detail: str, x: np.ndarray, *, opset: int = 22, n_outputs: int = 1, want: Any = None, **attributes: Any
) -> NodeCase:
    """fp32 and integer results are onnxruntime's, half types those of fp32 rounded."""
    made = NodeCase(f"{op}-{detail}", op, [x], attributes, opset, n_outputs=n_outputs)
    if want is not None:
        return replace(made, want=lambda: [np.asarray(want, x.dtype)])
    return within(through_float32(made), 64)


def _line(*values: float) -> np.ndarray:
    return np.array(values, np.float32).reshape(1, 1, -1)


def _rules() -> list[NodeCase]:
    nine = _line(*range(1, 10))
    ends = {"kernel_shape": [7], "strides": [3], "pads": [0, 3], "ceil_mode": 1}
    x = floats("rules", (2, 3, 7, 6))
    same = {"kernel_shape": [3, 2], "strides": [2, 1]}
    cases = [
        case("AveragePool", "end_only_pads", nine, count_include_pad=1, want=[[[4, 39 / 7, 4]]], **ends),
        case("AveragePool", "end_only_pads_exclude", nine, count_include_pad=0, want=[[[4, 6.5, 8]]], **ends),
        case("AveragePool", "dilated", nine, opset=19, kernel_shape=[3], dilations=[2], want=[[[3, 4, 5, 6, 7]]]),
        case(
            "MaxPool",
            "ceil_drops_padding",
            floats("drop", (1, 2, 3, 6, 5)),
            kernel_shape=[3] * 3,
            strides=[3] * 3,
            pads=[1] * 6,
            ceil_mode=1,
        ),
        case("AveragePool", "whole_image", x, kernel_shape=[7, 6]),
        case("MaxPool", "whole_image", x, kernel_shape=[7, 6]),
        case("LpPool", "whole_image", x, kernel_shape=[7, 6], p=3),
        case("MaxPool", "whole_image_indices", x, kernel_shape=[7, 6], n_outputs=2),
        case(
            "AveragePool",
            "dilated_beyond_image",
            _line(1, 2, 6),
            kernel_shape=[3],
            dilations=[2],
            strides=[3],
            ceil_mode=1,
            want=[[[3.5]]],
        ),
        case("MaxPool", "nan", _line(1, np.nan, 3, 4, 5), kernel_shape=[2], want=[[[np.nan, np.nan, 4, 5]]]),
        case("MaxPool", "minus_infinity", _line(-np.inf, -np.inf, 1), kernel_shape=[2], want=[[[-np.inf, 1]]]),
        case("LpPool", "zeros", _line(0, 0, 0), kernel_shape=[2], p=3),
        case("LpPool", "default_p", x, opset=11, kernel_shape=[2, 2]),
    ]
    cases += [
        case(op, mode, x, auto_pad=mode, **same)
        for op in ("MaxPool", "AveragePool")
        for mode in ("SAME_UPPER", "SAME_LOWER", "VALID")
    ]
    cases.append(case("AveragePool", "same_counts_pads", x, auto_pad="SAME_UPPER", count_include_pad=1, **same))
    cases += [case("MaxPool", "no_images", np.zeros((0, 3, 4, 4), np.float32), kernel_shape=[2, 2])]
    return cases + _padding()


def _padding() -> list[NodeCase]:
    """Images of one pixel, and windows that hold nothing but padding."""
    pixel, around = floats("pixel", (2, 3, 1, 1)), {"kernel_shape": [3, 3], "pads": [1] * 4}
    nothing = case(
        "MaxPool", "nothing_but_padding", _line(1, 2), n_outputs=2, kernel_shape=[2], dilations=[3], pads=[2, 2]
    )
    shape = [1, 1, 3]
    return [
        *(case(op, "one_pixel", pixel, **around) for op in ("MaxPool", "AveragePool", "LpPool")),
        case("MaxPool", "one_pixel_indices", pixel, n_outputs=2, **around),
        case("AveragePool", "one_pixel_counts", pixel, count_include_pad=1, **around),
        replace(
            nothing,
            output_types=[(1, shape), (7, shape)],
            want=lambda: [_line(2, -np.inf, 1), ints(1, -1, 0).reshape(shape)],
        ),
    ]


def _dtypes() -> list[NodeCase]:
    window = {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}
    cases = [
        case(op, dtype, floats("dtypes", (1, 4, 9, 8), dtype), **window)
        for op in ("MaxPool", "AveragePool")
        for dtype in FLOAT_DTYPES[:3]
    ]
    cases += [case("LpPool", dtype, floats("dtypes", (1, 4, 9, 8), dtype), **window) for dtype in HALF_DTYPES]
    doubles = floats("dtypes", (1, 4, 9, 8), "float64")
    cases.append(case("MaxPool", "float64", doubles, **window))
    sums = [
        [[doubles[0, c, 2 * i : 2 * i + 3, 2 * j : 2 * j + 3].sum() for j in range(3)] for i in range(4)]
        for c in range(4)
    ]
    cases.append(
        case("AveragePool", "float64", doubles, kernel_shape=[3, 3], strides=[2, 2], want=np.array([sums]) / 9)
    )
    for dtype in ("int8", "uint8"):
        cases.append(case("MaxPool", dtype, random_array("bytes", (2, 3, 9, 8), dtype), **window))
    return cases


def _indices() -> list[NodeCase]:
    ties = random_array("ties", (2, 3, 6, 5, 4), "int32").astype(np.float32) % 3
    cases = []
    for spatial in (1, 2, 3):
        x = ties.reshape(2, 3, *{1: (120,), 2: (6, 20), 3: (6, 5, 4)}[spatial])
        for order in (0, 1):
            attributes = {"kernel_shape": [2] * spatial, "storage_order": order, "pads": [1] * (2 * spatial)}
            cases.append(case("MaxPool", f"indices-{spatial}d-order_{order}", x, n_outputs=2, **attributes))
    return cases


def _globals() -> list[NodeCase]:
    cases = []
    for op in ("GlobalMaxPool", "GlobalAveragePool", "GlobalLpPool"):
        for shape in ((2, 3, 7), (2, 3, 5, 4), (2, 3, 4, 3, 2)):
            cases.append(case(op, f"{len(shape) - 2}d", floats("global", shape), opset=21))
        cases += [case(op, dtype, floats("global", (2, 3, 5, 4), dtype), opset=21) for dtype in HALF_DTYPES]
    return cases + [case("GlobalLpPool", f"p_{p}", floats("global", (2, 3, 5)), opset=21, p=p) for p in (1, 3)]


def _random_attributes(rng: np.random.Generator, op: str, spatial: int) -> dict[str, Any]:
    """Without the corners where onnxruntime leaves the text: SAME with dilations, or with strides above the window."""
    kernel = rng.integers(1, 4, spatial)
    attributes: dict[str, Any] = {"kernel_shape": kernel.tolist(), "strides": rng.integers(1, 4, spatial).tolist()}
    if rng.random() < 0.3:
        attributes["auto_pad"] = str(rng.choice(["SAME_UPPER", "SAME_LOWER"]))
        attributes["strides"] = np.minimum(attributes["strides"], kernel).tolist()
    else:
        attributes["dilations"] = rng.integers(1, 3, spatial).tolist()
        attributes["pads"] = rng.integers(0, np.tile(kernel, 2)).tolist()
        attributes["ceil_mode"] = int(rng.integers(2))
    if op == "AveragePool":
        attributes["count_include_pad"] = int(rng.integers(2))
    if op == "LpPool":
        attributes["p"] = int(rng.integers(1, 4))
    return attributes


def _random() -> list[NodeCase]:
    cases = []
    for seed in range(RANDOM):
        rng = np.random.default_rng(seed)
        op, spatial = ("MaxPool", "AveragePool", "LpPool")[seed % 3], int(rng.integers(1, 4))
        x = rng.standard_normal((2, 3, *rng.integers(6, 10, spatial))).astype(np.float32)
        n_outputs = 2 if op == "MaxPool" and seed % 2 else 1
        cases.append(case(op, f"random_{seed}", x, n_outputs=n_outputs, **_random_attributes(rng, op, spatial)))
    return cases


def _unpool() -> list[NodeCase]:
    x = np.arange(1, 9, dtype=np.float32).reshape(1, 2, 2, 2)
    places = np.array([5, 7, 13, 15, 16, 18, 28, 31]).reshape(1, 2, 2, 2)
    window = {"kernel_shape": [2, 2], "strides": [2, 2]}
    inputs = [x, places, ints(1, 2, 5, 5)]
    shape = [(1, (1, 2, 5, 5))]
    sized = NodeCase("MaxUnpool-output_shape", "MaxUnpool", inputs, window, constants=(2,), output_types=shape)
    return [NodeCase("MaxUnpool-plain", "MaxUnpool", [x, places], window), sized]


def _many_windows() -> list[NodeCase]:
    """As many as make a GPU's programs take several lines of them, in rows of tiles that lines fill and that they do
    not, with fewer lines in the last program."""
    three = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
    two = {"kernel_shape": [2, 2], "strides": [2, 2]}
    wide, narrow = floats("wide", (4, 3, 40, 127)), floats("narrow", (3, 4, 35, 35))
    return [
        case("MaxPool", "many", wide, strides=[2, 2], **three),
        case("MaxPool", "many_halves", wide.astype(np.float16), strides=[2, 2], **three),
        case("MaxPool", "many_narrow", narrow.astype(np.float16), strides=[2, 2], **three),
        *(case("AveragePool", f"many_{n}", narrow, count_include_pad=n, **three) for n in (0, 1)),
        case("AveragePool", "many_uneven", wide, kernel_shape=[3, 2], strides=[2, 3], pads=[0, 1, 2, 0], ceil_mode=1),
        case("AveragePool", "many_inside", wide.astype(np.float16)[:, :, :37], **two),
        case("LpPool", "many", wide.astype(np.float16), **two),
        case("MaxPool", "many_indices", wide, n_outputs=2, strides=[2, 2], **three),
        case("MaxPool", "many_wide_windows", narrow, kernel_shape=[5, 5], pads=[2] * 4),
        case("MaxPool", "many_wider_windows", narrow, kernel_shape=[9, 9], pads=[4] * 4),
        case("AveragePool", "many_deep", floats("deep", (2, 2, 6, 20, 33)), kernel_shape=[3, 3, 2], pads=[1] * 6),
        case("MaxPool", "many_line", floats("line", (2, 5, 700)), kernel_shape=[3], strides=[2]),
    ]


_FIRST = [*_rules(), *_dtypes(), *_indices(), *_globals(), *_random(), *_many_windows()]
CASES = [*_FIRST, *_unpool()]


LAST = [channels_last(node) for i, node in enumerate(_FIRST) if "random" not in node.name or i % 3 == 0]
"""The same with channels last; every third of the random ones."""

LARGE = [
    case(
        "MaxPool",
        "resnet-float16",
        floats("large", (8, 64, 112, 112), "float16"),
        kernel_shape=[3, 3],
        strides=[2, 2],
        pads=[1] * 4,
    ),
    case("AveragePool", "densenet", floats("large", (4, 128, 56, 56)), kernel_shape=[2, 2], strides=[2, 2]),
    case("MaxPool", "wide_window", floats("large", (2, 32, 40, 40)), kernel_shape=[13, 13], pads=[6] * 4),
]
