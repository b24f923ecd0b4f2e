# SPDX-License-Identifier: Apache-2.0
"""PyTorch, safetensors and zipfile as judges of checkpoints.

    python judge.py PATH EXPECTED.json        one checkpoint, bit for bit
    python judge.py --all DIR                 every DIR/*.expected.json

Exit status 0 when everything matches, 1 otherwise; one line per checkpoint.
"""

import argparse
import glob
import io
import json
import os
import pickle
import sys
import warnings
import zipfile

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint import default_planner
from torch.distributed.checkpoint.state_dict_loader import _load_state_dict

from values import describe_flat

warnings.filterwarnings("ignore")

try:
    from torch.distributed.checkpoint._nested_dict import flatten_state_dict
except ImportError as error:
    sys.exit(f"this PyTorch is not known to the judge: {error}")


def guess_kind(path):
    """dcp, dcp-rank-local, hf, safetensors or pt, judged by the files."""
    if os.path.isdir(path):
        if os.path.exists(os.path.join(path, ".metadata")):
            return "dcp"
        if os.path.exists(os.path.join(path, "__0.metadata")):
            return "dcp-rank-local"
        return "hf"
    return "safetensors" if path.endswith(".safetensors") else "pt"


def _template(metadata):
    return {
        k: torch.empty(v.size, dtype=v.properties.dtype)
        for k, v in metadata.state_dict_metadata.items()
        if hasattr(v, "size")
    }


def reader_of(path):
    """PyTorch's reader of a directory, or of an address like s3://b/key, which
    asks the server again about everything."""
    if "://" not in path:
        return dcp.FileSystemReader(path)
    from torch.distributed.checkpoint._fsspec_filesystem import FsspecReader

    return FsspecReader(
        path, skip_instance_cache=True, use_listings_cache=False
    )


def read_metadata(path):
    return reader_of(path).read_metadata()


def load_dcp(path):
    """Everything in a DCP directory, under the names of its index."""
    metadata = read_metadata(path)
    state = _template(metadata)
    for name in metadata.state_dict_metadata:
        state.setdefault(name, None)
    # The names are the index's own, so nothing is to be flattened.
    planner = default_planner.DefaultLoadPlanner(
        flatten_state_dict=False, flatten_sharded_tensors=False
    )
    reader = reader_of(path)
    _load_state_dict(
        state, storage_reader=reader, planner=planner, no_dist=True
    )
    return state


def load_dcp_nested(path):
    """The nested dict that the paths of the index describe."""
    state = {}
    _load_state_dict(
        state,
        storage_reader=dcp.FileSystemReader(path),
        planner=default_planner._EmptyStateDictLoadPlanner(),
        no_dist=True,
    )
    return state


def load_hf(path):
    from torch.distributed.checkpoint import HuggingFaceStorageReader

    state = _template(HuggingFaceStorageReader(path).read_metadata())
    _load_state_dict(
        state,
        storage_reader=HuggingFaceStorageReader(path),
        planner=default_planner.DefaultLoadPlanner(),
        no_dist=True,
    )
    return state


def load_safetensors_files(path):
    """What the files of a folder hold, and the names of its index."""
    from safetensors.torch import load_file

    state = {}
    for file in safetensors_files(path):
        for name, tensor in load_file(file).items():
            if name in state:
                raise ValueError(f"{name!r} is in two files")
            state[name] = tensor
    index = os.path.join(path, "model.safetensors.index.json")
    if os.path.exists(index):
        with open(index) as f:
            mapped = json.load(f)["weight_map"]
        if set(mapped) != set(state):
            raise ValueError("the index names other tensors than the files")
    return state


def load_pt(path, weights_only=True):
    return torch.load(path, map_location="cpu", weights_only=weights_only)


def load_flat(path, kind=None, weights_only=True):
    """A checkpoint as a flat dict of tensors and objects."""
    kind = kind or guess_kind(path)
    if kind == "dcp":
        return load_dcp(path)
    if kind == "pt":
        return flatten_state_dict(load_pt(path, weights_only))[0]
    if kind == "safetensors":
        from safetensors.torch import load_file

        return load_file(path)
    if kind == "hf":
        return load_hf(path)
    if kind == "hf-files":
        return load_safetensors_files(path)
    raise ValueError("no judge for " + kind)


def safetensors_files(path):
    """The safetensors files of a file or a directory of them."""
    if not os.path.isdir(path):
        return [path]
    return sorted(glob.glob(os.path.join(path, "*.safetensors")))


# ------------------------------------------------------------------ comparing
def strip_hex(digests):
    return {
        k: {f: v[f] for f in ("dtype", "shape", "sha256")}
        for k, v in digests.items()
    }


def differences(kind, got, want):
    """One line for each name whose value is missing, different or too many."""
    lines = []
    for name in want:
        if name not in got:
            lines.append(f"{kind} {name!r} is missing")
        elif got[name] != want[name]:
            lines.append(
                f"{kind} {name!r} differs: got {str(got[name])[:300]}"
                f" want {str(want[name])[:300]}"
            )
    lines += [f"{kind} {n!r} is unexpected" for n in got if n not in want]
    return lines


def _is_leaf(value):
    """PyTorch's rule since 2.4, on canonical values."""
    if value[0] in ("dict", "odict"):
        return False
    return value[0] != "list" or all(
        x[0] not in ("dict", "odict", "tensor") and _is_leaf(x)
        for x in value[1]
    )


def normalized(tensors, objects):
    """Tensors and objects with containers taken apart into names, as PyTorch
    flattens since 2.4. Makes what was saved under older rules, or without
    flattening, comparable with what a nested dict gives."""
    tensors, flat = dict(tensors), {}

    def walk(name, value):
        if value[0] == "tensor":
            keys = ("dtype", "shape", "sha256")
            tensors[name] = dict(zip(keys, value[1:]))
        elif _is_leaf(value):
            flat[name] = value
        elif value[0] == "list":
            for k, v in enumerate(value[1]):
                walk(f"{name}.{k}", v)
        else:
            for k, v in value[1]:
                walk(f"{name}.{k[1]}", v)

    for name, value in objects.items():
        walk(name, value)
    return tensors, flat


def compare(flat, tensors, objects):
    """Differences of loaded values from expected digests and objects."""
    got = normalized(*describe_flat(flat))
    want = normalized(strip_hex(tensors), objects)
    lines = differences("tensor", got[0], want[0])
    return lines + differences("object", got[1], want[1])


# ----------------------------------------------------------------- containers
def bad_crcs(path):
    """Records of a .pt, or of the items of a DCP directory, whose CRC-32 is
    wrong. The judge is Python's zipfile, which PyTorch does not use."""
    if not os.path.isdir(path):
        with zipfile.ZipFile(path) as archive:
            name = archive.testzip()
        return [] if name is None else [name]
    bad = []
    for index, info in read_metadata(path).storage_data.items():
        with open(os.path.join(path, info.relative_path), "rb") as f:
            f.seek(info.offset)
            item = f.read(info.length)
        name = zipfile.ZipFile(io.BytesIO(item)).testzip()
        if name is not None:
            bad.append(f"{index.fqn}: {name}")
    return bad


def chunk_boxes(path):
    """name -> sorted list of (offsets, sizes), of each tensor in a DCP."""
    with open(os.path.join(path, ".metadata"), "rb") as f:
        metadata = pickle.load(f)
    return {
        name: sorted((tuple(c.offsets), tuple(c.sizes)) for c in m.chunks)
        for name, m in metadata.state_dict_metadata.items()
        if hasattr(m, "chunks")
    }


# ---------------------------------------------------------------- command line
def check_rank_local(path, expected):
    lines = []
    for rank, want in enumerate(expected["per_rank"]):
        reader = dcp.FileSystemReader(path)
        metadata = reader.read_metadata(rank=rank)
        reader.set_up_storage_reader(
            metadata, True, rank=rank, use_collectives=False
        )
        state = _template(metadata)
        for name in metadata.state_dict_metadata:
            state.setdefault(name, None)
        planner = default_planner.DefaultLoadPlanner()
        planner.set_up_planner(state, metadata, True)
        reader.read_data(planner.create_local_plan(), planner)
        lines += compare(state, want["tensors"], want["objects"])
    return lines


def check(path, expected, trusted=False):
    """Differences of a checkpoint from what is expected of it. Only a trusted
    file may be unpickled where PyTorch's careful loader refuses it, as it
    refuses pickle protocols 4 and 5."""
    kind = guess_kind(path)
    if kind == "dcp-rank-local":
        # PyTorch itself reads the shards of one rank on that rank only.
        return (
            check_rank_local(path, expected) if "per_rank" in expected else []
        )
    flat = load_flat(path, kind, weights_only=not trusted)
    return compare(flat, expected["tensors"], expected["objects"])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("path", nargs="?")
    parser.add_argument("expected", nargs="?")
    parser.add_argument("--all", metavar="DIR")
    options = parser.parse_args()
    jobs = [(options.path, options.expected)]
    if options.all:
        names = sorted(glob.glob(os.path.join(options.all, "*.expected.json")))
        jobs = []
        for name in names:
            with open(name) as f:
                jobs.append(
                    (os.path.join(options.all, json.load(f)["path"]), name)
                )
    failed = False
    for path, name in jobs:
        with open(name) as f:
            expected = json.load(f)
        if expected["kind"] == "dcp-safetensors-items":
            print("skip", path, "(PyTorch cannot read it)")
            continue
        lines = check(path, expected, trusted=True)
        failed |= bool(lines)
        print(
            "FAIL" if lines else "ok  ",
            path,
            *lines,
            sep="\n  " if lines else " ",
        )
    sys.exit(failed)


if __name__ == "__main__":
    main()
