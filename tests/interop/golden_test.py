# SPDX-License-Identifier: Apache-2.0
"""The golden files of six PyTorch versions, converted and judged by one."""

import shutil

from conversions import Checkpoint, check_everything
from harness import HERE, Suite, expectations


def main():
    suite = Suite("golden")
    for folder in sorted((HERE.parent / "golden").glob("torch-*")):
        # A copy, because a test may see the files as symbolic links, which a
        # checkpoint must not have.
        copy = suite.fresh("golden") / folder.name
        shutil.copytree(folder, copy)
        for path, expected in expectations(copy):
            title = f"{folder.name}/{expected['case']}"
            check_everything(suite, title, Checkpoint(path, expected))
    suite.finish()


if __name__ == "__main__":
    main()
