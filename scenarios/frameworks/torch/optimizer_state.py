"""Exchange of an optimizer's state between PyTorch and checkpoints."""

from collections.abc import Mapping

import torch

from scenarios.adapter import State

PREFIX = "optimizer/"  # of a tensor's name, followed by the number of its parameter and PyTorch's name


def read_state(optimizer: torch.optim.Optimizer) -> State:
    """Return copies of the tensors of the state, by name."""
    return {f"{PREFIX}{name}": tensor.detach().cpu().numpy().copy() for name, tensor in _tensors(optimizer).items()}


def write_state(optimizer: torch.optim.Optimizer, state: Mapping[str, object]) -> None:
    """Continue from what `read_state` returned. Other names are ignored. Raise ValueError if a tensor does not fit.

    Tensors that exist are overwritten in place, because CUDA graphs and the kit's own optimizers hold their memory. An
    optimizer that has not made a step yet has none.
    """
    given = {name.removeprefix(PREFIX): torch.tensor(value) for name, value in state.items() if name.startswith(PREFIX)}
    parameters = [each for group in optimizer.param_groups for each in group["params"]]
    described = {name.partition("/")[0] for name in given}
    if described != {str(number) for number in range(len(parameters))} and (
        given or not isinstance(optimizer, torch.optim.SGD)  # without momentum, it has no state
    ):
        raise ValueError("the state does not describe all parameters")
    if existing := _tensors(optimizer):
        if {name: tensor.shape for name, tensor in existing.items()} != {n: t.shape for n, t in given.items()}:
            raise ValueError("the state is that of another optimizer")
        for name, tensor in existing.items():
            tensor.copy_(given[name])
        return
    loaded: dict[int, dict[str, torch.Tensor]] = {}
    for name, tensor in given.items():
        number, _, key = name.partition("/")
        parameter = parameters[int(number)]
        if tensor.dim():
            if tensor.shape != parameter.shape:
                raise ValueError(f"{name} has shape {tuple(tensor.shape)}, but its parameter {tuple(parameter.shape)}")
            # In the memory layout of the parameter, which fused kernels rely on.
            laid_out = torch.empty_like(parameter, device=tensor.device, requires_grad=False).copy_(tensor)
        else:
            laid_out = tensor
        loaded.setdefault(int(number), {})[key] = laid_out
    optimizer.load_state_dict({"state": loaded, "param_groups": optimizer.state_dict()["param_groups"]})


def _tensors(optimizer: torch.optim.Optimizer) -> dict[str, torch.Tensor]:
    """Return the tensors of the state by `<number of the parameter>/<PyTorch's name>`."""
    return {
        f"{number}/{key}": value
        for number, values in optimizer.state_dict()["state"].items()
        for key, value in values.items()
        if isinstance(value, torch.Tensor)
    }
