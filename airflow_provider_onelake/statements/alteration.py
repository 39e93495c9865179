"""What an ALTER asks for, what of it is right for no table, and which statements a table still needs for it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import attrs

from airflow_provider_onelake.buffers.buffer import NOT_TWINNED
from airflow_provider_onelake.exceptions import InvalidWriteError, StatementRefusedError
from airflow_provider_onelake.log import properties as props
from airflow_provider_onelake.log.commits import digest_of
from airflow_provider_onelake.log.features import all_features_of
from airflow_provider_onelake.log.paths import FieldAt, Path, find, parse_path
from airflow_provider_onelake.log.schema import constraints
from airflow_provider_onelake.log.snapshot import Snapshot
from airflow_provider_onelake.log.types import name_of, sql_name, type_called
from airflow_provider_onelake.statements.statement import check_expression


@attrs.frozen
class Left:
    """What is left to do of an ALTER on one version of a table.

    :param statements: for Spark, in order, each without ``ALTER TABLE`` and the table's name.
    :param by_hand: properties that would start work in a private table: the new value, ``None`` for one to be unset.
    :param checks: the CHECK constraints that the statements add: expression by name, in lower case.
    """

    statements: tuple[str, ...]
    by_hand: Mapping[str, str | None]
    checks: Mapping[str, str]


@attrs.frozen(kw_only=True)
class Alteration:
    """What is asked for, as the parameters of a ``OneLakeAlterOperator`` say it.

    :raises InvalidWriteError: nothing is asked for, or a part of it can be right for no table.
    :raises TablePropertyError: a property must not be changed so.
    """

    rename_columns: Mapping[str, str] = attrs.field(factory=dict)
    drop_columns: tuple[str, ...] = ()
    column_types: Mapping[str, str] = attrs.field(factory=dict)
    column_comments: Mapping[str, str] = attrs.field(factory=dict)
    table_comment: str | None = None
    set_properties: Mapping[str, str] = attrs.field(factory=dict)
    unset_properties: tuple[str, ...] = ()
    add_checks: Mapping[str, str] = attrs.field(factory=dict)
    drop_checks: tuple[str, ...] = ()

    def __attrs_post_init__(self) -> None:
        if not self._requested:
            raise InvalidWriteError(
                f"Nothing is to be altered: give one of {', '.join(attrs.fields_dict(type(self)))}."
            )
        for name, value in self.set_properties.items():
            props.check_set(name, value)
        for name in self.unset_properties:
            props.check_unset(name)
        for name, expression in self.add_checks.items():
            check_expression(f"add_checks[{name!r}]", expression, "CHECK")
        for parameter, value in self._requested.items():
            names = [_name(parameter, name) for name in value] if isinstance(value, Mapping | tuple) else []
            texts = value.values() if isinstance(value, Mapping) else () if isinstance(value, tuple) else (value,)
            if not all(isinstance(text, str) for text in texts):
                raise InvalidWriteError(f"{parameter}={value!r} must have texts only. Nothing was changed.")
            if len(set(names)) < len(names):
                raise InvalidWriteError(
                    f"{parameter}: Delta knows names in any case, and one is there twice. Nothing was changed: name it "
                    "once."
                )
        for column, kind in self.column_types.items():
            try:
                type_called(kind)
            except ValueError:
                raise InvalidWriteError(
                    f"column_types[{column!r}]={kind!r} must be a type such as BIGINT, DOUBLE or DECIMAL(20,2). "
                    "Nothing was changed."
                ) from None
        if both := set(map(props.spelled, self.set_properties)) & set(map(props.spelled, self.unset_properties)):
            raise InvalidWriteError(f"The property {min(both)} is to be set and to be unset. Nothing was changed.")
        gone = {_name("", column) for column in (*self.rename_columns, *self.drop_columns)}
        for column, name in self.rename_columns.items():
            if (*_name("", column)[:-1], name.lower()) in gone - {_name("", column)}:
                raise InvalidWriteError(
                    f"rename_columns: {name} is the name of another column that is renamed or dropped too, and a clear "
                    "could not tell which of the two it finds. Nothing was changed: do that in a task before this one."
                )

    @property
    def _requested(self) -> dict[str, Any]:
        return {name: value for name, value in attrs.asdict(self, recurse=False).items() if value not in (None, (), {})}

    def __str__(self) -> str:
        return f"ALTER TABLE ({', '.join(self._requested)})"

    @property
    def digest(self) -> str:
        """Tells the ALTER from another one of the same task."""
        return digest_of(json.dumps(attrs.asdict(self, recurse=False), sort_keys=True).encode())

    def left(self, snapshot: Snapshot) -> Left:
        """Return what a table does not have yet, in the order in which it is done.

        :param snapshot: of the table.
        :raises StatementRefusedError: a column is there under neither of its names, or the type of a partition column
            is to be another one.
        """
        has = {name.lower(): text for name, text in constraints(snapshot.metadata).items()}
        asked = {name.lower(): text.strip() for name, text in self.add_checks.items()}
        checks = {name: text for name, text in asked.items() if has.get(name) != text}
        dropped = [name for name in map(str.lower, self.drop_checks) if name in has and asked.get(name) != has[name]]
        to_set = dict(self._properties(snapshot))
        unset = [name for name in map(props.spelled, self.unset_properties) if name in snapshot.configuration]
        by_hand = {name: to_set.pop(name, None) for name in NOT_TWINNED if name in (*to_set, *unset)}
        comment, there = self.table_comment, snapshot.metadata.get("description") or ""
        if comment and comment != there:
            to_set["comment"] = comment
        elif comment == "" and there:
            unset.append("comment")
        names = ", ".join(_text(name) for name in unset if name not in by_hand)
        values = ", ".join(f"{_text(name)} = {_text(value)}" for name, value in to_set.items())
        statements = [
            *(f"DROP CONSTRAINT {_sql((name,))}" for name in dropped),
            *([f"UNSET TBLPROPERTIES ({names})"] if names else []),
            *([f"SET TBLPROPERTIES ({values})"] if values else []),
            *self._of_columns(snapshot),
            *(f"ADD CONSTRAINT {_sql((name,))} CHECK (\n{text}\n)" for name, text in checks.items()),
        ]
        return Left(tuple(statements), by_hand, checks)

    def _properties(self, snapshot: Snapshot) -> Iterator[tuple[str, str]]:
        for given, value in self.set_properties.items():
            name = props.spelled(given)
            text = value.strip() if name.startswith("delta.") else value
            if given.lower().startswith(props.FEATURE):
                feature = props.feature_of(given, value)
                if feature not in all_features_of(snapshot.protocol):
                    yield f"{props.FEATURE}{feature}", "supported"
            elif snapshot.configuration.get(name) != text:
                yield name, text

    def _of_columns(self, snapshot: Snapshot) -> Iterator[str]:
        schema = json.loads(snapshot.metadata["schemaString"])
        new = {_name("", column): name for column, name in self.rename_columns.items()}

        def column_at(column: str) -> FieldAt:
            """Return a column, which may be renamed already."""
            path, lower = parse_path(column), _name("", column)
            renamed = tuple(new.get(lower[: at + 1], name) for at, name in enumerate(path))
            if (here := find(schema, path) or find(schema, renamed)) is None:
                raise StatementRefusedError(
                    f"{snapshot.table} is not altered: it has no column {column}. Nothing was changed."
                )
            return here

        for column, kind in self.column_types.items():
            at = column_at(column)
            if name_of(at.field["type"]) == type_called(kind):
                continue
            if at.path[0] in snapshot.partitioning.types:
                raise StatementRefusedError(
                    f"{snapshot.table} is not altered: {column} is a partition column, and its values in the log are "
                    "of the type of now. Nothing was changed."
                )
            yield f"ALTER COLUMN {_sql(at.path)} TYPE {sql_name(type_called(kind))}"
        for column, comment in self.column_comments.items():
            at = column_at(column)
            if (at.field.get("metadata") or {}).get("comment", "") != comment:
                yield f"ALTER COLUMN {_sql(at.path)} COMMENT {_text(comment)}"
        if gone := [there.path for column in self.drop_columns if (there := find(schema, parse_path(column)))]:
            yield f"DROP COLUMNS ({', '.join(map(_sql, gone))})"
        # A field comes before the struct that it stands in, because each is called by the names of before.
        for column, name in sorted(self.rename_columns.items(), key=lambda each: -len(parse_path(each[0]))):
            at = column_at(column)
            if at.field["name"] != name:
                yield f"RENAME COLUMN {_sql(at.path)} TO {_sql((name,))}"


def _name(parameter: str, name: Any) -> Any:
    """Return a name as it is compared with others, because Delta knows all names in any case."""
    try:
        if "properties" in parameter or "checks" in parameter:
            return props.spelled(name) if "properties" in parameter else name.lower()
        return tuple(map(str.lower, parse_path(name)))
    except (ValueError, TypeError, AttributeError):
        raise InvalidWriteError(
            f"{parameter}: {name!r} is no name. A field of a struct is address.city, and a name with a dot stands in "
            "backticks. Nothing was changed."
        ) from None


def _sql(path: Path) -> str:
    return ".".join(f"`{name.replace('`', '``')}`" for name in path)


def _text(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
