"""Says by its exit status whether a service answers: the health checks of docker-compose.yaml.

``python -m include.compose.healthy tcp://host:port`` or ``… http://host:port/path key.of.the.json beginning``. Only the
standard library, and as little of it as does: it is started every few seconds.
"""

from __future__ import annotations

import json
import socket
import sys
import urllib.request
from collections.abc import Sequence

_SECONDS = 5


def problem(url: str, key: str | None = None, beginning: str = "") -> str | None:
    """Ask a service.

    :param url: ``tcp://`` for one that need only take connections, ``http://`` for one that answers in JSON.
    :param key: path in the JSON, with dots. Default: any answer will do.
    :param beginning: of what stands there.
    :returns: what is wrong, or ``None``.
    """
    try:
        if url.startswith("tcp://"):
            host, _, port = url.removeprefix("tcp://").rpartition(":")
            socket.create_connection((host, int(port)), _SECONDS).close()
            return None
        with urllib.request.urlopen(url, timeout=_SECONDS) as answer:  # noqa: S310 - an address of the compose file
            found = json.load(answer)
        for part in (key or "").split(".") if key else ():
            found = found[part]
    except (OSError, ValueError, KeyError, TypeError) as error:
        return f"{url}: {type(error).__name__}: {error}"
    return None if not key or str(found).startswith(beginning) else f"{url}: {key} is {found!r}"


def main(arguments: Sequence[str]) -> int:
    """Ask, say what is wrong, and return the exit status.

    :param arguments: of :func:`problem`.
    """
    wrong = problem(*arguments)
    if wrong is not None:
        sys.stderr.write(f"{wrong}\n")
    return 0 if wrong is None else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
