"""The ledger of a plan of new files: which file was given to which writer, over all runs (protocol: one ledger).

    <table>/_plans/new-<digest>/00000000.json.gz       put create-only, so that of two runs one has the file
    <table>/_plans/new-<digest>/00000050.all.json.gz   a checkpoint: what the entries before it say together

The ledger does not say what was loaded. That is for the table's own log: a writer's ``txn`` comes with its rows. The
log also counts the ledger's entries, by a ``txn`` of the ledger, so an entry that somebody deletes is missed.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

import attrs

from airflow_provider_onelake.buffers.identity import Load, WriterIdentity
from airflow_provider_onelake.exceptions import ObjectExistsError, PlanError
from airflow_provider_onelake.planning.record import DIRECTORY
from airflow_provider_onelake.reading.spark_files import SourceFile, without_local_prefix
from airflow_provider_onelake.storage.stores import Store

CHECKPOINT_EVERY = 50
"""A plan reads one checkpoint, and as many entries at most."""

_FORMAT = 1
_NAME = re.compile(r"/(\d{8})(\.all)?\.json\.gz$")
_INSIDE = "{lakehouse}"


def name_of(path: str, root: str) -> str:
    """Return how the ledger spells a file's path: below the lakehouse without its address, which has two spellings.

    :param path: as a listing spells it.
    :param root: the lakehouse's address as Spark spells it; empty if there is none.
    """
    return f"{_INSIDE}{path.removeprefix(root)}" if root and path.startswith(f"{root}/") else path


def path_of(name: str, root: str) -> str:
    """Return a file's path as a listing spells it.

    :param name: as the ledger spells it.
    """
    return f"{root}{name.removeprefix(_INSIDE)}" if name.startswith(f"{_INSIDE}/") else name


def key_of(path: str, root: str) -> str:
    """Return what tells a file from others: all spellings of one path have one key.

    :param path: as a listing spells it, or the ledger.
    :param root: the lakehouse's address as Spark spells it; empty if there is none.
    """
    # Spark spells a local lakehouse file:///lake, and the author of a source may write /lake or file:/lake.
    plain = without_local_prefix(path)
    return name_of(plain, without_local_prefix(root))


@attrs.frozen
class Recorded:
    """A writer of a run, and the files that it was given.

    :param plan: the name of the run's plan.
    :param entry: how many entries the ledger had with this one.
    :param files: as they were when they were planned; their paths as the ledger spells them.
    """

    identity: WriterIdentity
    plan: str
    entry: int
    files: tuple[SourceFile, ...] = attrs.field(repr=False)

    def __str__(self) -> str:
        """Return what messages call the writer."""
        load = self.identity.load
        return f"writer {self.identity.key!r} of {load.dag}.{load.group}, run {load.run}"


@attrs.frozen
class Looked:
    """What RESTOREs did to rows that were loaded.

    :param gone: of writers whose rows were taken back, by their ``txn`` ids: the generation, and what took them back.
    :param back: ``txn`` ids of retired writers whose rows are in the table again.
    """

    gone: dict[str, tuple[int, str]]
    back: frozenset[str]


@attrs.define
class Ledger:
    """What all entries say together.

    :param path: the directory of the entries, relative to the table.
    :param root: the lakehouse's address as Spark spells it; empty if there is none.
    :param entries: how many there are.
    :param table_id: of the table that the ledger belongs to; empty while there was no table.
    :param version: the newest version of the table in which a plan has looked for a RESTORE.
    :param writers: in the order of entries.
    :param last: of each file, by :func:`key_of`, what its newest writer was given: the file as it was, and the writer.
    :param ignored: files as they were when a change of theirs was to be ignored, and the writers whose rows stand for
        them since then.
    :param gone: of writers whose rows were taken back, by their ``txn`` ids: the generation, and what took them back.
    :param back: ``txn`` ids of retired writers whose rows are in the table again.
    """

    name: str
    path: str
    root: str
    entries: int = 0
    table_id: str = ""
    version: int = -1
    writers: list[Recorded] = attrs.field(factory=list, repr=False)
    last: dict[str, tuple[SourceFile, Recorded]] = attrs.field(factory=dict, repr=False)
    ignored: list[tuple[SourceFile, Recorded]] = attrs.field(factory=list, repr=False)
    gone: dict[str, tuple[int, str]] = attrs.field(factory=dict)
    back: frozenset[str] = frozenset()

    @classmethod
    def read(cls, store: Store, name: str, root: str) -> Ledger:
        """Read the newest checkpoint, and the entries after it.

        :param store: rooted at the table.
        :param root: the lakehouse's address as Spark spells it; empty if there is none.
        :raises PlanError: an entry is missing or damaged, or of another version of this package.
        """
        ledger = cls(name, f"{DIRECTORY}/new-{hashlib.sha256(name.encode()).hexdigest()[:20]}", root)
        found = [match for info in store.list(ledger.path) if (match := _NAME.search(info.path))]
        checkpoint = max((int(match[1]) for match in found if match[2]), default=0)
        numbers = sorted(int(match[1]) for match in found if not match[2])
        if checkpoint:
            for entry in _read(store, ledger._path(checkpoint, ".all")):
                ledger._take(entry)
            ledger.entries = checkpoint
        for number in range(ledger.entries, max(numbers, default=-1) + 1):
            if number not in numbers:
                raise ledger.missing(number)
            for entry in _read(store, ledger._path(number)):
                ledger._take(entry)
            ledger.entries = number + 1
        return ledger

    @property
    def stood_for(self) -> Iterator[tuple[SourceFile, Recorded]]:
        """The files as rows of their writers stand for them: as they were given, and as a change was ignored."""
        for writer in self.writers:
            yield from ((file, writer) for file in writer.files)
        yield from self.ignored

    def key(self, file: SourceFile) -> str:
        """Return what tells a file from others."""
        return key_of(file.path, self.root)

    def missing(self, number: int) -> PlanError:
        """Return the error of an entry that is not there.

        :param number: of the entry.
        """
        return PlanError(
            f"{self._path(number)} of the table is missing, which says what was loaded by the plan {self.name!r}: "
            "somebody deleted it. Nothing was planned, as its files would be loaded again: put it back. If all files "
            "of the source may be loaded again, give the plan another `ledger`."
        )

    def add(
        self,
        store: Store,
        *,
        table_id: str,
        version: int,
        load: Load | None = None,
        plan: str = "",
        writers: Mapping[str, Iterable[SourceFile]] | None = None,
        ignored: Iterable[SourceFile] = (),
        looked: Looked | None = None,
    ) -> list[Recorded]:
        """Put the next entry, and take it in.

        :param writers: the files of each writer of the load, by its key.
        :param ignored: files whose change is to be ignored.
        :param looked: what RESTOREs took back, and brought back. Default: as before.
        :returns: the writers.
        :raises ObjectExistsError: another plan put that entry first: read the ledger again.
        """
        entry: dict[str, Any] = {
            "format": _FORMAT,
            "ledger": self.name,
            "table": table_id,
            "version": version,
            "load": attrs.asdict(load) if load is not None else None,
            "plan": plan,
            "entry": self.entries + 1,
            "writers": {key: _plain(files) for key, files in (writers or {}).items()},
            "ignored": _plain(ignored),
            **({} if looked is None else {"gone": dict(looked.gone), "back": sorted(looked.back)}),
        }
        store.create(self._path(self.entries), _packed([entry]))
        known = len(self.writers)
        self._take(entry)
        self.entries += 1
        if self.entries % CHECKPOINT_EVERY == 0:
            with suppress(ObjectExistsError):
                store.create(self._path(self.entries, ".all"), _packed(self._all()))
        return self.writers[known:]

    def _take(self, entry: Mapping[str, Any]) -> None:
        self.table_id = entry["table"] or self.table_id
        self.version = max(self.version, entry["version"])
        if "gone" in entry:
            gone = {app_id: (generation, why) for app_id, (generation, why) in entry["gone"].items()}
            self.gone, self.back = gone, frozenset(entry["back"])
        for key, files in entry["writers"].items():
            load = Load(**entry["load"])
            given = tuple(SourceFile(*file) for file in files)
            writer = Recorded(load.writer(key), entry["plan"], entry["entry"], given)
            self.writers.append(writer)
            self.last.update((self.key(file), (file, writer)) for file in given)
        changed = (SourceFile(*file) for file in entry["ignored"])
        self.ignored += ((file, self.last[key][1]) for file in changed if (key := self.key(file)) in self.last)

    def _all(self) -> Iterator[dict[str, Any]]:
        """Yield entries that say together what all entries say."""
        same = {"format": _FORMAT, "ledger": self.name, "table": self.table_id, "version": self.version}
        ignored = defaultdict(list)
        for file, writer in self.ignored:
            ignored[writer.identity].append(file)
        for writer in self.writers:
            load, files = attrs.asdict(writer.identity.load), {writer.identity.key: _plain(writer.files)}
            yield {
                **same,
                "load": load,
                "plan": writer.plan,
                "entry": writer.entry,
                "writers": files,
                # Here, and not behind all writers: a file may have been given to another one since.
                "ignored": _plain(ignored[writer.identity]),
            }
        looked = {"gone": self.gone, "back": sorted(self.back)}
        yield {**same, "load": None, "plan": "", "writers": {}, "ignored": [], **looked}

    def _path(self, number: int, kind: str = "") -> str:
        return f"{self.path}/{number:08d}{kind}.json.gz"


def ledgers_beside(store: Store, ledger: Ledger) -> Iterator[Ledger]:
    """Yield the other ledgers of a table.

    :raises PlanError: as :meth:`Ledger.read`.
    """
    for directory in store.directories(DIRECTORY):
        path = f"{DIRECTORY}/{directory}"
        if directory.startswith("new-") and path != ledger.path:
            first = next((info.path for info in store.list(path) if _NAME.search(info.path)), None)
            name = next((entry["ledger"] for entry in _read(store, first)), None) if first else None
            if name is not None:
                yield Ledger.read(store, name, ledger.root)


def _plain(files: Iterable[SourceFile]) -> list[list[Any]]:
    return [[file.path, file.size, file.modified] for file in files]


def _packed(entries: Iterable[Mapping[str, Any]]) -> bytes:
    lines = "\n".join(json.dumps(entry, separators=(",", ":")) for entry in entries)
    # Without a time in it, equal entries have equal bytes.
    return gzip.compress(lines.encode(), compresslevel=6, mtime=0)


def _read(store: Store, path: str) -> list[dict[str, Any]]:
    try:
        entries = [json.loads(line) for line in gzip.decompress(store.get(path)).splitlines()]
    except (OSError, EOFError, ValueError) as error:
        raise PlanError(
            f"{path} of the table, which says what was loaded, is damaged ({error}). Nothing was planned: put it back."
        ) from error
    strange = next((entry.get("format") for entry in entries if entry.get("format") != _FORMAT), _FORMAT)
    if strange != _FORMAT:
        raise PlanError(
            f"{path} of the table is of the format {strange}, made by another version of this package. Nothing was "
            "planned: use that version."
        )
    return entries
