# SPDX-License-Identifier: Apache-2.0
"""The table of save_bench.py: each round's results, as rows of figures."""

import dataclasses
import statistics
import typing

import measure

MIB = 2**20
# The size of the window through which rank 0 passes a file on.
WINDOW_BYTES = 64 * MIB
# The variants of PyTorch: see torch_save.py.
SYNC_WAYS = ("sync, 1 threads", "sync, 2 threads")
ASYNC_WAYS = ("async", "async, kept memory")
STEP_WAYS = ("async", "overlapped", "process")


def step_ranks(num_ranks):
    return sorted({num_ranks, max(num_ranks // 2, 1)}, reverse=True)


def load_name(mesh):
    return "load " + "x".join(map(str, mesh))


def median_of(runs, key):
    return statistics.median(run[key] for run in runs)


def most(runs, key):
    return max(run[key] for run in runs)


def later(runs):
    """All but the first, which also allocates memory."""
    return runs[1:]


def copy_seconds(runs):
    return statistics.median(
        seconds
        for run in runs
        for seconds in (run["memcpy"], run["memcpy_after"])
    )


def slowdown(runs):
    """By how much steps take longer while a save is under way, 0.01 = 1 %."""
    return statistics.median(
        run["saving"] / run["steps"] / ((run["before"] + run["after"]) / 2) - 1
        for run in runs
    )


def lost_seconds(runs):
    """The cost of a save to training."""
    return statistics.median(
        run["saving"] - run["steps"] * (run["before"] + run["after"]) / 2
        for run in runs
    )


@dataclasses.dataclass
class Row:
    """A line of the table: functions of a round."""

    label: str
    unit: str
    ours: typing.Callable
    pytorch: typing.Callable  # as it is by default
    best: typing.Callable = None  # the least of what it can be told
    floor: typing.Callable = None  # what nothing can beat
    aim: float = (
        None  # ours at most so many times the floor, or at most so much
    )

    def summarize(self, rounds):
        columns = {"ours": self.ours, "pytorch": self.pytorch}
        rival = self.best or self.pytorch
        if self.best:
            columns["best"] = self.best
        if self.floor:
            columns["floor"] = self.floor
            columns["to_floor"] = lambda one: self.ours(one) / self.floor(one)
        # Differences and amounts near zero have no ratios.
        if self.unit == "s":
            columns["times_pytorch"] = lambda one: rival(one) / self.ours(one)
        row = {
            name: measure.figure(rounds, function)
            for name, function in columns.items()
        }
        return {"unit": self.unit, "aim": self.aim, **row}


def save_rows(has_later):
    def ours(one, way):
        return one["ours"]["save"][way]

    def theirs(one, ways, pick, key):
        return min(
            median_of(pick(one["pytorch"]["save"][way]), key) for way in ways
        )

    def first(runs):
        return runs[:1]

    stalls = [("stall, first async_save", first, None)]
    if has_later:
        stalls.append(("stall, later ones", later, 1.1))
    for label, pick, aim in stalls:
        yield Row(
            label,
            "s",
            lambda one, pick=pick: median_of(pick(ours(one, "async")), "stall"),
            lambda one, pick=pick: theirs(one, ASYNC_WAYS[:1], pick, "stall"),
            lambda one, pick=pick: theirs(one, ASYNC_WAYS, pick, "stall"),
            lambda one: copy_seconds(ours(one, "async")),
            aim,
        )
    yield Row(
        "stall, first async_save, prepared",
        "s",
        lambda one: median_of(ours(one, "prepared"), "stall"),
        lambda one: theirs(one, ASYNC_WAYS[:1], first, "stall"),
        lambda one: theirs(one, ASYNC_WAYS, first, "stall"),
        lambda one: copy_seconds(ours(one, "prepared")),
        1.1,
    )
    yield Row(
        "save, durable",
        "s",
        lambda one: median_of(ours(one, "sync"), "durable"),
        lambda one: theirs(one, SYNC_WAYS[:1], list, "durable"),
        lambda one: theirs(one, SYNC_WAYS, list, "durable"),
        lambda one: one["fio"]["write"],
        1.1,
    )
    usual = later if has_later else first
    yield Row(
        "async_save, durable",
        "s",
        lambda one: median_of(usual(ours(one, "async")), "durable"),
        lambda one: theirs(one, ASYNC_WAYS[:1], usual, "durable"),
        lambda one: theirs(one, ASYNC_WAYS, usual, "durable"),
        lambda one: one["fio"]["write"],
        1.1,
    )
    for label, way, rival in (
        ("memory, save", "sync", SYNC_WAYS[0]),
        ("memory, async_save", "async", ASYNC_WAYS[0]),
    ):
        yield Row(
            label,
            "MiB",
            lambda one, way=way: most(ours(one, way), "added_bytes"),
            lambda one, rival=rival: most(
                one["pytorch"]["save"][rival], "added_bytes"
            ),
        )


def step_rows(num_ranks):
    name = f"steps {num_ranks}"
    for label, unit, value, aim in (
        ("slowdown while saving", "%", slowdown, 0.035),
        ("lost by a save", "s lost", lost_seconds, None),
    ):
        yield Row(
            f"{label}, {num_ranks} training",
            unit,
            lambda one, value=value: value(one["ours"][name]["overlapped"]),
            lambda one, value=value: value(one["pytorch"][name]["async"]),
            lambda one, value=value: min(
                value(one["pytorch"][name][way]) for way in STEP_WAYS
            ),
            aim=aim,
        )


def load_rows(mesh, total_bytes):
    name = load_name(mesh)
    label = f"load onto {name.split()[1]}"

    def of(who, kind, key):
        return lambda one: one[who][name][kind][0][key]

    def amplification(who):
        return lambda one: of(who, "cold", "read_bytes")(one) / total_bytes

    yield Row(
        f"{label}, cold",
        "s",
        of("ours", "cold", "seconds"),
        of("pytorch", "cold", "seconds"),
        floor=lambda one: one["fio"]["read"],
        aim=1.1,
    )
    yield Row(
        f"{label}, cached",
        "s",
        of("ours", "warm", "seconds"),
        of("pytorch", "warm", "seconds"),
    )
    yield Row(
        f"{label}, read / needed",
        "x",
        amplification("ours"),
        amplification("pytorch"),
        aim=1.02,
    )
    yield Row(
        f"{label}, memory",
        "MiB",
        of("ours", "cold", "added_bytes"),
        of("pytorch", "cold", "added_bytes"),
    )


def rank0_rows():
    for label, unit, key in (
        ("file loaded by rank 0 for all", "s", "seconds"),
        ("file loaded by rank 0, memory", "MiB", "added_bytes"),
    ):
        yield Row(
            label,
            unit,
            lambda one, key=key: one["ours"]["rank0"]["rank0"][0][key],
            lambda one, key=key: one["pytorch"]["rank0"]["rank0"][0][key],
        )


def summarize(rounds, bench):
    args = bench.args
    rows = [*save_rows(has_later=args.repeats > 1)]
    if "steps" not in args.skip:
        for num_ranks in step_ranks(args.ranks):
            rows += step_rows(num_ranks)
    for mesh in ([args.ranks], *args.onto):
        rows += load_rows(mesh, bench.bytes)
    if "rank0" not in args.skip:
        rows += rank0_rows()
    return {row.label: row.summarize(rounds) for row in rows}


UNITS = {
    # Scale, digits.
    "s": (1, 2),
    "s lost": (1, 2),
    "MiB": (1 / MIB, 0),
    "%": (100, 1),
    "x": (1, 3),
}


def aim_text(row):
    if row["aim"] is None:
        return ""
    scale = 1 if "to_floor" in row else UNITS[row["unit"]][0]
    return f"{row['aim'] * scale:g}"


def print_report(report):
    machine = report["machine"]
    print(
        f"{report['ranks']} ranks, {report['bytes'] / 1e9:.2f} GB of state in "
        f"{report['tensors']} tensors; {machine['processors']} processors, "
        f"load {machine['load']:.1f}.\nMedians of {len(report['rounds'])} "
        "rounds [least, largest].\n"
    )
    line = "{:<36}{:<7}{:>21}{:>21}{:>21}{:>18}{:>21}{:>6}{:>20}"
    print(
        line.format(
            "",
            "",
            "ours",
            "PyTorch",
            "its best",
            "fio or memcpy",
            "ours / that",
            "aim",
            "best / ours",
        )
    )
    for label, row in report["rows"].items():
        scale, digits = UNITS[row["unit"]]
        cells = [
            measure.number(row[name], scale, digits) if name in row else ""
            for name in ("ours", "pytorch", "best", "floor")
        ]
        ratios = [
            measure.number(row[name]) if name in row else ""
            for name in ("to_floor", "times_pytorch")
        ]
        text = line.format(
            label, row["unit"], *cells, ratios[0], aim_text(row), ratios[1]
        )
        print(text.rstrip())
    print(
        "\nIts best: of save with one or two threads; of async_save with its "
        "own stager, and with one that keeps\nits memory; of steps also with "
        "staging in the background until the optimizer's step, and saving by "
        "a process.\nA stall ends when tensors may change; all ranks copy at "
        "once, for memcpy too. PyTorch syncs its files\n(sync_files, its "
        "default). Memory is the most private memory that a rank takes for "
        "it beyond the state."
    )
    if "file loaded by rank 0 for all" in report["rows"]:
        print(
            "The file that rank 0 loads has "
            f"{report['parameter_bytes'] / MIB:.0f} MiB of parameters; our "
            f"window is {WINDOW_BYTES // MIB} MiB; PyTorch maps the file."
        )
