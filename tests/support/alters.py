"""An engine that alters a shadow without Spark: properties, comments, and CHECKs on ids."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs

from airflow_provider_onelake.exceptions import ConstraintViolatedError
from airflow_provider_onelake.log.actions import dump_actions, of_kind, parse_actions, version_path
from airflow_provider_onelake.spark.base import AlterJob, Engine, SparkResult
from tests.support.changes import rows_of

_SET = re.compile(r"'([^']*)' = '([^']*)'")
_UNSET = re.compile(r"'([^']*)'")
_COMMENT = re.compile(r"ALTER COLUMN `(\w+)` COMMENT '(.*)'")
_ADD = re.compile(r"ADD CONSTRAINT `(\w+)` CHECK \(\s*(.*)\s*\)", re.DOTALL)


@attrs.define
class AlterByHand(Engine):
    """Does what the statements say, each as a version of the shadow.

    :param holds: says of an id whether it satisfies the constraints.
    :param after: called when a round is done: lets others in, or raises.
    """

    holds: Callable[[int], bool] = lambda row: row >= 0
    after: Callable[[AlterJob], object] = lambda job: None
    jobs: list[AlterJob] = attrs.field(factory=list)
    files: list[int] = attrs.field(factory=list)

    def alter(self, job: AlterJob) -> SparkResult:
        self.jobs.append(job)
        shadow = Path(job.shadow_uri.removeprefix("file://"))
        actions = parse_actions((shadow / version_path(0)).read_bytes(), "shadow")
        (definition,), adds = of_kind(actions, "metaData"), of_kind(actions, "add")
        self.files.append(len(adds))
        for version, statement in enumerate(job.statements, start=1):
            self._alter(definition, statement, adds)
            info = {"operation": statement.partition("(")[0].strip(), "operationParameters": {"of": [version]}}
            entry: list[Any] = [{"commitInfo": info}, {"metaData": definition}]
            (shadow / version_path(version)).write_bytes(dump_actions(entry))
        self.after(job)
        return SparkResult(engine="by hand")

    def _alter(self, definition: Any, statement: str, adds: list[Any]) -> None:
        properties = definition["configuration"]
        if statement.startswith("SET TBLPROPERTIES"):
            properties.update(_SET.findall(statement))
        elif statement.startswith("UNSET TBLPROPERTIES"):
            for name in _UNSET.findall(statement):
                definition.pop("description", None) if name == "comment" else properties.pop(name)
        elif found := _COMMENT.fullmatch(statement):
            schema = json.loads(definition["schemaString"])
            (column,) = (field for field in schema["fields"] if field["name"] == found[1])
            column["metadata"] = {"comment": found[2]}
            definition["schemaString"] = json.dumps(schema)
        else:
            added = _ADD.fullmatch(statement)
            assert added, statement
            # Spark puts blanks between all words of it.
            properties[f"delta.constraints.{added[1]}"] = f" {added[2]}"
            rows = [(at, row, gone) for add in adds for found, gone in [rows_of(add)] for at, row in enumerate(found)]
            if violating := [row for at, row, gone in rows if at not in gone and not self.holds(row)]:
                raise ConstraintViolatedError(f"{len(violating)} rows violate the new CHECK constraint ({added[2]})")
        if comment := properties.pop("comment", None):
            definition["description"] = comment
