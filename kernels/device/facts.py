"""What a GPU is made of, as its driver tells, and the peaks that follow from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from onegraph.kernels.learner.matmul import Precision

#: Multiply-adds of float32 that a multiprocessor does each clock, by compute capability: the row
#: "32-bit floating-point add, multiply, multiply-add" of the table of arithmetic throughput in the
#: CUDA C++ Programming Guide.
FLOAT32_FMA: Mapping[tuple[int, int], int] = {
    (7, 0): 64,
    (7, 5): 64,
    (8, 0): 64,
    (8, 6): 128,
    (8, 7): 128,
    (8, 9): 128,
    (9, 0): 128,
    (10, 0): 128,
    (12, 0): 128,
}

#: Multiply-adds of TF32, dense, that a multiprocessor's tensor cores do each clock: NVIDIA's peak
#: by its multiprocessors and boost clock. 8.0: A100 (Ampere whitepaper), 156 TFLOP/s by 108 at
#: 1.41 GHz; 8.6: A40 (data sheet), 74.8 by 84 at 1.74; 8.9: L40S (data sheet), 183 by 142 at 2.52;
#: 9.0: H100 SXM5 (Hopper whitepaper), 494.7 by 132 at 1.83. Some boards of a capability do half.
TF32_FMA: Mapping[tuple[int, int], int] = {
    (8, 0): 512,
    (8, 6): 256,
    (8, 9): 256,
    (9, 0): 1024,
}


@dataclass(frozen=True)
class DeviceFacts:
    """A GPU's attributes; 0 is one that its driver does not tell.

    Attributes:
        capability: compute capability, major and minor.
        clock_hz: the highest clock of the multiprocessors.
        memory_clock_hz: clock of the memory, which moves two bits a line each time.
        memory_bus_bits: width of the way to it.
        l2_bytes: size of the cache before it.
    """

    name: str
    capability: tuple[int, int]
    multiprocessors: int
    clock_hz: float
    memory_clock_hz: float
    memory_bus_bits: int
    l2_bytes: int

    @property
    def memory_bytes_per_s(self) -> float:
        """Peak bandwidth of the memory; 0 if the driver does not tell what it follows from."""
        return 2 * self.memory_clock_hz * self.memory_bus_bits / 8

    def flops_per_s(self, precision: Precision) -> float:
        """Peak of multiplying matrices so, a multiply-add being two; 0 if it is not known.

        By three TF32 products it is a third of TF32's.
        """
        table = FLOAT32_FMA if precision == "float32" else TF32_FMA
        products = 3 if precision == "tf32x3" else 1
        return 2.0 * table.get(self.capability, 0) * self.multiprocessors * self.clock_hz / products
