# SPDX-License-Identifier: Apache-2.0
"""A model from train_llama runs in transformers, after the example's rule file has
mapped the tensors, and train_llama continues to train a model from transformers.
transformers is installed for TESSERA_PYTHON."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

from train_job import Job

CONVERT = pathlib.Path(os.environ["TESSERA_PROGRAM"])
CHECK = pathlib.Path("tools/demos/in_transformers.py").resolve()
RULES = pathlib.Path("fsdp/examples/train_llama.yaml").resolve()
# The sizes from train_job's flags and train_llama's defaults.
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 256,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 48,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "max_position_embeddings": 128,
}


class TransformersTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(dir=os.environ.get("TEST_TMPDIR"))
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        (self.folder / "text").write_text(pathlib.Path(__file__).read_text())

    def run_command(self, *command, code=0):
        done = subprocess.run(
            [*map(str, command)],
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.assertEqual(done.returncode, code, done.stdout)
        return done.stdout

    def train(self, world_size, *flags):
        job = Job(self.folder, world_size, "--data=text", *flags)
        try:
            job.end(0)
        finally:
            job.kill()

    def convert(self, src, dst, from_side, to_side, *more):
        sides = ["--from-side", from_side, "--to-side", to_side]
        rules = ["--map-file", RULES, "--config", "config.json"]
        self.run_command(CONVERT, "convert", src, dst, *rules, *sides, *more)

    def there_and_back(self, *flags):
        """Trains; makes a folder of transformers, and of that a beginning."""
        config = {**CONFIG, "tie_word_embeddings": bool(flags)}
        (self.folder / "config.json").write_text(json.dumps(config))
        self.train(2, "--steps=20", "--checkpoint-dir=run", *flags)
        more = ["--to", "safetensors", "--drop-non-tensors"]
        self.convert("run/step-20", "hub", "train_llama", "hf", *more)
        shutil.copy(self.folder / "config.json", self.folder / "hub")
        self.convert("hub", "start", "hf", "train_llama", "--to", "dcp")
        begin = ["--init-from=start", "--steps=1", "--losses-out=losses"]
        self.train(1, *begin, *flags)

    def check(self, losses, code=0):
        """Runs transformers; it computes what is in `losses`, or ends so."""
        shape = ["--seq-len=16", "--batch=4"]
        command = [sys.executable, "-B", CHECK, "hub", "text", losses, *shape]
        return self.run_command(*command, code=code)

    def test_untied(self):
        self.there_and_back()
        self.assertIn("LlamaForCausalLM", self.check("losses"))
        loss = float((self.folder / "losses").read_text())
        self.assertLess(loss, 5.0, "these are not the trained weights")
        (self.folder / "others").write_text(f"{loss + 0.0001}\n")
        self.assertIn("the losses differ", self.check("others", code=1))

    def test_tied(self):
        self.there_and_back("--tied-embeddings")
        self.assertIn("LlamaForCausalLM", self.check("losses"))


if __name__ == "__main__":
    unittest.main()
