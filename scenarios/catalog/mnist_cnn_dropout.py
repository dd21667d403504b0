"""Study 2, `mnist-batch-sweep`: CNN with dropout on MNIST, Adadelta with Keras' default of that time (learning
rate 1.0).
"""

from scenarios.spec import Adadelta, Conv, Dense, Dropout, Flatten, MaxPool, Scenario

SCENARIO = Scenario(
    name="mnist-cnn-dropout",
    title="CNN with dropout on MNIST",
    dataset="mnist",
    image=(28, 28, 1),
    layers=(
        Conv(32),
        Conv(64),
        MaxPool(),
        Dropout(0.25),
        Flatten(),
        Dense(128),
        Dropout(0.5),
        Dense(10, activation="softmax"),
    ),
    loss="categorical",
    optimizer=Adadelta(learning_rate=1.0, rho=0.95, epsilon=1e-7),
    batch=128,
    epochs=10,
)
