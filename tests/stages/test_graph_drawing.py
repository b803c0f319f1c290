"""The drawn graph: clusters from a program or a driver's DOT, and a readable layout."""

import re

import pytest

from onegraph.stages import Buffer, Phase, Ref, StepProgram
from onegraph.stages.page.graph_drawing import (
    Cluster,
    DotError,
    Node,
    draw,
    from_dot,
    from_program,
)
from onegraph.stages.program import (
    Branches,
    Copy,
    GraphLaunch,
    Host,
    MatmulGroup,
    MatmulOp,
    Memset,
    RecordEvent,
)

BUFFERS = (Buffer("a", (4,), "f32"), Buffer("b", (4,), "f32"), Buffer("h", (4,), "f32", "host"))
C = Buffer("c", (4,), "f32")
ZERO, MOVE = Memset(Ref("a")), Copy(Ref("b"), Ref("a"), "dtod")
PRODUCT = MatmulOp(2, 2, 2, Ref("a"), Ref("a"), Ref("b"))


def program(*phases):
    return StepProgram("learn", "learn", phases, BUFFERS)


def test_phases_without_graphs_are_loose_clusters():
    found = from_program(
        program(Phase("draw", (Host("pick", print), ZERO)), Phase("empty"), Phase("work", (MOVE,)))
    )
    assert found == (
        Cluster("draw", (Node("host pick", "host"), Node("zero a", "memset")), graphed=False),
        Cluster("work", (Node("dtod b", "copy"),), graphed=False),
    )


def test_a_group_of_products_is_one_node():
    other = MatmulOp(2, 2, 2, Ref("a"), Ref("a"), Ref("c"))
    group = MatmulGroup((PRODUCT, other))
    found = from_program(StepProgram("p", "learn", (Phase("x", (group,)),), (*BUFFERS, C)))
    assert found == (Cluster("x", (Node("matmul b, c", "matmul"),), graphed=False),)


def test_children_of_a_parent_are_clusters_and_events_are_not_work():
    inner = (
        GraphLaunch("one", (ZERO,)),
        RecordEvent(1, "two"),
        GraphLaunch("two", (PRODUCT, MOVE)),
    )
    parent = GraphLaunch("learn", (RecordEvent(0, "one"), *inner))
    assert from_program(program(Phase("learn", (parent,)))) == (
        Cluster("one", (Node("zero a", "memset"),)),
        Cluster("two", (Node("matmul b", "matmul"), Node("dtod b", "copy"))),
    )


def test_branches_of_a_graph_are_paths_side_by_side():
    other = Memset(Ref("c"))
    body = (MOVE, Branches(((ZERO, ZERO), (other,))), PRODUCT, Branches(((ZERO,), (other,))))
    made = StepProgram("p", "learn", (Phase("x", (GraphLaunch("x", body),)),), (*BUFFERS, C))
    nodes = from_program(made)[0].nodes
    assert [(n.label, n.fork, n.branch) for n in nodes] == [
        ("dtod b", 0, 0),
        ("zero a", 1, 0),
        ("zero a", 1, 0),
        ("zero c", 1, 1),
        ("matmul b", 0, 0),
        ("zero a", 2, 0),
        ("zero c", 2, 1),
    ]


def test_branches_outside_a_graph_are_run_and_drawn_one_after_another():
    branches = Branches(((ZERO,), (Memset(Ref("c")),)))
    made = StepProgram("p", "learn", (Phase("x", (branches,)),), (*BUFFERS, C))
    nodes = (Node("zero a", "memset"), Node("zero c", "memset"))
    assert from_program(made) == (Cluster("x", nodes, graphed=False),)


DOT = """digraph dot {
subgraph cluster_1 {
label="graph_1" graph[style="dashed"];
"graph_1_node_0"[style="solid" shape="rectangle" label="0
CHILD GRAPH
"];
"graph_1_node_1"[style="solid" shape="rectangle" label="1
CHILD GRAPH
"];
"graph_1_node_0" -> "graph_1_node_1" [headlabel=0];
subgraph cluster_2 {
label="graph_2" graph[style="dashed"];
"graph_2_node_1"[style="bold" shape="octagon" label="1
adam_step; with {braces}
"];
"graph_2_node_0"[style="bold" shape="octagon" label="0
dqn_loss
"];
"graph_2_node_0" -> "graph_2_node_1";
}
subgraph cluster_3 {
label="graph_3";
"graph_3_node_0"[style="solid" shape="trapezium" label="0
MEMSET
"];
}
}
}
"""


def test_dot_gives_the_children_their_names_and_the_order_of_their_edges():
    kernels = (Node("dqn_loss", "kernel"), Node("adam_step; with {braces}", "kernel"))
    assert from_dot(DOT, ["ddqn", "zero"]) == (
        Cluster("ddqn", kernels),
        Cluster("zero", (Node("memset", "memset"),)),
    )
    assert [c.name for c in from_dot(DOT, ["ddqn"])] == ["cluster_2", "cluster_3"]


#: As the driver wrote a step at stage 6 on an H200, cut to two children: a child's node has nothing
#: but the name of its graph.
FROM_AN_H200 = """digraph dot {
subgraph cluster_186 {
label="graph_186" graph[style="dashed"];
"graph_186_node_0"[style="solid" shape="rectangle" label="0
graph_187
"];

"graph_186_node_1"[style="solid" shape="rectangle" label="1
graph_188
"];

"graph_186_node_0" -> "graph_186_node_1";
}
subgraph cluster_187 {
label="graph_187" graph[style="dashed"];
"graph_187_node_0"[style="bold" shape="octagon" label="0
grad_norm_partial
"];

"graph_187_node_1"[style="bold" shape="octagon" label="1
clip_factor
"];

"graph_187_node_0" -> "graph_187_node_1";
}
subgraph cluster_188 {
label="graph_188" graph[style="dashed"];
"graph_188_node_0"[style="bold" shape="octagon" label="0
adam_step
"];

}
}
"""


def test_dot_as_a_driver_wrote_it_has_no_work_in_the_parent():
    assert from_dot(FROM_AN_H200, ["adam_grad", "adam"]) == (
        Cluster("adam_grad", (Node("grad_norm_partial", "kernel"), Node("clip_factor", "kernel"))),
        Cluster("adam", (Node("adam_step", "kernel"),)),
    )


def dot_of(nodes, edges):
    lines = [f'"{n}"[label="{i}\n{n}\n"];' for i, n in enumerate(nodes)]
    lines += [f'"{a}" -> "{b}";' for a, b in edges]
    return "digraph dot {\nsubgraph cluster_1 {\n" + "\n".join(lines) + "\n}\n}"


@pytest.mark.parametrize(
    ("edges", "paths"),
    [
        # a fork in the middle, with branches of two lengths; another at the end
        ("ab ac bd df cf fg fh", "a00 b10 d10 c11 f00 g20 h21"),
        ("bd ad", "a10 b11 d00"),  # the first nodes are branches
        ("ab bc", "a00 b00 c00"),
        ("ab ba", "a00 b00"),  # nonsense ends as well
    ],
)
def test_dot_with_a_fork_gives_its_branches(edges, paths):
    """A path is a node, its fork and its branch."""
    pairs = [(f"k_{a}", f"k_{b}") for a, b in edges.split()]
    names = sorted({name for pair in pairs for name in pair})
    (found,) = from_dot(dot_of(names, pairs), [])
    assert " ".join(f"{n.label[2:]}{n.fork}{n.branch}" for n in found.nodes) == paths


@pytest.mark.parametrize("text", ["", "digraph dot {", 'digraph { "a" -> "b" }', "]]}}["])
def test_dot_without_work_is_refused(text):
    with pytest.raises(DotError, match="no node that does work"):
        from_dot(text, [])


CHAIN = tuple(
    Cluster(f"phase_{i}", tuple(Node(f"kernel_{i}_{j}", "kernel") for j in range(1 + 5 * i % 9)))
    for i in range(12)
)


def boxes(svg, kind):
    pattern = (
        rf'<rect class="{kind}[^"]*" x="([\d.]+)" y="([\d.]+)" width="([\d.]+)" height="([\d.]+)"'
    )
    return [tuple(map(float, found)) for found in re.findall(pattern, svg)]


def plain_boxes(svg):
    pattern = r'<rect x="([\d.]+)" y="([\d.]+)" width="([\d.]+)" height="([\d.]+)"'
    return [tuple(map(float, found)) for found in re.findall(pattern, svg)]


@pytest.mark.parametrize(("columns", "width"), [(1, 220), (2, 380), (4, 920)])
def test_a_chain_of_twelve_clusters_is_drawn_in_order_and_without_overlap(columns, width):
    svg = draw(CHAIN, columns, width, "a chain")
    found = boxes(svg, "cluster")
    assert len(found) == 12
    xs = [x for x, *_ in found]
    assert xs == sorted(xs)
    assert len(set(xs)) <= columns
    height = float(re.search(r'viewBox="0 0 \d+ ([\d.]+)"', svg)[1])
    for i, (x, y, w, h) in enumerate(found):
        assert x >= 0 and x + w <= width and y + h <= height  # noqa: PT018
        for x2, y2, w2, h2 in found[:i]:
            assert x >= x2 + w2 or y >= y2 + h2 or y2 >= y + h
    names = re.findall(r">(kernel_\d+_\d+)</text>", svg)
    assert names == [node.label for cluster in CHAIN for node in cluster.nodes]
    arrows = svg.count('class="tip"')
    assert arrows == len(names) - 1  # one into each node or cluster, but the first


def test_branches_are_drawn_beside_one_another_between_a_fork_and_a_join():
    def at(label, fork=0, branch=0):
        return Node(label, "kernel", fork, branch)

    nodes = (at("top"), at("a", 1), at("b", 1), at("c", 1, 1), at("d", 1, 2), at("end"))
    svg = draw([Cluster("forked", nodes)], 1, 300, "forked")
    found = dict(zip([n.label for n in nodes], plain_boxes(svg), strict=True))
    ((x, y, w, h),) = boxes(svg, "cluster")
    top, a, b, c, d, end = found.values()
    assert a[1] == c[1] == d[1] > top[1] + top[3]
    assert b[1] > a[1] + a[3] and b[0] == a[0]  # noqa: PT018
    assert end[1] > b[1] + b[3]
    for one, other in ((a, c), (c, d)):
        assert one[0] + one[2] < other[0]
    assert d[0] + d[2] < x + w and end[1] + end[3] < y + h  # noqa: PT018
    # into each branch, from each, and inside the one of two nodes
    assert svg.count('class="tip"') == 3 + 3 + 1


def test_columns_are_as_even_as_the_order_allows():
    svg = draw([Cluster(str(i), (Node("k", "kernel"),)) for i in range(8)], 4, 920, "even")
    columns = {
        x: [b for b in boxes(svg, "cluster") if b[0] == x] for x, *_ in boxes(svg, "cluster")
    }
    assert [len(c) for c in columns.values()] == [2, 2, 2, 2]


def test_long_labels_are_cut_and_kept_as_a_title_and_hostile_ones_are_text():
    name = "<script>" + "x" * 80
    svg = draw([Cluster("<b>", (Node(name, "kernel"),))], 1, 200, "<i>")
    assert "<script>" not in svg
    assert f"<title>&lt;script&gt;{'x' * 80}</title>" in svg
    assert "…</text>" in svg
    assert 'aria-label="&lt;i&gt;"' in svg
