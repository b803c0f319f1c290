"""The rules: one module each, in the order of their codes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from onegraph.guards.rules import (
    grd101_explicit_sync,
    grd102_readback,
    grd103_implicit_bool,
    grd104_implicit_scalar,
    grd105_implicit_format,
    grd106_data_dependent_shape,
    grd107_logger_sink,
    grd201_raw_dtoh,
    grd202_per_step_htod,
    grd203_fake_async,
    grd301_ungraphed_launch,
    grd302_graph_rebuild,
    grd303_host_callback,
    grd401_alloc,
    grd402_free,
    grd403_pinned_alloc,
    grd501_shared_module,
    grd502_module_churn,
    grd601_illegal_in_capture,
    grd602_legacy_import,
    grd900_unreadable,
    grd901_unused_allow,
    grd902_allow_without_reason,
    grd903_unknown_code,
    grd904_expired_baseline,
    grd905_unresolved_call,
)
from onegraph.guards.rules.rule import Rule

RULES: Mapping[str, Rule] = {
    module.RULE.code: module.RULE
    for module in (
        grd101_explicit_sync,
        grd102_readback,
        grd103_implicit_bool,
        grd104_implicit_scalar,
        grd105_implicit_format,
        grd106_data_dependent_shape,
        grd107_logger_sink,
        grd201_raw_dtoh,
        grd202_per_step_htod,
        grd203_fake_async,
        grd301_ungraphed_launch,
        grd302_graph_rebuild,
        grd303_host_callback,
        grd401_alloc,
        grd402_free,
        grd403_pinned_alloc,
        grd501_shared_module,
        grd502_module_churn,
        grd601_illegal_in_capture,
        grd602_legacy_import,
        grd900_unreadable,
        grd901_unused_allow,
        grd902_allow_without_reason,
        grd903_unknown_code,
        grd904_expired_baseline,
        grd905_unresolved_call,
    )
}


class UnknownCodeError(ValueError):
    """A code or prefix that no rule has."""


def expand(codes: Sequence[str]) -> frozenset[str]:
    """Codes from codes and prefixes: ``GRD1`` is all that begin so, ``ALL`` every one.

    Raises:
        UnknownCodeError: nothing begins so.
    """
    found: set[str] = set()
    for code in codes:
        matched = {c for c in RULES if code == "ALL" or c.startswith(code)}
        if not matched or not code:
            raise UnknownCodeError(f"no rule is called {code!r}; there are {', '.join(RULES)}")
        found |= matched
    return frozenset(found)


def selected(select: Sequence[str], extend: Sequence[str], ignore: Sequence[str]) -> frozenset[str]:
    """The codes that are on.

    A code that is named whole in `ignore` beats a prefix in `select`; GRD900 is always on.
    """
    chosen = expand(select) if select else {c for c, rule in RULES.items() if rule.default}
    return frozenset((chosen | expand(extend)) - expand(ignore)) | {"GRD900"}
