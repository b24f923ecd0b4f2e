# SPDX-License-Identifier: Apache-2.0
"""Prints what tests/bench/plan has measured: our planners and PyTorch's."""

import json
import pathlib
import statistics
import sys


def seconds(row):
    return statistics.median(row["seconds"])


def summarize(folder):
    def rows(name):
        text = (folder / f"{name}.json").read_text()
        return {row["workload"]: row for row in json.loads(text)}

    full, ours, pytorch = rows("full"), rows("ours"), rows("pytorch")
    for name, row in full.items():
        small = ours[name]
        summary = {
            "workload": name,
            "million_seconds": seconds(row),
            "million_spread": [min(row["seconds"]), max(row["seconds"])],
            "million_items": row["items"],
            "seconds": seconds(small),
            "items": small["items"],
        }
        if name in pytorch:
            other = pytorch[name]
            if other["items"] != small["items"]:
                sys.exit(
                    f"{name}: {small['items']} items, PyTorch {other['items']}"
                )
            summary["pytorch_seconds"] = seconds(other)
        yield summary


def print_rows(rows, scale):
    part = f"1,000,000 / {scale}"
    print(f"{'':18} {'1,000,000 chunks':^30} {part:^38}")
    print(
        f"{'workload':18} {'ours s':>8} {'spread s':>13} {'items':>8}"
        f" {'ours s':>9} {'PyTorch s':>10} {'ratio':>8} {'items':>8}"
    )
    for row in rows:
        spread = "{:.3f}-{:.3f}".format(*row["million_spread"])
        line = (
            f"{row['workload']:18} {row['million_seconds']:8.3f} "
            f"{spread:>13} {row['million_items']:8} {row['seconds']:9.4f}"
        )
        if "pytorch_seconds" in row:
            ratio = row["pytorch_seconds"] / row["seconds"]
            line += f" {row['pytorch_seconds']:10.2f} {ratio:7.0f}x"
        else:
            line += f" {'-':>10} {'-':>8}"
        print(f"{line} {row['items']:8}")


def main():
    folder, scale, *options = sys.argv[1:]
    rows = list(summarize(pathlib.Path(folder)))
    if "--json" in options:
        print(json.dumps({"scale": int(scale), "rows": rows}, indent=1))
    else:
        print_rows(rows, scale)


if __name__ == "__main__":
    main()
