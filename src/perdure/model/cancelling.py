"""What a cancel with undo says: the payload of a CANCEL message."""

from __future__ import annotations

import msgspec
from msgspec import Struct

from perdure.model.messages import MessageKind, Outgoing
from perdure.model.run import Parent, RunKey

_encode = msgspec.json.Encoder().encode

#: The name of the message, and of the entry it leaves in the history.
NAME = "cancel"


class CancelOrder(Struct, frozen=True, omit_defaults=True):
    """Why a run is cancelled with undo, and on whose behalf."""

    #: Becomes the run's error.
    reason: str = "cancelled"
    #: The same for all runs that one call cancels: each gets it once. Empty: nobody minds.
    id: str = ""
    #: The run that passes it on to its child, (id, incarnation). Who is not its child is not meant: a derived id may have been
    #: taken by a stranger.
    parent: tuple[str, int] | None = None

    def meant_for(self, parent: Parent | None) -> bool:
        """Whether it is for a run with this parent."""
        return self.parent is None or (parent is not None and self.parent == (parent.id, parent.incarnation))

    def message(self, run_id: str, incarnation: int | None = None) -> Outgoing:
        """The message to a run."""
        return Outgoing(
            kind=MessageKind.CANCEL,
            run_id=run_id,
            incarnation=incarnation,
            name=NAME,
            payload=_encode(self),
            dedup=f"cancel:{self.id}" if self.id else None,
        )

    def passed_on(self, sender: RunKey) -> CancelOrder:
        """The same order, for a child of `sender`."""
        return CancelOrder(self.reason, self.id, (sender.id, sender.incarnation))


_decode = msgspec.json.Decoder(CancelOrder).decode


def order_of(payload: bytes | None) -> CancelOrder:
    """The order that a CANCEL message or entry carries."""
    return CancelOrder() if payload is None else _decode(payload)
