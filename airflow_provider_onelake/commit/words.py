"""What people read of our commits: the ``userMetadata``, which every engine's history of a table shows.

It says whose the commit is, what was settled, and the ``commit_message`` of the DAG's author.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from airflow_provider_onelake.buffers.identity import Load, WriterIdentity

NOTHING = "Nothing to do; the commit keeps an older try from doing it later"
"""What people read of a commit that changes nothing."""


def of_writer(writer: WriterIdentity, message: str | None) -> str:
    """Return what is said of a commit that a writer makes before it stages, such as the one that makes the table.

    :param message: of the DAG's author.
    """
    return of_task(load_in_words(writer.load), writer.key, message)


def of_task(who: str, done: str, message: str | None) -> str:
    """Return what is said of a commit of one task's upkeep.

    :param who: the task and its run, see :func:`task_in_words`.
    :param done: what the commit does.
    :param message: of the DAG's author.
    """
    return with_messages(f"{who}: {done}", {}, message)


def task_in_words(dag: str, task: str, run: str, namespace: str) -> str:
    """Return how a task and its run are called, in the same form as a load."""
    return f"{dag}.{task}, run {run} ({namespace})"


def load_in_words(load: Load) -> str:
    """Return how a load is called: its DAG, group and run, and the deployment."""
    return task_in_words(load.dag, load.group, load.run, load.namespace)


def with_messages(said: str, messages: Mapping[str, str | None], own: str | None) -> str:
    """Return a text with the authors' messages behind it, each once, with the writers that gave it unless all did.

    :param messages: by writer's key; ``None`` for none.
    :param own: the message of the task that commits; ``None`` for none.
    """
    writers: dict[str, list[str]] = {}
    for key, message in messages.items():
        if message:
            writers.setdefault(message, []).append(key)
    for message, keys in writers.items():
        whose = "" if len(keys) == len(messages) else f" of {', '.join(keys)}"
        said += f". Message{whose}: {message}"
    if own and own not in writers:
        said += f". Message{' of the task that committed' if writers else ''}: {own}"
    return said
