"""[3] Build: a placed model becomes a Program, and its kernels become machine code."""

from __future__ import annotations

from gossamer.build.programs import build, trial

__all__ = ["build", "trial"]
