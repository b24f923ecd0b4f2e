# SPDX-License-Identifier: Apache-2.0
"""train_llama on the simulated device: with each parallelism it learns as on
the CPU, without a race, and saves while it trains."""

import os
import pathlib
import re
import tempfile
import unittest

from train_job import Job

TOLERANCE = 1e-4
LOW_TOLERANCE = 2e-2

# Ranks and flags.
FORMS = {
    "tensor parallel": (2, ("--tp=2",)),
    "sequence parallel": (2, ("--tp=2", "--sp")),
    "tensor and data parallel": (4, ("--tp=2", "--sp", "--replicate=2")),
    "context parallel": (2, ("--cp=2",)),
    "ring attention": (4, ("--cp=4", "--cp-method=alltoall")),
    "attention by heads": (2, ("--cp=2", "--cp-method=ulysses")),
    "1F1B": (2, ("--pp=2", "--microbatches=4")),
    "GPipe": (2, ("--pp=2", "--microbatches=4", "--pp-schedule=gpipe")),
    "1F1B of four stages": (
        4,
        ("--pp=4", "--layers=4", "--microbatches=4"),
    ),
    "GPipe of four stages": (
        4,
        ("--pp=4", "--layers=4", "--microbatches=4", "--pp-schedule=gpipe"),
    ),
    "pipeline and data parallel": (4, ("--pp=2", "--microbatches=2")),
    "pipeline and tensor parallel": (4, ("--pp=2", "--tp=2", "--sp")),
    "expert parallel": (2, ("--experts=4", "--ep=2")),
    "offloaded activations": (2, ("--offload-activations",)),
    "checkpointed activations": (2, ("--checkpoint-activations",)),
    "replicas": (2, ("--replicate=2",)),
    "saves each step": (2, ("--checkpoint-dir=run", "--save-every=1")),
}
LOW_FORMS = {
    "accumulated, fused, clipped": (
        2,
        ("--accumulate=2", "--optimizer=fused_adamw", "--clip=0.1"),
    ),
    "replicas that accumulate": (
        4,
        ("--replicate=2", "--accumulate=2", "--checkpoint-activations"),
    ),
    "1F1B and data parallel": (
        4,
        ("--pp=2", "--microbatches=2", "--offload-activations"),
    ),
}


class LlamaTest(unittest.TestCase):
    def train(self, device, ranks, flags, environment):
        with tempfile.TemporaryDirectory(
            dir=os.environ.get("TEST_TMPDIR")
        ) as name:
            folder = pathlib.Path(name)
            (folder / "text").write_text(pathlib.Path(__file__).read_text())
            os.environ.update(environment)
            job = Job(
                folder,
                ranks,
                "--data=text",
                "--steps=3",
                "--losses-out=losses",
                "--deterministic-init",
                f"--device={device}",
                *flags,
            )
            try:
                job.end(0)
                told = job.log.read_text(errors="replace")
                losses = (folder / "losses").read_text().split()
                return [float(loss) for loss in losses], told
            finally:
                job.kill()
                for variable in environment:
                    del os.environ[variable]

    def expect_equal(self, forms, tolerance, *flags):
        seed = os.urandom(4)
        environment = {
            "TESSERA_SIM_DEVICE": "1",
            "SIM_REPORT": "1",
            "SIM_PRINT": "1",
            "SIM_DELAY_US": "200",
            "SIM_COLLECTIVE_US": "300",
            "SIM_SEED": str(int.from_bytes(seed, "little")),
        }
        for name, (ranks, more) in forms.items():
            with self.subTest(name, seed=environment["SIM_SEED"]):
                want, _ = self.train("cpu", ranks, (*more, *flags), {})
                got, told = self.train(
                    "cuda", ranks, (*more, *flags), environment
                )
                races = set(re.findall(r"race: (.*)", told))
                self.assertEqual(races, set())
                self.assertEqual(told.count("[sim] races: 0"), ranks)
                self.assertEqual(len(got), len(want))
                for a, b in zip(got, want):
                    self.assertAlmostEqual(a, b, delta=tolerance * b)

    def test_float32(self):
        self.expect_equal(FORMS, TOLERANCE)

    def test_bfloat16(self):
        self.expect_equal(LOW_FORMS, LOW_TOLERANCE, "--param-dtype=bfloat16")


if __name__ == "__main__":
    unittest.main()
