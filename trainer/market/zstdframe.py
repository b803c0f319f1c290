"""Whether zstd data end where their last frame does.

The decoder of the DBN package gives what it can of data that were cut off, without an error, so
that a download that broke would pass for a shorter file. The frames say where they end (RFC 8878,
sections 3.1.1 and 3.1.2), and that can be followed without unpacking anything.
"""

from __future__ import annotations

from typing import Final

MAGIC: Final = b"\x28\xb5\x2f\xfd"

_FIRST_SKIPPABLE: Final = 0x184D2A50
_RLE: Final = 1


def ends_whole(data: bytes) -> bool:
    """Whether `data` is a run of whole zstd frames; False for data that are no zstd at all."""
    at = 0
    while at < len(data):
        end = _frame_end(data, at)
        if end is None or end > len(data):
            return False
        at = end
    return at > 0


def _frame_end(data: bytes, at: int) -> int | None:
    """Where the frame that starts at `at` ends, perhaps beyond the data; None: it cannot tell."""
    if len(data) < at + 8:
        return None
    magic = _number(data, at, 4)
    if _FIRST_SKIPPABLE <= magic < _FIRST_SKIPPABLE + 16:
        return at + 8 + _number(data, at + 4, 4)
    if magic != int.from_bytes(MAGIC, "little"):
        return None
    descriptor = data[at + 4]
    single = descriptor >> 5 & 1
    content_size = (single, 2, 4, 8)[descriptor >> 6]
    dictionary = (0, 1, 2, 4)[descriptor & 3]
    at += 5 + (1 - single) + dictionary + content_size
    last = False
    while not last:
        if len(data) < at + 3:
            return None
        header = _number(data, at, 3)
        last = bool(header & 1)
        at += 3 + (1 if header >> 1 & 3 == _RLE else header >> 3)
    return at + 4 * (descriptor >> 2 & 1)  # a checksum may follow


def _number(data: bytes, at: int, size: int) -> int:
    return int.from_bytes(data[at : at + size], "little")
