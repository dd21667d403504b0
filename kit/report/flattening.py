"""Say from which value of a varied field on the speed of training does not grow."""

from collections.abc import Sequence

from kit.analysis.summaries import too_few
from kit.analysis.sweeps import GAIN, Curve, extent_words, value_words
from kit.report import text

MEANING = (
    f"A curve is flat from a value on if no later step to the next value gains {text.percent(GAIN)} or more. The "
    "smallest such value is named. If it is near the fastest value, and the last one is at least "
    f"{text.percent(GAIN)} slower, the speed is called highest near it. With several launches, the named value has an "
    "interval: the values that the launches cannot exclude. Steps are compared round by round."
)


def flat_words(own: Sequence[Curve]) -> str:
    """Return where curves over one field are flat, as the end of a sentence about the speed.

    One curve has its interval: `flat from batch 256 on (95% interval: 128 to 512)`. Several say how many: `flat from
    batch 128 to 256 on in 2 of 3 curves and not flat up to batch 2048 in 1 of 3 curves`.
    """
    field = own[0].field
    decided = [curve for curve in own if not curve.undecided]
    flat = [curve.flattening.value for curve in decided if curve.flattens and not curve.falls]
    highest = [curve.flattening.value for curve in decided if curve.falls]
    ends = [curve.values[-1] for curve in decided if not curve.flattens]
    parts = [
        (len(flat), f"flat from {extent_words(field, min(flat), max(flat))} on" if flat else ""),
        (len(highest), f"highest near {extent_words(field, min(highest), max(highest))}" if highest else ""),
        (len(ends), f"not flat up to {value_words(field, max(ends))}" if ends else ""),
        (len(own) - len(decided), "too uncertain to say where it becomes flat"),
    ]
    words = [what + f" in {count} of {len(own)} curves" * (count < len(own)) for count, what in parts if count]
    return text.listed(words) + (_interval(own[0]) if len(own) == 1 and decided else single_words(own))


def single_words(own: Sequence[Curve]) -> str:
    """Return a remark if a curve has too few launches for an interval, else ""."""
    return f" ({too_few(cell for curve in own for cell in curve.cells)})" if any(c.single for c in own) else ""


def _interval(curve: Curve) -> str:
    found, last = curve.flattening, curve.values[-1]
    if found.earliest is None or found.latest is None:
        return single_words([curve])
    if found.latest == last:  # a curve that may be steep up to here may be so beyond it
        return f" (95% interval: {found.earliest} or more)"
    extent = f" to {found.latest}" * (found.latest > found.earliest)
    return f" (95% interval: {found.earliest}{extent})"
