"""What each package can do, run as code: ``python -m tools.benchmarks.abilities``.

Each claim is a line of Python for lml and one for metric-learn. It is run for every learner of the
package, and those that run it without an error, and whose `holds` is true at the end, are listed in
`results/abilities.csv`. metric-learn runs in the environment of the peers.
"""

from __future__ import annotations

import importlib
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import warnings
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

ROOT = Path(__file__).resolve().parents[2]
OUT = ROOT / "results" / "abilities.csv"
_PAIRWISE: dict[str, dict[str, Any]] = {
    "ITML": {},
    "LSML": {},
    "MMC": {},
    "SDML": {"balance_param": 0.01, "prior": "identity"},
    "RCA": {},
    "SCML": {"n_basis": 8},
}
# settings that make it quick
LEARNERS: dict[str, dict[str, dict[str, Any]]] = {
    "lml": {
        "OASIS": {"n_steps": 200},
        "SCML": {"n_steps": 200, "n_basis": 8},
        "LMNN": {"shrinkage": 0.01},
        "OffDiagonalLearner": {},
        "LifelongMetricLearner": {},
        "LifelongPLDA": {},
    },
    "metric_learn": {
        **{name: {} for name in ("LMNN", "NCA", "LFDA", "MLKR")},
        **_PAIRWISE,
        **{f"{name}_Supervised": options for name, options in _PAIRWISE.items()},
        "RCA_Supervised": {"n_chunks": 10},
    },
}
OF_TASKS = ("LifelongMetricLearner", "LifelongPLDA")
# what is claimed; as code for lml; as code for metric-learn
CLAIMS = [
    ("learn from labels", "learn()", "L().fit(X, y)"),
    ("learn from pairs", "L().fit_pairs(pairs, signs)", "L().fit(pairs, signs)"),
    ("learn from triplets", "L().fit_triplets(triplets)", "L().fit(triplets)"),
    ("learn from quadruplets", "L().fit_quadruplets(quadruplets)", "L().fit(quadruplets)"),
    ("learn from chunks", "L().fit_chunks(X, chunks)",
     "L().fit(X, chunks); holds = 'chunks' in L().fit.__code__.co_varnames[:3]"),
    ("triplets as numbers of samples", "L().fit_triplets(numbers, X)",
     "L(preprocessor=X).fit(numbers)"),
    ("sparse samples", "learn(sparse.csr_matrix(X))", "L().fit(sparse.csr_matrix(X), y)"),
    ("20,000 features in 3 GB", "learn(wide, y)", "L().fit(wide, y)"),
    ("data frames with missing-value types", "learn(frame).transform(frame, **of)",
     "L().fit(frame, y).transform(frame)"),
    ("labels that are words", "learn(X, words)", "L().fit(X, words)"),
    ("scores of pairs", "learn().pair_score(pairs, **of)", "fitted().pair_score(pairs)"),
    ("a distance as a callable",
     "d = learn().get_metric(**of); holds = abs(d(X[0], X[1]) - d(X[1], X[0])) < 1e-9",
     "d = fitted().get_metric(); holds = abs(d(X[0], X[1]) - d(X[1], X[0])) < 1e-9"),
    ("the Mahalanobis matrix", "learn().get_mahalanobis_matrix(**of)",
     "fitted().get_mahalanobis_matrix()"),
    ("decisions about pairs",
     "from lml.weak_supervision import PairClassifier\n"
     "PairClassifier(view()).fit(pairs, signs).predict(pairs)",
     "L().fit(pairs, signs).calibrate_threshold(pairs, signs).predict(pairs)"),
    ("probabilities of pairs",
     "from lml.weak_supervision import PairClassifier\n"
     "PairClassifier(view()).fit(pairs, signs)"
     ".predict_proba(pairs)",
     "L().fit(pairs, signs).predict_proba(pairs)"),
    ("more samples of a task later", "learn().partial_fit(X, y, **of)",
     "fitted().partial_fit(X, y)"),
    ("task after task, without the samples",
     "learn().partial_fit(X, y, task='u'); holds = bool(of)",
     "fitted().partial_fit(X, y, task='u')"),
    ("forget a task", "learn().partial_fit(X, y, task='u').forget('t')", "fitted().forget('t')"),
    ("a file without pickle", "learn().save('learner.npz'); L().load('learner.npz')",
     "fitted().save('learner.npz'); L().load('learner.npz')"),
    ("a pipeline and a search",
     "GridSearchCV(make_pipeline(view(), nearest), {}).fit(X, y)",
     "GridSearchCV(make_pipeline(L(), nearest), {}).fit(X, y)"),
    ("the columns' names of what it gives",
     "(view()).set_output(transform='pandas').transform(X)"
     ".columns",
     "fitted().set_output(transform='pandas').transform(X).columns"),
    ("a bar of progress",
     "L(verbose=True).fit(X, y, **({'tasks': ['t'] * 60} if of else {}))",
     "L(verbose=True).fit(X, y)"),
]  # fmt: skip


def _samples() -> dict[str, Any]:
    """Small data of every kind that a claim may use."""
    pd = importlib.import_module("pandas")  # it has no types
    from sklearn.model_selection import GridSearchCV
    from sklearn.neighbors import KNeighborsClassifier
    from sklearn.pipeline import make_pipeline

    rng = np.random.default_rng(0)
    y = np.arange(60) % 3
    X = 2 * rng.normal(size=(3, 4))[y] + rng.normal(size=(60, 4))
    first, second = rng.integers(60, size=(2, 200))
    triplets = [(i, i + 3, i + 4) for i in range(50)]
    return {
        "np": np, "sparse": sparse, "X": X, "y": y,
        "GridSearchCV": GridSearchCV, "make_pipeline": make_pipeline,
        "nearest": KNeighborsClassifier(1), 
        "pairs": X[np.stack([first, second], axis=1)],
        "signs": np.where(y[first] == y[second], 1, -1),
        "triplets": X[np.array(triplets)], "numbers": np.array(triplets),
        "quadruplets": X[[(i, i + 3, i + 6, i + 4) for i in range(50)]],
        "chunks": np.where(np.arange(60) < 30, y, -1),
        "words": np.array(["a", "b", "c"])[y],
        "wide": sparse.random(60, 20_000, density=0.005, random_state=0, format="csr"),
        "frame": pd.DataFrame(X, columns=list("abcd")).astype("Float64"),
    }  # fmt: skip


def _able(package: str, name: str, code: str) -> bool:
    """Whether a learner runs a piece of code."""
    space = _samples()
    options = LEARNERS[package][name]
    cls = getattr(importlib.import_module(package), name)

    def L(**more: Any) -> Any:
        seed = {"random_state": 0} if "random_state" in cls().get_params() else {}
        return cls(**{**options, **seed, **more})

    of = {"task": "t"} if name in OF_TASKS else {}

    def learn(X: Any = space["X"], y: Any = space["y"]) -> Any:
        return L().partial_fit(X, y, **of) if of else L().fit(X, y)

    def view() -> Any:
        """A learner of lml as a scikit-learn transformer."""
        return learn().as_transformer("t") if of else learn()

    def fitted() -> Any:
        """A learner of metric-learn, from whatever it takes."""
        for kind in (
            ("X", "y"),
            ("X", "chunks"),
            ("pairs", "signs"),
            ("triplets",),
            ("quadruplets",),
        ):
            try:
                return L().fit(*(space[word] for word in kind))
            except (ValueError, TypeError):
                continue
        raise ValueError(name)

    space.update(L=L, learn=learn, view=view, of=of, fitted=fitted, holds=True)
    signal.setitimer(signal.ITIMER_PROF, 15)
    try:
        exec(code, space)
    except Exception:
        return False
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    return bool(space["holds"])


def _too_slow(number: int, frame: Any) -> None:
    raise TimeoutError("a claim takes too long")


def _claims_of(package: str, name: str) -> None:
    """Print the claims that a learner runs, each in three gigabytes and fifteen seconds."""
    resource.setrlimit(resource.RLIMIT_AS, (3 * 2**30,) * 2)
    signal.signal(signal.SIGPROF, _too_slow)
    warnings.simplefilter("ignore")
    column = 1 + list(LEARNERS).index(package)
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        held = [claim[0] for claim in CLAIMS if _able(package, name, claim[column])]
    print(json.dumps(held))


def able(package: str, python: str) -> dict[str, list[str]]:
    """For each claim the learners of a package that run it; each in a process of its own."""
    found: dict[str, list[str]] = {claim[0]: [] for claim in CLAIMS}
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    for name in LEARNERS[package]:
        command = [python, "-m", "tools.benchmarks.abilities", package, name]
        said = subprocess.run(command, capture_output=True, check=True, cwd=ROOT, env=environment)
        for claim in json.loads(said.stdout.splitlines()[-1]):
            found[claim].append(name)
    return found


def main() -> None:
    """Run all claims of both packages and write the table."""
    if len(sys.argv) == 3:
        return _claims_of(*sys.argv[1:])
    peers = os.environ.get("LML_PEERS", str(ROOT / ".venv-peers" / "bin" / "python"))
    ours, theirs = able("lml", sys.executable), able("metric_learn", peers)
    pins = (ROOT / "requirements" / "peers.txt").read_text(encoding="utf-8").splitlines()
    versions = f"lml {version('lifelong-metric-learning')}, " + ", ".join(
        pin.replace("==", " ") for pin in pins if pin.split("==")[0] in ("metric-learn",)
    )
    OUT.unlink(missing_ok=True)
    from lml.studies.results import append_rows

    append_rows(
        OUT,
        [
            {
                "claim": claim,
                "lml": " ".join(ours[claim]),
                "metric_learn": " ".join(theirs[claim]),
                "versions": versions,
            }
            for claim in ours
        ],
    )
    return None


if __name__ == "__main__":
    main()
