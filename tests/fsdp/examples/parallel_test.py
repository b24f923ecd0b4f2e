# SPDX-License-Identifier: Apache-2.0
"""train_llama with other parallelisms than that of data: it learns as one
process does, and a run goes on with others than it began with."""

import os
import pathlib
import subprocess
import tempfile
import unittest

from train_job import Job

CONVERT = pathlib.Path("tools/dcp_convert/dcp-convert").resolve()
# Sums over ranks are added in another order, and training enlarges that.
TOLERANCE = 1e-3
# Without a plan for the output, logits are whole on every rank.
PLAN = """
embed_tokens: embedding_rowwise
layers.*.self_attn.[qkv]_proj: colwise
layers.*.self_attn.o_proj: rowwise
layers.*.mlp.{gate,up}_proj: colwise
layers.*.mlp.down_proj: rowwise
"""


class ParallelTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(dir=os.environ.get("TEST_TMPDIR"))
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        # A few thousand of its own words.
        (self.folder / "text").write_text(pathlib.Path(__file__).read_text())

    def train(self, world_size, *flags, code=0):
        job = Job(self.folder, world_size, "--data=text", *flags)
        try:
            printed = job.end(code)
            return printed if code == 0 else job.told()
        finally:
            job.kill()

    def losses(self, name):
        return [float(x) for x in (self.folder / name).read_text().split()]

    def expect_close(self, losses, wanted, tolerance=TOLERANCE):
        self.assertEqual(len(losses), len(wanted))
        for step, (a, b) in enumerate(zip(losses, wanted)):
            self.assertLessEqual(
                abs(a - b), tolerance * abs(b), f"step {step}: {a}, not {b}"
            )

    def expect_goes_on(self, common, runs):
        """Each of `runs`, ranks and their flags, does a step of one training,
        whose losses and weights are those of one process."""
        steps = f"--steps={len(runs)}"
        self.train(
            1, *common, steps, "--losses-out=one", "--checkpoint-dir=one-run"
        )
        for step, (world_size, flags) in enumerate(runs):
            printed = self.train(
                world_size,
                *common,
                *flags,
                f"--steps={step + 1}",
                "--checkpoint-dir=run",
                "--losses-out=resumed",
            )
            if step > 0:
                self.assertIn(
                    f"resumed step {step} from run/step-{step}", printed
                )
            self.assertNotIn("gathered", printed)
        self.expect_close(self.losses("resumed"), self.losses("one"))
        last = f"step-{len(runs)}"
        done = self.diff(
            f"run/{last}",
            f"one-run/{last}",
            "--include",
            "model.*",
            "--atol",
            "1e-2",
        )
        self.assertEqual(done.returncode, 0, done.stdout)

    def diff(self, *arguments):
        return subprocess.run(
            [CONVERT, "diff", *arguments],
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def test_goes_on_with_other_parallelisms(self):
        (self.folder / "plan.yaml").write_text(PLAN)
        self.expect_goes_on(
            ("--deterministic-init", "--accumulate=2"),
            (
                (4, ("--tp=2", "--sp", "--checkpoint-activations")),
                (4, ()),
                (2, ("--cp=2",)),
                (2, ("--cp=2", "--cp-method=ulysses")),
                (
                    4,
                    (
                        "--tp=2",
                        "--cp=2",
                        "--cp-method=alltoall",
                        "--plan=plan.yaml",
                    ),
                ),
                (4, ("--replicate=2", "--tp=2")),
                (2, ("--pp=2",)),
                (2, ()),
                (4, ("--pp=2", "--tp=2", "--sp", "--pp-schedule=gpipe")),
                (2, ("--tp=2", "--sp")),
            ),
        )

    def test_goes_on_with_other_divisions_of_experts(self):
        self.expect_goes_on(
            ("--deterministic-init", "--experts=4"),
            (
                (2, ("--ep=2",)),
                (4, ("--ep=4", "--tp=2", "--sp")),
                (4, ("--ep=2", "--pp=2")),
                (2, ("--checkpoint-activations",)),
            ),
        )
        # Each step moves the bias that evens out the loads of experts.
        done = self.diff(
            "run/step-1", "run/step-2", "--include", "model.*.expert_bias"
        )
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn("model.layers.1.moe.expert_bias", done.stdout)

    def test_stages_begin_with_their_weights_of_a_file(self):
        self.train(1, "--steps=1", "--checkpoint-dir=run", "--export=model.pt")
        # The first step follows the gradients, cut to the norm of all stages.
        begin = (
            "--steps=2",
            "--init-from=model.pt",
            "--clip=0.1",
            "--eps=1",
            "--lr=1",
        )
        self.train(1, *begin, "--losses-out=one")
        printed = self.train(2, *begin, "--pp=2", "--losses-out=stages")
        self.assertIn("began with the weights of model.pt", printed)
        self.expect_close(self.losses("stages"), self.losses("one"), 1e-4)

    def test_says_what_it_gathers(self):
        printed = self.train(
            2,
            "--tp=2",
            "--heads=4",
            "--kv-heads=1",
            "--steps=1",
            "--losses-out=uneven",
        )
        self.assertIn(
            "warning: --tp=2 does not divide the 4 heads or the 1 of "
            "keys and values",
            printed,
        )
        self.train(
            1, "--heads=4", "--kv-heads=1", "--steps=1", "--losses-out=one"
        )
        self.expect_close(self.losses("uneven"), self.losses("one"))

    def test_all_ranks_say_what_is_wrong_with_a_plan(self):
        (self.folder / "plan.yaml").write_text("norm: colwse\n")
        told = self.train(2, "--tp=2", "--plan=plan.yaml", "--steps=1", code=1)
        self.assertEqual(told.count("plan.yaml:1: norm is 'colwse'"), 2, told)


if __name__ == "__main__":
    unittest.main()
