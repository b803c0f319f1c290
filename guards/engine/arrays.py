"""What calls into the frameworks give back: a device array, something on the host, or an object.

Only what the rules need is here. A function that is not known gives `UNKNOWN`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from onegraph.guards.engine.values import (
    HOST,
    UNKNOWN,
    Array,
    External,
    Group,
    Host,
    Instance,
    Items,
    Place,
    Value,
    element,
)

#: The class whose methods an array of a framework has.
ARRAY_CLASSES: Mapping[str, str] = {
    "torch": "torch.Tensor",
    "cupy": "cupy.ndarray",
    "jax": "jax.Array",
    "numba": "numba.cuda.cudadrv.devicearray.DeviceNDArray",
    "warp": "warp.array",
    "pycuda": "pycuda.gpuarray.GPUArray",
    "tensorflow": "tensorflow.Tensor",
    "project": "",
}

#: Annotations and classes that mean an array.
ARRAY_NAMES: Mapping[str, str] = {
    "torch.Tensor": "torch", "torch.FloatTensor": "torch", "torch.LongTensor": "torch",
    "torch.BoolTensor": "torch", "torch.nn.Parameter": "torch", "cupy.ndarray": "cupy",
    "torch.nn.parameter.Parameter": "torch",
    "jax.Array": "jax", "jax.numpy.ndarray": "jax", "warp.array": "warp",
    "pycuda.gpuarray.GPUArray": "pycuda", "tensorflow.Tensor": "tensorflow",
    "numba.cuda.cudadrv.devicearray.DeviceNDArray": "numba",
}  # fmt: skip

#: Attributes and methods that are metadata: reading them waits for nothing.
METADATA = frozenset(
    {
        "shape", "dtype", "device", "ndim", "requires_grad", "is_cuda", "is_cpu", "layout",
        "nbytes", "itemsize", "names",
        "is_leaf", "grad_fn", "_version", "is_sparse", "is_nested", "strides",
        "flags", "size", "numel", "dim", "ndimension", "stride", "data_ptr", "element_size",
        "get_device", "storage_offset", "nelement", "is_contiguous", "is_floating_point",
        "is_complex", "is_pinned", "type", "is_inference", "has_names", "sharding", "weak_type",
        "committed", "aval", "ptr", "capacity", "is_deleted", "untyped_storage", "qscheme",
    }
)  # fmt: skip
READS = frozenset(
    {"item", "tolist", "numpy", "list", "get", "copy_to_host", "tobytes", "__array__"}
)

BOOLEAN = frozenset(
    {
        "bool", "eq", "ne", "lt", "le", "gt", "ge", "isnan", "isinf", "isfinite", "logical_and",
        "logical_or", "logical_not", "logical_xor", "any", "all", "isclose", "isin", "isneginf",
        "isposinf", "greater", "less", "equal", "greater_equal", "less_equal", "not_equal",
        "signbit",
    }
)  # fmt: skip

#: Attributes of a torch distribution that are tensors.
DISTRIBUTION_ARRAYS = frozenset(
    {"mean", "stddev", "variance", "mode", "loc", "scale", "logits", "probs", "rate"}
)
#: Its methods that give tensors.
DISTRIBUTION_METHODS = frozenset(
    {"sample", "rsample", "log_prob", "entropy", "cdf", "icdf", "perplexity", "enumerate_support"}
)

#: Methods that a tensor has and hardly anything else.
TENSOR_METHODS = frozenset(
    {
        "detach", "unsqueeze", "squeeze_", "clamp", "clamp_", "gather", "scatter_", "masked_fill",
        "masked_fill_", "index_select", "expand_as", "view_as", "type_as", "log_softmax",
        "index_add_", "requires_grad_", "rsample", "log_prob",
    }
)  # fmt: skip

#: Functions of torch's top level that give no tensor.
_TORCH_HOST = re.compile(
    r"^(is_|get_|set_|save$|load$|device$|dtype$|manual_seed|seed$|initial_seed|finfo|iinfo|Size$"
    r"|no_grad|enable_grad|inference_mode|autocast|typename|use_deterministic|compile$|jit"
    r"|numel$|equal$|allclose$|promote_types|result_type|can_cast|vmap$|func\.|cond$|cuda"
    r"|backends|distributed|utils|hub|multiprocessing|profiler|random|overrides|autograd|version"
    r"|broadcast_shapes|export|library|onnx|package|_)"
)
_TORCH_FACTORIES = frozenset(
    {
        "empty", "zeros", "ones", "full", "rand", "randn", "randint", "arange", "linspace",
        "tensor", "as_tensor", "scalar_tensor", "from_numpy", "eye", "randperm", "logspace",
        "range", "normal", "Tensor", "FloatTensor", "LongTensor", "IntTensor", "BoolTensor",
        "frombuffer", "empty_strided", "asarray", "tril_indices", "triu_indices", "hann_window",
    }
)  # fmt: skip

_DEVICE_NAMES = ("cuda", "gpu", "xpu", "mps")

#: What a method or function gives, where it is an object that the rules ask about.
RETURNS: Mapping[str, str] = {
    "cuda.core.Device.create_stream": "cuda.core.Stream",
    "cuda.core.Device.create_graph_builder": "cuda.core.graph.GraphBuilder",
    "cuda.core.Device.create_event": "cuda.core.Event",
    "cuda.core.Device.allocate": "cuda.core.Buffer",
    "cuda.core.Stream.create_graph_builder": "cuda.core.graph.GraphBuilder",
    "cuda.core.Stream.record": "cuda.core.Event",
    "cuda.core.graph.GraphBuilder.begin_building": "cuda.core.graph.GraphBuilder",
    "cuda.core.graph.GraphBuilder.end_building": "cuda.core.graph.GraphBuilder",
    "cuda.core.graph.GraphBuilder.complete": "cuda.core.graph.Graph",
    "cuda.core.graph.GraphDefinition.instantiate": "cuda.core.graph.Graph",
    "cuda.core.Program.compile": "cuda.core.ObjectCode",
    "cuda.core.ObjectCode.from_cubin": "cuda.core.ObjectCode",
    "cuda.core.ObjectCode.from_ptx": "cuda.core.ObjectCode",
    "cuda.core.ObjectCode.from_fatbin": "cuda.core.ObjectCode",
    "cuda.core.ObjectCode.get_kernel": "cuda.core.Kernel",
    "cuda.core.Linker.link": "cuda.core.ObjectCode",
    "cupy.RawModule.get_function": "cupy.RawKernel",
    "cupy.cuda.Stream.end_capture": "cupy.cuda.Graph",
    "pycuda.compiler.SourceModule.get_function": "pycuda.driver.Function",
    "pycuda.driver.Module.get_function": "pycuda.driver.Function",
    "torch.cuda.current_stream": "torch.cuda.Stream",
    "torch.cuda.default_stream": "torch.cuda.Stream",
    "torch.cuda.Stream.record_event": "torch.cuda.Event",
    "numba.cuda.stream": "numba.cuda.cudadrv.driver.Stream",
    "numba.cuda.event": "numba.cuda.cudadrv.driver.Event",
    "cupy.cuda.get_current_stream": "cupy.cuda.Stream",
    "torch.no_grad": "torch.no_grad",
    "torch.device": "torch.device",
}

#: Calls that make a module of kernels; what they give carries the place where it was made.
MODULES = frozenset(
    {
        "cuda.core.Program.compile", "cuda.core.ObjectCode.from_cubin", "cuda.core.Linker.link",
        "cuda.core.ObjectCode.from_ptx", "cuda.core.ObjectCode.from_fatbin", "cupy.RawModule",
        "pycuda.compiler.SourceModule", "cupy.RawKernel", "pycuda.driver.module_from_file",
        "pycuda.driver.module_from_buffer",
    }
)  # fmt: skip


def place_of(device: Value | None, literal: str | None) -> Place:
    """Where ``device=`` puts an array."""
    if literal is not None:
        return (
            "device"
            if literal.startswith(_DEVICE_NAMES)
            else "host"
            if literal == "cpu"
            else "unknown"
        )
    return "unknown" if device is not None else "host"


def external_call(
    dotted: str,
    args: Sequence[Value],
    keywords: Mapping[str, Value],
    literals: Mapping[str, str],
    where: str,
) -> Value:
    """What calling the external function or class `dotted` gives.

    Args:
        dotted: as the API table spells it.
        args: what it is given by position.
        keywords: what it is given by name.
        literals: keyword arguments that are string literals.
        where: the place of the call, which names a module of kernels that it loads.
    """
    root, _, rest = dotted.partition(".")
    name = dotted.rpartition(".")[2]
    if dotted in RETURNS:
        return Instance(RETURNS[dotted], where if dotted in MODULES else "")
    if root in ("numpy", "math", "random", "time", "os", "json", "copy"):
        if dotted in ("copy.copy", "copy.deepcopy") and args:
            return args[0]
        return HOST
    if root == "torch":
        return _torch(dotted, rest, name, args, keywords, literals)
    if root == "jax":
        if dotted in ("jax.device_get", "jax.devices", "jax.device_count", "jax.local_devices"):
            return HOST
        if rest.startswith(("numpy.", "nn.", "lax.", "random.", "scipy.")) or name == "device_put":
            if name in ("dtype", "shape", "ndim", "size", "issubdtype", "result_type", "finfo"):
                return HOST
            return Array("jax", "device", name in BOOLEAN)
    if root == "cupy" and rest:
        if name in ("asnumpy", "shape", "ndim", "dtype"):
            return HOST
        if name[0].islower() and not rest.startswith(("cuda.", "testing")):
            return Array("cupy", "device", name in BOOLEAN)
    if root == "warp" and name in (
        "zeros", "empty", "ones", "full", "array", "from_numpy", "clone", "empty_like",
        "zeros_like", "ones_like", "full_like", "from_torch",
    ):  # fmt: skip
        return Array("warp", "device")
    if dotted in (
        "numba.cuda.to_device",
        "numba.cuda.device_array",
        "numba.cuda.device_array_like",
    ):
        return Array("numba", "device")
    if dotted.startswith("pycuda.gpuarray.") and name[0].islower():
        return Array("pycuda", "device")
    if root == "tensorflow" and rest and name[0].islower() and "." not in rest:
        return Array("tensorflow", boolean=name in BOOLEAN)
    if dotted in ARRAY_NAMES:
        return Array(ARRAY_NAMES[dotted])
    if name[:1].isupper():
        return Instance(dotted, where if dotted in MODULES else "")
    return UNKNOWN


def _torch(
    dotted: str,
    rest: str,
    name: str,
    args: Sequence[Value],
    keywords: Mapping[str, Value],
    literals: Mapping[str, str],
) -> Value:
    if rest.startswith(("nn.functional.", "linalg.", "fft.", "special.")):
        return Array("torch", boolean=name in BOOLEAN)
    if rest.startswith("nn.utils."):
        return Array("torch") if name.startswith(("clip_grad_norm", "parameters_to")) else UNKNOWN
    if rest in _TORCH_FACTORIES:
        place = place_of(keywords.get("device"), literals.get("device"))
        if name in ("as_tensor", "asarray") and "device" not in keywords:
            place = args[0].place if args and isinstance(args[0], Array) else "host"
        return Array("torch", place, pinned="pin_memory" in keywords)
    if name[:1].isupper():
        return Array("torch") if dotted in ARRAY_NAMES else Instance(dotted)
    if "." in rest or _TORCH_HOST.match(rest):
        return UNKNOWN if rest.startswith(("func.", "vmap", "utils.", "autograd")) else HOST
    return Array("torch", _joint_place(args), name in BOOLEAN)


def _joint_place(args: Sequence[Value]) -> Place:
    """Where an operation's result lives: with its arrays."""
    places = {a.place for a in map(_array_in, args) if a is not None}
    return places.pop() if len(places) == 1 else "unknown"


def _array_in(value: Value) -> Array | None:
    if isinstance(value, (Items, Group)):
        value = element(value)
    return value if isinstance(value, Array) else None


def array_attribute(array: Array, name: str) -> Value:
    """``array.name``, read."""
    if name in METADATA:
        return HOST
    if name in ("grad", "data", "T", "mT", "H", "real", "imag", "values", "indices", "at", "mH"):
        return array
    return UNKNOWN


def array_method(
    array: Array, name: str, args: Sequence[Value], literals: Mapping[str, str]
) -> Value:
    """What ``array.name(...)`` gives."""
    if name in METADATA or name in READS:
        return HOST
    if name == "cpu" or (name == "to" and "cpu" in literals.values()):
        return replace(array, place="host")
    if name in ("cuda", "xpu"):
        return replace(array, place="device")
    if name == "pin_memory":
        return replace(array, pinned=True)
    if name == "to" and args and not all(isinstance(a, External) for a in args):
        return replace(array, place="unknown", pinned=False)
    if name in ("unbind", "split", "chunk"):
        return Items(array)
    if name in BOOLEAN:
        return replace(array, boolean=True)
    if name in ("float", "double", "half", "long", "int", "sum", "mean", "max", "min", "argmax"):
        return replace(array, boolean=False)
    return array


def instance_method(dotted: str, name: str, origin: str, where: str) -> Value:
    """What a method of an external object gives."""
    full = f"{dotted}.{name}"
    if full in RETURNS:
        return Instance(RETURNS[full], where if full in MODULES else origin)
    if dotted.startswith("torch.distributions"):
        return Array("torch") if name in DISTRIBUTION_METHODS else UNKNOWN
    if dotted.startswith("torch.nn.") and name == "parameters":
        return Items(Array("torch"))
    return UNKNOWN


def operate(values: Sequence[Value], *, boolean: bool = False) -> Value:
    """What an operator gives: an array if an operand is one."""
    arrays = [v for v in values if isinstance(v, Array)]
    if not arrays:
        return HOST if values and all(isinstance(v, Host) for v in values) else UNKNOWN
    place = arrays[0].place if len({a.place for a in arrays}) == 1 else "unknown"
    return replace(
        arrays[0],
        place=place,
        boolean=boolean or all(a.boolean for a in arrays),
        pinned=False,
    )
