"""The URL of a store on PostgreSQL: a database's, with the schema as one more option."""

from __future__ import annotations

from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit


def joined(database: str, schema: str) -> str:
    """The store in that schema of a database."""
    return f"{database}{'&' if urlsplit(database).query else '?'}schema={quote(schema)}"


def parted(url: str) -> tuple[str, str]:
    """A store's database and schema. Raises `KeyError` where the URL names no schema."""
    parts = urlsplit(url)
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    schema = options.pop("schema")
    return urlunsplit(parts._replace(query=urlencode(options))), schema
