"""Divide training into timed windows, and decide when enough of it is measured.

All clock readings are `time.monotonic`. Host and containers share this clock, so host samples can be merged by time.
"""

import math
import time
from collections.abc import Callable, Sequence

from scenarios.contract.request import Budget
from scenarios.contract.result import Window, within_epochs

WINDOW_S = 0.25  # long enough that the cost of one clock reading and one synchronization is negligible
MIN_STEADY = 5  # values that `truncation_point` leaves, and steady windows that a launch needs
MAX_BUDGETS = 10  # a launch with slow steps is measured for up to this many times its budget to get them


class WindowMeter:
    """The `Meter` of a measured training.

    The first window is the first step alone (compilation, allocation). Then the windows grow to `WINDOW_S`, at most
    doubling each time. They follow each other without a gap, also from one epoch to the next, so the time of an epoch
    boundary belongs to a window. With `whole_epochs`, each epoch is one window, and the time between epochs, in which
    the model is evaluated, belongs to none.

    Steady are the windows from the first one of full length on, without the warm-up that `truncation_point` finds in
    their rates. Training ends after `budget.steps`, or when the steady windows suffice: at least MIN_STEADY windows
    that last `budget.seconds`, or all windows of twice that time if the speed does not settle. Steps may be so slow
    that MIN_STEADY windows take longer. Then training ends after MAX_BUDGETS times `budget.seconds` at the latest.

    A long epoch may have no boundary in its steady windows. In this case `mark` ends the epoch, and training ends one
    window later, so that this window has a boundary.
    """

    def __init__(self, budget: Budget, epoch_steps: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.windows: list[Window] = []
        self.steps = 0
        self.finished = False  # whether the budget is used up
        self.first_step_s = 0.0
        self.budget = budget
        self._epoch_steps = epoch_steps
        self._clock = clock
        self._start = math.nan
        self._epoch_step = 0
        self._window_step = 0
        self._window_images = 0
        self._boundaries = 0  # in the current window
        self._size = 1
        self._left = self._window_steps()  # counted down, because each call of `step` is part of the measured time
        self._full_from: int | None = None
        self._full_s = 0.0  # duration of the windows since then

    @property
    def whole_epochs(self) -> bool:
        """Return whether whole epochs are measured, one window each."""
        return self.budget.epochs is not None

    @property
    def steady_from(self) -> int:
        """Return the index of the first steady window.

        Whole epochs: the first window after the first step. If the launch was too short for a window of full length
        (smoke), the later half of the windows counts. If there is only the first step, that counts.
        """
        if self.whole_epochs:
            return min(1, len(self.windows) - 1)
        if self._full_from is None:
            return len(self.windows) // 2
        # Boundaries are rare and slow. Taken for noise, they would hide the warm-up, or count as a part of it.
        comparable = within_epochs(self.windows[self._full_from :])
        first = comparable[truncation_point([w.images / w.seconds for w in comparable])]
        return self.windows.index(first, self._full_from)

    def begin(self) -> None:
        if self.windows and not self.whole_epochs:
            self._boundaries += 1
            return
        self._epoch_step = self._window_step = self._window_images = 0
        self._left = self._window_steps()
        self._start = self._clock()

    def due(self) -> int:
        return self._left

    def _window_steps(self) -> int:
        """Return the number of steps in the window that begins now."""
        ends = [self._size]
        if self.budget.steps is not None:
            ends.append(self.budget.steps - self.steps)
        if self.whole_epochs:
            ends.append(self._epoch_steps - self._epoch_step)
        return min(ends)

    def step(self, images: int) -> bool:
        self.steps += 1
        self._epoch_step += 1
        self._window_step += 1
        self._window_images += images
        self._left -= 1
        return self._left <= 0

    def mark(self) -> bool:
        now = self._clock()
        seconds = round(now - self._start, 9)  # ns, like the clock
        window = Window(self._start, seconds, self._window_step, self._window_images, self._boundaries)
        self.windows.append(window)
        if len(self.windows) == 1:
            self.first_step_s = window.seconds
        elif self._full_from is None and window.seconds >= WINDOW_S / 2:
            self._full_from = len(self.windows) - 1
        if self._full_from is not None:
            self._full_s += window.seconds
        fitting = round(WINDOW_S * window.steps / max(window.seconds, 1e-9))
        self._size = self._epoch_steps if self.whole_epochs else max(1, min(fitting, 2 * window.steps))
        self._window_step = self._window_images = self._boundaries = 0
        self._left = self._window_steps()
        goes_on = self._goes_on()
        self._start = self._clock()  # last, because the search for the end of the warm-up is not part of a window
        return goes_on

    def _goes_on(self) -> bool:
        """Return whether the epoch goes on. Set `finished` if training ends."""
        if self.budget.steps is not None:
            self.finished = self.steps >= self.budget.steps
            return not self.finished
        seconds = self.budget.seconds
        if seconds is None or self._full_from is None or self._full_s < seconds:
            return True
        steady = self.windows[self.steady_from :]
        enough = len(steady) >= MIN_STEADY and (
            sum(w.seconds for w in steady) >= seconds or self._full_s >= 2 * seconds
        )
        if not enough and self._full_s < MAX_BUDGETS * seconds:
            return True
        self.finished = any(w.boundaries for w in steady)
        return False


def truncation_point(values: Sequence[float]) -> int:
    """Return how many values at the start of a series belong to its transient, by MSER, from the values alone.

    Caches, allocators, clocks and thread pools settle during the first windows of training. How long this takes
    depends on machine, framework and network. Simulation knows the same problem: a start that is not typical of the
    rest. Its standard answer is MSER (marginal standard error rule): the d that minimizes, over d from 0 to n/2 with at
    least MIN_STEADY values left,

        MSER(d) = sum of (y_i - mean of y_d .. y_(n-1))^2 over i = d .. n-1, divided by (n - d)^2.

    MSER(d) is the squared standard error of the mean of the remaining values, if they were independent. The smallest
    such d is returned. In effect the cut is where the transient falls below about 1.4 standard deviations of the noise.
    The result is 0 for fewer than six values.

    White (1997), An effective truncation heuristic for bias reduction in simulation output, Simulation 69(6), 323-334.
    White, Cobb and Spratt (2000), A comparison of five steady-state truncation heuristics for simulation, Proceedings
    of the Winter Simulation Conference. Source of MSER-m: the rule over means of batches of m observations. Here a
    window is such a batch, because its rate is the mean of many steps.
    Hoad, Robinson and Davies (2010), Automating warm-up length estimation, Journal of the Operational Research Society
    61, 1389-1403. Source of two limits: do not cut into the second half, because the series would be too short, and
    leave at least five values, because fewer can be close to each other by chance.
    """
    latest = min(len(values) // 2, len(values) - MIN_STEADY)
    best, found = math.inf, 0
    mean = squares = 0.0
    for index in range(len(values) - 1, -1, -1):  # Welford's update, from the end
        left = len(values) - index
        change = values[index] - mean
        mean += change / left
        squares += change * (values[index] - mean)
        if index <= latest and squares / left**2 <= best:
            best, found = squares / left**2, index
    return found
