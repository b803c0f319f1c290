"""A kernel that does what compute-sanitizer must find, so that silence means something.

`which` is a position in `TOOLS`: 0 writes beyond `out` [n], 1 races for shared memory, 2 reads
`unwritten` [n], which no one has written, 3 synchronises half a warp with all of it.
"""

from onegraph.kernels import catalogue
from onegraph.kernels.catalogue import kernel

TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")

_before = set(catalogue._registry)


@kernel(per="one", block=64, unwritten="in i32", out="inout i32", which="i32", n="i32")
def fault(*, unwritten, out, which, n):
    raise NotImplementedError("a fault of the GPU's has no twin")


KERNELS = {n: spec for n, spec in catalogue._registry.items() if n not in _before}
for _name in KERNELS:
    del catalogue._registry[_name]


def main(tool: str) -> None:
    from onegraph.kernels.device.cuda import CudaDevice

    catalogue._registry.update(KERNELS)
    with CudaDevice(gemm="kernel") as device:
        # Of a page each, so that nothing of anyone else's lies behind them.
        unwritten, out = (device.allocate((1 << 19,), "i32", name) for name in ("unwritten", "out"))
        device.memset(out)
        device.run("fault", unwritten=unwritten, out=out, which=TOOLS.index(tool), n=out.size)
        device.synchronize()
    print("the fault was planted")


if __name__ == "__main__":
    import sys

    main(sys.argv[1])
