# SPDX-License-Identifier: Apache-2.0
"""The common part of all benchmark reports: how many times as good as its rival
Tessera is, row by row."""

import collections

import map_bench
import measure

# `times` is above 1 where Tessera is better: faster, or in less memory. `ours`
# and `theirs` are in `unit`.
Figure = collections.namedtuple("Figure", "bench label ours theirs unit times")


def of_convert(report):
    rows = report["convert"]["rows"]
    rivals = {
        "pt": "dcp_to_torch_save",
        "safetensors": "dcp.load and save_file",
    }
    for kind, rival in rivals.items():
        ours, theirs = rows[f"ours {kind}"], rows[f"torch {kind}"]
        yield (
            f"to {kind}, {rival}",
            ours["seconds"],
            theirs["seconds"],
            "s",
            ours["times_torch"],
        )
    disk = report["convert"]["disk_seconds"]
    for name, row in rows.items():
        if name.startswith("ours"):
            label = f"{name.removeprefix('ours ')}, read and write by fio"
            yield label, row["seconds"], disk, "s", 1 / row["to_disk"]
    inspect = report["inspect"]
    yield (
        f"inspect of {inspect['tensors']} tensors, PyTorch",
        inspect["seconds"],
        inspect["torch_seconds"],
        "s",
        inspect["times_torch"],
    )


def of_dialects(report):
    for row in report.values():
        label = f"merge, {row['rival']}"
        yield label, row["seconds"], row["rival_seconds"], "s", row["times"]


def of_map(report):
    directions = [
        map_bench.summarize(direction)
        for model in report["models"].values()
        for direction in model["directions"]
    ]
    for row in directions:
        label = f"{row['model']}, {row['from']} to {row['to']}"
        yield (
            f"{label}, without a mapping",
            row["seconds"]["median"],
            row["plain_seconds"]["median"],
            "s",
            1 / row["to_plain"]["median"],
        )
        if "times" in row:
            yield (
                f"{label}, {row['rival']}",
                row["seconds"]["median"],
                row["rival_seconds"]["median"],
                "s",
                row["times"]["median"],
            )


def of_training(rows, label):
    for name, row in rows.items():
        if name.endswith(" unsharded"):
            continue
        for key, title, unit, is_rate in (
            ("tokens_per_second", "tokens", "1/s", True),
            ("private_added_bytes", "memory", "MiB", False),
        ):
            ratio = row["times_pytorch"][key]["median"]
            scale = 1 if is_rate else measure.UNITS["MIB"]
            yield (
                f"{label} {name}, {title}, PyTorch",
                row["ours"][key]["median"] / scale,
                row["pytorch"][key]["median"] / scale,
                unit,
                ratio if is_rate else 1 / ratio,
            )


def of_train(report):
    for size, result in report["sizes"].items():
        yield from of_training(result["rows"], f"{size}, ranks")
    linear = report["operators"]["managed linear"]
    yield (
        "a managed Linear, a plain one",
        linear["ours_us"]["median"],
        linear["plain_us"]["median"],
        "us",
        linear["plain_us"]["median"] / linear["ours_us"]["median"],
    )


def of_parallel(report):
    for size, rows in report["sizes"].items():
        yield from of_training(rows, size)
    operators = report["operators"]
    for case, theirs in operators["pytorch"].items():
        ours = operators["ours"][case]["overhead_us"]["median"]
        other = theirs["overhead_us"]["median"]
        yield f"{case}, DTensor", ours, other, "us", other / ours


def of_save(report):
    for label, row in report["rows"].items():
        if "times_pytorch" in row:
            rival = row.get("best", row["pytorch"])["median"]
            times = row["times_pytorch"]["median"]
            name = f"{label}, PyTorch"
            yield name, row["ours"]["median"], rival, "s", times
        if "to_floor" in row:
            times = 1 / row["to_floor"]["median"]
            floor = row["floor"]["median"]
            name = f"{label}, fio or memcpy"
            yield name, row["ours"]["median"], floor, "s", times


def of_serve(report):
    for row in report["rows"]:
        ratio = row["ratio"]["median"]
        yield (
            f"{row['label']}, {row['rival_name']}",
            row["ours"]["median"],
            row["rival"]["median"],
            row["unit"],
            ratio if row["unit"] == "GB/s" else 1 / ratio,
        )


def of_store(report):
    ours = {r["work"]: r for r in report if r["who"] == "dcp-convert"}
    for row in report:
        if row["who"] == "dcp-convert" or "refused" in row:
            continue
        yield (
            f"{row['work']}, {row['who']}",
            ours[row["work"]]["rate"],
            row["rate"],
            "GB/s",
            row["seconds_ratio"][0],
        )


def of_workers(report):
    for name, row in report["one"].items():
        if name == "plain":
            continue
        yield (
            f"one worker ({name}), without workers",
            row["seconds"],
            report["one"]["plain"]["seconds"],
            "s",
            1 / row["to_plain"]["median"],
        )


def of_plan(report):
    for row in report["rows"]:
        if "pytorch_seconds" in row:
            ours, theirs = row["seconds"], row["pytorch_seconds"]
            label = f"{row['workload']}, PyTorch"
            yield label, ours, theirs, "s", theirs / ours


def of_python(report):
    for row in report["rows"]:
        yield row["label"], row["ours"], row["rival"], row["unit"], row["times"]


def figures_of(bench, report):
    """The figures of a report, the JSON of `tools/bench BENCH`."""
    rows = globals()[f"of_{bench}"](report)
    return [Figure(bench, *row) for row in rows]


def print_figures(figures):
    width = max(len(figure.label) for figure in figures)
    bench = None
    for figure in figures:
        if figure.bench != bench:
            bench = figure.bench
            heading = f"\n{bench + ': what, and the rival':<{width}}"
            print(f"{heading}{'ours':>12}{'rival':>12}{'times as good':>20}")
        print(
            f"{figure.label:<{width}}{figure.ours:>12.4g}"
            f"{figure.theirs:>12.4g} {figure.unit:<5}{figure.times:>14.2f}"
        )
