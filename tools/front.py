"""What the front pages quote, computed from ``results/``; and the figure that they show.

`quoted` gives the pieces of text, each with its numbers, that must stand in ``book/index.md`` or
``README.md``. The figure ``book/_static/front.svg`` shows the error of two hundred tasks on their
arrival, learned alone and lifelong.

Usage: ``python tools/front.py`` draws and says which sentence is off, ``--check`` compares the
figure, too, and draws nothing.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
from tangle import ROOT

from lml.studies.comparison import Difference, paired_difference
from lml.studies.results import read_rows
from lml.studies.transfer import error_matrices, transfer_values

PICTURE = Path("book", "_static", "front.svg")
PAGES = ("book/index.md", "README.md")
#: What the README quotes; the front page quotes everything.
README = ("embeddings", "PLDA", "Sentiment", "Isolet, OASIS", "Isolet, LMNN", "USPS")
WIDTH, HEIGHT = 420, 270
LEFT, RIGHT, TOP, BOTTOM = 46, 20, 22, 44  # margins of the axes
HIGHEST = 26  # error in per cent
WINDOW = 10  # tasks of which a point of a curve is the mean
COLORS = {"nothing shared": "#b3541e", "as it comes": "#1f6f8b"}

Source = tuple[str, str, str]  # study, data set, system


def matrices(study: str, dataset: str, system: str) -> np.ndarray:
    """Errors of every task after every step, one matrix for each split."""
    return error_matrices(read_rows(ROOT / f"results/transfer-{study}-{dataset}.csv"), system)


def final(source: Source) -> np.ndarray:
    """Mean error over all tasks after the last of them, one number for each split."""
    return transfer_values(matrices(*source)).final


def gap(first: Source, second: Source) -> Difference:
    """Paired difference of two systems on the splits that both have seen."""
    a, b = final(first), final(second)
    n_splits = min(len(a), len(b))
    return paired_difference(a[:n_splits], b[:n_splits])


def lifelong(base: str, dataset: str) -> tuple[Source, Source]:
    """The lifelong learner as it comes and its base learner alone."""
    study = "shared" if base == "OASIS" else "shared" + base.lower()
    return (study, dataset, f"{base}, as it comes"), (study, dataset, f"{base}, nothing shared")


def simple(dataset: str, system: str) -> Source:
    """A system without a metric of ours, of each task alone."""
    return ("plain" if dataset in ("digits-few", "embeddings") else "tables"), dataset, system


def change(ours: Source, alone: Source) -> str:
    """A line of a table: no learning, alone, lifelong, difference with its standard error."""
    means = [final(s).mean() for s in (simple(ours[1], "euclidean"), alone, ours)]
    d = gap(ours, alone)
    return f"| {means[0]:.1f} | {means[1]:.1f} | {means[2]:.1f} | {d.mean:+.2f} ± {d.error:.2f} |"


def last_row(study: str, system: str) -> dict[str, str]:
    """What a study of the embedding stream has of a system after all tasks of the last split."""
    rows = read_rows(ROOT / f"results/transfer-{study}-embeddings.csv")
    return [row for row in rows if row["system"] == system][-1]


def quoted() -> dict[str, str]:
    """What is quoted, by name: text that must stand in a page as it is here."""
    oasis, _ = lifelong("OASIS", "sentiment")
    usps, _ = lifelong("OASIS", "usps")
    logistic = gap(oasis, simple("sentiment", "logistic"))
    tuned = final(("tunedlmnn", "isolet", "LMNN shared")).mean()
    joint = final(("streams", "isolet", "joint LDA")).mean()
    apart = gap(usps, ("streams", "usps", "joint LDA"))
    near, near_alone = lifelong("LMNN", "usps")
    plda, _ = lifelong("PLDA", "embeddings")
    level = gap(near, near_alone)
    simpler = [final(simple("embeddings", s)).mean() for s in ("logistic", "class means")]
    digits = final(lifelong("OASIS", "digits-few")[1])
    whole = last_row("shared", "OASIS, as it comes")
    kept, raw = (int(whole[name]) / 1e6 for name in ("state_bytes", "raw_bytes"))
    small = int(last_row("smalloasis", "OASIS, twenty directions")["state_bytes"]) / 1e6
    return {
        "embeddings": change(*lifelong("OASIS", "embeddings")),
        "PLDA": f"{final(plda).mean():.1f} % on the embedding stream",
        "Sentiment": change(*lifelong("OASIS", "sentiment")),
        "Isolet, OASIS": change(*lifelong("OASIS", "isolet")),
        "Isolet, LMNN": change(*lifelong("LMNN", "isolet")),
        "few-shot digits": change(*lifelong("OASIS", "digits-few")),
        "USPS": change(*lifelong("OASIS", "usps")),
        "streams": f"between {digits.min():.1f} and {digits.max():.1f} %",
        "memory": f"{kept:.0f} MB, or {small:.0f} with `code_rank=20`, instead of {raw:.0f} MB of"
        " samples",
        "logistic": f"{-logistic.mean:.1f} ± {logistic.error:.1f} points higher than that of"
        f" the lifelong learner",
        "simpler": f"{simpler[0]:.1f} %, the nearest class mean {simpler[1]:.1f} %",
        "joint LDA": f"{joint:.1f} %, where the lifelong learner with LMNN, tuned as well, has"
        f" {tuned:.1f} %",
        "apart": f"{-apart.mean:.1f} ± {apart.error:.1f} points more",
        "near": f"LMNN alone makes {final(near_alone).mean():.1f} % errors, and the lifelong"
        f" learner with LMNN {final(near).mean():.1f} % ({level.mean:+.2f} ± {level.error:.2f})",
    }


def off() -> list[str]:
    """Sentences of the pages that are not what the results give."""
    found = []
    pieces = quoted()
    for page in PAGES:
        text = " ".join((ROOT / page).read_text(encoding="utf-8").split())
        found += [
            f"{page} must say {piece!r} ({name})"
            for name, piece in pieces.items()
            if piece not in text and (page == PAGES[0] or name in README)
        ]
    return found


def draw() -> str:
    """The figure: a curve for each system, on a light card of its own for dark pages."""
    curves = {}
    for name in COLORS:
        R = matrices("shared", "embeddings", f"OASIS, {name}")
        arrival = np.diagonal(R, axis1=1, axis2=2).mean(axis=0)
        curves[name] = np.convolve(arrival, np.ones(WINDOW) / WINDOW, "valid")
    n_tasks = len(arrival)

    def place(task: float, error: float) -> str:
        x = LEFT + (WIDTH - LEFT - RIGHT) * task / n_tasks
        return f"{x:.1f},{TOP + (HEIGHT - TOP - BOTTOM) * (1 - error / HIGHEST):.1f}"

    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img"'
        ' font-family="system-ui, sans-serif" font-size="14" fill="#222"'
        ' aria-label="Error of new tasks, alone and lifelong">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff" rx="8"/>',
    ]
    for error in range(0, HIGHEST, 5):
        x, y = place(0, error).split(",")
        lines.append(f'<path d="M{x} {y}H{WIDTH - RIGHT}" stroke="#ddd"/>')
        base = float(y) + 5
        lines.append(f'<text x="{LEFT - 8}" y="{base:.1f}" text-anchor="end">{error}</text>')
    for task in range(0, n_tasks + 1, 50):
        x = place(task, 0).split(",")[0]
        lines.append(f'<text x="{x}" y="{HEIGHT - BOTTOM + 19}" text-anchor="middle">{task}</text>')
    lines.append(f'<text x="8" y="{TOP - 6}">error of a new task, in %</text>')
    middle = (LEFT + WIDTH - RIGHT) / 2
    below = f'<text x="{middle}" y="{HEIGHT - 7}" text-anchor="middle">'
    lines.append(f"{below}tasks learned before</text>")
    for name, curve in curves.items():
        points = " ".join(place(t + WINDOW / 2, e) for t, e in enumerate(curve) if t % 2 == 0)
        lines.append(
            f'<polyline points="{points}" fill="none" stroke="{COLORS[name]}" stroke-width="2.5"/>'
        )
        x, y = place(n_tasks * 0.62, curve[len(curve) // 2 :].max()).split(",")
        said = "each task alone" if name == "nothing shared" else "lifelong"
        lines.append(f'<text x="{x}" y="{float(y) - 8:.1f}" fill="{COLORS[name]}">{said}</text>')
    return "\n".join([*lines, "</svg>", ""])


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="compare the figure, draw nothing")
    options = parser.parse_args(argv)
    found = off()
    picture = ROOT / PICTURE
    if not options.check:
        picture.write_text(draw(), encoding="utf-8")
    elif not picture.exists() or picture.read_text(encoding="utf-8") != draw():
        found.append(f"{PICTURE.as_posix()} is not what the results give: run tools/front.py")
    print("\n".join(f"front: {fault}" for fault in found) or "front: pages and figure are right")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
