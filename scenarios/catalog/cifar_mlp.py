"""Study 5a, `mlp-cpu-vs-gpu`: a wide dense network on flattened CIFAR-10."""

from dataclasses import replace

from scenarios.spec import Dense, Flatten, Scenario, Sgd

SCENARIO = Scenario(
    name="cifar-mlp",
    title="Dense network on CIFAR-10",
    dataset="cifar-10",
    image=(32, 32, 3),
    layers=(Flatten(), Dense(3000), Dense(1000), Dense(10, activation="softmax")),
    loss="categorical",
    optimizer=Sgd(learning_rate=0.01),
    batch=32,
    epochs=10,
)

# The study's own output layer: sigmoid with a categorical loss.
VARIANTS = (
    replace(
        SCENARIO,
        variant="sigmoid",
        title="Dense network on CIFAR-10, sigmoid output",
        layers=(*SCENARIO.layers[:-1], Dense(10, activation="sigmoid")),
    ),
)
