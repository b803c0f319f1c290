"""`Roofline` as a table, for people."""

from __future__ import annotations

from rich.table import Table

from onegraph.stages.roofline import FLOORS, Roofline, Row


def roofline_table(result: Roofline) -> Table:
    """A line a set: what bounds its step, how long it takes, and the floor's share of that."""
    rows = Table(
        title=f"{result.subject}; {result.device}; floors, and medians of {result.rounds} rounds"
    )
    rows.add_column("step", no_wrap=True)
    for column in ("bytes KB", "us", "products MFLOP", "us", "nodes in a row", "us"):
        rows.add_column(column, justify="right")
    for column in ("floor us", "bound by", "median us", "share"):
        rows.add_column(column, justify="right")
    for row in result.rows:
        counts = (
            f"{row.work.traffic_bytes / 1e3:,.1f}",
            f"{sum(row.work.flops.values()) / 1e6:,.1f}",
            f"{row.chain:,}",
        )
        times = [_floor(row, name) for name in FLOORS]
        pairs = [text for pair in zip(counts, times, strict=True) for text in pair]
        largest = "" if row.floor_us is None else f"{row.floor_us:,.2f}"
        share = "" if row.share is None else f"{row.share:.1%}"
        median = f"{row.entry.time.median:,.1f}"
        rows.add_row(row.entry.label, *pairs, largest, row.bound, median, share)
    return rows


def _floor(row: Row, name: str) -> str:
    return f"{row.floors_us[name]:,.2f}" if name in row.floors_us else ""


def roofline_notes(result: Roofline) -> list[str]:
    """What the table leaves unsaid: where the floors are from, and what they can't say."""
    peaks = result.peaks
    if peaks is None:
        return [
            f"floors in microseconds are of a GPU, and {result.device} has no peaks to take them"
            " from: the bytes, products and chains above are the program's; run it with --device"
            " cuda"
        ]
    notes = [peaks.words()]
    unknown = {p for row in result.rows for p in row.work.flops} - peaks.flops_per_s.keys()
    notes += [
        f"no peak of {precision} is known for this GPU's compute capability, so that steps with"
        " such products have no floor from arithmetic"
        for precision in sorted(unknown)
    ]
    if fits := [r for r in result.rows if r.work.traffic_bytes <= peaks.l2_bytes]:
        notes.append(
            f"the bytes of {', '.join(r.entry.label for r in fits)} fit the L2 cache"
            f" ({peaks.l2_bytes / 1e6:,.1f} MB), which may keep them from one step to the next:"
            " there the floor from bytes is no bound"
        )
    return notes
