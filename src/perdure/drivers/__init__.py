"""The drivers of users' connections: SQLAlchemy, asyncpg, psycopg, sqlite3. None is imported: who gives us an object has it.

`links` says what is done with a connection (one class a driver), `opening` where it comes from, `performing` how a script is.
"""

from __future__ import annotations

from perdure.drivers.drivers import Drivers

__all__ = ["Drivers"]
