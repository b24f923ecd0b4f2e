"""The configurations that the parity test trains, by number of ranks."""

DEFAULTS = {
    "model": "gpt",
    "dtype": "float32",
    "mesh": None,
    "reshard_after_forward": None,
    "param_dtype": "",
    "reduce_dtype": "",
    "accumulate": 1,
    "no_sync": False,
    "postpone_all_reduce": False,
    "checkpoint_activations": False,
    "frozen_layer": -1,
    "force_sum": False,
    "clip": 0.0,
    "optimizer": "adam",
    "steps": 10,
    # How many fewer all-gathers than PyTorch a step makes.
    "all_gathers_saved": 0,
    # The checkpoint to save after `save_step` steps, or to resume from, which
    # was saved after `first_step` steps.
    "save": "",
    "save_step": -1,
    "load": "",
    "first_step": 0,
}
FULL_STEPS = 100
LEARNING_RATE = 1e-3
# For a run that resumes: the right one is in its checkpoint.
WRONG_LEARNING_RATE = 1.0
SAVE_STEP = 5
# Divisible by every number of ranks. A row is the tokens and their targets.
BATCH = 12
ROW_LENGTH = 8

MIXED = {"param_dtype": "bfloat16", "reduce_dtype": "float32"}
HSDP = {"mesh": [2, 2]}
FULL = {"steps": FULL_STEPS}


def config(world_size, name, **options):
    unknown = set(options) - set(DEFAULTS)
    assert not unknown, unknown
    return {**DEFAULTS, "mesh": [world_size], **options, "name": name}


def everywhere(world_size):
    return [
        config(world_size, "gpt"),
        config(world_size, "gpt_float64", dtype="float64"),
        config(world_size, "llama", model="llama"),
        config(world_size, "fused", optimizer="fused_adamw", **FULL),
    ]


def two_ranks():
    rows = {
        "long": FULL,
        "long_float64": {"dtype": "float64", **FULL},
        "bfloat16": {**MIXED, **FULL},
        "bfloat16_fused": {"optimizer": "fused_adamw", **MIXED, **FULL},
        "llama_bfloat16": {"model": "llama", **MIXED},
        "accumulate": {"accumulate": 2, **FULL},
        "no_sync": {"accumulate": 2, "no_sync": True, **FULL},
        "checkpoint": {"checkpoint_activations": True, **FULL},
        "llama_tied_checkpoint": {
            "model": "llama_tied",
            "checkpoint_activations": True,
        },
        "frozen": {"frozen_layer": 1, **FULL},
        "frozen_first": {"frozen_layer": 0},
        "keep": {"reshard_after_forward": False},
        # The root is not freed before backward, which needs it at once.
        "free_all": {"reshard_after_forward": True, "all_gathers_saved": 1},
        "force_sum": {"force_sum": True},
        "clip": {"clip": 0.1},
        "llama_float64": {"model": "llama", "dtype": "float64"},
    }
    return [config(2, name, **row) for name, row in rows.items()]


def four_ranks():
    rows = {
        "two_ranks_after_forward": {
            "reshard_after_forward": 2,
            "all_gathers_saved": 1,
        },
        "hsdp": {**HSDP, **FULL},
        "hsdp_float64": {"dtype": "float64", **HSDP, **FULL},
        "hsdp_fused": {"optimizer": "fused_adamw", **HSDP, **FULL},
        "hsdp_postpone_all_reduce": {
            "accumulate": 2,
            "postpone_all_reduce": True,
            **HSDP,
        },
        "hsdp_bfloat16_no_sync": {
            "accumulate": 2,
            "no_sync": True,
            **MIXED,
            **HSDP,
        },
        "hsdp_bfloat16_postpone_all_reduce": {
            "accumulate": 2,
            "postpone_all_reduce": True,
            **MIXED,
            **HSDP,
        },
        "hsdp_frozen": {"frozen_layer": 1, **HSDP},
        "hsdp_clip": {"clip": 0.1, **HSDP},
        "hsdp_llama_checkpoint": {
            "model": "llama",
            "checkpoint_activations": True,
            **HSDP,
        },
    }
    return [config(4, name, **row) for name, row in rows.items()]


CASES = {
    1: everywhere(1),
    2: everywhere(2) + two_ranks(),
    3: everywhere(3) + [config(3, "force_sum", force_sum=True)],
    4: everywhere(4) + four_ranks(),
}

# Each checkpoint that is saved, on how many ranks, and the other numbers of
# ranks and meshes on which its training continues.
SAVED = {
    2: {
        "gpt": ({}, {1: {}, 2: {}, 3: {}, 4: HSDP}),
        "fused": ({"optimizer": "fused_adamw"}, {2: {}, 4: {}}),
        "llama_tied": ({"model": "llama_tied"}, {2: {}, 3: {}}),
        "frozen": ({"frozen_layer": 1}, {2: {}}),
        "bfloat16": (MIXED, {2: {}}),
        "gpt-full": ({}, {1: {}, 3: {}, 4: HSDP}),
        "gpt.pt": ({}, {1: {}, 2: {}, 3: {}}),
    },
    4: {
        "hsdp": (HSDP, {2: {}, 3: {}, 4: HSDP}),
        "hsdp-full": ({"optimizer": "fused_adamw", **HSDP}, {2: {}, 4: HSDP}),
    },
}
