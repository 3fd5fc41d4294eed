"""Ways to damage a file: its bytes, and what JSON, TOML, CSV and safetensors hold."""

from __future__ import annotations

import copy
import csv
import io
import json
import re
import struct
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save

from bagwise.training.tensor_files import save_tensors

_DEEP = "[" * 900 + "]" * 900
_NASTY = [
    *("null", "true", "false", "0", "-1", "1", "2", "0.5", "1e-320", "1e308", "-1e308", "1e400"),
    *("NaN", "Infinity", "-Infinity", str(2**63), "1" + "0" * 400, "1" * 5000, '""', '"x"', "[]"),
    *('"<b>$x_{$|"', '"a\\nb"', '"\\ud800"', '"' + "y" * 5000 + '"', "[1]", "[[]]", "{}", _DEEP),
    *('{"a": 1}', '["a", "a"]', '"1"', '"cc"', '"meta"', "[null]", "10000000", "[1e308, 2]"),
]
_CELLS = [  # of label files, and of tables as people and spreadsheets write them
    *("", "*", "-", "nan", "NA", "#N/A", "<5", "< 5", "0-4", "4-0", "5+", ">=1,000", "≤10", "<0"),
    *("fewer than 5", "1 to 4", "1..4", "over 9", "1,234", "1.234", "1.234,5", "1 234", "1_0"),
    *(" 1", "1 ", "+1", "--1", "1e3", "0x10", "٣", "½", "12 %", "100%", "0,25", ".5", "5.", "1/2"),
    *("true", "No", "2020-02-30", "31.12.2020", "12/31/20", "24:00", "2020-01-01T00:00:00Z"),
    *("<" + "9" * 16, "9" * 15, "1e308", "-1e308", "1e-320", "-0", "=1+1", "\x1b[31m", "a\nb"),
    *("\x00", "\u202e", "\ufeff", "ward", "no", "yes_low", "total", "x" * 300),
]
_NASTY_TOML = ["nan", "inf", "1979-05-27", "{a = 1}", "'x'", '["cc", 1]', "[0.1, true]", "-0.0"]


def damaged(content: bytes, kind: str, rng: Random) -> bytes:
    """The content with one to three faults, of bytes or of what the kind of file holds."""
    of_kind = {".json": _json, ".toml": _toml, ".csv": _csv, ".safetensors": _safetensors}
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        way = of_kind.get(kind, _bytes) if rng.random() < 0.75 else _bytes
        try:
            content = way(content, rng)
        except (
            *(ValueError, LookupError, RecursionError),
            *(struct.error, csv.Error, SafetensorError),
        ):
            content = _bytes(content, rng)  # what an earlier fault has left is no such file
    return content


def _bytes(content: bytes, rng: Random) -> bytes:
    place = rng.randrange(len(content) + 1)
    header = rng.randrange(min(len(content), 400) + 1)  # where most of the meaning is
    place = rng.choice((place, header))
    length = rng.choice((1, 1, 2, 8, 100))
    way = rng.randrange(5)
    if way == 0:
        return content[:place]
    if way == 1:
        return content[:place] + content[place + length :]
    if way == 2:
        return content[:place] + rng.randbytes(length) + content[place:]
    if way == 3 and content[place : place + 1]:
        return (
            content[:place] + bytes([content[place] ^ 1 << rng.randrange(8)]) + content[place + 1 :]
        )
    return content[:place] + rng.randbytes(length) + content[place + length :]


def _edit(value: Any, rng: Random) -> Any:
    """JSON with one value replaced, dropped, repeated or renamed, anywhere in it."""
    parents: list[Any] = []

    def walk(node: Any) -> None:
        if isinstance(node, dict | list) and node:
            parents.append(node)
            for child in node.values() if isinstance(node, dict) else node:
                walk(child)

    value = copy.deepcopy(value)
    walk(value)
    if not parents:
        return json.loads(rng.choice(_NASTY))
    parent = rng.choice((parents[0], rng.choice(parents)))
    key = rng.choice(list(parent)) if isinstance(parent, dict) else rng.randrange(len(parent))
    way = rng.randrange(8)
    if way == 0:
        del parent[key]
    elif way == 1 and isinstance(parent, dict):
        parent[rng.choice(("evil", "", "\ud800", key + "x"))] = parent.pop(key)
    elif way == 1:
        parent.append(copy.deepcopy(parent[key]))
    elif way == 2:
        parent[key] = copy.deepcopy(rng.choice(parents))
    else:
        parent[key] = json.loads(rng.choice([text for text in _NASTY if len(text) != 5000]))
    return value


def _json(content: bytes, rng: Random) -> bytes:
    if rng.random() < 0.1:  # what json.dumps would not write
        values = list(re.finditer(rb"(?<=: )[^,{}\[\]]+", content))
        found = rng.choice(values)
        return content[: found.start()] + rng.choice(_NASTY).encode() + content[found.end() :]
    return json.dumps(_edit(json.loads(content), rng)).encode()


def _toml(content: bytes, rng: Random) -> bytes:
    text = content.decode()
    lines = text.splitlines()
    way = rng.randrange(5)
    if way == 0:
        lines.pop(rng.randrange(len(lines)))
        return "\n".join(lines).encode()
    if way == 1:
        lines.insert(rng.randrange(len(lines)), rng.choice(lines))
        return "\n".join(lines).encode()
    values = list(re.finditer(r"(?<== ).+" if way == 2 else r'(?<=[\[ ])[\w."]+(?=[,\]\n])', text))
    found = rng.choice(values)
    nasty = rng.choice((rng.choice(_NASTY), rng.choice(_NASTY_TOML)))
    return (text[: found.start()] + nasty + text[found.end() :]).encode()


def _csv(content: bytes, rng: Random) -> bytes:
    text = content.decode()
    delimiter = max(",;\t|", key=text.split("\n")[0].count)
    rows = list(csv.reader(io.StringIO(text), delimiter=delimiter))
    row = rng.randrange(len(rows))
    column = rng.randrange(len(rows[row]))
    way = rng.randrange(12)
    if way == 0:
        rows.pop(row)
    elif way == 1:
        rows.insert(rng.randrange(len(rows)), list(rows[row]))
    elif way == 2:
        rows[row].pop(column)
    elif way == 3:
        for line in rows:
            del line[column : column + 1]
    elif way == 4:  # a column that is there twice, or is called otherwise
        rows[0].insert(rng.randrange(len(rows[0])), rng.choice((*rows[0], *_CELLS)))
    elif way == 5:  # all of a column
        cell = rng.choice(_CELLS)
        for line in rows[rng.randrange(2) :]:
            line[column : column + 1] = [cell]
    else:
        for _ in range(rng.choice((1, 1, 3))):
            line = rng.choice(rows)
            line[rng.randrange(len(line))] = rng.choice((*_NASTY, *_CELLS, *_CELLS))
    if rng.random() < 0.15:
        delimiter = rng.choice(",;\t|: ")
    written = io.StringIO()
    csv.writer(
        written,
        delimiter=delimiter,
        lineterminator=rng.choice(("\n", "\n", "\n", "\r\n", "\r", "\n\n")),
        quoting=rng.choice((csv.QUOTE_MINIMAL, csv.QUOTE_MINIMAL, csv.QUOTE_ALL)),
    ).writerows(rows)
    codec = rng.choice(("utf-8",) * 8 + ("utf-8-sig", "utf-16", "latin-1"))
    return written.getvalue().encode(codec, errors="replace")


def _safetensors(content: bytes, rng: Random) -> bytes:
    (length,) = struct.unpack("<Q", content[:8])
    metadata: dict[str, str] = json.loads(content[8 : 8 + length]).get("__metadata__", {})
    tensors = load(content)
    facts = json.loads(metadata["bagwise"])
    name = rng.choice(sorted(tensors))
    tensor = tensors[name]
    way = rng.randrange(8)
    if way == 0:
        del tensors[name]
    elif way == 1:
        tensors[name + rng.choice(("x", ".x", ".0.x"))] = tensors.pop(name)
    elif way == 2:
        tensors[name] = tensor.reshape(rng.choice(((-1,), (1, -1), (-1, 1))))
    elif way == 3:
        kinds = (torch.float64, torch.float16, torch.int64, torch.bool, torch.bfloat16, torch.uint8)
        tensors[name] = tensor.to(rng.choice(kinds))
    elif way == 4:
        tensors[name] = torch.full_like(tensor, rng.choice((0, 255)))
    elif way == 5 and tensor.is_floating_point():
        tensors[name] = torch.full_like(tensor, rng.choice((float("nan"), float("inf"), 1e30)))
    elif way == 6:
        tensors[name] = tensor[:0] if tensor.dim() else tensor.repeat(2)
    else:
        facts = _edit(facts, rng)
    # With the digests of before: where only they tell, which is so for what a method keeps.
    if way == 4 or name.startswith("method.") or rng.random() < 0.3:
        return save(tensors, metadata=metadata | {"bagwise": json.dumps(facts)})
    with TemporaryDirectory() as folder:
        path = Path(folder) / "x"
        save_tensors(path, tensors, facts)
        return path.read_bytes()
