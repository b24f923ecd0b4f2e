# SPDX-License-Identifier: Apache-2.0
"""The table of serve_bench.py: each round's results, as rows of figures."""

import typing

import measure

MIB = 2**20
# The most ranks that read all of the checkpoint at once.
MANY = 32


class Row(typing.NamedTuple):
    """A line of the table: functions of a round."""

    label: str
    unit: str
    ours: typing.Callable
    rival: typing.Callable
    rival_name: str
    aim: str = ""
    peak_bytes: typing.Callable = None

    def summarize(self, rounds):
        columns = {
            "ours": self.ours,
            "rival": self.rival,
            "ratio": lambda one: self.ours(one) / self.rival(one),
        }
        row = {
            name: measure.figure(rounds, function)
            for name, function in columns.items()
        }
        if self.peak_bytes:
            row["peak_bytes"] = max(self.peak_bytes(one) for one in rounds)
        return {
            "label": self.label,
            "unit": self.unit,
            "rival_name": self.rival_name,
            "aim": self.aim,
            **row,
        }


def stream_label(name):
    count, axis = name.split()
    if count == "1":
        return "one stream"
    each = "a shard" if axis == "shard" else "all"
    return f"{count} ranks, {each} each"


def stream_rows(first):
    for name, sides in first["streams"].items():
        for way in ("stream", "library"):
            if way not in sides:
                continue
            label = stream_label(name)
            if way == "library":
                label += " into memory, checked (`//client`)"
            yield Row(
                label,
                "GB/s",
                lambda one, name=name, way=way: one["streams"][name][way] / 1e9,
                lambda one, name=name: one["streams"][name]["raw"] / 1e9,
                "gRPC alone",
                "0.9 or more" if way == "stream" else "",
                lambda one, name=name: one["streams"][name]["peak_bytes"],
            )


def once_rows():
    many = str(MANY)
    for key, what in (
        ("read", "read by the daemon"),
        ("disk", "of that from the disk, not the page cache"),
    ):
        yield Row(
            f"{MANY} ranks, all each, cold: {what}",
            "GB",
            lambda one, key=key: one["once"][many][key] / 1e9,
            lambda one, key=key: one["once"]["1"][key] / 1e9,
            "for one",
            "1.3 or less",
            lambda one: one["once"][many]["peak_bytes"],
        )
    yield Row(
        "one stream, cold",
        "s",
        lambda one: one["once"]["1"]["seconds"],
        lambda one: one["once"]["cp"]["seconds"],
        "`cp`, not synced",
        "",
        lambda one: one["once"]["1"]["peak_bytes"],
    )


def job_rows():
    yield Row(
        "reshard 4 to 3 through the daemon, cold, synced",
        "s",
        lambda one: one["jobs"]["daemon"]["seconds"],
        lambda one: one["jobs"]["here"]["seconds"],
        "`dcp-convert` itself",
        "1.03 or less",
        lambda one: one["jobs"]["daemon"]["peak_bytes"],
    )


def summarize(rounds):
    rows = []
    if "streams" in rounds[0]:
        rows += stream_rows(rounds[0])
    if "once" in rounds[0]:
        rows += once_rows()
    if "jobs" in rounds[0]:
        rows += job_rows()
    return [row.summarize(rounds) for row in rows]


def print_report(report):
    machine = report["machine"]
    print(
        f"{report['bytes'] / 1e9:.2f} GB, {machine['processors']} processors "
        f"that all share, load before {machine['load']:.1f}; medians of "
        f"{report['rounds']} rounds [least, largest]; `--max-memory` "
        f"{report['max_memory_bytes'] / MIB:.0f} MiB.\n"
    )
    print("| | daemon | compared with | ratio | aim | daemon's memory |")
    print("| --- | --- | --- | --- | --- | --- |")
    for row in report["rows"]:
        peak = f"{row['peak_bytes'] / MIB:.0f} MiB"
        print(
            f"| {row['label']} | {measure.number(row['ours'])} {row['unit']} "
            f"| {row['rival_name']} {measure.number(row['rival'])} "
            f"{row['unit']} | {measure.number(row['ratio'])} | {row['aim']} "
            f"| {peak} |"
        )
