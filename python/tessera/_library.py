# SPDX-License-Identifier: Apache-2.0
"""The shared library, through ctypes: each call releases the interpreter lock.

tessera.h, which is in the package, documents the functions.
"""

from __future__ import annotations

import ctypes
import functools
import os
import pathlib
from typing import Any
from typing import Callable

from tessera import _errors
from tessera import _threads

FOLDER = pathlib.Path(__file__).resolve().parent

FILL = ctypes.CFUNCTYPE(
    ctypes.c_int,
    ctypes.c_void_p,
    ctypes.c_uint64,
    ctypes.c_void_p,
    ctypes.c_uint64,
)


class Region(ctypes.Structure):
    """tessera_region."""

    _fields_ = [
        ("name", ctypes.c_char_p),
        ("dtype", ctypes.c_char_p),
        ("num_dims", ctypes.c_size_t),
        ("offsets", ctypes.POINTER(ctypes.c_int64)),
        ("sizes", ctypes.POINTER(ctypes.c_int64)),
        ("data", ctypes.c_void_p),
        ("num_bytes", ctypes.c_uint64),
    ]


class Range(ctypes.Structure):
    """tessera_range."""

    _fields_ = [("offset", ctypes.c_uint64), ("length", ctypes.c_uint64)]


class Pair(ctypes.Structure):
    """tessera_pair."""

    _fields_ = [("key", ctypes.c_char_p), ("value", ctypes.c_char_p)]


class WriteOptions(ctypes.Structure):
    """tessera_write_options."""

    _fields_ = [
        ("memory_bytes", ctypes.c_uint64),
        ("max_rate", ctypes.c_uint64),
        ("direct", ctypes.c_int),
    ]


_HANDLE = ctypes.c_void_p
_TEXT = ctypes.c_char_p
_OUT = ctypes.POINTER(ctypes.c_void_p)
_DIMS = ctypes.POINTER(ctypes.c_int64)
_RANGE = ctypes.POINTER(Range)

# The functions that can fail, with their argument types.
_CALLS = {
    "tessera_checkpoint_open": [_TEXT, _HANDLE, _OUT],
    "tessera_checkpoint_describe": [_HANDLE, _OUT],
    "tessera_checkpoint_read": [
        *(_HANDLE, ctypes.POINTER(Region), ctypes.c_size_t),
        *(ctypes.c_uint64, ctypes.c_int, _HANDLE),
    ],
    "tessera_checkpoint_object": [_HANDLE, _TEXT, _HANDLE, _OUT],
    "tessera_checkpoint_not_dense": [
        *(_HANDLE, ctypes.POINTER(_TEXT), ctypes.c_size_t, _HANDLE, _OUT),
    ],
    "tessera_checkpoint_item": [
        *(_HANDLE, _TEXT, ctypes.c_size_t, _HANDLE, _OUT),
    ],
    "tessera_newest_step": [_TEXT, _OUT],
    "tessera_remove_old_steps": [
        *(_TEXT, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64, _OUT),
    ],
    "tessera_object_check": [_TEXT, ctypes.c_uint64],
    "tessera_check_served": [_TEXT],
    "tessera_save_begin": [_TEXT, ctypes.c_int, _OUT],
    "tessera_save_file_name": [_HANDLE, ctypes.c_int64, _OUT],
    "tessera_save_adopt": [_HANDLE, _TEXT],
    "tessera_save_commit": [
        *(_HANDLE, _TEXT, _TEXT, ctypes.c_size_t),
        *(ctypes.POINTER(_TEXT), ctypes.c_size_t),
    ],
    "tessera_file_new": [_TEXT, _OUT],
    "tessera_file_add_tensor": [
        *(_HANDLE, _TEXT, ctypes.c_size_t, _DIMS),
        *(ctypes.c_void_p, FILL, ctypes.c_void_p, _RANGE),
    ],
    "tessera_file_add_object": [
        *(_HANDLE, ctypes.c_uint64),
        *(ctypes.c_void_p, FILL, ctypes.c_void_p, _RANGE),
    ],
    "tessera_write_file": [
        *(_TEXT, _TEXT, ctypes.POINTER(Region), ctypes.c_size_t),
        *(ctypes.POINTER(Pair), ctypes.c_size_t, ctypes.c_int),
        *(ctypes.POINTER(WriteOptions), _HANDLE),
    ],
    "tessera_file_write": [
        *(_HANDLE, _TEXT, ctypes.POINTER(WriteOptions), _HANDLE, _OUT),
    ],
}
_FREES = (
    "tessera_error_free",
    "tessera_bytes_free",
    "tessera_stop_free",
    "tessera_checkpoint_free",
    "tessera_save_free",
    "tessera_file_free",
    "tessera_stop_request",
)
_ERROR_TEXTS = ("message", "path", "file", "tensor", "offset")


@functools.lru_cache(maxsize=None)
def library() -> ctypes.CDLL:
    """Loads the library when something needs it first."""
    path = os.environ.get("TESSERA_LIBRARY", FOLDER / "lib" / "libtessera.so")
    loaded = ctypes.CDLL(os.fspath(path))
    for name, arguments in _CALLS.items():
        function = getattr(loaded, name)
        function.argtypes = arguments
        function.restype = ctypes.c_void_p
    for name in _FREES:
        getattr(loaded, name).argtypes = [ctypes.c_void_p]
        getattr(loaded, name).restype = None
    loaded.tessera_stop_new.restype = ctypes.c_void_p
    loaded.tessera_crc32c.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    loaded.tessera_crc32c.restype = ctypes.c_uint32
    loaded.tessera_error_code.argtypes = [ctypes.c_void_p]
    for name in _ERROR_TEXTS:
        function = getattr(loaded, "tessera_error_" + name)
        function.argtypes = [ctypes.c_void_p]
        function.restype = ctypes.c_char_p
    loaded.tessera_bytes_data.argtypes = [ctypes.c_void_p]
    loaded.tessera_bytes_data.restype = ctypes.c_void_p
    loaded.tessera_bytes_size.argtypes = [ctypes.c_void_p]
    loaded.tessera_bytes_size.restype = ctypes.c_size_t
    return loaded


def call(name: str, *arguments: Any) -> None:
    """Calls a function in _CALLS; raises the error that it returns."""
    error = getattr(library(), name)(*arguments)
    if error is None:
        return
    code = library().tessera_error_code(error)
    texts = {
        text: getattr(library(), "tessera_error_" + text)(error).decode(
            "utf-8", "replace"
        )
        for text in _ERROR_TEXTS
    }
    library().tessera_error_free(error)
    message = texts.pop("message")
    raise _errors.class_of_number(code)(message, **texts)


def take_bytes(handle: ctypes.c_void_p) -> bytes:
    """The content of a tessera_bytes; frees the tessera_bytes."""
    try:
        return ctypes.string_at(
            library().tessera_bytes_data(handle),
            library().tessera_bytes_size(handle),
        )
    finally:
        library().tessera_bytes_free(handle)


def dims(numbers) -> Any:
    """An int64 array for the library."""
    return (ctypes.c_int64 * len(numbers))(*numbers)


def texts(strings) -> Any:
    """A text array for the library."""
    return (ctypes.c_char_p * len(strings))(*map(str.encode, strings))


class Handle:
    """Owns a library handle and frees it with `free`, once.

    After a fork, only the process that made the handle frees it.
    """

    def __init__(self, free: str):
        self._free = free
        self._process = os.getpid()
        self.value = ctypes.c_void_p()

    @property
    def out(self):
        return ctypes.byref(self.value)

    def close(self) -> None:
        value, self.value = self.value, ctypes.c_void_p()
        if value and self._process == os.getpid():
            getattr(library(), self._free)(value)

    def __del__(self):
        # When the interpreter ends, this module may already be gone.
        if library is not None:
            self.close()


def interruptible(work: Callable[[ctypes.c_void_p], Any]) -> Any:
    """Calls work(stop), so that Ctrl-C ends it early."""
    stop = ctypes.c_void_p(library().tessera_stop_new())
    try:
        (result,) = _threads.run_all(
            [lambda: work(stop)],
            lambda: library().tessera_stop_request(stop),
        )
        return result
    finally:
        library().tessera_stop_free(stop)
