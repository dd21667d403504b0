"""A stand-in for a GPU in PyTorch's tests: the device `meta`, but with values, which are held on the CPU.

As on a GPU, an operator that gets tensors of both devices raises an error. PyTorch's own meta tensors have no values,
and several of its operators mix them with tensors of the CPU.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

DEVICE = "meta"
COPIES = {torch.ops.aten.copy_.default, torch.ops.aten._to_copy.default, torch.ops.aten._foreach_copy_.default}


class ApartTensor(torch.Tensor):  # type: ignore[misc]
    """A tensor on DEVICE. held: its values, on the CPU."""

    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, held: Any) -> Any:
        tensor = torch.Tensor._make_wrapper_subclass(
            cls, held.shape, held.stride(), held.storage_offset(), dtype=held.dtype, device=DEVICE
        )
        tensor.held = held
        return tensor

    @classmethod
    def __torch_dispatch__(cls, operator: Any, _: object, args: Any = (), kwargs: Any = None) -> Any:
        return run(operator, args, kwargs or {})


class ApartDevice(TorchDispatchMode):  # type: ignore[misc]
    """While it is active, PyTorch creates an `ApartTensor` for each new tensor on DEVICE."""

    def __torch_dispatch__(self, operator: Any, _: object, args: Any = (), kwargs: Any = None) -> Any:
        return run(operator, args, kwargs or {})


def run(operator: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """Run an operator on the held values. Raise RuntimeError if it gets tensors of both devices.

    Only copies, and operators with numbers in tensors of the CPU, may mix them.
    """
    tensors = [value for value in tree_leaves((args, kwargs)) if isinstance(value, torch.Tensor)]
    if operator not in COPIES and len({tensor.device for tensor in tensors if tensor.dim()}) > 1:
        raise RuntimeError(f"{operator} expects all tensors on the same device.")
    apart = isinstance(tensors[0], ApartTensor) if tensors else False
    if kwargs.get("device") is not None:
        apart = kwargs["device"].type == DEVICE
        kwargs = {**kwargs, "device": torch.device("cpu")}
    held_args, held_kwargs = tree_map_only(ApartTensor, lambda tensor: tensor.held, (args, kwargs))
    result = operator(*held_args, **held_kwargs)
    if operator._schema.is_mutable:
        return None if result is None else kwargs.get("out", args[0])
    return tree_map_only(torch.Tensor, ApartTensor, result) if apart else result
