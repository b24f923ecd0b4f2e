# SPDX-License-Identifier: Apache-2.0
"""Every reference checkpoint, converted to every format and judged."""

from conversions import Checkpoint, check_everything
from harness import Suite, expectations, make_references


def sources(references):
    """(title, source, whether to write it for every mesh)."""
    for path, expected in expectations(references):
        if expected["kind"] == "dcp-rank-local":
            for rank, one in enumerate(expected["per_rank"]):
                options = ["--rank", str(rank)]
                title = f"{expected['case']} rank {rank}"
                yield title, Checkpoint(path, one, options), True
            continue
        yield expected["case"], Checkpoint(path, expected), True
        if expected.get("pt"):
            full = references / expected["pt"]
            # It holds the same as the DCP next to it.
            twin = Checkpoint(full, expected)
            yield expected["case"] + ".pt", twin, False


def main():
    suite = Suite("convert")
    references = suite.fresh("references")
    make_references(references)
    for title, source, all_meshes in sources(references):
        check_everything(suite, title, source, all_meshes)
    suite.finish()


if __name__ == "__main__":
    main()
