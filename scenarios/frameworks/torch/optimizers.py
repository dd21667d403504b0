"""The tuned lane's optimizers."""

import torch
from torch import nn

from scenarios import spec
from scenarios.frameworks.torch import model


def build_tuned_optimizer(
    optimizer: spec.Optimizer, net: nn.Module, name: str | None, *, capturable: bool
) -> torch.optim.Optimizer:
    """Return the implementation that the setting `optimizer` names. None: PyTorch's default.

    capturable: whether a CUDA graph can hold a step. Then the step count, which SGD does not have, is on the device.
    """
    if name == "fused" and isinstance(optimizer, spec.Adam):
        return FusedAdam(list(net.parameters()), optimizer)
    forms = {"loop": {"foreach": False}, "foreach": {"foreach": True}, "fused": {"fused": True}}
    implementation = forms.get(name or "", {})
    if not isinstance(optimizer, spec.Sgd):
        implementation["capturable"] = capturable
    return model.build_optimizer(optimizer, net, **implementation)


class FusedAdam(torch.optim.Optimizer):  # type: ignore[misc]
    """Adam with the kernel of `torch.optim.Adam(fused=True)`, over all parameters at once.

    It skips what PyTorch's class does around the kernel in each step: sorting parameters by device, one step count for
    each parameter, and hooks. On the CPU this is a few percent of a small net's step.
    """

    def __init__(self, parameters: list[torch.Tensor], adam: spec.Adam) -> None:
        super().__init__(parameters, {})
        self._parameters = parameters
        self._steps = torch.zeros((), device=parameters[0].device)  # on the device, for CUDA graphs
        self._means, self._variances = ([torch.zeros_like(each) for each in parameters] for _ in range(2))
        for each, mean, variance in zip(parameters, self._means, self._variances, strict=True):
            self.state[each] = {"step": self._steps, "exp_avg": mean, "exp_avg_sq": variance}
        self._counts = [self._steps] * len(parameters)
        self._adam = adam

    def zero_grad(self) -> None:
        for each in self._parameters:
            each.grad = None

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def step(self) -> None:
        """Update all parameters. Each of them must have a gradient."""
        self._steps.add_(1)
        torch._fused_adam_(
            self._parameters,
            [each.grad for each in self._parameters],
            self._means,
            self._variances,
            [],
            self._counts,
            lr=self._adam.learning_rate,
            beta1=self._adam.beta_1,
            beta2=self._adam.beta_2,
            eps=self._adam.epsilon,
            weight_decay=0.0,
            amsgrad=False,
            maximize=False,
        )

    # Otherwise PyTorch would wrap `step` for hooks and its profiler, which takes 2% of a step of `fashion-mlp`.
    step.hooked = True
