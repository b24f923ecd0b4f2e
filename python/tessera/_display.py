# SPDX-License-Identifier: Apache-2.0
"""A checkpoint as a table, for a terminal and for a notebook."""

from __future__ import annotations

import html as html_
from typing import Any
from typing import Iterator
from typing import List
from typing import Tuple

from tessera._quantity import quantity

# A larger checkpoint is cut.
MAX_ROWS = 60
# The most boxes in a shard map.
MAX_CHUNKS = 64


def _heading(checkpoint: Any) -> str:
    size = sum(tensor.nbytes for tensor in checkpoint.values())
    objects = len(checkpoint.objects)
    return (
        f"{checkpoint.path}: {checkpoint.format}, {len(checkpoint)} tensors, "
        f"{quantity(size)}" + (f", {objects} objects" if objects else "")
    )


def _rows(checkpoint: Any) -> Iterator[Tuple[str, str, str, str, str]]:
    for tensor in list(checkpoint.values())[:MAX_ROWS]:
        yield (
            tensor.name,
            tensor.dtype,
            str(list(tensor.shape)),
            quantity(tensor.nbytes),
            str(len(tensor.chunks)),
        )


def text(checkpoint: Any) -> str:
    rows = [("TENSOR", "DTYPE", "SHAPE", "SIZE", "CHUNKS"), *_rows(checkpoint)]
    widths = [max(len(row[i]) for row in rows) for i in range(5)]
    lines: List[str] = [_heading(checkpoint)]
    for name, dtype, shape, size, chunks in rows if len(rows) > 1 else ():
        lines.append(
            f"{name:<{widths[0]}}  {dtype:<{widths[1]}}  {shape:<{widths[2]}}"
            f"  {size:>{widths[3]}}  {chunks:>{widths[4]}}"
        )
    if len(checkpoint) > MAX_ROWS:
        lines.append(f"and {len(checkpoint) - MAX_ROWS} more")
    return "\n".join(lines)


def objects_text(objects: Any) -> str:
    """The objects' names; their values are not read."""
    names = list(objects)
    lines = [f"{len(names)} objects", *names[:MAX_ROWS]]
    if len(names) > MAX_ROWS:
        lines.append(f"and {len(names) - MAX_ROWS} more")
    return "\n".join(lines)


def _shard_map(tensor: Any) -> str:
    """A tensor's chunks, drawn by their first two dimensions."""
    if not tensor.shape or 0 in tensor.shape:
        return ""
    rows, columns = (*tensor.shape, 1)[:2]
    boxes = []
    for i, (offsets, sizes) in enumerate(tensor.chunks[:MAX_CHUNKS]):
        top, left = (*offsets, 0)[:2]
        height, width = (*sizes, 1)[:2]
        boxes.append(
            f'<rect x="{100 * left / columns:.2f}" y="{24 * top / rows:.2f}" '
            f'width="{100 * width / columns:.2f}" '
            f'height="{24 * height / rows:.2f}" '
            f'fill="hsl({i * 47 % 360},60%,75%)" stroke="#555" '
            'stroke-width="0.5"/>'
        )
    return f'<svg width="100" height="24">{"".join(boxes)}</svg>'


def html(checkpoint: Any) -> str:
    body = []
    for row, tensor in zip(_rows(checkpoint), checkpoint.values()):
        cells = "".join(f"<td>{html_.escape(cell)}</td>" for cell in row)
        body.append(f"<tr>{cells}<td>{_shard_map(tensor)}</td></tr>")
    if len(checkpoint) > MAX_ROWS:
        more = len(checkpoint) - MAX_ROWS
        body.append(f'<tr><td colspan="6">and {more} more</td></tr>')
    return (
        f"<p>{html_.escape(_heading(checkpoint))}</p><table><thead><tr>"
        "<th>tensor</th><th>dtype</th><th>shape</th><th>size</th>"
        "<th>chunks</th><th>shard map</th></tr></thead>"
        f"<tbody>{''.join(body)}</tbody></table>"
    )
