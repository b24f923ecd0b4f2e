# SPDX-License-Identifier: Apache-2.0
"""The end of a rank in a test."""

import atexit
import multiprocessing
import os
import sys


def end():
    """Ends the process, after the functions that are registered for the end.

    Gloo's threads may still drop tensors. They need the GIL for it, and abort
    the process if Python ends meanwhile. Nothing else ends PyTorch's processes
    then.
    """
    atexit._run_exitfuncs()
    for child in multiprocessing.active_children():
        child.kill()
    sys.stdout.flush()
    os._exit(0)
