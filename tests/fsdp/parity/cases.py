# SPDX-License-Identifier: Apache-2.0
"""The configurations that the parity test trains, by number of ranks."""

# Divisible by every number of ranks. A row is the tokens and their targets.
BATCH = 12
ROW_LENGTH = 8

DEFAULTS = {
    "model": "gpt",
    "dtype": "float32",
    # Axes of fully_shard; without any the model is not sharded.
    "mesh": None,
    # Ranks on a last axis, over which a plan of parallel.py cuts the model.
    "tp": 1,
    "plan": "",
    # Whether replicate makes copies instead; the mesh has one axis then.
    "replicate": False,
    # Parameters with this in their names have a mesh of their own, of 2 by 2.
    "own_mesh": "",
    "reshard_after_forward": None,
    "param_dtype": "",
    # Unset: what PyTorch does then, which changed in 2.15.
    "reduce_dtype": "",
    # Parameters with this in their names keep their dtype.
    "keep_dtype": "",
    "accumulate": 1,
    "no_sync": False,
    "postpone_all_reduce": False,
    "checkpoint_activations": False,
    "frozen_layer": -1,
    "force_sum": False,
    # set_NAME of the root, and the value.
    "switches": {},
    # How finalize_backward ends all backwards of a step: "wait", or "handle",
    # which is awaited; "": each backward ends by itself.
    "finalize": "",
    # Whether each step fails once first, and reset_iter_state follows.
    "fails": False,
    # Whether the first gradients have the same bits.
    "same_bits": True,
    "clip": 0.0,
    "optimizer": "adam",
    # Of Muon; "" is None.
    "adjust_lr_fn": "",
    "nesterov": True,
    # Of weights: "", "ema" or "mean".
    "average": "",
    "ema_decay": 0.9,
    "steps": 10,
    "row_length": ROW_LENGTH,
    # How many fewer collectives of each kind a step makes than PyTorch's.
    "saved": {},
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

MIXED = {"param_dtype": "bfloat16", "reduce_dtype": "float32"}
HSDP = {"mesh": [2, 2]}
FULL = {"steps": FULL_STEPS}
# An even number of tokens: PyTorch's sequence parallelism requires it.
EVEN = {"row_length": 7, "steps": 5}
TP = {"model": "llama", "tp": 2, "plan": "tp", **EVEN}
SP = {**TP, "plan": "sp"}
SP_LOSS = {**TP, "plan": "sp_loss"}
FLOAT64 = {"dtype": "float64"}


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
        "free_all": {"reshard_after_forward": True, "saved": {"all_gather": 1}},
        "force_sum": {"force_sum": True},
        "clip": {"clip": 0.1},
        "llama_float64": {"model": "llama", "dtype": "float64"},
    }
    return [config(2, name, **row) for name, row in rows.items()]


def four_ranks():
    rows = {
        "two_ranks_after_forward": {
            "reshard_after_forward": 2,
            "saved": {"all_gather": 1},
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


def saves(num_all_reduces, **others):
    """The collectives that a tensor parallel case saves in a step.

    "tp": in each of two blocks queries, keys and values have one all-reduce for
    the gradient of their input, not three, and gate and up one, not two. "sp":
    gradients of the five norms are reduced once for each group of fully_shard,
    not once for each norm; without fully_shard PyTorch leaves them to the
    optimizer, which reduces each one three times. "sp_loss": in addition, the
    loss has two all-reduces, not three.
    """
    return {"saved": {"all_reduce": num_all_reduces, **others}}


def tensor_parallel_on_two():
    rows = {
        "tp": {**TP, **saves(6)},
        "tp_float64": {**TP, **FLOAT64, **saves(6)},
        "tp_gpt_float64": {**TP, "model": "gpt", **FLOAT64},
        "sp": {**SP, **saves(10)},
        "sp_float64": {**SP, **FLOAT64, **saves(10)},
        "sp_loss": {**SP_LOSS, **saves(11)},
        "sp_loss_float64": {**SP_LOSS, **FLOAT64, **saves(11)},
        # In PyTorch clipping, too, reduces each norm's gradient.
        "sp_clip_float64": {"clip": 0.1, **SP, **FLOAT64, **saves(15)},
    }
    return [config(2, name, mesh=[], **row) for name, row in rows.items()]


def tensor_parallel_on_four():
    rows = {
        "dp_tp": {**TP, **saves(6)},
        "dp_tp_float64": {**TP, **FLOAT64, **saves(6)},
        "dp_tp_gpt_float64": {**TP, "model": "gpt", **FLOAT64},
        "dp_sp_loss": {**SP_LOSS, **saves(3)},
        "dp_sp_loss_float64": {**SP_LOSS, **FLOAT64, **saves(3)},
        "dp_sp_loss_bfloat16": {**SP_LOSS, **MIXED, **saves(3)},
        "dp_sp_fused": {
            "optimizer": "fused_adamw",
            **SP,
            **FLOAT64,
            **saves(2),
        },
        # PyTorch stops recomputing a block before its last reduce-scatter.
        "dp_sp_checkpoint": {
            "checkpoint_activations": True,
            **SP,
            **FLOAT64,
            **saves(2, reduce_scatter=-2),
        },
        "dp_sp_frozen": {"frozen_layer": 1, **SP, **FLOAT64, **saves(1)},
        "dp_sp_accumulate": {"accumulate": 2, **SP, **FLOAT64, **saves(4)},
        "dp_sp_no_sync": {
            "accumulate": 2,
            "no_sync": True,
            **SP,
            **FLOAT64,
            **saves(2),
        },
        "dp_sp_clip": {"clip": 0.1, **SP, **FLOAT64, **saves(2)},
        "dp_sp_loss_tied": {
            **SP_LOSS,
            "model": "llama_tied",
            **FLOAT64,
            **saves(3),
        },
        # With more than one rank to shard over it would take eight.
        "hsdp_sp": {**SP, "mesh": [2, 1], **FLOAT64, **saves(2)},
    }
    return [
        config(4, name, **{"mesh": [2], **row}) for name, row in rows.items()
    ]


CASES = {
    1: everywhere(1),
    2: everywhere(2) + two_ranks() + tensor_parallel_on_two(),
    3: everywhere(3) + [config(3, "force_sum", force_sum=True)],
    4: everywhere(4) + four_ranks() + tensor_parallel_on_four(),
}

# Compared with PyTorch 2.15.
OWN = {"param_dtype": "bfloat16"}
FUSED = {"optimizer": "fused_adamw"}


def newest_everywhere(world_size):
    rows = {
        "own": {**OWN, **FULL},
        "own_fused": {**OWN, **FUSED, **FULL},
        "own_no_sync": {"accumulate": 3, "no_sync": True, **OWN, **FULL},
        "keep_norms": {"keep_dtype": "norm", **OWN, **FULL},
        "keep_norms_fused": {"keep_dtype": "norm", **OWN, **FUSED, **FULL},
        "mixed_fused": {**MIXED, **FUSED, **FULL},
    }
    return [config(world_size, name, **row) for name, row in rows.items()]


SWITCHES = {
    "reduce_scatter_unused_params": True,
    "keep_unsharded_storage": True,
    "reduce_scatter_max_input_buffers": 3,
    "separate_reduce_scatter_group": True,
}


def newest_on_two():
    low = {**OWN, "reduce_dtype": "bfloat16"}
    rows = {
        "low": low,
        "low_no_sync": {"accumulate": 3, "no_sync": True, **low},
        "llama_own": {"model": "llama", "same_bits": False, **OWN},
        "tied_own": {"model": "llama_tied", "same_bits": False, **OWN},
        "keep_norms_keep": {
            "keep_dtype": "norm",
            "reshard_after_forward": False,
            **OWN,
        },
        "keep_norms_low": {"keep_dtype": "norm", **low},
        "keep_norms_checkpoint": {
            "keep_dtype": "norm",
            "checkpoint_activations": True,
            **OWN,
        },
        "keep_norms_frozen": {
            "keep_dtype": "norm",
            "frozen_layer": 1,
            **OWN,
        },
        "keep_norms_clip": {"keep_dtype": "norm", "clip": 0.1, **OWN},
        "own_float64": {**FLOAT64, **OWN},
    }
    rows.update(by_hand())
    rows.update(copies())
    for name, value in SWITCHES.items():
        rows[name] = {"switches": {name: value}, **OWN}
    return [config(2, name, **row) for name, row in rows.items()]


def by_hand():
    """Steps that end by hand, or begin again."""
    return {
        "finalize": {"finalize": "wait", **OWN},
        "finalize_handle": {"finalize": "handle", **FUSED, **OWN},
        "finalize_no_sync": {
            "finalize": "handle",
            "accumulate": 3,
            "no_sync": True,
            **FUSED,
            **OWN,
        },
        "finalize_checkpoint": {
            "finalize": "wait",
            "checkpoint_activations": True,
            **OWN,
        },
        "fails": {"fails": True, "accumulate": 2, **OWN},
        "fails_no_sync": {
            "fails": True,
            "accumulate": 2,
            "no_sync": True,
            **FUSED,
            **OWN,
        },
    }


def copies():
    own = {"replicate": True, **OWN}
    return {
        "copies": {"replicate": True},
        "copies_own": own,
        "copies_own_fused": {**own, **FUSED, **FULL},
        "copies_float64": {"replicate": True, **FLOAT64},
        "copies_no_sync": {"accumulate": 3, "no_sync": True, **own},
        "copies_postpone_all_reduce": {
            "accumulate": 3,
            "postpone_all_reduce": True,
            **own,
        },
        "copies_finalize": {
            "finalize": "handle",
            "accumulate": 2,
            "no_sync": True,
            **own,
        },
        "copies_fails": {"fails": True, "postpone_all_reduce": True, **own},
        "copies_clip": {"clip": 0.1, **own},
        "copies_force_sum": {"force_sum": True, **own},
        "copies_checkpoint": {"checkpoint_activations": True, **own},
        "copies_frozen": {"frozen_layer": 1, **own},
    }


def newest_on_four():
    postponed = {"accumulate": 3, "postpone_all_reduce": True, **HSDP}
    rows = {
        "hsdp_own": {**OWN, **HSDP},
        "hsdp_own_postpone_all_reduce": {**OWN, **postponed},
        "hsdp_keep_norms": {"keep_dtype": "norm", **OWN, **postponed},
        "switches": {"switches": SWITCHES, **OWN, **postponed},
        "hsdp_finalize_no_sync": {
            "finalize": "handle",
            "accumulate": 3,
            "no_sync": True,
            **OWN,
            **HSDP,
        },
        "hsdp_fails": {"fails": True, **OWN, **postponed},
        "own_mesh": {"own_mesh": "up"},
        "copies_tp": {
            "replicate": True,
            **TP,
            "mesh": [2],
            **FLOAT64,
            **saves(6),
        },
        "copies_sp": {
            "replicate": True,
            **SP,
            "mesh": [2],
            **FLOAT64,
            **saves(2),
        },
        "keep_norms_two_ranks_after_forward": {
            "keep_dtype": "norm",
            "reshard_after_forward": 2,
            "saved": {"all_gather": 1},
            **OWN,
        },
    }
    return [config(4, name, **row) for name, row in rows.items()]


NEWEST = {
    1: newest_everywhere(1),
    2: newest_everywhere(2) + newest_on_two(),
    3: newest_everywhere(3),
    4: newest_everywhere(4) + newest_on_four(),
}

WHOLE = {"tp": 1, "plan": ""}
RESUMED = {"steps": SAVE_STEP + 3, **FLOAT64}

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
        "llama_whole": (
            {**SP, **WHOLE, **RESUMED},
            {
                2: {"tp": 2, "plan": "sp", "mesh": []},
                4: {"tp": 2, "plan": "sp_loss", "mesh": [2]},
            },
        ),
    },
    4: {
        "hsdp": (HSDP, {2: {}, 3: {}, 4: HSDP}),
        "hsdp-full": ({"optimizer": "fused_adamw", **HSDP}, {2: {}, 4: HSDP}),
        "dp_sp": (
            {**SP, **RESUMED, "mesh": [2]},
            {1: WHOLE, 2: {"plan": "tp", "mesh": []}, 4: WHOLE},
        ),
        # Parts of parts are uneven, and other parameters are not cut.
        "dp_tp_gpt": (
            {**TP, **RESUMED, "model": "gpt", "mesh": [2]},
            {2: {"mesh": [1]}, 4: {"mesh": [2]}},
        ),
    },
}
