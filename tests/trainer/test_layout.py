"""Where parameters stand, and what blocks gather."""

import numpy as np
import pytest

from onegraph.kernels.common.layout import ADAM_GROUPS
from onegraph.stages.program import ProgramError, Ref
from onegraph.trainer.blocks.emit import Emit, linear_tensors
from onegraph.trainer.blocks.layout import Group, Layout, TensorSpec


def example():
    return Layout(
        [
            *linear_tensors("v", 8, 1, Group.IQL),
            *linear_tensors("a", 8, 3, real_in=5),
            TensorSpec("gate.logit", (8,), Group.SELECTIVITY, value=2.0),
        ]
    )


def test_tensors_stand_by_group_and_aligned():
    layout = example()
    assert {t.name: t.offset for t in layout} == {
        "a.weight": 0,
        "a.bias": 24,
        "gate.logit": 32,
        "v.weight": 40,
        "v.bias": 48,
    }
    assert layout.size == 56
    assert [layout.range_of(group) for group in Group] == [
        (0, 32),
        (32, 40),
        (40, 40),
        (40, 56),
        (56, 56),
        (56, 56),
        (56, 56),
    ]
    assert len(Group) == ADAM_GROUPS
    assert layout["a.bias"].of("grad") == Ref("grad", 24, 3)


def test_initial_values_keep_to_their_bounds_and_padding_is_zero():
    layout = example()
    params = layout.initial(1)
    weight = layout["a.weight"].values(params)
    assert (weight[5:] == 0).all()
    assert np.abs(weight[:5]).min() > 0
    assert np.abs(weight).max() <= 5**-0.5
    assert layout["gate.logit"].values(params).tolist() == [2] * 8
    gaps = np.ones(layout.size, bool)
    for tensor in layout:
        gaps[tensor.offset : tensor.offset + tensor.size] = False
    assert (params[gaps] == 0).all()
    assert (layout.initial(1) == params).all()
    assert (layout.initial(2) != params).any()


def test_a_name_is_taken_once():
    with pytest.raises(ValueError, match=r"two tensors are called 'a\.weight'"):
        Layout([*linear_tensors("a", 2, 2), *linear_tensors("a", 2, 2)])


def test_a_pass_has_buffers_of_its_own():
    emit = Emit(example(), "online_", 4, instead={"a.weight": "theta_normal"})
    hidden = emit.linear("a", Ref("s"), 8, 3, emit.buffer("a", (4, 3)), relu=True)
    assert hidden == Ref("online_a") == emit.buffer("a", (4, 3))
    (op,) = emit.ops
    assert (op.b, op.extra) == (Ref("theta_normal", 0, 24), Ref("theta", 24, 3))
    with pytest.raises(ProgramError, match="'online_a' is asked for as"):
        emit.buffer("a", (4, 4))


def test_a_part_of_a_pass_has_its_rows_of_the_same_buffers():
    emit = Emit(example(), "online_", 6)
    emit.buffer("a", (6, 3))
    emit.buffer("quantiles", (6 * 4, 3))
    part = emit.part(2, 4, grads="grad_vaccine")
    assert part.buffer("a", (4, 3)) == Ref("online_a", 2 * 3, 4 * 3)
    assert part.buffer("quantiles", (4 * 4, 3)) == Ref("online_quantiles", 2 * 12, 4 * 12)
    assert part.grad("a.bias") == Ref("grad_vaccine", 24, 3)
    assert part.rows_of(Ref("s_tm1"), 8) == Ref("s_tm1", 16, 32)
    part.scratch("partial", (5,))
    assert {b.name for b in emit.buffers} == {"online_a", "online_quantiles", "online_partial"}
    with pytest.raises(ProgramError, match="ask for scratch"):
        part.buffer("partial", (5,))
