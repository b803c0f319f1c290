"""What the learner's network and losses are made of: blocks that emit ops, and their parameters."""
