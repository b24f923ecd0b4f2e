# SPDX-License-Identifier: Apache-2.0
"""Random state dicts, the same for a seed with every PyTorch.

Most are like the states that programs train with. Some have a value that few
checkpoints have: a tensor of a subclass, a sparse or quantised one, an object of a
user's own class. `State.unusual` has the keys of these; Tessera may refuse them by
name, but never change them.
"""

import collections
import dataclasses
import datetime
import decimal
import enum
import fractions
import pathlib
import random
import uuid

import torch

DTYPES = [
    getattr(torch, name)
    for name in (
        *("float32", "float64", "float16", "bfloat16", "int8", "int16"),
        *("int32", "int64", "uint8", "bool", "complex64", "complex128"),
        *("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz"),
        *("float8_e5m2fnuz", "float8_e8m0fnu", "uint16", "uint32", "uint64"),
        "complex32",
    )
    if hasattr(torch, name)
]
COMMON_DTYPES = (torch.float32, torch.bfloat16, torch.int64)
EXTENTS = (0, 1, 1, 2, 3, 4, 5, 7, 8, 17, 64)
KEYS = (
    *("weight", "bias", "layers", "0", "1", "model", "optim", "state", "step"),
    *(
        "layers.0",
        "exp_avg",
        "param_groups",
        "a b",
        "gewicht-ß",
        "層",
        "x/y",
        "up..x",
        "_",
    ),
)


class Phase(enum.Enum):
    WARM = 1
    DECAY = 2


@dataclasses.dataclass
class Settings:
    lr: float
    names: list


Point = collections.namedtuple("Point", ["x", "y"])


class Tagged(torch.Tensor):
    """A subclass that only has another name, as some frameworks have."""


class Scaled(torch.Tensor):
    """A wrapper: int8 codes and a scale, without separate memory."""

    @staticmethod
    def __new__(cls, codes, scale):
        return torch.Tensor._make_wrapper_subclass(
            cls, codes.shape, dtype=torch.float32
        )

    def __init__(self, codes, scale):
        self.codes = codes
        self.scale = scale

    def __tensor_flatten__(self):
        return ["codes", "scale"], None

    @staticmethod
    def __tensor_unflatten__(parts, meta, size, stride):
        return Scaled(parts["codes"], parts["scale"])

    def __reduce_ex__(self, protocol):
        return Scaled, (self.codes, self.scale)

    def whole(self):
        return self.codes.float() * self.scale

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        def plain(value):
            return value.whole() if isinstance(value, cls) else value

        if function is torch.ops.aten.detach.default:
            return cls(args[0].codes, args[0].scale)
        if function is torch.ops.aten.clone.default:
            return cls(args[0].codes.clone(), args[0].scale.clone())
        args = torch.utils._pytree.tree_map(plain, args)
        kwargs = torch.utils._pytree.tree_map(plain, kwargs or {})
        return function(*args, **kwargs)


class RandomState:
    """Makes one state; `value` is a dict with texts for keys.

    Attributes:
      unusual: the keys, joined by dots, of values that may be refused.
    """

    def __init__(self, seed):
        self._random = random.Random(seed)
        self._generator = torch.Generator().manual_seed(seed)
        self._tensors = []
        self._is_plain = self._random.random() < 0.7
        self.unusual = []
        self._names = set()
        self.value = self._dict((), depth=0)
        if not self._tensors:
            self.value["w"] = self._dense()

    def _choice(self, options):
        return self._random.choice(options)

    def _chance(self, probability):
        return self._random.random() < probability

    def _dict(self, path, depth):
        made = self._choice(
            (dict, dict, dict, collections.OrderedDict) if depth else (dict,)
        )()
        for _ in range(self._random.randint(1 if depth == 0 else 0, 5)):
            key = self._choice(KEYS)
            if key not in made:
                made[key] = self._value((*path, key), depth + 1)
        return made

    def _list(self, path, depth):
        return [
            self._value((*path, str(i)), depth + 1)
            for i in range(self._random.randint(0, 4))
        ]

    def _value(self, path, depth):
        if depth < 4 and self._chance(0.3):
            return self._dict(path, depth)
        if depth < 4 and self._chance(0.1):
            return self._list(path, depth)
        name = ".".join(path)
        if name in self._names:  # "a.b" and "c" are joined as "a" and "b.c" are
            self.unusual.append(name)
        self._names.add(name)
        if not self._is_plain and self._chance(0.1):
            self.unusual.append(name)
            return self._choice((self._unusual_tensor, self._unusual_object))()
        return self._tensor() if self._chance(0.7) else self._object()

    def _tensor(self):
        if self._tensors and self._chance(0.1):
            return self._choice(self._tensors)
        tensor = self._dense()
        if self._chance(0.3):
            tensor = self._view(tensor)
        if self._chance(0.2):
            can_train = tensor.is_floating_point() or tensor.is_complex()
            tensor = torch.nn.Parameter(
                tensor, requires_grad=can_train and self._chance(0.7)
            )
        self._tensors.append(tensor)
        return tensor

    def _dense(self, dtype=None, dims=None):
        """Of random bits, so that NaNs and infinities of every kind occur."""
        if dtype is None:
            dtype = self._choice(COMMON_DTYPES if self._chance(0.5) else DTYPES)
        if dims is None:
            dims = self._random.randint(0, 4)
        shape = [self._choice(EXTENTS) for _ in range(dims)]
        while torch.Size(shape).numel() > 1 << 14:
            shape[shape.index(max(shape))] //= 4
        num_bytes = torch.Size(shape).numel() * dtype.itemsize
        most = 1 if dtype == torch.bool else 255
        bits = torch.randint(
            most + 1, (num_bytes,), dtype=torch.uint8, generator=self._generator
        )
        return bits.view(dtype).reshape(shape)

    def _view(self, tensor):
        """The same memory, seen in another way."""
        # PyTorch computes with complex32 in float32, which changes NaNs.
        is_complex = tensor.dtype in (torch.complex64, torch.complex128)
        ways = [
            lambda: tensor.transpose(0, -1) if tensor.ndim else tensor,
            lambda: tensor[::2] if tensor.ndim else tensor,
            lambda: tensor[1:] if tensor.ndim and len(tensor) else tensor,
            lambda: (
                tensor[..., 0] if tensor.ndim and tensor.shape[-1] else tensor
            ),
            lambda: tensor.unsqueeze(0).expand(3, *tensor.shape),
            lambda: tensor.as_strided((2,), (0,)) if tensor.numel() else tensor,
            lambda: tensor.conj() if is_complex else tensor,
            lambda: tensor.conj().imag if is_complex else tensor,
        ]
        view = self._choice(ways)()
        # Sometimes the whole is saved too, and shares its memory.
        if self._chance(0.3):
            self._tensors.append(tensor)
        return view

    def _object(self):
        number = self._random.randint(-(2**70), 2**70)
        return self._choice(
            (
                *(None, True, False, 0, 7, -1, 2**31, number, 1e-3, -0.0),
                *(
                    float("inf"),
                    float("nan"),
                    "",
                    "text",
                    "caf\u00e9 \U0001f600",
                ),
                *(b"", b"\x00\xff", (), (1, 2.5, "x"), (0.9, (0.95,)), [], {}),
                *([1, "a", None], {"lr": 0.1}, {1, 2}, frozenset("a"), 1 + 2j),
                *(torch.Size([2, 3]), torch.float16, torch.device("cpu")),
                *({3: "three", 4: {5: 6}}, bytearray(b"ab"), [[], [{}]]),
                collections.OrderedDict(b=1, a=2),
            )
        )

    def _unusual_tensor(self):
        base = self._dense(torch.float32, self._random.randint(1, 2))
        finite = torch.nan_to_num(base, 1.0, 2.0, 3.0).clamp(-8, 8)
        codes = (finite * 8).to(torch.int8)
        ragged = [finite.reshape(-1)[:n] for n in (1, 0, 3)]
        return self._choice(
            (
                lambda: base.as_subclass(Tagged),
                lambda: Scaled(codes, torch.tensor(0.125)),
                lambda: torch.nn.Parameter(
                    Scaled(codes, torch.tensor(0.5)), requires_grad=False
                ),
                lambda: (
                    torch.nn.Buffer(base)
                    if hasattr(torch.nn, "Buffer")
                    else base
                ),
                lambda: finite.to_sparse(),
                lambda: finite.reshape(1, -1).to_sparse_csr(),
                lambda: torch.quantize_per_tensor(finite, 0.1, 3, torch.qint8),
                lambda: torch.nested.nested_tensor(ragged, layout=torch.jagged),
                lambda: base.to("meta"),
                lambda: base.untyped_storage(),
            )
        )()

    def _unusual_object(self):
        return self._choice(
            (
                *(Phase.WARM, Settings(0.1, ["a"]), Point(1, 2), Settings),
                *(datetime.datetime(2026, 1, 2), datetime.timedelta(3)),
                *(decimal.Decimal("1.50"), fractions.Fraction(1, 3)),
                *(
                    uuid.UUID(int=7),
                    pathlib.PurePosixPath("a/b"),
                    range(1, 9, 2),
                ),
                *(slice(1, None, 2), collections.deque([1, 2], maxlen=3)),
                *(
                    collections.Counter("aab"),
                    collections.defaultdict(list, a=[1]),
                ),
                *((1, torch.ones(2)), {"t": (torch.zeros(3), None)}),
            )
        )
