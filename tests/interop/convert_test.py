"""Every reference checkpoint, converted to every format and judged."""

from conversions import Checkpoint, check_everything
from harness import Suite, expectations, make_references


def sources(references):
    for path, expected in expectations(references):
        if expected["kind"] == "dcp-rank-local":
            for rank, one in enumerate(expected["per_rank"]):
                options = ["--rank", str(rank)]
                title = f"{expected['case']} rank {rank}"
                yield title, Checkpoint(path, one, options)
            continue
        yield expected["case"], Checkpoint(path, expected)
        if expected.get("pt"):
            full = references / expected["pt"]
            yield expected["case"] + ".pt", Checkpoint(full, expected)


def main():
    suite = Suite("convert")
    references = suite.fresh("references")
    make_references(references)
    for title, source in sources(references):
        check_everything(suite, title, source)
    suite.finish()


if __name__ == "__main__":
    main()
