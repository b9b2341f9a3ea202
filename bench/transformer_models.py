"""Transformers that PyTorch exports, on a GPU: Gossamer beside PyTorch's CUDA graph, answers checked first.

    python bench/transformer_models.py [--only bert,vit,gpt2,llama] [--keep FOLDER]

BERT-base (128 tokens, every second sequence padded), ViT-B/16, GPT-2 (128 tokens) and a decoder of Llama's kind (4
layers, grouped heads, past keys and values; one token, and 128 at once), of the package `transformers`, with random
weights, in fp16. Each is exported once by torch.onnx's exporter of today (`dynamo=True`), with the batch left open, and
checked against the same module in fp32. Gossamer runs in a process of its own (`bench/run_model.py`), with neither
PyTorch nor cuDNN.
"""

from __future__ import annotations

import argparse
import copy
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

import results
from models import report, run_child, time_graph

LIMIT = "relative:2e-2"
PAST = 384


@dataclass(frozen=True)
class Case:
    """inputs: name → array for one batch size. Only arrays whose first axis is the batch."""

    name: str
    batch: int
    inputs: dict[str, np.ndarray]


@dataclass(frozen=True)
class Subject:
    module: torch.nn.Module
    cases: Sequence[Case]
    outputs: tuple[str, ...]
    open_axes: dict[str, dict[int, str]]
    """Of each input, the axes that the cases differ in."""


def main() -> int:
    """The exit status: 1 where a case has no row."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="bert,vit,gpt2,llama")
    parser.add_argument("--keep", type=Path, help="export into this folder and leave the files there")
    parser.add_argument("--results", type=Path, default=results.RESULTS)
    arguments = parser.parse_args()
    makers, failed = {"bert": bert, "vit": vit, "gpt2": gpt2, "llama": llama}, list[str]()
    for name in arguments.only.split(","):
        torch.manual_seed(0)
        with tempfile.TemporaryDirectory() as folder, torch.no_grad(), results.attempt(name, failed):
            subject = makers[name]()
            path = export(subject, (arguments.keep or Path(folder)) / f"{name}.onnx")
            half = subject.module.half().cuda()
            for case in subject.cases:
                with results.attempt(f"{case.name}, batch {case.batch}", failed):
                    results.append(arguments.results, measure(path, half, case, subject.outputs))
    return int(bool(failed))


class Plain(torch.nn.Module):
    """Tensors in, a tuple of tensors out."""

    def __init__(self, module: torch.nn.Module, names: Sequence[str]) -> None:
        super().__init__()
        self.module, self.names = module, tuple(names)

    def forward(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        answer = self.module(**dict(zip(self.names, inputs, strict=True)))
        return tuple(value for value in answer.to_tuple() if isinstance(value, torch.Tensor))


class WithPast(torch.nn.Module):
    """A decoder whose past keys and values are inputs, and those after this step outputs."""

    def __init__(self, module: torch.nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        ids, mask, *past = inputs
        pairs = tuple(zip(past[::2], past[1::2], strict=True))
        cache = transformers.DynamicCache(pairs)
        answer = self.module(input_ids=ids, attention_mask=mask, past_key_values=cache, use_cache=True)
        present = [value for layer in answer.past_key_values.layers for value in (layer.keys, layer.values)]
        return (answer.logits, *present)


def randomised(module: torch.nn.Module) -> torch.nn.Module:
    """Biases and norms that do something: untrained ones are 0 and 1, and would be folded away."""
    for name, parameter in module.named_parameters():
        if parameter.ndim == 1:
            middle = 0.0 if name.endswith("bias") else 1.0
            torch.nn.init.uniform_(parameter, middle - 0.1, middle + 0.1)
    return module.eval()


def bert() -> Subject:
    config = transformers.BertConfig()
    names = ("input_ids", "attention_mask")
    cases = []
    for batch in (1, 8, 32):
        mask = np.ones((batch, 128), np.int64)
        mask[1::2, 100:] = 0
        cases.append(
            Case(
                "BERT-base, 128 tokens",
                batch,
                {"input_ids": tokens(config.vocab_size, batch, 128), "attention_mask": mask},
            )
        )
    module = Plain(randomised(transformers.BertModel(config)), names)
    return Subject(module, cases, ("last_hidden_state", "pooler_output"), {name: {0: "batch"} for name in names})


def vit() -> Subject:
    cases = [Case("ViT-B/16", batch, {"pixel_values": normal(batch, 3, 224, 224)}) for batch in (1, 32)]
    module = Plain(randomised(transformers.ViTModel(transformers.ViTConfig())), ("pixel_values",))
    return Subject(module, cases, ("last_hidden_state", "pooler_output"), {"pixel_values": {0: "batch"}})


def gpt2() -> Subject:
    config = transformers.GPT2Config(use_cache=False)
    cases = [Case("GPT-2, 128 tokens", batch, {"input_ids": tokens(config.vocab_size, batch, 128)}) for batch in (1, 8)]
    module = Plain(randomised(transformers.GPT2LMHeadModel(config)), ("input_ids",))
    return Subject(module, cases, ("logits",), {"input_ids": {0: "batch"}})


def llama() -> Subject:
    config = transformers.LlamaConfig(
        hidden_size=2048, intermediate_size=5632, num_hidden_layers=4, num_attention_heads=32, num_key_value_heads=8
    )
    past = [f"past.{layer}.{kind}" for layer in range(4) for kind in ("key", "value")]
    cases = []
    for count, batch in ((1, 1), (1, 8), (128, 1)):
        inputs = {
            "input_ids": tokens(config.vocab_size, batch, count),
            "attention_mask": np.ones((batch, PAST + count), np.int64),
            **{name: normal(batch, 8, PAST, 64) for name in past},
        }
        what = "1 token" if count == 1 else f"{count} tokens"
        cases.append(Case(f"Llama-like, 4 layers, {what} after {PAST}", batch, inputs))
    open_axes = {
        "input_ids": {0: "batch", 1: "tokens"},
        "attention_mask": {0: "batch", 1: "all_tokens"},
        **{name: {0: "batch", 2: "past_tokens"} for name in past},
    }
    outputs = ("logits", *(name.replace("past", "present") for name in past))
    return Subject(WithPast(randomised(transformers.LlamaForCausalLM(config))), cases, outputs, open_axes)


def tokens(vocabulary: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, vocabulary, shape)


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(1).standard_normal(shape, np.float32).astype(np.float16)


def measure(path: Path, half: torch.nn.Module, case: Case, outputs: Sequence[str]) -> list[dict[str, Any]]:
    """The rows of one case; half: the module that the file at `path` was made of, in fp16 on the GPU."""
    inputs = [torch.from_numpy(value).cuda() for value in case.inputs.values()]
    wide = [value.float() if value.is_floating_point() else value for value in inputs]
    exact = copy.deepcopy(half).float()  # of the same weights, and of the angles that rotary embeddings keep in fp16
    torch.backends.cuda.matmul.allow_tf32 = False
    want = {name: value.cpu().numpy() for name, value in zip(outputs, exact(*wide), strict=True)}
    torch.backends.cuda.matmul.allow_tf32 = True
    del exact
    peer, peer_us = peer_time(half, inputs)
    torch.cuda.empty_cache()
    child = run_child(path, case.inputs, want, LIMIT)
    return report(case.name, case.batch, "float16", child, peer, peer_us)


def export(subject: Subject, path: Path) -> Path:
    """By the smallest case of at least two in each open axis: the exporter takes axes of 1 for fixed."""
    example = {name: widened(value, subject.open_axes[name]) for name, value in subject.cases[0].inputs.items()}
    module = copy.deepcopy(subject.module).half()
    shapes = tuple(subject.open_axes[name] for name in example)
    torch.onnx.export(
        module,
        tuple(torch.from_numpy(value) for value in example.values()),
        path,
        input_names=list(example),
        output_names=list(subject.outputs),
        dynamic_shapes=(shapes,),
        dynamo=True,
    )
    return path


def widened(value: np.ndarray, axes: dict[int, str]) -> np.ndarray:
    extents = [2 if axis in axes and extent == 1 else extent for axis, extent in enumerate(value.shape)]
    return np.resize(value, extents)


def peer_time(module: torch.nn.Module, inputs: Sequence[torch.Tensor]) -> tuple[str, float]:
    """PyTorch's CUDA graph; where it cannot capture the module, its own calls one by one."""
    try:
        return "torch graph", time_graph(module, *inputs)
    except RuntimeError:
        torch.cuda.synchronize()

    def once() -> None:
        module(*inputs)
        torch.cuda.synchronize()

    return "torch eager", results.median_us(once, 30)


if __name__ == "__main__":
    sys.exit(main())
