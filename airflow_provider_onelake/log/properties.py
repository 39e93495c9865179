"""Properties of tables that may be set and unset here, or given to a new table, and why others are refused.

Delta knows a property that begins with ``delta.`` in any case, and keeps it in the spelling of its documentation.

https://docs.delta.io/latest/table-properties.html
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import attrs

from airflow_provider_onelake.exceptions import TablePropertyError
from airflow_provider_onelake.log.features import ADDED_BY_NAME
from airflow_provider_onelake.log.schema import CONSTRAINT
from airflow_provider_onelake.log.snapshot import interval_days

FEATURE = "delta.feature."
CHANGE_FEED = "delta.enableChangeDataFeed"
# What the change feed adds to rows, so a table that has one has no columns by these names.
OF_CHANGE_FEED = ("_change_type", "_commit_version", "_commit_timestamp")
MAPPING = "delta.columnMapping.mode"
MANIFESTS = "delta.compatibility.symlinkFormatManifest.enabled"
STATISTICS_COLUMNS = "delta.dataSkippingStatsColumns"

_SIZE = re.compile(r"[1-9][0-9]*\s*(?:b|k|kb|m|mb|g|gb|t|tb)?", re.IGNORECASE)


@attrs.frozen
class _Kind:
    """What values a property has.

    :param what: the values, in words.
    :param is_valid: says whether a text is one of them.
    """

    what: str
    is_valid: Callable[[str], bool]

    def check(self, name: str, value: str, became: str) -> None:
        """Refuse a value that is none of these.

        :param became: what became of the table then, for the message.
        """
        if not self.is_valid(value.strip()):
            raise TablePropertyError(f"{name}={value!r}: the value is {self.what}. {became}.")


def _number(text: str, least: int) -> bool:
    return re.fullmatch(r"-?[0-9]{1,18}", text) is not None and int(text) >= least


def _interval(text: str) -> bool:
    try:
        return interval_days(text, 0.0) >= 0 and bool(text.strip())
    except TablePropertyError:
        return False


_FLAG = _Kind("true or false", lambda text: text.lower() in ("true", "false"))
_INTERVAL = _Kind("an interval of weeks, days, hours, minutes or seconds, such as 'interval 30 days'", _interval)
_KNOWN: Mapping[str, _Kind] = {
    "delta.appendOnly": _FLAG,
    "delta.autoOptimize.autoCompact": _FLAG,
    "delta.autoOptimize.optimizeWrite": _FLAG,
    "delta.checkpoint.writeStatsAsJson": _FLAG,
    "delta.checkpoint.writeStatsAsStruct": _FLAG,
    "delta.checkpointInterval": _Kind("a whole number above 0", lambda text: _number(text, 1)),
    "delta.checkpointPolicy": _Kind("classic or v2", lambda text: text.lower() in ("classic", "v2")),
    "delta.checkpointRetentionDuration": _INTERVAL,
    MAPPING: _Kind("name", lambda text: text.lower() == "name"),
    MANIFESTS: _FLAG,
    "delta.dataSkippingNumIndexedCols": _Kind("a whole number, -1 for all columns", lambda text: _number(text, -1)),
    "delta.deletedFileRetentionDuration": _INTERVAL,
    CHANGE_FEED: _FLAG,
    "delta.enableDeletionVectors": _FLAG,
    "delta.enableExpiredLogCleanup": _FLAG,
    "delta.enableFullRetentionRollback": _FLAG,
    "delta.enableTypeWidening": _FLAG,
    "delta.logRetentionDuration": _INTERVAL,
    "delta.parquet.vorder.default": _FLAG,
    "delta.parquet.vorder.enabled": _FLAG,
    "delta.randomPrefixLength": _Kind("a whole number above 0", lambda text: _number(text, 1)),
    "delta.randomizeFilePrefixes": _FLAG,
    "delta.targetFileSize": _Kind("a size, such as 128mb", lambda text: _SIZE.fullmatch(text) is not None),
}
_EXPIRING = "delta.setTransactionRetentionDuration"
# They may be taken away, though not be set.
_ONLY_UNSET = (_EXPIRING, STATISTICS_COLUMNS)
_SPELLED: Mapping[str, str] = {name.lower(): name for name in (*_KNOWN, *_ONLY_UNSET)}

# What a new table may have besides: nobody has written to it yet. Column mapping by id is refused with its reason by
# `new_protocol`.
_KNOWN_OF_NEW: Mapping[str, _Kind] = {
    **_KNOWN,
    MAPPING: _Kind("name or none", lambda text: text.lower() in ("name", "none", "id")),
    STATISTICS_COLUMNS: _Kind("names of columns, with commas between", bool),
}
_CONDITION = _Kind("a condition in Spark SQL, such as 'id > 0'", bool)
# Of these, `new_protocol` refuses what a new table cannot have, and says why.
_OF_PROTOCOL = (FEATURE, "delta.minreaderversion", "delta.minwriterversion", "delta.enable")
_UNCHANGED = "Nothing was changed"
_NOT_CREATED = "Nothing was created"

_BY_SPARK = "it takes more than a property, so switch it by Spark's ALTER TABLE while no writer is at work"
_OWN = "the table keeps it for itself"
# Why a property is refused, by the beginning of its name in lower case. The first one that fits decides.
_REASONS: tuple[tuple[str, str], ...] = (
    ("delta.constraints.", "CHECK constraints are changed by add_checks and drop_checks"),
    (_EXPIRING.lower(), "the records by which a rerun finds what it has written would expire"),
    (STATISTICS_COLUMNS.lower(), "its columns are checked by Spark's ALTER TABLE only"),
    ("delta.columnmapping.mode", "column mapping is switched on by name, and not off or by id"),
    ("delta.columnmapping.", _OWN),
    ("delta.incommittimestampenablement", _OWN),
    ("delta.rowtracking", _OWN),
    ("delta.enableincommittimestamps", _BY_SPARK),
    ("delta.enablerowtracking", _BY_SPARK),
    ("delta.enableicebergcompat", _BY_SPARK),
    ("delta.universalformat", _BY_SPARK),
    ("delta.coordinatedcommits", "commits would go through a catalog, not through the log"),
    ("delta.managedcommit", "commits would go through a catalog, not through the log"),
    ("delta.minreaderversion", f"features are named one by one: {FEATURE}<name> = 'supported'"),
    ("delta.minwriterversion", f"features are named one by one: {FEATURE}<name> = 'supported'"),
    ("delta.", "this version does not know it, and Spark refuses properties of Delta that it does not know"),
    ("comment", "the table's comment is set by table_comment of a OneLakeAlterOperator"),
)
_RESERVED = ("comment", "external", "is_managed_location", "location", "owner", "provider")


def spelled(name: str) -> str:
    """Return a property's name as Delta keeps it: Delta's own names are known in any case."""
    return _SPELLED.get(name.lower(), name)


def check_set(name: str, value: Any) -> None:
    """Refuse a property that must not be set here, or not to a value.

    :param name: as its author wrote it.
    :raises TablePropertyError: the message says why, and what to do.
    """
    _check_text(name, value, _UNCHANGED)
    if name.lower().startswith(FEATURE):
        feature_of(name, value)
        return
    kind = _KNOWN.get(spelled(name))
    if kind is None:
        _refuse(name, _UNCHANGED)
    else:
        kind.check(name, value, _UNCHANGED)


def check_new(name: str, value: Any) -> None:
    """Refuse a property with which no table must be created, or not with this value, as far as its text tells.

    :param name: as its author wrote it.
    :raises TablePropertyError: the message says why, and what to do.
    """
    _check_text(name, value, _NOT_CREATED)
    kind = _CONDITION if name.startswith(CONSTRAINT) else _KNOWN_OF_NEW.get(spelled(name))
    if kind is not None:
        kind.check(name, value, _NOT_CREATED)
    elif not name.lower().startswith(_OF_PROTOCOL):
        _refuse(name, _NOT_CREATED)


def of_new_table(properties: Mapping[str, Any]) -> dict[str, str]:
    """Return the properties of a table that is to be created, as Delta keeps them.

    :param properties: as their author wrote them.
    :raises TablePropertyError: no table must be created with one of them, or one is there twice.
    """
    found: dict[str, str] = {}
    for given, value in properties.items():
        check_new(given, value)
        name = spelled(given)
        if name in found:
            raise TablePropertyError(
                f"The property {name} is there twice, as Delta knows its properties in any case. {_NOT_CREATED}: name "
                "it once."
            )
        found[name] = value.strip() if name.startswith("delta.") else value
    return found


def check_unset(name: Any) -> None:
    """Refuse a property that must not be taken away here.

    :raises TablePropertyError: the message says why.
    """
    if not isinstance(name, str) or not name.strip():
        raise TablePropertyError(f"{name!r} is no name of a property. {_UNCHANGED}.")
    if spelled(name) == MAPPING or spelled(name) not in (*_KNOWN, *_ONLY_UNSET):
        _refuse(name, _UNCHANGED)


def feature_of(name: str, value: str) -> str:
    """Return the feature that a property ``delta.feature.<name>`` asks for.

    :raises TablePropertyError: it cannot be switched on so.
    """
    wanted = name[len(FEATURE) :].lower()
    found = next((feature for feature in ADDED_BY_NAME if feature.lower() == wanted), None)
    if found is None or value.strip().lower() not in ("supported", "enabled"):
        raise TablePropertyError(
            f"{name}={value!r}: a feature is switched on by the value 'supported', and only one of "
            f"{', '.join(sorted(ADDED_BY_NAME))}. Nothing was changed: switch others on by Spark's ALTER TABLE."
        )
    return found


def _check_text(name: Any, value: Any, became: str) -> None:
    if not isinstance(name, str) or not name.strip():
        raise TablePropertyError(f"{name!r} is no name of a property. {became}.")
    if not isinstance(value, str):
        raise TablePropertyError(
            f"{name}={value!r}: properties are texts, such as 'true' or '30'. {became}: write it as one."
        )


def _refuse(name: str, became: str) -> None:
    lower = name.lower()
    reason = next((reason for start, reason in _REASONS if lower.startswith(start)), None)
    if not lower.startswith("delta."):
        # Anything else is the user's own, but for the few names that Spark keeps for itself.
        if lower not in _RESERVED:
            return
        reason = reason or "Spark keeps this name for itself"
    done = "given to a new table" if became == _NOT_CREATED else "changed here"
    raise TablePropertyError(f"The property {name} is not {done}: {reason}. {became}.")
