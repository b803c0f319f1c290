"""Run the tests marked ``sanitize`` under compute-sanitizer: ``make gpu-sanitize``.

For each tool, first a planted fault of its kind (`planted.fault`), which it must find; then the
tests, in which it must find nothing. A line a tool; what it said is in ``build/sanitize``.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent
LOGS = ROOT / "build" / "sanitize"

#: Where the toolkit's installer puts it, off the path.
TOOLKIT = Path("/usr/local/cuda/bin/compute-sanitizer")

#: What the sanitizer exits with when it found something.
FOUND = 9

OPTIONS: dict[str, tuple[str, ...]] = {
    # Every answer of the driver's is checked by `CudaDevice`, and some are refusals that libraries
    # ask for to see what there is; the padding makes an overrun within the memory pool show.
    "memcheck": ("--report-api-errors", "no", "--padding", "512"),
    # Hazards of the same value written twice are only a warning; count those too.
    "racecheck": ("--racecheck-detect-level", "warn"),
    # Also shows a copy to the host of what was never written.
    "initcheck": (),
    "synccheck": (),
}
TOOLS = tuple(OPTIONS)


def find_sanitizer() -> str:
    """The executable: ``SANITIZER``, the first on the path, or the one that pip installed."""
    if own := os.environ.get("SANITIZER"):
        return own
    if found := shutil.which("compute-sanitizer"):
        return found
    packages = Path(sysconfig.get_path("purelib"))
    for found in map(str, sorted(packages.glob("nvidia/*/compute-sanitizer/compute-sanitizer"))):
        return found
    if TOOLKIT.exists():
        return str(TOOLKIT)
    sys.exit(
        "error: there is no compute-sanitizer; it comes with the CUDA toolkit and with"
        " pip install nvidia-cuda-sanitizer-api; name another place with SANITIZER=..."
    )


def under(tool: str, sanitizer: str, arguments: list[str], log: Path) -> int:
    """Run Python with `arguments` under `tool`; gives the exit status, and all output to `log`."""
    command = [
        sanitizer,
        *("--tool", tool, "--error-exitcode", str(FOUND), "--target-processes", "all"),
        *("--show-backtrace", "device", "--print-limit", "20"),
        *OPTIONS[tool],
        *(sys.executable, "-P", *arguments),
    ]
    path = os.pathsep.join([str(ROOT / "tests"), *(p for p in sys.path if p)])
    environment = {**os.environ, "PYTHONPATH": path, "ONEGRAPH_REQUIRE_GPU": "1"}
    with log.open("w") as file:
        file.write(" ".join(command) + "\n")
        file.flush()
        return subprocess.run(
            command, cwd=ROOT, env=environment, stdout=file, stderr=subprocess.STDOUT, check=False
        ).returncode


def last_line(log: Path, containing: str) -> str:
    lines = [x for x in log.read_text(errors="replace").splitlines() if containing in x]
    return lines[-1].strip("= ") if lines else "it said nothing"


def check(tool: str, sanitizer: str, arguments: list[str]) -> bool:
    """One tool: its control, its run, its line."""
    control, log = LOGS / f"{tool}-control.log", LOGS / f"{tool}.log"
    fault = str(ROOT / "tests" / "planted" / "fault.py")
    status = under(tool, sanitizer, [fault, tool], control)
    if status != FOUND:
        why = last_line(control, "rror")
        print(f"{tool}: FAILED: no planted fault was found (exit {status}): {why}; {control}")
        return False
    began = time.monotonic()
    tests = ["-m", "pytest", "-m", "sanitize", "-p", "no:cacheprovider", "tests/gpu", *arguments]
    status = under(tool, sanitizer, tests, log)
    took = f"{time.monotonic() - began:.0f} s"
    clean = status == 0 and " passed" in log.read_text(errors="replace")
    said = last_line(log, " passed" if clean else "SUMMARY")
    print(f"{tool}: {'clean' if clean else f'FAILED (exit {status})'}: {said}; {took}; {log}")
    return clean


def main(arguments: list[str]) -> int:
    tools = [a for a in arguments if a in TOOLS] or list(TOOLS)
    sanitizer = find_sanitizer()
    LOGS.mkdir(parents=True, exist_ok=True)
    results = [check(tool, sanitizer, [a for a in arguments if a not in TOOLS]) for tool in tools]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
