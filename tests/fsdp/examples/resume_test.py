# SPDX-License-Identifier: Apache-2.0
"""train_llama in real processes: after a kill, it continues on other meshes as if
nothing had happened, and it exports the trained weights."""

import contextlib
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import unittest

from train_job import Job

CONVERT = pathlib.Path("tools/dcp_convert/dcp-convert").resolve()
SERVER = pathlib.Path("server/dcp-server").resolve()
# Sums over ranks are added in another order, and training enlarges that.
TOLERANCE = 1e-3
MODEL_ALONE = ("--include", "model.*", "--rename", r"s/^model\.//")


def number_after(text, printed):
    return int(re.search(re.escape(text) + r"(\d+)", printed).group(1))


class ResumeTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(dir=os.environ.get("TEST_TMPDIR"))
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        # A few thousand of its own words.
        (self.folder / "text").write_text(pathlib.Path(__file__).read_text())

    @contextlib.contextmanager
    def job(self, world_size, *flags):
        job = Job(self.folder, world_size, *flags)
        try:
            yield job
        finally:
            job.kill()

    def train(self, world_size, *flags):
        with self.job(world_size, *flags) as job:
            return job.end(0)

    def losses(self, name):
        return [float(x) for x in (self.folder / name).read_text().split()]

    def steps(self):
        return sorted(
            int(p.name[len("step-") :]) for p in self.folder.glob("run/step-*")
        )

    def convert(self, *arguments):
        done = subprocess.run(
            [CONVERT, *arguments],
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.assertEqual(done.returncode, 0, done.stdout)
        return done.stdout

    def expect_close(self, losses, wanted):
        self.assertEqual(len(losses), len(wanted))
        for step, (a, b) in enumerate(zip(losses, wanted)):
            self.assertLessEqual(
                abs(a - b), TOLERANCE * abs(b), f"step {step}: {a}, not {b}"
            )

    def test_goes_on_from_a_kill_and_from_sigterm_on_other_meshes(self):
        forever = "--steps=1000000"
        kept = ("--data=text", "--checkpoint-dir=run", "--keep-last=2")
        # Two ranks, killed when step 3 is on disk: the save of step 6, which
        # waited for it, has begun.
        with self.job(2, *kept, "--save-every=3", forever) as job:
            job.read_until("step 7 of ")
        # Two copies, each over two ranks, until one of them is told to end.
        with self.job(4, *kept, "--replicate=2", forever) as job:
            job.read_until("resumed step ")
            killed = number_after("resumed step ", job.printed)
            self.assertGreaterEqual(killed, 3)
            self.assertEqual(killed % 3, 0)
            self.assertIn(f"from run/step-{killed}", job.printed)
            # Beyond the step that the kill may have left unfinished.
            job.read_until(f"step {killed + 4} of ")
            job.ranks[2].send_signal(signal.SIGTERM)
            printed = job.end(0)
        stopped = number_after("stopped by SIGTERM, run/step-", printed)
        self.assertIn("the same command continues from there", printed)
        self.assertGreaterEqual(stopped, killed + 4)
        self.assertEqual(self.steps(), [killed, stopped])

        # Alone, to the end.
        num_steps = stopped + 3
        end = (*kept, f"--steps={num_steps}")
        with self.job(1, *end, "--seed=7", "--batch=8") as job:
            job.end(1)
            self.assertIn(
                f"run/step-{stopped} belongs to another run", job.told()
            )
            self.assertIn(
                "seed was 0 and is 7, batch was 4 and is 8", job.told()
            )
        printed = self.train(
            1,
            *end,
            "--losses-out=resumed",
            "--init-from=ignored",
            "--optimizer=fused_adamw",
            "--export=model.safetensors",
        )
        self.assertIn(
            f"resumed step {stopped} from run/step-{stopped}; "
            "--init-from is not read",
            printed,
        )
        self.assertIn("exported the model to model.safetensors", printed)
        self.assertEqual(self.steps(), [stopped, num_steps])

        self.train(
            2,
            "--data=text",
            f"--steps={num_steps}",
            "--losses-out=uninterrupted",
        )
        losses = self.losses("uninterrupted")
        self.expect_close(self.losses("resumed"), losses)
        self.assertLess(losses[-1], losses[0])

        last = f"run/step-{num_steps}"
        self.convert("verify", last)
        self.convert("diff", last, "model.safetensors", *MODEL_ALONE)
        self.assertIn(
            "\nembed_tokens.weight ",
            self.convert("inspect", "model.safetensors"),
        )

    def test_muon_goes_on_on_other_meshes(self):
        train = ("--data=text", "--optimizer=muon")
        self.train(1, *train, "--steps=6", "--losses-out=uninterrupted")
        kept = (*train, "--checkpoint-dir=run")
        self.train(2, *kept, "--steps=3")
        self.train(
            4, *kept, "--replicate=2", "--steps=6", "--losses-out=resumed"
        )
        losses = self.losses("uninterrupted")
        self.expect_close(self.losses("resumed"), losses)
        self.assertLess(losses[-1], losses[0])

    def test_an_average_goes_on_and_is_exported(self):
        train = ("--data=text", "--ema=0.75")
        whole = (*train, "--checkpoint-dir=whole", "--steps=6")
        printed = self.train(1, *whole, "--export=whole.safetensors")
        self.assertIn("exported the average to whole.safetensors", printed)
        alone = re.search(r"the average of 6 weights has loss (\S+)", printed)
        kept = (*train, "--checkpoint-dir=run")
        self.train(3, *kept, "--steps=3", "--batch=6")
        with self.job(1, *kept, "--steps=6") as job:
            job.end(1)
            self.assertIn("batch was 6 and is 4", job.told())
        shutil.rmtree(self.folder / "run")
        self.train(2, *kept, "--steps=3")
        for world_size, flags in ((4, ("--replicate=2",)), (2, ("--pp=2",))):
            shutil.rmtree(self.folder / "copy", ignore_errors=True)
            shutil.copytree(self.folder / "run", self.folder / "copy")
            printed = self.train(
                world_size,
                *train,
                *flags,
                "--checkpoint-dir=copy",
                "--steps=6",
                "--export=resumed.safetensors",
            )
            resumed = re.search(
                r"the average of 6 weights has loss (\S+) on the last batch, "
                r"and the trained weights (\S+)",
                printed,
            )
            self.assertAlmostEqual(
                float(resumed[1]), float(alone[1]), delta=2e-3
            )
            # At a rising speed the average is behind.
            self.assertGreater(float(resumed[1]), float(resumed[2]))
            self.convert(
                "diff",
                "resumed.safetensors",
                "whole.safetensors",
                "--atol=1e-4",
            )
        # The average is a model of its own in the checkpoint.
        self.convert(
            "diff",
            "whole/step-6",
            "whole.safetensors",
            "--include",
            "average.module.*",
            "--rename",
            r"s/^average\.module\.//",
        )
        last = self.convert("inspect", "whole/step-6")
        self.assertIn("average.n_averaged", last)

    def test_ends_with_a_message_when_a_rank_dies(self):
        forever = ("--data=text", "--steps=1000000", "--batch=3")
        with self.job(3, *forever) as job:
            job.read_until("step 2 of ")
            job.ranks[1].kill()
            job.ranks[0].stdout.read()
            self.assertEqual(
                [rank.wait() for rank in job.ranks], [1, -signal.SIGKILL, 1]
            )
            lines = [
                x
                for x in job.told().splitlines()
                if x.startswith("train_llama: ")
            ]
            for rank in (0, 2):
                self.assertRegex(
                    "\n".join(lines),
                    f'train_llama: rank {rank} of 3 in group "[^"]+": .* failed',
                )

    def test_peak_memory_is_its_own(self):
        train = ("--data=text", "--steps=1")

        def peak():
            return number_after("peak memory ", self.train(1, *train))

        alone = peak()
        # A process begins with the maximum of the one that started it.
        ballast = b"x" * ((alone + 200) << 20)
        self.assertLess(peak(), alone + 100)
        del ballast

    def test_begins_with_what_was_exported(self):
        # There is only one sequence, so the loss depends only on the weights.
        (self.folder / "one").write_text("To be or not to b")
        run = ("--data=one", "--checkpoint-dir=run")
        self.train(1, *run, "--steps=5", "--export=model.pt")
        # Steps that are already done are not repeated.
        printed = self.train(1, *run, "--steps=5", "--export=whole")
        self.assertIn("no step is left to do of --steps=5", printed)
        self.convert("diff", "model.pt", "whole")
        self.train(1, *run, "--steps=6", "--losses-out=trained")
        # On the same mesh it continues bit for bit.
        self.train(1, "--data=one", "--steps=6", "--losses-out=uninterrupted")
        self.assertEqual(self.losses("trained"), self.losses("uninterrupted"))
        for name in ("model.pt", "whole", "run/step-5"):
            printed = self.train(
                2,
                "--data=one",
                "--steps=1",
                "--deterministic-init",
                f"--init-from={name}",
                "--losses-out=begun",
            )
            self.assertIn(f"began with the weights of {name}", printed)
            self.expect_close(self.losses("begun"), self.losses("trained")[5:])

    @contextlib.contextmanager
    def daemon(self):
        """Serves the test's folder; returns the address."""
        with tempfile.TemporaryDirectory(
            dir=os.environ.get("TEST_TMPDIR")
        ) as state:
            server = subprocess.Popen(
                [
                    SERVER,
                    "--listen=127.0.0.1:0",
                    f"--root={self.folder}",
                    f"--state-dir={state}",
                ],
                stdin=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
            )
            try:
                for line in server.stderr:
                    started = re.search(r"event=start .*address=(\S+)", line)
                    if started:
                        break
                yield started.group(1)
            finally:
                server.kill()
                server.communicate()

    def test_begins_with_shards_of_another_mesh_from_a_daemon(self):
        (self.folder / "one").write_text("To be or not to b")
        self.train(2, "--data=one", "--checkpoint-dir=run", "--steps=5")
        begin = ("--data=one", "--steps=1", "--losses-out=begun")
        self.train(1, *begin, "--init-from=run/step-5")
        expected = self.losses("begun")
        with self.daemon() as address:
            url = f"tessera://{address}{self.folder.resolve()}/run/step-5"
            for world_size, flags in ((1, ()), (4, ("--replicate=2",))):
                printed = self.train(
                    world_size, *begin, *flags, f"--init-from={url}"
                )
                self.assertIn(f"began with the weights of {url}", printed)
                self.expect_close(self.losses("begun"), expected)

    def test_says_on_all_ranks_what_cannot_be_read_or_written(self):
        train = ("--data=text", "--steps=1")
        with self.job(2, *train, "--init-from=none.pt") as job:
            job.end(1)
            lines = [x for x in job.told().splitlines() if "none.pt" in x]
            self.assertEqual(len(lines), 2, lines)
        with self.job(
            2, *train, "--checkpoint-dir=run", "--export=none/model.pt"
        ) as job:
            job.end(1)
            self.assertIn("export to none/model.pt", job.told())
        self.assertEqual(self.steps(), [1])


if __name__ == "__main__":
    unittest.main()
