"""TPC-H's ``lineitem``: made once, kept under ``.local/bench``, and divided among seven writers by the year of shipment."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    import pyarrow.dataset as ds

SCALE = 0.1
"""Of what is loaded: 600,572 rows."""
SHARED, OWN = "shared", "own"
_YEARS = range(1992, 1999)


def totals(data: ds.Dataset) -> tuple[int, str]:
    """What a load has to bring: that the sum is exact tells rows that are there twice from rows that are missing."""
    import pyarrow as pa
    import pyarrow.compute as pc

    price = data.to_table(columns=["l_extendedprice"]).column(0).cast(pa.decimal128(38, 2))
    return len(price), str(pc.sum(price).as_py())


@attrs.frozen
class Share:
    """What one writer writes: the rows of a file, or those among them that a filter takes."""

    writer: str
    path: Path
    where: str | None


@attrs.frozen
class Source:
    """The rows that every way loads, in one file or in one for each writer."""

    kind: str
    paths: list[Path]
    shares: list[Share]
    totals: tuple[int, str]


def source(directory: Path, scale: float, kind: str) -> Source:
    """Return lineitem, divided among writers.

    Lineitem is in the order of its keys, so every month is in every part of the file, and no statistics let a filter on
    the date skip a part: this is the shared source. With files of their own, writers need no filter.
    """
    import pyarrow.dataset as ds

    whole = _lineitem(directory, scale)
    if kind == SHARED:
        paths = [whole]
        shares = [
            Share(f"of-{year}", whole, f"l_shipdate BETWEEN DATE'{year}-01-01' AND DATE'{year}-12-31'")
            for year in _YEARS
        ]
    else:
        paths = _by_year(whole)
        shares = [Share(f"of-{year}", path, None) for year, path in zip(_YEARS, paths, strict=True)]
    return Source(kind, paths, shares, totals(ds.dataset(whole)))


def _lineitem(directory: Path, scale: float) -> Path:
    made = directory / f"scale-{scale:g}" / "lineitem.parquet"
    if not made.exists():
        fresh = directory / f"scale-{scale:g}.new"
        generator = Path(sys.executable).with_name("tpchgen-cli")
        command = [str(generator), "parquet", "--scale-factor", str(scale), "--tables", "lineitem", "--quiet"]
        subprocess.run([*command, "--output-dir", str(fresh)], check=True)
        fresh.rename(made.parent)
    return made


def _by_year(whole: Path) -> list[Path]:
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    made = whole.parent / "years"
    if not made.exists():
        rows = pq.read_table(whole)
        # The generator's strings are views, which Arrow does not filter.
        plain = [(each.name, pa.string() if each.type == pa.string_view() else each.type) for each in rows.schema]
        rows = rows.cast(pa.schema(plain))
        fresh = made.with_suffix(".new")
        fresh.mkdir(exist_ok=True)
        for year in _YEARS:
            of_year = rows.filter(pc.equal(pc.year(rows["l_shipdate"]), year))
            pq.write_table(of_year.combine_chunks(), fresh / f"{year}.parquet")
        fresh.rename(made)
    return [made / f"{year}.parquet" for year in _YEARS]
