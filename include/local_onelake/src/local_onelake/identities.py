"""Who asks: identities are named tokens. There are no account keys, and nobody is anonymous.

Hadoop's ABFS sends a bearer token by TLS only, and this server has none. So the token may also be the signature of a
shared access signature, ``sig=<token>``, which ABFS sends without TLS too.
"""

from __future__ import annotations

import hmac
import json
import os
import secrets
from collections.abc import Mapping
from pathlib import Path

import attrs

from local_onelake.refusals import RefusalError


@attrs.frozen
class Identities:
    """The identities that the server knows.

    :param tokens: the secret of each, by name.
    """

    tokens: Mapping[str, str] = attrs.field(repr=False)

    def who(self, authorization: str | None, signature: str | None = None) -> str:
        """Return the name of the identity that a request comes from.

        :param authorization: the header.
        :param signature: of a shared access signature, which counts if there is no header.
        :raises RefusalError: there is none, it is no bearer token, or the token is nobody's.
        """
        if authorization is None and signature:
            authorization = f"Bearer {signature}"
        if authorization is None:
            raise RefusalError(401, "NoAuthenticationInformation", "Anonymous requests are refused: send a token.")
        kind, _, token = authorization.partition(" ")
        if kind.lower() != "bearer":
            raise RefusalError(401, "InvalidAuthenticationInfo", f"OneLake takes bearer tokens, and no {kind}.")
        found = self._name_of(token.strip())
        if found is None:
            raise RefusalError(401, "InvalidAuthenticationInfo", "Server failed to authenticate the request.")
        return found

    def token_for(self, name: str, secret: str) -> str:
        """Return the token that an identity gets for its secret, which is the same here.

        :raises RefusalError: the secret is not that of the identity.
        """
        if self._name_of(secret) != name:
            raise RefusalError(401, "invalid_client", f"The secret is not that of the identity {name!r}.")
        return secret

    def _name_of(self, token: str) -> str | None:
        # Compare with each token in full, so that the time that it takes tells nothing.
        found = [name for name, known in self.tokens.items() if hmac.compare_digest(known.encode(), token.encode())]
        return found[0] if found else None


def kept_tokens(directory: Path) -> dict[str, str]:
    """Return the identity that is kept in a served directory: one called ``me``, made at the first call.

    :param directory: that is served.
    """
    file = directory / ".onelake" / "tokens.json"
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as out:
            json.dump({"me": secrets.token_urlsafe(24)}, out)
    kept: dict[str, str] = json.loads(file.read_text())
    return kept
