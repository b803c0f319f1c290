"""The baseline: findings that are put off, each with an owner, a reason and a date."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path
from typing import Any

from onegraph.guards.engine.reading import relative
from onegraph.guards.findings import Finding


class BaselineError(ValueError):
    """The baseline can't be read; the message names the entry and what it lacks."""


@dataclass(frozen=True)
class Entry:
    """A finding that is put off.

    Attributes:
        fingerprint: of the finding; it outlives a shift of lines.
        expires: an ISO date; from the day after it, the finding is reported again.
    """

    fingerprint: str
    code: str
    path: str
    owner: str
    reason: str
    expires: str

    @property
    def until(self) -> date:
        return date.fromisoformat(self.expires)


@dataclass(frozen=True)
class Baseline:
    """A baseline file."""

    path: Path
    entries: tuple[Entry, ...]

    def apply(
        self, findings: Sequence[Finding], root: Path, today: date, codes: frozenset[str]
    ) -> tuple[list[Finding], int]:
        """What is left of `findings`, with GRD904 for entries that are over, and how many went."""
        live = {e.fingerprint for e in self.entries if e.until >= today}
        left = [f for f in findings if f.fingerprint not in live]
        gone = len(findings) - len(left)
        if "GRD904" in codes:
            shown = relative(self.path, root)
            lines = self.path.read_text(encoding="utf-8").splitlines()
            for entry in self.entries:
                if entry.until < today:
                    row = next(
                        (i for i, text in enumerate(lines, 1) if entry.fingerprint in text), 1
                    )
                    left.append(
                        Finding(
                            "GRD904",
                            f"the entry for {entry.code} in {entry.path} expired on"
                            f" {entry.expires}; its owner is {entry.owner} ({entry.reason})",
                            shown, row, 1, row, 1, statement=(row, row),
                        )
                    )  # fmt: skip
        return left, gone


def load_baseline(path: Path) -> Baseline:
    """Read a baseline.

    Raises:
        BaselineError: no such file, no JSON, or an entry without an owner, a reason or a date.
    """
    import json

    try:
        data: Any = json.loads(path.read_text(encoding="utf-8"))
        rows = data["entries"]
    except FileNotFoundError as error:
        raise BaselineError(
            f"{path}: there is no such baseline; make one with --write-baseline"
        ) from error
    except (json.JSONDecodeError, UnicodeDecodeError, KeyError, TypeError) as error:
        raise BaselineError(f"{path}: this is no baseline ({error})") from error
    entries = []
    for position, row in enumerate(rows):
        for name in ("fingerprint", "code", "path", "owner", "reason", "expires"):
            if not isinstance(row, dict) or not str(row.get(name, "")).strip():
                raise BaselineError(f"{path}: entry {position} has no {name}")
        entry = Entry(**{name: row[name] for name in Entry.__dataclass_fields__})
        try:
            entry.until  # noqa: B018 - the property parses
        except ValueError as error:
            raise BaselineError(
                f"{path}: entry {position}: expires {entry.expires!r} is no date such as 2026-12-31"
            ) from error
        entries.append(entry)
    return Baseline(path, tuple(entries))


def write_baseline(
    path: Path, findings: Sequence[Finding], *, owner: str, reason: str, expires: str
) -> int:
    """Put off every finding of a rule on code; those about comments and files stay."""
    if not owner.strip() or not reason.strip():
        raise BaselineError("--write-baseline needs --owner and --reason")
    try:
        date.fromisoformat(expires)
    except ValueError as error:
        raise BaselineError(f"--expires {expires!r} is no date such as 2026-12-31") from error
    import json

    entries = [
        Entry(f.fingerprint, f.code, f.path, owner, reason, expires)
        for f in findings
        if not f.code.startswith("GRD9")
    ]
    text = json.dumps({"entries": [asdict(e) for e in entries]}, indent=2)
    path.write_text(text + "\n", encoding="utf-8")
    return len(entries)
