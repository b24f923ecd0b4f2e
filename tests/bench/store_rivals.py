# SPDX-License-Identifier: Apache-2.0
"""A library of Python puts a checkpoint into an object store, or gets it out.

    python store_rivals.py put WRITER DIR URL
    python store_rivals.py get READER URL

WRITER and READER are `fsspec` (PyTorch's, with s3fs), `connector` (that of
s3torchconnector) or, to read a safetensors file, `runai` (Run:ai's model
streamer). Prints JSON: seconds, processor seconds and bytes for the measured part,
without imports and without work outside the store.
"""

import argparse
import json
import os
import resource
import time

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint import default_planner
from torch.distributed.checkpoint.state_dict_loader import _load_state_dict

# Files, and threads, of a writer: PyTorch writes a file with one.
NUM_THREADS = 4


def load(reader):
    """Everything that the index names, in new memory."""
    state = {}
    _load_state_dict(
        state,
        storage_reader=reader,
        planner=default_planner._EmptyStateDictLoadPlanner(),
        no_dist=True,
    )
    return state


def bytes_of(value):
    if isinstance(value, torch.Tensor):
        return value.numel() * value.element_size()
    if isinstance(value, dict):
        return sum(map(bytes_of, value.values()))
    return 0


def region():
    return os.environ["AWS_REGION"]


def connector_options():
    from s3torchconnector import S3ClientConfig

    # Buckets are a part of the path, as on most servers but Amazon's.
    return {
        "region": region(),
        "s3client_config": S3ClientConfig(force_path_style=True),
    }


def writer_of(kind, url):
    if kind == "fsspec":
        from torch.distributed.checkpoint import _fsspec_filesystem as fsspec

        return fsspec.FsspecWriter(url, thread_count=NUM_THREADS)
    from s3torchconnector.dcp import S3StorageWriter

    return S3StorageWriter(
        path=url, thread_count=NUM_THREADS, **connector_options()
    )


def reader_of(kind, url):
    if kind == "fsspec":
        from torch.distributed.checkpoint import _fsspec_filesystem as fsspec

        return fsspec.FsspecReader(url)
    from s3torchconnector.dcp import S3StorageReader

    return S3StorageReader(path=url, **connector_options())


def stream(url):
    """The tensors in a safetensors file, each in separate memory."""
    from runai_model_streamer import SafetensorsStreamer

    with SafetensorsStreamer() as streamer:
        streamer.stream_file(url)
        return {name: t.clone() for name, t in streamer.get_tensors()}


def measured(action):
    """The result of `action`, and the cost."""
    begin, before = time.monotonic(), resource.getrusage(resource.RUSAGE_SELF)
    result = action()
    seconds = time.monotonic() - begin
    after = resource.getrusage(resource.RUSAGE_SELF)
    return result, {
        "seconds": seconds,
        "cpu_seconds": after.ru_utime
        + after.ru_stime
        - before.ru_utime
        - before.ru_stime,
    }


def put(kind, directory, url):
    state = load(dcp.FileSystemReader(directory))
    writer = writer_of(kind, url)
    _, cost = measured(
        lambda: dcp.save(state, storage_writer=writer, no_dist=True)
    )
    return {**cost, "bytes": bytes_of(state)}


def get(kind, url):
    if kind == "runai":
        state, cost = measured(lambda: stream(url))
    else:
        reader = reader_of(kind, url)
        state, cost = measured(lambda: load(reader))
    return {**cost, "bytes": bytes_of(state)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["put", "get"])
    parser.add_argument("kind", choices=["fsspec", "connector", "runai"])
    parser.add_argument("places", nargs="+")
    args = parser.parse_args()
    function = put if args.what == "put" else get
    print(json.dumps(function(args.kind, *args.places)))


if __name__ == "__main__":
    main()
