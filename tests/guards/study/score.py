"""How many of the planted violations the guard finds, with what is on by default.

python score.py COPIES
"""

from __future__ import annotations

import contextlib
import io
import json
import shutil
import sys
from collections import Counter
from pathlib import Path

from onegraph.guards.cli import main as guard


def findings(package: Path) -> list[dict[str, object]]:
    """The guard's findings on one package, its update functions named hot."""
    config = package / "hot.toml"
    shutil.copy(Path(__file__).with_name("hot.toml"), config)
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        code = guard(["check", str(package), "--config", str(config), "--output-format", "json"])
    if code not in (0, 1):
        raise SystemExit(f"{package}: exit {code}")
    found: list[dict[str, object]] = json.loads(out.getvalue())
    return found


def main() -> None:
    """Print what was found and what was not, by kind and by depth."""
    copies = Path(sys.argv[1])
    planted = json.loads((copies / "planted.json").read_text())
    seen = {
        package: {(f["path"], f["line"], f["code"]) for f in findings(copies / package)}
        for package in {p["package"] for p in planted}
    }
    by_kind: dict[str, Counter[str]] = {}
    total = 0
    for p in planted:
        hit = any((p["file"], p["line"], code) in seen[p["package"]] for code in p["codes"])
        total += hit
        for key in (f"kind {p['kind']}", f"depth {p['depth']}", f"package {p['package']}"):
            by_kind.setdefault(key, Counter())["found" if hit else "missed"] += 1
        if not hit:
            print(f"missed: {p['package']}/{p['file']}:{p['line']} {p['kind']} depth {p['depth']}")
    for key, count in sorted(by_kind.items()):
        print(f"{key:26} {count['found']:2} of {sum(count.values())}")
    print(f"found {total} of {len(planted)}")


if __name__ == "__main__":
    main()
