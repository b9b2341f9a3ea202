"""cuDNN, where there is one: manifest, loader, trampolines, graphs and plans. Knows nothing of ONNX.

Importing this package opens nothing and looks for nothing.
"""

from __future__ import annotations
