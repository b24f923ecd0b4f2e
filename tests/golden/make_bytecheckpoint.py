# SPDX-License-Identifier: Apache-2.0
"""Writes the golden checkpoints of ByteCheckpoint's format.

    python make_bytecheckpoint.py        writes dialects/bytecheckpoint/

Needs PyTorch and safetensors. ByteCheckpoint itself accepts only PyTorch 2.1 to
2.5 and a GPU, so this script writes what its version 0.0.2 would: stand-ins of
its classes are pickled under their names, and everything else is PyTorch's own.
Source: bytecheckpoint/checkpointer/{meta_type,fsdp2_checkpointer}.py,
engine/store_engine.py, utilities/serialization.py,
planner/fsdp/fsdp_hack.py (flat parameters).
"""

import dataclasses
import io
import json
import pathlib
import pickle
import shutil
import sys
import types

import torch
from safetensors.torch import save_file
from torch.distributed.checkpoint.metadata import (
    BytesStorageMetadata,
    ChunkStorageMetadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "interop"))
from values import canon, det, digest  # noqa: E402

MODULE = "bytecheckpoint.checkpointer.meta_type"
WORLD_SIZE = 2
LR = 0.125


def _stand_in(name, fields):
    made = dataclasses.make_dataclass(name, fields)
    made.__module__ = MODULE
    made.__qualname__ = name
    setattr(sys.modules[MODULE], name, made)
    return made


for _name in ("bytecheckpoint", "bytecheckpoint.checkpointer", MODULE):
    sys.modules[_name] = types.ModuleType(_name)
StorageInfo = _stand_in("_StorageInfo", ["relative_path", "offset", "length"])
Metadata = _stand_in(
    "Metadata",
    [
        "state_dict_metadata",
        "planner_data",
        "storage_data",
        "all_tensor_metadata",
        "bytecheckpoint_version",
        "user_defined_dict",
    ],
)


def serialize_tensor(tensor):
    """The pickle of a tensor without its storage, and the storage's bytes."""
    buffer = io.BytesIO()
    pickler = pickle.Pickler(buffer, protocol=2)

    def persistent_id(obj):
        if not isinstance(obj, torch.storage.TypedStorage):
            return None
        storage_type = getattr(torch, obj._pickle_storage_type())
        return ("storage", storage_type, "0", "cpu", obj._size())

    pickler.persistent_id = persistent_id
    pickler.dump(tensor)
    storage = tensor.untyped_storage()
    return buffer.getvalue(), bytes(storage.tolist())


class Saver:
    """One directory with .metadata and a file for each rank."""

    def __init__(self, path):
        self.path = path
        path.mkdir(parents=True)
        self.files = [bytearray() for _ in range(WORLD_SIZE)]
        self.metadata = Metadata({}, {}, {}, {}, "0.0.2", {})

    def _store(self, index, rank, payload, pickled):
        data = self.files[rank]
        self.metadata.storage_data[index] = StorageInfo(
            f"__{rank}_0.distcp", len(data), len(payload)
        )
        self.metadata.all_tensor_metadata[index] = pickled
        data += payload

    def add(self, path, pieces, size=None):
        """A tensor: (rank, offsets, piece) each, of a whole of that size."""
        fqn = ".".join(path)
        first = pieces[0][2]
        size = torch.Size(size) if size is not None else first.size()
        self.metadata.planner_data[fqn] = tuple(path)
        self.metadata.state_dict_metadata[fqn] = TensorStorageMetadata(
            TensorProperties(dtype=first.dtype),
            size,
            [
                ChunkStorageMetadata(torch.Size(offsets), piece.size())
                for _, offsets, piece in pieces
            ],
        )
        for i, (rank, offsets, piece) in enumerate(pieces):
            index = MetadataIndex(fqn, torch.Size(offsets), i)
            pickled, payload = serialize_tensor(piece)
            self._store(index, rank, payload, pickled)

    def add_rows(self, path, tensor):
        """As FSDP2 cuts it."""
        step = -(-tensor.shape[0] // WORLD_SIZE)
        pieces = []
        for rank in range(WORLD_SIZE):
            begin = min(rank * step, tensor.shape[0])
            offsets = [begin] + [0] * (tensor.dim() - 1)
            piece = tensor[begin : begin + step].clone()
            pieces.append((rank, offsets, piece))
        self.add(path, pieces, tensor.shape)

    def add_object(self, path, value):
        fqn = ".".join(path)
        buffer = io.BytesIO()
        torch.save(value, buffer)
        self.metadata.planner_data[fqn] = tuple(path)
        self.metadata.state_dict_metadata[fqn] = BytesStorageMetadata()
        self._store(MetadataIndex(fqn), 0, buffer.getvalue(), None)

    def finish(self):
        for rank, data in enumerate(self.files):
            (self.path / f"__{rank}_0.distcp").write_bytes(data)
        with (self.path / ".metadata").open("wb") as file:
            pickle.dump(self.metadata, file)


def model_tensors():
    return {
        "embed.weight": det((5, 3), seed=1),
        "layers.0.up.weight": det((4, 3), torch.bfloat16, seed=2),
        "layers.0.up.bias": det((1,), torch.bfloat16, seed=3),
        "norm.weight": det((3,), seed=4),
    }


def param_groups(names):
    return [{"lr": LR, "betas": (0.9, 0.999), "params": names}]


def write_extra(path, tensors, objects):
    path.mkdir(parents=True)
    for rank in range(WORLD_SIZE):
        noise = det((4,), seed=50 + rank)
        tensors["extra.noise" + (f"@{rank}" if rank else "")] = noise
        torch.save(
            {"step": 7, "noise": noise},
            path / f"extra_state_rank_{rank}.pt",
            pickle_protocol=4,
        )
    objects["extra.step"] = 7


def write_fsdp2(root, tensors, objects):
    model = Saver(root / "model")
    optimizer = Saver(root / "optimizer")
    for i, (name, tensor) in enumerate(model_tensors().items()):
        model.add_rows([name], tensor)
        tensors["model." + name] = tensor
        for key, seed in (("exp_avg", 20), ("exp_avg_sq", 30)):
            state = det(tuple(tensor.shape), seed=seed + i)
            optimizer.add_rows(["state", name, key], state)
            tensors[f"optimizer.state.{name}.{key}"] = state
        step = torch.tensor(5.0)
        optimizer.add(["state", name, "step"], [(1, [], step)])
        tensors[f"optimizer.state.{name}.step"] = step
    # Not contiguous: its pickle has strides of its own.
    turned = det((2, 6), seed=9).t()
    model.add(["turned"], [(1, [0, 0], turned)])
    tensors["model.turned"] = turned
    model.finish()
    names = list(model_tensors())
    optimizer.add_object(["param_groups"], param_groups(names))
    optimizer.finish()
    objects["optimizer.param_groups.0.lr"] = LR
    objects["optimizer.param_groups.0.params"] = names
    write_extra(root / "extra_state", tensors, objects)


def write_fsdp1_flat(root, tensors, objects):
    """save_decomposed_model_optimizer=True: flat parameters, as they are."""
    model = Saver(root / "model")
    shapes = {"up.weight": (4, 3), "up.bias": (3,), "down.weight": (2, 4)}
    slots = []  # name, or None for padding; number of elements
    flat = []
    for i, (name, shape) in enumerate(shapes.items()):
        tensor = det(shape, seed=60 + i)
        tensors["model.layers.0." + name] = tensor
        slots.append((name, tensor.numel()))
        flat.append(tensor.reshape(-1))
        padding = -tensor.numel() % 4
        if padding:
            slots.append((None, padding))
            flat.append(torch.full((padding,), 42.0))
    flat = torch.cat(flat)
    key = "layers.0._flat_param"
    length = -(-flat.numel() // WORLD_SIZE)
    pieces = [
        (r, [r * length], flat[r * length : (r + 1) * length].clone())
        for r in range(WORLD_SIZE)
    ]
    model.add([key], pieces, flat.shape)
    buffer = det((3,), torch.int64, seed=70)
    model.add(["scale"], [(0, [0], buffer)])
    tensors["model.scale"] = buffer
    model.metadata.user_defined_dict = {
        "fsdp_flat_param_to_fqns": {key: list(shapes)},
        "fsdp_is_padding_mask": {key: [name is None for name, _ in slots]},
        "fsdp_numels_with_padding": {key: tuple(n for _, n in slots)},
        "fsdp_shapes": {key: tuple(torch.Size(s) for s in shapes.values())},
    }
    model.finish()
    write_extra(root / "extra_state", tensors, objects)


def write_case(out, name, write):
    tensors, objects = {}, {}
    write(out / name, tensors, objects)
    expected = {
        "case": name,
        "dialect": "bytecheckpoint",
        "path": name,
        "torch": torch.__version__.split("+")[0],
        "tensors": {k: digest(v) for k, v in sorted(tensors.items())},
        "objects": {k: canon(v) for k, v in sorted(objects.items())},
    }
    text = json.dumps(expected, indent=1) + "\n"
    (out / f"{name}.expected.json").write_text(text)
    whole = {k: v.contiguous().clone() for k, v in sorted(tensors.items())}
    save_file(whole, str(out / f"{name}.expected.safetensors"))


def main():
    out = HERE / "dialects" / "bytecheckpoint"
    if out.exists():
        shutil.rmtree(out)
    write_case(out, "fsdp2_ws2", write_fsdp2)
    write_case(out, "fsdp1_flat_ws2", write_fsdp1_flat)


if __name__ == "__main__":
    main()
