"""Plant 40 violations in copies of other packages, before the guard is run on them.

    python plant.py SOURCES COPIES

SOURCES holds one folder for each of cleanrl, skrl, stable_baselines3, tianshou and torchrl: what
their wheels unpack to. They are copied to COPIES, which must not be there yet, and eight violations
go into the update path of each: ten kinds, at depths of 0 to 4 calls below the function that
`hot.toml` names. `COPIES/planted.json` lists them; `score.py` counts what the guard finds.

Depth is that of the function in the package, which is really called so on the update path, plus
that of functions added here: half of those stand in the same file, half in a module of their own.
Two places (skrl's `act`, tianshou's `Optimizer.step`) are ones that only a type the packages do not
write down would lead to.
"""

from __future__ import annotations

import ast
import json
import shutil
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

#: The statement by kind, and the rules of which one must report it.
KINDS: dict[str, tuple[str, tuple[str, ...]]] = {
    "item": ("planted_value = {x}.item()", ("GRD102",)),
    "cpu": ("planted_value = {x}.detach().cpu().numpy()", ("GRD102",)),
    "synchronize": ("torch.cuda.synchronize()", ("GRD101",)),
    "bool": ("if {x}.sum() > 0: planted_value = 1", ("GRD103",)),
    "float": ("planted_value = float({x}.mean())", ("GRD104",)),
    "format": ("planted_value = f'value {{{x}}}'", ("GRD105",)),
    "nonzero": ("planted_value = torch.nonzero({x})", ("GRD106",)),
    "mask": ("planted_value = {x}[{x} > 0]", ("GRD106",)),
    "upload": ("planted_value = torch.as_tensor([1.0], device={x}.device)", ("GRD202",)),
    "alloc": ("planted_value = torch.zeros(4, device={x}.device)", ("GRD401",)),
}


@dataclass(frozen=True)
class Place:
    """Where a violation may go: before the line `before` of a function."""

    file: str
    function: str
    before: str
    tensor: str
    depth: int


PLACES: dict[str, tuple[Place, ...]] = {
    "cleanrl": (
        Place("cleanrl/dqn.py", "", "optimizer.zero_grad()", "loss", 0),
        Place("cleanrl/ppo.py", "", "entropy_loss = entropy.mean()", "newvalue", 0),
        Place("cleanrl/dqn.py", "QNetwork.forward", "return self.network(x)", "x", 1),
        Place("cleanrl/ppo.py", "Agent.get_value", "return self.critic(x)", "x", 1),
        Place(
            "cleanrl/ppo_atari_lstm.py", "Agent.get_states", "new_hidden = []", "hidden", 2
        ),
    ),
    "skrl": (
        Place(
            "skrl/agents/torch/dqn/dqn.py", "DQN.update", "self.optimizer.zero_grad()",
            "q_network_loss", 0,
        ),
        Place(
            "skrl/agents/torch/ppo/ppo.py", "PPO.update", "self.optimizer.zero_grad()",
            "value_loss", 0,
        ),
        Place(
            "skrl/agents/torch/ppo/ppo.py", "compute_gae", "memory_size = rewards.shape[0]",
            "advantages", 1,
        ),
        Place(
            "skrl/models/torch/deterministic.py", "DeterministicMixin.act",
            "return actions, outputs", "actions", 1,
        ),
        Place(
            "skrl/memories/torch/random.py", "RandomMemory.sample",
            "self.sampling_indexes = indexes", "indexes.float()", 1,
        ),
    ),
    "stable_baselines3": (
        Place(
            "stable_baselines3/dqn/dqn.py", "DQN.train", "losses.append(loss.item())", "loss", 0
        ),
        Place(
            "stable_baselines3/common/utils.py", "polyak_update",
            "target_param.data.mul_(1 - tau)", "param", 1,
        ),
        Place(
            "stable_baselines3/common/policies.py", "ActorCriticPolicy.evaluate_actions",
            "values = self.value_net(latent_vf)", "log_prob", 1,
        ),
        Place(
            "stable_baselines3/common/distributions.py", "DiagGaussianDistribution.log_prob",
            "return sum_independent_dims(log_prob)", "log_prob", 2,
        ),
        Place(
            "stable_baselines3/common/distributions.py", "sum_independent_dims",
            "return tensor", "tensor", 3,
        ),
    ),
    "tianshou": (
        Place(
            "tianshou/algorithm/modelfree/dqn.py", "DQN._update_with_batch",
            "self.optim.step(loss)", "loss", 0,
        ),
        Place(
            "tianshou/algorithm/modelfree/ppo.py", "PPO._update_with_batch",
            "clip_losses.append(clip_loss.item())", "vf_loss", 0,
        ),
        Place(
            "tianshou/algorithm/algorithm_base.py", "Algorithm.Optimizer.step",
            "self._optim.zero_grad()", "loss", 1,
        ),
        Place(
            "tianshou/algorithm/modelfree/sac.py", "AutoAlpha.update",
            "self._optim.zero_grad()", "entropy", 1,
        ),
        Place(
            "tianshou/utils/lagged_network.py", "polyak_parameter_update",
            "tgt_param.data.copy_(tau * src_param.data + (1 - tau) * tgt_param.data)",
            "tgt_param", 3,
        ),
    ),
    "torchrl": (
        Place(
            "torchrl/objectives/dqn.py", "DQNLoss.forward", "weights = None", "loss", 0
        ),
        Place(
            "torchrl/objectives/utils.py", "distance_loss", 'if loss_function == "l2":', "v1", 1
        ),
        Place(
            "torchrl/objectives/common.py", "LossModule._reduce_loss",
            "caller_mask = mask is not None", "loss", 1,
        ),
        Place(
            "torchrl/objectives/utils.py", "_reduce", 'if reduction == "none":', "tensor", 2
        ),
    ),
}  # fmt: skip

PER_PACKAGE = 8


@dataclass(frozen=True)
class Planted:
    """A violation as it was planted; `line` is of the statement itself."""

    package: str
    file: str
    line: int
    kind: str
    depth: int
    codes: tuple[str, ...]
    tag: str


def choose() -> list[tuple[str, Place, str, int]]:
    """Package, place, kind and depth of each: kinds in turn, depths in turn, places by depth."""
    chosen = []
    kinds = list(KINDS)
    for number, package in enumerate(PLACES):
        used: dict[Place, int] = {}
        for index in range(PER_PACKAGE):
            serial = number * PER_PACKAGE + index
            depth = (serial + number) % 5
            fitting = [p for p in PLACES[package] if p.depth <= depth]
            # The deepest that fits, of the least used.
            place = min(fitting, key=lambda p: (used.get(p, 0), depth - p.depth))
            used[place] = used.get(place, 0) + 1
            chosen.append((package, place, kinds[serial % len(kinds)], depth))
    return chosen


def span(tree: ast.Module, qualname: str) -> tuple[int, int]:
    """First and last line of a function, or of the file."""
    body: list[ast.stmt] = tree.body
    found: ast.stmt | None = None
    for part in qualname.split(".") if qualname else ():
        found = next(
            s for s in body if isinstance(s, (ast.FunctionDef, ast.ClassDef)) and s.name == part
        )
        body = found.body  # type: ignore[attr-defined]
    if found is None:
        main = next(s for s in tree.body if isinstance(s, ast.If))
        return main.lineno, main.end_lineno or main.lineno
    return found.lineno, found.end_lineno or found.lineno


def plant(copies: Path) -> list[Planted]:
    """Plant every violation in the copies below `copies`."""
    planted: list[Planted] = []
    for serial, (package, place, kind, depth) in enumerate(choose()):
        path = copies / package / place.file
        text = path.read_text(encoding="utf-8")
        lines = text.split("\n")
        first, last = span(ast.parse(text), place.function)
        row = next((i for i in range(first - 1, last) if lines[i].strip() == place.before), None)
        if row is None:
            raise SystemExit(f"{path}: {place.function} has no line {place.before!r}")
        indent = lines[row][: len(lines[row]) - len(lines[row].lstrip())]
        statement, codes = KINDS[kind]
        tag = f"planted_{serial}"
        hops = depth - place.depth
        if not hops:
            new = [f"import torch  # {tag}", f"{statement.format(x=place.tensor)}  # {tag} here"]
            lines[row:row] = [indent + line for line in new]
            path.write_text("\n".join(lines), encoding="utf-8")
            planted.append(Planted(package, place.file, 0, kind, depth, codes, tag))
            continue
        chain = ["import torch", ""]
        for hop in range(1, hops):
            chain += [f"def {tag}_{hop}(value):", f"    {tag}_{hop + 1}(value)", ""]
        chain += [
            f"def {tag}_{hops}(value):",
            f"    {statement.format(x='value')}  # {tag} here",
            "",
        ]
        if serial % 2:
            target = path.with_name(f"{tag}.py")
            target.write_text("\n".join(chain), encoding="utf-8")
            module = ".".join(target.relative_to(copies / package).with_suffix("").parts)
            lines.insert(row, f"{indent}{tag}_1({place.tensor})")
            lines.insert(row, f"{indent}from {module} import {tag}_1")
        else:
            # Above everything, so that it is defined wherever the script's own body calls it.
            target = path
            lines.insert(row, f"{indent}{tag}_1({place.tensor})")
            head = next(i for i, line in enumerate(lines) if line.startswith(("import ", "from ")))
            while lines[head].startswith("from __future__"):
                head += 1
            lines[head:head] = chain
        path.write_text("\n".join(lines), encoding="utf-8")
        file = target.relative_to(copies / package).as_posix()
        planted.append(Planted(package, file, 0, kind, depth, codes, tag))
    return [_with_line(copies, p) for p in planted]


def _with_line(copies: Path, planted: Planted) -> Planted:
    text = (copies / planted.package / planted.file).read_text(encoding="utf-8")
    ast.parse(text)
    line = next(
        i for i, line in enumerate(text.split("\n"), 1) if line.endswith(f"# {planted.tag} here")
    )
    return Planted(**{**asdict(planted), "line": line})


def main() -> None:
    """Copy, plant, write the list."""
    sources, copies = map(Path, sys.argv[1:3])
    copies.mkdir(parents=True)
    for package in PLACES:
        shutil.copytree(sources / package, copies / package)
    rows = [asdict(p) for p in plant(copies)]
    (copies / "planted.json").write_text(json.dumps(rows, indent=1))
    kinds = {row["kind"] for row in rows}
    depths = sorted({row["depth"] for row in rows})
    print(f"{len(rows)} planted: {len(kinds)} kinds, depths {depths}")


if __name__ == "__main__":
    main()
