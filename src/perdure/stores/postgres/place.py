"""Where the store is, and how it is reached."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from msgspec import Struct

from perdure.model.errors import UsageError
from perdure.model.shown import shown, without_secrets

#: Bytes of an identifier in PostgreSQL.
_LONGEST_NAME: Final = 63

#: What of a URL's query is ours; the driver's own follow.
_OPTIONS: Final = ("schema", "pgbouncer", "listen")
_DRIVERS: Final = (
    "application_name", "database", "dbname", "gsslib", "host", "krbsrvname", "passfile", "password", "port", "service",
    "servicefile", "ssl_max_protocol_version", "ssl_min_protocol_version", "sslcert", "sslcrl", "sslkey", "sslmode",
    "sslnegotiation", "sslpassword", "sslrootcert", "target_session_attrs", "user",
)  # fmt: skip


class Place(Struct, frozen=True):
    #: As asyncpg takes it.
    dsn: str
    #: The schema that all our tables lie in.
    schema: str = "perdure"
    #: True if a PgBouncer in transaction mode is between: nothing may be kept in a session.
    pgbouncer: bool = False
    #: Where to listen for hints: past a PgBouncer, to the server itself. None: hints are not to be had, polling has to do.
    listen: str | None = None

    def __str__(self) -> str:
        """For messages: without the password."""
        parts = urlsplit(self.dsn)
        host = parts.netloc.rpartition("@")[2] or dict(parse_qsl(parts.query)).get("host", "")
        return f"postgresql://{host}{parts.path} (schema {self.schema})"

    @property
    def quoted(self) -> str:
        """The schema as SQL takes it."""
        return '"' + self.schema.replace('"', '""') + '"'


def place_of(url: str) -> Place:
    """The place that a URL names. Raises `UsageError` saying what is wrong with it.

    `postgresql://user:password@host:port/database`, as asyncpg (and libpq) take it, with these options of ours: `schema`
    (default `perdure`), `pgbouncer=true`, `listen` (the URL of the server itself, for hints past a PgBouncer).
    """
    try:
        parts = urlsplit(url)
        _ = parts.port
        pairs = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
    except ValueError as error:
        raise UsageError(f"the store URL {without_secrets(url)} cannot be read: {error}") from None
    given = dict(pairs)
    if len(given) < len(pairs):
        names = [name for name, _ in pairs]
        twice = min(name for name in given if names.count(name) > 1)
        raise UsageError(f"the store URL has the option {shown(twice)} more than once; give it once")
    unknown = given.keys() - {*_OPTIONS, *_DRIVERS}
    if unknown:
        raise UsageError(
            f"the store URL has an unknown option {shown(min(unknown))}; postgresql:// has {', '.join(_OPTIONS)} and the "
            f"driver's own: {', '.join(_DRIVERS)}"
        )
    schema = given.pop("schema", "perdure")
    if not schema or not schema.isprintable() or len(schema.encode()) > _LONGEST_NAME or schema.startswith("pg_"):
        raise UsageError(
            f"the store URL has {shown(schema)} as schema, which is no name for one: "
            f"give up to {_LONGEST_NAME} printable bytes, not beginning with pg_"
        )
    pgbouncer = _truth("pgbouncer", given.pop("pgbouncer", "false"))
    listen = given.pop("listen", None)
    if listen is not None and not re.match(r"postgres(ql)?://", listen):
        raise UsageError(
            f"in the store URL, listen must be the postgresql:// URL of the server itself, not {shown(without_secrets(listen))}"
        )
    dsn = urlunsplit(("postgresql", parts.netloc, parts.path, urlencode(given), ""))
    return Place(dsn, schema, pgbouncer, listen or (None if pgbouncer else dsn))


def _truth(name: str, text: str) -> bool:
    if text.lower() not in ("true", "false", "1", "0"):
        raise UsageError(f"in the store URL {name} must be true or false, not {shown(text)}")
    return text.lower() in ("true", "1")
