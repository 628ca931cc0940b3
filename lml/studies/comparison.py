# Generated from book/comparison.ipynb by tools/tangle.py: edit the chapter.
"""How results are compared over splits, and shown beside the paper's tables.

`compare_systems` gives the paired difference of two systems with an interval that knows that
splits of the same rows are not independent; `results_table` and `comparison_figure` show systems
side by side; `read_paper` reads what the paper prints.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from lml.studies.results import Rows, read_rows, wrong_answers
from lml.utils.typing import Floats
from lml.utils.validation import one_of, real

__all__ = [
    "Cell",
    "Difference",
    "Line",
    "ResultsTable",
    "TextTable",
    "compare_systems",
    "comparison_figure",
    "confront",
    "cost_figure",
    "describe_run",
    "difference_figure",
    "mean_and_error",
    "paired_difference",
    "read_paper",
    "results_table",
    "split_errors",
]


# book/comparison.ipynb#a-mean-and-its-error
def _errors_by_split(rows: Rows, system: str, task: str = "average") -> dict[int, float]:
    """Split to error in per cent, in the order of the splits."""
    found: dict[int, dict[str, float]] = {}
    for row in rows:
        if row["system"] == system and task in (row["task"], "average"):
            errors = found.setdefault(int(row["split"]), {})
            if row["task"] in errors:
                raise ValueError(
                    f"split {row['split']} has two rows of {system!r} and task {row['task']!r}: "
                    "give those of one setting, or remove from the file what stands twice"
                )
            errors[row["task"]] = 100 * float(row["error"])
    if not found:
        known = sorted({str(row["system"]) for row in rows})
        raise ValueError(f"no row has system {system!r} and task {task!r}: the systems are {known}")
    if len({len(errors) for errors in found.values()}) > 1:
        counts = {split: len(errors) for split, errors in found.items()}
        raise ValueError(
            f"{system!r} has not the same number of tasks in every split ({counts}): finish the"
            " run or leave the incomplete splits out"
        )
    return {split: float(np.mean(list(found[split].values()))) for split in sorted(found)}


# book/comparison.ipynb#a-mean-and-its-error
def split_errors(rows: Rows, system: str, task: str = "average") -> Floats:
    """Errors of one system over the splits, in per cent, in the order of the splits.

    Parameters
    ----------
    rows : list of dict
        Rows of a results file.
    system, task : str
        Names; the task "average" is the mean over all tasks.

    Returns
    -------
    ndarray of shape (n_splits,)

    Raises
    ------
    ValueError
        If there is no such row, or if a split lacks tasks that another one has.
    """
    return np.array(list(_errors_by_split(rows, system, task).values()))


def mean_and_error(values: ArrayLike) -> tuple[float, float]:
    """Mean and standard error of values over splits; the error of one value is NaN.

    Notes
    -----
    Derived in chapter 38 (comparison), eq. (comparison-mean).
    """
    values = np.asarray(values, dtype=float)
    if values.ndim != 1 or len(values) == 0:
        raise ValueError(
            f"values has shape {values.shape}: give one number for each split, at least one"
        )
    spread = values.std(ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.nan
    return float(values.mean()), float(spread)


# book/comparison.ipynb#an-interval
@dataclass(frozen=True)
class Difference:
    """A paired difference over splits, in points, with its 95 % interval."""

    mean: float
    error: float  # standard error
    half: float  # half the width of the interval
    n_splits: int

    @property
    def low(self) -> float:
        return self.mean - self.half

    @property
    def high(self) -> float:
        return self.mean + self.half

    @property
    def within_noise(self) -> bool:
        """Whether the interval contains zero."""
        return self.low <= 0 <= self.high

    def __str__(self) -> str:
        return f"{self.mean:+.2f} ± {self.error:.2f} [{self.low:+.2f}, {self.high:+.2f}]"


# book/comparison.ipynb#an-interval
#: Differences that are closer than this are equal: files keep six digits of a share.
_ROUNDING = 1e-3


def paired_difference(
    first: ArrayLike, second: ArrayLike, *, shared: float = 0.0, fixed: float = 0.0
) -> Difference:
    """Mean difference of two systems over the same splits, with a 95 % t interval.

    Parameters
    ----------
    first, second : array-like of shape (n_splits,)
        Errors on the same splits, in the same order.
    shared : float, default=0.0
        What the dependence of the splits adds to 1 / n_splits.
    fixed : float, default=0.0
        A variance that no split shows, in the squared units of the errors. Its covariance with
        the shared part is not known, so their standard deviations are added.

    Returns
    -------
    Difference

    Notes
    -----
    Derived in chapter 38 (comparison), eqs. (comparison-interval) and (comparison-general).

    Examples
    --------
    >>> print(paired_difference([3.0, 4.0, 5.0], [2.0, 2.0, 2.0]))
    +2.00 ± 0.58 [-0.48, +4.48]
    """
    first = np.asarray(first, dtype=float)
    second = np.asarray(second, dtype=float)
    if first.ndim != 1 or first.shape != second.shape or len(first) < 2:
        raise ValueError(
            f"first and second have shapes {first.shape} and {second.shape}: give the errors of"
            " both systems on the same splits, two splits at least"
        )
    if not (np.isfinite(first).all() and np.isfinite(second).all()):
        raise ValueError("first and second must be finite: leave out splits without a result")
    real(0).check("shared", shared)
    real(0).check("fixed", fixed)
    gaps = first - second
    n_splits = len(gaps)
    spread = 0.0 if np.ptp(gaps) < _ROUNDING else float(gaps.std(ddof=1))
    variance = spread**2 / n_splits + (spread * np.sqrt(shared) + np.sqrt(fixed)) ** 2
    half = 0.0
    if variance > 0:  # not the same difference on every split
        varying = variance - fixed - spread * np.sqrt(shared * fixed)
        df = (n_splits - 1) * (variance / varying) ** 2 if spread > 0 else np.inf
        half = float(stats.t.ppf(0.975, df) * np.sqrt(variance))
    mean = float(gaps.mean())
    return Difference(mean=mean, error=float(np.sqrt(variance)), half=half, n_splits=n_splits)


# book/comparison.ipynb#correction-2-a-term-for-each-cause
def _corrections(disagreements: ArrayLike, sizes: ArrayLike) -> dict[str, dict[str, float]]:
    """Arguments of `paired_difference` for each correction.

    disagreements are the variances of the difference of the two losses at a test sample, (n_tasks,);
    sizes are the numbers of training and of test samples, (n_tasks, 2).
    """
    sizes = np.asarray(sizes, dtype=float)
    n_test = sizes[:, 1]
    ratio = float(n_test.sum() / sizes[:, 0].sum())
    each = np.asarray(disagreements) * sizes.sum(axis=1) / n_test**2
    return {
        "none": {},
        "nadeau-bengio": {"shared": ratio},
        "rows": {"shared": 1 / ratio, "fixed": float(100**2 * each.mean() / len(sizes))},
    }


# book/comparison.ipynb#correction-2-a-term-for-each-cause
def compare_systems(
    rows: Rows, first: str, second: str, task: str = "average", *, correction: str = "smaller"
) -> Difference:
    """Paired difference of two systems of a results file, error of the first minus the second.

    Parameters
    ----------
    rows : list of dict
        Rows of a results file; splits that both systems have are used.
    first, second, task : str
        Names; the task "average" is the mean over all tasks.
    correction : {"smaller", "nadeau-bengio", "rows", "none"}, default="smaller"
        How the interval allows for splits that share samples: by the corrected resampled t-test,
        by a term for each cause, by the narrower of the two, or not at all.

    Returns
    -------
    Difference
        In points (per cent).

    Notes
    -----
    Derived in chapter 38 (comparison), eqs. (comparison-resampled) and (comparison-rows).
    """
    one_of("smaller", "nadeau-bengio", "rows", "none").check("correction", correction)
    datasets = sorted({str(row.get("dataset", "")) for row in rows})
    if len(datasets) > 1:
        raise ValueError(f"rows are of {datasets}: give the rows of one results file")
    tasks = [
        list(dict.fromkeys(r["task"] for r in rows if r["system"] == s)) for s in (first, second)
    ]
    if task == "average" and set(tasks[0]) != set(tasks[1]):
        raise ValueError(
            f"{first!r} has the tasks {sorted(tasks[0])} and {second!r} has {sorted(tasks[1])}: "
            "finish the run, or compare one task"
        )
    a, b = (_errors_by_split(rows, system, task) for system in (first, second))
    common = sorted(set(a) & set(b))
    asked = tasks[0] if task == "average" else [task]
    parts = [_disagreement(rows, first, second, t) for t in asked]
    ways = _corrections([spread for spread, _ in parts], [sizes for _, sizes in parts])
    names = ["nadeau-bengio", "rows"] if correction == "smaller" else [correction]
    found = [
        paired_difference([a[s] for s in common], [b[s] for s in common], **ways[name])
        for name in names
    ]
    return min(found, key=lambda d: (d.error == 0, d.high - d.low))


def _disagreement(
    rows: Rows, first: str, second: str, task: str
) -> tuple[float, tuple[float, float]]:
    """Variance of the difference of two losses at a test sample; mean sizes of the two parts."""
    by_pair = {(row["split"], row["system"]): row for row in rows if row["task"] == task}
    pairs = [
        (row, by_pair[split, second])
        for (split, system), row in by_pair.items()
        if system == first and (split, second) in by_pair
    ]
    told = [(a, b) for a, b in pairs if a.get("wrong") and b.get("wrong")]
    differ = [float(np.mean(wrong_answers(a) != wrong_answers(b))) for a, b in told]
    if not told:  # at most the sum of the errors
        differ = [float(a["error"]) + float(b["error"]) for a, b in pairs]
    gap = np.mean([float(a["error"]) - float(b["error"]) for a, b in pairs])
    n_train, n_test = np.mean([(int(a["n_train"]), int(a["n_test"])) for a, _ in pairs], axis=0)
    return float(np.mean(differ) - gap**2), (float(n_train), float(n_test))


# book/comparison.ipynb#the-paper-s-tables
def _number(text: str) -> float:
    """A printed number, or run time such as "0.5min" or "12s" in seconds; NaN for a gap."""
    unit = 60 if text.endswith("min") else 1
    digits = text.removesuffix("min").removesuffix("s")
    return np.nan if digits in ("", "N/A") else unit * float(digits)


def read_paper(path: str | Path) -> list[dict[str, Any]]:
    """The paper's tables II and III: one dictionary for each printed error.

    Parameters
    ----------
    path : path-like
        The file ``results/paper.csv`` of the repository.

    Returns
    -------
    list of dict
        With "dataset", "table", "column" (the paper's name of a system), "system" (ours),
        "task", "error" and "spread" (in per cent, NaN where the paper has N/A), "bold", "unit"
        (of the last digit of the error) and "seconds" (of an average, NaN if not printed).
    """
    rows: list[dict[str, Any]] = list(read_rows(path))
    if not rows:
        raise FileNotFoundError(f"{path} does not exist or is empty: it is results/paper.csv")
    for row in rows:
        row["unit"] = 10.0 ** -len(row["error"].partition(".")[2])
        row["bold"] = row["bold"] == "1"
        row["seconds"] = _number(row.pop("runtime"))
        row |= {name: _number(row[name]) for name in ("error", "spread")}
    return rows


# book/comparison.ipynb#a-table
@dataclass(frozen=True)
class Cell:
    """One system on one task."""

    mean: float
    error: float  # standard error over splits
    mark: str  # "best", "tied" (within noise of the best) or ""
    printed: float | None  # the paper's number


@dataclass(frozen=True)
class Line:
    """One system on all tasks."""

    system: str
    cells: dict[str, Cell]
    n_splits: int
    n_neighbors: tuple[int, ...]  # the numbers that were chosen
    seconds: float  # mean training time of all tasks
    printed_seconds: float  # the paper's, 0 if it prints none
    state_bytes: float  # mean over splits


# book/comparison.ipynb#a-table
def _cells(
    rows: Rows, systems: Sequence[str], task: str, printed: dict[Any, Any]
) -> dict[str, Cell]:
    """System to its cell in the column of one task; printed has the paper's by (system, task)."""
    means = {name: mean_and_error(split_errors(rows, name, task)) for name in systems}
    splits = {name: {r["split"] for r in rows if r["system"] == name} for name in systems}
    best = min(systems, key=lambda name: means[name][0])
    cells = {}
    for name in systems:
        mark = ""
        if means[name][0] <= means[best][0]:
            mark = "best"
        elif len(splits[name] & splits[best]) > 1:
            mark = "tied" if compare_systems(rows, name, best, task).within_noise else ""
        mean, error = means[name]
        theirs = printed.get((name, task), {}).get("error")
        cells[name] = Cell(mean=mean, error=error, mark=mark, printed=theirs)
    return cells


def results_table(
    rows: Rows,
    systems: Sequence[str] | None = None,
    tasks: Sequence[str] | None = None,
    *,
    paper: Rows = (),
    decimals: int = 1,
) -> "ResultsTable":
    """Systems side by side: errors with standard errors, best and tied, time and state.

    Parameters
    ----------
    rows : list of dict
        Rows of one results file.
    systems, tasks : sequence of str or None, default=None
        Lines and columns; None is all in the order of the file, and "average" last.
    paper : list of dict, default=()
        As `read_paper` gives them: numbers to show beside ours.
    decimals : int, default=1
        Digits after the point.

    Returns
    -------
    ResultsTable
    """
    systems = list(systems or dict.fromkeys(row["system"] for row in rows))
    tasks = list(tasks or [*dict.fromkeys(row["task"] for row in rows), "average"])
    dataset = rows[0]["dataset"] if rows else None
    printed = {(r["system"], r["task"]): r for r in paper if r["dataset"] == dataset}
    printed = {key: r for key, r in printed.items() if r["error"] == r["error"]}  # no N/A
    columns = {task: _cells(rows, systems, task, printed) for task in tasks}
    lines = []
    for name in systems:
        own = [row for row in rows if row["system"] == name]
        theirs = printed.get((name, "average"), {}).get("seconds", 0)
        line = Line(
            system=name,
            cells={task: columns[task][name] for task in tasks},
            n_splits=len({row["split"] for row in own}),
            n_neighbors=tuple(sorted({int(row["n_neighbors"]) for row in own})),
            seconds=float(np.mean([float(row["seconds"]) for row in own])),
            printed_seconds=float(np.nan_to_num(theirs)),
            state_bytes=float(np.mean([float(row["state_bytes"]) for row in own])),
        )
        lines.append(line)
    return ResultsTable(tuple(tasks), tuple(lines), decimals)


# book/comparison.ipynb#a-table
def _bytes(number: float) -> str:
    """Bytes in kB or MB."""
    return f"{number / 1e6:.1f} MB" if number >= 1e5 else f"{number / 1e3:.0f} kB"


def _time(seconds: float) -> str:
    """A time with two figures or so."""
    return f"{seconds:.{0 if seconds >= 10 else 1 if seconds >= 1 else 2}f} s"


def _aligned(lines: Sequence[Sequence[str]]) -> str:
    """Lines of cells as text, the first column left, the others right."""
    widths = [max(map(len, column)) for column in zip(*lines)]
    texts = [[line[0].ljust(widths[0]), *map(str.rjust, line[1:], widths[1:])] for line in lines]
    return "\n".join("  ".join(cells).rstrip() for cells in texts)


def _html(css: str, head: Sequence[str], *body: Sequence[str]) -> str:
    """An HTML table; the texts of the body are HTML but for the first of each line."""
    columns = "".join(f'<th scope="col">{html.escape(name)}</th>' for name in head)
    lines = [f'<table class="{css}">', f"<thead><tr>{columns}</tr></thead>", "<tbody>"]
    for name, *cells in body:
        marked = "".join(f"<td>{cell}</td>" for cell in cells)
        lines.append(f'<tr><th scope="row">{html.escape(name)}</th>{marked}</tr>')
    return "\n".join([*lines, "</tbody>", "</table>"])


# book/comparison.ipynb#a-table
_TEXT = {"best": "{} ± {}*", "tied": "{} ± {}~", "": "{} ± {} "}
_MARKED = {
    "best": "<strong>{}</strong> ± {}",
    "tied": '{} ± {} <span title="within noise of the best">≈</span>',
    "": "{} ± {}",
}


@dataclass(frozen=True, repr=False)
class ResultsTable:
    """Systems (lines) on tasks (columns), as `results_table` makes it."""

    tasks: tuple[str, ...]
    lines: tuple[Line, ...]
    decimals: int = 1

    def _grid(self, styles: dict[str, str], small: str) -> list[list[str]]:
        """Head and lines as texts: by their mark, and how the paper's numbers are added."""

        def fixed(number: float) -> str:
            return f"{number:.{self.decimals}f}"

        grid = [["system", *self.tasks, "k", "time", "state"]]
        for line in self.lines:
            texts = [line.system]
            for cell in (line.cells[task] for task in self.tasks):
                printed = "" if cell.printed is None else small.format(fixed(cell.printed))
                texts.append(
                    styles[cell.mark].format(fixed(cell.mean), fixed(cell.error)) + printed
                )
            k = ", ".join("–" if k == 0 else str(k) for k in line.n_neighbors)
            printed = small.format(_time(line.printed_seconds)) if line.printed_seconds > 0 else ""
            grid.append([*texts, k, _time(line.seconds) + printed, _bytes(line.state_bytes)])
        return grid

    def __repr__(self) -> str:
        head, *body = self._grid(_TEXT, "")
        return _aligned([["", *head[1:]], *body])

    def legend(self) -> str:
        """What the numbers and the marks are."""
        counts = sorted({line.n_splits for line in self.lines})
        splits = " to ".join(map(str, dict.fromkeys([counts[0], counts[-1]])))
        said = f"Error in %, mean ± standard error over {splits} splits. Bold: the smallest mean"
        said += " of the column; ≈: not told apart from it (within noise)."
        cells = [cell for line in self.lines for cell in line.cells.values()]
        printed = any(cell.printed is not None for cell in cells)
        return said + " Second line of a cell: as printed in the paper." * printed

    def _repr_html_(self) -> str:
        table = _html("lml-results", *self._grid(_MARKED, "<small>{}</small>"))
        return f'{table}\n<p class="lml-legend">{self.legend()}</p>'


# book/comparison.ipynb#a-table
def describe_run(rows: Rows) -> str:
    """Data set, splits and versions of the rows of a results file, in one line of text."""
    if not rows:
        raise ValueError("there are no rows: run `python -m lml.studies run DATASET` first")
    splits = sorted({int(row["split"]) for row in rows})
    span = f"{splits[0]} to {splits[-1]}" if len(splits) > 1 else f"{splits[0]}"
    names = ", ".join(dict.fromkeys(row["dataset"] for row in rows))
    versions = "; ".join(dict.fromkeys(row["versions"] for row in rows))
    n_systems = len({row["system"] for row in rows})
    return f"{names}: {n_systems} systems, {len(splits)} splits (seeds {span}); {versions}"


# book/comparison.ipynb#a-figure
def _axes(ax: Any, n_lines: int) -> Any:
    """The axes that are given, or those of a new figure with a place for each line."""
    if ax is not None:
        return ax
    import matplotlib.pyplot as plt

    return plt.subplots(figsize=(6, 0.8 + 0.32 * n_lines), layout="constrained")[1]


def comparison_figure(table: ResultsTable, task: str = "average", ax: Any = None) -> Any:
    """A dot for each system of a table, with its standard error and the paper's number.

    Parameters
    ----------
    table : ResultsTable
    task : str, default="average"
        The column that is drawn.
    ax : matplotlib Axes or None, default=None
        Where to draw; None makes a new figure. Needs matplotlib.

    Returns
    -------
    matplotlib Axes
    """
    ax = _axes(ax, len(table.lines))
    cells = [line.cells[task] for line in table.lines]
    places = np.arange(len(table.lines))
    theirs = [(c.printed, y) for y, c in enumerate(cells) if c.printed is not None]
    means, errors = np.array([[c.mean, c.error] for c in cells]).T
    ax.errorbar(means, places, xerr=errors, fmt="ko", capsize=3, label="this book")
    if theirs:
        ax.plot(*zip(*theirs), "D", mfc="white", mec="0.2", label="paper, as printed", zorder=1)
        ax.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=2)
    ax.set_yticks(places, [line.system for line in table.lines])
    ax.set(ylim=(len(cells) - 0.5, -0.5), xlabel=f"error in %, {task}", axisbelow=True)
    ax.grid(color="0.9")
    return ax


# book/comparison.ipynb#a-figure
def difference_figure(
    rows: Rows, systems: Sequence[str], reference: str, task: str = "average", ax: Any = None
) -> dict[str, Difference]:
    """Paired differences of systems to one of them, with corrected intervals.

    Parameters
    ----------
    rows : list of dict
        Rows of a results file.
    systems : sequence of str
        Drawn in the order of their differences; the reference is left out.
    reference, task : str
        The system that is subtracted, and the task.
    ax : matplotlib Axes or None, default=None
        Where to draw; None makes a new figure. Needs matplotlib.

    Returns
    -------
    dict
        System to `Difference`, in the order of the drawing, the smallest error first.
    """
    gaps = {s: compare_systems(rows, s, reference, task) for s in systems if s != reference}
    gaps = dict(sorted(gaps.items(), key=lambda item: item[1].mean))
    ax = _axes(ax, len(gaps))
    for y, gap in enumerate(gaps.values()):
        face = "white" if gap.within_noise else "black"
        ax.plot([gap.low, gap.high], [y, y], color="0.4", linewidth=1)
        ax.plot(gap.mean, y, "o", mfc=face, mec="black")
    ax.axvline(0, color="0.6", linewidth=1, zorder=0)
    ax.set_yticks(range(len(gaps)), list(gaps))
    ax.set(ylim=(len(gaps) - 0.5, -0.5), xlabel=f"error minus that of {reference}, in points")
    ax.grid(axis="y", color="0.9")
    return gaps


# book/comparison.ipynb#a-figure
def cost_figure(table: ResultsTable, axes: Sequence[Any]) -> None:
    """Training time and stored state of the systems of a table, on two axes side by side.

    Parameters
    ----------
    table : ResultsTable
    axes : sequence of two matplotlib Axes
        Those of ``plt.subplots(1, 2, sharey=True)``.
    """
    names = [line.system for line in table.lines]
    ours = [line.seconds for line in table.lines], [line.state_bytes / 1e6 for line in table.lines]
    for ax, values, unit in zip(axes, ours, ("training time in s", "state in MB")):
        known = [(value, float(y)) for y, value in enumerate(values) if value > 0]
        ax.plot(*zip(*known or [(1.0, np.nan)]), "ko", label="this book")
        ax.set(xscale="log", xlabel=unit, axisbelow=True)
        ax.tick_params(axis="x", which="minor", labelbottom=False)
        ax.grid(color="0.9")
    theirs = [line.printed_seconds for line in table.lines]
    if points := [(seconds, y) for y, seconds in enumerate(theirs) if seconds > 0]:
        axes[0].plot(*zip(*points), "D", mfc="white", mec="0.2", label="paper", zorder=1)
        axes[0].legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncols=2, frameon=False)
    axes[0].set_yticks(range(len(names)), names)
    axes[0].set_ylim(len(names) - 0.5, -0.5)


# book/comparison.ipynb#what-the-paper-says-asked-again
def confront(
    rows: Rows, paper: Rows, pairs: Sequence[tuple[str, str]], task: str = "average"
) -> "TextTable":
    """Differences that the paper prints beside ours.

    Parameters
    ----------
    rows : list of dict
        Rows of a results file.
    paper : list of dict
        As `read_paper` gives them.
    pairs : sequence of (str, str)
        The difference is the error of the first system minus that of the second.
    task : str, default="average"

    Returns
    -------
    TextTable
        One line for each pair. The verdict is "within noise" if our interval contains zero,
        else "same direction" or "other direction" than printed, "new" if nothing is printed.
    """
    dataset = rows[0]["dataset"]
    printed = {r["system"]: r for r in paper if (r["dataset"], r["task"]) == (dataset, task)}
    body = []
    for first, second in pairs:
        ours = compare_systems(rows, first, second, task)
        theirs = np.nan
        if first in printed and second in printed:
            theirs = round(printed[first]["error"] - printed[second]["error"], 2)
        if ours.within_noise:
            verdict = "within noise"
        elif np.isnan(theirs):
            verdict = "new"
        else:
            verdict = "same direction" if ours.mean * theirs > 0 else "other direction"
        shown = "" if np.isnan(theirs) else f"{theirs:+.2f}"
        interval = f"[{ours.low:+.2f},\u00a0{ours.high:+.2f}]"
        body.append((f"{first} − {second}", shown, f"{ours.mean:+.2f}", interval, verdict))
    return TextTable(("difference", "paper", "ours", "interval", "verdict"), tuple(body))


@dataclass(frozen=True, repr=False)
class TextTable:
    """A small table of texts, shown as the table of results is."""

    head: tuple[str, ...]
    body: tuple[tuple[str, ...], ...]

    def __repr__(self) -> str:
        return _aligned([self.head, *self.body])

    def _repr_html_(self) -> str:
        body = [[name, *map(html.escape, cells)] for name, *cells in self.body]
        return _html("lml-results lml-text", self.head, *body)
