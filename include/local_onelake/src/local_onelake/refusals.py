"""Answers that are errors, as each endpoint spells them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from xml.sax.saxutils import escape

import attrs


@attrs.frozen
class RefusalError(Exception):
    """An answer that is an error.

    :param status: of HTTP.
    :param code: by Azure's name.
    :param message: for people.
    :param body: the whole body, where it is neither endpoint's usual one.
    :param headers: further ones.
    """

    status: int
    code: str
    message: str
    body: str | None = None
    headers: Mapping[str, str] = attrs.field(factory=dict)

    def __str__(self) -> str:
        return f"{self.status} {self.code}: {self.message}"

    def as_json(self) -> str:
        """Return the body as DFS spells it."""
        return self.body or json.dumps({"error": {"code": self.code, "message": self.message}})

    def as_fabric_json(self, request_id: str) -> str:
        """Return the body as Fabric's REST spells it.

        :param request_id: of the answer.
        """
        return json.dumps({"requestId": request_id, "errorCode": self.code, "message": self.message})

    def as_xml(self) -> str:
        """Return the body as Blob spells it."""
        if self.body is not None:
            return self.body
        inside = f"<Code>{escape(self.code)}</Code><Message>{escape(self.message)}</Message>"
        return f'<?xml version="1.0" encoding="utf-8"?><Error>{inside}</Error>'


def wrong(message: str, code: str = "InvalidInput") -> RefusalError:
    """Return the refusal of a request that is wrong by itself."""
    return RefusalError(400, code, message)


def forbidden(message: str) -> RefusalError:
    """Return the refusal of what OneLake lets nobody do by its storage API."""
    return RefusalError(403, "AuthorizationPermissionMismatch", message)
