"""Partition values by type: what the strings of ``partitionValues`` stand for.

Spark has dates and times that Python cannot represent: years below 1 and above 9999. Those have their own classes
here; else one such value would make the whole table unreadable for us.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from typing import Any

import attrs

from airflow_provider_onelake.log.types import INTEGERS, JsonType, precision_and_scale

_BOOLEANS: Mapping[str, bool] = {
    **dict.fromkeys(("t", "true", "y", "yes", "1"), True),
    **dict.fromkeys(("f", "false", "n", "no", "0"), False),
}
_INTEGER = re.compile(r"[+-]?[0-9]+")
_FRACTION = re.compile(r"(?<=[0-9])\.[0-9]*\Z")
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,6})?")
_SPECIAL = re.compile(r"(?i)([+-]?)(?:inf|infinity)|nan")
# Spark casts strings to dates so: leading zeros may be missing, and text after a blank or a T is ignored.
_DATE = re.compile(r"([+-]?[0-9]{4,7})-([0-9]{1,2})-([0-9]{1,2})(?:[ T].*)?", re.DOTALL)
_TIME = re.compile(
    r"([+-]?[0-9]{4,6})-([0-9]{1,2})-([0-9]{1,2})"
    r"(?:[ T]([0-9]{1,2}):([0-9]{1,2})(?::([0-9]{1,2})(?:\.([0-9]+))?)? ?(Z|UTC|([+-])([0-9]{1,2})(?::?([0-9]{2}))?)?)?"
)

_DAY = 86_400_000_000
_EPOCH = date(1970, 1, 1).toordinal()
_FIRST_DAY, _LAST_DAY = date.min.toordinal() - _EPOCH, date.max.toordinal() - _EPOCH
_LEAST_LONG, _MOST_LONG = -(1 << 63), (1 << 63) - 1
_LEAST_INT, _MOST_INT = -(1 << 31), (1 << 31) - 1
_LONGEST_OFFSET = 18 * 60
_MOST_DIGITS = 38


@attrs.frozen
class FarDate:
    """A date before the year 1 or after the year 9999.

    :param days: days since 1970-01-01.
    """

    days: int

    def __str__(self) -> str:
        """Return the date as Spark spells it: ``+10000-01-01``, ``-0044-03-15``."""
        return _spelled(self.days)


@attrs.frozen
class FarTime:
    """A time before the year 1 or after the year 9999.

    :param micros: microseconds since 1970-01-01 00:00:00, in UTC or on the wall clock.
    :param zoned: whether the time is an instant, counted in UTC.
    """

    micros: int
    zoned: bool

    def __str__(self) -> str:
        """Return the time in the form in which Python spells a ``datetime``."""
        days, rest = divmod(self.micros, _DAY)
        time = (datetime.min + timedelta(microseconds=rest)).time()  # noqa: DTZ901 - the time of a day
        return f"{_spelled(days)} {time.isoformat()}{'+00:00' if self.zoned else ''}"


@attrs.frozen
class Unreadable:
    """A spelling that is no value of the column's type. It equals only the same spelling and has no order.

    :param spelling: the text as it stands in the log.
    """

    spelling: str

    def __str__(self) -> str:
        """Return the spelling, in quotes."""
        return repr(self.spelling)


PartitionValue = str | int | float | bool | bytes | Decimal | date | datetime | FarDate | FarTime | Unreadable | None
Partition = tuple[PartitionValue, ...]


def typed_value(spelling: str | None, column_type: JsonType) -> PartitionValue:
    """Return the value that a log's string stands for.

    :param spelling: the text as it stands in ``partitionValues``.
    :param column_type: Spark's name of the column's type.
    :returns: the value; ``None`` for NULL and for an empty string. Instants are in UTC, and have no zone where the
        spelling has none.
    :raises ValueError: the spelling is no value of the type.
    """
    if spelling is None or spelling == "":
        return None
    if column_type == "binary":
        # Spark and deltalake read a binary value as the bytes of its text.
        return spelling.encode("utf-8", "surrogatepass")
    if not isinstance(column_type, str):
        return spelling
    text = trimmed(spelling)
    if column_type in INTEGERS:
        # Spark ignores the digits behind a decimal point.
        return integer(_FRACTION.sub("", text), column_type)
    if column_type == "boolean":
        if text.lower() not in _BOOLEANS:
            raise ValueError(spelling)
        return _BOOLEANS[text.lower()]
    if column_type == "date":
        return date_of(days_of(text))
    if column_type in ("timestamp", "timestamp_ntz"):
        micros, zoned = micros_of(text)
        # Some engines write a zone even for a TIMESTAMP_NTZ. Spark ignores the zone, so add its offset again.
        return time_of(micros + (zoned or 0), None) if column_type == "timestamp_ntz" else time_of(micros, zoned)
    if column_type in ("float", "double"):
        return floating(text, single=column_type == "float")
    sized = precision_and_scale(column_type)
    return spelling if sized is None else _decimal(text, *sized)


def trimmed(spelling: str) -> str:
    """Return a text without the blanks around it that Spark ignores."""
    return spelling.strip(" \t\n\r")


def integer(spelling: str, column_type: str) -> int:
    """Return the whole number that a text stands for.

    :param column_type: Spark's name of the integer type.
    :raises ValueError: the text is no whole number, or the number is out of the type's range.
    """
    if not _INTEGER.fullmatch(spelling):
        raise ValueError(spelling)
    number, bound = int(spelling), 1 << (8 * INTEGERS[column_type] - 1)
    if not -bound <= number < bound:
        raise ValueError(spelling)
    return number


def floating(spelling: str, *, single: bool) -> float:
    """Return the floating point number that a text stands for.

    :param single: whether to round the number to single precision.
    :raises ValueError: the text is no number.
    """
    special = _SPECIAL.fullmatch(spelling)
    if special is not None:
        # Always return the one object math.nan: NaN does not equal NaN, but tuples compare by identity first, so that
        # all NaN values are one partition.
        return math.nan if special[1] is None else math.copysign(math.inf, -1.0 if special[1] == "-" else 1.0)
    if not _NUMBER.fullmatch(spelling):
        raise ValueError(spelling)
    return to_single(spelling) if single else float(spelling)


def to_single(spelling: str) -> float:
    """Return, as a double, the single-precision number that is nearest to a number.

    :param spelling: the number as text.
    """
    double = float(spelling)
    exact, near = Decimal(spelling), Decimal(double)
    # Rounding to double first and then to single goes wrong only where the double lies half-way between two singles, so
    # that its last bit is 0, and the exact number does not. Take the next double on the side of the exact number then.
    if exact != near and not struct.unpack("q", struct.pack("d", double))[0] & 1:
        double = math.nextafter(double, math.inf if exact > near else -math.inf)
    try:
        return float(struct.unpack("f", struct.pack("f", double))[0])
    except OverflowError:
        return math.copysign(math.inf, double)


def _decimal(spelling: str, precision: int, scale: int) -> Decimal:
    if not _NUMBER.fullmatch(spelling):
        raise ValueError(spelling)
    number = Decimal(spelling)
    if not fits(number, precision, scale):
        # Like Spark, round digits beyond the type's scale.
        try:
            number = number.quantize(Decimal((0, (1,), -scale)), ROUND_HALF_UP, Context(prec=_MOST_DIGITS))
        except InvalidOperation:
            raise ValueError(spelling) from None
        if not fits(number, precision, scale):
            raise ValueError(spelling)
    return number


def fits(number: Decimal, precision: int, scale: int) -> bool:
    """Say whether a decimal type holds a number exactly.

    :param number: a finite number.
    :param precision: the type's number of digits.
    :param scale: how many of them are behind the point.
    """
    before, behind = digits(number)
    return before <= precision - scale and behind <= scale


def digits(number: Decimal) -> tuple[int, int]:
    """Return how many digits a number has before and behind the point, without leading and trailing zeros.

    :param number: a finite number.
    """
    # Do not use normalize(): it rounds to the context's 28 digits.
    _, figures, exponent = number.as_tuple()
    assert isinstance(exponent, int)
    text = "".join(map(str, figures)).lstrip("0")
    cut = text.rstrip("0")
    exponent += len(text) - len(cut)
    return (max(0, len(cut) + exponent), max(0, -exponent)) if cut else (0, 0)


def days_of(spelling: str) -> int:
    """Return the days from 1970-01-01 to a date.

    :param spelling: the date in the proleptic Gregorian calendar; a time after it is ignored.
    :raises ValueError: the text is no date, or the date is out of Spark's range.
    """
    parts = _DATE.fullmatch(spelling)
    if parts is None:
        raise ValueError(spelling)
    days = _days(int(parts[1]), int(parts[2]), int(parts[3]))
    if not _LEAST_INT <= days <= _MOST_INT:
        raise ValueError(spelling)
    return days


def micros_of(spelling: str) -> tuple[int, int | None]:
    """Return the microseconds from 1970-01-01 00:00:00 to a time, and its zone's offset in microseconds.

    :param spelling: the time. Digits of a second behind the sixth are ignored.
    :returns: the microseconds, counted in UTC if the time has a zone; and the offset, ``None`` if it has none.
    :raises ValueError: the text is no time, or the time is out of Spark's range.
    """
    parts = _TIME.fullmatch(spelling)
    if parts is None:
        raise ValueError(spelling)
    hour, minute, second, zone_hour, zone_minute = (int(part or 0) for part in parts.group(4, 5, 6, 10, 11))
    ahead = zone_hour * 60 + zone_minute
    if hour > 23 or minute > 59 or second > 59 or zone_minute > 59 or ahead > _LONGEST_OFFSET:
        raise ValueError(spelling)
    micros = int((parts[7] or "0")[:6].ljust(6, "0"))
    wall = _days(int(parts[1]), int(parts[2]), int(parts[3])) * _DAY
    wall += ((hour * 60 + minute) * 60 + second) * 1_000_000 + micros
    offset = None if parts[8] is None else (-ahead if parts[9] == "-" else ahead) * 60_000_000
    counted = wall - (offset or 0)
    if not _LEAST_LONG <= counted <= _MOST_LONG:
        raise ValueError(spelling)
    return counted, offset


def date_of(days: int) -> date | FarDate:
    """Return the date that lies so many days after 1970-01-01; a negative number counts back."""
    return date.fromordinal(days + _EPOCH) if _FIRST_DAY <= days <= _LAST_DAY else FarDate(days)


def time_of(micros: int, zone: Any) -> datetime | FarTime:
    """Return the time that lies so many microseconds after 1970-01-01 00:00:00; a negative number counts back.

    :param zone: ``None`` for a time without a zone, anything else for an instant in UTC.
    """
    if not _FIRST_DAY * _DAY <= micros < (_LAST_DAY + 1) * _DAY:
        return FarTime(micros, zone is not None)
    wall = datetime(1970, 1, 1) + timedelta(microseconds=micros)  # noqa: DTZ001 - a wall clock's, until it gets its zone
    return wall if zone is None else wall.replace(tzinfo=UTC)


def days_in(value: Any) -> int:
    """Return the days from 1970-01-01 to a typed date.

    :param value: a ``date`` or a :class:`FarDate`.
    """
    return value.days if isinstance(value, FarDate) else value.toordinal() - _EPOCH


def micros_in(value: Any) -> int:
    """Return the microseconds from 1970-01-01 00:00:00 to a typed time or to the midnight at which a date begins.

    :param value: a ``datetime``, :class:`FarTime`, ``date`` or :class:`FarDate`.
    """
    if isinstance(value, FarTime):
        return value.micros
    if isinstance(value, datetime):
        since = value.replace(tzinfo=None) - (value.utcoffset() or timedelta()) - datetime(1970, 1, 1)  # noqa: DTZ001
        return since // timedelta(microseconds=1)
    return days_in(value) * _DAY


def without_zone(value: PartitionValue) -> bool:
    """Say whether a typed value is a time without a zone."""
    return (isinstance(value, datetime) and value.tzinfo is None) or (isinstance(value, FarTime) and not value.zoned)


# The calendar repeats every 400 years, so years that Python does not know are taken as years of its first 400.
_CYCLE_YEARS, _CYCLE_DAYS = 400, 146_097


def _days(year: int, month: int, day: int) -> int:
    cycles, rest = divmod(year - 1, _CYCLE_YEARS)
    return date(rest + 1, month, day).toordinal() - _EPOCH + cycles * _CYCLE_DAYS


def _spelled(days: int) -> str:
    cycles, rest = divmod(days + _EPOCH - 1, _CYCLE_DAYS)
    day = date.fromordinal(rest + 1)
    year = day.year + cycles * _CYCLE_YEARS
    sign = "-" if year < 0 else "+" if year > 9999 else ""
    return f"{sign}{abs(year):04d}-{day:%m-%d}"
