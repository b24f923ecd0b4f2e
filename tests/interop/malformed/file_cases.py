# SPDX-License-Identifier: Apache-2.0
"""Cases of the file system: what is at the place of a data file."""

import os
import pickle

from building import base


def without(blobs, name):
    return {k: v for k, v in blobs.items() if k != name}


def add(c):
    md, blobs = base()
    c.dcp(
        "file_missing",
        "reject",
        "a data file is missing",
        blobs=without(blobs, "__1_0.distcp"),
    )
    c.dcp(
        "file_truncated",
        "reject",
        "a data file is cut",
        blobs={
            k: (v[: len(v) // 2] if k == "__0_0.distcp" else v)
            for k, v in blobs.items()
        },
    )
    c.dcp(
        "file_empty",
        "reject",
        "a data file is empty",
        blobs={
            k: (b"" if k == "__0_0.distcp" else v) for k, v in blobs.items()
        },
    )
    c.dcp(
        "file_is_dir",
        "reject",
        "a data file is a directory",
        blobs=without(blobs, "__1_0.distcp"),
    )
    os.makedirs(c.path("file_is_dir", "__1_0.distcp"), exist_ok=True)
    c.dcp("file_md_is_dir", "reject", ".metadata is a directory", raw=False)
    os.makedirs(c.path("file_md_is_dir", ".metadata"), exist_ok=True)
    c.dcp(
        "file_symlink_out",
        "reject",
        "a data file is a symlink out of the directory",
        blobs=without(blobs, "__1_0.distcp"),
    )
    os.symlink(
        "../ok_base/__1_0.distcp",
        c.path("file_symlink_out", "__1_0.distcp"),
    )
    c.dcp(
        "file_fifo",
        "reject",
        "a data file is a FIFO (must not block)",
        blobs=without(blobs, "__1_0.distcp"),
    )
    os.mkfifo(c.path("file_fifo", "__1_0.distcp"))
    c.dcp(
        "file_only_tmp",
        "reject",
        "only .metadata.tmp: the save never finished",
        raw=False,
    )
    with open(c.path("file_only_tmp", ".metadata.tmp"), "wb") as f:
        f.write(pickle.dumps(md, 4))
