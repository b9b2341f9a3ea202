"""What GOSSAMER_DEBUG=2 says: each call of a Program with its time, and how near it came to the machine's limits."""

from __future__ import annotations

from collections.abc import Iterable

from gossamer.program import Call, CudnnCall, HostCall, Launch, Program, PythonCall


def profile_text(program: Program, timings: Iterable[tuple[Call, float]]) -> str:
    """A line for each call, in order, and the sum. timings: calls of the Program with seconds.

    GB/s counts every buffer that a call reads or writes once, whole.
    """
    lines, total = [], 0.0
    for call, seconds in timings:
        total += seconds
        lines.append(f"{_figures(program, call, seconds)}  {_what(call)}  {call.origin}")
    return "\n".join((f"{program.name} for {program.target.name}, {total * 1e6:.1f} µs:", *lines))


def _figures(program: Program, call: Call, seconds: float) -> str:
    figures = f"{seconds * 1e6:10.1f} µs"
    if program.target.interpreted:  # how fast an interpreter is says nothing about anything else
        return figures
    nbytes = sum(program.buffers[name].nbytes for name in (*call.reads, *call.writes))
    flops = call.flops if isinstance(call, Launch | CudnnCall) else 0
    per_second = 1 / max(seconds, 1e-9)
    arithmetic = f"{flops * per_second / 1e12:7.2f} TFLOP/s" if flops else " " * 15
    return f"{figures} {nbytes * per_second / 1e9:8.1f} GB/s {arithmetic}"


def _what(call: Call) -> str:
    if isinstance(call, Launch):
        return f"{call.kernel.function}[{'×'.join(map(str, call.grid))}]"
    if isinstance(call, CudnnCall):
        return f"cudnn.{call.routine}"
    if isinstance(call, PythonCall):
        return f"python {call.op_type}"
    return "host" if isinstance(call, HostCall) else type(call).__name__.lower()
