"""Batches of deletes, as Blob has them: requests as parts of a multipart body. OneLake refuses them."""

from __future__ import annotations

import email
import email.policy
import uuid
from collections.abc import Sequence
from urllib.parse import unquote, urlsplit

from airflow_provider_onelake.local_onelake.refusals import wrong


def paths_of(content_type: str, body: bytes) -> list[str]:
    """Return the paths that a batch deletes, percent-decoded and without a slash at the beginning.

    :param content_type: of the body.
    :param body: of the request.
    :raises RefusalError: it is no batch of deletes.
    """
    message = email.message_from_bytes(
        b"Content-Type: " + content_type.encode() + b"\r\n\r\n" + body, policy=email.policy.HTTP
    )
    found = []
    for part in message.iter_parts():
        payload = part.get_payload(decode=True)
        first = payload.decode(errors="replace").lstrip().splitlines()[:1] if isinstance(payload, bytes) else []
        method, _, rest = (first or [""])[0].partition(" ")
        if method != "DELETE":
            raise wrong("A batch has deletes, and nothing else.", "InvalidInput")
        found.append(unquote(urlsplit(rest.rpartition(" ")[0]).path).lstrip("/"))
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
