# Generated from book/door.ipynb by tools/tangle.py: edit the chapter.
"""Names of the types in the annotations of the package."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

__all__ = ["Floats", "Indices", "LabelsLike", "Matrix", "MatrixLike", "Seed", "WeightsLike"]

# book/door.ipynb#types
#: What becomes a matrix.
MatrixLike: TypeAlias = ArrayLike | sparse.spmatrix | sparse.sparray
#: A dense array or a CSR array (scipy has no types).
Matrix: TypeAlias = Any
#: A dense array of float64.
Floats: TypeAlias = NDArray[np.float64]
#: Numbers of samples, of classes, of atoms.
Indices: TypeAlias = NDArray[np.intp]
#: Labels of any hashable type.
LabelsLike: TypeAlias = ArrayLike | Sequence[Hashable]
#: A weight for each sample.
WeightsLike: TypeAlias = Sequence[float] | Floats
#: What `sklearn.utils.check_random_state` takes.
Seed: TypeAlias = int | np.random.RandomState | None
