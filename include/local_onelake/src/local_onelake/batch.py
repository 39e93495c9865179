"""Batches of deletes, as Blob has them: requests as parts of a multipart body. OneLake refuses them."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from urllib.parse import unquote, urlsplit

from local_onelake.refusals import wrong


def paths_of(content_type: str, body: bytes) -> list[str]:
    """Return the paths that a batch deletes, percent-decoded and without a slash at the beginning.

    :param content_type: of the body.
    :param body: of the request.
    :raises RefusalError: it is no batch of deletes.
    """
    # Clients make boundaries with characters that a parser of e-mails does not take.
    boundary = content_type.partition("boundary=")[2].strip('"')
    found = []
    for part in body.split(f"--{boundary}".encode())[1:-1]:
        _, _, request = part.partition(b"\r\n\r\n")
        method, path, *_ = [*request.decode(errors="replace").lstrip().split("\r\n", 1)[0].split(" "), "", ""]
        if method != "DELETE":
            raise wrong("A batch has deletes, and nothing else.", "InvalidInput")
        found.append(unquote(urlsplit(path).path).lstrip("/"))
    if not found:
        raise wrong("The batch is empty.", "InvalidInput")
    return found


def answers(outcomes: Sequence[tuple[int, str]]) -> tuple[bytes, str]:
    """Return the body that answers a batch, and its type.

    :param outcomes: status and code of each delete.
    """
    boundary = f"batchresponse_{uuid.uuid4()}"
    lines = []
    for number, (status, code) in enumerate(outcomes):
        lines += [f"--{boundary}", "Content-Type: application/http", f"Content-ID: {number}", ""]
        lines += [f"HTTP/1.1 {status} {code}", f"x-ms-error-code: {code}" if status >= 400 else "x-ms-version: 0", ""]
        lines += [""]
    lines += [f"--{boundary}--", ""]
    return "\r\n".join(lines).encode(), f"multipart/mixed; boundary={boundary}"
