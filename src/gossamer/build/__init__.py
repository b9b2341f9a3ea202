"""[3] Build: a placed model becomes a Program, and its kernels become machine code."""

from gossamer.build.programs import build

__all__ = ["build"]
