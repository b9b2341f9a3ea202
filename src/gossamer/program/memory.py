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
    inputs, outputs = list(inputs), list(outputs)
    last_use = _last_uses(calls, outputs)
    locations: dict[str, Location] = {name: Weight(key) for name, key in weights.items()}
    on_host = _host_only(buffers, calls, inputs, outputs)
    locations.update((name, Host()) for name in on_host)
    blocks: list[_Block] = []
    block_of: dict[str, _Block] = {}

    def new_block(name: str, first: int) -> None:
        block = _Block(buffers[name].nbytes, first, max(first, last_use.get(name, first)), members=[(name, 0)])
        blocks.append(block)
        block_of[name] = block

    # Nobody writes an empty buffer (launches over nothing are dropped), but it may be read or be an output.
    empty = [name for name, buffer in buffers.items() if buffer.nbytes == 0 and not buffer.dynamic]
    for name in dict.fromkeys((*inputs, *empty)):
        if name not in locations:
            new_block(name, -1)
    for index, call in enumerate(calls):
        if isinstance(call, View):
            _share(call, locations, block_of, last_use)
            continue
        for name in call.writes:
            if name in locations or name in block_of:
                continue
            block = _dying_block(call, name, index, buffers, block_of)
            if block is None:
                new_block(name, index)
            else:
                block.last = max(index, last_use.get(name, index))
                block.members.append((name, 0))
                block_of[name] = block
    arena_bytes = _place(blocks)
    for block in blocks:
        locations.update((name, Arena(block.offset + offset)) for name, offset in block.members)
    return MemoryPlan(locations, arena_bytes, _lower_bound(blocks))


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


def _host_only(
    buffers: Mapping[str, Buffer], calls: Sequence[Call], inputs: Sequence[str], outputs: Sequence[str]
) -> set[str]:
    """Buffers that the device never touches, and those of a shape that is not known here."""
    device: set[str] = set()
    host: set[str] = set(inputs) | {name for name, buffer in buffers.items() if buffer.dynamic}
    for call in calls:
        if isinstance(call, HostCall):
            host.update(call.writes)
        else:
            device.update(call.reads, call.writes)
    return host - device


def _share(
    view: View, locations: dict[str, Location], block_of: dict[str, _Block], last_use: Mapping[str, int]
) -> None:
    block = block_of.get(view.source)
    if block is not None:
        offset = next(offset for name, offset in block.members if name == view.source) + view.offset
        block.members.append((view.out, offset))
        block.last = max(block.last, last_use[view.out])
        block_of[view.out] = block
        return
    source = locations[view.source]
    locations[view.out] = Weight(source.key, source.offset + view.offset) if isinstance(source, Weight) else source


def _dying_block(
    call: Call, written: str, index: int, buffers: Mapping[str, Buffer], block_of: Mapping[str, _Block]
) -> _Block | None:
    """The block of an input that dies with the launch at `index` and that it may write `written` over."""
    for out, source in call.inplace if isinstance(call, Launch) else ():
        block = block_of.get(source)
        if out != written or block is None or block.last != index or (source, 0) not in block.members:
            continue
        if buffers[written].nbytes <= buffers[source].nbytes and not _is_touched_otherwise(
            call, source, buffers, block_of
        ):
            return block
    return None


def _is_touched_otherwise(
    call: Call, source: str, buffers: Mapping[str, Buffer], block_of: Mapping[str, _Block]
) -> bool:
    """Whether the call reads bytes of `source`, which starts its block, through another view of the block, or writes
    them already: an in-place claim speaks of `source` alone.
    """
    block = block_of[source]
    for name in {*call.reads, *call.writes} - {source}:
        if block_of.get(name) is block:
            offset = next(offset for member, offset in block.members if member == name)
            if offset < buffers[source].nbytes and buffers[name].nbytes:
                return True
    return False


def _place(blocks: Sequence[_Block]) -> int:
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
