"""The commands that change a table: ``onelake reconcile`` and ``restore``. Without ``--yes`` they only rehearse it."""

from __future__ import annotations

import getpass
import shlex
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any
from uuid import uuid4

import typer
from rich.markup import escape

from airflow_provider_onelake.buffers.waiting import WaitingLoad, loads_waiting
from airflow_provider_onelake.choices import GONE, OnMissingWriter, OnNewerCommit, Policy, PublishMode
from airflow_provider_onelake.cli.opening import errors_in_a_line, open_table
from airflow_provider_onelake.cli.output import (
    AsJson,
    ConnectionId,
    TableName,
    console,
    errors,
    print_commits,
    print_json,
    print_table,
    size,
)
from airflow_provider_onelake.exceptions import InvalidWriteError, OneLakeError, RestoreRefusedError, with_page
from airflow_provider_onelake.maintenance.restore import RestoreStatus
from airflow_provider_onelake.maintenance.restore import restore as restore_table
from airflow_provider_onelake.statements.asker import Asker, TaskIdentity
from airflow_provider_onelake.steps.restore import describe_restore, version_asked
from airflow_provider_onelake.storage.addresses import STAGED_DIRECTORY
from airflow_provider_onelake.storage.clock import instant_given
from airflow_provider_onelake.storage.concurrent import map_concurrently
from airflow_provider_onelake.texts import listed
from airflow_provider_onelake.view.commits import partition_in_words, summary_of
from airflow_provider_onelake.writes.reconcile import reconcile as reconcile_load

if TYPE_CHECKING:
    from airflow_provider_onelake.log.commits import Commit
    from airflow_provider_onelake.log.delta_log import DeltaLog
    from airflow_provider_onelake.maintenance.restore import Restored
    from airflow_provider_onelake.writes.report import Report

_Yes = Annotated[bool, typer.Option("--yes", help="Do it. Default: show what would be done, and change nothing.")]
_Message = Annotated[str | None, typer.Option(help="A message for people who read the table's history.")]
_POLICIES, _IF_MISSING = " or ".join(Policy), " or ".join(OnMissingWriter)
_MOST = 10
_REHEARSED = ", rehearsed: this is what --yes would do"


def _policy(text: str) -> Policy:
    """Read a policy. Of one that is gone, say what to take instead."""
    if text not in list(Policy):
        said = GONE.get(text, f"is not one of {', '.join(Policy)}.")
        raise typer.BadParameter(f"{text!r} {said}")
    return Policy(text)


def reconcile(
    table: TableName,
    connection: ConnectionId = None,
    load: Annotated[
        str | None, typer.Option(metavar="ID", help="The load to publish. Default: every load that waits.")
    ] = None,
    writer: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY", help="A writer that the load should have; once for each. Default: all that began."),
    ] = None,
    on_conflict: Annotated[
        Policy,
        typer.Option(parser=_policy, metavar="POLICY", help=f"Whose rows are seen after a conflict: {_POLICIES}."),
    ] = Policy.FAIL,
    on_missing_writer: Annotated[
        OnMissingWriter, typer.Option(metavar="WHAT", help=f"What happens if a writer is not complete: {_IF_MISSING}.")
    ] = OnMissingWriter.PUBLISH_NOTHING,
    message: _Message = None,
    yes: _Yes = False,
    as_json: AsJson = False,
) -> None:
    """Publish buffers that wait, as the task reconcile of their load would. The status is 2 if rows are left out."""
    with errors_in_a_line(errors):
        opened = open_table(table, connection)
        listing = list(opened.log.store.list(STAGED_DIRECTORY))
        waiting = loads_waiting(opened.log, opened.log.snapshot(), listing)
        if load is not None:
            waiting = _named(waiting, load, opened.log.table)
        _check_meant(waiting, writer, yes=yes)
        committer = opened.committer(message=message) if yes else opened.rehearsal()
        done = []
        for one in waiting:
            before = None if yes else committer.log.snapshot_or_none()
            report = reconcile_load(
                committer,
                one.load,
                writer or one.writers,
                publish=one.publish,
                on_conflict=on_conflict,
                on_missing_writer=on_missing_writer,
            )
            done.append((one, report, yes or committer.log.snapshot_or_none() != before))
    if as_json:
        print_json([_report_in_json(one, report, done=yes) for one, report, _ in done])
    elif not done:
        console.print(f"No complete buffer waits below {escape(opened.log.address)}.")
    else:
        console.print(f"[bold]{escape(opened.log.address)}[/]{'' if yes else _REHEARSED}")
        for one, report, does in done:
            _print_report(one, report)
            if not does:
                console.print("Nothing was changed, and --yes would change nothing: do what is said above.")
            elif not yes:
                chosen = {"--on-conflict": on_conflict.value, "--on-missing-writer": on_missing_writer.value}
                _print_how(
                    "reconcile", table, connection, {"--load": one.load.id, **chosen}, writer or _unsure(one), message
                )
    if any(_failure(report) for _, report, _ in done):
        raise typer.Exit(2)


def restore(
    table: TableName,
    connection: ConnectionId = None,
    version: Annotated[int | None, typer.Option(min=0, help="The version to go back to.")] = None,
    timestamp: Annotated[
        str | None,
        typer.Option(help="Go back to the version of that time, such as 2019-01-31T12:00:00+00:00."),
    ] = None,
    newest: Annotated[
        int | None, typer.Option(min=0, metavar="VERSION", help="Refuse if the table has a newer version than this.")
    ] = None,
    message: _Message = None,
    yes: _Yes = False,
    as_json: AsJson = False,
) -> None:
    """Go back to an older version of a table, in one commit and without Spark."""
    with errors_in_a_line(errors):
        if (version is None) == (timestamp is None):
            raise InvalidWriteError("Give either --version or --timestamp, to say what the table goes back to.")
        instant = instant_given(timestamp) if timestamp is not None else None
        opened = open_table(table, connection)
        log, seen = opened.log, opened.log.snapshot()
        seen.check_supported(log.table)
        if newest is not None and newest != seen.version:
            raise RestoreRefusedError(
                f"The newest version of {log.table} is {seen.version}, not {newest}. Nothing was changed: look at it "
                f"by `onelake history`, and say --newest {seen.version} if it may be undone."
            )
        asked = version_asked(log, seen, version, instant)
        committer = opened.committer() if yes else opened.rehearsal()
        who = f"onelake restore, by {_person()}"
        asker = Asker(identity=TaskIdentity(f"terminal/{uuid4()}"), by=who, message=message)
        done = restore_table(committer, asked, seen, asker, on_newer_commit=OnNewerCommit.FAIL)
        commit = committer.log.commit(done.version) if done.version is not None else None
        undone = _newest_of(log, done.undone)
    if as_json:
        print_json({"table": log.address, "done": yes, **describe_restore(done), "undone_commits": undone})
        return
    console.print(f"[bold]{escape(log.address)}[/], version {seen.version}{'' if yes else _REHEARSED}")
    console.print(f"  {escape(describe_restore(done)['summary'])}")
    if done.status is RestoreStatus.NOTHING_TO_DO:
        return
    _print_restored(done, commit)
    if undone:
        console.print("What it undoes, the newest first:")
        print_commits(undone)
    if not yes:
        exactly = {"--version": str(asked), "--newest": str(seen.version)}
        _print_how("restore", table, connection, exactly, None, message)


def _named(waiting: Sequence[WaitingLoad], load: str, table: str) -> list[WaitingLoad]:
    found = [one for one in waiting if one.load.id == load]
    if not found:
        others = ", ".join(one.load.id for one in waiting) or "none"
        raise InvalidWriteError(
            f"No complete buffer of load {load!r} waits below {table}. Loads that wait: {others}. Nothing was changed."
        )
    return found


def _check_meant(waiting: Sequence[WaitingLoad], writers: Sequence[str] | None, *, yes: bool) -> None:
    """Refuse what would be decided for several loads at once, and half of a load that belongs together."""
    if len(waiting) > 1 and (yes or writers):
        raise InvalidWriteError(
            f"{len(waiting)} loads wait, and each was given its own policies by its DAG: name one by --load. They are "
            f"{', '.join(one.load.id for one in waiting)}. Nothing was changed."
        )
    if yes and not writers and any(one.publish is PublishMode.TOGETHER for one in waiting):
        raise InvalidWriteError(
            f"Load {waiting[0].load.id} is published together, and only its DAG knows all its writers: one that never "
            f"began has left no trace. Name them all by --writer. Those that began: {', '.join(waiting[0].writers)}. "
            "Nothing was changed."
        )


def _unsure(load: WaitingLoad) -> Sequence[str] | None:
    """Return the writers to name where it is not known whether they are all."""
    return load.writers if load.publish is PublishMode.TOGETHER else None


def _failure(report: Report) -> str | None:
    try:
        report.raise_for_failures()
    except OneLakeError as error:
        return with_page(error)
    return None


def _report_in_json(load: WaitingLoad, report: Report, *, done: bool) -> dict[str, Any]:
    facts = {"done": done, "publish": load.publish.value, "last_written": load.written}
    return {**report.to_json(), **facts, "failure": _failure(report)}


def _print_report(load: WaitingLoad, report: Report) -> None:
    ago = timedelta(seconds=int((datetime.now(UTC) - load.written).total_seconds()))
    console.print(f"Load {escape(load.load.id)} ({load.publish.value}), last written {ago} ago")
    for line in report.table_lines():
        console.print(f"  {escape(line)}")
    for outcome in report.outcomes:
        for sentence in (*outcome.decisions, *outcome.aftermath):
            console.print(f"  {escape(outcome.writer)}: {escape(sentence)}")
    if (failure := _failure(report)) is not None:
        console.print(f"[red]{escape(failure)}[/]")
    if report.missing:
        console.print("A writer that is missing may still be at work: look at its task.")


def _newest_of(log: DeltaLog, versions: tuple[int, int] | None) -> list[dict[str, Any]]:
    """Return what a history says of the newest of some versions, as far as the log still has them."""
    if versions is None:
        return []
    first, last = versions
    commits = map_concurrently(log.store, log.commit, range(last, max(first - 1, last - _MOST), -1))
    return [summary_of(commit) for commit in commits if commit is not None]


def _print_restored(done: Restored, commit: Commit | None) -> None:
    cells = []
    for name, files, rows, bytes_, partitions in (
        ("come back", done.files_restored, done.rows_restored, done.bytes_restored, commit and commit.added_partitions),
        ("go", done.files_removed, done.rows_removed, done.bytes_removed, commit and commit.removed_partitions),
    ):
        counts = (f"{files:,}", "?" if rows is None else f"{rows:,}", size(bytes_))
        cells.append((name, *counts, listed(sorted(map(partition_in_words, partitions or ())))))
    print_table(("", "files", "rows", "size", "partitions"), cells, {1, 2, 3})


def _print_how(
    command: str,
    table: str,
    connection: str | None,
    options: Mapping[str, str],
    writers: Sequence[str] | None,
    message: str | None,
) -> None:
    """Print the command that does what was rehearsed."""
    words = ["onelake", command, table, *(["--connection", connection] if connection else [])]
    for name, value in options.items():
        words += [name, value]
    for writer in writers or ():
        words += ["--writer", writer]
    words += ["--message", message] if message else []
    console.print("Nothing was changed. To do it:")
    console.print(f"  {escape(shlex.join([*words, '--yes']))}")


def _person() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "somebody"  # A container may run under a number that has no name.
