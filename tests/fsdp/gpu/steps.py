# SPDX-License-Identifier: Apache-2.0
"""The steps of tools/gpu_check: what each runs, and which figures it shows."""

import dataclasses

# The programs, by their paths below the folder of built files.
GPU_STEPS = "tests/fsdp/gpu/gpu_steps"
TRAIN_BENCH = "tests/bench/train_bench_nccl"
NCCL_TEST = "tests/fsdp/nccl_test"
CHECKPOINT_TEST = "tests/fsdp/checkpoint/cuda_test"
PROGRAMS = (GPU_STEPS, TRAIN_BENCH, NCCL_TEST, CHECKPOINT_TEST)


def missing_programs(folder):
    return [path for path in PROGRAMS if not (folder / path).exists()]


@dataclasses.dataclass(frozen=True)
class Step:
    name: str
    # What holds if the verdict is "ok".
    title: str
    # "steps" runs GPU_STEPS, "ranks" runs it in two processes, "compare" runs
    # compare.py; anything else is a program of GoogleTest, which requires a GPU.
    program: str
    limit_seconds: float
    # For the table: the figure, its scale, and how it is printed.
    shown: tuple = ()

    @property
    def is_googletest(self):
        return self.program not in ("steps", "ranks", "compare")


GB = 1e-9
MS = 1e3
MIB = 1 / 2**20

# In the order in which they run. The limits are against a step that hangs; all
# of them together have TOTAL_SECONDS.
TOTAL_SECONDS = 480
STEPS = (
    Step(
        "equal",
        "training under fully_shard, with NCCL, equals the CPU's",
        "steps",
        60,
        (
            ("backend", 1, "{}"),
            ("num_all_gathers", 1, "{:.0f} all-gathers"),
            ("sharded_loss_difference", 1, "losses within {:.1e}"),
        ),
    ),
    Step(
        "memory",
        "streams change no number, and each step has the same peak of memory",
        "steps",
        60,
        (
            ("peak_bytes", MIB, "peak {:.1f} MiB"),
            ("sharded_loss_difference", 1, "losses within {:.1e}"),
        ),
    ),
    Step(
        "precision",
        "bfloat16, float8 and offload to pinned memory",
        "steps",
        60,
        (
            ("bfloat16_loss_difference", 1, "bfloat16 {:.1e}"),
            ("float8_loss_difference", 1, "float8 {:.1e}"),
            ("offload_loss_difference", 1, "offload {:.1e}"),
        ),
    ),
    Step(
        "ranks",
        "two ranks that share the device equal one",
        "ranks",
        60,
        (
            ("sharded_loss_difference", 1, "losses within {:.1e}"),
            ("bfloat16_loss_difference", 1, "bfloat16 {:.1e}"),
            ("hsdp_loss_difference", 1, "HSDP {:.1e}"),
        ),
    ),
    Step(
        "save",
        "async_save stages at the speed of a copy while training goes on",
        "steps",
        90,
        (
            ("copy_from_device_bytes_per_second", GB, "one copy {:.1f} GB/s"),
            ("staging_bytes_per_second", GB, "staging {:.1f} GB/s"),
            ("stall_seconds", MS, "stall {:.1f} ms"),
            ("slowdown", 1, "steps {:.2f} times as long"),
            ("load_bytes_per_second", GB, "load {:.1f} GB/s"),
        ),
    ),
    Step(
        "parallel",
        "tensor, sequence and loss parallelism equal the plain model",
        "steps",
        60,
        (
            ("tp_loss_difference", 1, "tp {:.1e}"),
            ("sp_loss_difference", 1, "sp {:.1e}"),
            ("sp_loss_sharded_loss_difference", 1, "sp_loss, sharded {:.1e}"),
        ),
    ),
    Step(
        "compare",
        "Python's FSDP2 with the same weights has the same losses",
        "compare",
        150,
        (
            ("tokens_per_second", 1, "{:.0f} tokens/s"),
            ("pytorch_tokens_per_second", 1, "PyTorch {:.0f}"),
            ("overhead_ms", 1, "sharding adds {:.2f} ms"),
            ("pytorch_overhead_ms", 1, "PyTorch {:.2f}"),
            ("device_peak_bytes", MIB, "peak {:.0f} MiB"),
            ("pytorch_device_peak_bytes", MIB, "PyTorch {:.0f}"),
        ),
    ),
    Step(
        "trace",
        "communication runs while the device computes",
        "steps",
        60,
        (
            ("num_streams", 1, "{:.0f} streams"),
            ("other_streams_seconds", MS, "{:.2f} ms on all but one"),
            ("overlapped_seconds", MS, "{:.2f} ms of it overlapped"),
        ),
    ),
    Step("nccl_test", "//tests/fsdp:nccl_test passes", NCCL_TEST, 60),
    Step(
        "cuda_test",
        "//tests/fsdp/checkpoint:cuda_test passes",
        CHECKPOINT_TEST,
        60,
    ),
)
