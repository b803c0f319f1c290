"""The kernel that does several launches of another: which there are, its arguments, its source."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import group_cases
import numpy as np
import pytest

from onegraph.kernels import catalogue as catalogue_module
from onegraph.kernels.catalogue import KernelSpec, Param, catalogue, find, load_kernels
from onegraph.kernels.compile import ARCHITECTURES, INCLUDE, compile_group
from onegraph.kernels.device import HostDevice
from onegraph.kernels.launch_group import (
    group_arguments,
    group_name,
    group_source,
    most_members,
    obstacle,
    pack,
)
from onegraph.kernels.signature import SignatureError, split_kernel

#: The package's own: other tests may have loaded kernels from elsewhere.
GROUPED = [
    name
    for name, spec in catalogue().items()
    if spec.source.is_relative_to(INCLUDE) and not obstacle(spec)
]

PARAMS = (
    Param("x", "f32", "in"),
    Param("flag", "u8", "scalar"),
    Param("n", "i64", "scalar"),
    Param("rate", "f32", "scalar"),
)
SPEC = KernelSpec("f", PARAMS, 64, "thread", ("n",), fma=False, source=Path("f.cu"), twin=print)
SOURCE = """// A comment: extern "C" __global__ void no(int n) {}
#define BLOCK 64
extern "C" __global__ void __launch_bounds__(BLOCK)
f(const float* __restrict__ x, unsigned char flag, long long n,
  float rate  // the last
) { if (blockIdx.x < gridDim.x) return; }
"""


# ---------------------------------------------------------------- which there are


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"per": "cluster", "cluster": "n"}, "its blocks form clusters"),
        ({"resident": True}, "its blocks wait for one another"),
        ({"shared": "n"}, "its dynamic shared memory is sized by each launch"),
        ({"early": True}, "it starts before the kernel ahead of it has ended"),
        ({"fma": True}, "may fuse its multiplies and adds differently"),
        ({"params": (*PARAMS, Param("condition", "u64", "scalar"))}, "the condition of a loop"),
        (
            {"params": tuple(Param(f"x{i}", "f32", "in") for i in range(256))},
            "the arguments of two are more than the 4,096 bytes",
        ),
    ],
)
def test_a_kernel_that_can_not_be_grouped_is_told_why(change, why) -> None:
    spec = replace(SPEC, **change)
    assert why in obstacle(spec)
    assert most_members(spec) == 1
    with pytest.raises(ValueError, match=f"launches of kernel f can't be one: .*{why}"):
        group_source(spec, SOURCE, 2)


def test_those_of_the_catalogue_that_can_not() -> None:
    reasons = {
        "apply_step": "wait for one another",
        "gemm": "multiplies and adds",
        "loop_control": "condition of a loop",
        "td_pass": "clusters",
        "update_step": "wait for one another",
    }
    for name, why in reasons.items():
        assert why in obstacle(find(name)), name
    assert {most_members(find(name)) for name in GROUPED} == {8}


@pytest.mark.parametrize(("pointers", "most"), [(1, 8), (63, 8), (64, 7), (170, 3), (255, 2)])
def test_members_as_many_as_their_arguments_have_room(pointers, most) -> None:
    """n pointers and a number take 8n + 4 bytes, and a multiple of 8; the first blocks 4 each."""
    params = tuple(Param(f"x{i}", "f32", "in") for i in range(pointers))
    spec = replace(SPEC, params=params, work=())
    assert most_members(spec) == most
    assert group_arguments(spec, most).itemsize <= 4096
    if most < 8:
        assert group_arguments(spec, most + 1).itemsize > 4096


@pytest.mark.parametrize("count", [0, 1, 9])
def test_no_other_number_of_members(count) -> None:
    with pytest.raises(ValueError, match=f"kernel f has 2 to 8 members, got {count}"):
        group_source(SPEC, SOURCE, count)


# ---------------------------------------------------------------- arguments


def test_arguments_lie_as_c_lays_them_out() -> None:
    """A pointer, a byte with 7 to spare, 8 bytes, 4 with 4 to spare; then a number a member."""
    dtype = group_arguments(SPEC, 3)
    one = dtype["each"].subdtype[0]
    assert [one.fields[name][1] for name in ("x", "flag", "n", "rate")] == [0, 8, 16, 24]
    assert one.itemsize == 32
    assert (dtype.fields["first"][1], dtype.itemsize) == (96, 112)


def test_packed_arguments() -> None:
    members = [
        {"x": 0x7F00_0000_1000, "flag": 255, "n": -1, "rate": 0.5},
        {"x": 8, "flag": 0, "n": 2**40, "rate": -2.0},
    ]
    packed = pack(SPEC, members, [3, 4096])
    raw = packed.tobytes()
    assert len(raw) == 80
    assert np.frombuffer(raw, np.uint64, 1, 0) == 0x7F00_0000_1000
    assert (raw[8], np.frombuffer(raw, np.int64, 1, 48)[0]) == (255, 2**40)
    assert np.frombuffer(raw, np.float32, 1, 56)[0] == -2
    assert np.frombuffer(raw, np.uint32, 3, 64).tolist() == [0, 3, 4099]


# ---------------------------------------------------------------- source


def test_a_source_is_cut_at_its_kernel() -> None:
    before, bounds, params, after = split_kernel(SOURCE)
    assert before.endswith("#define BLOCK 64\n")
    assert bounds == "__launch_bounds__(BLOCK)"
    assert params.startswith("const float* __restrict__ x, unsigned char")
    assert params.endswith("float rate  // the last\n")
    assert after == " { if (blockIdx.x < gridDim.x) return; }\n"
    assert split_kernel('extern "C" __global__ void f(int n) {}')[1] == ""


@pytest.mark.parametrize("source", ["", SOURCE + SOURCE.replace("f(", "g(")])
def test_a_source_of_none_or_two_kernels_is_refused(source) -> None:
    with pytest.raises(SignatureError, match="kernels in one file"):
        split_kernel(source)


def test_the_kernels_code_stands_there_once_with_the_members_place() -> None:
    text = group_source(SPEC, SOURCE, 2)
    assert group_name(SPEC, 2) == "f_group_2"
    assert text.count("return; }") == 1
    assert "__device__ __forceinline__ void f(const float* __restrict__ x," in text
    assert "float rate  // the last\n\n    , const MemberBlock member_block, const" in text
    assert "__launch_bounds__(BLOCK)\nf_group_2(const __grid_constant__ GroupMembers given)" in text
    assert "sizeof(GroupMember) == 32" in text
    assert "sizeof(GroupMembers) == 80" in text
    assert "f(given.each[member].x, given.each[member].flag," in text


def test_without_launch_bounds_the_declared_block_is_the_bound() -> None:
    text = group_source(SPEC, SOURCE.replace("__launch_bounds__(BLOCK)", ""), 2)
    assert 'extern "C" __global__ void __launch_bounds__(64)\nf_group_2(' in text


#: On every architecture: no header, one that asks for the grid, barriers, most arguments.
EVERYWHERE = ("scaled_add", "grad_norm", "layer_norm_grad", "env_market")


@pytest.mark.parametrize("name", GROUPED)
def test_every_kernel_compiles_in_a_group(name) -> None:
    pytest.importorskip("cuda.core")
    cubin = compile_group(find(name), 2, "sm_90")
    assert cubin.startswith(b"\x7fELF")
    assert f".text.{name}_group_2".encode() in cubin


@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("name", EVERYWHERE)
def test_some_compile_for_every_architecture(name, arch) -> None:
    pytest.importorskip("cuda.core")
    members = 8 if name == "env_market" else 3
    assert compile_group(find(name), members, arch).startswith(b"\x7fELF")


def test_a_kernel_outside_the_package_finds_the_headers_beside_it(monkeypatch) -> None:
    pytest.importorskip("cuda.core")
    monkeypatch.setattr(catalogue_module, "_registry", dict(catalogue_module._registry))
    load_kernels(Path(__file__).parents[2] / "examples" / "own_loop_kernels")
    spec = find("km_assign")
    assert '#include "distance.cuh"' in spec.source.read_text()
    assert b".text.km_assign_group_2" in compile_group(spec, 2, "sm_90")


def test_a_wrong_layout_would_not_compile(monkeypatch) -> None:
    pytest.importorskip("cuda.core")
    from onegraph.kernels import launch_group
    from onegraph.kernels.compile import CompileError

    monkeypatch.setattr(launch_group, "_element", lambda param: np.dtype(np.uint64))
    with pytest.raises(CompileError, match="arguments lie elsewhere"):
        compile_group(find("layer_norm"), 2, "sm_90")


# ---------------------------------------------------------------- on the host


@pytest.mark.slow
def test_every_kernel_that_can_be_grouped_has_launches_of_two_sizes() -> None:
    """So that no kernel is left out where a GPU is held to the bits of separate launches."""
    assert [name for name in GROUPED if len(group_cases.recorded().get(name, ())) < 2] == []


@pytest.mark.parametrize("kernel", GROUPED)
def test_a_group_gives_what_its_launches_give(kernel) -> None:
    launches = group_cases.members(kernel, 3)
    apart = group_cases.on(HostDevice(), kernel, launches, 4096, at_once=False)
    assert group_cases.on(HostDevice(), kernel, launches, 4096, at_once=True) == apart
