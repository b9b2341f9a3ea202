"""Cases for cuDNN's direct routines: those of the native kernels, more that cuDNN takes, and what it does not take."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any

import numpy as np

from cases import batch_normalization, lrn, normalization, pooling, recurrent
from cases.batch_normalization import training
from cases.node_case import NodeCase
from cases.recurrent import Recurrent
from cases.references import channels_last, floats
from harness import tensor_type

OPERATORS = (
    *("MaxPool", "AveragePool", "GlobalMaxPool", "GlobalAveragePool"),
    *("BatchNormalization", "InstanceNormalization", "LRN", "RNN", "LSTM", "GRU"),
)

REFUSALS: dict[str, str] = {
    # Order counts: the first pattern of a name that matches is its reason.
    "MaxPool-*nothing_but_padding*": "no indices",
    "MaxPool-*indices*": "no indices",
    "MaxPool-ceil_drops_padding*": "windows at the border",
    "*Pool-dilated*": "no dilations",
    "AveragePool-end_only_pads*": "windows at the border",
    "AveragePool-many_uneven*": "windows at the border",
    "*Pool-S*": "windows at the border",  # of even sizes: one more pixel of padding on one side
    "AveragePool-same_counts_pads*": "windows at the border",
    "MaxPool-*int8*": "int8",
    "AveragePool-ceil_beyond_padding*": "cuDNN counts what ONNX does not",
    "BatchNormalization-*float16*-inputs": "in float32, and it is no constant",
    "BatchNormalization-training_y*": "",
    "BatchNormalization-training*": "averages unbiased variances",
    "BatchNormalization-one_image*": "averages unbiased variances",
    "InstanceNormalization-*float16-inputs": "in float32, and it is no constant",
    "InstanceNormalization-style*": "",
    "InstanceNormalization-*channels_last*": "several images that come last",
    "LRN-size_20": "sizes up to 16",
    "LRN-bfloat16": "no bfloat16",
    "LRN-zero_base*": "betas from",
    "*-clip-*": "does not clip",
    "*_clip-*": "does not clip",
    "LSTM-peepholes-*": "no peepholes",
    "LSTM-input_forget-*": "does not couple",
    "*an_empty_one-*": "at least one step",
    "GRU-linear*": "",
    "GRU-*": "resets behind the product",
    "*-no_steps-*": "no sequences of nothing",
    "*-no_batch-*": "no sequences of nothing",
    "LSTM-activations*": "no activations but",
    "*-differ_by_direction-*": "no activations but",
    "*-reverse_lengths-*": "begin at different ends",
    "*-lengths_as_inputs-*": "before the model runs",
}
"""Pattern of a case's name → a part of the reason why cuDNN does not take it; nothing where it does."""


def refusal_of(node: NodeCase) -> str:
    """A part of the reason why cuDNN does not take the node; nothing where it does, as where no pattern matches."""
    return next((reason for pattern, reason in REFUSALS.items() if fnmatchcase(node.name, pattern)), "")


def _pools() -> Iterator[NodeCase]:
    # cuDNN's maximum begins at the lowest finite number, so it never is −∞; only data tells whether it will be.
    apart = "random", "minus_infinity"
    every = (*pooling.CASES, *pooling.LAST, *pooling.LARGE)
    yield from (node for node in every if not any(word in node.name for word in apart))
    window = {"kernel_shape": [3], "strides": [2], "pads": [1, 0], "ceil_mode": 1}
    yield pooling.case("AveragePool", "asymmetric_but_alike", floats("line", (2, 3, 9)), **window)
    yield pooling.case("AveragePool", "ceil_beyond_padding", floats("line", (2, 3, 9)), count_include_pad=1, **window)
    yield pooling.case("AveragePool", "ceil_within_padding", floats("line", (2, 3, 8)), count_include_pad=1, **window)
    x = floats("four", (2, 3, 2, 3, 4, 2))
    for op, reduced in {"GlobalMaxPool": x.max, "GlobalAveragePool": x.mean}.items():
        node = pooling.case(op, "4d", x, opset=21, want=reduced((2, 3, 4, 5), keepdims=True))
        yield from (node, channels_last(node))


def _norms() -> Iterator[NodeCase]:
    for node in (*batch_normalization.CASES, *batch_normalization.LARGE, *normalization.CASES, *normalization.LARGE):
        if node.op_type in OPERATORS:
            parameters = range(1, len(node.inputs))
            yield replace(node, name=f"{node.name}-inputs")
            yield replace(node, constants=tuple(parameters))
    x = floats("batch", (2, 6, 4, 5))
    for made in (training("training_y", x), training("training_y-float64", x.astype(np.float64))):
        types = [(tensor_type(a), a.shape) for a in made.inputs[:1] if a is not None]
        only_y = replace(made, n_outputs=1, output_types=types, want=lambda made=made: made.expected()[:1])
        yield from (only_y, channels_last(only_y))


BOTH, LINEAR, REVERSE = {"direction": "bidirectional"}, {"linear_before_reset": 1}, {"direction": "reverse"}
KNOWN = {"lengths": [2, 4, 1], "constants": (1, 2, 3, 4)}


def _layers(op: str, prefix: str, attributes: Mapping[str, Any]) -> Iterator[NodeCase]:
    """What each of cuDNN's cells is tried with."""
    both, first = {**attributes, **BOTH}, {**attributes, "layout": 1}
    made = {
        "known_lengths": Recurrent(op, attributes=attributes, **KNOWN),
        "both_ways": Recurrent(op, attributes=both, initial=True),
        "both_known_lengths": Recurrent(op, attributes=both, initial=True, **KNOWN),
        "batch_first": Recurrent(op, attributes=first, initial=True),
        "batch_first_both": Recurrent(op, attributes=first | BOTH, initial=True, **KNOWN),
        "batch_first_reverse": Recurrent(op, attributes=first | REVERSE, initial=True),
        "reverse": Recurrent(op, attributes={**attributes, **REVERSE}, initial=True),
        "some_weights_as_inputs": Recurrent(op, attributes=both, constants=(1,)),
        "wide": Recurrent(op, 9, 17, 40, 130, both, initial=True, dtype="float16"),
    }
    for dtype in ("float16", "bfloat16", "float64"):
        made[f"both_{dtype}"] = replace(made["both_known_lengths"], dtype=dtype)
    yield from (layer.case(prefix + name) for name, layer in made.items())


def _recurrent() -> Iterator[NodeCase]:
    yield from (node for node in recurrent.CASES if len(node.inputs) < 5 or node.inputs[4] is None)
    yield from (*_layers("RNN", "", {}), *_layers("LSTM", "", {}), *_layers("GRU", "linear_", LINEAR))
    yield Recurrent("RNN", attributes={"activations": ["Relu"]}).case("relu")
    yield Recurrent("RNN", attributes=BOTH | {"activations": ["Relu", "Relu"]}).case("relu_both")
    empty = {"lengths": [4, 0, 2], "constants": KNOWN["constants"]}
    yield Recurrent("LSTM", attributes=BOTH, initial=True, **empty).case("an_empty_one")
    yield Recurrent("GRU", attributes=LINEAR, **empty).case("linear_an_empty_one")
    yield Recurrent("LSTM", attributes=REVERSE, **KNOWN).case("reverse_lengths")
    yield Recurrent("LSTM", lengths=[4, 3, 2]).case("lengths_as_inputs")


def _unique(nodes: Iterable[NodeCase]) -> list[NodeCase]:
    """Names tell cases apart."""
    named: dict[str, NodeCase] = {}
    for node in nodes:
        if node.op_type in OPERATORS:
            assert named.setdefault(node.name, node) is node, node.name
    return list(named.values())


CASES = _unique([*_pools(), *_norms(), *lrn.CASES, *lrn.LARGE, *_recurrent()])
RANDOM = [node for node in (*pooling.CASES, *pooling.LAST) if "Pool-random" in node.name and node.op_type in OPERATORS]
"""Pools that cuDNN takes or not: their names do not say."""
TAKEN = [node for node in CASES if not refusal_of(node)]
REFUSED = [node for node in CASES if refusal_of(node)]
