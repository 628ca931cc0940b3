"""What a bound on samples costs: ``python -m tools.benchmarks.large`` writes results/large.csv.

Each fit is a process of its own with one BLAS thread: seconds of the processor, most memory, and
the error of five neighbors among the samples on held-out ones. Lines that are there are not run
again.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
import warnings
from typing import Any

import numpy as np

from lml.datasets import load_arrays
from lml.lifelong import LifelongMetricLearner
from lml.lmnn import LMNN
from lml.metrics import FactoredMetric
from lml.neighbors import k_nearest
from lml.oasis import OASIS
from lml.plda import LifelongPLDA
from lml.scml import SCML
from lml.studies.results import append_rows, read_rows

from .__main__ import ONE_THREAD, ROOT, machine, versions
from .worker import peak_megabytes

OUT = ROOT / "results" / "large.csv"
LEARNERS: dict[str, Any] = {
    "OASIS": OASIS(random_state=0),
    "SCML": SCML(random_state=0),
    "LMNN": LMNN(random_state=0),
    "LMNN shrunk": LMNN(shrinkage=0.01, tol=0.01, random_state=0),
}
STREAMS: dict[str, Any] = {
    "LifelongMetricLearner": LifelongMetricLearner(random_state=0),
    "LifelongPLDA": LifelongPLDA(random_state=0),
}
# data, learner and bound on the samples; "" leaves the learner its own, "None" takes all
CASES = [
    ("50,000 x 100", "OASIS", ""),
    ("50,000 x 100", "SCML", ""),
    ("50,000 x 100", "LMNN", ""),
    ("50,000 x 100", "LifelongMetricLearner", ""),
    ("50,000 x 100", "LifelongPLDA", ""),
    ("200,000 x 128", "OASIS", ""),
    ("200,000 x 128", "SCML", ""),
    ("200,000 x 128", "LMNN", ""),
    ("200,000 x 128", "LifelongMetricLearner", ""),
    ("usps", "SCML", "1000"),
    ("usps", "SCML", "2000"),
    ("usps", "SCML", "None"),
    ("usps", "LMNN shrunk", "1000"),
    ("usps", "LMNN shrunk", "2000"),
    ("usps", "LMNN shrunk", "None"),
]


def drawn(n: int, D: int) -> tuple[np.ndarray, np.ndarray]:
    """Ten classes, each around three points of 20 dimensions; the other dimensions are noise."""
    rng = np.random.default_rng(0)
    mode = rng.integers(30, size=n)
    signal = rng.normal(size=(30, 20))[mode] + 0.7 * rng.normal(size=(n, 20))
    noise = np.linspace(0.2, 1.2, D - 20) * rng.normal(size=(n, D - 20))
    turn = np.linalg.qr(rng.normal(size=(D, D)))[0]
    return np.hstack([signal, noise]) @ turn, mode % 10


def halves(data: str) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Samples to learn from and their classes, held-out samples and theirs."""
    if data == "usps":
        (usps,) = load_arrays("usps")
        order = np.random.default_rng(0).permutation(len(usps["y"]))
        X, y = (usps["Xq"] / usps["divisor"])[order], usps["y"][order].astype(int)
        n = len(y) // 2
    else:
        n, D = (int(word.replace(",", "")) for word in data.split(" x "))
        X, y = drawn(n + 2000, D)
    return X[:n], y[:n], X[n:], y[n:]


def error(metric: FactoredMetric, kind: str, *parts: np.ndarray) -> float:
    """Share of held-out samples, in per cent, that five neighbors of 20,000 samples get wrong."""
    X, y, asked, truth = parts
    metric = metric.psd() if kind == "distance" else metric
    nearest, _ = k_nearest(metric, asked, X[:20_000], kind, 5)
    votes = np.array([np.bincount(labels, minlength=10).argmax() for labels in y[nearest]])
    return 100 * float(np.mean(votes != truth))


def measure(data: str, name: str, bound: str) -> None:
    """Run one case in this process and add its line."""
    parts = halves(data)
    X, y = parts[:2]
    start = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if name in STREAMS:
            learner = STREAMS[name].partial_fit(X, y, task="one")
            metric, kind = learner.task_metric("one"), learner.metric_type_
        else:
            if bound:
                LEARNERS[name].set_params(max_samples=None if bound == "None" else int(bound))
            learner = LEARNERS[name].fit(X, y)
            metric, kind = learner.metric_, learner.metric_type
    seconds = time.process_time() - start
    line = {
        "data": data,
        "learner": name,
        "max_samples": bound or getattr(learner, "max_samples", ""),
        "n_samples": len(y),
        "seconds": f"{seconds:.1f}",
        "megabytes": f"{peak_megabytes():.0f}",
        "error": f"{error(metric, kind, *parts):.2f}",
        "machine": machine(),
        "versions": versions(),
    }
    append_rows(OUT, [line])


def main() -> None:
    """Run the cases that the file lacks, each in a process of its own."""
    if len(sys.argv) == 4:
        return measure(*sys.argv[1:])
    for case in CASES:
        bound = case[2] or str(getattr(LEARNERS.get(case[1]), "max_samples", ""))
        done = {(row["data"], row["learner"], row["max_samples"]) for row in read_rows(OUT)}
        if (*case[:2], bound) not in done:
            command = [sys.executable, "-m", "tools.benchmarks.large", *case]
            subprocess.run(command, cwd=ROOT, env={**os.environ, **ONE_THREAD}, check=True)
    return None


if __name__ == "__main__":
    main()
