# SPDX-License-Identifier: Apache-2.0
"""Chains of conversions: a random state goes from format to format, each time by
one of our ways, and PyTorch takes the same steps next to it."""

import concurrent.futures
import os
import random
import subprocess

import judge
import tessera
import tessera.torch
import torch
import torch.distributed.checkpoint as dcp
from held_port import held_port
from random_states import RandomState

SUFFIXES = {"dcp": "", "pt": ".pt", "safetensors": ".safetensors"}
MAX_STEPS = 4
# Ways that lose all values except for tensors.
TENSORS_ONLY = ("ranks",)
# Ways that lose containers, but not the names that DCP gives.
FLAT = ("ranks", "reader")
# PyTorch's own is not an Exception.
FAILURES = (Exception, dcp.api.CheckpointException)


class Difference(AssertionError):
    """A way gave something else than PyTorch."""


class Chain:
    """One seed's chain.

    Args:
      seed: decides everything.
      folder: an empty one, which a daemon serves.
      client: of that daemon.
      reload: the path of the program of reload.cc.

    Attributes:
      steps: the steps so far, for messages.
      refusal: the message with which the last step was refused, or None.
    """

    def __init__(self, seed, folder, client, reload):
        self._random = random.Random(seed)
        self._folder = folder
        self._client = client
        self._reload = reload
        self._state = RandomState(seed)
        self._count = 0
        self._is_flat = False
        self._is_tensors = False
        self.steps = []
        self.refusal = None

    def run(self):
        """Raises Difference. Ends early where PyTorch itself cannot go on, and
        where an unusual value is refused."""
        self._form = self._random.choice(("pt", "dcp"))
        try:
            judge.save(self._state.value, self._path(self._form), self._form)
        except FAILURES:
            return
        self._ours = self._theirs = self._path(self._form, new=False)
        for _ in range(self._random.randint(1, MAX_STEPS)):
            if not self._step():
                return
            self._look()

    def _path(self, form, new=True):
        self._count += new
        return self._folder / f"{self._count}{SUFFIXES[form]}"

    def _step(self):
        """One conversion; whether the chain goes on."""
        form = self._random.choice(list(SUFFIXES))
        ways = ["command", "command", "python", "daemon", "reader"]
        if form == "dcp":
            ways += ["writer", "async_writer", "reshard", "ranks"]
        way = self._random.choice(ways)
        theirs = self._path(form)
        try:
            expected = judge.load(self._theirs, self._form)
            if way in TENSORS_ONLY:
                expected = judge.tensors(expected)
            if form == "safetensors":
                expected = self._without_unusual(expected)
            judge.save(expected, theirs, form)
            expected = judge.load(theirs, form)
        except FAILURES:
            return False  # PyTorch cannot.
        ours = self._path(form)
        self.steps.append(
            f"{self._form} to {form} by {way}: {self._ours} {ours}"
        )
        try:
            getattr(self, "_" + way)(ours, form)
        except FAILURES as error:
            return self._refused(error, ours)
        try:
            found = judge.load(ours, form)
        except FAILURES as error:
            raise self._difference(f"PyTorch cannot read it: {error}")
        self._is_flat |= way in FLAT
        if self._is_flat:
            found, expected = judge.flat(found), judge.flat(expected)
        self._is_tensors |= form == "safetensors" or way in TENSORS_ONLY
        if self._is_tensors:
            found = self._without_unusual(found)
            expected = self._without_unusual(expected)
        self._expect_same(found, expected)
        self._ours, self._theirs, self._form = ours, theirs, form
        return True

    def _without_unusual(self, state):
        """`--drop-non-tensors` may leave these out, and names them. To the
        ranks, tensors of subclasses are objects."""
        tensors = judge.tensors(state)
        for name in self._state.unusual:
            tensors.pop(name, None)
        return tensors

    def _expect_same(self, found, expected):
        text = judge.difference(found, expected)
        if text is not None:
            raise self._difference(text)

    def _difference(self, text):
        return Difference("\n".join([*self.steps, text]))

    def _refused(self, error, dst):
        text = str(getattr(error, "failures", error))
        if not self._state.unusual:
            raise self._difference("refused: " + text)
        if dst.exists() and dst.suffix:
            raise self._difference(f"left {dst}: " + text)
        self.refusal = text
        return False

    # The ways, by name.

    def _options(self, form):
        options = {"to": form}
        if form == "safetensors":
            options["drop_non_tensors"] = True
        elif form == "dcp" and self._random.random() < 0.5:
            options["mesh"] = {"shard": self._random.randint(1, 4)}
        return options

    def _python(self, dst, form):
        tessera.convert(self._ours, dst, **self._options(form))

    def _command(self, dst, form):
        words = ["convert", self._ours, dst]
        for name, value in self._options(form).items():
            words.append("--" + name.replace("_", "-"))
            if isinstance(value, dict):
                words.append(",".join(f"{k}={v}" for k, v in value.items()))
            elif value is not True:
                words.append(value)
        done = subprocess.run(
            [tessera._commands.program("dcp-convert"), *words],
            capture_output=True,
            text=True,
        )
        if done.returncode != 0:
            raise RuntimeError(done.stderr)

    def _daemon(self, dst, form):
        options = self._options(form)
        options["format"] = options.pop("to")
        self._client.convert(self._ours, dst, **options).wait()

    def _reshard(self, dst, form):
        mesh = {"replicate": 2, "shard": self._random.randint(1, 5)}
        tessera.reshard(self._ours, dst, mesh=mesh)

    def _reader(self, dst, form):
        """By names, because PyTorch's planner cannot make all containers again
        that it took apart."""
        reader = tessera.torch.Reader(self._ours, verify=True)
        judge.save(judge.load_flat(reader), dst, form)

    def _writer(self, dst, form):
        state = judge.load(self._ours, self._form)
        writer = tessera.torch.Writer(dst)
        dcp.save(state, storage_writer=writer, no_dist=True)

    def _async_writer(self, dst, form):
        state = judge.load(self._ours, self._form)
        writer = tessera.torch.Writer(dst)
        dcp.async_save(state, storage_writer=writer, no_dist=True).result()

    def _ranks(self, dst, form):
        num_ranks = self._random.randint(1, 3)
        seed = str(self._random.randint(0, 999))
        said = _run_ranks(num_ranks, [self._reload, self._ours, dst, seed])
        if (
            "address already in use" in said.lower()
        ):  # since the port was chosen
            said = _run_ranks(num_ranks, [self._reload, self._ours, dst, seed])
        if said:
            raise RuntimeError(said)

    # Checks that change nothing.

    def _look(self):
        expected = judge.tensors(judge.load(self._theirs, self._form))
        for opened in (
            lambda: tessera.open(self._ours),
            lambda: self._client.open(self._ours),
        ):
            try:
                with opened() as checkpoint:
                    self._look_into(checkpoint, expected)
            except tessera.Error as error:
                self._refused(error, self._ours.with_name("nothing"))
        if self._form != "dcp" or self._state.unusual:
            return
        self._load_into_targets(expected)

    def _look_into(self, checkpoint, expected):
        names = [name for name in expected if name in checkpoint]
        if not self._state.unusual and names != list(expected):
            missing = set(expected) - set(names)
            raise self._difference(f"open lacks {missing}")
        for name in names:
            index = self._index(expected[name].shape)
            self.steps.append(f"open {name!r}{index}")
            found = checkpoint[name].torch(index)
            self._expect_same(found, expected[name][index])
            self.steps.pop()

    def _index(self, shape):
        """Of integers and slices, as programs read rows and columns."""
        index = []
        for extent in shape[: self._random.randint(0, len(shape))]:
            first = self._random.randint(0, extent)
            last = self._random.randint(first, extent)
            index.append(slice(first, last, self._random.choice((None, 1, 2))))
            if extent and self._random.random() < 0.3:
                index[-1] = self._random.randint(-extent, extent - 1)
        return tuple(index)

    def _load_into_targets(self, expected):
        """Into tensors of other strides and dtypes, as PyTorch does."""
        targets = [{}, {}]
        for name, tensor in expected.items():
            dtype = tensor.dtype
            if dtype == torch.float32 and self._random.random() < 0.3:
                dtype = self._random.choice((torch.bfloat16, torch.float64))
            for one in targets:
                one[name] = self._target(tensor, dtype)
        readers = (
            tessera.torch.Reader(self._ours),
            dcp.FileSystemReader(self._theirs),
        )
        self.steps.append("load into targets")
        for target, reader in zip(targets, readers):
            try:
                dcp.load(target, storage_reader=reader, no_dist=True)
            except dcp.api.CheckpointException as error:
                raise self._difference(str(error))
        for name, tensor in expected.items():
            if targets[0][name].dtype != tensor.dtype:
                # PyTorch's NaNs depend on where in its memory an element is.
                for one in targets:
                    one[name] = torch.nan_to_num(one[name], 0, 1, -1)
        self._expect_same(*targets)
        self.steps.pop()

    def _target(self, tensor, dtype):
        blank = torch.zeros(tensor.shape, dtype=dtype)
        if tensor.ndim < 2 or tensor.numel() % 2:
            return blank
        return torch.zeros(tensor.shape[::-1], dtype=dtype).permute(
            *range(tensor.ndim - 1, -1, -1)
        )


def _run_ranks(num_ranks, command):
    """Their output if one of them fails, which ends the others."""
    common = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(held_port())}
    common["WORLD_SIZE"] = str(num_ranks)
    ranks = []
    for rank in range(num_ranks):
        own = {"RANK": str(rank), "LOCAL_RANK": str(rank)}
        ranks.append(
            subprocess.Popen(
                command,
                env={**os.environ, **common, **own},
                stderr=subprocess.PIPE,
                text=True,
            )
        )

    def follow(rank):
        said = rank.communicate()[1]
        if rank.returncode == 0:
            return ""
        for other in ranks:
            other.kill()
        return said or f"ended with {rank.returncode}"

    with concurrent.futures.ThreadPoolExecutor(num_ranks) as pool:
        return "".join(pool.map(follow, ranks))
