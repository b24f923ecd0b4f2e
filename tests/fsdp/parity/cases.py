"""What the parity test trains: configurations, by number of ranks."""

DEFAULTS = {
    "model": "gpt",
    "dtype": "float32",
    "mesh": None,
    "reshard_after_forward": None,
    "param_dtype": "",
    "reduce_dtype": "",
    "accumulate": 1,
    "no_sync": False,
    "checkpoint_activations": False,
    "frozen_layer": -1,
    "force_sum": False,
    "clip": 0.0,
    "steps": 20,
}
FULL_STEPS = 100
LEARNING_RATE = 1e-3
# Every number of ranks divides it. A row is the tokens and their targets.
BATCH = 12
ROW_LENGTH = 8
MAX_ACCUMULATE = 2


def config(world_size, name, **options):
    unknown = set(options) - set(DEFAULTS)
    assert not unknown, unknown
    return {**DEFAULTS, "mesh": [world_size], **options, "name": name}


def everywhere(world_size):
    return [
        config(world_size, "gpt", steps=FULL_STEPS),
        config(world_size, "gpt_float64", dtype="float64", steps=FULL_STEPS),
        config(world_size, "llama", model="llama", steps=FULL_STEPS),
    ]


CASES = {
    1: everywhere(1),
    2: everywhere(2)
    + [
        config(2, "keep", reshard_after_forward=False),
        config(2, "free_all", reshard_after_forward=True),
        config(
            2,
            "bfloat16",
            param_dtype="bfloat16",
            reduce_dtype="float32",
            steps=FULL_STEPS,
        ),
        config(
            2,
            "llama_bfloat16",
            model="llama",
            param_dtype="bfloat16",
            reduce_dtype="float32",
        ),
        config(2, "accumulate", accumulate=2, steps=FULL_STEPS),
        config(2, "no_sync", accumulate=2, no_sync=True, steps=FULL_STEPS),
        config(2, "checkpoint", checkpoint_activations=True, steps=FULL_STEPS),
        config(
            2,
            "llama_tied_checkpoint",
            model="llama_tied",
            checkpoint_activations=True,
        ),
        config(2, "frozen", frozen_layer=1, steps=FULL_STEPS),
        config(2, "frozen_first", frozen_layer=0),
        config(2, "force_sum", force_sum=True),
        config(2, "clip", clip=0.1),
        config(2, "llama_float64", model="llama", dtype="float64"),
    ],
    3: everywhere(3) + [config(3, "force_sum", force_sum=True)],
    4: everywhere(4)
    + [
        config(4, "hsdp", mesh=[2, 2], steps=FULL_STEPS),
        config(
            4, "hsdp_float64", mesh=[2, 2], dtype="float64", steps=FULL_STEPS
        ),
        config(
            4,
            "hsdp_bfloat16_no_sync",
            mesh=[2, 2],
            param_dtype="bfloat16",
            reduce_dtype="float32",
            accumulate=2,
            no_sync=True,
        ),
        config(4, "hsdp_clip", mesh=[2, 2], clip=0.1),
        config(4, "two_ranks_after_forward", reshard_after_forward=2),
        config(
            4,
            "hsdp_llama_checkpoint",
            mesh=[2, 2],
            model="llama",
            checkpoint_activations=True,
        ),
    ],
}
