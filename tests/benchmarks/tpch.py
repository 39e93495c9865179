"""TPC-H's ``lineitem``: made once, kept under ``.local/bench``, and divided among writers by the date of shipment."""

from __future__ import annotations

import subprocess
import sys
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    import pyarrow.dataset as ds

_FIRST_YEAR = 1992
_MONTHS = 7 * 12
SHARED, OWN = "shared", "own"


@attrs.frozen
class Totals:
    """What a load has to bring: that the sum is exact tells rows that are there twice from rows that are missing.

    :param price: the sum of ``l_extendedprice``, exact.
    """

    rows: int
    price: str

    @classmethod
    def of(cls, data: ds.Dataset) -> Totals:
        """Count and add up."""
        import pyarrow as pa
        import pyarrow.compute as pc

        rows, price = 0, None
        for batch in data.to_batches(columns=["l_extendedprice"]):
            rows += batch.num_rows
            part = pc.sum(batch.column("l_extendedprice").cast(pa.decimal128(38, 2))).as_py()
            if part is not None:
                price = part if price is None else price + part
        return cls(rows, str(price))


@attrs.frozen
class Share:
    """What one writer writes.

    :param where: its filter on the file's rows; ``None`` for all.
    """

    writer: str
    path: Path
    where: str | None


@attrs.frozen
class Source:
    """The rows that every way loads.

    :param kind: ``shared`` or ``own``.
    """

    kind: str
    paths: list[Path]
    shares: list[Share]
    totals: Totals


def lineitem(directory: Path, scale: float = 1) -> Path:
    """Return the table's Parquet file, made at the first call."""
    made = directory / f"scale-{scale:g}" / "lineitem.parquet"
    if not made.exists():
        fresh = directory / f"scale-{scale:g}.new"
        generator = Path(sys.executable).with_name("tpchgen-cli")
        command = [str(generator), "parquet", "--scale-factor", str(scale), "--tables", "lineitem", "--quiet"]
        subprocess.run([*command, "--output-dir", str(fresh)], check=True)
        fresh.rename(made.parent)
    return made


def source(directory: Path, scale: float, kind: str, writers: int) -> Source:
    """Return lineitem, divided among writers.

    Lineitem is in the order of its keys, so every month is in every part of the file, and no statistics let a filter on
    the date skip a part: this is the shared source. With files of their own, writers need no filter.

    :param kind: ``shared`` or ``own``.
    :param writers: how many; they divide the 84 months of shipment evenly.
    """
    import pyarrow.dataset as ds

    whole = lineitem(directory, scale)
    totals = Totals.of(ds.dataset(whole))
    ranges = _ranges(writers)
    if kind == SHARED:
        shares = [Share(_key(begin), whole, _where(begin, end)) for begin, end in ranges]
        return Source(kind, [whole], shares, totals)
    paths = _files(whole, ranges)
    return Source(
        kind, paths, [Share(_key(begin), path, None) for (begin, _), path in zip(ranges, paths, strict=True)], totals
    )


def _ranges(writers: int) -> list[tuple[date, date]]:
    assert _MONTHS % writers == 0, f"{writers} writers do not divide {_MONTHS} months evenly"
    each = _MONTHS // writers
    return [(_month(number), _month(number + each)) for number in range(0, _MONTHS, each)]


def _month(number: int) -> date:
    return date(_FIRST_YEAR + number // 12, number % 12 + 1, 1)


def _key(begin: date) -> str:
    return f"from-{begin:%Y-%m}"


def _where(begin: date, end: date) -> str:
    return f"l_shipdate >= DATE'{begin}' AND l_shipdate < DATE'{end}'"


def _files(whole: Path, ranges: list[tuple[date, date]]) -> list[Path]:
    """Return a file for every range, made at the first call."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    made = whole.parent / f"own-{len(ranges)}"
    files = [f"{_key(begin)}.parquet" for begin, _ in ranges]
    if not made.exists():
        shares: list[list[pa.Table]] = [[] for _ in ranges]
        source = pq.ParquetFile(whole)
        # The generator's strings are views, which Arrow does not filter.
        plain = pa.schema(
            [(f.name, pa.string() if f.type == pa.string_view() else f.type) for f in source.schema_arrow]
        )
        for number in range(source.num_row_groups):
            rows = source.read_row_group(number).cast(plain)
            for share, (begin, end) in zip(shares, ranges, strict=True):
                shipped = pc.field("l_shipdate")
                share.append(rows.filter((shipped >= begin) & (shipped < end)))
        fresh = made.with_suffix(".new")
        fresh.mkdir(exist_ok=True)
        for share, file in zip(shares, files, strict=True):
            pq.write_table(pa.concat_tables(share).combine_chunks(), fresh / file)
        fresh.rename(made)
    return [made / file for file in files]
