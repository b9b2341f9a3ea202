"""Reads and writes by address in the interpreter executor."""

from __future__ import annotations

import numpy as np
import pytest

from gossamer.run.spans import Spans


@pytest.fixture
def memory() -> np.ndarray:
    """256 bytes that start at a multiple of eight."""
    return np.arange(32, dtype=np.int64).view(np.uint8)


def addresses_of(memory: np.ndarray, *offsets: int) -> np.ndarray:
    return np.array([memory.ctypes.data + offset for offset in offsets], np.uint64)


def everywhere(addresses: np.ndarray) -> np.ndarray:
    return np.ones(addresses.shape, bool)


def load(spans: Spans, addresses: np.ndarray, mask: np.ndarray, other: int = 0) -> np.ndarray:
    return spans.load(addresses, mask, np.array(other, np.int64), np.dtype(np.int64))


def test_load_follows_addresses(memory: np.ndarray) -> None:
    at = addresses_of(memory, 16, 0, 248)
    np.testing.assert_array_equal(load(Spans([memory]), at, everywhere(at)), [2, 0, 31])


def test_masked_addresses_may_lead_anywhere(memory: np.ndarray) -> None:
    at = np.array([0, memory.ctypes.data + 8, 2**64 - 8], np.uint64)
    mask = np.array([False, True, False])
    np.testing.assert_array_equal(load(Spans([memory]), at, mask, other=-1), [-1, 1, -1])
    np.testing.assert_array_equal(load(Spans([memory]), at, mask & False, other=-1), [-1, -1, -1])


def test_mask_and_values_broadcast(memory: np.ndarray) -> None:
    at = addresses_of(memory, 0, 8, 16, 24).reshape(2, 2)
    loaded = load(Spans([memory]), at, np.array([[True, False]]), other=9)
    np.testing.assert_array_equal(loaded, [[0, 9], [2, 9]])
    Spans([memory]).store(at, np.array([[7]], np.int64), np.array([[True], [False]]))
    np.testing.assert_array_equal(memory.view(np.int64)[:4], [7, 7, 2, 3])


@pytest.mark.parametrize("offset", [-8, 256, 2**40])
def test_an_address_outside_is_an_error(memory: np.ndarray, offset: int) -> None:
    spans = Spans([memory])
    for at in (addresses_of(memory, offset), addresses_of(memory, 0, offset)):
        with pytest.raises(IndexError):
            load(spans, at, everywhere(at))
        with pytest.raises(IndexError):
            spans.store(at, np.zeros(at.shape, np.int64), everywhere(at))


def test_bytes_before_the_start_are_outside(memory: np.ndarray) -> None:
    at = addresses_of(memory, 8, -1)
    with pytest.raises(IndexError):
        Spans([memory]).load(at, everywhere(at), np.array(0, np.uint8), np.dtype(np.uint8))


def test_a_gap_between_buffers_is_outside(memory: np.ndarray) -> None:
    spans = Spans([memory[:64], memory[128:]])
    np.testing.assert_array_equal(load(spans, addresses_of(memory, 136), np.array([True])), [17])
    with pytest.raises(IndexError, match="none of the launch's buffers"):
        load(spans, addresses_of(memory, 64), np.array([True]))


def test_neighbours_are_not_one_buffer(memory: np.ndarray) -> None:
    """Reading past the end of a buffer is an error also where the next one begins there."""
    spans = Spans([memory[:64], memory[64:]])
    at = addresses_of(memory, 56, 64)
    with pytest.raises(IndexError):
        load(spans, at, everywhere(at))


def test_views_of_one_buffer_are_one_span(memory: np.ndarray) -> None:
    spans = Spans([memory[64:128], memory[:96], memory[32:48]])
    at = addresses_of(memory, 0, 120)
    np.testing.assert_array_equal(load(spans, at, everywhere(at)), [0, 15])


def test_the_last_of_several_stores_to_one_address_stays(memory: np.ndarray) -> None:
    at = addresses_of(memory, 8, 8, 8)
    Spans([memory]).store(at, np.array([1, 2, 3], np.int64), np.array([True, True, False]))
    assert memory.view(np.int64)[1] == 2
