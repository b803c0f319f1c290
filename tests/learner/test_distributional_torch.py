"""The distributional losses and IQN's embedding against PyTorch's autograd, in float64."""

import numpy as np
import pytest

from onegraph.kernels.learner.c51_loss import categorical_terms, spread_logit_gradient
from onegraph.kernels.learner.categorical import project
from onegraph.kernels.learner.dqn_loss import write_head_gradient
from onegraph.kernels.learner.iqn_cosines import cosine_features
from onegraph.kernels.learner.iqn_loss import iqn_terms
from onegraph.kernels.learner.iqn_mix import relu
from onegraph.kernels.learner.iqn_mix_grad import mix_gradients

torch = pytest.importorskip("torch", exc_type=ImportError)

BATCH, ACTIONS = 32, 3


def close(ours, theirs):
    np.testing.assert_allclose(ours, theirs.detach().numpy(), rtol=1e-9, atol=1e-12)


def tensor(values, *, grad=False):
    return torch.tensor(values, dtype=torch.float64, requires_grad=grad)


def action_values(head, dueling):
    """Values from a head [..., A + d, X], the actions on the last axis but one."""
    if not dueling:
        return head
    advantage, value = head[..., :ACTIONS, :], head[..., ACTIONS:, :]
    return value + advantage - advantage.mean(-2, keepdim=True)


def transitions(rng):
    """Action, reward, discount and weight."""
    return (
        rng.integers(ACTIONS, size=BATCH),
        rng.normal(size=BATCH),
        np.where(np.arange(BATCH) % 4, 0.97, 0.0),
        rng.uniform(0.2, 1, BATCH),
    )


@pytest.mark.parametrize("dueling", [0, 1])
@pytest.mark.parametrize("kappa", [1.0, 0.3])
def test_quantile_huber_loss(dueling, kappa):
    rng = np.random.default_rng(dueling)
    quantiles, samples, stride = 8, 6, ACTIONS + dueling
    head = rng.normal(size=(BATCH, quantiles, stride))
    target, select = rng.normal(size=(BATCH, samples, stride)), rng.normal(size=(BATCH, stride))
    tau = rng.uniform(size=(BATCH, quantiles))
    action, reward, discount, weight = transitions(rng)
    options = {"actions": ACTIONS, "dueling": dueling}
    terms = iqn_terms(
        head, tau, target, select, action, reward, discount, weight, kappa=kappa, **options
    )
    grad = np.zeros((BATCH * quantiles, stride))
    write_head_gradient(grad, terms.grad_theta.ravel(), np.repeat(action, quantiles), **options)

    variable = tensor(head, grad=True)
    rows = torch.arange(BATCH)
    theta = action_values(variable[..., None], dueling)[rows, :, action, 0]
    best = select[:, :ACTIONS].argmax(1)
    theta_t = action_values(tensor(target)[..., None], dueling)[rows, :, best, 0]
    targets = tensor(reward)[:, None] + tensor(discount)[:, None] * theta_t
    delta = targets[:, None, :] - theta[:, :, None]  # [B, Q, Q']
    huber = torch.nn.functional.huber_loss(
        theta[:, :, None].expand_as(delta),
        targets[:, None, :].expand_as(delta),
        reduction="none",
        delta=kappa,
    )
    side = (tensor(tau)[:, :, None] - (delta.detach() < 0).double()).abs()
    loss = tensor(weight) * (side * huber / kappa).mean(2).sum(1)
    loss.mean().backward()

    close(terms.loss, loss)
    close(terms.td, targets.mean(1) - theta.mean(1))
    close(grad.reshape(head.shape), variable.grad)


def test_embedding():
    rng = np.random.default_rng(3)
    quantiles, frequencies, hidden = 5, 64, 16
    features = rng.normal(size=(BATCH, hidden))
    weight, bias = rng.normal(size=(frequencies, hidden)) / 8, rng.normal(size=hidden)
    tau = rng.uniform(size=BATCH * quantiles).astype(np.float32)
    pull = rng.normal(size=(BATCH, quantiles, hidden))

    variables = [tensor(values, grad=True) for values in (features, weight, bias)]
    f, w, b = variables
    turns = torch.arange(frequencies, dtype=torch.float64) * tensor(tau)[:, None]
    cosines = torch.cos(torch.pi * turns)
    phi = torch.relu(cosines @ w + b).reshape(BATCH, quantiles, hidden)
    z = f[:, None, :] * phi
    (tensor(pull) * z).sum().backward()

    ours = cosine_features(tau, frequencies)
    close(ours, cosines)
    our_phi = (ours @ weight + bias).reshape(pull.shape)
    close(features[:, None] * relu(our_phi), z)
    d_phi, d_features = mix_gradients(features, our_phi, pull)
    d_phi = d_phi.reshape(-1, hidden)
    for got, variable in zip((d_features, ours.T @ d_phi, d_phi.sum(0)), variables, strict=True):
        close(got, variable.grad)


def algorithm_1(p, reward, discount, atoms, v_min, v_max):
    """The projection by Bellemare et al.'s Algorithm 1, with index_add; whole b keep their mass."""
    distance = (v_max - v_min) / (atoms - 1)
    z = torch.linspace(v_min, v_max, atoms, dtype=torch.float64)
    reached = (tensor(reward)[:, None] + tensor(discount)[:, None] * z).clamp(v_min, v_max)
    b = ((reached - v_min) / distance).clamp(0, atoms - 1)
    low = b.floor().long().clamp(max=atoms - 2)
    m = torch.zeros_like(p)
    m.scatter_add_(1, low, p * (low + 1 - b))
    m.scatter_add_(1, low + 1, p * (b - low))
    return m


@pytest.mark.parametrize(("atoms", "v_min", "v_max"), [(2, 0.0, 1.0), (51, -10.0, 10.0)])
def test_projection(atoms, v_min, v_max):
    rng = np.random.default_rng(atoms)
    p = rng.dirichlet(np.ones(atoms), size=BATCH)
    _, reward, discount, _ = transitions(rng)
    reward[:4] = 0, v_min, v_max, 100
    ours = project(p, reward, discount, atoms, v_min, v_max)
    close(ours, algorithm_1(tensor(p), reward, discount, atoms, v_min, v_max))


@pytest.mark.parametrize("dueling", [0, 1])
def test_categorical_loss(dueling):
    rng = np.random.default_rng(dueling)
    atoms, v_min, v_max = 51, -4.0, 4.0
    shape = BATCH, ACTIONS + dueling, atoms
    head, target = rng.normal(size=shape), rng.normal(size=shape)
    select = rng.normal(size=(BATCH, ACTIONS))
    action, reward, discount, weight = transitions(rng)
    options = {"actions": ACTIONS, "dueling": dueling}
    terms = categorical_terms(
        head,
        target,
        select,
        action,
        reward,
        discount,
        weight,
        v_min=v_min,
        v_max=v_max,
        **options,
    )

    variable = tensor(head, grad=True)
    rows = torch.arange(BATCH)
    logits = action_values(variable, dueling)[rows, action]
    successor = action_values(tensor(target), dueling)[rows, select.argmax(1)]
    m = algorithm_1(successor.softmax(1), reward, discount, atoms, v_min, v_max)
    cross_entropy = torch.nn.functional.cross_entropy(logits, m, reduction="none")
    loss = tensor(weight) * cross_entropy
    loss.mean().backward()

    close(terms.loss, loss)
    close(terms.td, cross_entropy - torch.special.entr(m).sum(1))
    z = torch.linspace(v_min, v_max, atoms, dtype=torch.float64)
    close(terms.q_taken, (logits.softmax(1) * z).sum(1))
    close(spread_logit_gradient(terms.grad_logits, action, **options), variable.grad)
