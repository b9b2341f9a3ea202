"""UBJSON: what is written is read again, known bytes, and bytes that are none."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossamer.cudnn import ubjson

VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False)
    | st.text(max_size=300).filter(lambda text: text.isprintable()),
    lambda inner: st.lists(inner) | st.dictionaries(st.text().filter(str.isprintable), inner),
    max_leaves=20,
)

KNOWN: dict[bytes, Any] = {
    b"{i\x01aU\xc8i\x01b[TFZ]}": {"a": 200, "b": [True, False, None]},
    b"I\x01\x00": 256,
    b"l\x00\x01\x00\x00": 65536,
    b"i\xff": -1,
    b"Si\x02\xc3\xa9": "é",
    b"D?\xf8\x00\x00\x00\x00\x00\x00": 1.5,
}
"""As draft 12 spells them, and nlohmann::json writes them."""


@given(VALUES)
def test_round_trip(value: Any) -> None:
    assert ubjson.decode(ubjson.encode(value)) == value


@pytest.mark.parametrize(("data", "value"), KNOWN.items())
def test_known_bytes(data: bytes, value: Any) -> None:
    assert ubjson.decode(data) == value
    assert ubjson.encode(value) == data


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b"[$U#i\x03\x01\x02\x03", [1, 2, 3]),
        (b"[#i\x02Tl\x00\x00\x00\x05", [True, 5]),
        (b"{$i#i\x01i\x01a\x07", {"a": 7}),
        (b"[#i\x00", []),
        (b"NN[NTN]", [True]),
        (b"d?\xc0\x00\x00", 1.5),
        (b"Cx", "x"),
    ],
)
def test_forms_that_others_write(data: bytes, value: Any) -> None:
    assert ubjson.decode(data) == value


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[",
        b"{i\x01",
        b"{i\x01aT",
        b"Sl\x7f\xff\xff\xffabc",
        b"Si\xffabc",
        b"X",
        b"TT",
        b"[" * 1000,
        b"[$T#L\x7f\xff\xff\xff\xff\xff\xff\xff",
        b"[$T]",
        b"{i\x01aTi\x01aF}",
        b"Si\x01\xff",
        b"[#i\xff",
    ],
)
def test_what_is_none(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"byte|decode"):
        ubjson.decode(data)


@given(st.binary(max_size=200))
def test_any_bytes(data: bytes) -> None:
    """A value or a ValueError; nothing else, and soon."""
    try:
        value = ubjson.decode(data)
    except ValueError:
        return
    ubjson.encode(value)


@pytest.mark.parametrize(("value", "error"), [(2**63, ValueError), (b"", TypeError), ({1}, TypeError)])
def test_what_it_cannot_hold(value: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="UBJSON cannot hold"):
        ubjson.encode(value)
