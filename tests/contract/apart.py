"""A stand-in for a GPU in PyTorch's tests: the device `meta`, but with values, which are held on the CPU.

As on a GPU, an operator that gets tensors of both devices raises an error. PyTorch's own meta tensors have no values,
and several of its operators mix them with tensors of the CPU.

A copy in a stream of its own happens only when the stream that computes waits for it. It must come from pinned memory,
which is ordinary memory here, since PyTorch's needs a GPU.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

DEVICE = "meta"
COPIES = {torch.ops.aten.copy_.default, torch.ops.aten._to_copy.default, torch.ops.aten._foreach_copy_.default}


class Stream:
    """Stands in for `torch.cuda.Stream`. copies: those that no other stream has waited for yet."""

    def __init__(self) -> None:
        self.copies: list[Callable[[], Any]] = []

    def wait_stream(self, other: Stream) -> None:
        for copy in other.copies:
            copy()
        other.copies.clear()


STREAMS = [Stream()]  # the current stream is the last one
PINNED: dict[int, Any] = {}  # pinned storages by their addresses, which are not used again as long as they are here


@contextlib.contextmanager
def stream(entered: Stream) -> Iterator[None]:
    """Stand in for `torch.cuda.stream`."""
    STREAMS.append(entered)
    yield
    STREAMS.pop()


def current_stream() -> Stream:
    """Stand in for `torch.cuda.current_stream`."""
    return STREAMS[-1]


def pin(tensor: Any) -> Any:
    """Note that this tensor's memory is pinned."""
    storage = tensor.untyped_storage()
    PINNED[storage.data_ptr()] = storage
    return tensor


def copy_later(source: Any) -> Any:
    """Return an `ApartTensor` that gets the values of `source` when another stream waits for the current one."""
    assert source.untyped_storage().data_ptr() in PINNED, "a copy from memory that is not pinned blocks the host"
    held = torch.full_like(source, -1)
    current_stream().copies.append(lambda: held.copy_(source))
    return ApartTensor(held)


class ApartTensor(torch.Tensor):  # type: ignore[misc]
    """A tensor on DEVICE. held: its values, on the CPU."""

    __torch_function__ = torch._C._disabled_torch_function_impl
    used_in: Stream | None = None

    def record_stream(self, stream: Stream) -> None:
        self.used_in = stream

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
    if kwargs.pop("pin_memory", False):
        return pin(operator(*args, **kwargs))
    if operator is torch.ops.aten._pin_memory.default:
        return pin(args[0].clone())
    if len(STREAMS) > 1 and operator is torch.ops.aten._to_copy.default and kwargs["non_blocking"]:
        return copy_later(args[0])
    apart = isinstance(tensors[0], ApartTensor) if tensors else False
    if kwargs.get("device") is not None:
        apart = kwargs["device"].type == DEVICE
        kwargs = {**kwargs, "device": torch.device("cpu")}
    held_args, held_kwargs = tree_map_only(ApartTensor, lambda tensor: tensor.held, (args, kwargs))
    result = operator(*held_args, **held_kwargs)
    if operator._schema.is_mutable:
        return None if result is None else kwargs.get("out", args[0])
    return tree_map_only(torch.Tensor, ApartTensor, result) if apart else result
