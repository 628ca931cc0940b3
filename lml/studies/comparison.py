# Generated from book/comparison.ipynb by tools/tangle.py: edit the chapter.
"""How results are read, compared over splits, and shown beside the paper's tables.

`read_rows` and `read_paper` read results; `compare_systems` gives the paired difference of
two systems with an interval that knows that splits of the same rows are not independent;
`results_table` and `comparison_figure` show systems side by side.
"""

import csv
import html
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from lml.utils.typing import Floats

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
    "read_rows",
    "results_table",
    "split_errors",
]

# book/comparison.ipynb#reading-and-comparing-results
_Rows: TypeAlias = Sequence[Mapping[str, Any]]


# book/comparison.ipynb#a-file-of-results
def read_rows(path: str | Path) -> list[dict[str, str]]:
    """Rows of a results file, as a list of dictionaries of strings; empty without the file."""
    path = Path(path)
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8-sig") as file:
        return list(csv.DictReader(file))


# book/comparison.ipynb#a-mean-and-its-error
def _errors_by_split(rows: _Rows, system: str, task: str = "average") -> dict[int, float]:
    """Split to error in per cent, in the order of the splits."""
    found: dict[int, list[float]] = {}
    for row in rows:
        if row["system"] == system and task in (row["task"], "average"):
            found.setdefault(int(row["split"]), []).append(100 * float(row["error"]))
    if not found:
        known = sorted({str(row["system"]) for row in rows})
        raise ValueError(f"no row has system {system!r} and task {task!r}: the systems are {known}")
    if len({len(errors) for errors in found.values()}) > 1:
        counts = {split: len(errors) for split, errors in found.items()}
        raise ValueError(
            f"{system!r} has not the same number of tasks in every split ({counts}): finish the"
            " run or leave the incomplete splits out"
        )
    return {split: float(np.mean(found[split])) for split in sorted(found)}


# book/comparison.ipynb#a-mean-and-its-error
def split_errors(rows: _Rows, system: str, task: str = "average") -> Floats:
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
    Derived in chapter 36 (comparison), eq. (comparison-mean).
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
    """A paired difference over splits, in points, with its interval."""

    mean: float
    error: float  # standard error
    low: float
    high: float
    p_value: float  # two-sided
    n_splits: int

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
    first: ArrayLike,
    second: ArrayLike,
    *,
    shared: float = 0.0,
    fixed: float = 0.0,
    level: float = 0.95,
) -> Difference:
    """Mean difference of two systems over the same splits, with a t interval.

    Parameters
    ----------
    first, second : array-like of shape (n_splits,)
        Errors on the same splits, in the same order.
    shared : float, default=0.0
        What the dependence of the splits adds to 1 / n_splits.
    fixed : float, default=0.0
        A variance that is added, in the squared units of the errors.
    level : float in (0, 1), default=0.95
        Probability that the interval is to cover the true difference.

    Returns
    -------
    Difference

    Notes
    -----
    Derived in chapter 36 (comparison), eqs. (comparison-interval) and (comparison-general).

    Examples
    --------
    >>> print(paired_difference([3.0, 4.0, 5.0], [2.0, 2.0, 2.0]))
    +2.00 ± 0.58 [-0.48, +4.48]
    """
    gaps = _gaps(first, second)
    if not 0 < level < 1 or shared < 0 or fixed < 0:
        raise ValueError(
            f"level must lie between 0 and 1, shared and fixed must not be negative, got {level},"
            f" {shared} and {fixed}"
        )
    mean = float(gaps.mean())
    n_splits = len(gaps)
    same = np.ptp(gaps) < _ROUNDING
    varying = 0.0 if same else float(gaps.var(ddof=1)) * (1 / n_splits + shared)
    error = np.sqrt(varying + fixed)
    if error == 0:  # the same difference on every split
        return Difference(mean, 0.0, mean, mean, float(mean == 0), n_splits)
    df = (n_splits - 1) * ((varying + fixed) / varying) ** 2 if varying > 0 else np.inf
    half = float(stats.t.ppf((1 + level) / 2, df) * error)
    p_value = float(2 * stats.t.sf(abs(mean) / error, df))
    return Difference(mean, float(error), mean - half, mean + half, p_value, n_splits)


# book/comparison.ipynb#an-interval
def _gaps(first: ArrayLike, second: ArrayLike) -> Floats:
    """Differences over the splits."""
    first = np.asarray(first, dtype=float)
    second = np.asarray(second, dtype=float)
    if first.ndim != 1 or first.shape != second.shape or len(first) < 2:
        raise ValueError(
            f"first and second have shapes {first.shape} and {second.shape}: give the errors of"
            " both systems on the same splits, two splits at least"
        )
    if not (np.isfinite(first).all() and np.isfinite(second).all()):
        raise ValueError("first and second must be finite: leave out splits without a result")
    return first - second


# book/comparison.ipynb#correction-2-a-term-for-each-cause
def _shared_rows(errors: Any, sizes: Any) -> dict[str, dict[str, float]]:
    """Arguments of `paired_difference` for each correction.

    errors are the mean errors of both systems for each task, in per cent, of shape
    (n_tasks, 2); sizes are the numbers of training and of test rows, (n_tasks, 2).
    """
    p = np.asarray(errors) / 100
    sizes = np.asarray(sizes, dtype=float)
    n_train, n_test = sizes.sum(axis=0)
    differing = p.sum(axis=1) - (p[:, 0] - p[:, 1]) ** 2
    fixed = 100**2 * np.mean(differing / sizes.sum(axis=1)) / len(p)
    return {
        "none": {},
        "nadeau-bengio": {"shared": n_test / n_train},
        "rows": {"shared": n_train / n_test, "fixed": float(fixed)},
    }


# book/comparison.ipynb#correction-2-a-term-for-each-cause
def _errors_and_sizes(
    rows: _Rows, first: str, second: str, task: str
) -> tuple[list[Any], list[Any]]:
    """Mean errors of two systems, and numbers of training and of test rows, for each task."""
    found: dict[str, list[tuple[int, int]]] = {}
    for row in rows:
        if row["system"] == first and task in (row["task"], "average"):
            found.setdefault(row["task"], []).append((int(row["n_train"]), int(row["n_test"])))
    sizes = [np.mean(found[name], axis=0) for name in found]
    errors = [[split_errors(rows, s, t).mean() for s in (first, second)] for t in found]
    return errors, sizes


# book/comparison.ipynb#correction-2-a-term-for-each-cause
def _check_tasks(rows: _Rows, first: str, second: str, task: str) -> None:
    """Rows of one data set, and the same tasks of both systems where tasks are averaged."""
    datasets = sorted({str(row.get("dataset", "")) for row in rows})
    if len(datasets) > 1:
        raise ValueError(f"rows are of {datasets}: give the rows of one results file")
    own = [{row["task"] for row in rows if row["system"] == name} for name in (first, second)]
    if task == "average" and own[0] != own[1]:
        raise ValueError(
            f"{first!r} has the tasks {sorted(own[0])} and {second!r} has {sorted(own[1])}: "
            "finish the run, or compare one task"
        )


# book/comparison.ipynb#correction-2-a-term-for-each-cause
def compare_systems(
    rows: _Rows,
    first: str,
    second: str,
    task: str = "average",
    *,
    correction: str = "smaller",
    level: float = 0.95,
) -> Difference:
    """Paired difference of two systems of a results file, error of the first minus the second.

    Parameters
    ----------
    rows : list of dict
        Rows of a results file; splits that both systems have are used.
    first, second, task : str
        Names; the task "average" is the mean over all tasks.
    correction : {"smaller", "nadeau-bengio", "rows", "none"}, default="smaller"
        How the interval allows for splits that share rows: by the corrected resampled t-test,
        by a term for each cause, by the narrower of the two, or not at all.
    level : float in (0, 1), default=0.95
        Level of the interval.

    Returns
    -------
    Difference
        In points (per cent).

    Notes
    -----
    Derived in chapter 36 (comparison), eqs. (comparison-resampled) and (comparison-rows).
    """
    _check_tasks(rows, first, second, task)
    a, b = (_errors_by_split(rows, name, task) for name in (first, second))
    common = sorted(set(a) & set(b))
    paired = [a[s] for s in common], [b[s] for s in common]
    ways = _shared_rows(*_errors_and_sizes(rows, first, second, task))
    if correction not in ("smaller", *ways):
        raise ValueError(f"correction must be 'smaller' or one of {list(ways)}, got {correction!r}")
    names = ["nadeau-bengio", "rows"] if correction == "smaller" else [correction]
    found = [paired_difference(*paired, **ways[name], level=level) for name in names]
    return min(found, key=lambda d: (d.error == 0, d.high - d.low))


# book/comparison.ipynb#the-papers-tables
def _number(text: str) -> float:
    """A printed number; NaN for a gap."""
    return np.nan if text in ("", "N/A") else float(text)


def _seconds(text: str) -> float:
    """A printed run time such as "0.5min" or "12s" in seconds; NaN for a gap."""
    if text.endswith("min"):
        return 60 * float(text.removesuffix("min"))
    return _number(text.removesuffix("s"))


# book/comparison.ipynb#the-papers-tables
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
    rows: list[dict[str, Any]] = read_rows(path)
    if not rows:
        raise FileNotFoundError(f"{path} does not exist or is empty: it is results/paper.csv")
    for row in rows:
        row["unit"] = 10.0 ** -len(row["error"].partition(".")[2])
        row["bold"] = row["bold"] == "1"
        row["seconds"] = _seconds(row.pop("runtime"))
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
def _tied(rows: _Rows, name: str, best: str, task: str, correction: str) -> bool:
    """Whether a system cannot be told from the best on the splits that both have."""
    common = {r["split"] for r in rows if r["system"] == name}
    common &= {r["split"] for r in rows if r["system"] == best}
    if len(common) < 2:
        return False
    return compare_systems(rows, name, best, task, correction=correction).within_noise


# book/comparison.ipynb#a-table
def _cells(
    rows: _Rows,
    systems: Sequence[str],
    task: str,
    printed: Mapping[tuple[str, str], Any],
    correction: str,
) -> dict[str, Cell]:
    """System to its cell in the column of one task."""
    means = {name: mean_and_error(split_errors(rows, name, task)) for name in systems}
    best = min(systems, key=lambda name: means[name][0])
    cells = {}
    for name in systems:
        mark = "best"
        if means[name][0] > means[best][0]:
            mark = "tied" if _tied(rows, name, best, task, correction) else ""
        cells[name] = Cell(*means[name], mark, printed.get((name, task), {}).get("error"))
    return cells


# book/comparison.ipynb#a-table
def _line(rows: _Rows, system: str, cells: dict[str, Cell], printed_seconds: float) -> Line:
    """The line of one system."""
    own = [row for row in rows if row["system"] == system]
    seconds, kept = (np.mean([float(r[c]) for r in own]) for c in ("seconds", "state_bytes"))
    k = tuple(sorted({int(row["n_neighbors"]) for row in own}))
    n_splits = len({row["split"] for row in own})
    return Line(system, cells, n_splits, k, float(seconds), printed_seconds, float(kept))


# book/comparison.ipynb#a-table
def results_table(
    rows: _Rows,
    systems: Sequence[str] | None = None,
    tasks: Sequence[str] | None = None,
    *,
    paper: _Rows = (),
    correction: str = "smaller",
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
    correction : str, default="smaller"
        As in `compare_systems`.
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
    columns = {task: _cells(rows, systems, task, printed, correction) for task in tasks}
    lines = []
    for name in systems:
        cells = {task: columns[task][name] for task in tasks}
        theirs = np.nan_to_num(printed.get((name, "average"), {}).get("seconds", 0))
        lines.append(_line(rows, name, cells, float(theirs)))
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


# book/comparison.ipynb#a-table
@dataclass(frozen=True, repr=False)
class ResultsTable:
    """Systems (lines) on tasks (columns), as `results_table` makes it."""

    tasks: tuple[str, ...]
    lines: tuple[Line, ...]
    decimals: int = 1

    def _body(self, style: Callable[[Cell], str]) -> list[list[str]]:
        """The cells of all lines as text: name, errors in the given style, k, time, state."""
        body = []
        for line in self.lines:
            k = ", ".join("–" if k == 0 else str(k) for k in line.n_neighbors)
            errors = [style(line.cells[task]) for task in self.tasks]
            body.append([line.system, *errors, k, _time(line.seconds), _bytes(line.state_bytes)])
        return body

    def _fixed(self, number: float) -> str:
        return f"{number:.{self.decimals}f}"

    def __repr__(self) -> str:
        def plain(cell: Cell) -> str:
            mark = {"best": "*", "tied": "~"}.get(cell.mark, " ")
            return f"{self._fixed(cell.mean)} ± {self._fixed(cell.error)}{mark}"

        return _aligned([["", *self.tasks, "k", "time", "state"], *self._body(plain)])

    def to_markdown(self) -> str:
        """The table in Markdown, the paper's numbers in brackets."""

        def marked(cell: Cell) -> str:
            star = "**" * (cell.mark == "best")
            sign = " ≈" * (cell.mark == "tied")
            theirs = "" if cell.printed is None else f" ({self._fixed(cell.printed)})"
            mean = self._fixed(cell.mean)
            error = self._fixed(cell.error)
            return f"{star}{mean}{star} ± {error}{sign}{theirs}"

        head = ["system", *self.tasks, "k", "time", "state"]
        rule = ["---", *["--:"] * (len(head) - 1)]
        lines = [head, rule, *self._body(marked)]
        return "\n".join("| " + " | ".join(line) + " |" for line in lines)

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
        def marked(cell: Cell) -> str:
            bold = ("<strong>", "</strong>") if cell.mark == "best" else ("", "")
            sign = ' <span title="within noise of the best">≈</span>' * (cell.mark == "tied")
            theirs = "" if cell.printed is None else f"<small>{self._fixed(cell.printed)}</small>"
            return f"{self._fixed(cell.mean).join(bold)} ± {self._fixed(cell.error)}{sign}{theirs}"

        rows = []
        for line, (name, *cells) in zip(self.lines, self._body(marked)):
            cells[-2] += f"<small>{_time(line.printed_seconds)}</small>" * (
                line.printed_seconds > 0
            )
            body = "".join(f"<td>{cell}</td>" for cell in cells)
            rows.append(f'<tr><th scope="row">{html.escape(name)}</th>{body}</tr>')
        return _HTML.format(head=self._html_head(), body="\n".join(rows), legend=self.legend())

    def _html_head(self) -> str:
        names = ["system", *map(html.escape, self.tasks), "k", "time", "state"]
        return "".join(f'<th scope="col">{name}</th>' for name in names)


# book/comparison.ipynb#a-table
_HTML = """<table class="lml-results">
<thead><tr>{head}</tr></thead>
<tbody>
{body}
</tbody>
</table>
<p class="lml-legend">{legend}</p>"""


# book/comparison.ipynb#a-table
def describe_run(rows: _Rows) -> str:
    """Data set, splits and versions of the rows of a results file, in one line of text."""
    if not rows:
        raise ValueError(
            "there are no rows: run `python -m lml.studies.experiments run DATASET` first"
        )
    splits = sorted({int(row["split"]) for row in rows})
    span = f"{splits[0]} to {splits[-1]}" if len(splits) > 1 else f"{splits[0]}"
    names = ", ".join(dict.fromkeys(row["dataset"] for row in rows))
    versions = "; ".join(dict.fromkeys(row["versions"] for row in rows))
    n_systems = len({row["system"] for row in rows})
    return f"{names}: {n_systems} systems, {len(splits)} splits (seeds {span}); {versions}"


# book/comparison.ipynb#a-figure
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
    if ax is None:
        import matplotlib.pyplot as plt

        _, ax = plt.subplots(figsize=(6, 0.8 + 0.32 * len(table.lines)), layout="constrained")
    cells = [line.cells[task] for line in table.lines]
    places = np.arange(len(table.lines))
    theirs = [(c.printed, y) for y, c in enumerate(cells) if c.printed is not None]
    means, errors = np.array([[c.mean, c.error] for c in cells]).T
    ax.errorbar(means, places, xerr=errors, fmt="ko", capsize=3, label="this book")
    if theirs:
        ax.plot(*zip(*theirs), "D", mfc="white", mec="0.2", label="paper, as printed", zorder=1)
        ax.legend(loc="best", fontsize=9)
    ax.set_yticks(places, [line.system for line in table.lines])
    ax.set(ylim=(len(cells) - 0.5, -0.5), xlabel=f"error in %, {task}", axisbelow=True)
    ax.grid(color="0.9")
    return ax


# book/comparison.ipynb#a-figure
def difference_figure(
    rows: _Rows, systems: Sequence[str], reference: str, task: str = "average", ax: Any = None
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
    if ax is None:
        import matplotlib.pyplot as plt

        _, ax = plt.subplots(figsize=(6, 0.8 + 0.32 * len(gaps)), layout="constrained")
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
    rows: _Rows, paper: _Rows, pairs: Sequence[tuple[str, str]], task: str = "average"
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
    body = []
    printed = {r["system"]: r for r in paper if (r["dataset"], r["task"]) == (dataset, task)}
    for first, second in pairs:
        ours = compare_systems(rows, first, second, task)
        theirs = np.nan
        if first in printed and second in printed:
            theirs = round(printed[first]["error"] - printed[second]["error"], 2)
        shown = "" if np.isnan(theirs) else f"{theirs:+.2f}"
        interval = f"[{ours.low:+.2f},\u00a0{ours.high:+.2f}]"
        verdict = _verdict(ours, theirs)
        body.append((f"{first} − {second}", shown, f"{ours.mean:+.2f}", interval, verdict))
    return TextTable(("difference", "paper", "ours", "interval", "verdict"), tuple(body))


# book/comparison.ipynb#what-the-paper-says-asked-again
def _verdict(ours: Difference, theirs: float) -> str:
    """What our interval says about a printed difference."""
    if ours.within_noise:
        return "within noise"
    if np.isnan(theirs):
        return "new"
    return "same direction" if ours.mean * theirs > 0 else "other direction"


@dataclass(frozen=True, repr=False)
class TextTable:
    """A small table of texts, shown as the table of results is."""

    head: tuple[str, ...]
    body: tuple[tuple[str, ...], ...]

    def __repr__(self) -> str:
        return _aligned([self.head, *self.body])

    def to_markdown(self) -> str:
        """The table in Markdown."""
        lines = [self.head, ["---"] * len(self.head), *self.body]
        return "\n".join("| " + " | ".join(line) + " |" for line in lines)

    def _repr_html_(self) -> str:
        top = "".join(f'<th scope="col">{html.escape(name)}</th>' for name in self.head)
        lines = []
        for name, *cells in self.body:
            body = "".join(f"<td>{html.escape(cell)}</td>" for cell in cells)
            lines.append(f'<tr><th scope="row">{html.escape(name)}</th>{body}</tr>')
        rows = "\n".join(lines)
        head = f"<thead><tr>{top}</tr></thead>\n<tbody>"
        return f'<table class="lml-results lml-text">\n{head}\n{rows}\n</tbody>\n</table>'
