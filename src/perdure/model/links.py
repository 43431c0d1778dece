"""Signed links: URLs that deliver to a token, which nobody can make who does not know the app's secret.

A link is `<base>/<name>.<signature>`. The name is base64url of namespace, line feed and token; the signature base64url of the
HMAC-SHA256 (RFC 2104) under the secret of `perdure-link-1`, line feed and the name as it stands there.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Sequence

from perdure.model.errors import UsageError

#: Characters of a secret, at least: 16 bytes in hexadecimal, or better.
SHORTEST_SECRET = 32

_DOMAIN = b"perdure-link-1\n"


class Links:
    """Makes and reads links. `secrets`: the first one signs, all of them are believed."""

    __slots__ = ("_secrets", "base")

    def __init__(self, base: str | None, secrets: Sequence[str]) -> None:
        #: Where the links lead.
        self.base = base
        self._secrets = tuple(secret.encode() for secret in secrets)

    def __repr__(self) -> str:
        return f"<links to {self.base}>"

    def url(self, namespace: str, token: str) -> str:
        """The link to a token. Raises `UsageError` where the app has no secret or no base URL."""
        if self.base is None:
            raise UsageError('links need a place to lead to: set Perdure(..., webhook_url="https://example.org/hooks")')
        return f"{self.base}/{self.path(namespace, token)}"

    def path(self, namespace: str, token: str) -> str:
        """The last part of the link. Raises `UsageError` where the app has no secret."""
        if not self._secrets:
            raise UsageError("links are signed: set Perdure(..., secret=...) to a text that only your processes know")
        name = _text(f"{namespace}\n{token}".encode())
        return f"{name}.{_text(_sign(self._secrets[0], name))}"

    def read(self, path: str) -> tuple[str, str] | None:
        """The namespace and token of the last part of a link; None if we never made it."""
        name, _, signature = path.partition(".")
        try:
            given = _bytes(signature)
            # Each of them, always: nothing is learnt from how long it takes.
            if not any([hmac.compare_digest(_sign(secret, name), given) for secret in self._secrets]):  # noqa: C419
                return None
            namespace, _, token = _bytes(name).decode().partition("\n")
        except (binascii.Error, ValueError):
            return None
        return namespace, token


#: Of an app that was not told how to make any.
NO_LINKS = Links(None, ())


def _sign(secret: bytes, name: str) -> bytes:
    return hmac.new(secret, _DOMAIN + name.encode(), hashlib.sha256).digest()


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _bytes(text: str) -> bytes:
    return base64.b64decode(text.encode("ascii") + b"=" * (-len(text) % 4), b"-_", validate=True)
