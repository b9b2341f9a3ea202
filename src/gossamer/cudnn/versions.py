"""What the graph layer needs of a cuDNN's version."""

from __future__ import annotations

from gossamer.cudnn import enums, loader
from gossamer.cudnn.enums import cudnnBackendDescriptorType
from gossamer.cudnn.verdicts import version_text
from gossamer.errors import PlanError

BUILT_FOR = 92800
"""The release whose headers the manifest and the enums are of, as cudnnGetVersion counts."""


def require_device_properties() -> None:
    """PlanError NOT_SUPPORTED, naming both versions, where cuDNN cannot plan from device properties. (R10.3)

    Only the handle-less path asks. Where there is no cuDNN at all, the next call says so.
    """
    library = loader.load()
    first = enums.since(cudnnBackendDescriptorType.CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR)
    if library.available and min(library.version, BUILT_FOR) < first:
        raise PlanError(
            "NOT_SUPPORTED",
            f"working without a handle needs cuDNN {version_text(first)}; this one is {version_text(library.version)}, "
            f"and Gossamer was built for {version_text(BUILT_FOR)}; give a handle instead",
        )
