"""Study 5b, `mlp-cpu-vs-gpu`: deep dense network on flattened Fashion-MNIST."""

from dataclasses import replace

from scenarios.spec import Activation, Adam, Dense, Flatten, Layer, Scenario


def network(hidden_layers: int, output: Activation) -> tuple[Layer, ...]:
    """Return Flatten, `hidden_layers` layers of 500 units, and 10 outputs."""
    return (Flatten(), *(Dense(500) for _ in range(hidden_layers)), Dense(10, activation=output))


SCENARIO = Scenario(
    name="fashion-mlp",
    title="Dense network on Fashion-MNIST",
    dataset="fashion-mnist",
    image=(28, 28, 1),
    layers=network(hidden_layers=5, output="softmax"),
    loss="categorical",
    optimizer=Adam(learning_rate=1e-3, beta_1=0.9, beta_2=0.999, epsilon=1e-7),
    batch=32,
    epochs=5,
)

# The study's own output layer: sigmoid with a categorical loss.
VARIANTS = (
    replace(
        SCENARIO,
        variant="sigmoid",
        title="Dense network on Fashion-MNIST, sigmoid output",
        layers=network(hidden_layers=5, output="sigmoid"),
    ),
)
