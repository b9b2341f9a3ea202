"""Kernel caches: kernels that cuDNN compiled at run time, shared by plans of graphs with dynamic shapes.

Source: cudnn_graph.h, CUDNN_BACKEND_KERNEL_CACHE_DESCRIPTOR (since cuDNN 9.4; as JSON since 9.10).
"""

from __future__ import annotations

import json
from types import TracebackType
from typing import Self

from gossamer.cudnn import prerequisites
from gossamer.cudnn.descriptors import Attribute, Descriptor, Kind
from gossamer.cudnn.plan_format import check_references
from gossamer.errors import InvalidArgument, PlanError, WrongType

__all__ = ["KernelCache"]


class KernelCache:
    """A cache for graphs of one topology, made with `dynamic_shapes=True`; it learns the topology from the first.

    Freed by `close` or by leaving `with`; plans that were built with it stay usable.
    """

    def __init__(self) -> None:
        prerequisites.prepare()
        self._descriptor = Descriptor(Kind.CUDNN_BACKEND_KERNEL_CACHE_DESCRIPTOR, "the kernel cache")
        self._finalized = False

    @classmethod
    def deserialize(cls, blob: bytes) -> KernelCache:
        """A cache from `serialize`'s bytes. PlanError CORRUPT where they are none."""
        if not isinstance(blob, bytes | bytearray | memoryview):
            raise WrongType(f"a kernel cache is restored from bytes, not {type(blob).__name__}")
        text = bytes(blob)
        try:
            values = json.loads(text)
            if "operationGraph" in values:
                check_references(values["operationGraph"])
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise PlanError("CORRUPT", f"these {len(text)} bytes are no kernel cache: {error}") from error
        cache = cls()
        try:
            cache._descriptor.set_text(Attribute.CUDNN_ATTR_KERNEL_CACHE_JSON_REPRESENTATION, text)
        except BaseException:
            cache.close()
            raise
        return cache

    def serialize(self) -> bytes:
        """Its kernels as cuDNN's JSON. InvalidArgument while nothing was built with it."""
        if not self._finalized:
            raise InvalidArgument("a kernel cache is empty until a graph is built with it")
        return self._descriptor.get_text(Attribute.CUDNN_ATTR_KERNEL_CACHE_JSON_REPRESENTATION)

    def for_graph(self, operation_graph: Descriptor) -> Descriptor:
        """The descriptor, finalized with the first graph that it is for."""
        if not self._finalized:
            self._descriptor.set(Attribute.CUDNN_ATTR_KERNEL_CACHE_OPERATION_GRAPH, operation_graph)
            self._descriptor.finalize()
            self._finalized = True
        return self._descriptor

    def close(self) -> None:
        """Free it; again does nothing."""
        self._descriptor.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
