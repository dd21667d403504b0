"""The tuned lane's compilers of networks: `torch.compile`, TorchScript and, for inference, ONNX Runtime."""

from typing import Any

import torch
import torch._dynamo  # here, since the first optimizer would import it, for a second, in each candidate of a search
from torch import nn

from scenarios.adapter import Options
from scenarios.frameworks.torch.model import Network

# A launch needs about ten compiled graphs: for each batch size, in training and for prediction. PyTorch's limit is 8.
MAX_GRAPHS = 64
EXPORT_MODULES = ("onnxruntime", "onnxscript")


def compile_net(net: Network) -> Network:
    """Compile with `torch.compile`, separately for each batch size.

    Raise PyTorch's error after MAX_GRAPHS graphs in one process. PyTorch's default is to continue uncompiled.
    """
    config = torch._dynamo.config  # noqa: SLF001 - its documented place
    config.fail_on_recompile_limit_hit = True
    config.recompile_limit = MAX_GRAPHS
    compiled: Network = torch.compile(net, dynamic=False)
    return compiled


def compile_for_inference(net: nn.Module, example: torch.Tensor, compiler: str, options: Options) -> Network:
    """Compile `net`, which is in evaluation mode, for inference at the example's batch size.

    compiler: `compiled` for `torch.compile`, `exported` for `torch.onnx.export` and ONNX Runtime on the CPU, or
    `frozen` for a TorchScript trace with fused layers. The last two turn the weights into constants.
    """
    if compiler == "compiled":
        return compile_net(net)
    if compiler == "exported":
        from scenarios.frameworks.onnxruntime.session import Runtime  # needs packages that PyTorch does not

        program = torch.onnx.export(net, (example,), dynamo=True, verbose=False)
        session = Runtime(options).open(program.model_proto.SerializeToString(), plan_memory=True)
        (images,) = (tensor.name for tensor in session.get_inputs())
        return lambda batch: torch.from_numpy(session.run(None, {images: batch.numpy()})[0])
    traced: Any = torch.jit.freeze(torch.jit.trace(net, example, check_trace=False))
    frozen: Network = torch.jit.optimize_for_inference(traced)
    return frozen
