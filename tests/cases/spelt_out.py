"""Models that spell out norms, skip connections and rotary embeddings, and the operators that are left of them."""

from __future__ import annotations

from dataclasses import dataclass

from gossamer.engines import create_engine
from gossamer.options import CompileOptions, CudaOptions
from harness import assert_close, ort
from our_operators import parse, random_feeds

MEAN = "ReduceMean <axes = [-1]>"
NUMBERS = "float two = {2.0}, float one = {1.0}, float eps = {0.00001}"
LAYER_NORM = (
    f"m = {MEAN} (x) d = Sub (x, m) q = Pow (d, two) v = {MEAN} (q) e = Add (v, eps) r = Sqrt (e) n = Div (d, r)"
)
RMS_NORM = f"q = Pow (x, two) v = {MEAN} (q) e = Add (v, eps) r = Sqrt (e) i = Div (one, r) n = Mul (x, i)"
EIGHT = "{1.5,2.5,-3.5,4.5,0.5,6.5,7.5,8.5}"


@dataclass(frozen=True)
class SpeltOut:
    """A model in ONNX's text syntax. operators: of its Program, in order."""

    name: str
    source: str
    operators: tuple[str, ...]
    opset: int = 13

    def __str__(self) -> str:
        return self.name

    def check(self, device: str) -> None:
        """No CPU provider: every node is ours."""
        source = parse(self.source, self.opset)
        feeds, names = random_feeds(source), [output.name for output in source.graph.output]
        engine = create_engine(source, [CudaOptions(device=device, use_tf32=False)], CompileOptions())
        try:
            got = engine.run(feeds, names)
            operators = tuple(placed.op_type for placed in engine.placement().nodes)
        finally:
            engine.close()
        assert operators == self.operators
        for name, want in zip(names, ort(source, feeds), strict=True):
            assert_close(got[name], want, reduction=64)


CASES = [
    SpeltOut(
        "layer_norm",
        f"""g (float[2,3,8] x) => (float[2,3,8] y) <{NUMBERS}, float[8] g = {EIGHT}, float[8] h = {EIGHT}> {{
            {LAYER_NORM} t = Mul (n, g) y = Add (t, h) }}""",
        ("LayerNormalization",),
    ),
    SpeltOut(
        "layer_norm_of_channels",
        f"""g (float[2,3,5,5] i, float[8,3,3,3] w, float[8,8,1,1] u) => (float[2,8,3,3] y)
            <{NUMBERS}, float[8,1,1] g = {EIGHT}, float[8,1,1] h = {EIGHT}> {{
            x = Conv (i, w) {LAYER_NORM.replace("[-1]", "[1]")} t = Mul (n, g) s = Add (t, h) y = Conv (s, u) }}""",
        ("Conv", "LayerNormalization", "Conv", "Transpose"),
    ),
    SpeltOut(
        "layer_norm_in_fp32",
        f"""g (float16[4,40] i, float[40] g, float[40] h) => (float16[4,40] y) <{NUMBERS}> {{
            x = Cast <to = 1> (i) {LAYER_NORM} t = Mul (n, g) s = Add (t, h) y = Cast <to = 10> (s) }}""",
        ("LayerNormalization",),
    ),
    SpeltOut(
        "rms_norm",
        f"g (float[2,3,8] x, float[8] g) => (float[2,3,8] y) <{NUMBERS}> {{ {RMS_NORM} y = Mul (g, n) }}",
        ("RMSNormalization",),
    ),
    SpeltOut(
        "rms_norm_of_llama",
        f"""g (float16[3,8] z, float16[8] g) => (float16[3,8] y) <{NUMBERS}> {{
            x = Cast <to = 1> (z) {RMS_NORM} c = Cast <to = 10> (n) y = Mul (g, c) }}""",
        ("RMSNormalization",),
    ),
    SpeltOut(
        "skip_and_bias",
        f"""g (float[2,3,8] a, float[1,3,8] z) => (float[2,3,8] y, float[2,3,8] x)
            <{NUMBERS}, float[8] g = {EIGHT}, float[8] h = {EIGHT}, float[8] c = {EIGHT}> {{
            b = Add (a, c) x = Add (b, z) {LAYER_NORM} t = Mul (n, g) y = Add (t, h) }}""",
        ("SkipLayerNormalization",),
    ),
    SpeltOut(
        "skip_rms_norm",
        f"""g (float[2,2,3,8] a, float[2,2,3,8] z) => (float[2,2,3,8] y, float[2,2,3,8] u) <{NUMBERS}> {{
            x = Add (a, z) {RMS_NORM} y = Neg (n) u = Neg (x) }}""",
        ("SkipSimplifiedLayerNormalization", "Neg", "Neg"),
    ),
    SpeltOut(
        "rotary",
        """g (float[2,3,5,8] x, float[1,1,5,8] c, float[1,1,5,8] s) => (float[2,3,5,8] y) {
            l, r = Split <axis = -1> (x) n = Neg (r) h = Concat <axis = -1> (n, l)
            a = Mul (x, c) b = Mul (h, s) y = Add (a, b) }""",
        ("RotaryEmbedding",),
    ),
    SpeltOut(
        "rotary_in_part",
        """g (float16[2,3,5,20] w, float16[2,1,5,12] c, float16[2,1,5,12] s) => (float16[2,3,5,20] y)
            <int64[2] parts = {12,8}> {
            x, p = Split <axis = 3> (w, parts) l, r = Split <axis = -1> (x) n = Neg (r) h = Concat <axis = -1> (n, l)
            a = Mul (x, c) b = Mul (h, s) t = Add (a, b) y = Concat <axis = -1> (t, p) }""",
        ("RotaryEmbedding",),
    ),
]
