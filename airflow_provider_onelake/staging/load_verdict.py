"""The verdict on a load: what checks about all rows say of the staged rows of all its writers together.

staged/<writer>/<attempt>/_load/<digest>.json  put create-only when Spark has evaluated the checks (protocol: audited)

It lies beside the rows of one of the writers that wait. The digest is of the buffers whose rows were looked at, so a
load of other rows has no verdict until Spark has looked at those.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import attrs

from airflow_provider_onelake.choices import OnFailedCheck
from airflow_provider_onelake.exceptions import (
    BufferInvalidError,
    ChecksFailedError,
    InvalidWriteError,
    ObjectExistsError,
    ObjectNotFoundError,
)
from airflow_provider_onelake.staging.layout import json_at, load_verdict_path, load_verdicts
from airflow_provider_onelake.staging.verdict import (
    CheckResult,
    done_by,
    lines_of_table,
    outcome_of,
    result_told,
    results_in_words,
)

if TYPE_CHECKING:
    from airflow_provider_onelake.staging.buffers import Buffer
    from airflow_provider_onelake.staging.identity import Load
    from airflow_provider_onelake.storage.stores import Store

# A message names this many buffers at most.
_MOST_NAMED = 5
# Of a writer whose load was checked again and again, pages look at this many verdicts.
_MOST_LOOKED_AT = 5


@attrs.frozen(kw_only=True)
class LoadVerdict:
    """What the checks say of the rows of all writers of a load.

    :param rows: how many rows Spark read.
    :param buffers: the path of the buffer with the rows of each writer, by its key: of those that wait, and of those
        that the load has in the table already.
    :param results: one for each check.
    :param on_failed_check: what happens to the load if a check fails: with ``warn`` it is published.
    """

    rows: int
    buffers: Mapping[str, str] = attrs.field(hash=False)
    results: tuple[CheckResult, ...]
    on_failed_check: OnFailedCheck = attrs.field(default=OnFailedCheck.REFUSE, converter=OnFailedCheck)

    @property
    def failed(self) -> tuple[CheckResult, ...]:
        """The checks that failed."""
        return tuple(result for result in self.results if not result.passed)

    @property
    def refused(self) -> bool:
        """Whether a check failed, so that nothing of the load is published."""
        return bool(self.failed) and self.on_failed_check is not OnFailedCheck.WARN

    @property
    def in_words(self) -> str:
        """The verdict in a few words, such as ``1 of 2 checks failed: enough trips``."""
        return results_in_words(self.results)

    def refusal(self, load: Load, table: str) -> ChecksFailedError:
        """Return the error of a load that is refused.

        :param table: what messages call the table.
        """
        keys = sorted(self.buffers)
        more = f" and {len(keys) - _MOST_NAMED} more" if len(keys) > _MOST_NAMED else ""
        where = ", ".join(f"'{table}/{self.buffers[key]}'" for key in keys[:_MOST_NAMED])
        return ChecksFailedError(
            f"Load {load.id} fails {len(self.failed)} of {len(self.results)} checks of all its writers together "
            f"({', '.join(keys[:_MOST_NAMED])}{more}): {'; '.join(map(str, self.failed))}. Nothing of its {self.rows} "
            f"row{'' if self.rows == 1 else 's'} for {table} was published. To look at the rows, read the "
            f"Delta tables {where}{more}, until a VACUUM takes them. Then correct the source or the check, and clear "
            "the writers with their downstream tasks."
        )

    def told(self) -> list[dict[str, Any]]:
        """Return the results for XCom and for pages: as of a writer, see ``Verdict.told``."""
        return [result_told(result, done_by(self.on_failed_check)) for result in self.results]

    def table_lines(self) -> list[str]:
        """Return the results as the lines of a table, for a log: a head, and a line for each check."""
        head = ("check", "about", "rows failed", "result")
        return lines_of_table([head, *((each.name, "the load", "-", outcome_of(each)) for each in self.results)])

    def to_json(self) -> dict[str, Any]:
        """Return the verdict as it stands in the store."""
        return {
            "rows": self.rows,
            "buffers": dict(sorted(self.buffers.items())),
            "on_failed_check": str(self.on_failed_check),
            "checks": [result.to_json() for result in self.results],
        }

    @classmethod
    def from_json(cls, said: Mapping[str, Any]) -> LoadVerdict | None:
        """Read a verdict back; ``None`` where it is damaged.

        :param said: as it stands in the store.
        """
        try:
            return cls(
                rows=int(said["rows"]),
                buffers={str(key): str(path) for key, path in said["buffers"].items()},
                results=tuple(CheckResult(**result) for result in said["checks"]),
                on_failed_check=said["on_failed_check"],
            )
        except (AttributeError, KeyError, TypeError, ValueError):
            return None


def awaited(buffers: Iterable[Buffer]) -> dict[str, str]:
    """Return the checks that staged rows leave to their whole load, by name.

    :param buffers: that are to be published together.
    :raises InvalidWriteError: a check says one thing for one writer and another for another, so nobody knows which
        counts.
    """
    found: dict[str, tuple[str, str]] = {}
    for buffer in buffers:
        key = buffer.spec.identity.key
        for result in buffer.verdict.of_load if buffer.verdict is not None else ():
            first, sql = found.setdefault(result.name, (key, result.sql))
            if sql != result.sql:
                raise InvalidWriteError(
                    f"The check {result.name!r} is about all writers of the load together, and it is {sql!r} for "
                    f"writer {first!r} and {result.sql!r} for writer {key!r}. Nothing was published: take templates "
                    "out of it that differ from task to task, or give the writers checks of their own, and clear them."
                )
    return {name: sql for name, (_, sql) in found.items()}


def asked_of(buffers: Iterable[Buffer]) -> OnFailedCheck:
    """Return what happens to a load whose rows fail a check: a warning is enough only if all its writers say so.

    :param buffers: that leave checks to their load.
    """
    asked = {buffer.spec.on_failed_check for buffer in buffers if buffer.awaits_load}
    return OnFailedCheck.WARN if asked == {OnFailedCheck.WARN} else OnFailedCheck.REFUSE


def write_load_verdict(store: Store, waiting: Collection[str], verdict: LoadVerdict) -> None:
    """Keep a verdict. The first one on the same rows counts.

    :param waiting: the paths of the buffers that are to be published, relative to the table.
    """
    with suppress(ObjectExistsError):
        store.create(_path(waiting, verdict.buffers), json.dumps(verdict.to_json()).encode())


def read_load_verdict(
    store: Store, waiting: Collection[str], buffers: Mapping[str, str], checks: Mapping[str, str]
) -> LoadVerdict | None:
    """Return the verdict on a load; ``None`` where nobody has evaluated its checks over these rows.

    :param waiting: the paths of the buffers that are to be published, relative to the table.
    :param buffers: all buffers of the load, by writer's key, also of writers that are in the table already.
    :param checks: that the buffers leave to their load, by name.
    :raises BufferInvalidError: the verdict is damaged, or is of other checks.
    """
    path = _path(waiting, buffers)
    try:
        verdict = LoadVerdict.from_json(json_at(store, path))
    except ObjectNotFoundError:
        return None
    said = {result.name: result.sql for result in verdict.results} if verdict is not None else None
    if verdict is None or dict(verdict.buffers) != dict(buffers) or said != dict(checks):
        raise BufferInvalidError(
            f"The verdict on the load ({path}) is damaged, or not of its checks. Nothing was published: clear the "
            "writers' tasks to stage their rows again."
        )
    return verdict


def load_verdict_of(store: Store, published: Collection[str]) -> LoadVerdict | None:
    """Return the newest verdict that was given on buffers which one commit has published; ``None`` for none.

    It costs a listing, and a request for each verdict, of five at most.

    :param published: the paths of the buffers, relative to the table.
    """
    found = sorted(store.list(load_verdicts(min(published))), key=lambda info: info.modified, reverse=True)
    for info in found[:_MOST_LOOKED_AT]:
        with suppress(ObjectNotFoundError):
            verdict = LoadVerdict.from_json(json_at(store, info.path))
            if verdict is not None and set(published) <= set(verdict.buffers.values()):
                return verdict
    return None


def _path(waiting: Collection[str], buffers: Mapping[str, str]) -> str:
    digest = hashlib.sha256(json.dumps(sorted(buffers.values())).encode()).hexdigest()[:16]
    return load_verdict_path(min(waiting), digest)
