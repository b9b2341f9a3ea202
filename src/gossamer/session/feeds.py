"""Checks of what is fed and bound: names, dtypes, ranks, dimensions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from gossamer.errors import InvalidArgument
from gossamer.options import nearest
from gossamer.run.device_tensor import DeviceTensor
from gossamer.session import memory
from gossamer.session.element_types import BY_NAME, of_dtype
from gossamer.session.engine import NodeArgInfo, Tensor

_KINDS_TAKEN = {"b": "b", "i": "biu", "u": "biu", "f": "biuf", "c": "biufc", "O": "UO"}
"""The kinds of Python numbers (by the dtype that NumPy gives them) that each kind of element takes without changing
what they mean.
"""


def _takes(dtype: np.dtype[Any], natural: np.dtype[Any]) -> bool:
    """Whether Python values whose dtype by nature is `natural` may become `dtype`."""
    # NumPy files ml_dtypes' types under V.
    kind = dtype.kind if dtype.kind in _KINDS_TAKEN else ("i" if "int" in dtype.name else "f")
    return natural.kind in _KINDS_TAKEN[kind]


class Slot:
    """One input or output, prepared for checking what is put there.

    kind: `input` or `output`, for messages. dimensions: a number where the model fixes the extent, else None; None
    where even the rank is open.
    """

    __slots__ = ("dimensions", "dtype", "info", "kind")

    def __init__(self, kind: str, info: NodeArgInfo, overrides: Mapping[str, int]) -> None:
        self.kind = kind
        self.info = info
        row = BY_NAME.get(info.dtype)
        self.dtype = row.dtype if row else None
        self.dimensions = None if info.shape is None else tuple(_extent(given, overrides) for given in info.shape)

    def take(self, value: Any, stream: int | None = None) -> Any:
        """The value as an engine takes it: a dense array or a device tensor of this slot's dtype and dimensions.

        Lists and numbers become arrays; arrays that are not C-contiguous or in foreign byte order are copied; tensors
        of other packages are used in place. What is not a tensor (sequences, maps, optionals) is passed on as it is.
        Errors: InvalidArgument naming the slot, what it expects and what came.
        """
        if self.dtype is None:
            return value
        if type(value) is np.ndarray and value.dtype == self.dtype and value.flags.c_contiguous:
            tensor: Tensor = value
        elif type(value) is DeviceTensor and value.dtype == self.dtype:
            tensor = value
        else:
            tensor = self._converted(value, stream)
        if not self._fits(tensor.shape):
            raise self._mismatch(tensor, self._place(tensor.shape))
        return tensor

    def check(self, dtype: np.dtype[Any], shape: tuple[int, ...] | None) -> None:
        """InvalidArgument unless tensors of this dtype and shape (None: not known yet) can be bound here."""
        if self.dtype is None:
            raise InvalidArgument(f"{self._title()} is no tensor and cannot be bound to memory")
        if of_dtype(dtype).dtype != self.dtype:
            raise self._mismatch_text(f"{of_dtype(dtype).tensor}", "another element type")
        if shape is not None and not self._fits(shape):
            raise self._mismatch_text(f"shape {list(shape)}", self._place(shape))

    def _fits(self, shape: Sequence[int]) -> bool:
        wanted = self.dimensions
        if wanted is None:
            return True
        if len(wanted) != len(shape):
            return False
        # Not all(): a generator would double what a check costs.
        for fixed, extent in zip(wanted, shape, strict=True):  # noqa: SIM110
            if fixed is not None and fixed != extent:
                return False
        return True

    def _converted(self, value: Any, stream: int | None) -> Tensor:
        if isinstance(value, DeviceTensor):
            tensor: Tensor = value
        elif isinstance(value, (np.ndarray, np.generic)):
            tensor = np.asarray(value)
        elif memory.is_foreign_tensor(value):
            tensor = self._adopted(value, stream)
        else:
            tensor = self._array_of(value)
        if _element_type(tensor) != self.info.dtype:
            raise self._mismatch(tensor, "another element type")
        if isinstance(tensor, DeviceTensor):
            return tensor
        return memory.dense(tensor.astype(object) if tensor.dtype.kind == "U" else tensor)

    def _adopted(self, value: Any, stream: int | None) -> Tensor:
        """Another package's tensor, in place; what its package, or Gossamer, has against that names the slot."""
        try:
            return memory.adopt(value, stream)
        except (BufferError, RuntimeError, TypeError, ValueError) as error:
            raise InvalidArgument(
                f"{self._title()} expects {self._wanted()}, got a {type(value).__name__} that cannot be used: {error}"
            ) from error

    def _array_of(self, value: Any) -> np.ndarray[Any, np.dtype[Any]]:
        """Python numbers, texts and lists of them as an array of this slot's dtype, if that loses nothing but
        precision.
        """
        assert self.dtype is not None
        if value is None:  # to NumPy an object like any other, and so a text
            raise InvalidArgument(f"{self._title()} expects {self._wanted()}, got None")
        try:
            natural = np.asarray(value)
            if natural.size and not _takes(self.dtype, natural.dtype):
                raise self._mismatch(natural, "another element type")
            return np.asarray(value, dtype=self.dtype)
        except InvalidArgument:
            raise
        except (TypeError, ValueError, OverflowError) as error:
            raise InvalidArgument(
                f"{self._title()} expects {self._wanted()}, got a {type(value).__name__}: {error}"
            ) from error

    def _place(self, shape: Sequence[int]) -> str:
        """Where a shape that does not fit differs first."""
        wanted = self.dimensions or ()
        if len(wanted) != len(shape):
            return f"rank {len(shape)} instead of {len(wanted)}"
        axis = next(axis for axis, extent in enumerate(wanted) if extent is not None and extent != shape[axis])
        return f"dimension {axis} is {shape[axis]} instead of {wanted[axis]}"

    def _title(self) -> str:
        return f"{self.kind} {self.info.name!r}"

    def _wanted(self) -> str:
        row = BY_NAME.get(self.info.dtype)
        shape = (
            "any shape" if self.info.shape is None else f"shape {_shape_text(self.info.shape, self.dimensions or ())}"
        )
        return f"{row.tensor if row else self.info.dtype} of {shape}"

    def _mismatch(self, tensor: Tensor, difference: str) -> InvalidArgument:
        return self._mismatch_text(f"{_type_text(tensor)} of shape {list(tensor.shape)}", difference)

    def _mismatch_text(self, came: str, difference: str) -> InvalidArgument:
        return InvalidArgument(f"{self._title()} expects {self._wanted()}, got {came}: {difference}")


class Slots:
    """The inputs or the outputs of a model by name."""

    def __init__(
        self,
        kind: str,
        required: Sequence[NodeArgInfo],
        overrides: Mapping[str, int],
        optional: Sequence[NodeArgInfo] = (),
    ) -> None:
        self._kind = kind
        self._by_name = {info.name: Slot(kind, info, overrides) for info in (*required, *optional)}
        self.names = [info.name for info in required]
        self._required = frozenset(info.name for info in required if not info.dtype.startswith("optional"))

    def __getitem__(self, name: str) -> Slot:
        """The slot of that name. Errors: InvalidArgument, with the nearest name there is."""
        slot = self._by_name.get(name)
        if slot is None:
            raise InvalidArgument(f"the model has no {self._kind} {name!r}{nearest(str(name), self._by_name)}")
        return slot

    def require(self, given: Mapping[str, object]) -> None:
        """InvalidArgument naming every required slot that is not among the given names."""
        if not given.keys() >= self._required:
            missing = [name for name in self.names if name in self._required and name not in given]
            raise InvalidArgument(f"missing {self._kind}s {missing}, got {list(given)}")


def _extent(given: int | str | None, overrides: Mapping[str, int]) -> int | None:
    return overrides.get(given) if isinstance(given, str) else given


def _shape_text(shape: Sequence[int | str | None], dimensions: Sequence[int | None]) -> str:
    """The shape as the model has it, with the values of overridden names."""
    extents = zip(shape, dimensions, strict=True)
    return (
        "["
        + ", ".join(
            "?" if a is None else f"{a}={b}" if isinstance(a, str) and b is not None else str(a) for a, b in extents
        )
        + "]"
    )


def _element_type(tensor: Tensor) -> str | None:
    try:
        return of_dtype(tensor.dtype).name
    except InvalidArgument:
        return None


def _type_text(tensor: Tensor) -> str:
    name = _element_type(tensor)
    return f"NumPy's {tensor.dtype}" if name is None else BY_NAME[name].tensor
