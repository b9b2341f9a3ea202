"""The command line: `gossamer run`, `inspect`, `bench`, `doctor`, `cudnn-shim`, `cache`.

`app` holds the commands and their options and imports nothing heavy; each command's work is in a module of its own,
imported when the command runs, so that `gossamer --help` is immediate.
"""

from __future__ import annotations

from gossamer.cli.app import main

__all__ = ["main"]
