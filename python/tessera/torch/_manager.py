# SPDX-License-Identifier: Apache-2.0
"""CheckpointManager: a training run's checkpoints in one directory."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import threading
import weakref
from concurrent.futures import Future
from typing import Any
from typing import Callable
from typing import Dict
from typing import Optional
from typing import Tuple
from typing import Union

import torch
import torch.distributed as dist
import torch.distributed.checkpoint.state_dict_saver as state_dict_saver

from tessera import _errors
from tessera import _library
from tessera._checkpoint import DAEMON
from tessera.torch import _state
from tessera.torch._writer import Writer


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


class _Notice:
    """Whether SIGTERM has asked this process to end. While it lives, the signal
    sets a flag and does nothing else."""

    def __init__(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            raise _errors.InvalidArgumentError(
                "save_on_sigterm=True is for the main thread, which alone "
                "receives signals; pass False",
                field="save_on_sigterm",
            )
        self.came = False
        self._before = signal.signal(signal.SIGTERM, self._set)

    def _set(self, *unused: Any) -> None:
        self.came = True

    def close(self) -> None:
        if signal.getsignal(signal.SIGTERM) == self._set:
            signal.signal(signal.SIGTERM, self._before)


class CheckpointManager:
    """When to save, which steps to keep, and where to resume: the checkpoints
    "step-<N>" in a directory, or below a name in an object store. The rules are
    those of fsdp::CheckpointManager. For the thread that trains; all ranks of
    the default process group make the same calls.

        manager = CheckpointManager("run7", save_every=500, keep_last=3)
        step = manager.resume(state) or 0
        while step < num_steps:
            ...                              # forward, backward
            manager.before_optimizer_step()  # a save in flight has its copy
            optimizer.step()
            step += 1
            if manager.should_save(step):
                manager.save(step, state)
            if manager.should_exit():
                break
        manager.finish()

    Args:
      directory: a path, which is made with all parents, or an s3:// URL.
      save_every: steps; 0: only when asked.
      keep_last: how many of the newest stay; 0: all.
      keep_every: the multiples of this stay too; 0: none.
      asynchronous: saves are written while training goes on.
      save_on_sigterm: SIGTERM (pre-emption) makes should_save and should_exit
        true on all ranks at the next step. Only in the main thread.
      writer: makes the saves, with the options that it has. By default one that
        copies the state in the background.
      log: receives a line for each checkpoint that is skipped or removed, on
        rank 0, perhaps on the thread that saves. By default standard error.
    """

    def __init__(
        self,
        directory: Union[str, "os.PathLike[str]"],
        *,
        save_every: int = 0,
        keep_last: int = 0,
        keep_every: int = 0,
        asynchronous: bool = True,
        save_on_sigterm: bool = True,
        writer: Optional[Writer] = None,
        log: Callable[[str], None] = _say,
    ):
        self.directory = os.fspath(directory)
        if self.directory.startswith(DAEMON):
            raise _errors.UnimplementedError(
                f"{self.directory}: a daemon does not take saves",
                path=self.directory,
            )
        for name, value in (
            ("save_every", save_every),
            ("keep_last", keep_last),
            ("keep_every", keep_every),
        ):
            _check_count(name, value)
        self._save_every = save_every
        self._keep = (keep_last, keep_every)
        self._asynchronous = asynchronous
        self._log = log
        self._writer = writer or Writer(
            async_staging=asynchronous
            and hasattr(state_dict_saver, "AsyncSaveResponse")
        )
        self._notice = _Notice() if save_on_sigterm else None
        # Also for a manager that nobody closes.
        if self._notice is not None:
            weakref.finalize(self, self._notice.close)
        self._exits = False  # the ranks have agreed on it
        self._staged: Optional[Future[Any]] = None
        self._saved: Optional[Future[Any]] = None
        # For the thread that trains, and for the one that saves: made when they
        # are needed first. A save must not share a group with other calls.
        self._groups: Optional[Tuple[Any, Any]] = None

    def __enter__(self) -> CheckpointManager:
        return self

    def __exit__(self, kind: Any, *unused: Any) -> None:
        try:
            self.finish()
        except Exception:
            if kind is None:
                raise
        finally:
            self.close()

    def close(self) -> None:
        """Waits for a save in flight, and restores the former action for
        SIGTERM."""
        self._wait()
        if self._notice is not None:
            self._notice.close()
            self._notice = None
        self._writer.close()

    def path_of(self, step: int) -> str:
        return f"{self.directory.rstrip('/')}/step-{step}"

    def should_save(self, step: int) -> bool:
        """Whether a save is due after `step` steps. Collective if
        save_on_sigterm is set: ranks agree on a signal."""
        if self._notice is not None and not self._exits:
            self._exits = self._any(self._notice.came)
        return self._exits or (
            self._save_every > 0 and step > 0 and step % self._save_every == 0
        )

    def should_exit(self) -> bool:
        """Whether SIGTERM asked the job to end; check it after the save."""
        return self._exits

    def save(self, step: int, state: Dict[str, Any]) -> None:
        """Starts, or makes, the checkpoint of `step`. Steps beyond keep_last
        and keep_every, and older ones that a crash left unfinished, are removed
        once the next one is durable, never before. Raises an earlier save's
        error, once."""
        _check_count("step", step)
        self.finish()
        path = self.path_of(step)
        _, group = self._both_groups()
        if not self._asynchronous:
            _state.save(state, path, self._writer)
            self._durable(step)
            return
        started = state_dict_saver.async_save(
            state,
            checkpoint_id=path,
            storage_writer=self._writer,
            process_group=group,
        )
        # Since PyTorch 2.9 with separate staging.
        self._staged = getattr(started, "staging_completion", None)
        written = getattr(started, "upload_completion", started)
        # Done once old steps are removed, too.
        saved: Future[None] = Future()
        self._saved = saved

        def on_written(written: Future[Any]) -> None:
            try:
                written.result()
                self._durable(step)
                saved.set_result(None)
            except BaseException as failure:  # raised by finish()
                saved.set_exception(failure)

        written.add_done_callback(on_written)

    def before_optimizer_step(self) -> None:
        """Waits until the save in flight has copied the state."""
        staged, self._staged = self._staged, None
        if staged is not None:
            # This is the save's error, which finish() raises.
            staged.exception()

    def finish(self) -> None:
        """Waits until every save that was started is durable, and raises an
        error from one, once."""
        self.before_optimizer_step()
        saved, self._saved = self._saved, None
        if saved is not None:
            with _state.own_errors():
                saved.result()

    def latest(self) -> Optional[int]:
        """The newest complete step; incomplete ones are skipped, with a line in
        the log. None without one. Collective."""
        self._wait()  # the directory is not torn but in progress
        found: Any = None
        if _rank() == 0:
            try:
                found = self._newest()
            except _errors.Error as failure:
                found = failure
        found = self._from_rank_0(found)
        if isinstance(found, Exception):
            raise found
        step: Optional[int] = found
        return step

    def resume(self, state: Dict[str, Any]) -> Optional[int]:
        """Loads the latest into `state`, in place, and returns the step; None
        if there is none. Collective."""
        step = self.latest()
        if step is not None:
            _state.load(state, self.path_of(step))
        return step

    def _wait(self) -> None:
        """Waits until no save is in flight; an error stays for finish()."""
        self.before_optimizer_step()
        if self._saved is not None:
            self._saved.exception()

    def _newest(self) -> Optional[int]:
        out = ctypes.c_void_p()
        _library.call(
            "tessera_newest_step",
            os.fsencode(self.directory),
            ctypes.byref(out),
        )
        told = json.loads(_library.take_bytes(out))
        for line in told["skipped"]:
            self._log(line)
        step: Optional[int] = told["step"]
        return step

    def _durable(self, step: int) -> None:
        if _rank() != 0:
            return
        out = ctypes.c_void_p()
        _library.call(
            "tessera_remove_old_steps",
            *(os.fsencode(self.directory), step, *self._keep),
            ctypes.byref(out),
        )
        for line in json.loads(_library.take_bytes(out)):
            self._log(line)

    def _both_groups(self) -> Tuple[Any, Any]:
        if not _state.has_ranks():
            return None, None
        if self._groups is None:
            self._groups = (
                dist.new_group(backend="gloo"),
                dist.new_group(backend="gloo"),
            )
        return self._groups

    def _any(self, flag: bool) -> bool:
        group, _ = self._both_groups()
        if group is None:
            return flag
        flags = torch.tensor([int(flag)], device="cpu")
        dist.all_reduce(flags, dist.ReduceOp.MAX, group=group)
        return bool(flags.item())

    def _from_rank_0(self, value: Any) -> Any:
        group, _ = self._both_groups()
        if group is None:
            return value
        values = [value]
        dist.broadcast_object_list(
            values, src=0, group=group, device=torch.device("cpu")
        )
        return values[0]


def _rank() -> int:
    return dist.get_rank() if _state.has_ranks() else 0


def _check_count(name: str, value: Any) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise _errors.InvalidArgumentError(
            f"{name}={value!r} is not a number of steps, 0 or more", field=name
        )
