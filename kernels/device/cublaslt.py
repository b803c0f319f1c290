"""Large matmuls through cuBLASLt: an algorithm is asked for once a shape, then pinned.

Row-major against column-major: a row-major [M, N] array is a column-major [N, M] one, so
``out = op(a) op(b)`` is asked for as ``out^T = op(b)^T op(a)^T`` with the operands swapped.
Determinism: the heuristic's answer is kept for the life of the device, and the workspaces are ours
and outlive every graph that has them baked in. It may split K only where `splits` says so; the
parts then go to the workspace and are added by a second kernel in one order (the schemes that add
in place are masked out).

Branches of a graph run at once, so that each has a workspace of its own: in one that they shared,
the parts of one product would overwrite another's before they are added. Plans they do share: a
plan is read, and its bias set, on the host, when a call is made or captured.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from nvmath import CudaDataType
from nvmath.bindings import cublas
from nvmath.bindings import cublasLt as lt  # noqa: N813

if TYPE_CHECKING:
    from onegraph.kernels.device.base import Matmul

CublasLtError: type[Exception] = lt.cuBLASLtError

#: NVIDIA's recommendation for Hopper; more than older GPUs need.
WORKSPACE_BYTES = 32 << 20

#: Rows from which a weight's gradient may be added up in parts.
SPLIT_FROM = 1024

_F32 = int(CudaDataType.CUDA_R_32F)


def splits(spec: Matmul) -> bool:
    """Whether K may be split: a weight's gradient, a small product over the rows of a large batch.

    In one piece it leaves most of a GPU idle: 64 x 1024 over 2048 rows took 325 us on an H200, and
    19 us in parts.
    """
    return spec.trans_a and spec.k >= SPLIT_FROM


class NoAlgorithmError(RuntimeError):
    """CuBLASLt has no algorithm for a shape under our restrictions."""


@dataclass
class Plan:
    """One shape's descriptors and its pinned algorithm. Addresses are of host structures."""

    desc: int
    a: int
    b: int
    out: int
    has_bias: bool
    algorithm: NDArray[Any]
    bias: int = -1


@dataclass
class CublasLt:
    """A cuBLASLt handle with its plans.

    Attributes:
        allocate: gives the device address of a workspace of so many bytes, which stays allocated
            for as long as this object is used.
    """

    allocate: Callable[[int], int]
    _handle: int = 0
    _workspaces: dict[int, int] = field(default_factory=dict)
    _plans: dict[tuple[Matmul, bool], Plan] = field(default_factory=dict)
    # alpha and beta are read from the host when the call is made, or captured
    _one: NDArray[np.float32] = field(default_factory=lambda: np.ones(1, np.float32))
    _zero: NDArray[np.float32] = field(default_factory=lambda: np.zeros(1, np.float32))

    def __post_init__(self) -> None:
        self._handle = lt.create()
        self.reserve(0)

    def reserve(self, branch: int) -> None:
        """Give this branch of a graph its workspace; 0 is also what is not in a branch."""
        if branch not in self._workspaces:
            self._workspaces[branch] = self.allocate(WORKSPACE_BYTES)

    def reserved(self, branch: int) -> bool:
        """Whether the branch has its workspace, so that its products may be captured."""
        return branch in self._workspaces

    @property
    def version(self) -> str:
        """The library's version, as in ``13.1.0``."""
        number = int(lt.get_version())
        return f"{number // 10000}.{number // 100 % 100}.{number % 100}"

    def known(self, spec: Matmul, *, aligned: bool) -> bool:
        """Whether the shape has its plan, so that it may be captured."""
        return (spec, aligned) in self._plans

    def matmul(
        self,
        spec: Matmul,
        a: int,
        b: int,
        out: int,
        bias: int,
        stream: int,
        *,
        aligned: bool,
        branch: int = 0,
    ) -> None:
        """``out = op(a) op(b)``, plus the bias [N] if `spec` has one; addresses of the device.

        What else the epilogue asks for is the caller's. `aligned` says that every address is a
        multiple of 16; it is part of the plan, as an algorithm may rely on it. `branch` says whose
        workspace to use.

        Raises:
            NoAlgorithmError, CublasLtError.
        """
        plan = self._plans.get((spec, aligned))
        if plan is None:
            plan = self._plans[spec, aligned] = self._plan(spec, bias, aligned=aligned)
        if plan.has_bias and plan.bias != bias:
            self._set_bias(plan, bias)
        lt.matmul(
            self._handle,
            plan.desc,
            self._one.ctypes.data,
            b,
            plan.a,
            a,
            plan.b,
            self._zero.ctypes.data,
            out,
            plan.out,
            out,
            plan.out,
            plan.algorithm.ctypes.data,
            self._workspaces[branch],
            WORKSPACE_BYTES,
            stream,
        )

    @staticmethod
    def _describe(desc: int, attribute: int, value: int) -> None:
        data = np.array([value], dtype=lt.get_matmul_desc_attribute_dtype(attribute))
        lt.matmul_desc_set_attribute(desc, attribute, data.ctypes.data, data.nbytes)

    def _set_bias(self, plan: Plan, bias: int) -> None:
        self._describe(plan.desc, lt.MatmulDescAttribute.BIAS_POINTER, bias)
        plan.bias = bias

    def _plan(self, spec: Matmul, bias: int, *, aligned: bool) -> Plan:
        compute = {
            "float32": cublas.ComputeType.COMPUTE_32F,
            "tf32": cublas.ComputeType.COMPUTE_32F_FAST_TF32,
            "tf32x3": cublas.ComputeType.COMPUTE_32F,  # it has none of that accuracy on tensor cores
        }
        desc = lt.matmul_desc_create(int(compute[spec.precision]), _F32)
        operation = (cublas.Operation.N, cublas.Operation.T)
        attribute = lt.MatmulDescAttribute
        self._describe(desc, attribute.TRANSA, operation[spec.trans_b])
        self._describe(desc, attribute.TRANSB, operation[spec.trans_a])
        plan = Plan(
            desc,
            a=self._layout(*((spec.k, spec.n) if spec.trans_b else (spec.n, spec.k))),
            b=self._layout(*((spec.m, spec.k) if spec.trans_a else (spec.k, spec.m))),
            out=self._layout(spec.n, spec.m),
            has_bias=spec.epilogue in ("bias", "bias_relu"),
            algorithm=np.empty(1, lt.matmul_algo_dtype),
        )
        if plan.has_bias:
            self._describe(desc, attribute.EPILOGUE, lt.Epilogue.BIAS)
            self._set_bias(plan, bias)
        plan.algorithm[0] = self._choose(plan, spec, aligned=aligned)
        return plan

    @staticmethod
    def _layout(rows: int, columns: int) -> int:
        return int(lt.matrix_layout_create(_F32, rows, columns, rows))

    def _choose(self, plan: Plan, spec: Matmul, *, aligned: bool) -> Any:
        wanted = lt.MatmulPreferenceAttribute
        preference = lt.matmul_preference_create()
        settings: list[tuple[int, type[np.unsignedinteger[Any]], int]] = [
            (wanted.MAX_WORKSPACE_BYTES, np.uint64, WORKSPACE_BYTES),
            (
                wanted.REDUCTION_SCHEME_MASK,
                np.uint32,
                int(lt.ReductionScheme.COMPUTE_TYPE) if splits(spec) else 0,
            ),
        ]
        settings += [
            (operand, np.uint32, 16 if aligned else 4)
            for operand in (
                wanted.MIN_ALIGNMENT_A_BYTES,
                wanted.MIN_ALIGNMENT_B_BYTES,
                wanted.MIN_ALIGNMENT_C_BYTES,
                wanted.MIN_ALIGNMENT_D_BYTES,
            )
        ]
        for setting, dtype, value in settings:
            data = np.array([value], dtype=dtype)
            lt.matmul_preference_set_attribute(preference, setting, data.ctypes.data, data.nbytes)
        result = np.zeros(1, lt.matmul_heuristic_result_dtype)
        found = np.zeros(1, np.int32)
        try:
            lt.matmul_algo_get_heuristic(
                self._handle,
                plan.desc,
                plan.a,
                plan.b,
                plan.out,
                plan.out,
                preference,
                1,
                result.ctypes.data,
                found.ctypes.data,
            )
        finally:
            lt.matmul_preference_destroy(preference)
        if found[0] < 1 or result["state"][0] != 0:
            raise NoAlgorithmError(
                f"cuBLASLt has no deterministic algorithm for {spec}; open the device with"
                " gemm='kernel'"
            )
        return result["algo"][0]

    def close(self) -> None:
        """Give back the handle and the descriptors; the workspace is its owner's."""
        for plan in self._plans.values():
            for layout in (plan.a, plan.b, plan.out):
                lt.matrix_layout_destroy(layout)
            lt.matmul_desc_destroy(plan.desc)
        self._plans.clear()
        if self._handle:
            lt.destroy(self._handle)
            self._handle = 0
