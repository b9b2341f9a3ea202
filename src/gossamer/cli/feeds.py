"""Arrays for a model's inputs: from files, from pictures, random, or zeros."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import ml_dtypes
import numpy as np

from gossamer.cli.arguments import Request
from gossamer.errors import InvalidArgument, NoSuchFile
from gossamer.program.artifact import open_artifact
from gossamer.program.manifest import shapes_text

Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"


class ModelInput(Protocol):
    """An input of a model: dtype by NumPy's or ml_dtypes' name, and a number, a name or None for each dimension."""

    @property
    def name(self) -> str: ...
    @property
    def dtype(self) -> str: ...
    @property
    def shape(self) -> Sequence[int | str | None] | None: ...


def make_feeds(request: Request, inputs: Sequence[ModelInput]) -> dict[str, Array]:
    """One array for each input.

    What the command line does not name is random: standard normal for floating point, its magnitude where there is no
    sign, 0 or 1 for whole numbers, which is a valid index, mask and count nearly everywhere. Errors: InvalidArgument,
    NoSuchFile.
    """
    given, shapes = request.for_inputs([slot.name for slot in inputs])
    if request.is_compiled:
        shapes = held_shapes(request.model, shapes)
    random = np.random.default_rng(request.seed)
    sources = {slot.name: given.get(slot.name, "random") for slot in inputs}
    generated = [slot for slot in inputs if sources[slot.name] in ("random", "zeros")]
    closed = close_shapes(generated, shapes)
    feeds = {}
    for slot in inputs:
        source = sources[slot.name]
        if slot.name in closed:
            feeds[slot.name] = _made(slot, closed[slot.name], random if source == "random" else None)
        elif source.endswith(".npy"):
            feeds[slot.name] = _load_array(slot, Path(source))
        else:
            feeds[slot.name] = load_picture(slot, Path(source), shapes.get(slot.name))
    return feeds


def held_shapes(model: Path, given: Mapping[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
    """Of a compiled model that holds one signature with the shapes given, that signature; else what was given."""
    artifact = open_artifact(model)
    held = [shapes for target in artifact.targets for shapes in artifact.signatures(target.name)]
    fitting = {shapes_text(shapes): shapes for shapes in held if given.items() <= shapes.items()}
    return dict(next(iter(fitting.values())) if len(fitting) == 1 else given)


def close_shapes(inputs: Sequence[ModelInput], given: Mapping[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
    """The shape of every input, all dimensions known: as given, else as declared, with what the given shapes say of
    named dimensions, an open first dimension being 1.

    Errors: InvalidArgument naming every input whose shape has to be given.
    """
    named = _named_sizes(inputs, given)
    closed, unknown = {}, []
    for slot in inputs:
        shape = slot.shape and [named.get(size, size) if isinstance(size, str) else size for size in slot.shape]
        if slot.name in given:
            closed[slot.name] = given[slot.name]
        elif shape is None or any(not isinstance(extent, int) for extent in shape[1:]):
            unknown.append(slot)
        else:
            closed[slot.name] = tuple(_known(extent, 1) for extent in shape)
    if unknown:
        raise InvalidArgument("the model leaves dimensions open: give " + " ".join(map(_missing_option, unknown)))
    return closed


def _named_sizes(inputs: Sequence[ModelInput], given: Mapping[str, tuple[int, ...]]) -> dict[str, int]:
    """The size of every dimension of the model that has a name, where the given shapes agree on it."""
    sizes: dict[str, set[int]] = {}
    for slot in inputs:
        for extent, size in zip(slot.shape or (), given.get(slot.name, ()), strict=False):
            if isinstance(extent, str) and extent != _NAMELESS:
                sizes.setdefault(extent, set()).add(size)
    return {name: size for name, (size, *others) in sizes.items() if not others}


_NAMELESS = "?"  # what Paddle's exporter calls every dimension that it does not know


def _missing_option(slot: ModelInput) -> str:
    if slot.shape is None:
        return f"--input-shape {slot.name}=... (of any rank)"
    return f"--input-shape {slot.name}=" + "x".join("?" if extent is None else str(extent) for extent in slot.shape)


def _made(slot: ModelInput, shape: tuple[int, ...], random: np.random.Generator | None) -> Array:
    dtype = _dtype_of(slot)
    if random is None:
        return np.zeros(shape, dtype)
    if dtype.kind in "biu" or "int" in dtype.name:
        return random.integers(0, 2, shape).astype(dtype)
    values = random.standard_normal(shape)
    return (np.abs(values) if dtype == ml_dtypes.float8_e8m0fnu else values).astype(dtype)


def _dtype_of(slot: ModelInput) -> np.dtype[Any]:
    extended = getattr(ml_dtypes, slot.dtype, None)
    try:
        return np.dtype(extended if extended is not None else slot.dtype)
    except TypeError:
        raise InvalidArgument(
            f"input {slot.name!r} is {slot.dtype}: it cannot be made up, or read from a file"
        ) from None


def _load_array(slot: ModelInput, path: Path) -> Array:
    try:
        loaded: Array = np.load(path, allow_pickle=False)
    except FileNotFoundError:
        raise NoSuchFile(f"--input {slot.name}={path}: there is no such file") from None
    except ValueError as error:
        raise InvalidArgument(f"--input {slot.name}={path} is not a readable .npy file: {error}") from None
    dtype = _dtype_of(slot)
    # A .npy file has no names for bfloat16 and types of up to 8 bits that NumPy lacks, which it writes as raw bytes.
    return loaded.view(dtype) if loaded.dtype.kind == "V" and loaded.dtype.itemsize == dtype.itemsize else loaded


def load_picture(slot: ModelInput, path: Path, shape: tuple[int, ...] | None) -> Array:
    """A picture as the input wants it: [n, c, height, width] or [n, height, width, c] with 1 or 3 channels c.

    Resized (bilinear) to the input's height and width where they are known, and repeated n times. Floating-point inputs
    get 0 … 1 and no further normalisation, whole-number inputs 0 … 255. Errors: InvalidArgument, NoSuchFile.
    """
    extents = list(shape if shape is not None else slot.shape or ())
    channels_first, channels = _layout(slot, path, extents)
    picture = _open_picture(slot, path, "RGB" if channels == 3 else "L")
    height, width = extents[2:] if channels_first else extents[1:3]
    size = (_known(width, picture.width), _known(height, picture.height))
    pixels = np.asarray(picture.resize(size, _BILINEAR)).reshape(size[1], size[0], channels)
    pixels = pixels.transpose(2, 0, 1) if channels_first else pixels
    batch = np.repeat(pixels[np.newaxis], _known(extents[0], 1), axis=0)
    dtype = _dtype_of(slot)
    whole = dtype.kind in "iu"
    return np.ascontiguousarray(batch.astype(dtype) if whole else (batch / np.float32(255)).astype(dtype))


_BILINEAR = 2  # PIL.Image.Resampling.BILINEAR


def _open_picture(slot: ModelInput, path: Path, mode: str) -> Any:
    option = f"--input {slot.name}={path}"
    try:
        from PIL import Image, UnidentifiedImageError  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        raise InvalidArgument(f"{option}: reading pictures needs Pillow: pip install pillow") from None
    try:
        return Image.open(path).convert(mode)
    except FileNotFoundError:
        raise NoSuchFile(f"{option}: there is no such file") from None
    except (UnidentifiedImageError, IsADirectoryError):
        raise InvalidArgument(f"{option}: neither a .npy file, nor a picture, nor 'random' or 'zeros'") from None


def _known(extent: int | str | None, otherwise: int) -> int:
    return extent if isinstance(extent, int) else otherwise


def _layout(slot: ModelInput, path: Path, extents: Sequence[int | str | None]) -> tuple[bool, int]:
    """Whether channels come first, and how many there are."""
    if len(extents) == 4:
        for channels_first, extent in ((True, extents[1]), (False, extents[3])):
            if isinstance(extent, int) and extent in (1, 3):
                return channels_first, extent
    raise InvalidArgument(
        f"--input {slot.name}={path}: a picture needs an input of shape [n, c, h, w] or [n, h, w, c] with c 1 or 3, "
        f"this one is {list(extents)}"
    )


def describe(array: Any) -> dict[str, Any]:
    """What there is to say about an output: dtype, shape, and of numbers least, most, mean, deviation and NaNs."""
    if not isinstance(array, np.ndarray):
        return {"type": type(array).__name__}
    facts: dict[str, Any] = {"dtype": array.dtype.name, "shape": list(array.shape)}
    if array.dtype.kind in "OUSc" or not array.size:
        return facts
    values = array.astype(np.float64)
    finite = values[np.isfinite(values)]
    if finite.size:
        facts |= dict(_statistics(finite))
    facts["not_finite"] = int(values.size - finite.size)
    return facts


def _statistics(values: Array) -> Iterator[tuple[str, float]]:
    yield "min", float(values.min())
    yield "max", float(values.max())
    yield "mean", math.fsum(values.reshape(-1)) / values.size
    yield "std", float(values.std())
