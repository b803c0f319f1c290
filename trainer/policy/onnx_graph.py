"""The greedy policy as one ONNX graph, with normalisation and the table of positions inside.

Letters: N rows, F raw features, S columns of an observation, Sp with padding, H features of the
trunk, A actions, Q quantile levels, K atoms, G groups of features of width d.

Weights are initialisers under the names of `weights`, [out, in]. The operators are those of opset
17, which has LayerNormalization; everything is float32 but the scaling of raw features and C51's
expectation, which are float64 as in training.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from onegraph.kernels.learner.categorical import support
from onegraph.kernels.learner.iqn_cosines import cosine_features
from onegraph.kernels.learner.sigmoid import sigmoid64
from onegraph.trainer.blocks.residual import EPSILON
from onegraph.trainer.policy.errors import ExportError
from onegraph.trainer.policy.facts import FeatureScaling
from onegraph.trainer.policy.policy import Policy
from onegraph.trainer.policy.weights import named_weights
from onegraph.trainer.policy.whole_file import write_whole

#: Version of the operators that the graph is made of.
OPSET = 17

#: Version of the file format that opset 17 came with (onnx 1.12).
IR_VERSION = 8

_ELEMENTS = {"float32": "FLOAT", "float64": "DOUBLE", "int64": "INT64"}


def require_onnx() -> Any:
    """The ``onnx`` package.

    Raises:
        ExportError: it is not installed.
    """
    try:
        import onnx
        import onnx.checker
        import onnx.helper
        import onnx.numpy_helper
    except ImportError as error:
        raise ExportError(
            f"an ONNX graph needs the onnx package ({error}); run pip install 'onegraph[onnx]'"
        ) from error
    return onnx


class _Graph:
    """Nodes and initialisers, named as they are added."""

    def __init__(self, onnx: Any) -> None:
        self.onnx = onnx
        self.nodes: list[Any] = []
        self.inputs: list[Any] = []
        self.outputs: list[Any] = []
        self._constants: dict[str, Any] = {}

    def input(self, name: str, dtype: str, *columns: int) -> str:
        self.inputs.append(self._info(name, dtype, columns))
        return name

    def output(self, name: str, dtype: str, *columns: int) -> None:
        self.outputs.append(self._info(name, dtype, columns))

    def _info(self, name: str, dtype: str, columns: tuple[int, ...]) -> Any:
        element = getattr(self.onnx.TensorProto, _ELEMENTS[dtype])
        return self.onnx.helper.make_tensor_value_info(name, element, ["N", *columns])

    def constant(self, name: str, values: Any, dtype: Any = np.float32) -> str:
        if name not in self._constants:
            array = np.array(values, dtype, order="C")
            self._constants[name] = self.onnx.numpy_helper.from_array(array, name)
        return name

    def shape(self, *sizes: int) -> str:
        return self.constant(f"shape.{'x'.join(map(str, sizes))}", sizes, np.int64)

    def add(self, op: str, *inputs: str, out: str = "", **attributes: Any) -> str:
        """A node with one output, which is `out` or named after the node."""
        out = out or f"{op}.{len(self.nodes)}"
        made = self.onnx.helper.make_node(op, inputs, [out], name=f"make {out}", **attributes)
        self.nodes.append(made)
        return out

    def cast(self, x: str, element: str) -> str:
        return self.add("Cast", x, to=getattr(self.onnx.TensorProto, element))

    def reshape(self, x: str, *sizes: int) -> str:
        return self.add("Reshape", x, self.shape(*sizes))

    def model(self, metadata: dict[str, str], version: str) -> Any:
        helper = self.onnx.helper
        graph = helper.make_graph(
            self.nodes,
            "greedy_policy",
            self.inputs,
            self.outputs,
            list(self._constants.values()),
        )
        model = helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid("", OPSET)],
            ir_version=IR_VERSION,
            producer_name="onegraph",
            producer_version=version,
        )
        helper.set_model_props(model, metadata)
        self.onnx.checker.check_model(model, full_check=True)
        return model


@dataclass(frozen=True)
class _Columns:
    """Advantages [N, A] and, when dueling, the state value [N, 1], as tensors of the graph."""

    advantage: str
    value: str | None


class _Builder:
    """Emits the parts of a policy in the order of a pass."""

    def __init__(self, policy: Policy, onnx: Any) -> None:
        self.policy, self.network = policy, policy.network
        self.graph = _Graph(onnx)
        self.weights = named_weights(policy.network, policy.params)

    def build(self) -> Any:
        graph, facts = self.graph, self.policy.facts
        x, absent = self._observation()
        values = self._values(self._trunk(x))
        q = self._combined(values)
        undefined = graph.constant("nan", np.nan)
        graph.add("Where", absent, undefined, q, out="q")
        # The greedy action is of the advantages, whose order rounding can't change, and NaN is
        # less than any number, as when the trainer evaluates.
        ordered = values.advantage if values.value is not None else q
        unknown = graph.add("Or", graph.add("IsNaN", ordered), absent)
        lowest = graph.constant("lowest", -np.inf)
        ranked = graph.add("Where", unknown, lowest, ordered)
        graph.add("ArgMax", ranked, out="action", axis=1, keepdims=0)
        graph.output("action", "int64")
        if facts.positions is not None:
            table = graph.constant("positions", facts.positions, np.float64)
            graph.add("Gather", table, "action", out="position", axis=0)
            graph.output("position", "float64")
        graph.output("q", "float32", facts.actions)
        return graph.model(self._metadata(), self.policy.version)

    def _metadata(self) -> dict[str, str]:
        policy, facts = self.policy, self.policy.facts
        about = {
            "onegraph_version": policy.version,
            "config_digest": policy.config_digest,
            "learn_steps": str(policy.learn_steps),
            "environment": policy.config.env.kind,
            "head": policy.network.config.head,
            "action_names": json.dumps(facts.action_names),
        }
        if facts.positions is not None:
            about["positions"] = json.dumps(facts.positions)
        if facts.scaling is not None:
            about["feature_names"] = json.dumps(facts.scaling.names)
            about["position_feature_names"] = json.dumps(facts.position_features)
        return about

    # ---------------------------------------------------------------- input

    def _observation(self) -> tuple[str, str]:
        """The observation [N, S], and which rows [N, 1] have a NaN in them."""
        graph, facts = self.graph, self.policy.facts
        width = facts.observation_width
        if facts.one_hot:
            state = graph.input("observation", "int64")
            depth = graph.constant("states", width, np.int64)
            off_on = graph.constant("off_on", [0.0, 1.0])
            # A number that is no state has a row of zeros, which the network was never shown.
            x = graph.add("OneHot", state, depth, off_on, axis=-1)
            below = graph.add("Less", state, graph.constant("zero", 0, np.int64))
            outside = graph.add("Or", below, graph.add("GreaterOrEqual", state, depth))
            return x, graph.reshape(outside, -1, 1)
        if facts.scaling is None:
            x = graph.input("observation", "float32", width)
            return x, self._any_nan(x)
        raw = graph.input("features", "float64", len(facts.scaling.names))
        columns = [graph.cast(scaled := self._scaled(raw, facts.scaling), "FLOAT")]
        absent = self._any_nan(scaled)
        if facts.position_features:
            own = graph.input("position_features", "float32", len(facts.position_features))
            columns.append(own)
            absent = graph.add("Or", absent, self._any_nan(own))
        return graph.add("Concat", *columns, axis=1), absent

    def _any_nan(self, x: str) -> str:
        graph = self.graph
        found = graph.cast(graph.add("IsNaN", x), "FLOAT")
        most = graph.add("ReduceMax", found, axes=[1], keepdims=1)
        return graph.add("Greater", most, graph.constant("none", 0.0))

    def _scaled(self, raw: str, scaling: FeatureScaling) -> str:
        """Normalised features [N, F] in float64."""
        graph = self.graph
        std = np.asarray(scaling.std)
        mean = graph.constant("features.mean", scaling.mean, np.float64)
        divisor = graph.constant("features.std", np.where(std == 0, 1.0, std), np.float64)
        x = graph.add("Div", graph.add("Sub", raw, mean), divisor)
        if (std == 0).any():
            varies = graph.constant("features.varies", std != 0, np.float64)
            x = graph.add("Mul", x, varies)
        low = graph.constant("features.low", -scaling.clip, np.float64)
        high = graph.constant("features.high", scaling.clip, np.float64)
        return graph.add("Clip", x, low, high)

    # ---------------------------------------------------------------- trunk

    def _linear(self, layer: str, x: str, weight: str = "weight", bias: str = "bias") -> str:
        """[rows, in] to [rows, out]."""
        graph = self.graph
        w, b = (f"{layer}.{part}" for part in (weight, bias))
        w, b = (graph.constant(name, self.weights[name]) for name in (w, b))
        return graph.add("Gemm", x, w, b, transB=1)

    def _trunk(self, x: str) -> str:
        """The trunk's features [N, H]."""
        graph, config = self.graph, self.network.config
        if config.gate:
            open_ = sigmoid64(self.weights["gate.logit"])[0]
            x = graph.add("Mul", x, graph.constant("gate.open", open_))
        if config.attention_groups:
            x = self._attention(self._padded(x))
        for i in range(len(config.hidden)):
            x = graph.add("Relu", self._linear(f"trunk.{i}", x))
        for i in range(config.residual_blocks):
            x = self._residual(f"blocks.{i}", x)
        return x

    def _padded(self, x: str) -> str:
        more = self.network.inputs - self.network.observation_width
        if not more:
            return x
        return self.graph.add("Pad", x, self.graph.constant("padding", [0, 0, 0, more], np.int64))

    def _attention(self, x: str) -> str:
        """[N, Sp] to [N, Sp]."""
        graph, config = self.graph, self.network.config
        groups, heads, width = config.attention_groups, config.attention_heads, self.network.inputs
        token = width // groups
        each = token // heads
        tokens = graph.reshape(x, -1, token)
        joint = self._linear("attention", tokens, "in_proj_weight", "in_proj_bias")
        split = graph.reshape(joint, -1, groups, 3, heads, each)
        parts = graph.add("Transpose", split, perm=[2, 0, 3, 1, 4])  # [3, N, heads, G, e]
        query, key, value = (
            graph.add("Gather", parts, graph.constant(f"part.{i}", i, np.int64), axis=0)
            for i in range(3)
        )
        score = graph.add("MatMul", query, graph.add("Transpose", key, perm=[0, 1, 3, 2]))
        scale = graph.constant("attention.scale", np.float32(each**-0.5))
        shares = graph.add("Softmax", graph.add("Mul", score, scale), axis=-1)
        mixed = graph.add("Transpose", graph.add("MatMul", shares, value), perm=[0, 2, 1, 3])
        out = self._linear("attention.out_proj", graph.reshape(mixed, -1, token))
        return graph.add("Add", x, graph.reshape(out, -1, width))

    def _residual(self, block: str, x: str) -> str:
        """[N, H] to [N, H]; evaluation leaves no block out."""
        graph = self.graph
        names = (f"{block}.norm.weight", f"{block}.norm.bias")
        scale, shift = (graph.constant(name, self.weights[name]) for name in names)
        norm = graph.add("LayerNormalization", x, scale, shift, axis=-1, epsilon=EPSILON)
        hidden = graph.add("Relu", self._linear(f"{block}.linear1", norm))
        return graph.add("Add", x, self._linear(f"{block}.linear2", hidden))

    # ---------------------------------------------------------------- heads

    def _values(self, features: str) -> _Columns:
        """The matrix of action values, as the trainer's evaluation forms it."""
        if self.network.c51:
            return _Columns(self._expected(features), None)
        if not self.network.iqn or self.policy.readiness == 0.0:
            return self._head("head", features)
        quantiles = self._mean_quantiles(features)
        if self.policy.readiness == 1.0:
            return quantiles
        plain = self._head("head", features)
        advantage = self._blend(plain.advantage, quantiles.advantage)
        if plain.value is None or quantiles.value is None:
            return _Columns(advantage, None)
        return _Columns(advantage, self._blend(plain.value, quantiles.value))

    def _head(self, layer: str, x: str) -> _Columns:
        if not self.network.config.dueling:
            return _Columns(self._linear(layer, x), None)
        advantage, value = f"{layer}.advantage", f"{layer}.value"
        return _Columns(self._linear(advantage, x), self._linear(value, x))

    def _blend(self, plain: str, quantiles: str) -> str:
        graph, weight = self.graph, self.policy.readiness
        a = graph.add("Mul", plain, graph.constant("ready.plain", 1.0 - weight))
        b = graph.add("Mul", quantiles, graph.constant("ready.quantiles", weight))
        return graph.add("Add", a, b)

    def _mean_quantiles(self, features: str) -> _Columns:
        """Means over the levels that evaluation acts by."""
        graph, iqn, levels = self.graph, self.network.iqn, self.policy.levels
        assert iqn is not None
        count, hidden = len(levels), iqn.hidden
        cosines = graph.constant("iqn.cosines", cosine_features(levels, iqn.cosines))
        embedded = graph.add("Relu", self._linear("iqn.embed", cosines))  # [Q, H]
        rows = graph.reshape(features, -1, 1, hidden)
        mixed = graph.reshape(graph.add("Mul", rows, embedded), -1, hidden)
        head = self._head("iqn.head", mixed)

        def mean(x: str, columns: int) -> str:
            return graph.add(
                "ReduceMean", graph.reshape(x, -1, count, columns), axes=[1], keepdims=0
            )

        value = None if head.value is None else mean(head.value, 1)
        return _Columns(mean(head.advantage, self.network.actions), value)

    def _expected(self, features: str) -> str:
        """Expected values [N, A] of the categorical head."""
        graph, c51 = self.graph, self.network.c51
        assert c51 is not None
        head = self._head("c51.head", features)
        logits = graph.reshape(head.advantage, -1, c51.actions, c51.atoms)
        if head.value is not None:
            value = graph.reshape(head.value, -1, 1, c51.atoms)
            mean = graph.add("ReduceMean", logits, axes=[1], keepdims=1)
            logits = graph.add("Sub", graph.add("Add", value, logits), mean)
        masses = graph.add("Softmax", graph.cast(logits, "DOUBLE"), axis=-1)
        places = support(c51.atoms, c51.v_min, c51.v_max)
        weighted = graph.add("Mul", masses, graph.constant("c51.support", places, np.float64))
        last = graph.constant("last axis", [-1], np.int64)
        return graph.cast(graph.add("ReduceSum", weighted, last, keepdims=0), "FLOAT")

    def _combined(self, values: _Columns) -> str:
        """Action values [N, A] (Wang et al. 2016, equation 9)."""
        graph = self.graph
        if values.value is None:
            return values.advantage
        mean = graph.add("ReduceMean", values.advantage, axes=[1], keepdims=1)
        return graph.add("Sub", graph.add("Add", values.value, values.advantage), mean)


def build_model(policy: Policy) -> Any:
    """The ``onnx.ModelProto`` of a policy, checked.

    Raises:
        ExportError: the onnx package is not installed.
    """
    return _Builder(policy, require_onnx()).build()


def write_onnx(policy: Policy, path: Path) -> Any:
    """Write the graph, whole or not at all; gives the model.

    Raises:
        ExportError: the onnx package is not installed, or the file could not be written.
    """
    model = build_model(policy)
    write_whole(path, model.SerializeToString(deterministic=True))
    return model


def ports(values: Any) -> list[str]:
    """Inputs or outputs of a model in words, as in ``features float64 [N, 12]``."""
    dtypes = {element: dtype for dtype, element in _ELEMENTS.items()}
    onnx = require_onnx()
    named = []
    for value in values:
        tensor = value.type.tensor_type
        dtype = dtypes[onnx.TensorProto.DataType.Name(tensor.elem_type)]
        sizes = [d.dim_param or str(d.dim_value) for d in tensor.shape.dim]
        named.append(f"{value.name} {dtype} [{', '.join(sizes)}]")
    return named
