"""The fields of every Spark job, as plain values: a submitted job is sent to Spark as JSON."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, ClassVar

import attrs

from airflow_provider_onelake.exceptions import InvalidWriteError


@attrs.frozen(kw_only=True)
class SparkJob:
    """One job. All fields can be written as JSON.

    :param table_uri: the address of the job's table for Spark.
    :param attempt: id of the attempt. Spark's own records name the job by it.
    :param session: further settings of the Spark session. Default: none.
    :param label: the task's name, for people who look at Spark's UI. Default: empty.
    :param owner: names the task in its run: equal for all its tries, and different for all other tasks. A later try
        finds a driver in cluster mode by it. Default: empty, so that no try finds the driver.
    :raises InvalidWriteError: ``session`` has a setting that the job needs for itself.
    """

    doing: ClassVar[str]
    reserved: ClassVar[Collection[str]]

    table_uri: str
    attempt: str
    session: Mapping[str, str] = attrs.field(factory=dict)
    label: str = ""
    owner: str = ""

    def __attrs_post_init__(self) -> None:
        # Spark's settings are case-sensitive, so this comparison is case-sensitive too.
        if taken := sorted(set(self.session) & set(self.reserved)):
            raise InvalidWriteError(f"{', '.join(taken)}: {self.doing} needs this setting for itself; leave it out.")

    def as_dict(self) -> dict[str, Any]:
        """Return the job's fields as ``spark_jobs`` reads them."""
        return attrs.asdict(self)


@attrs.frozen(kw_only=True)
class SparkResult:
    """What an engine knows about a finished job. What the job wrote is read from the store.

    :param engine: the engine's name.
    :param application_id: Spark's application, if it is known.
    :param session_id: Spark's session, if there is one.
    :param ui: the address of the application's UI, if it is known and outlives the job.
    """

    engine: str
    application_id: str | None = None
    session_id: str | None = None
    ui: str | None = None


Seen = Callable[[str | None, str | None, str | None], None]
"""Called as soon as it is known where a job runs, with Spark's application, its session and its UI's address."""


def check_file_size(target_file_size: int | None) -> None:
    """Refuse a file size that is not above 0.

    :param target_file_size: bytes; ``None`` for no wish.
    :raises InvalidWriteError: the size is not above 0.
    """
    if target_file_size is not None and target_file_size <= 0:
        raise InvalidWriteError(f"target_file_size={target_file_size!r}: a size in bytes, above 0.")
