"""Einsum with random equations, shapes and types, against NumPy."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cases.einsum import case
from cases.node_case import NodeCase
from examples import examples

LABELS = "abcdeF"


@st.composite
def nodes(draw: st.DrawFn) -> NodeCase:
    """One to four operands of rank 0 to 4; labels repeat within and across them, and are broadcast here and there."""
    extents = {label: draw(st.sampled_from((0, 1, 2, 3, 5))) for label in LABELS}
    ellipsis = draw(st.sampled_from(((), (), (2,), (3, 2))))
    terms, shapes = [], []
    for _ in range(draw(st.integers(1, 4))):
        labels = draw(st.lists(st.sampled_from(LABELS), max_size=3))
        covered = draw(st.booleans()) and bool(ellipsis)
        at = draw(st.integers(0, len(labels)))
        shape = [extents[label] for label in labels]
        terms.append("".join([*labels[:at], "..." * covered, *labels[at:]]))
        shapes.append((*shape[:at], *(ellipsis if covered else ()), *shape[at:]))
    equation = ",".join(terms)
    used = sorted({label for term in terms for label in term if label != "."})
    if draw(st.booleans()):
        output = draw(st.permutations(used))[: draw(st.integers(0, len(used)))]
        equation += "->" + "..." * any("..." in term for term in terms) + "".join(output)
    return case(equation, tuple(shapes), draw(st.sampled_from(("float32", "float64", "int32", "uint8"))))


@settings(max_examples=examples(100), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(nodes())
def test_einsum_agrees_with_numpy(node: NodeCase) -> None:
    node.check("interpreter")
