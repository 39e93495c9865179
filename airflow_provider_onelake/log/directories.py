"""Files by where they lie."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from airflow_provider_onelake.log.actions import Add


@attrs.frozen
class Below:
    """A condition on files that looks at their paths alone: whether these begin with one of some directories.

    :param directories: as the log spells them, each with a slash at its end.
    """

    directories: tuple[str, ...]

    def __call__(self, add: Add) -> bool:
        """Say whether a file meets the condition."""
        return add["path"].startswith(self.directories)
