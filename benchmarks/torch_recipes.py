"""The studies' recipes as a person would type them into PyTorch: a DataLoader and the tutorial's eager loop.

What the kit's PyTorch cells are measured against. The loop keeps no loss and no accuracy
(pytorch.org/tutorials/beginner/basics/optimization_tutorial.html, without what it prints). Not PyTorch's default is how
the weights begin, see `begin_as_keras`, and what the kit's adapter sets for the whole process that both loops share:
threads, and how float32 is rounded.
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
    """A net and how it is trained. shape: of an image, (H, W, C)."""

    net: nn.Sequential
    optimizer: torch.optim.Optimizer
    shape: tuple[int, int, int]
    batch: int


def mnist_cnn() -> Recipe:
    """A small CNN on MNIST."""
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
    """A CNN with dropout on MNIST."""
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
    """A CNN on CIFAR-10."""
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
    """A wide dense network on CIFAR-10."""
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
    """A deep dense network on Fashion-MNIST."""
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


def begin_as_keras(net: nn.Module) -> None:
    """Weights from Glorot's uniform distribution and biases of zero, as Keras and the kit have them.

    What a step costs on a CPU depends on its numbers: from PyTorch's own, smaller, first weights fashion-mlp takes up
    to half as long again, whoever trains it.
    """
    for layer in net.modules():
        if isinstance(layer, (nn.Conv2d, nn.Linear)):
            nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)


class Training:
    """The tutorial's loop over random images."""

    def __init__(self, recipe: Recipe, images: int) -> None:
        self.recipe = recipe
        begin_as_keras(recipe.net)
        self._fresh = copy.deepcopy((recipe.net.state_dict(), recipe.optimizer.state_dict()))
        pixels, labels = side.random_set(recipe.shape, images)
        data = TensorDataset(torch.from_numpy(pixels).permute(0, 3, 1, 2).contiguous(), torch.from_numpy(labels))
        self.images = len(data)
        self._loader = DataLoader(data, batch_size=recipe.batch, shuffle=True)

    def refresh(self) -> None:
        """The first weights and an optimizer without a past. The net stays, as it does in a script: one made anew for
        each epoch lies where the epoch before it has freed memory, and whether glibc can hand the top of its heap back
        to the system after each step, to get it anew in the next, depends on what lies there."""
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
    """The loop over so many random images of a recipe."""
    training = Training(RECIPES[name](), images)
    parameters = sum(parameter.numel() for parameter in training.recipe.net.parameters())
    return side.Loop(parameters, training.images, training.refresh, training.epoch)
