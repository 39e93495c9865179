"""What Fabric knows beside names and files, in one JSON file: roles, shortcuts, and how lakehouses were made."""

from __future__ import annotations

import copy
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

Document = dict[str, dict[str, Any]]


class Kept:
    """A document of parts; each part has values by GUID. A change is in the file before anybody sees it.

    :param file: that keeps it.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._turn = threading.RLock()
        self._said: Document = json.loads(file.read_text()) if file.exists() else {}

    def read(self, part: str, guid: str) -> Any:
        """Return a copy of a value; ``None`` if there is none."""
        with self._turn:
            return copy.deepcopy(self._said.get(part, {}).get(guid))

    def set(self, part: str, guid: str, value: Any) -> None:
        """Keep a value in the place of the one before.

        :param part: such as ``shortcuts``.
        :param guid: of the workspace or the item.
        :param value: as JSON takes it.
        """
        with self.changing() as document:
            document.setdefault(part, {})[guid] = value

    def forget(self, guid: str) -> None:
        """Drop everything that is kept of a workspace or an item."""
        with self.changing() as document:
            for values in document.values():
                values.pop(guid, None)

    @contextmanager
    def changing(self) -> Iterator[Document]:
        """Yield a copy that takes the document's place at the end, and keep others from changing it meanwhile.

        Nothing is changed if the block raises.
        """
        with self._turn:
            changed = copy.deepcopy(self._said)
            yield changed
            if changed != self._said:
                new = self._file.with_suffix(".new")
                new.write_text(json.dumps(changed, indent=2))
                new.replace(self._file)
                self._said = changed
