# SPDX-License-Identifier: Apache-2.0
"""train_llama --config with a file of each of four other programs, on two
processes: it learns as one process does that was told by flags, with the
learning rates that the other program has in each step."""

import math
import os
import pathlib
import re
import struct
import tempfile
import unittest

from train_job import Job

# Sums over ranks are added in another order, and training enlarges that.
TOLERANCE = 1e-3
BY_FLAGS = (
    "--data=text",
    "--steps=6",
    "--weight-decay=0.2",
    "--clip=0.5",
    "--seed=3",
)

ACCELERATE = """
compute_environment: LOCAL_MACHINE
distributed_type: FSDP
mixed_precision: 'no'
num_machines: 1
num_processes: 2
fsdp_config:
  fsdp_version: 2
  fsdp_reshard_after_forward: true
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
  fsdp_transformer_layer_cls_to_wrap: LlamaDecoderLayer
  fsdp_activation_checkpointing: true
  fsdp_cpu_ram_efficient_loading: true
  fsdp_offload_params: false
  fsdp_state_dict_type: FULL_STATE_DICT
"""

TRANSFORMERS = """{
  "output_dir": "trainer",
  "max_steps": 6,
  "save_steps": 2,
  "save_total_limit": 1,
  "per_device_train_batch_size": 2,
  "learning_rate": 1e-3,
  "weight_decay": 0.2,
  "max_grad_norm": 0.5,
  "seed": 3,
  "fsdp": "full_shard auto_wrap",
  "fsdp_config": {
    "fsdp_version": 2,
    "reshard_after_forward": false,
    "transformer_layer_cls_to_wrap": ["LlamaDecoderLayer"],
    "state_dict_type": "SHARDED_STATE_DICT",
    "cpu_ram_efficient_loading": false
  }
}
"""

COMPOSER = """
seed: 3
max_duration: 6ba
global_train_batch_size: 4
device_train_microbatch_size: 2
optimizer:
  name: decoupled_adamw
  lr: 1.0e-3
scheduler:
  name: cosine_with_warmup
  t_warmup: 2ba
algorithms:
  gradient_clipping:
    clipping_type: norm
    clipping_threshold: 0.5
save_folder: composer
parallelism_config:
  fsdp2:
    reshard_after_forward: true
    activation_checkpointing: true
    mixed_precision: FULL
precision: fp32
"""

TORCHTITAN = """
[training]
steps = 6
local_batch_size = 2
seq_len = 16
max_norm = 0.5
mixed_precision_param = "float32"
mixed_precision_reduce = "float32"
seed = 3

[optimizer]
name = "AdamW"
lr = 1e-3
weight_decay = 0.2
eps = 1e-4

[lr_scheduler]
warmup_steps = 2

[parallelism]
data_parallel_replicate_degree = 2
data_parallel_shard_degree = -1
fsdp_reshard_after_forward = "always"

[activation_checkpoint]
mode = "selective"
selective_ac_option = "2"

[checkpoint]
enable_checkpoint = true
folder = "titan"
interval = 3
keep_latest_k = 2
async_mode = "async"
last_save_model_only = true
export_dtype = "bfloat16"
"""


class ConfigTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(dir=os.environ.get("TEST_TMPDIR"))
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        sums = [
            f"{a} and {b} is {a + b}.\n" for a in range(30) for b in range(30)
        ]
        (self.folder / "text").write_text("".join(sums))

    def train(self, world_size, *flags, **options):
        """The output, and the losses."""
        job = Job(
            self.folder, world_size, *flags, "--losses-out=losses", **options
        )
        try:
            printed = job.end(0)
        finally:
            job.kill()
        losses = (self.folder / "losses").read_text().split()
        return printed, [float(loss) for loss in losses]

    def expect_rates(self, printed, first, wanted):
        """The learning rates of the steps from `first` on, in units of 1e-3."""
        rates = [float(rate) for rate in re.findall(r" lr (\S+) ", printed)]
        self.assertEqual(len(rates), len(wanted))
        for i, (rate, factor) in enumerate(zip(rates, wanted)):
            self.assertAlmostEqual(
                rate, 1e-3 * factor, delta=1e-8, msg=f"step {first + i}"
            )

    def refused(self, *flags):
        job = Job(self.folder, 2, *flags)
        try:
            job.end(1)
            return job.told()
        finally:
            job.kill()

    def expect_close(self, losses, wanted):
        """Equal up to rounding, and falling."""
        self.assertLess(losses[-1], losses[0])
        self.expect_equal(losses, wanted)

    def expect_equal(self, losses, wanted):
        """Equal up to rounding, for too few steps to see a fall."""
        self.assertEqual(len(losses), len(wanted))
        for step, (a, b) in enumerate(zip(losses, wanted)):
            self.assertLessEqual(
                abs(a - b), TOLERANCE * abs(b), f"step {step}: {a}, not {b}"
            )

    def config(self, name, text):
        (self.folder / name).write_text(text)
        return f"--config={name}"

    def dtypes_of(self, path):
        """The dtypes in a safetensors file, from its header."""
        with open(self.folder / path, "rb") as file:
            (size,) = struct.unpack("<Q", file.read(8))
            header = file.read(size).decode()
        return {word for word in ("BF16", "F32") if f'"{word}"' in header}

    def steps(self, folder):
        return sorted(p.name for p in (self.folder / folder).glob("step-*"))

    def test_accelerate_with_weights_of_rank_0_and_a_whole_model_in_the_end(
        self,
    ):
        _, expected = self.train(
            1, *BY_FLAGS, "--export=first.safetensors", "--checkpoint-dir=first"
        )
        _, expected = self.train(1, *BY_FLAGS, "--init-from=first.safetensors")
        printed, losses = self.train(
            2,
            self.config("accelerate.yaml", ACCELERATE),
            *BY_FLAGS,
            "--init-from=first.safetensors",
            "--checkpoint-dir=accelerate",
        )
        self.assertIn("began with the weights of first.safetensors", printed)
        self.expect_close(losses, expected)
        self.assertIn(
            "exported the model to accelerate/model.safetensors", printed
        )
        self.assertEqual(
            self.dtypes_of("accelerate/model.safetensors"), {"F32"}
        )
        self.assertEqual(self.steps("accelerate"), ["step-6"])

    def test_transformers_with_its_loop_and_its_steps(self):
        by_flags = (*BY_FLAGS, "--lr-decay=linear", "--checkpoint-dir=flags")
        _, expected = self.train(1, *by_flags)
        config = self.config("trainer.json", TRANSFORMERS)
        # Without flags that would override the loop settings.
        printed, losses = self.train(2, config, "--data=text", loop=())
        self.expect_close(losses, expected)
        # linear, without a warmup, is TrainingArguments' own.
        self.expect_rates(printed, 0, [1 - i / 6 for i in range(6)])
        self.assertEqual(self.steps("trainer"), ["step-6"])
        self.assertNotIn("exported", printed)
        # The same command, with more steps to do, continues.
        printed, losses = self.train(
            2, config, "--data=text", "--steps=8", loop=()
        )
        self.assertIn("resumed step 6 from trainer/step-6", printed)
        # From step 6 of the curve of 8 steps.
        self.expect_rates(printed, 6, [2 / 8, 1 / 8])
        _, expected = self.train(1, *by_flags, "--steps=8")
        self.expect_equal(losses, expected)

    def test_composer_wraps_the_children_and_checkpoints_activations(self):
        # beta2 is DecoupledAdamW's own.
        _, expected = self.train(
            1,
            *BY_FLAGS,
            "--beta2=0.95",
            "--lr-decay=cosine",
            "--warmup-steps=2",
        )
        config = self.config("composer.yaml", COMPOSER)
        printed, losses = self.train(
            2, config, "--data=text", "--weight-decay=0.2", loop=()
        )
        self.expect_close(losses, expected)
        self.assertNotIn("activations in the memory of the CPU", printed)
        self.expect_rates(
            printed,
            0,
            [0, 0.5, *((1 + math.cos(math.pi * i / 4)) / 2 for i in range(4))],
        )
        self.assertEqual(self.steps("composer"), ["step-6"])

    def test_offloaded_activations_train_the_same(self):
        _, expected = self.train(
            2, self.config("plain.yaml", COMPOSER), "--data=text", loop=()
        )
        offloads = COMPOSER.replace(
            "fsdp2:\n", "fsdp2:\n    activation_cpu_offload: true\n"
        )
        printed, losses = self.train(
            2,
            self.config("offloads.yaml", offloads),
            "--data=text",
            "--checkpoint-dir=offloads",
            loop=(),
        )
        self.assertEqual(losses, expected)
        kept = re.search(
            r"kept (\S+) MiB of activations in the memory of the "
            r"CPU",
            printed,
        )
        self.assertGreater(float(kept[1]), 0, printed)

    def test_torchtitan_with_copies_and_an_export_in_bfloat16(self):
        # beta2 is TorchTitan's own, and so is that its steps count from 1.
        _, expected = self.train(
            1,
            *BY_FLAGS,
            "--beta2=0.95",
            "--eps=1e-4",
            "--lr-decay=linear",
            "--warmup-steps=2",
            "--lr-counts-from-one",
        )
        printed, losses = self.train(
            2, self.config("titan.toml", TORCHTITAN), "--data=text", loop=()
        )
        self.expect_close(losses, expected)
        self.expect_rates(printed, 0, [1 / 2, 1, 1, 3 / 4, 2 / 4, 1 / 4])
        self.assertIn("exported the model to", printed)
        (model,) = self.folder.glob("**/model.safetensors")
        self.assertEqual(self.dtypes_of(model), {"BF16"})
        self.assertEqual(
            sorted(p.name for p in model.parent.glob("step-*")),
            ["step-3", "step-6"],
        )

    def test_flags_override_the_file_and_errors_name_it(self):
        config = self.config(
            "accelerate.yaml",
            ACCELERATE.replace("LlamaDecoderLayer", "FalconDecoderLayer"),
        )
        told = self.refused(config, *BY_FLAGS)
        self.assertIn(
            "accelerate.yaml:11: "
            "fsdp_config.fsdp_transformer_layer_cls_to_wrap names "
            "FalconDecoderLayer",
            told,
        )
        told = self.refused(
            self.config("titan.toml", TORCHTITAN), *BY_FLAGS, "--replicate=3"
        )
        self.assertIn("--replicate is 3", told)
        told = self.refused(
            self.config("bad.toml", TORCHTITAN + "\n[parallelizm]\na = 1\n"),
            *BY_FLAGS,
        )
        self.assertIn("did you mean parallelism?", told)


if __name__ == "__main__":
    unittest.main()
