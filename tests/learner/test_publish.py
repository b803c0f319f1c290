"""The published record: whole, fresh, or not at all."""

import re
from pathlib import Path

import numpy as np
from pair_runs import run_host

import onegraph.kernels.learner.publish as publish_module
from onegraph.kernels.common.layout import (
    COUNTERS,
    DIAGNOSTICS,
    SCHEDULES,
    Counter,
    Diagnostic,
    Schedule,
)
from onegraph.kernels.learner.publish import RECORD, RecordField, read_record

RING = 3


def published(step, *, skip=0, history=None, record=None, ring=RING):
    counters = np.zeros(COUNTERS, np.int64)
    counters[Counter.RNG], counters[Counter.ADAM_TRUNK], counters[Counter.SKIPPED] = step, 9, 2
    counters[Counter.SKIPPED_IN_A_ROW] = 5
    schedule = np.zeros(SCHEDULES)
    schedule[Schedule.TAU], schedule[Schedule.BETA] = 0.25, 0.5
    schedule[Schedule.EPSILON], schedule[Schedule.LEARNING_RATE] = 0.125, 2.0
    diagnostics = np.zeros(DIAGNOSTICS, np.int64)
    diagnostics[Diagnostic.NONFINITE_TD] = 31
    diagnostics[Diagnostic.STALE_UPDATE] = 32
    diagnostics[Diagnostic.INVALID_ROW] = 33
    return run_host(
        "publish",
        stats=[1.5, 2.5, 3.5, 4.5],
        clip=[6, 1],
        counters=counters,
        schedule=schedule,
        diagnostics=diagnostics,
        skip=[skip],
        record=np.zeros(RECORD) if record is None else record,
        history=np.zeros((max(ring, 1), RECORD)) if history is None else history,
        ring=ring,
    )


def test_every_field_by_name():
    record = read_record(published(7)["record"])
    assert record.step == 7
    assert {f.name: record[f] for f in RecordField} == {
        "STAMP_BEGIN": 7, "LOSS": 1.5, "GRAD_NORM": 6, "TD_MEAN": 2.5, "Q_MEAN": 3.5, "TD_MAX": 4.5,
        "LEARNING_RATE": 2, "TAU": 0.25, "BETA": 0.5, "EPSILON": 0.125, "ADAM_STEP": 9,
        "SKIPPED": 2, "NONFINITE_TD": 31, "STALE_UPDATE": 32, "INVALID_ROW": 33,
        "SKIPPED_IN_A_ROW": 0, "STAMP_END": 7,
    }  # fmt: skip


def test_the_step_at_hand_counts_among_the_skipped():
    record = read_record(published(7, skip=1)["record"])
    assert record[RecordField.SKIPPED] == 3
    assert record[RecordField.SKIPPED_IN_A_ROW] == 6


def test_history_is_a_ring():
    history = None
    for step in range(1, 6):
        history = published(step, history=history)["history"].reshape(RING, RECORD)
    assert history[:, RecordField.STAMP_BEGIN].tolist() == [4, 5, 3]
    assert history[:, RecordField.STAMP_END].tolist() == [4, 5, 3]
    assert not published(1, ring=0)["history"].any()


def test_a_record_cut_off_anywhere_is_never_read_as_whole():
    old, new = published(7)["record"], published(8)["record"]
    new[1:-1] += 100
    writes = [RecordField.STAMP_BEGIN, *range(1, RECORD - 1), RecordField.STAMP_END]
    record = old.copy()
    for field in writes[:-1]:
        record[field] = new[field]
        assert read_record(record) is None
    record[writes[-1]] = new[writes[-1]]
    assert read_record(record).step == 8


class WrittenWhileRead(np.ndarray):
    """A record into which the writer breaks after the reader's first load."""

    def copy(self, *args):
        values = super().copy(*args)
        self[:] = published(8)["record"]
        return values


def test_a_write_between_the_two_stamps_reads_as_torn():
    record = published(7)["record"].view(WrittenWhileRead)
    assert read_record(record) is None


def test_a_record_that_was_never_written_is_none():
    assert read_record(np.zeros(RECORD)) is None
    assert read_record(np.full(RECORD, np.nan)) is None


def test_a_record_seen_before_is_stale():
    record = published(7)["record"]
    assert read_record(record, after=6).step == 7
    assert read_record(record, after=7) is None


def test_what_was_read_does_not_change_under_the_reader():
    live = published(7)["record"]
    record = read_record(live)
    live[:] = published(8)["record"]
    assert record[RecordField.STAMP_BEGIN] == 7


def test_the_kernels_names_are_the_twins():
    header = Path(publish_module.__file__).with_name("record.cuh").read_text()
    names = {name: int(value) for name, value in re.findall(r"\bR_(\w+) = (\d+)", header)}
    assert names == {field.name: field.value for field in RecordField}
    assert f"#define RECORD {RECORD}" in header
