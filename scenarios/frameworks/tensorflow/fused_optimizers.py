"""Keras' optimizers with each variable's update as one of TensorFlow's own kernels.

The kernel computes the same formula in one pass over memory. Keras makes one pass for each of its operations.
"""

from types import SimpleNamespace
from typing import Any

import tensorflow as tf
from tensorflow import keras


class FusedSgd(keras.optimizers.SGD):  # type: ignore[misc]
    """SGD without momentum."""

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        tf.raw_ops.ResourceApplyGradientDescent(var=variable.handle, alpha=learning_rate, delta=gradient)


class FusedAdam(keras.optimizers.Adam):  # type: ignore[misc]
    """Adam without amsgrad."""

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        index, step = self._get_variable_index(variable), tf.cast(self.iterations.value + 1, tf.float32)
        tf.raw_ops.ResourceApplyAdam(
            var=variable.handle,
            m=self._momentums[index].value.handle,
            v=self._velocities[index].value.handle,
            beta1_power=self.beta_1**step,
            beta2_power=self.beta_2**step,
            lr=learning_rate,
            beta1=self.beta_1,
            beta2=self.beta_2,
            epsilon=self.epsilon,
            grad=gradient,
        )


class FusedAdadelta(keras.optimizers.Adadelta):  # type: ignore[misc]
    def update_step(self, grad: Any, variable: Any, learning_rate: Any) -> None:
        index = self._get_variable_index(variable)
        tf.raw_ops.ResourceApplyAdadelta(
            var=variable.handle,
            accum=self._accumulated_grads[index].value.handle,
            accum_update=self._accumulated_delta_vars[index].value.handle,
            lr=learning_rate,
            rho=self.rho,
            epsilon=self.epsilon,
            grad=grad,
        )


FUSED = SimpleNamespace(SGD=FusedSgd, Adam=FusedAdam, Adadelta=FusedAdadelta)  # drop-in for `keras.optimizers`
