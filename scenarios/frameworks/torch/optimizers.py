"""Optimizers of the tuned lane."""

from __future__ import annotations

import torch

from scenarios import spec


class FusedAdam(torch.optim.Optimizer):  # type: ignore[misc]
    """Adam by the kernel that `torch.optim.Adam(fused=True)` calls, over all parameters at once. What that does around
    it, in each step, is left out: sorting the parameters by device, a count of steps for each of them, hooks. Of a
    small net's step on the CPU that is a few per cent."""

    def __init__(self, parameters: list[torch.Tensor], adam: spec.Adam) -> None:
        super().__init__(parameters, {})
        self._parameters = parameters
        self._steps = torch.zeros((), device=parameters[0].device)  # on the device, so that a CUDA graph can count it
        self._means, self._variances = ([torch.zeros_like(each) for each in parameters] for _ in range(2))
        for each, mean, variance in zip(parameters, self._means, self._variances, strict=True):
            self.state[each] = {"step": self._steps, "exp_avg": mean, "exp_avg_sq": variance}
        self._counts = [self._steps] * len(parameters)
        self._adam = adam

    def zero_grad(self) -> None:
        """Let go of the gradients."""
        for each in self._parameters:
            each.grad = None

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def step(self) -> None:
        """Update by the gradients, of which each parameter must have one."""
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

    # PyTorch would wrap it, for hooks and its profiler: 2 % of a step of `fashion-mlp`.
    step.hooked = True
