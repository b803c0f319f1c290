"""Independent products become one op; what depends on another stays behind it."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onegraph.stages.program import (
    Branches,
    Copy,
    Launch,
    MatmulGroup,
    MatmulOp,
    ProgramError,
    Ref,
    opened,
)
from onegraph.trainer.blocks.emit import Emit
from onegraph.trainer.blocks.grouping import branched, grouped_products, shares, side_by_side
from onegraph.trainer.config import NetworkConfig
from onegraph.trainer.network import Pass, QNetwork


def outs(op):
    members = op.members if isinstance(op, MatmulGroup) else (op,)
    return [m.out.buffer for m in members]


def network(width=4, inputs=5):
    return QNetwork(inputs, 2, NetworkConfig(hidden=(3, width)))


def next_state_passes(net, rows):
    select, target = net.emit("select", rows, Pass.SELECT), net.emit("target", rows, Pass.TARGET)
    net.forward(select, Ref("s_t"), Pass.SELECT)
    net.forward(target, Ref("s_t"), Pass.TARGET)
    return [*select.take(), *target.take()]


def backward(net, rows):
    online = net.emit("online", rows, Pass.ONLINE)
    outputs = net.forward(online, Ref("s_tm1"), Pass.ONLINE)
    online.take()
    net.backward(online, Ref("s_tm1"), outputs, Ref("grad_head"), None)
    return online.take()


def test_passes_side_by_side_are_one_op_a_layer():
    assert [outs(op) for op in grouped_products(next_state_passes(network(), 64))] == [
        ["select0", "target0"],
        ["select1", "target1"],
        ["selecthead", "targethead"],
    ]


def test_a_layers_gradients_are_one_op_but_for_the_first_layer():
    assert [sorted(outs(op)) for op in grouped_products(backward(network(), 64))] == [
        ["grad", "onlinegrad1"],
        ["grad", "onlinegrad0"],
        ["grad"],
    ]


@pytest.mark.parametrize(("rows", "grouped"), [(64, True), (65, False)])
def test_larger_products_stand_alone(rows, grouped):
    """64 x 256 x 256 is the largest that shares a launch."""
    net = QNetwork(256, 2, NetworkConfig(hidden=(256, 256)))
    ops = grouped_products(next_state_passes(net, rows))
    assert [isinstance(op, MatmulGroup) for op in ops] == (
        [True] * 3 if grouped else [False] * 4 + [True]
    )


def test_cublaslts_products_share_no_launch():
    def product(k: int) -> MatmulOp:
        return MatmulOp(4, 4, k, Ref("a"), Ref("b"), Ref("c"))

    assert shares(product(4095))
    assert not shares(product(4096))  # cuBLASLt's for the length of the sum


def gradient(out, a="a", k=4096):
    """Of a weight, over many rows."""
    return MatmulOp(64, 64, k, Ref(a), Ref("w"), Ref(out), trans_a=True)


def test_long_sums_share_a_launch_of_their_own():
    ops = [product("c"), gradient("g"), product("d"), gradient("h")]
    assert [outs(op) for op in grouped_products(ops)] == [["c", "d"], ["g", "h"]]


def test_long_sums_that_nothing_waits_for_come_together_at_the_end():
    passes = [
        [product("c", size=LARGE), gradient("g", "c"), product("d", "c", LARGE)],
        [product("e", size=LARGE), gradient("h", "e"), product("f", "e", LARGE)],
    ]
    chains, last = branched(passes)
    assert isinstance(chains, Branches)
    assert [[outs(op) for op in branch] for branch in chains.branches] == [
        [["c"], ["d"]],
        [["e"], ["f"]],
    ]
    assert outs(last) == ["g", "h"]


def test_passes_of_nothing_but_products_share_launches_of_large_ones():
    passes = [[product("c", size=512), product("d", "c", 512)], [product("e", size=512)]]
    assert [outs(op) for op in side_by_side(passes)] == [["c", "e"], ["d"]]
    huge = [[product("c", size=1024)], [product("e", size=1024)]]  # cuBLASLt's
    assert [outs(op) for op in side_by_side(huge)] == [["c"], ["e"]]


def test_at_most_four_products_go_together():
    emit = Emit(network().layout, "p", 2)
    for i in range(6):
        emit.matmul(2, 2, 2, Ref("a"), Ref("b"), Ref(f"c{i}"))
    assert [len(outs(op)) for op in grouped_products(emit.ops)] == [4, 2]


def test_a_kernel_between_two_products_keeps_them_apart():
    emit = Emit(network().layout, "p", 2)
    emit.matmul(2, 2, 2, Ref("a"), Ref("b"), Ref("c"))
    emit.launch("relu_epilogue", extra="c", out="c", n=4, grad=0)
    emit.matmul(2, 2, 2, Ref("c"), Ref("b"), Ref("d"))
    emit.matmul(2, 2, 2, Ref("a"), Ref("b"), Ref("e"))
    first, kernel, last = grouped_products(emit.ops)
    assert (outs(first), kernel.kind, outs(last)) == (["c", "e"], "launch", ["d"])


def test_parts_of_one_buffer_do_not_conflict_and_overlaps_do():
    emit = Emit(network().layout, "p", 2)
    for at in (0, 4, 6):
        emit.matmul(2, 2, 2, Ref("a"), Ref("b"), Ref("c", at, 4))
    assert [len(outs(op)) for op in grouped_products(emit.ops)] == [2, 1]


def test_an_op_of_unknown_effect_is_refused():
    with pytest.raises(ProgramError, match="can't be ordered"):
        grouped_products([Copy(Ref("a"), Ref("b"), "htod")])


def product(out, a="a", size=2):
    return MatmulOp(size, size, size, Ref(a), Ref("w"), Ref(out))


#: Above what a launch takes with others.
LARGE = 1024


def test_passes_of_small_products_share_launches():
    passes = [[product("c"), product("d", "c")], [product("e"), product("f", "e")]]
    assert [outs(op) for op in side_by_side(passes)] == [["c", "e"], ["d", "f"]]


def test_a_product_with_a_launch_of_its_own_makes_branches_with_groups_inside():
    passes = [
        [product("c", size=LARGE), product("d", "c"), product("e", "c")],
        [product("f"), product("g", "f")],
    ]
    (op,) = side_by_side(passes)
    assert isinstance(op, Branches)
    assert [[outs(o) for o in branch] for branch in op.branches] == [
        [["c"], ["d", "e"]],
        [["f"], ["g"]],
    ]


def test_passes_that_wait_for_one_another_are_one_branch():
    first, other = [product("c", size=LARGE)], [product("f"), product("g", "f")]
    after = [product("d", "c")]
    (op,) = side_by_side([first, other, after])
    assert [[outs(o) for o in branch] for branch in op.branches] == [[["f"], ["g"]], [["c"], ["d"]]]


@pytest.mark.parametrize("count", [0, 1])
def test_one_branch_is_none(count):
    passes = [[product("c", size=LARGE), product("d", "c")]] * count
    assert [outs(op) for op in side_by_side([*passes, []])] == [["c"], ["d"]][: 2 * count]


def test_a_single_op_is_no_branch():
    alone, other = [product("c", size=LARGE)], [product("f"), product("g", "f")]
    assert [outs(op) for op in side_by_side([other, alone])] == [["c"], ["f"], ["g"]]


def drawn(ops):
    """Outputs: of an op a list, of branches a list of those."""
    return [
        [[o for op in branch for o in outs(op)] for branch in op.branches]
        if isinstance(op, Branches)
        else outs(op)
        for op in ops
    ]


def test_the_sides_that_a_pass_begins_on_are_branches_up_to_where_they_meet():
    left = [product("f"), product("g", "f", size=LARGE)]
    right = [product("h"), product("i", "h", size=LARGE)]
    meet = [MatmulOp(2, 2, 2, Ref("g"), Ref("i"), Ref("j")), product("k", "j")]
    (fork, *rest) = side_by_side([[left[0], right[0], left[1], right[1], *meet]])
    assert drawn([fork]) == [[["f", "g"], ["h", "i"]]]
    assert drawn(rest) == [["j"], ["k"]]


def test_large_products_that_nothing_waits_for_come_last_dealt_among_branches():
    chain = [product("f"), product("g", "f")]
    free = [replace(product(f"w{i}", "f", size=LARGE), trans_a=True) for i in range(6)]
    *before, fork = side_by_side([[chain[0], *free, chain[1]]])
    assert drawn(before) == [["f"], ["g"], ["w2"], ["w3"]]
    assert drawn([fork]) == [[["w0", "w4"], ["w1", "w5"]]]


NAMES = st.sampled_from("abcdef")


@given(st.lists(st.tuples(NAMES, NAMES, NAMES, st.booleans()), max_size=12))
def test_every_op_stays_behind_what_it_depends_on(steps):
    """Whatever the order, each op reads what the same op wrote as before."""
    ops = []
    for a, b, out, product in steps:
        if product:
            ops.append(MatmulOp(2, 2, 2, Ref(a), Ref(b), Ref(out)))
        else:
            args = {"extra": Ref(a), "out": Ref(out), "n": 4, "grad": 1}
            ops.append(Launch("relu_epilogue", args))

    def flat(given_ops):
        return [m for op in given_ops for m in getattr(op, "members", (op,))]

    assert run(flat(grouped_products(ops))) == run(ops)
    for at in range(len(ops)):
        assert run(flat(opened(branched([ops[:at], ops[at:]])))) == run(ops)


def run(ops):
    """Each buffer's history: which value was made from which."""
    values = {}
    for op in ops:
        if isinstance(op, MatmulOp):
            values[op.out.buffer] = ("mm", values.get(op.a.buffer), values.get(op.b.buffer))
        else:
            a, out = op.args["extra"].buffer, op.args["out"].buffer
            values[out] = ("relu", values.get(a), values.get(out))
    return values
