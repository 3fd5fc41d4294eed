"""How a text file is laid out: what stands between columns, and what the header says."""

from __future__ import annotations

import codecs
import re
from typing import Any

import pyarrow as pa
import pyarrow.csv as pcsv

from bagwise.limits import Limits
from bagwise.tables.read.table_files import TableFile, text_stream


def _layout(file: TableFile) -> tuple[pcsv.ParseOptions, int]:
    """How columns are told apart, and how many lines stand before the header.

    The character between columns is the most frequent in the header, outside of quotes, or that of
    a first line such as "sep=;", which spreadsheets write.
    """
    with text_stream(file) as stream:
        head = stream.read(1 << 16)
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise pa.ArrowInvalid('it is UTF-16 ("Unicode text" of spreadsheets); save it as UTF-8.')
    lines = [line for line in head.decode("utf-8-sig", "replace").splitlines() if line.strip()]
    if lines and (told := re.fullmatch(r'"?sep=(.)"?', lines[0].strip("\r"))):
        return pcsv.ParseOptions(delimiter=told[1], newlines_in_values=True), 1
    header = re.sub(r'"[^"]*"', "", lines[0]) if lines else ""
    marks = ("\t", ",", ";", "|") if ".tsv" in file.name.lower() else (",", ";", "\t", "|")
    return pcsv.ParseOptions(delimiter=max(marks, key=header.count), newlines_in_values=True), 0


def text_options(file: TableFile, limits: Limits) -> dict[str, Any]:
    """How a file is read with every column as text."""
    parse, before = _layout(file)
    types = dict.fromkeys(_header(file, parse, before), pa.string())
    return {
        "read_options": pcsv.ReadOptions(block_size=limits.csv_block_bytes, skip_rows=before),
        "parse_options": parse,
        "convert_options": pcsv.ConvertOptions(column_types=types),
    }


def header(file: TableFile) -> list[str]:
    """The names of the columns."""
    return _header(file, *_layout(file))


def _header(file: TableFile, parse: pcsv.ParseOptions, before: int) -> list[str]:
    options = pcsv.ReadOptions(skip_rows=before)
    with (
        text_stream(file) as stream,
        pcsv.open_csv(stream, parse_options=parse, read_options=options) as reader,
    ):
        names: list[str] = reader.schema.names
    return names
