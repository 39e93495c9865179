"""The notifier that tells people which rows of a load are not in the table, by any provider's notifier."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import attrs
from airflow.sdk import BaseNotifier

from airflow_provider_onelake.exceptions import InvalidWriteError
from airflow_provider_onelake.texts import listed

if TYPE_CHECKING:
    from airflow.sdk import Context

Send = Callable[["Context"], object]

_WHEN = ("rows_left_out", "always")
# What became of a writer whose rows nobody has published, as reconcile calls it.
_NOT_PUBLISHED = ("missing", "held_back", "refused", "retired", "restored_away")
_MOST = 20


@attrs.frozen(kw_only=True)
class LoadNews:
    """What there is to tell of a load, for templates.

    :param table: the table's address; ``None`` where the task did not get as far as opening it.
    :param task: what people call the task that tells it: DAG, task and run.
    :param version: the newest version that rows of the load came with; ``None`` for none.
    :param writers: keys of the writers that the load should have.
    :param left_out: writers that have rows which are not in the table, as the policy counts another write more; with
        sentences.
    :param not_published: writers whose rows were not published, or were taken back since; with sentences.
    :param error: why the task failed; ``None`` for a task that did not.
    """

    table: str | None
    task: str
    version: int | None = None
    writers: tuple[str, ...] = ()
    left_out: Mapping[str, Sequence[str]] = attrs.field(factory=dict)
    not_published: Mapping[str, Sequence[str]] = attrs.field(factory=dict)
    error: str | None = None

    @property
    def is_whole(self) -> bool:
        """Whether all rows of the load are in the table, as far as is known, and the task did not fail."""
        return not self.left_out and not self.not_published and self.error is None

    @property
    def name(self) -> str:
        """The table's short name: from ``Tables`` on, or the last part of its address."""
        address = f"/{self.table or 'an unknown table'}"
        _, found, inside = address.rpartition("/Tables/")
        return f"Tables/{inside}" if found else address.rpartition("/")[2]

    @property
    def summary(self) -> str:
        """One sentence."""
        parts = [
            f"{what}: {listed(list(writers), _MOST)}"
            for what, writers in (("left out", self.left_out), ("not published", self.not_published))
            if writers
        ]
        if not parts:
            parts = ["failed" if self.error is not None else "all rows are in the table"]
        version = f" (version {self.version})" if self.version is not None else ""
        return f"{self.name}{version}: {'; '.join(parts)}"

    @property
    def text(self) -> str:
        """The summary, a line for each writer with rows that are not in the table, the task, and its error."""
        lines = [
            f"- {writer}: {listed(said, _MOST, '; ')}"
            for writer, said in (*self.left_out.items(), *self.not_published.items())
        ]
        more = [f"- and {len(lines) - _MOST} more"] if len(lines) > _MOST else []
        error = [self.error] if self.error is not None else []
        return "\n".join([self.summary, *lines[:_MOST], *more, f"Task: {self.task}", *error])

    def __str__(self) -> str:
        return self.text


class OneLakeLoadNotifier(BaseNotifier):
    """Tell people which rows of a load are not in the table, by any notifier.

    It is a callback for the end of a task: ``notifiers`` of a
    :class:`~airflow_provider_onelake.task_groups.write.OneLakeWriteTaskGroup`, or ``on_success_callback`` and
    ``on_failure_callback`` of a reconcile task or of a writer without a group (with ``on_set_aside="skip"`` also its
    ``on_skipped_callback``). Airflow runs such callbacks in the task's process.

    The notifier reads what the task left in XCom, and gives it to ``send`` in the context, under the name ``load``: a
    :class:`LoadNews`. A template of a notifier of Slack, Teams, SMTP or any other provider has all of it:
    ``{{ load }}`` is the whole text, ``{{ load.summary }}`` one sentence, and ``load.table``, ``load.left_out`` and
    the other attributes are for texts of one's own.

    :param send: a notifier, or a function that takes the context; or several of them. If one fails, the others are
        called all the same, and the log of the task says so. Not templated; the notifiers render their own templates.
    :param when: ``rows_left_out`` tells only of a load some of whose rows are not in the table, or whose task failed;
        ``always`` tells of every load. Default: ``rows_left_out``. Not templated.
    """

    template_fields = ()

    def __init__(self, send: Send | Sequence[Send], *, when: str = "rows_left_out", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.send = list(send) if isinstance(send, Sequence) else [send]
        self.when = when
        if not self.send or not all(callable(one) for one in self.send):
            raise InvalidWriteError(f"send={send!r}: a notifier, or a function that takes the context.")
        if when not in _WHEN:
            raise InvalidWriteError(f"when={when!r} is unknown; it is one of {', '.join(_WHEN)}.")

    def notify(self, context: Context) -> None:
        """Tell it, if there is anything to tell.

        :param context: of the task that ended.
        :raises ExceptionGroup: something in ``send`` failed. The task's state does not change by it.
        """
        load = self._news(context)
        if load is None or (load.is_whole and self.when != "always"):
            return
        failures: list[Exception] = []
        for send in self.send:
            given: Any = {**context, "load": load}
            try:
                # A notifier renders its templates into itself, once and for all; and one may serve many tasks.
                copy.copy(send)(given)
            except Exception as error:
                failures.append(error)
        if failures:
            raise ExceptionGroup("Not everybody was told of the load", failures)

    def _news(self, context: Context) -> LoadNews | None:
        """Return what there is to tell; ``None`` for a task that is no load's, and did not fail."""
        ti, exception = context["ti"], context.get("exception")
        label = ti.task_id if ti.map_index is None or ti.map_index < 0 else f"{ti.task_id}[{ti.map_index}]"
        task = f"{ti.dag_id}.{label}, run {ti.run_id}"
        error = None if exception is None else str(exception) or type(exception).__name__
        result = self._result(ti)
        if "left_out" not in result:
            table = getattr(context.get("task"), "table", None)
            return None if error is None else LoadNews(table=table, task=task, error=error)
        whole = {"table": result["table"], "task": task, "version": result["version"], "error": error}
        if "writer" in result:
            said = {result["writer"]: result["left_out"]} if result["left_out"] else {}
            return LoadNews(**whole, writers=(result["writer"],), left_out=said)
        return LoadNews(**whole, **_of_report(result))

    def _result(self, ti: Any) -> Mapping[str, Any]:
        try:
            found = ti.xcom_pull(task_ids=ti.task_id, map_indexes=ti.map_index)
        except Exception as error:
            # A task that was killed may have left nothing, and people are to hear of it nevertheless.
            self.log.warning("What %s left in XCom is not known: %s", ti.task_id, error)
            return {}
        return found if isinstance(found, Mapping) else {}


def _of_report(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return what reconcile's result says of the writers."""
    missing = {name: ["missing: it left no complete buffer"] for name in result["missing"]}
    others = {
        outcome["writer"]: [outcome["error"] or outcome["status"].replace("_", " "), *outcome["aftermath"]]
        for outcome in result["writers"]
        if outcome["status"] in _NOT_PUBLISHED and outcome["writer"] not in missing
    }
    writers = dict.fromkeys([*(outcome["writer"] for outcome in result["writers"]), *missing])
    return {"writers": tuple(writers), "left_out": result["left_out"], "not_published": {**missing, **others}}
