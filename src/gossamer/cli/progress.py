"""Progress bars: the stages of the pipeline that take over a second, on standard error, gone when they end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console, RenderableType
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from gossamer import diagnostics

_VISIBLE_AFTER_SECONDS = 1.0


class _SlowTasks(Progress):
    """Shows only tasks that have been running for a while."""

    def get_renderables(self) -> Iterator[RenderableType]:
        yield self.make_tasks_table([task for task in self.tasks if (task.elapsed or 0) > _VISIBLE_AFTER_SECONDS])


class _Bars:
    """A `diagnostics.Watcher`: one bar for each open stage."""

    def __init__(self, bars: Progress) -> None:
        self._bars = bars
        self._open: list[TaskID] = []

    def begin(self, stage: str) -> None:
        self._open.append(self._bars.add_task(stage, total=None))

    def advance(self, done: int, total: int) -> None:
        if self._open:
            self._bars.update(self._open[-1], completed=done, total=total)

    def end(self) -> None:
        self._bars.remove_task(self._open.pop())


@contextmanager
def progress_bars() -> Iterator[None]:
    """Inside, slow stages show; nothing does where standard error is no terminal."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield
        return
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn())
    with _SlowTasks(*columns, console=console, transient=True) as bars, diagnostics.watch(_Bars(bars)):
        yield
