"""What an ALTER asks for, and what of it can be refused without a table."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from airflow_provider_onelake.commit.statement import check_expression
from airflow_provider_onelake.exceptions import InvalidWriteError
from airflow_provider_onelake.log import properties as props
from airflow_provider_onelake.log.commits import digest_of
from airflow_provider_onelake.log.paths import Path, meet, parse_path
from airflow_provider_onelake.log.types import type_called


@attrs.frozen(kw_only=True)
class Alteration:
    """What is asked for. Columns are called by their paths before the ALTER, except in ``add_checks``.

    :param rename_columns: the new name, without a path, by column.
    :param drop_columns: columns.
    :param column_types: the wider type by column, in SQL.
    :param column_comments: the comment by column; an empty one takes the comment away.
    :param table_comment: an empty one takes the comment away; ``None`` leaves it.
    :param set_properties: values by name.
    :param unset_properties: names; one that is not set is no error.
    :param add_checks: SQL expressions by the name of the constraint.
    :param drop_checks: names of constraints.
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
        if not any(value or (value is not None and name == "table_comment") for name, value in self._asked()):
            names = ", ".join(name for name, _ in self._asked())
            raise InvalidWriteError(f"Nothing is to be altered: give one of {names}.")
        for name, value in self.set_properties.items():
            props.check_set(name, value)
        for name in self.unset_properties:
            props.check_unset(name)
        _check_texts(self)
        dropped = [_path("drop_columns", column) for column in self.drop_columns]
        for name in ("rename_columns", "column_types", "column_comments"):
            for column in getattr(self, name):
                at = _path(name, column)
                if any(len(path) <= len(at) and meet(path, at) for path in dropped):
                    raise InvalidWriteError(f"{name}: column {column} is to be dropped too. Nothing was changed.")
            _check_once(name, [tuple(map(str.lower, parse_path(column))) for column in getattr(self, name)])
        _check_once("set_properties", [props.spelled(name) for name in self.set_properties])
        both = {props.spelled(name) for name in self.set_properties} & set(map(props.spelled, self.unset_properties))
        if both:
            raise InvalidWriteError(f"The property {min(both)} is to be set and to be unset. Nothing was changed.")

    def __str__(self) -> str:
        return f"ALTER TABLE ({', '.join(name for name, value in self._asked() if value is not None and value != ())})"

    @property
    def digest(self) -> str:
        """Tells the ALTER from another one of the same task."""
        return digest_of(json.dumps(dict(self._asked()), sort_keys=True).encode())

    def _asked(self) -> list[tuple[str, Any]]:
        return list(attrs.asdict(self, recurse=False).items())


def _check_texts(asked: Alteration) -> None:
    for column, name in asked.rename_columns.items():
        _path("rename_columns", column)
        if not isinstance(name, str) or not name.strip():
            raise InvalidWriteError(f"rename_columns[{column!r}]={name!r} must be a name. Nothing was changed.")
    for column, kind in asked.column_types.items():
        _path("column_types", column)
        try:
            type_called(kind)
        except (ValueError, AttributeError):
            raise InvalidWriteError(
                f"column_types[{column!r}]={kind!r} must be a type such as BIGINT, DOUBLE or DECIMAL(20,2). Nothing "
                "was changed."
            ) from None
    for column, comment in asked.column_comments.items():
        _path("column_comments", column)
        if not isinstance(comment, str):
            raise InvalidWriteError(f"column_comments[{column!r}]={comment!r} must be a text. Nothing was changed.")
    if asked.table_comment is not None and not isinstance(asked.table_comment, str):
        raise InvalidWriteError(f"table_comment={asked.table_comment!r} must be a text. Nothing was changed.")
    for name, expression in asked.add_checks.items():
        _check_name("add_checks", name)
        check_expression(f"add_checks[{name!r}]", expression, "CHECK")
    for name in asked.drop_checks:
        _check_name("drop_checks", name)
    _check_once("add_checks", [name.lower() for name in asked.add_checks])


def _check_once(parameter: str, names: Sequence[Any]) -> None:
    if len(set(names)) < len(names):
        raise InvalidWriteError(
            f"{parameter}: Delta knows names in any case, and one is there twice. Nothing was changed: name it once."
        )


def _check_name(parameter: str, name: Any) -> None:
    if not isinstance(name, str) or not name.strip():
        raise InvalidWriteError(f"{parameter}: {name!r} is no name of a constraint. Nothing was changed.")


def _path(parameter: str, column: Any) -> Path:
    try:
        return parse_path(column)
    except (ValueError, TypeError):
        raise InvalidWriteError(
            f"{parameter}: {column!r} is no column. A field of a struct is address.city, and a name with a dot stands "
            "in backticks. Nothing was changed."
        ) from None
