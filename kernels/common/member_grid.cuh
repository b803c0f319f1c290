// Where a block stands among those of its own launch, in a kernel that does several launches of
// another one (launch_group.py includes this before that one's source). The kernel's own text reads
// the parameters of the same names, which are registers; headers read what the block keeps here.
#pragma once

struct MemberBlock {
    unsigned int x;
    static const unsigned int y = 0, z = 0;
};

struct MemberGrid {
    unsigned int x;
    static const unsigned int y = 1, z = 1;
};

static __shared__ MemberBlock member_block;
static __shared__ MemberGrid member_grid;

#define blockIdx member_block
#define gridDim member_grid
