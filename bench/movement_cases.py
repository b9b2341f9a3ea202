"""Cases of operators that map elements one by one or move them; see `operator_cases`."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from operator_case import ALL_FLOATS, BOTH, FIRST, Array, Case, Given, Pick, fixed, index, rand, scalar
from operator_references import expanded


def elementwise(n: Pick) -> Iterator[Case]:
    large = rand(n(8192, 9), n(8192, 16))
    for op in ("Relu", "Exp", "Tanh", "Erf", "Gelu", "Sigmoid", "Sqrt"):
        x = rand(*large.shape, kind="positive") if op == "Sqrt" else large
        dtypes = ALL_FLOATS if op in ("Relu", "Gelu") else ("float16",)
        yield Case(f"elementwise/{op}", f"y = {op}(x)", {"x": x}, part=FIRST, dtypes=dtypes)
    two, same = {"x": large, "z": large}, {"x": 0, "z": 0, "y": 0}
    yield Case("elementwise/Add", "y = Add(x, z)", two, part=same, dtypes=BOTH)
    yield Case("elementwise/Add_bert_batch1", "y = Add(x, z)", {k: rand(1, n(128, 3), n(768, 20)) for k in "xz"})
    yield Case("elementwise/Less", "y = Less(x, z)", two, part=same)
    yield Case("elementwise/Pow", "y = Pow(x, z)", {"x": rand(*large.shape, kind="positive"), "z": large}, part=same)
    given = {"x": large, "z": large, "c": Given(large.shape, "bool", kind="below", high=2)}
    yield Case("elementwise/Where", "y = Where(c, x, z)", given, part=same | {"c": 0})
    yield Case("elementwise/Cast_to_float", "y = Cast <to=1> (x)", {"x": large}, part=FIRST)
    row, column = rand(large.shape[1]), rand(large.shape[0], 1)
    yield Case("elementwise/Add_row", "y = Add(x, r)", {"x": large, "r": row}, part=FIRST)
    yield Case("elementwise/Mul_column", "y = Mul(x, r)", {"x": large, "r": column}, part=FIRST | {"r": 0})
    c = n(256, 5)
    maps = rand(n(32, 2), c, n(56, 6), n(56, 6))
    given = {"x": maps, "g": rand(1, c, 1, 1), "b": rand(1, c, 1, 1)}
    yield Case("elementwise/channel_scale", "t = Mul(x, g) y = Add(t, b)", given, part=FIRST)
    yield Case("elementwise/residual_relu", "t = Add(x, z) y = Relu(t)", {"x": maps, "z": maps}, part=same)
    body = "t = Add(x, b) y = Gelu(t)"
    yield Case("elementwise/bias_gelu", body, {"x": rand(n(4096, 3), n(3072, 20)), "b": rand(n(3072, 20))}, part=FIRST)
    wide = rand(n(2048, 4), n(11008, 20))
    body = "s = Sigmoid(x) t = Mul(x, s) y = Mul(t, z)"
    yield Case("elementwise/silu_mul_llama", body, {"x": wide, "z": wide}, part=same)
    given = {"x": large, "r": scalar(2**0.5, "T"), "o": scalar(1, "T"), "h": scalar(0.5, "T")}
    body = "a = Div(x, r) e = Erf(a) p = Add(e, o) m = Mul(x, p) y = Mul(m, h)"
    yield Case("elementwise/gelu_spelt_out", body, given, part=FIRST)
    given = {"x": maps, "s": rand(c, 1, 1)}
    yield Case("elementwise/PRelu", "y = PRelu(x, s)", given, part=FIRST)


def permutations(n: Pick) -> Iterator[Case]:
    for name, shape, perm, dtypes in (
        ("heads_bert", (n(32, 2), n(128, 6), 12, n(64, 8)), (0, 2, 1, 3), ("float16",)),
        ("matrix", (n(8192, 9), n(8192, 17)), (1, 0), BOTH),
        ("to_channels_last", (n(32, 2), n(64, 6), n(112, 5), n(112, 5)), (0, 2, 3, 1), ("float16",)),
        ("to_channels_first", (n(32, 2), n(112, 5), n(112, 5), n(64, 6)), (0, 3, 1, 2), ("float16",)),
        ("image_to_channels_last", (n(32, 2), 3, n(512, 6), n(512, 6)), (0, 2, 3, 1), ("float16",)),
        ("reversed", (n(64, 3), n(64, 4), n(96, 5), n(128, 6)), (3, 2, 1, 0), ("float16",)),
    ):
        yield Case(
            f"transpose/{name}", f"y = Transpose <perm={list(perm)}> (x)", {"x": rand(*shape)},
            part={"x": 0, "y": perm.index(0)}, dtypes=dtypes,
        )  # fmt: skip
    given = {"x": rand(n(8, 1), n(256, 8), n(128, 5), n(128, 5))}
    yield Case("transpose/DepthToSpace", "y = DepthToSpace <blocksize=2> (x)", given, part=FIRST)
    yield Case(
        "transpose/SpaceToDepth",
        "y = SpaceToDepth <blocksize=2> (x)",
        {"x": rand(n(8, 1), n(64, 3), n(256, 6), n(256, 6))},
        part=FIRST,
    )


def movements(n: Pick) -> Iterator[Case]:
    b, same = n(32, 2), {"x": 0, "z": 0, "y": 0}
    maps = {"x": rand(b, n(256, 4), n(28, 4), n(28, 4)), "z": rand(b, n(32, 2), n(28, 4), n(28, 4))}
    yield Case("concat/densenet", "y = Concat <axis=1> (x, z)", maps, part=same)
    cache = {"x": rand(n(8, 2), 8, n(2048, 9), n(128, 8)), "z": rand(n(8, 2), 8, 1, n(128, 8))}
    yield Case("concat/cache", "y = Concat <axis=2> (x, z)", cache, part=same)
    columns = {name: rand(n(8192, 5), n(2048, 9)) for name in "xz"}
    yield Case("concat/inner", "y = Concat <axis=-1> (x, z)", columns, part=same)
    d = n(768, 8)
    body = "y, k, v = Split <axis=-1, num_outputs=3> (x)"
    outputs = {"y": None, "k": None, "v": None}
    yield Case("split/qkv_bert", body, {"x": rand(n(4096, 5), 3 * d)}, outputs, dict.fromkeys("xykv", 0))
    rows, cols = n(8192, 8), n(8192, 16)
    for name, starts, ends, steps in (
        ("columns", (0, cols // 8), (rows, 5 * cols // 8), (1, 1)),
        ("every_second", (0, 0), (rows, cols), (1, 2)),
        ("backwards", (-1, -1), (-rows - 1, -cols - 1), (-1, -1)),
    ):
        given = {"x": rand(rows, cols), "s": fixed(*starts), "e": fixed(*ends), "a": fixed(0, 1), "t": fixed(*steps)}
        size = 2 * rows * len(range(*slice(starts[1], ends[1] if ends[1] > -cols else None, steps[1]).indices(cols)))
        yield Case(f"slice/{name}", "y = Slice(x, s, e, a, t)", given, moved=size)
    size = n(256, 8)
    given = {"x": rand(n(64, 2), 3, size, size), "s": fixed(size // 16, size // 16), "a": fixed(2, 3)}
    given["e"] = fixed(size - size // 16, size - size // 16)
    crop = size - 2 * (size // 16)
    body = "y = Slice(x, s, e, a)"
    yield Case("slice/crop", body, given, part=FIRST, moved=2 * n(64, 2) * 3 * crop * crop)
    for mode, p in (("constant", 1), ("reflect", 3), ("edge", 2)):
        given = {"x": rand(n(32, 2), n(64, 3), n(112, 6), n(112, 6)), "p": fixed(0, 0, p, p, 0, 0, p, p)}
        yield Case(f"pad/{mode}", f'y = Pad <mode="{mode}"> (x, p)', given, part=FIRST)
    given = {"x": rand(n(8192, 4), 1), "s": fixed(n(8192, 4), n(8192, 9))}
    yield Case("expand/column", "y = Expand(x, s)", given, part=FIRST, reference=expanded)
    given = {"x": rand(n(8, 2), 8, 1, n(1024, 5), n(128, 8)), "s": fixed(n(8, 2), 8, 4, n(1024, 5), n(128, 8))}
    yield Case("expand/grouped_heads", "y = Expand(x, s)", given, part=FIRST, reference=expanded)
    yield Case("tile/matrix", "y = Tile(x, r)", {"x": rand(n(1024, 4), n(1024, 9)), "r": fixed(8, 4)})
    given = {"x": rand(n(8192, 6), n(8192, 6))}
    yield Case("generate/Trilu", "y = Trilu <upper=0> (x)", given)
    given = {"i": index(n(32, 2), n(128, 3), high=n(4096, 9)), "d": scalar(n(4096, 9), "int64")}
    given["v"] = Given((2,), constant=True, kind="values", values=(0, 1))
    yield Case("generate/OneHot", "y = OneHot(i, d, v)", given)


def indexing(n: Pick) -> Iterator[Case]:
    rows, cols, b, tokens = n(50257, 40), n(768, 16), n(32, 2), n(128, 3)
    given = {"x": rand(rows, cols), "i": index(b, tokens, high=rows)}
    yield Case("gather/embedding_bert", "y = Gather(x, i)", given, moved=2 * b * tokens * cols)
    rows, cols, picks = n(16384, 9), n(4096, 16), n(16384, 5)
    given = {"x": rand(rows, cols), "i": index(picks, high=rows)}
    yield Case("gather/rows_large", "y = Gather(x, i)", given, dtypes=BOTH, moved=2 * picks * cols)
    given = {"x": rand(n(4096, 5), n(8192, 9)), "i": index(n(8192, 4), high=n(8192, 9))}
    body = "y = Gather <axis=1> (x, i)"
    yield Case("gather/columns", body, given, part=FIRST)
    given = {"x": rand(rows, n(1024, 8)), "i": index(n(4096, 4), n(1024, 8), high=rows, dtype="int32")}
    body = "y = GatherElements <axis=0> (x, i)"
    yield Case(
        "gather/GatherElements", body, given, part={"x": 1, "i": 1, "y": 1}, moved=(2 + 2) * n(4096, 4) * n(1024, 8)
    )
    given = {"x": rand(n(256, 3), n(64, 4), cols), "i": index(n(8192, 5), 2, high=n(64, 3))}
    yield Case("gather/GatherND", "y = GatherND(x, i)", given, moved=2 * n(8192, 5) * cols)
    updates = n(1024, 3)
    rows = n(8192, 9)
    order = Given((updates, 1), "int64", kind="values", values=np.random.default_rng(0).permutation(rows)[:updates])
    given = {"x": rand(rows, cols), "i": order, "u": rand(updates, cols)}
    moved = 2 * (rows + updates) * cols
    yield Case("scatter/ScatterND_rows", "y = ScatterND(x, i, u)", given, moved=moved)
    given = given | {"i": index(updates, 1, high=rows)}
    body = 'y = ScatterND <reduction="add"> (x, i, u)'
    yield Case("scatter/ScatterND_add", body, given, moved=moved)
    r, c = n(4096, 6), n(1024, 8)
    shuffled = Given((r, c), "int64", kind="values", values=_shuffled_columns(r, c))
    given = {"x": rand(r, c), "i": shuffled, "u": rand(r, c)}
    body = "y = ScatterElements <axis=0> (x, i, u)"
    yield Case("scatter/ScatterElements", body, given, part=dict.fromkeys("xiuy", 1), moved=(2 + 4) * r * c)
    given = given | {"i": index(r, c, high=r)}
    body = 'y = ScatterElements <axis=0, reduction="add"> (x, i, u)'
    yield Case("scatter/ScatterElements_add", body, given, part=dict.fromkeys("xiuy", 1), dtypes=BOTH, limit=2e-3)


def _shuffled_columns(rows: int, columns: int) -> Array:
    """Each column an order of the rows: a turned one of one order."""
    order = np.random.default_rng(0).permutation(rows)
    return order[(np.arange(rows)[:, None] + 7 * np.arange(columns)) % rows]


def resizes(n: Pick) -> Iterator[Case]:
    maps, image = rand(n(8, 1), n(64, 2), n(128, 5), n(128, 5)), rand(n(8, 1), 3, n(1024, 8), n(1024, 8))
    for name, x, settings, scale in (
        ("nearest_up", maps, 'mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor"', 2.0),
        ("linear_up", maps, 'mode="linear"', 2.0),
        ("cubic_up", maps, 'mode="cubic"', 2.0),
        ("linear_down", image, 'mode="linear"', 0.5),
        ("linear_down_antialias", image, 'mode="linear", antialias=1', 0.25),
        ("linear_odd", image, 'mode="linear", coordinate_transformation_mode="align_corners"', 0.6),
    ):
        given, part = {"x": x, "s": fixed(1, 1, scale, scale, dtype="float32")}, dict.fromkeys("xy", int(x is maps))
        yield Case(f"resize/{name}", f"y = Resize <{settings}> (x, , s)", given, part=part, parts=2, limit=2e-3)


MOVEMENTS = (elementwise, permutations, movements, indexing, resizes)
