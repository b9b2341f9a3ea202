"""Operations of a graph: frozen records that refer to tensors by uid, and describe themselves to cuDNN.

One module per family. `Operation.describe` makes the backend descriptor; `OPERATIONS` finds the class of a record that
was written as a dict.
"""

from __future__ import annotations

from gossamer.cudnn.operations.base import Lowering, Operation
from gossamer.cudnn.operations.convolution import Convolution
from gossamer.cudnn.operations.matmul import Matmul
from gossamer.cudnn.operations.norm import Norm
from gossamer.cudnn.operations.pointwise import Pointwise
from gossamer.cudnn.operations.reduction import Reduction
from gossamer.cudnn.operations.resample import Resample

__all__ = ["OPERATIONS", "Convolution", "Lowering", "Matmul", "Norm", "Operation", "Pointwise", "Reduction", "Resample"]

OPERATIONS: dict[str, type[Operation]] = {
    operation.__name__: operation for operation in (Convolution, Matmul, Norm, Pointwise, Reduction, Resample)
}
"""Every operation by the name it has in a graph's dict form."""
