"""What every job for Spark has, as plain values: a submitted one travels to Spark as JSON."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, ClassVar

import attrs

from airflow_provider_onelake.exceptions import InvalidWriteError


@attrs.frozen(kw_only=True)
class SparkJob:
    """One job. Everything can be written as JSON.

    :param table_uri: of the table that it is for, as Spark addresses it.
    :param attempt: id of the attempt, by which Spark's own records know the job.
    :param session: further settings of the Spark session. Default: none.
    :param label: whose work it is, for people who look at Spark's UI. Default: nothing.
    :param owner: whose work it is, the same for all tries of a task in a run and no other's: a driver in cluster mode
        that outlived its try is found by it. Default: nobody's.
    :raises InvalidWriteError: a setting is one that the job needs for itself.
    """

    doing: ClassVar[str]
    reserved: ClassVar[Collection[str]]

    table_uri: str
    attempt: str
    session: Mapping[str, str] = attrs.field(factory=dict)
    label: str = ""
    owner: str = ""

    def __attrs_post_init__(self) -> None:
        # Settings are case-sensitive in Spark, so the comparison is too.
        if taken := sorted(set(self.session) & set(self.reserved)):
            raise InvalidWriteError(f"{', '.join(taken)}: {self.doing} needs this setting for itself; leave it out.")

    def as_dict(self) -> dict[str, Any]:
        """Return the job as ``spark_jobs`` takes it."""
        return attrs.asdict(self)


@attrs.frozen(kw_only=True)
class SparkResult:
    """What an engine knows of a finished job. What it wrote is read from the store instead.

    :param engine: the engine's name.
    :param application_id: Spark's application, where known.
    :param session_id: Spark's session, where there is one.
    :param ui: where people look at the application, where that is known and outlives the job.
    """

    engine: str
    application_id: str | None = None
    session_id: str | None = None
    ui: str | None = None


Seen = Callable[[str | None, str | None, str | None], None]
"""Told where a job runs as soon as that is known: Spark's application, its session, and its UI's address."""


def check_file_size(target_file_size: int | None) -> None:
    """Refuse a size that is none.

    :param target_file_size: in bytes.
    :raises InvalidWriteError: it is not above 0.
    """
    if target_file_size is not None and target_file_size <= 0:
        raise InvalidWriteError(f"target_file_size={target_file_size!r}: a size in bytes, above 0.")
