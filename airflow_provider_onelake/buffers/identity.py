"""Who a writer is, in all of its attempts (protocol: plain directory names, attempt id, writer identity)."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Protocol
from urllib.parse import quote

import attrs

from airflow_provider_onelake.exceptions import InvalidWriteError
from airflow_provider_onelake.log.commits import OURS, named_by
from airflow_provider_onelake.storage.addresses import STAGED_DIRECTORY

_UNSAFE = re.compile(r"[^a-z0-9]+")
_SAFE = re.compile(r"[a-z0-9][a-z0-9-]*")
# What the txn ids of ledgers begin with (protocol: one ledger).
_LEDGERS = "onelake-plan/"

RETIRED = 2**53 - 1
"""The generation of a writer of which nothing is published again (protocol: retired). Every reader of JSON can hold it,
and no start gets so far."""


def _quoted(part: str) -> str:
    return quote(part, safe=":+")


def _named(instance: object, attribute: attrs.Attribute[str], value: str) -> None:
    if value is not None and not isinstance(value, str):
        raise InvalidWriteError(
            f"A writer's {attribute.name} must be a text, and not {value!r}: spell it '{value}'. Nothing was staged."
        )
    if value is None or not value.strip():
        raise InvalidWriteError(f"A writer's {attribute.name} must not be empty. Nothing was staged.")


@attrs.frozen
class Load:
    """The writers of one write group in one run: colleagues.

    :param namespace: of the deployment, from the connection, as two deployments may have equal DAGs.
    :param dag: the DAG's id.
    :param group: the task group's id, or the task's.
    :param run: the logical date, or a cron timetable's partition, or the run's id where it has neither.
    """

    namespace: str = attrs.field(validator=_named)
    dag: str = attrs.field(validator=_named)
    group: str = attrs.field(validator=_named)
    run: str = attrs.field(validator=_named)

    @cached_property
    def id(self) -> str:
        """The load's name in the table's log."""
        return "/".join(map(_quoted, (self.namespace, self.dag, self.group, self.run)))

    @property
    def prefix(self) -> str:
        """What the ``txn`` ids of the load's writers begin with."""
        return f"{OURS}{self.id}/"

    @property
    def dag_prefix(self) -> str:
        """What the ``txn`` ids of all writers of the load's DAG begin with."""
        return f"{OURS}{_quoted(self.namespace)}/{_quoted(self.dag)}/"

    def writer(self, key: str) -> WriterIdentity:
        """Return one of the load's writers.

        :param key: the writer's.
        """
        return WriterIdentity(self, key)


class Identity(Protocol):
    """Whom a table knows by a ``txn``, whose version is a generation: a writer, or a task that runs statements."""

    @property
    def app_id(self) -> str:
        """The application id of the ``txn``."""

    @property
    def key(self) -> str:
        """What messages call it."""

    @property
    def directory(self) -> str:
        """Where its claims lie, relative to the table."""


@attrs.frozen
class WriterIdentity:
    """One writer of a load, the same in all of its attempts.

    :param load: that it belongs to.
    :param key: explicit, unique in the load; never the map index, which shifts when the list changes.
    """

    load: Load
    key: str = attrs.field(validator=_named)

    @cached_property
    def app_id(self) -> str:
        """The ``txn`` application id under which the table knows the writer."""
        return f"{self.load.prefix}{_quoted(self.key)}"

    @classmethod
    def from_app_id(cls, app_id: str) -> WriterIdentity | None:
        """Read an identity back from its ``txn`` id; ``None`` for an id that is not one of ours.

        :param app_id: as it stands in the table's log.
        """
        parts = named_by(app_id)
        return None if parts is None else cls(Load(*parts[:4]), parts[4])

    @property
    def directory(self) -> str:
        """The directory of the writer's buffers, relative to the table.

        Nothing in it needs encoding, and it does not begin with ``_`` or ``.``, which VACUUM would skip (protocol:
        plain directory names).
        """
        slug = _UNSAFE.sub("-", self.key.lower()).strip("-")[:40].rstrip("-")
        digest = hashlib.sha256(self.app_id.encode()).hexdigest()[:12]
        return f"{STAGED_DIRECTORY}/{slug}-{digest}" if slug else f"{STAGED_DIRECTORY}/{digest}"

    def buffer(self, attempt: str) -> str:
        """Return the directory of one attempt's buffer, relative to the table.

        :param attempt: an id that is new for every try, such as Airflow's task-instance UUID.
        :raises InvalidWriteError: the id has other characters than ``a-z``, ``0-9`` and ``-``.
        """
        if not _SAFE.fullmatch(attempt):
            raise InvalidWriteError(f"The attempt id {attempt!r} must be of a-z, 0-9 and -. Nothing was staged.")
        return f"{self.directory}/{attempt}"


def ledger_id(name: str) -> str:
    """Return the ``txn`` application id that counts the entries of a ledger, which are about files that were loaded.

    :param name: of the ledger.
    """
    return f"{_LEDGERS}{_quoted(name)}"


def writers_among(app_ids: Iterable[str], prefix: str = OURS) -> Iterator[WriterIdentity]:
    """Yield the writers of ours that some ``txn`` ids name.

    :param prefix: what their ids begin with: a load's, or its DAG's. Default: all writers.
    """
    for app_id in app_ids:
        if app_id.startswith(prefix) and (writer := WriterIdentity.from_app_id(app_id)) is not None:
            yield writer
