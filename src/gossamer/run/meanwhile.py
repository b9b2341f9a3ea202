"""Work that is begun before it is needed, beside other work that takes as long."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress


@contextmanager
def meanwhile(prepare: Callable[[], object], expected: type[Exception]) -> Iterator[None]:
    """Does `prepare` in a thread, which is over when the block is.

    expected: errors that are not told here: whoever needs what was prepared asks for it again, and meets them then.
    """

    def attempt() -> None:
        with suppress(expected):
            prepare()

    thread = threading.Thread(target=attempt, name="gossamer-meanwhile")
    thread.start()
    try:
        yield
    finally:
        thread.join()
