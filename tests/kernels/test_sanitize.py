"""The run under compute-sanitizer, as far as it goes without a GPU."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import sanitize
from gpu.test_sanitize import CASES
from planted import fault, spin

from onegraph.kernels.catalogue import catalogue
from onegraph.kernels.compile import INCLUDE, compile_kernel
from onegraph.kernels.device import HostDevice


def test_every_kernel_has_its_case() -> None:
    shipped = {name for name, spec in catalogue().items() if spec.source.is_relative_to(INCLUDE)}
    assert set(CASES) == shipped


@pytest.mark.parametrize("kernel", CASES)
def test_each_case_runs_its_kernel(kernel) -> None:
    """On two host devices, which also agree with themselves."""
    device = HostDevice()
    CASES[kernel](device)
    assert any(name == kernel for name, _ in device.launch_sites)


@pytest.mark.parametrize("spec", [*fault.KERNELS.values(), *spin.KERNELS.values()])
def test_planted_kernels_compile(spec) -> None:
    compile_kernel(spec, "sm_90")


FAKE = """#!{python}
import sys
tool = sys.argv[sys.argv.index("--tool") + 1]
control = any(a.endswith("fault.py") for a in sys.argv)
print("7 passed, 3 deselected" if not control else "the fault was planted")
print("========= ERROR SUMMARY: 2 errors")
sys.exit({found} if (control and tool != "{blind}") or (not control and tool == "{finds}") else 0)
"""


def run(tmp_path: Path, monkeypatch, *tools: str, blind: str = "", finds: str = "") -> int:
    fake = tmp_path / "compute-sanitizer"
    fake.write_text(
        FAKE.format(python=sys.executable, found=sanitize.FOUND, blind=blind, finds=finds)
    )
    fake.chmod(0o755)
    monkeypatch.setenv("SANITIZER", str(fake))
    monkeypatch.setattr(sanitize, "LOGS", tmp_path / "logs")
    return sanitize.main(list(tools))


def test_a_line_a_tool(tmp_path, monkeypatch, capsys) -> None:
    assert run(tmp_path, monkeypatch) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines] == list(fault.TOOLS)
    assert all(": clean: 7 passed" in line for line in lines)


def test_a_finding_fails(tmp_path, monkeypatch, capsys) -> None:
    assert run(tmp_path, monkeypatch, "racecheck", "memcheck", finds="racecheck") == 1
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("racecheck: FAILED (exit 9): ERROR SUMMARY: 2 errors")
    assert second.startswith("memcheck: clean")


def test_a_tool_that_finds_no_planted_fault_fails(tmp_path, monkeypatch, capsys) -> None:
    assert run(tmp_path, monkeypatch, "initcheck", blind="initcheck") == 1
    assert "no planted fault was found (exit 0): ERROR SUMMARY" in capsys.readouterr().out


def test_tools_and_their_faults() -> None:
    assert sanitize.TOOLS == fault.TOOLS


def test_without_a_sanitizer(tmp_path, monkeypatch) -> None:
    monkeypatch.delenv("SANITIZER", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sanitize.sysconfig, "get_path", lambda name: str(tmp_path))
    monkeypatch.setattr(sanitize, "TOOLKIT", tmp_path / "cuda")
    with pytest.raises(SystemExit, match="there is no compute-sanitizer; it comes with"):
        sanitize.find_sanitizer()
    wheel = tmp_path / "nvidia" / "cu13" / "compute-sanitizer" / "compute-sanitizer"
    wheel.parent.mkdir(parents=True)
    wheel.touch()
    assert sanitize.find_sanitizer() == str(wheel)
