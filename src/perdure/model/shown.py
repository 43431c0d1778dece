"""Any value in the text of an error: short, on one line, and never itself an error."""

from __future__ import annotations

import re
import reprlib

_REPR = reprlib.Repr()
_REPR.maxstring = _REPR.maxother = 80


def shown(value: object) -> str:
    """As `repr`, but no longer than a line."""
    try:
        return _REPR.repr(value)
    except Exception:  # an integer of thousands of digits, or a `__repr__` that fails
        return f"<{type(value).__name__}>"


def without_secrets(url: str) -> str:
    """A URL for logs and messages: passwords in it, or in a URL inside its query, are left out."""
    text = re.sub(r"(://[^:/?#@]*):[^@/?#]*@", r"\1:***@", url)
    return re.sub(r"((?:listen|password)=)[^&]*", r"\1***", text)


def told(error: BaseException) -> str:
    """What an error says, if it can say anything."""
    try:
        return str(error)
    except Exception:
        return f"(its text cannot be made: {type(error).__name__}.__str__ fails)"
