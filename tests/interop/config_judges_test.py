# SPDX-License-Identifier: Apache-2.0
"""Random training configs, good and broken, read as their programs read them.

The same config is given to fsdp-config and to the program itself, which are to
agree on the mesh and on the options, or to refuse it both. DIFFERENCES says why
where they do not. The seed is fixed, so a failure comes again.
"""

import json
import logging
import random
import typing
import warnings

import yaml
from config_judges import (
    accelerate_result,
    distributed_config_result,
    torchtitan_result,
    transformers_result,
)
from harness import DONE, FOUND, Suite, expect, expect_no_lines

NUM_CONFIGS = 200
SEED = 20260
RANKS = 8
BROKEN = 0.04  # of all values
BAD_VALUES = ["maybe", -3, [1], 2.5]


class Chooser:
    """Draws keys and values; now and then a value that is none of them."""

    def __init__(self, seed):
        self.random = random.Random(seed)

    def value(self, values):
        if self.random.random() < BROKEN:
            return self.random.choice(BAD_VALUES)
        return self.random.choice(values)

    def some(self, table, share):
        """About a share of the keys of a table, each with one of its values."""
        return {
            key: self.value(values)
            for key, values in table.items()
            if self.random.random() < share
        }


STRATEGIES = [
    "FULL_SHARD",
    "SHARD_GRAD_OP",
    "NO_SHARD",
    "HYBRID_SHARD",
    "HYBRID_SHARD_ZERO2",
    "2",
]
SHARED = {
    "activation_checkpointing": [True, False],
    "activation_checkpointing_offload": [True, False],
    "auto_wrap_policy": [
        "TRANSFORMER_BASED_WRAP",
        "SIZE_BASED_WRAP",
        "NO_WRAP",
    ],
    "cpu_ram_efficient_loading": [True, False],
    "min_num_params": [0, 1000],
    "reshard_after_forward": [True, False],
    "state_dict_type": ["SHARDED_STATE_DICT", "FULL_STATE_DICT"],
    "transformer_layer_cls_to_wrap": ["Block", "Block,Head"],
    "version": [1, 2, 2],
}
OF_LAUNCH = {
    **SHARED,
    "backward_prefetch": ["BACKWARD_PRE", "BACKWARD_POST", "NO_PREFETCH"],
    "forward_prefetch": [False],
    "offload_params": [True, False],
    "sharding_strategy": STRATEGIES,
    "sync_module_states": [True, True, False],
    "use_orig_params": [True, False],
}
SIZES = {
    "dp_replicate_size": [1, 2],
    "dp_shard_size": [1, 2, 4, 8],
    "tp_size": [1, 2, 4, 8],
    "cp_size": [1, 2, 8],
}


def accelerate_config(chooser):
    config = {
        "distributed_type": chooser.value(["FSDP"] * 8 + ["MULTI_GPU"]),
        "num_processes": RANKS,
        **chooser.some(
            {
                "compute_environment": ["LOCAL_MACHINE"],
                "machine_rank": [0],
                "mixed_precision": ["no", "bf16", "fp16"],
                "num_machines": [1, 2],
                "rdzv_backend": ["static"],
            },
            0.5,
        ),
    }
    options = chooser.some(OF_LAUNCH, 0.3)
    config["fsdp_config"] = {f"fsdp_{k}": v for k, v in options.items()}
    if chooser.random.random() < 0.4:
        sizes = chooser.some(SIZES, 0.5)
        config["parallelism_config"] = {
            f"parallelism_config_{k}": v for k, v in sizes.items()
        }
    return config


def transformers_config(chooser):
    config = {
        "output_dir": "x",
        "per_device_train_batch_size": 1,
        **chooser.some(
            {
                "bf16": [True, False],
                "fsdp": [True, True, True, False],
                "gradient_checkpointing": [False],
                "learning_rate": [1e-4],
                "num_train_epochs": [1],
            },
            0.7,
        ),
    }
    table = {**SHARED, "cpu_offload": [True, False]}
    config["fsdp_config"] = chooser.some(table, 0.3)
    return config


def torchtitan_config(chooser):
    degrees = {
        "context_parallel_degree": [1, 2],
        "data_parallel_replicate_degree": [1, 2],
        "data_parallel_shard_degree": [-1, 1, 2, 4],
        "expert_parallel_degree": [1, 2, 4],
        "expert_tensor_parallel_degree": [1, 2],
        "fsdp_reshard_after_forward": ["default", "always", "never"],
        "pipeline_parallel_degree": [1, 2],
        "tensor_parallel_degree": [1, 2, 8],
    }
    training = {
        "enable_cpu_offload": [True, False],
        "mixed_precision_param": ["bfloat16", "float32"],
        "steps": [100],
    }
    return {
        "parallelism": chooser.some(degrees, 0.4),
        "training": {
            "local_batch_size": 1,
            "seq_len": 2048,
            **chooser.some(training, 0.5),
        },
    }


def distributed_config(chooser):
    sizes = {
        "dp_replicate_size": [1, 2, None],
        "ep_size": [1, 2, 4, None],
        "fsdp_cpu_offload": [True, False],
        "fsdp_mixed_precision": [True, False],
        "pp_size": [1, 1, 2],
        "tp_size": [1, 2, 8, None],
    }
    return {
        "fsdp_size": chooser.value([1, 2, 4, 8]),
        **chooser.some(sizes, 0.4),
    }


def toml_text(config):
    return "".join(
        f"[{section}]\n"
        + "".join(f"{k} = {json.dumps(v)}\n" for k, v in values.items())
        for section, values in config.items()
    )


class Rule(typing.NamedTuple):
    """Why ours is not the program's, where `applies` to config and place holds.

    The place is "ours refuses", "theirs refuses", or a key of the result.
    """

    reason: str
    applies: typing.Callable


def options_of(config):
    return {
        key.removeprefix("fsdp_"): value
        for key, value in (config.get("fsdp_config") or {}).items()
    }


def has_bad_value(config):
    values = [
        inner
        for value in config.values()
        for inner in (value.values() if isinstance(value, dict) else [value])
    ]
    return any(value in BAD_VALUES for value in values)


def is_arguments(config):
    return "per_device_train_batch_size" in config


def uses_version_1(config):
    default = 2 if is_arguments(config) else 1
    return options_of(config).get("version", default) == 1


# Options without effect here, of which ours does not read the values.
UNREAD = {
    "activation_checkpointing_offload",
    "forward_prefetch",
    "sharding_strategy",
    "sync_module_states",
    "use_orig_params",
}


def has_unread_value(config):
    options = options_of(config)
    is_copied = config.get("distributed_type") == "MULTI_GPU"
    names = options if is_copied else UNREAD
    values = [options.get(name) for name in names]
    return any(v in BAD_VALUES for v in (*values, config.get("machine_rank")))


DIFFERENCES = [
    Rule(
        "ours does not read the values of options that have no effect",
        lambda config, place: (
            place == "theirs refuses" and has_unread_value(config)
        ),
    ),
    Rule(
        "ours does not ask for more of a layer's name than that it is a word",
        lambda config, place: (
            place == "theirs refuses"
            and options_of(config).get("transformer_layer_cls_to_wrap")
            in BAD_VALUES
        ),
    ),
    Rule(
        "version 1 shards fully unless fsdp_sharding_strategy says otherwise; "
        "ours refuses a fsdp_reshard_after_forward that says otherwise alone",
        lambda config, place: (
            place == "ours refuses"
            and uses_version_1(config)
            and options_of(config).get("reshard_after_forward", True)
            is not True
        ),
    ),
    Rule(
        "the packages check no values that they do not use yet",
        lambda config, place: place == "ours refuses" and has_bad_value(config),
    ),
]

USED = set()


def difference(config, place):
    for rule in DIFFERENCES:
        if rule.applies(config, place):
            USED.add(rule.reason)
            return rule.reason
    return None


def flattened(explanation, keys):
    """Of our explanation, what the judge has too."""
    checkpoint = explanation["checkpoint"]
    ours = {**explanation, **checkpoint, **explanation["precision"]}
    ours["mesh"] = {k: ours["mesh"][k] for k in keys["mesh"]}
    ours["state_dict_type"] = ours["state_dict_type"].upper()
    ours["auto_wrap_policy"] = ours["auto_wrap_policy"].upper()
    return {key: ours[key] for key in keys}


def compared(tool, path, config, judge):
    """Lines about what differs without a rule; whether both read it."""
    process = tool.run("explain", path, "--json", "--world-size", RANKS)
    expect(process.returncode in (DONE, FOUND), process.stderr.decode())
    ours = json.loads(process.stdout)
    problems = [
        f"{f['key']} {f['text']}"
        for f in ours["findings"]
        if f["kind"] == "problem"
    ]
    try:
        theirs, error = judge(path, RANKS), None
    except Exception as refusal:  # whatever the package raises
        theirs, error = None, f"{type(refusal).__name__}: {refusal}"
    text = json.dumps(config)
    if problems and theirs is not None:
        if difference(config, "ours refuses"):
            return [], False
        return [f"{text}: ours refuses: {problems}"], False
    if not problems and theirs is None:
        if difference(config, "theirs refuses"):
            return [], False
        return [f"{text}: theirs refuses: {error[:300]}"], False
    if theirs is None:
        return [], False
    mine = flattened(ours, theirs)
    return [
        f"{text}: {key} is {mine[key]}, theirs {theirs[key]}"
        for key in theirs
        if mine[key] != theirs[key] and not difference(config, key)
    ], True


def check_random(tool, out, make, write, judge):
    chooser = Chooser(SEED)
    lines, num_read = [], 0
    for number in range(NUM_CONFIGS):
        config = make(chooser)
        path = out / f"{number}{write[0]}"
        path.write_text(write[1](config))
        differing, is_read = compared(tool, path, config, judge)
        lines += differing
        num_read += is_read
    expect_no_lines(lines)
    share = num_read / NUM_CONFIGS
    expect(0.05 < share < 0.9, f"{share} of all are read by both")


def check_rules():
    idle = [r.reason for r in DIFFERENCES if r.reason not in USED]
    expect_no_lines(idle)


JSON = (".json", json.dumps)
YAML = (".yaml", yaml.safe_dump)
TOML = (".toml", toml_text)


def main():
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    suite = Suite("config_judges")
    for name, make, write, judge in (
        ("accelerate", accelerate_config, YAML, accelerate_result),
        ("accelerate, JSON", accelerate_config, JSON, accelerate_result),
        ("transformers", transformers_config, JSON, transformers_result),
        ("torchtitan", torchtitan_config, TOML, torchtitan_result),
        (
            "DistributedConfig",
            distributed_config,
            JSON,
            distributed_config_result,
        ),
    ):
        suite.case(
            name, check_random, suite.tool, suite.fresh(), make, write, judge
        )
    suite.case("no difference is listed in vain", check_rules)
    suite.finish()


if __name__ == "__main__":
    main()
