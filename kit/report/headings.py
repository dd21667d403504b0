"""Make the headings of the sections: each is the answer to the section's question, in one sentence without a period."""

from collections import Counter

from kit.model.formatting import format_count
from kit.report import text
from kit.report.section import ReportInput


def training_heading(source: ReportInput) -> str:
    """Return which framework trains fastest, or that this is not known."""
    contests = source.contests
    if not contests:
        return f"Training speed of {format_count(len(source.measured), 'cell')}, without a comparison of frameworks"
    if all(contest.unknown for contest in contests):
        leads = Counter(contest.leader.cell.framework for contest in contests)
        words = [f"{source.framework_title(name)} in {count}" for name, count in leads.most_common()]
        return (
            f"First look at {format_count(len(contests), 'comparison')}: {text.listed(words)} ahead, no winner is named"
        )
    wins = Counter(contest.leader.cell.framework for contest in contests if contest.named)
    words = [f"{source.framework_title(name)} is fastest in {count}" for name, count in wins.most_common()]
    unclear = len(contests) - wins.total()
    words += [f"no clear winner in {unclear}"] * bool(unclear)
    return f"Of {format_count(len(contests), 'comparison')}: {text.listed(words)}"


def inference_heading(source: ReportInput) -> str:
    """Return the range of the throughput."""
    found = [cell.inference_images_per_s for cell in source.measured if cell.inference_images_per_s]
    return f"From {text.number(min(found))} to {text.number(max(found))} images/s, depending on the cell"
