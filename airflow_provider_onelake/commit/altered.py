"""What the definition of a table becomes by an ALTER.

Parts of one ALTER are done in this order: CHECK constraints are dropped; properties are taken away, then set; columns
are widened, commented on, dropped and renamed, each called by the name that it had before; CHECK constraints are added.
So one commit can rename a column under a CHECK: drop the constraint, rename, and add it again under the new name.

The definition becomes what Delta's own ALTER TABLE makes of it, and so does the protocol.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import attrs

from airflow_provider_onelake.commit.alteration import Alteration
from airflow_provider_onelake.exceptions import StatementRefusedError
from airflow_provider_onelake.log import properties as props
from airflow_provider_onelake.log.actions import Metadata, Protocol, encode
from airflow_provider_onelake.log.features import all_features_of, check_supported, needed_features, with_features
from airflow_provider_onelake.log.paths import (
    Field,
    Found,
    Path,
    find,
    meet,
    named_in,
    parse_path,
    parse_paths,
    written,
)
from airflow_provider_onelake.log.schema import (
    CONSTRAINT,
    GENERATION,
    MAPPING_ID,
    PHYSICAL_NAME,
    TYPE_CHANGES,
    column_mapping,
    constraints,
    flag,
)
from airflow_provider_onelake.log.snapshot import Snapshot
from airflow_provider_onelake.log.types import fields_within, is_wider, name_of, sql_name, type_called

_MOST_COLUMN_ID = "delta.columnMapping.maxColumnId"
_WIDENING = "delta.enableTypeWidening"
# https://github.com/delta-io/delta/blob/master/PROTOCOL.md#column-invariants
_INVARIANTS = "delta.invariants"


@attrs.frozen
class Step:
    """One thing that an ALTER does, as Delta records it.

    :param operation: as Delta calls it.
    :param parameters: of the operation.
    :param words: for people.
    """

    operation: str
    parameters: Mapping[str, str]
    words: str


@attrs.frozen
class Target:
    """What a table's definition becomes.

    :param checks: the CHECK constraints to add, which every row must satisfy: expression by name. ``metadata`` has them
        already.
    :param steps: what is done; none where the table is as it was asked for.
    :param raised: the features that the protocol gets.
    """

    metadata: Metadata = attrs.field(repr=False)
    protocol: Protocol = attrs.field(repr=False)
    checks: Mapping[str, str]
    steps: tuple[Step, ...]
    raised: tuple[str, ...] = ()


def apply(asked: Alteration, snapshot: Snapshot, table: str) -> Target:
    """Return what a table becomes.

    :param asked: what is to be altered.
    :param snapshot: of the table.
    :param table: what messages call it.
    :raises StatementRefusedError: the table is not one to which this can be done; the message says why.
    :raises UnsupportedFeatureError: it would have a feature outside the allow-list.
    """
    return _Alter(asked, snapshot, table).target()


def holds(asked: Alteration, snapshot: Snapshot, left: Metadata | None = None) -> bool:
    """Say whether a table is as this ALTER leaves it.

    :param snapshot: of the table.
    :param left: the definition that the ALTER left when it was done before. Default: nobody knows.
    """
    schema = json.loads(snapshot.metadata["schemaString"])
    renamed = {parse_path(column): _after(asked, parse_path(column)) for column in asked.rename_columns}
    gone = [*renamed, *(_after(asked, parse_path(column)) for column in asked.drop_columns)]
    gone = [path for path in gone if not any(_same(path, new) for new in renamed.values())]
    if any(find(schema, path) for path in gone) or not all(find(schema, path) for path in renamed.values()):
        return False
    if left is not None and not _named_alike(schema, json.loads(left["schemaString"]), renamed):
        return False
    added = {name.lower() for name in asked.add_checks}
    there = {name.lower() for name in constraints(snapshot.metadata)}
    if any(name.lower() in there - added for name in asked.drop_checks):
        return False
    rest = attrs.evolve(
        asked,
        rename_columns={},
        drop_columns=(),
        drop_checks=(),
        column_types={_called(asked, column): kind for column, kind in asked.column_types.items()},
        column_comments={_called(asked, column): text for column, text in asked.column_comments.items()},
        # Ask for the comment that is there, because an Alteration that asks for nothing is refused.
        table_comment=_comment(snapshot.metadata) or "" if asked.table_comment is None else asked.table_comment,
    )
    try:
        return not apply(rest, snapshot, "the table").steps
    except StatementRefusedError:
        return False


def _called(asked: Alteration, column: str) -> str:
    return written(_after(asked, parse_path(column)))


def _after(asked: Alteration, path: Path) -> Path:
    """Return the path of a column when the columns are renamed."""
    return _renamed(path, {parse_path(column): name for column, name in asked.rename_columns.items()})


def _renamed(path: Path, new: Mapping[Path, str]) -> Path:
    names = {tuple(map(str.lower, old)): name for old, name in new.items()}
    before = tuple(map(str.lower, path))
    return tuple(names.get(before[: length + 1], name) for length, name in enumerate(path))


def _named_alike(schema: Mapping[str, Any], left: Mapping[str, Any], renamed: Mapping[Path, Path]) -> bool:
    """Say whether columns that took each other's names are the same columns as in another schema.

    Their names are there before and after, so only the names in the files tell one from the other.
    """
    taken = [path for path in renamed.values() if any(_same(path, old) for old in renamed)]
    return all(_physical(schema, path) == _physical(left, path) for path in taken)


def _physical(schema: Mapping[str, Any], path: Path) -> object:
    found = find(schema, path)
    return None if found is None else (found.field.get("metadata") or {}).get(PHYSICAL_NAME)


class _Alter:
    """One ALTER on its way over a table's definition."""

    def __init__(self, asked: Alteration, snapshot: Snapshot, table: str) -> None:
        self._asked, self._snapshot, self._table = asked, snapshot, table
        self._before = snapshot.metadata
        self._schema: dict[str, Any] = json.loads(snapshot.metadata["schemaString"])
        self._configuration = dict(snapshot.configuration)
        self._split = list(snapshot.metadata.get("partitionColumns") or ())
        self._comment = _comment(snapshot.metadata)
        self._features: set[str] = set()
        self._steps: list[Step] = []

    def target(self) -> Target:
        self._drop_checks()
        self._change_properties()
        self._change_columns()
        self._set_comment()
        checks = self._add_checks()
        metadata = self._metadata()
        # What the table had before stays as it is: an engine may have left a property without its feature.
        needed = needed_features(metadata) - needed_features(self._before) | self._features
        protocol = with_features(self._snapshot.protocol, needed)
        if self._steps:
            stale = self._snapshot.iceberg_may_be_stale
            check_supported(protocol, metadata, f"{self._table} as it would be", iceberg_may_be_stale=stale)
            self._check_manifests(metadata)
        raised = tuple(sorted(needed - all_features_of(self._snapshot.protocol)))
        return Target(metadata, protocol, checks, tuple(self._steps), raised)

    def _metadata(self) -> Metadata:
        metadata: Metadata = {
            **self._before,
            "schemaString": encode(self._schema),
            "partitionColumns": self._split,
            "configuration": self._configuration,
        }
        if self._comment:
            metadata["description"] = self._comment
        else:
            metadata.pop("description", None)
        return metadata

    # -- properties and constraints ------------------------------------------------------------------------------------

    def _drop_checks(self) -> None:
        added = {name.lower() for name in self._asked.add_checks}
        for name in self._asked.drop_checks:
            key = self._constraint(name)
            if key is None:
                raise self._refused(
                    f"there is no CHECK constraint {name}; it has {_listed(self._constraints()) or 'none'}"
                )
            expression = self._configuration[key]
            if name.lower() in added and expression == _expression(self._asked, name):
                continue
            del self._configuration[key]
            told = {"name": name, "expr": expression, "existed": "true"}
            self._steps.append(Step("DROP CONSTRAINT", told, f"CHECK {name} is dropped"))

    def _add_checks(self) -> dict[str, str]:
        new: dict[str, str] = {}
        for name, given in self._asked.add_checks.items():
            expression = given.strip()
            key = self._constraint(name)
            if key is not None and self._configuration[key] == expression:
                continue
            if key is not None:
                raise self._refused(
                    f"CHECK {name} is there already, as ({self._configuration[key]}): name it in drop_checks too, to "
                    "replace it"
                )
            self._configuration[f"{CONSTRAINT}{name.lower()}"] = new[name] = expression
            self._steps.append(
                Step("ADD CONSTRAINT", {"name": name, "expr": expression}, f"CHECK {name} ({expression}) is added")
            )
        return new

    def _constraints(self) -> list[str]:
        return sorted(key.removeprefix(CONSTRAINT) for key in self._configuration if key.startswith(CONSTRAINT))

    def _constraint(self, name: str) -> str | None:
        wanted = f"{CONSTRAINT}{name}".lower()
        return next((key for key in self._configuration if key.lower() == wanted), None)

    def _change_properties(self) -> None:
        unset = [props.spelled(name) for name in self._asked.unset_properties]
        gone = [name for name in unset if self._configuration.pop(name, None) is not None]
        if gone:
            told = {"properties": encode(gone), "ifExists": "true"}
            self._steps.append(Step("UNSET TBLPROPERTIES", told, f"the properties {_listed(gone)} are unset"))
        new: dict[str, str] = {}
        for given, value in self._asked.set_properties.items():
            if given.lower().startswith(props.FEATURE):
                feature = props.feature_of(given, value)
                if feature not in all_features_of(self._snapshot.protocol):
                    self._features.add(feature)
                    new[f"{props.FEATURE}{feature}"] = "supported"
                continue
            name = props.spelled(given)
            text = value.strip() if name.startswith("delta.") else value
            if self._configuration.get(name) == text:
                continue
            if name == props.MAPPING:
                if column_mapping(self._before) == "name":
                    continue
                self._map_columns()
            self._configuration[name] = new[name] = text
        if new:
            told = {"properties": encode(new)}
            shown = _listed([f"{name}={value}" for name, value in new.items()])
            self._steps.append(Step("SET TBLPROPERTIES", told, f"the properties {shown} are set"))
        if flag(self._metadata(), props.CHANGE_FEED):
            taken = [field["name"] for field in self._schema["fields"] if field["name"].lower() in props.OF_CHANGE_FEED]
            if taken:
                raise self._refused(f"the change data feed keeps the name of the column {taken[0]} for itself")

    def _map_columns(self) -> None:
        """Switch column mapping by name on: files have the names of now, and the columns get numbers."""
        if column_mapping(self._before) != "none":
            raise self._refused("its column mapping is by id, which cannot be changed")
        fields = list(fields_within(self._schema))
        if any(MAPPING_ID in (field.get("metadata") or {}) for field in fields):
            raise self._refused(
                "it had column mapping before, and its columns still have numbers of then: switch it on by Spark's "
                "ALTER TABLE"
            )
        for number, field in enumerate(fields, start=1):
            field["metadata"] = {
                **(field.get("metadata") or {}),
                MAPPING_ID: number,
                PHYSICAL_NAME: field["name"],
            }
        self._configuration[_MOST_COLUMN_ID] = str(len(fields))

    def _check_manifests(self, metadata: Metadata) -> None:
        vectors = flag(metadata, "delta.enableDeletionVectors")
        if flag(metadata, props.MANIFESTS) and (vectors or column_mapping(metadata) != "none"):
            what = (
                "deletion vectors, whose rows they would show" if vectors else "column mapping, which they do not know"
            )
            raise self._refused(f"its symlink manifests ({props.MANIFESTS}) do not go with {what}")
        if vectors and flag(metadata, "delta.enableIcebergCompatV2"):
            raise self._refused("deletion vectors do not go with delta.enableIcebergCompatV2")

    def _set_comment(self) -> None:
        comment = self._asked.table_comment
        if comment is not None and comment != (self._comment or ""):
            self._comment = comment
            told = {"properties": encode({"comment": comment})}
            self._steps.append(Step("SET TBLPROPERTIES", told, "the table's comment is set"))

    # -- columns -------------------------------------------------------------------------------------------------------

    def _change_columns(self) -> None:
        asked = self._asked
        # Find all of them before the first is changed: each is called by the name that it has in the table.
        to_rename = [(self._find(column), name) for column, name in asked.rename_columns.items()]
        to_widen = [(self._find(column), type_called(kind)) for column, kind in asked.column_types.items()]
        to_tell = [(self._find(column), comment) for column, comment in asked.column_comments.items()]
        to_drop = [self._find(column) for column in asked.drop_columns]
        changed = [
            *(self._widen(found, kind) for found, kind in to_widen),
            *(self._tell(found, comment) for found, comment in to_tell),
        ]
        self._record_changes([found for found in changed if found is not None])
        self._drop_all(to_drop)
        self._rename_all(to_rename)

    def _find(self, column: str) -> Found:
        found = find(self._schema, parse_path(column))
        if found is None:
            names = _listed([field["name"] for field in self._schema["fields"]])
            raise self._refused(
                f"there is no column {column} that could be changed; it has {names}. The element of an array, the key "
                "and the value of a map are no columns"
            )
        return found

    def _widen(self, found: Found, kind: str) -> Found | None:
        field = found.field
        before = name_of(field["type"])
        if before == kind:
            return None
        metadata = self._metadata()
        if not flag(metadata, _WIDENING):
            raise self._refused(
                f"column {found} is {sql_name(before)}, and types are widened only with type widening: set the "
                f"property {_WIDENING}='true', in the same task if you like"
            )
        if not is_wider(before, kind):
            raise self._refused(
                f"column {found} is {sql_name(before)}, and {sql_name(kind)} is no wider type of it. Wider are: a "
                "longer integer, DOUBLE instead of FLOAT or of an integer of up to 32 bits, a DECIMAL with room for "
                "all digits"
            )
        if found.path[0] in self._split:
            raise self._refused(f"{found} is a partition column, and its values in the log are of the type of now")
        if flag(metadata, "delta.enableIcebergCompatV2"):
            raise self._refused("it is kept compatible with Iceberg, which does not know all wider types")
        if GENERATION in (field.get("metadata") or {}):
            raise self._refused(f"column {found} is generated, and its expression has the type of now")
        self._check_unnamed(found, "widened")
        changes = [*((field.get("metadata") or {}).get(TYPE_CHANGES) or ()), {"toType": kind, "fromType": before}]
        field["type"] = kind
        field["metadata"] = {**(field.get("metadata") or {}), TYPE_CHANGES: changes}
        return found

    def _tell(self, found: Found, comment: str) -> Found | None:
        metadata = dict(found.field.get("metadata") or {})
        if metadata.get("comment", "") == comment:
            return None
        if comment:
            metadata["comment"] = comment
        else:
            metadata.pop("comment", None)
        found.field["metadata"] = metadata
        return found

    def _record_changes(self, changed: Sequence[Found]) -> None:
        # One column may have both another type and another comment.
        told = {found.path: {**found.field, "name": str(found)} for found in changed}
        if not told:
            return
        words = _listed([f"{written(path)} ({_sql(field)})" for path, field in told.items()])
        if len(told) == 1:
            self._steps.append(Step("CHANGE COLUMN", {"column": encode(*told.values())}, f"column {words} is changed"))
        else:
            self._steps.append(
                Step("CHANGE COLUMNS", {"columns": encode(list(told.values()))}, f"columns {words} are changed")
            )

    def _rename_all(self, to_rename: Sequence[tuple[Found, str]]) -> None:
        to_rename = [(found, name) for found, name in to_rename if found.field["name"] != name]
        for found, name in to_rename:
            self._check_mapped(found, "renamed")
            self._check_unnamed(found, "renamed")
            if name.lower() in props.OF_CHANGE_FEED and flag(self._metadata(), props.CHANGE_FEED):
                raise self._refused(f"the change data feed keeps the name {name} for itself")
        names = {found.path: name for found, name in to_rename}
        self._change_statistics(lambda path: _renamed(path, names))
        # All at once: columns may take each other's names.
        new_names = {found.path[0]: name for found, name in to_rename if len(found.path) == 1}
        self._split = [new_names.get(column, column) for column in self._split]
        for found, name in to_rename:
            found.field["name"] = name
            new = written(_renamed(found.path, names))
            told = {"oldColumnPath": str(found), "newColumnPath": new}
            self._steps.append(Step("RENAME COLUMN", told, f"column {found} is called {new}"))
        for found, name in to_rename:
            if sum(field["name"].lower() == name.lower() for field in found.siblings) > 1:
                raise self._refused(f"column {found} cannot be called {name}, as another one is called so")

    def _drop_all(self, to_drop: Sequence[Found]) -> None:
        if not to_drop:
            return
        for found in to_drop:
            self._check_mapped(found, "dropped")
            if len(found.path) == 1 and found.field["name"] in self._split:
                raise self._refused(f"{found} is a partition column, by which its files are told apart")
            self._check_unnamed(found, "dropped", but=to_drop)
            if self._is_clustered_by(found):
                raise self._refused(f"it is clustered by {found}: change the clustering columns first")
        gone = [found.path for found in to_drop]
        self._change_statistics(
            lambda path: None if any(len(old) <= len(path) and meet(old, path) for old in gone) else path
        )
        for found in to_drop:
            # The same column named twice is gone already.
            found.siblings[:] = [field for field in found.siblings if field is not found.field]
            if not found.siblings:
                raise self._refused(f"{found} is the last column there is, or the last field of its struct")
        if all(field["name"] in self._split for field in self._schema["fields"]):
            raise self._refused("nothing but partition columns would be left")
        names = [str(found) for found in to_drop]
        self._steps.append(
            Step("DROP COLUMNS", {"columns": encode(names)}, f"the columns {_listed(names)} are dropped")
        )

    def _check_mapped(self, found: Found, done: str) -> None:
        if column_mapping(self._metadata()) == "none":
            raise self._refused(
                f"column {found} can be {done} only where files call columns by other names: switch column mapping on, "
                f"by set_properties={{'{props.MAPPING}': 'name'}}, in the same task if you like. Readers must know it "
                "then"
            )

    def _check_unnamed(self, found: Found, done: str, but: Sequence[Found] = ()) -> None:
        """Refuse a column that an expression of the table names."""
        gone = [other.field for other in but]
        for kind, name, expression in self._expressions(gone):
            if any(meet(found.path, path) for path in named_in(expression)):
                way = "name it in drop_checks too" if kind == "CHECK" else "drop that column first"
                raise self._refused(f"column {found} cannot be {done}: {kind} {name} ({expression}) names it; {way}")

    def _expressions(self, gone: Sequence[Field]) -> Iterator[tuple[str, str, str]]:
        for name in self._constraints():
            yield "CHECK", name, self._configuration[f"{CONSTRAINT}{name}"]
        for field in self._schema["fields"]:
            expression = (field.get("metadata") or {}).get(GENERATION)
            if expression and not any(field is other for other in gone):
                yield "the generated column", field["name"], expression
            if (rule := _invariant(field)) is not None and not any(field is other for other in gone):
                yield "the invariant of column", field["name"], rule

    def _is_clustered_by(self, found: Found) -> bool:
        physical = []
        for length in range(1, len(found.path) + 1):
            step = find(self._schema, found.path[:length])
            if step is not None:
                physical.append(str((step.field.get("metadata") or {}).get(PHYSICAL_NAME) or step.field["name"]))
        return any(meet(tuple(physical), tuple(column)) for column in self._snapshot.clustering_columns)

    def _change_statistics(self, new: Callable[[Path], Path | None]) -> None:
        """Rename the columns of which statistics are kept, as Delta does.

        :param new: returns the path that a column has from now on, ``None`` for one that is dropped.
        """
        if not (given := self._configuration.get(props.STATISTICS_COLUMNS)):
            return
        try:
            paths = parse_paths(given)
        except ValueError:
            raise self._refused(
                f"{props.STATISTICS_COLUMNS}={given!r} is no list of columns, so nobody knows which of them it would "
                "name then: unset it, in the same task if you like"
            ) from None
        kept: list[str] = []
        for column, path in paths:
            if (now := new(path)) is not None:
                kept.append(column if now == path else written(now))
        self._configuration[props.STATISTICS_COLUMNS] = ",".join(kept)

    def _refused(self, why: str) -> StatementRefusedError:
        return StatementRefusedError(f"{self._table} is not altered: {why}. Nothing was changed.")


def _same(path: Path, other: Path) -> bool:
    return len(path) == len(other) and meet(path, other)


def _comment(metadata: Metadata) -> str | None:
    return metadata.get("description")


def _expression(asked: Alteration, name: str) -> str:
    return next(text.strip() for key, text in asked.add_checks.items() if key.lower() == name.lower())


def _invariant(field: Mapping[str, Any]) -> str | None:
    """Return the rule that a column's values keep, as tables of before CHECK constraints have it."""
    given = (field.get("metadata") or {}).get(_INVARIANTS)
    return None if given is None else str(json.loads(given)["expression"]["expression"])


def _sql(field: Mapping[str, Any]) -> str:
    comment = (field.get("metadata") or {}).get("comment")
    return f"{sql_name(field['type'])}, {comment!r}" if comment else sql_name(field["type"])


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names)
