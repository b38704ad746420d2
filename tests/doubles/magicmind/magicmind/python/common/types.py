"""numpy's types and MagicMind's."""

import numpy as np

from magicmind._double.base import DataType


def get_numpy_dtype_by_datatype(kind):
    return np.dtype(kind.value)


def get_datatype_by_numpy(dtype):
    return DataType(np.dtype(dtype).name)
