"""The parameters of a write as a DAG author gives them. Each is checked as early as its value is known."""

from __future__ import annotations

import hashlib
import json
import logging
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from airflow.sdk.exceptions import AirflowFailException

from airflow_provider_onelake.exceptions import InvalidWriteError, TerminalError
from airflow_provider_onelake.reading.spark_files import SourceFile
from airflow_provider_onelake.sources import Source
from airflow_provider_onelake.staging.modes import MODES

logger = logging.getLogger(__name__)

CHOICES: Mapping[str, Collection[str]] = {
    "mode": MODES,
    "publish": ("each", "together"),
    "rows_outside": ("set_aside", "refuse"),
    "on_rerun": ("skip", "replace", "append"),
    "schema_evolution": ("none", "add_columns"),
    "on_conflict": (
        "last_writer_wins",
        "first_writer_wins",
        "last_writer_wins_per_partition",
        "first_writer_wins_per_partition",
        "fail",
    ),
    "on_missing_writer": ("publish_others", "publish_nothing"),
}
"""The values of each choosing parameter. The core checks them again; here a wrong one fails when the DAG is parsed."""

FINGERPRINT_FORMAT = 1
"""Raise this number only if the staging job makes other rows from equal parameters. A clear compares fingerprints, so
after each change the rows that an earlier release published count as other work, and ``on_rerun="skip"`` is refused."""

_TEMPLATE = re.compile(r"\{\{|\{%|\{#")
_NAME = re.compile(r"^[A-Za-z][A-Za-z0-9_]*$")


@contextmanager
def terminal_errors_fail() -> Iterator[None]:
    """Fail the task for good if a person has to act. Airflow retries all other errors.

    :raises AirflowFailException: for a :class:`~airflow_provider_onelake.exceptions.TerminalError`.
    """
    try:
        yield
    except TerminalError as error:
        # Drop the causes: with them, the task's log would repeat the message three times and add the JVM's frames.
        logger.debug("What failed, and where", exc_info=error)
        raise AirflowFailException(f"{type(error).__name__}: {error}") from None


def is_final(value: object) -> bool:
    """Say whether a parameter's value is known now: it holds no template and no other task's output."""
    if isinstance(value, str):
        return _TEMPLATE.search(value) is None
    if isinstance(value, Mapping):
        return all(is_final(item) for item in value.values())
    if isinstance(value, Sequence):
        return all(is_final(item) for item in value)
    return value is None or isinstance(value, bool | int | float | Source)


def check_choice(name: str, value: object) -> None:
    """Refuse a value that is not among the choices of its parameter, if the value is known now.

    :raises InvalidWriteError: the value is not among the choices.
    """
    if value is not None and is_final(value) and value not in CHOICES[name]:
        raise InvalidWriteError(f"{name}={value!r} is unknown; it is one of {', '.join(CHOICES[name])}.")


def check_rendered(name: str, value: object) -> None:
    """Refuse a template that Airflow did not render.

    Airflow does not render literals inside ``expand_kwargs``, and Spark would take the template for the value.

    :raises InvalidWriteError: the value still holds a template.
    """
    if isinstance(value, Source):
        value = [getattr(value, field) for field in value.template_fields]
    if not is_final(value):
        raise InvalidWriteError(
            f"{name}={value!r} still holds a template. Airflow does not render values inside expand_kwargs: put the "
            "template into partial(), or make the list in a task. Nothing was staged."
        )


def check_steps(steps: object, view: str) -> None:
    """Refuse steps that cannot become views, as far as they are known now.

    :param view: the name of the source's view.
    :raises InvalidWriteError: the steps are not SQL by name, a name cannot name a view, or the source has it.
    """
    if not is_final(steps) and not isinstance(steps, Mapping):
        return
    if not isinstance(steps, Mapping) or any(not isinstance(sql, str) for sql in steps.values() if is_final(sql)):
        raise InvalidWriteError(
            f"steps={steps!r}: steps are named SQL, {{'name': 'SELECT …'}}; the last one is written."
        )
    for name in steps:
        if not isinstance(name, str) or not _NAME.match(name):
            raise InvalidWriteError(f"steps: {name!r} is no name of a view: letters, digits and _, a letter first.")
        if name.lower() == view.lower():
            raise InvalidWriteError(f"steps: {name!r} is the name of the source's view already.")


def partition_columns(partition_by: str | Sequence[str] | Mapping[str, str] | None) -> list[str] | None:
    """Read ``partition_by`` in any of its forms.

    :param partition_by: names with commas between, a list of names, or names with the expressions that generate them.
    :returns: the names; ``None`` if the author gives none.
    :raises InvalidWriteError: a name is empty, or comes twice.
    """
    if partition_by is None:
        return None
    names = [name.strip() for name in partition_by.split(",")] if isinstance(partition_by, str) else list(partition_by)
    if names == [""]:
        return []
    if not all(names) or len(set(names)) != len(names):
        raise InvalidWriteError(f"partition_by={partition_by!r}: the names of different columns. Nothing was staged.")
    return names


def fingerprint(source: Source, files: Iterable[SourceFile], **work: Any) -> str:
    """Digest everything that decides a writer's rows (protocol: same source).

    :param source: the rendered source.
    :param files: the source's files that can be listed. Their paths, sizes and times count.
    :param work: the other rendered parameters that decide the rows.
    :returns: a digest that is equal for equal work.
    """
    seen = [(file.path, file.size, file.modified) for file in files]
    return _digest({"source": source.job(), "files": seen, "format": FINGERPRINT_FORMAT, **work})


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()
