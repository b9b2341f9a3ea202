"""The memory plan: lifetimes of buffers → offsets in one arena."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from gossamer.program.buffers import ARENA_ALIGNMENT, Buffer
from gossamer.program.calls import Call, HostCall, Launch, View


@dataclass(frozen=True, slots=True)
class Arena:
    """`offset` bytes into the arena of an execution context."""

    offset: int


@dataclass(frozen=True, slots=True)
class Weight:
    """`offset` bytes into the constant `key`, which lives on the device as long as the session."""

    key: str
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Host:
    """An array on the host: only HostCalls and the caller touch it."""


Location: TypeAlias = Arena | Weight | Host


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Where every buffer lives. arena_bytes: the arena's size. lower_bound_bytes: the most that is alive at once."""

    locations: Mapping[str, Location]
    arena_bytes: int
    lower_bound_bytes: int


@dataclass(slots=True)
class _Block:
    """A stretch of arena that one or several buffers share, alive from call `first` to call `last`."""

    nbytes: int
    first: int
    last: int
    offset: int = -1
    members: list[tuple[str, int]] = field(default_factory=list)
    """Names of the buffers, and where in the block each begins."""

    def offset_of(self, name: str) -> int:
        return next(offset for member, offset in self.members if member == name)


def plan_memory(
    buffers: Mapping[str, Buffer],
    calls: Sequence[Call],
    inputs: Iterable[str],
    outputs: Iterable[str],
    weights: Mapping[str, str],
) -> MemoryPlan:
    """Places every buffer that inputs, outputs or calls name.

    weights: buffer name → key of the constant. Views share their source's memory; a launch writes over an input that
    dies with it where it says it may. Blocks are placed largest first, each at the lowest offset free for its whole
    life.
    """
    inputs = list(inputs)
    locations: dict[str, Location] = {name: Weight(key) for name, key in weights.items()}
    locations.update((name, Host()) for name in sorted(_host_only(buffers, calls, inputs)))
    lives = _Lives(buffers, _last_uses(calls, list(outputs)), locations)
    # Nobody writes an empty buffer (launches over nothing are dropped), but it may be read or be an output.
    empty = [name for name, buffer in buffers.items() if buffer.nbytes == 0 and not buffer.dynamic]
    for name in (*inputs, *empty):
        if not lives.has_place(name):
            lives.begin(name, -1)
    for index, call in enumerate(calls):
        if isinstance(call, View):
            lives.share(call)
        else:
            lives.write(call, index)
    arena_bytes = _place(lives.blocks)
    for block in lives.blocks:
        locations.update((name, Arena(block.offset + offset)) for name, offset in block.members)
    return MemoryPlan(locations, arena_bytes, _lower_bound(lives.blocks))


@dataclass(slots=True)
class _Lives:
    """The blocks that calls need, found call by call. locations: of the buffers that live outside the arena."""

    buffers: Mapping[str, Buffer]
    last_use: Mapping[str, int]
    locations: dict[str, Location]
    blocks: list[_Block] = field(default_factory=list)
    block_of: dict[str, _Block] = field(default_factory=dict)

    def has_place(self, name: str) -> bool:
        return name in self.locations or name in self.block_of

    def begin(self, name: str, first: int) -> None:
        """A new block for a buffer that is alive from call `first` on."""
        last = max(first, self.last_use.get(name, first))
        block = self.block_of[name] = _Block(self.buffers[name].nbytes, first, last, members=[(name, 0)])
        self.blocks.append(block)

    def write(self, call: Call, index: int) -> None:
        """Places what a call writes: over an input that dies with it, or in new blocks."""
        for name in call.writes:
            if self.has_place(name):
                continue
            block = self._dying_block(call, name, index)
            if block is None:
                self.begin(name, index)
            else:
                block.last = max(index, self.last_use.get(name, index))
                block.members.append((name, 0))
                self.block_of[name] = block

    def share(self, view: View) -> None:
        """Places a view inside its source."""
        block = self.block_of.get(view.source)
        if block is not None:
            block.members.append((view.out, block.offset_of(view.source) + view.offset))
            block.last = max(block.last, self.last_use[view.out])
            self.block_of[view.out] = block
            return
        source = self.locations[view.source]
        inside = Weight(source.key, source.offset + view.offset) if isinstance(source, Weight) else source
        self.locations[view.out] = inside

    def _dying_block(self, call: Call, written: str, index: int) -> _Block | None:
        """The block of an input that dies with the launch at `index` and that it may write `written` over."""
        for out, source in call.inplace if isinstance(call, Launch) else ():
            block = self.block_of.get(source)
            if out != written or block is None or block.last != index or (source, 0) not in block.members:
                continue
            fits = self.buffers[written].nbytes <= self.buffers[source].nbytes
            if fits and not self._is_touched_otherwise(call, source, block):
                return block
        return None

    def _is_touched_otherwise(self, call: Call, source: str, block: _Block) -> bool:
        """Whether the call reads bytes of `source`, which starts its block, through another view of the block, or
        writes them already: an in-place claim speaks of `source` alone.
        """
        for name in {*call.reads, *call.writes} - {source}:
            shares = self.block_of.get(name) is block and self.buffers[name].nbytes > 0
            if shares and block.offset_of(name) < self.buffers[source].nbytes:
                return True
        return False


def _last_uses(calls: Sequence[Call], outputs: Sequence[str]) -> dict[str, int]:
    """Buffer → index of the last call that touches it or a view of it; outputs live past the last call."""
    last: dict[str, int] = {}
    for index, call in enumerate(calls):
        for name in (*call.reads, *call.writes):
            last[name] = index
    last.update((name, len(calls)) for name in outputs)
    for call in reversed(calls):
        if isinstance(call, View):
            last[call.source] = max(last[call.source], last[call.out])
    return last


def _host_only(buffers: Mapping[str, Buffer], calls: Sequence[Call], inputs: Sequence[str]) -> set[str]:
    """Buffers that the device never touches, and those of a shape that is not known here."""
    device: set[str] = set()
    host: set[str] = set(inputs) | {name for name, buffer in buffers.items() if buffer.dynamic}
    for call in calls:
        if isinstance(call, HostCall):
            host.update(call.writes)
        else:
            device.update(call.reads, call.writes)
    return host - device


def _place(blocks: Sequence[_Block]) -> int:
    """Gives every block its offset, and says how long the arena is."""
    placed: list[_Block] = []
    arena_bytes = 0
    for block in sorted(blocks, key=lambda block: (-block.nbytes, block.first)):
        size = _aligned(block.nbytes)
        block.offset = 0
        for other in placed:  # sorted by offset
            if other.first > block.last or other.last < block.first:
                continue
            if other.offset >= block.offset + size:
                break
            block.offset = max(block.offset, other.offset + _aligned(other.nbytes))
        arena_bytes = max(arena_bytes, block.offset + size)
        position = next((i for i, other in enumerate(placed) if other.offset > block.offset), len(placed))
        placed.insert(position, block)
    return arena_bytes


def _lower_bound(blocks: Sequence[_Block]) -> int:
    """The most bytes alive at once."""
    changes: dict[int, int] = {}
    for block in blocks:
        changes[block.first] = changes.get(block.first, 0) + _aligned(block.nbytes)
        changes[block.last + 1] = changes.get(block.last + 1, 0) - _aligned(block.nbytes)
    live = peak = 0
    for time in sorted(changes):
        live += changes[time]
        peak = max(peak, live)
    return peak


def _aligned(nbytes: int) -> int:
    return max(1, -(-nbytes // ARENA_ALIGNMENT)) * ARENA_ALIGNMENT
