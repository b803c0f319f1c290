"""``onegraph guard``: check, rule, codemod.

It is read by argparse and imports no more than it needs, so that it starts as fast as a hook must.
"""

from __future__ import annotations

import argparse
import dataclasses
import gc
import sys
from collections.abc import Sequence
from pathlib import Path

FORMATS = ("full", "concise", "json", "github", "gitlab", "sarif")


def parser() -> argparse.ArgumentParser:
    """The command line."""
    top = argparse.ArgumentParser(
        prog="onegraph guard", description="Keep host round trips out of hot code."
    )
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")

    check = commands.add_parser(
        "check",
        help="check Python files",
        description="Check Python files. Exit 0: clean; 1: findings; 2: the command can't be done.",
    )
    check.add_argument("paths", nargs="*", type=Path, metavar="PATH", help="default: .")
    check.add_argument("--config", type=Path, help="a TOML file with [tool.onegraph.guards]")
    check.add_argument("--select", action="append", default=[], metavar="CODES", help="only these")
    check.add_argument("--extend-select", action="append", default=[], metavar="CODES")
    check.add_argument("--ignore", action="append", default=[], metavar="CODES")
    check.add_argument("--hot", action="append", default=[], metavar="GLOB", help="also hot")
    check.add_argument("--min-confidence", choices=("proven", "likely", "possible"))
    check.add_argument("--fix", action="store_true", help="make the safe fixes")
    check.add_argument("--unsafe-fixes", action="store_true", help="with --fix or --diff: all")
    check.add_argument("--diff", action="store_true", help="show the fixes, change nothing")
    check.add_argument("--exit-zero", action="store_true", help="0 also with findings")
    check.add_argument("--output-format", choices=FORMATS, default="full")
    check.add_argument("--output-file", type=Path)
    check.add_argument("--baseline", type=Path, help="default: the config's")
    check.add_argument("--write-baseline", action="store_true", help="put off all that is found")
    check.add_argument("--owner", default="", help="of the entries that --write-baseline makes")
    check.add_argument("--reason", default="", help="of those entries")
    check.add_argument("--expires", default="", metavar="DATE", help="of those entries")
    check.add_argument("--no-cache", action="store_true", help="index everything anew")

    rule = commands.add_parser("rule", help="what a rule flags, why, examples, its fix")
    rule.add_argument("code", metavar="CODE", help="a code, or all for the list")

    codemod = commands.add_parser("codemod", help="rewrite code")
    mods = codemod.add_subparsers(dest="codemod", required=True, metavar="NAME")
    rename = mods.add_parser(
        "to-host-checkpoint", help="move callers of to_host and to_vec to to_host_checkpoint"
    )
    rename.add_argument("paths", nargs="+", type=Path, metavar="PATH")
    rename.add_argument("--config", type=Path, help="a TOML file with [tool.onegraph.guards]")
    rename.add_argument("--diff", action="store_true", help="show the change, write nothing")
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; gives the exit code."""
    try:
        options = parser().parse_args(argv)
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else 2
    commands = {"check": _check, "rule": _rule, "codemod": _codemod}
    try:
        return commands[options.command](options)
    except BrokenPipeError:
        return 1
    except (ValueError, OSError) as error:
        print(f"onegraph guard: error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2


def _split(given: Sequence[str]) -> tuple[str, ...]:
    return tuple(code.strip() for text in given for code in text.split(",") if code.strip())


def _config(options: argparse.Namespace) -> object:
    from onegraph.guards.config import find_root, load_config

    if options.config is not None:
        return load_config(options.config.resolve().parent, file=options.config)
    return load_config(find_root(Path.cwd()))


def _check(options: argparse.Namespace) -> int:
    from onegraph.guards.baseline import write_baseline
    from onegraph.guards.check import check
    from onegraph.guards.config import Config
    from onegraph.guards.outputs import written

    gc.disable()  # the run is short, and builds trees that all live to its end
    config = _config(options)
    assert isinstance(config, Config)
    changes: dict[str, object] = {"hot": (*config.hot, *options.hot)}
    if options.select:
        changes["select"] = _split(options.select)
    changes["extend_select"] = (*config.extend_select, *_split(options.extend_select))
    changes["ignore"] = (*config.ignore, *_split(options.ignore))
    if options.min_confidence:
        changes["min_confidence"] = options.min_confidence
    if options.baseline is not None:
        changes["baseline"] = options.baseline
    if options.no_cache:
        changes["cache"] = None
    elif config.cache is None and (config.root / "pyproject.toml").is_file():
        changes["cache"] = config.root / ".guards_cache" / "index"
    config = dataclasses.replace(config, **changes)  # type: ignore[arg-type]
    paths = options.paths or [Path()]

    if options.write_baseline:
        if config.baseline is None:
            raise ValueError("--write-baseline: name the file with --baseline, or in the config")
        report = check(paths, config, use_baseline=False)
        count = write_baseline(
            config.baseline,
            report.findings,
            owner=options.owner,
            reason=options.reason,
            expires=options.expires,
        )
        print(f"{config.baseline}: {count} entries")
        return 0
    if options.fix or options.diff:
        from onegraph.guards.fixing import fix

        fixed = fix(paths, config, unsafe=options.unsafe_fixes)
        if options.diff:
            print(fixed.diff, end="")
            return 1 if fixed.diff and not options.exit_zero else 0
        for path, data in fixed.files.items():
            path.write_bytes(data)
        report = fixed.report
        if fixed.edits:
            print(f"{fixed.edits} fixed", file=sys.stderr)
    else:
        report = check(paths, config)

    for glob in report.unmatched:
        print(f"onegraph guard: hot: {glob!r} names no function", file=sys.stderr)
    text = written(report, options.output_format)
    if options.output_file is not None:
        options.output_file.write_text(text + "\n", encoding="utf-8")
    elif text:
        print(text)
    return 1 if report.findings and not options.exit_zero else 0


def _rule(options: argparse.Namespace) -> int:
    from onegraph.guards.docs import page
    from onegraph.guards.rules import RULES, UnknownCodeError

    if options.code == "all":
        for rule in RULES.values():
            print(f"{rule.code} {rule.name}: {rule.summary}{'' if rule.default else ' (opt in)'}")
        return 0
    code = options.code.upper()
    if code not in RULES:
        raise UnknownCodeError(f"no rule is called {options.code!r}; there are {', '.join(RULES)}")
    print(page(RULES[code]), end="")
    return 0


def _codemod(options: argparse.Namespace) -> int:
    from onegraph.guards.codemod import to_host_checkpoint
    from onegraph.guards.config import Config

    config = _config(options)
    assert isinstance(config, Config)
    result = to_host_checkpoint(options.paths, config)
    if options.diff:
        print(result.diff, end="")
    else:
        for path, data in result.files.items():
            path.write_bytes(data)
    print(result.report())
    return 0
