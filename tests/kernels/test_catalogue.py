"""The two halves of each kernel agree: files, signatures, shared numbers; no float atomics."""

from __future__ import annotations

import re
from enum import IntEnum
from pathlib import Path

import numpy as np
import pytest

from onegraph.kernels import catalogue as catalogue_module
from onegraph.kernels.catalogue import KernelSpec, Param, catalogue, find, kernel
from onegraph.kernels.common import layout
from onegraph.kernels.compile import INCLUDE
from onegraph.kernels.replay.tree import changed_nodes, path_leaves, path_nodes
from onegraph.kernels.signature import SignatureError, signature, strip_comments

#: The package's own: other tests may have loaded kernels from elsewhere.
KERNELS = {n: spec for n, spec in catalogue().items() if spec.source.is_relative_to(INCLUDE)}
SOURCES = sorted(INCLUDE.rglob("*.cu"))
HEADERS = sorted(INCLUDE.rglob("*.cuh"))


# -------------------------------------------------------------------- files and signatures


def declared(spec: KernelSpec) -> tuple[str, list[str]]:
    return spec.name, [param.c_declaration for param in spec.params]


@pytest.mark.parametrize("name", list(KERNELS))
def test_signature_is_the_declared_one(name):
    spec = find(name)
    assert signature(spec.source.read_text()) == declared(spec)


@pytest.mark.parametrize("source", SOURCES, ids=lambda p: p.stem)
def test_each_source_has_its_twin(source):
    assert source.stem in KERNELS
    assert KERNELS[source.stem].source == source
    assert source.with_suffix(".py").is_file()


@pytest.mark.parametrize("name", list(KERNELS))
def test_each_twin_has_its_source(name):
    spec = find(name)
    assert spec.source.is_file()
    assert spec.source.stem == name
    assert spec.block % 32 == 0
    assert 32 <= spec.block <= 1024


@pytest.mark.parametrize(
    ("source", "want"),
    [
        (
            'extern "C" __global__ void f(const float* __restrict__ a, float *b, int n) {}',
            ("f", ["const float* a", "float* b", "int n"]),
        ),
        (
            'extern "C" __global__ void __launch_bounds__(256, 2)\ng(unsigned long long* x) {}',
            ("g", ["unsigned long long* x"]),
        ),
        (
            '// extern "C" __global__ void no(int n)\nextern "C" __global__ void f(int n) {}',
            ("f", ["int n"]),
        ),
    ],
)
def test_signature_parser(source, want):
    assert signature(source) == want


@pytest.mark.parametrize(
    "source",
    [
        'extern "C" __global__ void f(float* a, float* b, int n) {}',  # a lost its const
        'extern "C" __global__ void f(const float* a, float* b, long long n) {}',
        'extern "C" __global__ void f(const float* b, float* a, int n) {}',
        'extern "C" __global__ void f(const float* a, float* b) {}',
        'extern "C" __global__ void g(const float* a, float* b, int n) {}',
    ],
)
def test_signature_check_can_fail(source):
    params = [Param("a", "f32", "in"), Param("b", "f32", "out"), Param("n", "i32", "scalar")]
    assert signature(source) != ("f", [param.c_declaration for param in params])


def test_two_kernels_in_one_file():
    one = 'extern "C" __global__ void f(int n) {}\n'
    with pytest.raises(SignatureError, match="2 kernels"):
        signature(one + one)


# -------------------------------------------------------------------- declarations


@pytest.mark.parametrize(
    ("per", "block", "size", "blocks"),
    [
        ("thread", 256, 0, 1),
        ("thread", 256, 256, 1),
        ("thread", 256, 257, 2),
        ("warp", 256, 9, 2),
        ("block", 256, 9, 9),
        ("one", 256, 999, 1),
    ],
)
def test_launch_shape(per, block, size, blocks):
    spec = KernelSpec("f", (), block, per, ("n",), fma=False, source=Path(), twin=print)
    assert spec.blocks({"n": size}) == blocks


@pytest.mark.parametrize(
    ("declaration", "message"),
    [
        ({"a": "in f16", "n": "i32"}, "'a': 'in f16'"),
        ({"a": "to f32", "n": "i32"}, "'a': 'to f32'"),
        ({"a": "in f32"}, r"work \['n'\] is no scalar"),
        ({"n": "in i32"}, r"work \['n'\] is no scalar"),
    ],
)
def test_declaration_errors(declaration, message):
    with pytest.raises(ValueError, match=message):
        kernel(work="n", **declaration)(lambda: None)


# -------------------------------------------------------------------- numbers both sides share

C_ENUM = re.compile(r"enum\s+(\w+)\s*\{([^}]*)\}")
C_DEFINE = re.compile(r"^#define\s+(\w+)\s+(\d+)\s*$", re.M)


def c_numbers(source: str) -> dict[str, dict[str, int]]:
    """Enums by name with their members (a one-letter prefix dropped); defines under ``""``."""
    code = strip_comments(source)
    numbers: dict[str, dict[str, int]] = {"": {k: int(v) for k, v in C_DEFINE.findall(code)}}
    for name, body in C_ENUM.findall(code):
        members = {k: int(v) for k, v in re.findall(r"(\w+)\s*=\s*(\d+)", body)}
        prefixed = all(re.match(r"[A-Z]_", member) for member in members)
        numbers[name] = {k[2:] if prefixed else k: v for k, v in members.items()}
    return numbers


def python_numbers() -> dict[str, dict[str, int]]:
    numbers: dict[str, dict[str, int]] = {"": {}}
    for name, value in vars(layout).items():
        if isinstance(value, int) and name.isupper():
            numbers[""][name] = value
        elif (
            isinstance(value, type)
            and issubclass(value, int)
            and value.__module__ == layout.__name__
        ):
            numbers[name] = {member.name: int(member) for member in value}
    return numbers


LAYOUT = (INCLUDE / "common" / "layout.cuh").read_text()


def test_layouts_agree():
    assert c_numbers(LAYOUT) == python_numbers()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("RNG = 7", "RNG = 6"),
        ("#define COUNTERS 16", "#define COUNTERS 15"),
        ("enum Flag { F_TERMINATED = 1, ", "enum Flag { "),
        ("#define FAN_OUT 32", ""),
    ],
)
def test_layout_check_can_fail(old, new):
    assert old in LAYOUT
    assert c_numbers(LAYOUT.replace(old, new)) != python_numbers()


@pytest.mark.parametrize(
    "enum", [e for e in vars(layout).values() if isinstance(e, type) and issubclass(e, IntEnum)]
)
def test_enum_members_differ(enum):
    assert len(set(enum)) == len(enum.__members__)


# -------------------------------------------------------------------- atomics

INTEGER = r"(?:unsigned\s+long\s+long|long\s+long|unsigned\s+int|unsigned|int)"


def float_atomics(source: str) -> list[str]:
    """Atomic calls of `source` whose target is not declared as an integer in it.

    The order in which a GPU's threads add floats differs from run to run, and so does the sum.
    """
    code = strip_comments(source)
    offences = []
    for call in re.finditer(
        r"\batomic\w+\s*\(\s*([^,]*),|\b(?:red|atom)\.[\w.]*\.f(?:32|64)", code
    ):
        target = call[1]
        if target is None:
            offences.append(call[0])
            continue
        cast = re.search(r"\(\s*(\w[\w\s]*?)\s*\*\s*\)", target)
        if cast:
            integer = re.fullmatch(INTEGER, cast[1]) is not None
        else:
            name = re.search(r"[A-Za-z_]\w*", target)
            where = rf"[\s*&]+(?:__restrict__\s+)?{name[0]}\b" if name else "^"
            integer = re.search(rf"\b{INTEGER}{where}", code) is not None
            integer &= re.search(rf"\b(?:float|double){where}", code) is None
        if not integer:
            offences.append(call[0])
    return offences


@pytest.mark.parametrize("source", SOURCES + HEADERS, ids=lambda p: p.name)
def test_no_float_atomics(source):
    assert float_atomics(source.read_text()) == []


@pytest.mark.parametrize(
    "body",
    [
        "float* sum) { atomicAdd(sum, 1.0f); }",
        "float* sum) { atomicAdd(&sum[3], 1.0f); }",
        "double* __restrict__ sum) { atomicAdd(sum + 1, 1.0); }",
        "int* sum) { atomicAdd((float*)sum, 1.0f); }",
        "int* x) { __shared__ float s[2]; atomicMax(&s[0], 1.0f); }",
        "int* x) { atomicAdd(unknown, 1); }",
        'float* x) { asm("red.global.add.f32 [%0], %1;" :: "l"(x), "f"(1.0f)); }',
    ],
)
def test_atomics_check_can_fail(body):
    assert len(float_atomics(f'extern "C" __global__ void f({body}')) == 1


@pytest.mark.parametrize(
    "body",
    [
        "int* n) { atomicAdd(n, 1); }",
        "unsigned long long* __restrict__ n) { atomicAdd(&n[2], 1ull); }",
        "long long* n) { atomicAdd((unsigned long long*)&n[0], 1ull); }",
        "float* x) { __shared__ int best; atomicMax(&best, 3); }",
        "float* x) { } // atomicAdd(x, 1.0f)",
    ],
)
def test_integer_atomics_pass(body):
    assert float_atomics(f'extern "C" __global__ void f({body}') == []


def test_twins_take_what_is_declared():
    """A twin called with arrays and scalars of the declared kinds accepts them by keyword."""
    out = np.array([-1.0, 2.0], np.float32)
    find("relu_epilogue").twin(extra=out, out=out, n=2, grad=0)
    assert out.tolist() == [0, 2]


# -------------------------------------------------------------------- the shape of a launch


def declared_kernel(**launch: object) -> KernelSpec:
    """A kernel's declaration that is not kept."""

    def shaped(x, y, n, wide, bytes_each):
        return None

    taken = {"per": "cluster", "work": "n", "cluster_of": "wide"} | launch
    shaped.__name__ = shaped.__qualname__ = "shaped"
    kernel(**taken, x="in f32", y="out f32", n="i32", wide="i32", bytes_each="i32")(shaped)  # type: ignore[arg-type]
    return catalogue_module._registry.pop("shaped")


@pytest.mark.parametrize(
    ("per", "size", "blocks"),
    [("thread", 0, 1), ("thread", 768, 1), ("thread", 769, 2), ("warp", 25, 2), ("block", 7, 3)],
)
def test_a_place_takes_several_units(per, size, blocks):
    spec = declared_kernel(per=per, cluster_of="", per_place=3)
    assert spec.blocks({"n": size}) == blocks


def test_units_of_clusters_are_counted_in_blocks():
    spec = declared_kernel(shared_of="bytes_each", resident=True, early=True)
    assert (spec.cluster, spec.shared, spec.resident, spec.early) == (
        "wide",
        "bytes_each",
        True,
        True,
    )
    assert [spec.blocks({"n": n, "wide": 8}) for n in (0, 1, 3)] == [8, 8, 24]
    assert spec.blocks({"n": 3, "wide": 0}) == spec.capped(3, 4096, {"wide": 0}) == 3


@pytest.mark.parametrize(
    ("blocks", "most", "wide", "given"),
    [(24, 4096, 8, 24), (24, 20, 8, 16), (24, 8, 8, 8), (24, 1, 8, 8), (12, 10, 4, 8)],
)
def test_a_cap_cuts_whole_clusters_and_leaves_one(blocks, most, wide, given):
    assert declared_kernel().capped(blocks, most, {"n": 3, "wide": wide}) == given


def test_a_cap_without_clusters_cuts_blocks():
    spec = declared_kernel(per="block", cluster_of="")
    assert [spec.capped(b, 7, {"n": 3}) for b in (1, 7, 12)] == [1, 7, 7]
    assert (spec.resident, spec.early, spec.shared) == (False, False, "")


@pytest.mark.parametrize(
    ("launch", "message"),
    [
        ({"cluster_of": ""}, "per='cluster' and cluster_of= go together"),
        ({"per": "block"}, "per='cluster' and cluster_of= go together"),
        ({"cluster_of": "x"}, "cluster_of='x' is no scalar parameter"),
        ({"shared_of": "absent"}, "shared_of='absent' is no scalar parameter"),
        ({"work": ""}, "per='cluster' needs work="),
        ({"per_place": 2}, "per_place=2; a thread, warp or block takes one unit or more"),
        (
            {"per": "block", "cluster_of": "", "per_place": 0},
            "per_place=0; a thread, warp or block",
        ),
    ],
)
def test_a_shape_that_does_not_fit_is_refused(launch, message):
    with pytest.raises(ValueError, match=message):
        declared_kernel(**launch)


def test_what_the_fused_kernels_ask_of_a_device():
    td_pass, apply_step, draw_rows = (find(n) for n in ("td_pass", "apply_step", "draw_rows"))
    assert (td_pass.per, td_pass.cluster, td_pass.shared) == ("cluster", "cluster", "shared_bytes")
    assert td_pass.early
    assert not td_pass.resident
    assert apply_step.resident  # its blocks wait for one another
    assert not apply_step.early
    assert (draw_rows.resident, draw_rows.early, draw_rows.cluster) == (False, False, "")
    update_step = find("update_step")
    assert (update_step.resident, update_step.early) == (True, False)
    assert (update_step.shared, update_step.block) == ("shared_bytes", 512)


def test_who_starts_early_waits_by_itself():
    """Or it would read what the kernel before it has not written yet."""
    for spec in KERNELS.values():
        assert not spec.early or "wait_for_grid();" in spec.source.read_text(), spec.name


def with_headers(source: Path) -> set[str]:
    """What a source includes, and what that does."""
    found = set()
    for header in re.findall(r'#include "([^"]+)"', strip_comments(source.read_text())):
        found |= {header} | with_headers(INCLUDE / header)
    return found


def test_who_waits_for_all_blocks_says_that_they_must_run_at_once():
    """Nothing else has a use for the barrier's header, itself or through another."""
    for spec in KERNELS.values():
        waits = "fused/grid_barrier.cuh" in with_headers(spec.source)
        assert waits is spec.resident, spec.name
    assert find("apply_step").resident


# ---------------------------------------------------------------- arrays touched in part


def test_sparse_counts_are_products_numbers_or_functions():
    spec = declared_kernel(
        sparse_reads={"x": "n*wide"}, sparse_writes={"y": lambda sizes: int(sizes["n"]) + 1}
    )
    sizes = {"n": 3, "wide": 8, "bytes_each": 0}
    assert spec.sparse_reads["x"](sizes) == 24
    assert spec.sparse_writes["y"](sizes) == 4
    assert declared_kernel(sparse_reads={"x": 0}).sparse_reads["x"](sizes) == 0


@pytest.mark.parametrize(
    ("counts", "message"),
    [
        ({"sparse_reads": {"y": "n"}}, "sparse count of 'y', which is no in array of it; it has x"),
        ({"sparse_writes": {"x": "n"}}, "which is no out array of it; it has y"),
        ({"sparse_reads": {"n": "n"}}, "'n', which is no in array"),
        ({"sparse_reads": {"x": "n*rows"}}, "names 'rows', which is no scalar parameter"),
    ],
)
def test_a_sparse_count_that_does_not_fit_is_refused(counts, message):
    with pytest.raises(ValueError, match=message):
        declared_kernel(**counts)


def test_paths_of_the_tree_by_hand():
    """1,025 leaves: 33 nodes of 32, 2 above them, the root."""
    one, many = {"n": 1, "leaf_count": 1025}, {"n": 100, "leaf_count": 1025}
    assert (path_leaves(one), path_leaves(many)) == (32, 3200)
    assert (path_nodes(one), path_nodes(many)) == (32 + 2 + 1, 33 + 2 + 1)
    assert (changed_nodes(one), changed_nodes(many)) == (1 + 1 + 1, 33 + 2 + 1)
    spec = find("refresh_drawn")
    # Groups of 32 nodes of a level and the node above, a group at least for each leaf written.
    first = {"leaf_count": 40_000, "level": 1, "groups": 3}  # 1,250 nodes, 40, 2, the root
    assert spec.sparse_reads["leaves"](first) == spec.sparse_reads["nodes"](first) == 3 * 32
    assert spec.sparse_writes["nodes"](first) == 3 + 3
    third = {"leaf_count": 40_000, "level": 3, "groups": 1}
    assert spec.sparse_reads["leaves"](third) == 0
    assert spec.sparse_reads["nodes"](third) == 32 + 2
    assert spec.sparse_writes["nodes"](third) == 1 + 1


def test_a_target_that_is_copied_now_and_then_is_not_touched_in_between():
    for name, size in (("target_update", "n"), ("maintain", "size")):
        spec = find(name)
        for count in (spec.sparse_reads["target"], spec.sparse_writes["target"]):
            assert (count({size: 9, "every": 0}), count({size: 9, "every": 5})) == (9, 0)
