"""The replay alone in other libraries: draw, gather, weigh, and write given TD errors back.

A step draws a prioritized batch of B rows from a full replay, gathers the arrays of its n-step
transitions (states, next states, actions, returns, discounts), takes its importance weights, and
writes the leaves (|delta| + eps)^alpha of given TD errors back to the rows drawn, so that the next
draw sees them. The TD errors are the same in every step, as ours are. A row that stands twice in a
batch is written twice: ours keeps the later of its two leaves, as torchrl does; the other libraries
leave open which of them stays.

Every peer stores ready n-step transitions, where ours assembles them from single steps when they
are drawn; none checks whether a row was overwritten since, or whether a TD error is finite. What
each is:

- `torch_tree_graph` and `torch_tree_compile_graph`: the two-level sum tree of the learning step's
  peers, op by op and compiled, in one CUDA graph. With float64 sums and thresholds, as ours: with
  float32 ones, at 10^7 leaves and 65,536 strata, 24% of the rows under 256 of the last strata were
  never drawn in 4,000 draws, and 1.2% would be by chance.
- `torch_prefix_graph` and `torch_prefix_compile_graph`: no tree, but the float64 prefix sums of all
  leaves anew in each step, and a binary search in them. That costs O(N), and a large batch pays
  for it: it is what one writes in PyTorch for tens of thousands of rows.
- `jax_tree_scan` and `jax_prefix_scan`: the same two in JAX, 64 steps in a `lax.scan` with a
  donated carry, in float64 where PyTorch's are.
- `flashbax_scan`: flashbax's prioritised item buffer, in the same scan. Its binary sum tree is of
  float32, and its inner nodes move by differences. It draws by strata and gives probabilities;
  weights are made of them as the others make theirs.
- `torchrl_cpu_trees` and `torchrl_cuda_trees`: torchrl's `TensorDictReplayBuffer` over a
  `LazyTensorStorage` on the device, as its documentation has it: `sample`, then
  `update_tensordict_priority`. Its `PrioritizedSampler` keeps two binary float32 trees, of sums and
  of minima. Trees on the GPU need a torchrl that was built with CUDA. The wheel on PyPI was not:
  with it a user passes ``device="cpu"``, and each step waits for the host's trees. It draws
  independently and not by strata, and the weight of 1 is that of the replay's smallest leaf and
  not of the batch's.
- `torchrl_cpu_sampler` and `torchrl_cuda_sampler`: that sampler alone, its `sample` and
  `update_priority`, with weights and without the gather.

torchrl's steps are called from Python; the others run without the host.
"""

from __future__ import annotations

#: Module and function that make each peer.
PEERS: dict[str, tuple[str, str]] = {
    "torchrl_cpu_trees": ("torchrl_buffer", "cpu_trees"),
    "torchrl_cpu_sampler": ("torchrl_buffer", "cpu_sampler"),
    "torchrl_cuda_trees": ("torchrl_buffer", "cuda_trees"),
    "torchrl_cuda_sampler": ("torchrl_buffer", "cuda_sampler"),
    "flashbax_scan": ("flashbax_scan", "make"),
    "jax_tree_scan": ("jax_replay", "tree_scan"),
    "jax_prefix_scan": ("jax_replay", "prefix_scan"),
    "torch_tree_graph": ("torch_replay", "tree_graph"),
    "torch_tree_compile_graph": ("torch_replay", "tree_compile_graph"),
    "torch_prefix_graph": ("torch_replay", "prefix_graph"),
    "torch_prefix_compile_graph": ("torch_replay", "prefix_compile_graph"),
}
