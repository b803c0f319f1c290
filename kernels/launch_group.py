"""Several launches of one kernel as one: the kernel that does so, made of the kernel's own source.

Launches that do not depend on one another need a node of a graph each, and most of a small one's
time is the node's. A group of them is one node: its grid has the blocks of all members, each block
finds its member by its index, and then runs the kernel's code as it stands, with the member's
arguments, and with ``blockIdx`` and ``gridDim`` as the member's own launch would have had them. So
the bits are those of separate launches, by kernels that last wait for each other's blocks
(``common/last_block.cuh``) too.

The kernel's code stands there once, whatever the number of members: their arguments come as one
structure, in which a block reads those of its member. How that structure lies in memory,
`group_arguments` says to the host and static assertions hold the compiler to.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onegraph.kernels.catalogue import CONDITION, DTYPES, KernelSpec, Param
from onegraph.kernels.signature import split_kernel

#: Members that one launch can have.
MEMBERS = 8

#: Bytes of arguments that every driver lets a kernel have.
_ARGUMENT_BYTES = 4096


def obstacle(spec: KernelSpec) -> str:
    """Why launches of `spec` can't be one, as the end of a sentence; empty where they can."""
    if spec.cluster:
        return "its blocks form clusters, which have no place in another launch's grid"
    if spec.resident:
        return "its blocks wait for one another, and must all run at once"
    if spec.shared:
        return "its dynamic shared memory is sized by each launch"
    if spec.early:
        return "it starts before the kernel ahead of it has ended"
    if spec.fma:
        return "the compiler may fuse its multiplies and adds differently in another kernel"
    if any(p.name == CONDITION for p in spec.params):
        return "it sets the condition of a loop, which a loop launches by itself"
    if 2 * _member(spec).itemsize > _ARGUMENT_BYTES - 3 * 4:
        return f"the arguments of two are more than the {_ARGUMENT_BYTES:,} bytes of one launch"
    return ""


def most_members(spec: KernelSpec) -> int:
    """Members that one launch of `spec` has at most: 2 or more, or 1 where it has an `obstacle`."""
    if obstacle(spec):
        return 1
    return min(MEMBERS, (_ARGUMENT_BYTES - 4) // (_member(spec).itemsize + 4))


def group_name(spec: KernelSpec, members: int) -> str:
    """The name of the kernel that does `members` launches of `spec`."""
    return f"{spec.name}_group_{members}"


# ---------------------------------------------------------------- arguments


def _element(param: Param) -> np.dtype[Any]:
    return np.dtype(np.uint64) if param.is_pointer else DTYPES[param.dtype]


def _member(spec: KernelSpec) -> np.dtype[Any]:
    """One member's arguments as C lays them out."""
    return np.dtype([(p.name, _element(p)) for p in spec.params], align=True)


def group_arguments(spec: KernelSpec, members: int) -> np.dtype[Any]:
    """The one argument of a group's kernel, as C lays it out.

    ``each`` [members] has a field for each parameter, pointers as addresses (uint64); ``first``
    [members + 1] the first block of each member, and the number of all.
    """
    fields = [("each", _member(spec), (members,)), ("first", np.uint32, (members + 1,))]
    return np.dtype(fields, align=True)


def pack(
    spec: KernelSpec, values: Sequence[Mapping[str, int | float]], blocks: Sequence[int]
) -> NDArray[Any]:
    """The argument [1] of a group's kernel (see `group_arguments`).

    Args:
        spec: the kernel that the members launch.
        values: of each member, addresses and scalars by parameter.
        blocks: of each member, the blocks that it has if launched alone.
    """
    packed = np.zeros(1, group_arguments(spec, len(values)))
    for i, given in enumerate(values):
        for param in spec.params:
            packed["each"][param.name][0, i] = given[param.name]
    packed["first"][0, 1:] = np.cumsum(blocks)
    return packed


# ---------------------------------------------------------------- source


def group_source(spec: KernelSpec, source: str, members: int) -> str:
    """CUDA C++ of the kernel that does `members` launches of `spec`, whose file holds `source`.

    Raises:
        ValueError: `spec` has an `obstacle`, or it is too many members, or fewer than two.
    """
    if why := obstacle(spec):
        raise ValueError(f"launches of kernel {spec.name} can't be one: {why}")
    if not 2 <= members <= most_members(spec):
        raise ValueError(
            f"a group of kernel {spec.name} has 2 to {most_members(spec)} members, got {members}"
        )
    before, bounds, params, after = split_kernel(source)
    name = group_name(spec, members)
    fields = "".join(f"    {p.c_declaration};\n" for p in spec.params)
    arguments = ", ".join(f"given.each[member].{p.name}" for p in spec.params)
    return f"""#include "common/member_grid.cuh"
#line 1 "{spec.source.name}"
{before}__device__ __forceinline__ void {spec.name}({params}
    , const MemberBlock member_block, const MemberGrid member_grid){after}
#line 1 "{name}"
#undef blockIdx
#undef gridDim
struct GroupMember {{
{fields}}};
struct GroupMembers {{
    GroupMember each[{members}];
    unsigned int first[{members + 1}];
}};
{_assertions(spec, members)}
extern "C" __global__ void {bounds or f"__launch_bounds__({spec.block})"}
{name}(const __grid_constant__ GroupMembers given) {{
    int member = 0;
#pragma unroll
    for (int i = 1; i < {members}; ++i) member += blockIdx.x >= given.first[i];
    const MemberBlock block = {{blockIdx.x - given.first[member]}};
    const MemberGrid grid = {{given.first[member + 1] - given.first[member]}};
    if (threadIdx.x == 0) {{
        member_block = block;
        member_grid = grid;
    }}
    __syncthreads();
    {spec.name}({arguments}, block, grid);
}}
"""


def _assertions(spec: KernelSpec, members: int) -> str:
    """That the compiler lays the arguments out as the host writes them.

    By sizes alone, because not every NVRTC knows ``offsetof``: fields stand in one order on both
    sides, each at the next multiple of its own size, so that another offset is another size.
    """
    one, whole = _member(spec), group_arguments(spec, members)
    facts = (f"sizeof(GroupMember) == {one.itemsize}", f"sizeof(GroupMembers) == {whole.itemsize}")
    return "\n".join(f'static_assert({fact}, "arguments lie elsewhere");' for fact in facts)
