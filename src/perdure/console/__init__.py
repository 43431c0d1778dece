"""What the web sees of an app: plain ASGI applications, for any server, or to be mounted in any framework."""

from __future__ import annotations

from perdure.console.webhooks import webhooks

__all__ = ["webhooks"]
