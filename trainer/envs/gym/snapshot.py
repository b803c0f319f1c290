"""The state of environments as plain data, for checkpoints.

An environment is a chain of wrappers around a core; the state is what their attributes hold. Where
those are numbers, text, arrays, containers of such, and NumPy's generators, as in classic control
and toy text, it can be written down and put back into another instance that was made the same way,
and the run goes on bit by bit. Pickle could do more, but whoever opened a checkpoint would run what
is in it; a checkpoint here is data. What can't be written down so is refused by name.
"""

from __future__ import annotations

import base64
import json
import types
import zlib
from collections.abc import Iterator
from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onegraph.trainer.envs.gym.errors import gymnasium

#: Bit generators that can be made anew by their names.
BIT_GENERATORS = ("MT19937", "PCG64", "PCG64DXSM", "Philox", "SFC64")

#: Attributes that an instance made the same way has by itself.
CONFIGURATION = frozenset({"metadata", "_metadata", "render_mode"})

#: The same, by what they hold.
CONFIGURED = (Enum, type, types.ModuleType, types.FunctionType, types.MethodType)


class SnapshotError(ValueError):
    """The state can't be written down, or does not fit where it is to be put."""


# ---------------------------------------------------------------- plain data


def encoded(value: object) -> NDArray[np.uint8]:
    """Plain data as bytes, uint8 [n].

    Raises:
        SnapshotError: something in it is no plain data, or stands in it twice.
    """
    text = json.dumps(_tagged(value, "state", {}), separators=(",", ":"))
    return np.frombuffer(zlib.compress(text.encode(), 1), np.uint8).copy()


def decoded(data: NDArray[np.uint8]) -> Any:
    """What `encoded` wrote.

    Raises:
        SnapshotError: the bytes are something else.
    """
    try:
        return _untagged(json.loads(zlib.decompress(data.tobytes())))
    except (zlib.error, ValueError, KeyError, TypeError, AttributeError) as error:
        raise SnapshotError(f"the saved lanes are damaged ({error})") from error


def _tagged(value: object, path: str, seen: dict[int, object]) -> Any:
    """`value` as JSON has it; what JSON lacks is a list that begins with its kind."""
    match value:
        case None | bool() | int() | float() | str() if type(value) in _JSON:
            return value
        case np.generic():
            return ["scalar", *_bytes_of(np.asarray(value), path)]
        case bytes():
            return ["bytes", base64.b64encode(value).decode()]
        case tuple():
            return ["tuple", [_tagged(v, f"{path}[{i}]", seen) for i, v in enumerate(value)]]
    # Two names for one thing that changes would be two things after they were put back.
    owner = value.base if isinstance(value, np.ndarray) and value.base is not None else value
    if id(owner) in seen:
        raise SnapshotError(f"{path} is an object that another attribute holds too")
    seen[id(owner)] = owner  # held, so that no other object gets its id
    match value:
        case np.ndarray():
            return ["array", *_bytes_of(value, path)]
        case list():
            return ["list", [_tagged(v, f"{path}[{i}]", seen) for i, v in enumerate(value)]]
        case dict():
            pairs = [
                [_tagged(k, path, seen), _tagged(v, f"{path}[{k!r}]", seen)]
                for k, v in value.items()
            ]
            return ["dict", pairs]
        case np.random.Generator():
            state = value.bit_generator.state
            if state["bit_generator"] in BIT_GENERATORS:
                return ["generator", _tagged(state, path, seen)]
    raise SnapshotError(f"{path} is a {type(value).__name__}, which is no plain data")


_JSON = (type(None), bool, int, float, str)


def _bytes_of(array: NDArray[Any], path: str) -> tuple[str, list[int], str]:
    if array.dtype.hasobject or array.dtype.names is not None:
        raise SnapshotError(f"{path} is an array of {array.dtype}, which is no plain data")
    data = base64.b64encode(np.ascontiguousarray(array).tobytes()).decode()
    return array.dtype.str, list(array.shape), data


def _untagged(value: Any) -> Any:
    if not isinstance(value, list):
        return value
    match value:
        case ["scalar" | "array" as kind, dtype, shape, data]:
            array = np.frombuffer(base64.b64decode(data), np.dtype(dtype)).reshape(shape)
            return array[()] if kind == "scalar" else array.copy()
        case ["bytes", data]:
            return base64.b64decode(data)
        case ["tuple", items]:
            return tuple(map(_untagged, items))
        case ["list", items]:
            return list(map(_untagged, items))
        case ["dict", pairs]:
            return {_untagged(k): _untagged(v) for k, v in pairs}
        case ["generator", state]:
            plain = _untagged(state)
            if plain["bit_generator"] not in BIT_GENERATORS:
                raise ValueError(f"no bit generator {plain['bit_generator']!r}")
            bits = getattr(np.random, plain["bit_generator"])()
            bits.state = plain
            return np.random.Generator(bits)
    raise ValueError(f"no plain data: {str(value)[:40]}")


# ---------------------------------------------------------------- environments


def lanes_state(envs: Any) -> NDArray[np.uint8]:
    """The state of a vector environment, as `encoded` gives it.

    Raises:
        SnapshotError: some of it is no plain data, or lives in other processes.
    """
    core = envs.unwrapped
    vector = gymnasium().vector
    if isinstance(core, vector.AsyncVectorEnv):
        raise SnapshotError("its lanes live in other processes")
    wrappers = [_layer(layer) for layer in _chain(envs) if layer is not core]
    if isinstance(core, vector.SyncVectorEnv):
        lanes = [[_layer(layer) for layer in _chain(env)] for env in core.envs]
        found = {"wrappers": wrappers, "lanes": lanes, "resets": core._autoreset_envs.copy()}
    else:
        found = {"wrappers": wrappers, "core": _layer(core)}
    return encoded(found)


def put_lanes_state(envs: Any, data: NDArray[np.uint8]) -> None:
    """Put a state back into a vector environment that was made as the saved one was.

    Raises:
        SnapshotError: it is of other environments.
    """
    core, state = envs.unwrapped, decoded(data)
    wrappers = [layer for layer in _chain(envs) if layer is not core]
    _put(wrappers, state["wrappers"])
    if "core" in state:
        _put([core], [state["core"]])
        return
    lanes = getattr(core, "envs", None)
    if lanes is None or len(lanes) != len(state["lanes"]):
        raise SnapshotError(f"they are {len(state['lanes'])} lanes in turn, these are not")
    for env, layers in zip(lanes, state["lanes"], strict=True):
        _put(list(_chain(env)), layers)
    core._autoreset_envs = state["resets"]


def _chain(env: Any) -> Iterator[Any]:
    """An environment's wrappers from the outermost in, and its core."""
    core = env.unwrapped
    while env is not core:
        yield env
        env = env.env
    yield core


def _layer(layer: Any) -> list[Any]:
    """The name of a layer's class, and the state that it holds itself."""
    package = gymnasium()
    configured = (
        *CONFIGURED,
        package.Space,
        package.Env,
        package.vector.VectorEnv,
        package.envs.registration.EnvSpec,
    )
    held = {
        name: value
        for name, value in vars(layer).items()
        if name not in CONFIGURATION and not isinstance(value, configured)
    }
    return [_class_name(layer), held]


def _class_name(layer: Any) -> str:
    return f"{type(layer).__module__}.{type(layer).__qualname__}"


def _put(layers: list[Any], saved: list[Any]) -> None:
    names = [_class_name(layer) for layer in layers]
    if names != [name for name, _ in saved]:
        raise SnapshotError(
            f"they are {', '.join(name for name, _ in saved)}, these are {', '.join(names)}"
        )
    for layer, (_, held) in zip(layers, saved, strict=True):
        vars(layer).update(held)
