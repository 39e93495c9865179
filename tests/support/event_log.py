"""What Spark did, from its event logs: also of an application that was killed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_TAG = "_Tag_"


@dataclass(frozen=True)
class Job:
    """A Spark job.

    :param tags: that its client gave the operation, without Spark Connect's own prefix.
    :param submitted: in milliseconds since 1970.
    :param ended: likewise; None when it did not end.
    """

    application: str
    id: int
    tags: frozenset[str]
    description: str
    submitted: int
    ended: int | None = None
    succeeded: bool = False


def jobs(directory: Path) -> list[Job]:
    """Return the jobs of all applications, in the order in which they were submitted."""
    found: dict[tuple[str, int], Job] = {}
    for application, event in _events(directory):
        kind = event["Event"]
        if kind == "SparkListenerJobStart":
            properties = event.get("Properties") or {}
            job = Job(
                application,
                event["Job ID"],
                _tags(properties.get("spark.job.tags", "")),
                properties.get("spark.job.description", ""),
                event["Submission Time"],
            )
            found[application, job.id] = job
        elif kind == "SparkListenerJobEnd":
            started = found.get((application, event["Job ID"]))
            if started is not None:
                succeeded = event["Job Result"]["Result"] == "JobSucceeded"
                found[application, started.id] = Job(
                    **{**vars(started), "ended": event["Completion Time"], "succeeded": succeeded}
                )
    return sorted(found.values(), key=lambda job: (job.submitted, job.application, job.id))


def _events(directory: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    files = (path for path in directory.rglob("*") if path.is_file() and not path.name.startswith((".", "appstatus")))
    for path in sorted(files, key=lambda path: path.stat().st_mtime):
        application = path.name.removesuffix(".inprogress")
        with path.open(encoding="utf-8") as lines:
            for line in lines:
                try:
                    event = json.loads(line)
                except ValueError:  # the last line of a log that is being written, or whose writer was killed
                    break
                yield application, event


def _tags(text: str) -> frozenset[str]:
    return frozenset(tag.partition(_TAG)[2] for tag in text.split(",") if _TAG in tag)
