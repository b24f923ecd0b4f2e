# SPDX-License-Identifier: Apache-2.0
"""PyTorch's and safetensors' own ways to save, load and compare a state."""

import collections.abc

import safetensors.torch
import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint._nested_dict import flatten_state_dict
from torch.distributed.checkpoint.default_planner import (
    DefaultLoadPlanner,
    _EmptyStateDictLoadPlanner,
)
from torch.distributed.checkpoint.metadata import TensorStorageMetadata
from torch.distributed.checkpoint.state_dict_loader import _load_state_dict

STORAGES = (torch.UntypedStorage, torch.TypedStorage)


def load_dcp(reader):
    """The values that a reader finds, with their containers."""
    state = {}
    _load_state_dict(
        state,
        storage_reader=reader,
        planner=_EmptyStateDictLoadPlanner(),
        no_dist=True,
    )
    return state


def load_flat(reader):
    """The values that a reader finds, by the names that DCP gives."""
    metadata = reader.read_metadata()
    state = {
        name: torch.empty(entry.size, dtype=entry.properties.dtype)
        if isinstance(entry, TensorStorageMetadata)
        else None
        for name, entry in metadata.state_dict_metadata.items()
    }
    planner = DefaultLoadPlanner(
        flatten_state_dict=False, flatten_sharded_tensors=False
    )
    dcp.load(state, storage_reader=reader, planner=planner, no_dist=True)
    return state


def load(path, form):
    if form == "pt":
        return torch.load(path, weights_only=False)
    if form == "safetensors":
        return safetensors.torch.load_file(path)
    return load_dcp(dcp.FileSystemReader(path))


def tensors(state):
    """The tensors by their names in a checkpoint, without shared memory."""
    return {
        name: plain(value)
        for name, value in flat(state).items()
        if isinstance(value, torch.Tensor)
    }


def save(state, path, form):
    if form == "pt":
        torch.save(state, path)
    elif form == "safetensors":
        safetensors.torch.save_file(tensors(state), path)
    else:
        dcp.save(state, checkpoint_id=path, no_dist=True)


def flat(state):
    return flatten_state_dict(state)[0]


def plain(tensor):
    """A row-major copy in separate memory, if it has rows."""
    if not any(part is tensor for part in dense(tensor)):
        return tensor
    values = tensor.detach().resolve_conj().resolve_neg()
    return values.clone(memory_format=torch.contiguous_format)


def bits(tensor):
    return plain(tensor).view(-1).view(torch.uint8)


def dense(tensor):
    """Plain tensors that hold the contents of a tensor of another kind."""
    if hasattr(tensor, "__tensor_flatten__"):
        names, _ = tensor.__tensor_flatten__()
        return [getattr(tensor, name) for name in names]
    if tensor.is_quantized:
        return [tensor.int_repr(), torch.tensor(tensor.q_scale())]
    if tensor.is_nested:
        return [tensor.values(), tensor.offsets()]
    if tensor.layout == torch.sparse_coo:
        tensor = tensor.coalesce()
        return [tensor.indices(), tensor.values()]
    if tensor.layout == torch.sparse_csr:
        return [tensor.crow_indices(), tensor.col_indices(), tensor.values()]
    return [] if tensor.is_meta else [tensor]


def difference(found, expected, name="state"):
    """How two loaded values differ, or None."""
    if isinstance(expected, torch.Tensor):
        return tensor_difference(found, expected, name)
    if type(found) is not type(expected):
        return f"{name}: {type(expected)} became {type(found)}"
    if isinstance(expected, collections.abc.Mapping):
        if list(found) != list(expected) and set(found) != set(expected):
            return f"{name}: {list(expected)} became {list(found)}"
        pairs = [(found[key], expected[key], key) for key in expected]
    elif isinstance(expected, (list, tuple)):
        if len(found) != len(expected):
            return f"{name}: {len(expected)} items became {len(found)}"
        pairs = zip(found, expected, range(len(expected)))
    elif isinstance(expected, float):
        same = found.hex() == expected.hex()
        return None if same else f"{name}: {expected!r} became {found!r}"
    elif isinstance(expected, STORAGES):
        same = found.tolist() == expected.tolist()
        return None if same else f"{name}: other bytes"
    else:
        same = found == expected
        return None if same else f"{name}: {expected!r} became {found!r}"
    for a, b, key in pairs:
        text = difference(a, b, f"{name}[{key!r}]")
        if text is not None:
            return text
    return None


def tensor_difference(found, expected, name):
    if not isinstance(found, torch.Tensor):
        return f"{name}: a tensor became {type(found)}"
    for what in ("dtype", "layout", "is_quantized", "is_meta"):
        a, b = getattr(found, what), getattr(expected, what)
        if a != b:
            return f"{name}: {what} {b} became {a}"
    if not expected.is_nested and found.shape != expected.shape:
        return f"{name}: {expected.shape} became {found.shape}"
    parts = dense(found), dense(expected)
    if len(parts[0]) != len(parts[1]):
        return f"{name}: {type(expected)} became {type(found)}"
    if not all(torch.equal(bits(a), bits(b)) for a, b in zip(*parts)):
        return f"{name}: other values"
    return None
