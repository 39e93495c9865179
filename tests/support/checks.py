"""An engine that counts the rows of a shadow that violate a CHECK on ids, without Spark."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs

from airflow_provider_onelake.engines.base import CheckJob, CheckResult, Engine
from airflow_provider_onelake.log.actions import of_kind, parse_actions, version_path
from tests.support.changes import rows_of


@attrs.define
class ChecksByHand(Engine):
    """Takes each constraint for one on ids.

    :param holds: says of an id whether it satisfies the constraints.
    :param after: called when a round is done: lets others in, or raises.
    """

    holds: Callable[[int], bool] = lambda row: row >= 0
    after: Callable[[CheckJob], object] = lambda job: None
    jobs: list[CheckJob] = attrs.field(factory=list)
    files: list[int] = attrs.field(factory=list)
    definitions: list[Any] = attrs.field(factory=list)

    def check(self, job: CheckJob) -> CheckResult:
        self.jobs.append(job)
        shadow = Path(job.shadow_uri.removeprefix("file://"))
        actions = parse_actions((shadow / version_path(0)).read_bytes(), "shadow")
        adds = of_kind(actions, "add")
        self.files.append(len(adds))
        self.definitions += of_kind(actions, "metaData")
        violating = 0
        for add in adds:
            rows, gone = rows_of(add)
            violating += sum(not self.holds(row) for at, row in enumerate(rows) if at not in gone)
        self.after(job)
        return CheckResult(engine="by hand", violations=dict.fromkeys(job.checks, violating))
