"""The policy outside the trainer: what it needs to be known, as an ONNX graph and as weights."""
