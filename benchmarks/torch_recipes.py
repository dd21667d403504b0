"""Define the studies' recipes in plain PyTorch: a DataLoader and the tutorial's eager loop.

This is the baseline of the kit's PyTorch cells. The loop is that of
pytorch.org/tutorials/beginner/basics/optimization_tutorial.html without its printing; it keeps no loss and no accuracy.
Two things differ from PyTorch's defaults: the initial weights (see `initialize_like_keras`), and what the kit's adapter
sets for the process that both loops share (threads, and the precision of float32 products).
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from benchmarks import side


@dataclass(frozen=True)
class Recipe:
    """A network and how it is trained. shape: of an image, (H, W, C)."""

    net: nn.Sequential
    optimizer: torch.optim.Optimizer
    shape: tuple[int, int, int]
    batch: int


def mnist_cnn() -> Recipe:
    """Return a small CNN for MNIST."""
    net = nn.Sequential(
        nn.Conv2d(1, 32, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64 * 5 * 5, 128),
        nn.ReLU(),
        nn.Linear(128, 10),
    )
    return Recipe(net, torch.optim.Adam(net.parameters()), (28, 28, 1), 64)


def mnist_cnn_dropout() -> Recipe:
    """Return a CNN with dropout for MNIST."""
    net = nn.Sequential(
        nn.Conv2d(1, 32, 3),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Dropout(0.25),
        nn.Flatten(),
        nn.Linear(64 * 12 * 12, 128),
        nn.ReLU(),
        nn.Dropout(0.5),
        nn.Linear(128, 10),
    )
    return Recipe(net, torch.optim.Adadelta(net.parameters(), lr=1.0), (28, 28, 1), 128)


def cifar_cnn() -> Recipe:
    """Return a CNN for CIFAR-10."""
    net = nn.Sequential(
        nn.Conv2d(3, 32, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(64, 64, 3),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(64 * 4 * 4, 64),
        nn.ReLU(),
        nn.Linear(64, 10),
    )
    return Recipe(net, torch.optim.Adam(net.parameters()), (32, 32, 3), 32)


def cifar_mlp() -> Recipe:
    """Return a wide dense network for CIFAR-10."""
    net = nn.Sequential(
        nn.Flatten(),
        nn.Linear(32 * 32 * 3, 3000),
        nn.ReLU(),
        nn.Linear(3000, 1000),
        nn.ReLU(),
        nn.Linear(1000, 10),
    )
    return Recipe(net, torch.optim.SGD(net.parameters(), lr=0.01), (32, 32, 3), 32)


def fashion_mlp() -> Recipe:
    """Return a deep dense network for Fashion-MNIST."""
    hidden = [layer for _ in range(4) for layer in (nn.Linear(500, 500), nn.ReLU())]
    net = nn.Sequential(nn.Flatten(), nn.Linear(28 * 28, 500), nn.ReLU(), *hidden, nn.Linear(500, 10))
    return Recipe(net, torch.optim.Adam(net.parameters()), (28, 28, 1), 32)


RECIPES: dict[str, Callable[[], Recipe]] = {
    "mnist-cnn": mnist_cnn,
    "mnist-cnn-dropout": mnist_cnn_dropout,
    "cifar-cnn": cifar_cnn,
    "cifar-mlp": cifar_mlp,
    "fashion-mlp": fashion_mlp,
}


def initialize_like_keras(net: nn.Module) -> None:
    """Initialize weights from Glorot's uniform distribution and biases with zero, like Keras and the kit.

    The cost of a step on a CPU depends on its values: from PyTorch's own initial weights, which are smaller,
    fashion-mlp takes up to 1.5 times as long on both sides.
    """
    for layer in net.modules():
        if isinstance(layer, (nn.Conv2d, nn.Linear)):
            nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)


class Training:
    """The tutorial's training loop over random images."""

    def __init__(self, recipe: Recipe, images: int) -> None:
        self.recipe = recipe
        initialize_like_keras(recipe.net)
        self._fresh = copy.deepcopy((recipe.net.state_dict(), recipe.optimizer.state_dict()))
        pixels, labels = side.random_set(recipe.shape, images)
        data = TensorDataset(torch.from_numpy(pixels).permute(0, 3, 1, 2).contiguous(), torch.from_numpy(labels))
        self.images = len(data)
        self._loader = DataLoader(data, batch_size=recipe.batch, shuffle=True)

    def refresh(self) -> None:
        """Restore the initial weights and the initial state of the optimizer.

        The network object stays the same, as in a script. A new network per epoch would occupy memory that the
        previous epoch freed, and its place decides whether glibc returns the top of its heap to the system after each
        step and requests it again in the next."""
        weights, state = self._fresh
        self.recipe.net.load_state_dict(weights)
        self.recipe.optimizer.load_state_dict(state)

    def epoch(self) -> None:
        """Train one epoch."""
        net, optimizer, loss_fn = self.recipe.net, self.recipe.optimizer, nn.CrossEntropyLoss()
        net.train()
        for images, labels in self._loader:
            optimizer.zero_grad()
            loss = loss_fn(net(images), labels)
            loss.backward()
            optimizer.step()


def prepare(name: str, images: int) -> side.Loop:
    """Return the training loop of a recipe over `images` random images."""
    training = Training(RECIPES[name](), images)
    parameters = sum(parameter.numel() for parameter in training.recipe.net.parameters())
    return side.Loop(parameters, training.images, training.refresh, training.epoch)
