"""What an identity may do with a table, and which step decided: the answer of a check of access."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import attrs


class Right(StrEnum):
    """What may be done with a table. To commit is a create-only put, as every commit is one."""

    READ = "read"
    WRITE = "write"
    COMMIT = "commit"
    DELETE = "delete"


class Step(StrEnum):
    """What decides about a right, in OneLake's order. ``PROBE``: the store was tried, and no other step is known."""

    WORKSPACE_ROLE = "workspace role"
    ITEM_PERMISSION = "item permission"
    DATA_ACCESS_ROLE = "data access role"
    SHORTCUT_TARGET = "shortcut's target"
    PROBE = "probe"


@attrs.frozen(kw_only=True)
class Decision:
    """Whether an identity has a right, and why.

    :param right: that is asked for.
    :param allowed: ``None`` if it is not known.
    :param step: that decided.
    :param name: of the role or the permission that decided; ``None`` where it has none, or where it is not shown.
    :param why: a sentence for people.
    :param found: how it was found out, for people.
    :param ask_for: what to ask an administrator for; ``None`` if the right is there.
    """

    right: Right
    allowed: bool | None
    step: Step
    name: str | None = None
    why: str
    found: str
    ask_for: str | None = None

    @property
    def decided(self) -> str:
        """The step and the name, for people."""
        return f"{self.step} {self.name}" if self.name else str(self.step)

    def __str__(self) -> str:
        said = {True: "yes", False: "no", None: "unknown"}[self.allowed]
        ask = f" Ask for {self.ask_for}." if self.ask_for else ""
        return f"{self.right}: {said}, by the {self.decided}. {self.why}{ask} (Found by {self.found}.)"

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON takes it."""
        return {name: str(value) if isinstance(value, StrEnum) else value for name, value in attrs.asdict(self).items()}


@attrs.frozen
class AccessReport:
    """What the identity that signs in may do with a table.

    :param table: its address.
    :param decisions: one for each right, in the order of :class:`Right`.
    :param notes: what could not be asked, and why.
    """

    table: str
    decisions: tuple[Decision, ...]
    notes: tuple[str, ...] = ()

    def __getitem__(self, right: Right | str) -> Decision:
        """Return the decision on a right."""
        return next(each for each in self.decisions if each.right == right)

    @property
    def refused(self) -> tuple[Decision, ...]:
        """The decisions that are a no."""
        return tuple(each for each in self.decisions if each.allowed is False)

    def to_json(self) -> dict[str, Any]:
        """Return the report as JSON takes it: ``rights`` has a dict for each right, by its name."""
        rights = {str(each.right): each.to_json() for each in self.decisions}
        return {"table": self.table, "rights": rights, "notes": list(self.notes)}
