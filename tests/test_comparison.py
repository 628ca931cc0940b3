"""Comparison of systems: against SciPy, by hand, by simulation, and on odd files."""

import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from lml.studies import comparison
from lml.studies.comparison import (
    TextTable,
    compare_systems,
    comparison_figure,
    confront,
    cost_figure,
    describe_run,
    difference_figure,
    mean_and_error,
    paired_difference,
    read_paper,
    results_table,
    split_errors,
)
from lml.studies.results import answers_text, read_rows, wrong_answers

RESULTS = Path(__file__).resolve().parent.parent / "results"
PAPER = RESULTS / "paper.csv"


def make_rows(errors, systems=("a", "b"), tasks=("x", "y"), n_train=30, n_test=70, **more):
    """Rows of a results file from errors in per cent, (n_splits, n_systems, n_tasks)."""
    common = {"dataset": "isolet", "n_neighbors": "3", "seconds": "1.5", "versions": "v 1"}
    sizes = {"n_train": str(n_train), "n_test": str(n_test), "state_bytes": "250000"}
    return [
        common | sizes | {"split": str(s), "system": a, "task": t, "error": str(value / 100)} | more
        for s, split in enumerate(errors)
        for a, system in zip(systems, split, strict=True)
        for t, value in zip(tasks, system, strict=True)
    ]


@pytest.fixture
def rows():
    rng = np.random.default_rng(0)
    hard = rng.normal(0, 2, (7, 1, 1))  # a split is hard for everybody
    return make_rows(20 + hard + rng.normal([[0, 0], [3, 4]], 0.5, (7, 2, 2)))


def test_split_errors_keeps_the_order_of_the_splits_not_of_the_file(rows):
    shuffled = [rows[i] for i in np.random.default_rng(1).permutation(len(rows))]
    for task in ("x", "y", "average"):
        np.testing.assert_allclose(split_errors(shuffled, "b", task), split_errors(rows, "b", task))
    mean = (split_errors(rows, "a", "x") + split_errors(rows, "a", "y")) / 2
    np.testing.assert_allclose(split_errors(rows, "a"), mean)


def test_split_errors_says_what_is_missing(rows):
    with pytest.raises(ValueError, match=r"'c' and task 'x'.*\['a', 'b'\]"):
        split_errors(rows, "c", "x")
    with pytest.raises(ValueError, match="no row has system 'a' and task 'z'"):
        split_errors(rows, "a", "z")
    with pytest.raises(ValueError, match="same number of tasks"):
        split_errors(rows[1:], "a")
    assert len(split_errors(rows[1:], "a", "y")) == 7  # one task alone can still be read
    with pytest.raises(ValueError, match="split 0 has two rows of 'a' and task 'x': give those of"):
        split_errors([*rows, rows[0]], "a")


def test_mean_and_error_by_hand_and_by_scipy():
    values = [1.0, 2.0, 6.0]
    mean, error = mean_and_error(values)
    assert mean == pytest.approx(3.0)
    assert error == pytest.approx(np.sqrt((4 + 1 + 9) / 2 / 3)) == pytest.approx(stats.sem(values))
    assert type(mean) is type(error) is float
    assert np.isnan(mean_and_error([4.0])[1])
    for wrong in ([], [[1.0, 2.0]]):
        with pytest.raises(ValueError, match="one number for each split"):
            mean_and_error(wrong)


def test_plain_interval_is_scipys():
    rng = np.random.default_rng(2)
    a, b = rng.normal(20, 3, 6), rng.normal(21, 3, 6)
    ours, oracle = paired_difference(a, b), stats.ttest_rel(a, b)
    interval = oracle.confidence_interval(0.95)
    assert [ours.low, ours.high] == pytest.approx([interval.low, interval.high])
    assert ours.error == pytest.approx(stats.sem(a - b))
    assert ours.within_noise == (oracle.pvalue > 0.05)


def test_swapping_the_systems_swaps_the_interval(rows):
    for correction in ("none", "nadeau-bengio", "rows", "smaller"):
        ab = compare_systems(rows, "a", "b", correction=correction)
        ba = compare_systems(rows, "b", "a", correction=correction)
        assert [ab.mean, ab.low, ab.high] == pytest.approx([-ba.mean, -ba.high, -ba.low])


def test_only_a_known_variance_gives_a_normal_interval():
    d = paired_difference([1.0, 1.0, 1.0], [0.0, 0.0, 0.0], fixed=0.25)
    assert [d.low, d.high] == pytest.approx(stats.norm(1, 0.5).interval(0.95))
    assert not paired_difference([2.0, 2.0], [1.0, 1.0]).within_noise
    assert paired_difference([2.0, 2.0], [2.0, 2.0]).within_noise


@pytest.mark.parametrize(
    ("first", "second", "more", "said"),
    [
        ([1.0], [2.0], {}, "two splits at least"),
        ([1.0, 2.0], [1.0, 2.0, 3.0], {}, r"\(2,\) and \(3,\)"),
        ([[1.0, 2.0]], [[1.0, 2.0]], {}, "same splits"),
        ([1.0, np.nan], [1.0, 2.0], {}, "finite"),
        ([1.0, 2.0], [1.0, 3.0], {"shared": -1.0}, r"shared=-1\.0: give .* at least 0"),
        ([1.0, 2.0], [1.0, 3.0], {"fixed": np.nan}, "fixed=nan: give"),
    ],
)
def test_bad_arguments_are_named(first, second, more, said):
    with pytest.raises(ValueError, match=said):
        paired_difference(first, second, **more)


def test_corrected_resampled_t_test_by_hand(rows):
    gaps = split_errors(rows, "a") - split_errors(rows, "b")
    error = np.sqrt(gaps.var(ddof=1) * (1 / 7 + 70 / 30))
    d = compare_systems(rows, "a", "b", correction="nadeau-bengio")
    assert d.error == pytest.approx(error)
    assert d.high - d.mean == pytest.approx(stats.t.ppf(0.975, 6) * error)


def told(rows, share):
    """The rows with answers: both systems err on a share of the samples that one of them fails."""
    found = []
    for row in rows:
        n_wrong = round(float(row["error"]) * int(row["n_test"]))
        start = 0 if row["system"] == "a" else round((1 - share) * n_wrong)
        wrong = np.isin(np.arange(int(row["n_test"])), np.arange(start, start + n_wrong))
        exact = {"error": str(n_wrong / int(row["n_test"])), "wrong": answers_text(wrong)}
        found.append(row | exact)
    return found


@pytest.mark.parametrize("share", [None, 0.0, 0.8])
def test_the_term_for_each_cause_by_hand(rows, share):
    """By the errors where no answers are told, else by the samples that one system alone fails."""
    if share is not None:
        rows = told(rows, share)
    gaps = split_errors(rows, "a") - split_errors(rows, "b")
    fixed = 0.0
    for task in ("x", "y"):
        p, q = (split_errors(rows, s, task) / 100 for s in ("a", "b"))
        differ = p + q
        if share is not None:
            answers = {
                s: [wrong_answers(r) for r in rows if (r["system"], r["task"]) == (s, task)]
                for s in ("a", "b")
            }
            differ = [np.mean(a ^ b) for a, b in zip(*answers.values())]
        fixed += 1e4 * (np.mean(differ) - np.mean(p - q) ** 2) * 100 / 70**2 / 4
    spread, shared = gaps.std(ddof=1), 30 / 70
    variance = spread**2 / 7 + (spread * np.sqrt(shared) + np.sqrt(fixed)) ** 2
    d = compare_systems(rows, "a", "b", correction="rows")
    assert d.error == pytest.approx(np.sqrt(variance))

    def of_gaps(square):  # the variance as a function of the one that is estimated
        return square / 7 + (np.sqrt(square * shared) + np.sqrt(fixed)) ** 2

    slope = (of_gaps(spread**2 * 1.0001) - of_gaps(spread**2 * 0.9999)) / (0.0002 * spread**2)
    df = 6 * (variance / (spread**2 * slope)) ** 2  # the delta method
    assert d.high - d.mean == pytest.approx(d.error * stats.t.ppf(0.975, df), rel=1e-5)


def test_answers_told_never_widen_the_interval(rows):
    exact = told(rows, 0.8)
    bound = compare_systems([r | {"wrong": ""} for r in exact], "a", "b", correction="rows")
    counted = compare_systems(exact, "a", "b", correction="rows")
    assert counted.error < bound.error
    apart = compare_systems(told(rows, 0.0), "a", "b", correction="rows")  # no error in common
    assert apart.error == pytest.approx(
        compare_systems(
            [r | {"wrong": ""} for r in told(rows, 0.0)], "a", "b", correction="rows"
        ).error
    )


@pytest.mark.parametrize("name", ["usps", "isolet", "isolet-speakers"])
def test_stored_answers_give_the_stored_errors(name):
    rows = [row for row in read_rows(RESULTS / f"{name}.csv") if row.get("wrong")]
    assert rows
    for row in rows:
        assert float(row["error"]) == round(float(wrong_answers(row).mean()), 6)


def test_the_narrower_interval_is_taken(rows):
    both = [compare_systems(rows, "a", "b", correction=c) for c in ("nadeau-bengio", "rows")]
    taken = compare_systems(rows, "a", "b")
    assert taken == min(both, key=lambda d: d.high - d.low)
    with pytest.raises(ValueError, match="correction='bonferroni': give one of"):
        compare_systems(rows, "a", "b", correction="bonferroni")


def test_only_common_splits_are_compared(rows):
    fewer = [row for row in rows if row["system"] == "a" or row["split"] in "246"]
    d = compare_systems(fewer, "a", "b", "x", correction="none")
    gaps = (split_errors(rows, "a", "x") - split_errors(rows, "b", "x"))[[2, 4, 6]]
    assert (d.n_splits, d.mean) == (3, pytest.approx(gaps.mean()))


@pytest.mark.parametrize("share", [0.1, 0.5, 0.8])
def test_equal_learners_are_seldom_told_apart(share):
    """Nearest class means on two halves of the features, which are equally good."""
    rng, n, found = np.random.default_rng(3), 200, {"none": 0, "smaller": 0}
    n_train = round(share * n)
    for _ in range(250):
        y = np.tile([-1, 1], n // 2)
        X = rng.standard_normal((n, 8)) + 0.5 * y[:, None]
        errors = []
        for _ in range(5):
            order = rng.permutation(n)
            learn, test = order[:n_train], order[n_train:]
            scores = X[test] * (y[learn] @ X[learn]) * y[test, None]
            halves = scores[:, :4].sum(axis=1), scores[:, 4:].sum(axis=1)
            errors.append([[100 * np.mean(half < 0)] for half in halves])
        made = make_rows(errors, tasks=("x",), n_train=n_train, n_test=n - n_train)
        for correction in found:
            found[correction] += not compare_systems(
                made, "a", "b", correction=correction
            ).within_noise
    assert found["smaller"] / 250 < 0.09 < found["none"] / 250


def test_table_marks_the_best_and_what_is_within_noise_of_it():
    errors = 20 + np.array([[[0, 0], [0.1, 9], [8, 0]]]) + np.arange(5)[:, None, None] * 0.1
    rows = make_rows(errors, systems=("a", "b", "c"), n_train=1500, n_test=1500)
    table = results_table(rows)
    marks = [[line.cells[task].mark for task in ("x", "y", "average")] for line in table.lines]
    assert marks == [["best", "best", "best"], ["tied", "", ""], ["", "best", ""]]
    assert [line.system for line in results_table(rows, ["c", "a"]).lines] == ["c", "a"]
    assert results_table(rows, tasks=["y"]).tasks == ("y",)
    cell = table.lines[1].cells["y"]
    assert (cell.mean, cell.error) == pytest.approx(mean_and_error(split_errors(rows, "b", "y")))


class Cells(HTMLParser):
    """The cells of a table, and whether every tag is closed in order."""

    def __init__(self, text):
        super().__init__()
        self.open, self.rows = [], []
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag, attributes):
        self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "td" in self.open or "th" in self.open:
            self.rows[-1][-1] += ("|" if "small" in self.open else "") + data


@pytest.fixture
def printed_beside():
    systems = ("scml", "ella", "<b>")
    errors = 20 + np.array([[[0, 0], [0.1, 9], [8, 0]]]) + np.arange(5)[:, None, None] * 0.1
    rows = make_rows(errors, systems=systems, tasks=("isolet1", "isolet5"))
    return results_table(rows, paper=read_paper(PAPER))


def test_html_has_the_numbers_of_both(printed_beside):
    head, scml, ella, odd = Cells(printed_beside._repr_html_()).rows
    assert head == ["system", "isolet1", "isolet5", "average", "k", "time", "state"]
    assert scml == [
        *["scml", "20.2 ± 0.1|19.6", "20.2 ± 0.1|26.7", "20.2 ± 0.1|23.4"],
        *["3", "1.5 s|6.0 s", "0.2 MB"],
    ]
    assert ella[1] == "20.3 ± 0.1 ≈"  # the paper has N/A
    assert odd[0] == "<b>"
    assert "5 splits" in printed_beside.legend()


def test_text_has_the_same_numbers(printed_beside):
    text = repr(printed_beside).splitlines()
    assert text[1].split()[:4] == ["scml", "20.2", "±", "0.1*"]
    assert len(text) == 4


def test_classifiers_have_no_number_of_neighbors(rows):
    table = results_table([row | {"n_neighbors": "0", "state_bytes": "99999"} for row in rows])
    assert repr(table).splitlines()[1].split()[-5:] == ["–", "1.5", "s", "100", "kB"]


def test_systems_with_fewer_splits_are_said(rows):
    fewer = [row for row in rows if row["system"] == "a" or row["split"] in "246"]
    assert "3 to 7 splits" in results_table(fewer).legend()


def test_figure_draws_what_the_table_says(printed_beside):
    from matplotlib.figure import Figure

    ax = comparison_figure(printed_beside, "isolet5", Figure().subplots())
    np.testing.assert_allclose(ax.containers[0].lines[0].get_xdata(), [20.2, 29.2, 20.2])
    np.testing.assert_allclose(ax.lines[-1].get_xydata(), [[26.7, 0]])
    assert [t.get_text() for t in ax.get_yticklabels()] == ["scml", "ella", "<b>"]


def test_matplotlib_is_not_imported_with_the_module():
    code = "import sys, lml.studies.comparison; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_describe_run_names_splits_and_every_version(rows):
    rows[3] = rows[3] | {"versions": "v 2"}
    said = describe_run(rows)
    assert said == "isolet: 2 systems, 7 splits (seeds 0 to 6); v 1; v 2"
    with pytest.raises(ValueError, match=r"lml\.studies run DATASET"):
        describe_run([])


def test_the_paper_is_typed_in_whole():
    paper = read_paper(PAPER)
    counts = {}
    for row in paper:
        counts.setdefault((row["dataset"], row["table"]), set()).add((row["column"], row["task"]))
    assert {key: len(found) for key, found in counts.items()} == {
        ("sentiment", "II"): 11 * 5,
        ("isolet", "II"): 11 * 6,
        ("usps", "III"): 9 * 5,
    }
    gaps = [row for row in paper if np.isnan(row["error"])]
    assert {(row["dataset"], row["system"]) for row in gaps} == {
        ("isolet", "ella"),
        ("usps", "ella"),
    }
    by_name = {(r["dataset"], r["system"], r["task"]): r for r in paper}
    assert by_name["sentiment", "lmnn", "average"]["seconds"] == 660
    assert by_name["isolet", "pooled-scml", "average"]["seconds"] == 1
    assert np.isnan(by_name["usps", "scml", "average"]["seconds"])
    assert by_name["usps", "lifelong-scml", "0-1"]["unit"] == pytest.approx(0.01)
    assert len({(r["dataset"], r["task"]) for r in paper if r["bold"]}) == 5 + 6 + 5
    with pytest.raises(FileNotFoundError, match=r"paper\.csv"):
        read_paper(RESULTS / "none.csv")


def test_public_names():
    assert {"compare_systems", "results_table", "read_paper"} <= set(comparison.__all__)


def test_difference_figure_sorts_and_fills_what_is_told_apart():
    from matplotlib.figure import Figure

    errors = 20 + np.array([[[0, 0], [0.1, 0.2], [8, 9], [-9, -9]]])
    errors = errors + np.arange(5)[:, None, None] * np.array([[[0.1], [0.2], [0.1], [0.1]]])
    rows = make_rows(errors, systems=("a", "b", "c", "d"), n_train=900, n_test=900)
    ax = Figure().subplots()
    gaps = difference_figure(rows, ["a", "b", "c", "d"], "a", ax=ax)
    assert list(gaps) == ["d", "b", "c"]
    assert [t.get_text() for t in ax.get_yticklabels()] == ["d", "b", "c"]
    dots = [line for line in ax.lines if line.get_marker() == "o"]
    assert [line.get_markerfacecolor() for line in dots] == ["black", "white", "black"]
    assert [line.get_xdata()[0] for line in dots] == pytest.approx([-9.0, 0.35, 8.5])
    lines = [line for line in ax.lines if line.get_marker() != "o"][:3]
    np.testing.assert_allclose(
        [line.get_xdata() for line in lines], [[gap.low, gap.high] for gap in gaps.values()]
    )


def test_cost_figure_leaves_out_what_costs_nothing(printed_beside):
    from matplotlib.figure import Figure

    axes = Figure().subplots(1, 2, sharey=True)
    cost_figure(printed_beside, axes)
    np.testing.assert_allclose(axes[0].lines[0].get_xydata(), [[1.5, 0], [1.5, 1], [1.5, 2]])
    np.testing.assert_allclose(axes[0].lines[1].get_xydata(), [[6.0, 0]])  # the paper's
    np.testing.assert_allclose(axes[1].lines[0].get_xdata(), 0.25)
    rows = make_rows(np.full((2, 2, 2), 20.0), seconds="0", state_bytes="0")
    axes = Figure().subplots(1, 2, sharey=True)
    cost_figure(results_table(rows), axes)
    assert all(np.isnan(ax.lines[0].get_ydata()).all() for ax in axes)


def test_confront_gives_a_verdict_for_each_case():
    errors = 20 + np.array([[[0, 0], [5, 5], [0.1, 0]]]) + np.arange(5)[:, None, None] * 0.1
    rows = make_rows(errors, ("scml", "oasis", "mtscml"), ("isolet1", "isolet5"), 700, 700)
    paper = read_paper(PAPER)
    pairs = [("oasis", "scml"), ("scml", "oasis"), ("mtscml", "scml")]
    table = confront(rows, paper, pairs)
    assert [line[1] for line in table.body] == ["+2.50", "-2.50", "-1.10"]
    assert [line[-1] for line in table.body] == ["same direction", "same direction", "within noise"]
    changed = [row | {"error": 50 - row["error"]} for row in paper]
    assert confront(rows, changed, pairs[:1]).body[0][-1] == "other direction"
    assert confront(rows, [], pairs[:1]).body[0][1::3] == ("", "new")
    one = confront(rows, paper, pairs[:1], "isolet5").body[0]
    assert one[1:3] == ("+3.00", "+5.00")


def test_text_tables_are_the_same_in_both_forms():
    table = TextTable(("a", "b"), (("x", "1 < 2"), ("long name", "")))
    assert Cells(table._repr_html_()).rows == [["a", "b"], ["x", "1 < 2"], ["long name", ""]]
    assert repr(table) == "               b\nx          1 < 2\nlong name".replace("   ", "a  ", 1)


def row(system, split, task, wrong, dataset="d", n_test=252):
    return {
        "dataset": dataset,
        "split": str(split),
        "system": system,
        "task": task,
        "error": str(round(wrong / n_test, 6)),
        "n_train": "108",
        "n_test": str(n_test),
    }


def test_the_same_gap_on_every_split_is_not_certain():
    """Errors rounded to six digits: the variance of the gaps is that of the rounding."""
    pairs = [*zip("aaaaa", range(5), [5, 6, 7, 8, 9]), *zip("bbbbb", range(5), [4, 5, 6, 7, 8])]
    gap = compare_systems([row(s, n, "t", wrong) for s, n, wrong in pairs], "a", "b")
    assert gap.within_noise
    assert gap.low < -1 < 2 < gap.high


def test_tasks_or_data_sets_that_differ_are_refused():
    rows = [row(s, n, t, 5 + n) for s in "ab" for n in (0, 1) for t in "xy"]
    short = [r for r in rows if (r["system"], r["task"]) != ("a", "x")]
    for first, second in ("ab", "ba"):
        with pytest.raises(ValueError, match="finish the run"):
            compare_systems(short, first, second)
    assert compare_systems(short, "a", "b", "y").mean == 0
    with pytest.raises(ValueError, match="one results file"):
        compare_systems([*rows, row("a", 0, "x", 5, "e")], "a", "b")
