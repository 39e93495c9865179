"""TPC-H's ``lineitem``: made once, and kept under ``.local/bench``."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    import pyarrow.dataset as ds

SHIP_YEARS = range(1992, 1999)


@attrs.frozen
class Totals:
    """What a load has to bring: that the sum is exact tells rows that are there twice from rows that are missing.

    :param rows: how many.
    :param price: the sum of ``l_extendedprice``, exact.
    """

    rows: int
    price: str

    @classmethod
    def of(cls, data: ds.Dataset) -> Totals:
        """Count and add up.

        :param data: with lineitem's columns.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        rows, price = 0, None
        for batch in data.to_batches(columns=["l_extendedprice"]):
            rows += batch.num_rows
            part = pc.sum(batch.column("l_extendedprice").cast(pa.decimal128(38, 2))).as_py()
            if part is not None:
                price = part if price is None else price + part
        return cls(rows, str(price))


def lineitem(directory: Path, scale: float = 1) -> Path:
    """Return the table's Parquet file, made at the first call.

    :param directory: that keeps it.
    :param scale: 1 for 6 M rows.
    """
    made = directory / f"scale-{scale:g}" / "lineitem.parquet"
    if not made.exists():
        fresh = directory / f"scale-{scale:g}.new"
        generator = Path(sys.executable).with_name("tpchgen-cli")
        command = [str(generator), "parquet", "--scale-factor", str(scale), "--tables", "lineitem", "--quiet"]
        subprocess.run([*command, "--output-dir", str(fresh)], check=True)
        fresh.rename(made.parent)
    return made


def totals(file: Path) -> Totals:
    """Return what a load of a file has to bring.

    :param file: of lineitem, in Parquet.
    """
    import pyarrow.dataset as ds

    return Totals.of(ds.dataset(file))
