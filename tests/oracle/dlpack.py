"""NumPy as the other side of DLPack: dlpack.py LIBRARY (the built oracle_dlpack)."""
import ctypes
import sys

import numpy as np

library = ctypes.CDLL(sys.argv[1])
for give in (library.give, library.give_copy):
    give.restype = ctypes.c_void_p
library.take.restype, library.take.argtypes = ctypes.c_double, [ctypes.c_void_p]
api = ctypes.pythonapi
api.PyCapsule_New.restype = ctypes.py_object
api.PyCapsule_New.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
api.PyCapsule_GetPointer.restype = ctypes.c_void_p
api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
api.PyCapsule_SetName.argtypes = [ctypes.py_object, ctypes.c_char_p]
NAME, USED = b"dltensor_versioned", b"used_dltensor_versioned"


class Given:
    """What NumPy asks for a capsule."""

    def __init__(self, pointer):
        self.pointer = pointer

    def __dlpack__(self, **_):
        return api.PyCapsule_New(self.pointer, NAME, None)

    def __dlpack_device__(self):
        return (1, 0)


def taken(array):
    capsule = array.__dlpack__(max_version=(1, 1))
    pointer = api.PyCapsule_GetPointer(capsule, NAME)
    api.PyCapsule_SetName(capsule, USED)
    return library.take(pointer)


read_only = np.from_dlpack(Given(library.give()))
assert (read_only == np.arange(6).reshape(2, 3) * np.float32(1.5)).all() and not read_only.flags.writeable
own = np.from_dlpack(Given(library.give_copy()))
own[0] = 7
assert own.tolist() == [7, 1, 2, 3, 4, 5]
for array in (
    np.arange(6.0).reshape(2, 3),
    np.arange(24, dtype=np.int16).reshape(4, 6)[::2, ::-1],
    np.arange(12, dtype=np.float32).reshape(3, 4).T,
    np.array([True, False, True]),
    np.zeros((0, 3)),
):
    wanted = float((array.astype(float).ravel() * np.arange(array.size)).sum())
    found = taken(array)
    assert found == wanted, (array, found, wanted)
print("DLPack: NumPy", np.__version__, "reads and gives the same tensors")
