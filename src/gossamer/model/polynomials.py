"""Polynomials in atoms, an atom being x or a function of such a polynomial: how expressions are compared."""

from __future__ import annotations

from collections import Counter
from typing import Any, TypeAlias

Atom: TypeAlias = "tuple[Any, ...]"
"""("x",) or (function, parameter, …, polynomial as a tuple)."""
Monomial: TypeAlias = "tuple[Atom, ...]"
Polynomial: TypeAlias = "dict[Monomial, float]"
"""Coefficients by the sorted atoms they multiply; the empty product is the constant term."""

X: Polynomial = {(("x",),): 1.0}


def from_number(value: float) -> Polynomial:
    """A polynomial without x."""
    return {(): value}


def added(a: Polynomial, b: Polynomial, sign: float = 1.0) -> Polynomial:
    """a + sign · b."""
    total = Counter(a)
    for monomial, coefficient in b.items():
        total[monomial] += sign * coefficient  # type: ignore[assignment]
    return {monomial: coefficient for monomial, coefficient in total.items() if coefficient != 0}


def multiplied(a: Polynomial, b: Polynomial) -> Polynomial:
    """a · b."""
    product: Polynomial = {}
    for left, x in a.items():
        for right, y in b.items():
            monomial = tuple(sorted(left + right, key=repr))
            product[monomial] = product.get(monomial, 0.0) + x * y
    return product


def scaled(a: Polynomial, factor: float) -> Polynomial:
    """a · factor."""
    return {monomial: coefficient * factor for monomial, coefficient in a.items()}


def applied(function: str, argument: Polynomial, *parameters: float) -> Polynomial:
    """function(argument), an atom."""
    return {((function, *parameters, tuple(sorted(argument.items(), key=repr))),): 1.0}


def to_number(polynomial: Polynomial) -> float | None:
    """The value of a constant polynomial."""
    if any(monomial for monomial in polynomial):
        return None
    return polynomial.get((), 0.0)


def unscaled(polynomial: Polynomial) -> Polynomial:
    """Every coefficient 1."""
    return dict.fromkeys(polynomial, 1.0)


def same(a: Polynomial, b: Polynomial, tolerance: float) -> bool:
    """Whether the monomials pair off, with coefficients close to each other at every depth."""
    if len(a) != len(b):
        return False
    rest = dict(b)
    for monomial, coefficient in a.items():
        partner = next(
            (m for m, c in rest.items() if close(coefficient, c, tolerance) and _same_product(monomial, m, tolerance)),
            None,
        )
        if partner is None:
            return False
        del rest[partner]
    return True


def _same_product(a: Monomial, b: Monomial, tolerance: float) -> bool:
    return len(a) == len(b) and all(_same_atom(x, y, tolerance) for x, y in zip(a, b, strict=True))


def _same_atom(a: Atom, b: Atom, tolerance: float) -> bool:
    if a[0] != b[0] or len(a) != len(b):
        return False
    if a == b:
        return True
    parameters = all(close(x, y, tolerance) for x, y in zip(a[1:-1], b[1:-1], strict=True))
    return parameters and same(dict(a[-1]), dict(b[-1]), tolerance)


def close(a: float, b: float, tolerance: float) -> bool:
    """Whether two numbers are equal up to a relative error."""
    return abs(a - b) <= tolerance * max(abs(a), abs(b))
