# SPDX-License-Identifier: Apache-2.0
"""fsdp-config against the packages whose configs it reads.

Two judges. accelerate's own `to-fsdp2` converts the same configs, key for key;
where ours differs, DIFFERENCES says why. And the packages' own files,
dataclasses and questions: each is read, or refused for a reason that REFUSED
names. A key that a package has and fsdp-config does not know fails the test.
"""

import copy
import json
import logging
import tomllib
import typing

import yaml
from accelerate.commands.to_fsdp2 import convert_config_to_fsdp2
from config_sources import (
    accelerate_launch_options,
    composer_fsdp2_block,
    composer_options,
    composer_trainer_arguments,
    config_files,
    questionnaire,
    torchtitan_sections,
    transformers_options,
)
from harness import DONE, FOUND, Suite, expect, expect_no_lines

# Keys that may be refused, by their ends, and why nothing else is possible.
REFUSED = {
    "distributed_type": "trained by another engine than FSDP",
    "deepspeed_config": "another engine's options",
    "mixed_precision": "fp8 is attached by a program",
    "fp8_config": "fp8 is attached by a program",
    "fsdp_reshard_after_forward": "NO_SHARD there is not what version 1 does",
    "fsdp_state_dict_type": "LOCAL_STATE_DICT is of one rank alone",
    "parallelism_config_cp_size": "sequences are not cut",
    "parallelism_config_dp_shard_size": "accelerate refuses it as well",
    "num_processes": "the degrees make another number of ranks",
}

UNKNOWN = "is not known"


def findings_of(tool, path):
    process = tool.run("check", path, "--json")
    expect(
        process.returncode in (DONE, FOUND),
        f"{path}: code {process.returncode}\n{process.stderr.decode()}",
    )
    result = json.loads(process.stdout)
    problems = [f for f in result["findings"] if f["kind"] == "problem"]
    expect(bool(problems) == (process.returncode == FOUND), "code and findings")
    for finding in result["findings"]:
        expect(finding["text"] and finding["file"], f"says nothing: {finding}")
    return result["dialect"], result["findings"]


def is_allowed(problem):
    key = problem["key"].split(".")[-1]
    return key in REFUSED and UNKNOWN not in problem["text"]


def expect_read_or_refused(tool, path):
    """Whether it is read."""
    _, findings = findings_of(tool, path)
    problems = [f for f in findings if f["kind"] == "problem"]
    expect_no_lines(
        [
            f"{path.name}:{p['line']}: {p['key']} {p['text']}"
            for p in problems
            if not is_allowed(p)
        ]
    )
    return not problems


def expect_all_known(tool, path, dialect):
    """Fails on findings about the root, where sections of others are ignored."""
    found, findings = findings_of(tool, path)
    expect(found == dialect, f"read as {found}, not {dialect}")
    bad = [f for f in findings if f["kind"] == "problem" or not f["key"]]
    expect_no_lines([f"{f['line']}: {f['key']} {f['text']}" for f in bad])


def check_files(tool):
    files = list(config_files())
    names = {path.name for package, path in files if package == "trl"}
    expect({"fsdp1.yaml", "fsdp2.yaml"} <= names, f"trl ships {names}")
    read = {p.name for _, p in files if expect_read_or_refused(tool, p)}
    expect({"fsdp1.yaml", "fsdp2.yaml"} <= read, f"only {read} are read")


def check_questionnaire(tool, out, version):
    num_read = 0
    configs = list(questionnaire(version))
    for number, (chosen, config) in enumerate(configs):
        for suffix in ("yaml", "json"):
            path = out / f"{number}.{suffix}"
            getattr(config, f"to_{suffix}_file")(str(path))
            try:
                num_read += expect_read_or_refused(tool, path)
            except AssertionError as error:
                raise AssertionError(f"{chosen}: {error}") from None
    expect(num_read > len(configs), f"{num_read} of 2 * {len(configs)} read")


def check_accelerate_options(tool, out):
    lines = [f"  {name}: null\n" for name in accelerate_launch_options()]
    expect(len(lines) > 10, f"{lines}: not what `accelerate launch` has")
    path = out / "launch.yaml"
    path.write_text(
        "distributed_type: FSDP\nfsdp_config:\n" + "".join(sorted(lines))
    )
    expect_all_known(tool, path, "accelerate")


def check_transformers_options(tool, out):
    names = transformers_options()
    expect({"version", "xla", "auto_wrap_policy"} <= names, f"found {names}")
    path = out / "arguments.json"
    options = {name: None for name in names}
    path.write_text(
        json.dumps({"output_dir": "x", "fsdp": True, "fsdp_config": options})
    )
    expect_all_known(tool, path, "transformers")


def check_composer_options(tool, out, block, name):
    options = composer_options(name)
    expect("activation_checkpointing" in options, f"{name} has {options}")
    path = out / f"{name}.yaml"
    config = {
        "precision": "amp_bf16",
        "parallelism_config": {
            block: options,
            "tp": composer_options("TPConfig"),
        },
    }
    path.write_text(yaml.safe_dump(config))
    expect_all_known(tool, path, "composer")
    path = out / f"{name}.py"
    path.write_text(repr(config))
    expect_all_known(tool, path, "composer")


def check_conversion_for_composer(tool, out):
    """Composer's Trainer makes an FSDP2Config of the block that to-fsdp2 writes."""
    source, target = out / "fsdp1.yaml", out / "fsdp2.yaml"
    source.write_text(
        "precision: amp_bf16\nparallelism_config:\n  fsdp:\n"
        "    sharding_strategy: SHARD_GRAD_OP\n"
        "    activation_checkpointing: true\n    limit_all_gathers: true\n"
    )
    tool("to-fsdp2", source, "--output-file", target)
    block = composer_fsdp2_block(
        yaml.safe_load(target.read_text())["parallelism_config"]
    )
    expect(
        block is not None, f"the Trainer finds no block in {target.read_text()}"
    )
    expect(block.reshard_after_forward is False, f"{block}")
    expect(block.activation_checkpointing is True, f"{block}")
    expect(block.state_dict_type == "full", f"{block}")
    # The reason for a finding: nothing is sharded with this name.
    passed_over = composer_fsdp2_block(
        {"fsdp2": {"reshard_after_forward": True}}
    )
    expect(passed_over is None, f"{passed_over}")


def toml_of(sections, prefix=""):
    """A TOML text; json's scalars and lists are TOML's."""
    scalars, tables = [], []
    for name, value in sections.items():
        if isinstance(value, dict):
            tables.append(f"[{prefix}{name}]\n")
            tables.append(toml_of(value, f"{prefix}{name}."))
        else:
            scalars.append(f"{name} = {json.dumps(value)}\n")
    return "".join(scalars + tables)


def check_torchtitan_sections(tool, out):
    sections = torchtitan_sections()
    expect({"parallelism", "checkpoint"} <= set(sections), f"{set(sections)}")
    path = out / "all.toml"
    path.write_text(toml_of(sections))
    tomllib.loads(path.read_text())
    expect_all_known(tool, path, "torchtitan")
    # A program may add keys of its own to these; all of the package are known.
    _, findings = findings_of(tool, path)
    about = [f["text"] for f in findings if f["key"] == "training"]
    expect_no_lines(about)


def written_by(tool, source, out, dialect, name):
    target = out / name
    tool("convert", source, "--to", dialect, "--output-file", target)
    return target.read_text()


def check_what_is_written(tool, out):
    """Checks that the packages know every key that is written for them."""
    source = out / "source.toml"
    source.write_text(
        "[checkpoint]\nenable = true\ninitial_load_path = 'a'\n"
        "[parallelism]\ndata_parallel_replicate_degree = 2\n"
        "data_parallel_shard_degree = 4\n[debug]\nseed = 1\n"
    )
    theirs = torchtitan_sections()
    ours = tomllib.loads(written_by(tool, source, out, "torchtitan", "a.toml"))
    unknown = [
        f"{section}.{key}"
        for section, keys in ours.items()
        for key in keys
        if key not in theirs.get(section, {})
    ]
    ours = json.loads(written_by(tool, source, out, "transformers", "a.json"))
    unknown += sorted(set(ours["fsdp_config"]) - transformers_options())
    ours = yaml.safe_load(written_by(tool, source, out, "accelerate", "a.yaml"))
    unknown += sorted(set(ours["fsdp_config"]) - accelerate_launch_options())
    source.write_text("[parallelism]\ndata_parallel_shard_degree = -1\n")
    ours = yaml.safe_load(written_by(tool, source, out, "composer", "b.yaml"))
    options = set(ours["parallelism_config"]["fsdp"])
    unknown += sorted(options - set(composer_options("FSDP2Config")))
    # LLM Foundry's, which makes the Trainer's arguments of them.
    foundry = {
        "global_train_batch_size",
        "max_seq_len",
        "model",
        "optimizer",
    }
    trainer = composer_trainer_arguments() | foundry
    unknown += sorted(set(ours) - trainer)
    expect_no_lines(unknown)


CLUSTER = "distributed_type: FSDP\n"
MACHINES = CLUSTER + "num_machines: 2\nnum_processes: 16\n"

# Options in addition to those of the questionnaire.
TABLE = {
    "a strategy by its older name": "  fsdp_sharding_strategy: SHARD_GRAD_OP\n",
    "a full strategy by its older name": "  fsdp_sharding_strategy: FULL_SHARD\n",
    "a strategy by its number": "  fsdp_sharding_strategy: 2\n",
    "copies": "  fsdp_sharding_strategy: HYBRID_SHARD\n",
    "copies that stay": "  fsdp_sharding_strategy: HYBRID_SHARD_ZERO2\n",
    "everything removed": (
        "  fsdp_backward_prefetch: BACKWARD_POST\n"
        "  fsdp_forward_prefetch: true\n"
        "  fsdp_sync_module_states: true\n"
        "  fsdp_use_orig_params: false\n"
    ),
    "what stays": (
        "  fsdp_auto_wrap_policy: SIZE_BASED_WRAP\n"
        "  fsdp_min_num_params: 1000\n"
        "  fsdp_offload_params: true\n"
        "  fsdp_activation_checkpointing: true\n"
        "  fsdp_cpu_ram_efficient_loading: true\n"
        "  fsdp_state_dict_type: SHARDED_STATE_DICT\n"
        "  fsdp_transformer_layer_cls_to_wrap: Block\n"
    ),
    "version 2 already": "  fsdp_version: 2\n  fsdp_offload_params: true\n",
}


def strategy_of(options):
    named = options.get("fsdp_sharding_strategy")
    return str(named or options.get("fsdp_reshard_after_forward", "FULL_SHARD"))


def flat(config):
    """Dotted keys; empty maps disappear, and an absent key equals null."""
    lines = {}
    for key, value in config.items():
        if isinstance(value, dict):
            for name, inner in flat(value).items():
                lines[f"{key}.{name}"] = inner
        else:
            lines[key] = value
    return lines


class Rule(typing.NamedTuple):
    """Why ours is not accelerate's, for options of which `applies` holds."""

    reason: str
    applies: typing.Callable
    may_differ: typing.Callable = None  # of a key, and its value in ours


DIFFERENCES = [
    Rule(
        "version 1 means FULL_STATE_DICT where nothing is said, version 2 "
        "SHARDED_STATE_DICT: ours writes down what was meant",
        lambda options: "fsdp_state_dict_type" not in options,
        lambda key, ours: (
            key == "fsdp_config.fsdp_state_dict_type"
            and ours == "FULL_STATE_DICT"
        ),
    ),
    Rule(
        "accelerate leaves a number, which version 2 takes for true",
        lambda options: strategy_of(options).isdigit(),
        lambda key, ours: (
            key == "fsdp_config.fsdp_reshard_after_forward"
            and isinstance(ours, bool)
        ),
    ),
    Rule(
        "accelerate forgets the copies; ours writes their number",
        lambda options: "HYBRID" in strategy_of(options),
        lambda key, ours: key.startswith("parallelism_config."),
    ),
]

# Refused by ours; accelerate converts it to something that trains differently.
NOT_CONVERTED = [
    Rule(
        "accelerate makes FSDP2 of it, that is, begins to shard",
        lambda options: strategy_of(options) == "NO_SHARD",
    ),
    Rule(
        "version 2 has no such state dict, and accelerate fails at its start",
        lambda options: (
            options.get("fsdp_state_dict_type") == "LOCAL_STATE_DICT"
        ),
    ),
]

# The reasons that were needed.
USED = set()


def check_rules(tool):
    idle = [r.reason for r in DIFFERENCES + NOT_CONVERTED]
    expect_no_lines([reason for reason in idle if reason not in USED])


def expect_same_conversion(tool, config, source, target):
    source.write_text(yaml.safe_dump(config))
    options = config.get("fsdp_config") or {}
    theirs = flat(convert_config_to_fsdp2(copy.deepcopy(config)))
    process = tool.run("to-fsdp2", source, "--output-file", target)
    if process.returncode == FOUND:
        rules = [rule for rule in NOT_CONVERTED if rule.applies(options)]
        USED.update(rule.reason for rule in rules)
        # A config that `check` refuses is not converted either.
        refused = rules or not expect_read_or_refused(tool, source)
        expect(refused, f"refused\n{process.stderr.decode()}")
        expect(not target.exists(), "refused, and written")
        return
    expect(process.returncode == DONE, process.stderr.decode())
    ours = flat(yaml.safe_load(target.read_text()))
    different = []
    for key in sorted(set(ours) | set(theirs)):
        mine, other = ours.get(key), theirs.get(key)
        rules = [
            rule
            for rule in DIFFERENCES
            if rule.applies(options) and rule.may_differ(key, mine)
        ]
        if mine == other:
            continue
        USED.update(rule.reason for rule in rules)
        if not rules:
            different.append(f"{key}: ours {mine}, theirs {other}")
    expect_no_lines(different)


def check_conversion_of_questionnaire(tool, out, version):
    for number, (chosen, config) in enumerate(questionnaire(version)):
        path = out / "asked.yaml"
        config.to_yaml_file(str(path))
        written = yaml.safe_load(path.read_text())
        try:
            expect_same_conversion(
                tool, written, out / f"{number}.yaml", out / f"{number}-2.yaml"
            )
        except AssertionError as error:
            raise AssertionError(f"{chosen}: {error}") from None


def check_conversion(tool, out, cluster, options):
    config = yaml.safe_load(cluster + "fsdp_config:\n" + options)
    expect_same_conversion(tool, config, out / "a.yaml", out / "b.yaml")


def check_conversion_of_files(tool, out):
    for _, path in config_files():
        config = yaml.safe_load(path.read_text())
        if config.get("distributed_type") != "FSDP":
            continue
        target = out / path.name
        expect_same_conversion(tool, config, out / f"in-{path.name}", target)


def main():
    logging.disable(logging.WARNING)  # accelerate's, one for each option
    suite = Suite("packages")
    tool = suite.tool

    def case(name, function, *arguments):
        suite.case(name, function, tool, *arguments)

    case("files of the packages", check_files)
    for version in (1, 2):
        case(
            f"accelerate config, version {version}",
            check_questionnaire,
            suite.fresh(),
            version,
        )
        case(
            f"to-fsdp2 of accelerate config, version {version}",
            check_conversion_of_questionnaire,
            suite.fresh(),
            version,
        )
    for name, options in TABLE.items():
        for kind, cluster in (("", CLUSTER), (", two machines", MACHINES)):
            case(
                f"to-fsdp2: {name}{kind}",
                check_conversion,
                suite.fresh(),
                cluster,
                options,
            )
    case("to-fsdp2 of the files", check_conversion_of_files, suite.fresh())
    case("no difference is listed in vain", check_rules)
    case("accelerate launch", check_accelerate_options, suite.fresh())
    case("TrainingArguments", check_transformers_options, suite.fresh())
    for block, name in (("fsdp", "FSDPConfig"), ("fsdp2", "FSDP2Config")):
        case(name, check_composer_options, suite.fresh(), block, name)
    case("to-fsdp2 for Composer", check_conversion_for_composer, suite.fresh())
    case("JobConfig", check_torchtitan_sections, suite.fresh())
    case("what is written", check_what_is_written, suite.fresh())
    suite.finish()


if __name__ == "__main__":
    main()
