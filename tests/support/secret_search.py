"""A search for secrets, in every way of writing that they might be found in."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from urllib.parse import quote, quote_plus


def spellings(secret: str) -> set[str]:
    """A secret as it is, in a URL, in JSON, in hexadecimal, and in base64 wherever it begins in what was encoded."""
    data = secret.encode()
    found = {secret, quote(secret, safe=""), quote(secret), quote_plus(secret), json.dumps(secret)[1:-1], data.hex()}
    for before in range(3):
        # Characters that share bits with what stands in front or behind are left out.
        whole = base64.b64encode(bytes(before) + data).decode()
        part = whole[(8 * before + 5) // 6 : 8 * (before + len(data)) // 6]
        found |= {part, quote(part, safe=""), part.replace("+", "-").replace("/", "_")}
    return found


class Search:
    """What was looked through, and what was found where."""

    def __init__(self, secrets: Mapping[str, str]) -> None:
        assert all(len(secret) >= 12 for secret in secrets.values()), "a short one is found by chance"
        self._spellings = {name: [form.encode() for form in spellings(secret)] for name, secret in secrets.items()}
        self._lock = threading.Lock()
        self._found: set[tuple[str, str, str]] = set()
        self.places: dict[str, int] = {}

    def look(self, place: str, content: str | bytes, detail: str = "") -> None:
        """Look through a text."""
        data = content.encode(errors="replace") if isinstance(content, str) else content
        hits = {(name, place, detail) for name, forms in self._spellings.items() if any(form in data for form in forms)}
        with self._lock:
            self.places[place] = self.places.get(place, 0) + len(data)
            self._found |= hits

    def look_below(self, place: str, directory: Path, leave_out: tuple[str, ...] = ()) -> None:
        """Look through every file below a directory.

        :param leave_out: names of files and directories that are no part of the place.
        """
        # Unlike Path.rglob, os.walk passes over directories that are gone before it comes to them.
        for parent, _, names in os.walk(directory):
            for file in (Path(parent, name) for name in names):
                with contextlib.suppress(FileNotFoundError):
                    if file.is_file() and not set(file.relative_to(directory).parts) & set(leave_out):
                        self.look(place, file.read_bytes(), str(file))

    def found(self, name: str) -> dict[str, set[str]]:
        """Kinds of places where a secret was found, with where exactly."""
        places: dict[str, set[str]] = {}
        for secret, place, detail in self._found:
            if secret == name:
                places.setdefault(place, set()).add(detail)
        return places


@contextlib.contextmanager
def watching(look: Callable[[], None], every: float = 0.1) -> Iterator[None]:
    """Look at what passes by, again and again in a thread for as long as the block lasts.

    :param every: seconds between two calls.
    """
    over = threading.Event()
    failed: list[Exception] = []

    def watch() -> None:
        try:
            while not over.wait(every):
                look()
        except Exception as error:
            failed.append(error)

    thread = threading.Thread(target=watch, name="watching", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
    assert not failed, failed


def command_lines() -> Iterator[tuple[int, bytes]]:
    """Command lines of every process of this machine, with their pids."""
    for directory in Path("/proc").iterdir():
        if directory.name.isdigit():
            with contextlib.suppress(OSError):
                yield int(directory.name), (directory / "cmdline").read_bytes()
