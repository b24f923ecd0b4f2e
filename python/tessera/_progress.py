# SPDX-License-Identifier: Apache-2.0
"""A bar on the terminal for calls that take long."""

from __future__ import annotations

import sys
from typing import Any

from tessera._quantity import quantity


class Bar:
    """Shows a call's progress: a tqdm bar if tqdm is installed, otherwise a
    line on standard error. Leaves the last state there.

    Args:
      what: the call's name.
    """

    def __init__(self, what: str):
        self._what = what
        self._bar: Any = None
        self._is_shown = False

    def __enter__(self) -> Bar:
        try:
            from tqdm.auto import tqdm

            self._bar = tqdm(desc=self._what, unit="B", unit_scale=True)
        except ImportError:
            pass
        return self

    def __exit__(self, *unused: Any) -> None:
        if self._bar is not None:
            self._bar.close()
        elif self._is_shown:
            sys.stderr.write("\n")

    def show(self, progress: Any) -> None:
        """Takes a Progress."""
        if self._bar is not None:
            self._bar.total = progress.total_bytes
            self._bar.update(progress.done_bytes - self._bar.n)
            return
        self._is_shown = True
        sys.stderr.write(
            f"\r{self._what}: {quantity(progress.done_bytes)} of "
            f"{quantity(progress.total_bytes)}, "
            f"{quantity(int(progress.bytes_per_second))}/s  "
        )
        sys.stderr.flush()
