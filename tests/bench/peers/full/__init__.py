"""The step of the full preset in PyTorch: every part of the learner, as a PyTorch user has it.

What is the same as in our step, beside what the package above says of every peer: the draw of a
batch and a vaccine batch; one power iteration on the online and the target network's matrices; the
gate, the attention among groups of features, the hidden layers and the residual blocks with
stochastic depth; the quantile head beside the plain one, and the weight between them that the
quantile loss earns; double Q-learning, the quantile Huber loss and the plain head's Huber loss; the
expectile regression of both value networks on the target network's Q(s, a); the denoising loss
through the trunk; the gradient budget, the projection, the clip, AdamW, the target update; and the
modulated TD errors that become priorities.

What is PyTorch's way:

- Parameters lie in one tensor, split into views, so that the optimiser, the clip and the target
  update take a kernel or two each.
- The batch, the vaccine batch and the noised states go through the online trunk together, each
  through a copy of the weights that is expanded and takes no memory: one backward pass gives the
  three gradients apart. So do both value networks.
- Quantile levels, noise and masks come from PyTorch's generator, a tensor for each use. The target
  network sees s' and s in one pass, each row with levels of its own.
"""
