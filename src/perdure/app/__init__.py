"""The app: where a URL becomes a running engine. The only package that knows concrete adapters."""

from __future__ import annotations

from perdure.app.perdure import Perdure
from perdure.app.urls import open_store, parse_url

__all__ = ["Perdure", "open_store", "parse_url"]
