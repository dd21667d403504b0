"""A PyTorch network handed on to ONNX Runtime, for inference."""

from __future__ import annotations

import torch
from torch import nn

from scenarios.adapter import Options
from scenarios.frameworks.onnxruntime.session import Runtime
from scenarios.frameworks.torch.layers import Network


def exported(net: nn.Module, example: torch.Tensor, options: Options) -> Network:
    """The network at the example's batch size by `torch.onnx.export`, its weights constants, on the CPU. net: in
    evaluation mode; its logits come back."""
    program = torch.onnx.export(net, (example,), dynamo=True, verbose=False)
    session = Runtime(options).open(program.model_proto.SerializeToString(), plan_memory=True)
    (images,) = (put.name for put in session.get_inputs())
    return lambda batch: torch.from_numpy(session.run(None, {images: batch.numpy()})[0])
