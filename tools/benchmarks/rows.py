"""The rows of the benchmark: two ways to do the same work, and what must agree.

A row's `prepare` makes the data; `ours` and each of `peers` do the work on it and return
arrays and numbers; `value` adds what is compared and takes longer than the work; `check` compares.
Only the work is timed. A function may return ``{"seconds": s}`` when it measures itself (with
`clock`), or ``{"units": u}`` when it did u times the work.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from scipy import linalg, optimize
from sklearn.base import clone
from sklearn.utils import gen_batches

from lml import oasis, scml
from lml.baselines.mtlmnn import MultiTaskLMNN
from lml.baselines.mtscml import MultiTaskSCML
from lml.coding import code_loss, code_metric, fista
from lml.datasets import Task, load_isolet_tasks, load_sentiment_tasks, load_usps_tasks
from lml.evaluation import LifelongKNeighborsClassifier
from lml.fisher import local_fisher_basis
from lml.lifelong import LifelongMetricLearner
from lml.lmnn import LMNN, impostors, lmnn_loss_gradient, target_neighbors
from lml.metrics import FactoredMetric
from lml.neighbors import k_nearest
from lml.oasis import OASIS, passive_aggressive_step
from lml.penalties import OffDiagonalL1
from lml.plda import LifelongPLDA
from lml.scml import SCML
from lml.triplets import nearest_triplets, sample_triplets, triplet_loss

from . import loops

Data = dict[str, Any]
Result = dict[str, Any]
#: Seconds of the processor: what other processes do meanwhile does not count.
clock = time.process_time
#: Peers that run in the environment of requirements/peers.txt.
ELSEWHERE = ("metric-learn", "numba")


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    work: str
    prepare: Callable[[bool], Data]  # quick or not
    ours: Callable[[Data], Result]
    check: Callable[[Result, Result], tuple[bool, str]]
    peers: dict[str, Callable[[Data], Result]] = field(default_factory=dict)
    goal: float = 0.0  # peer's time / our time at least this
    seconds: float = 0.0  # or: our time at most this
    megabytes: float = 0.0  # and: our peak memory at most this
    runs: int = 5
    quick: bool = True  # whether the quick form has it
    value: Callable[[Data, Result], float] | None = None  # of the result, for the check


# ---- OASIS


def _oasis_data(load: Callable[..., list[Task]], n_steps: int) -> Data:
    task = load(random_state=0)[0]
    triplets = sample_triplets(task.y_train, n_steps, random_state=0)
    return {"X": task.X_train, "y": task.y_train, "triplets": triplets}


def _oasis(data: Data) -> Result:
    model = OASIS(0.1, n_steps=len(data["triplets"]), random_state=0).fit(data["X"], data["y"])
    return {"W": model.metric_.to_dense(), "share": model.n_updates_ / len(data["triplets"])}


def _oasis_loop(data: Data) -> Result:
    X, W = data["X"], np.eye(data["X"].shape[1])
    for i, j, k in data["triplets"]:
        W, _ = passive_aggressive_step(W, X[i], X[j], X[k], 0.1)
    return {"W": W}


def _same_matrix(ours: Result, peer: Result) -> tuple[bool, str]:
    gap = float(np.abs(ours["W"] - peer["W"]).max())
    share = float(ours["share"])
    return gap <= 1e-10, f"largest difference {gap:.1e}; {100 * share:.0f} % of steps update"


def _raw_reviews(quick: bool) -> Data:
    return {}


def _lifelong_reviews(data: Data) -> Result:
    """From the files to the errors of four tasks."""
    tasks = load_sentiment_tasks("raw", random_state=0)
    learner = LifelongMetricLearner(OASIS(), random_state=0)
    model = LifelongKNeighborsClassifier(learner)
    for task in tasks:
        learner.partial_fit(task.X_train, task.y_train, task=task.name)
        model.fit(task.X_train, task.y_train, task=task.name)
    errors = [np.mean(model.predict(t.X_test, task=t.name) != t.y_test) for t in tasks]
    return {"errors": np.array(errors), "D": tasks[0].X_train.shape[1]}


def _learnt_something(ours: Result, peer: Result) -> tuple[bool, str]:
    mean = float(np.mean(ours["errors"]))
    return mean < 0.4, f"D = {int(ours['D'])}; mean error {100 * mean:.1f} %"


# ---- SCML and LMNN against metric-learn


def _task_data(load: Callable[..., list[Task]]) -> Data:
    task = load(random_state=0)[0]
    return {"X": task.X_train, "y": np.unique(task.y_train, return_inverse=True)[1]}


def _components(metric: FactoredMetric) -> Result:
    return {"L": metric.components()}


def _scml_objective(data: Data, result: Result) -> float:
    """Mean hinge of nearest triplets plus beta tr M, the sum of weights of unit directions."""
    L = result["L"]
    triplets = nearest_triplets(data["X"], data["y"])
    hinge = triplet_loss(FactoredMetric.from_components(L), data["X"], triplets, "distance")
    return hinge + 1e-5 * float(np.sum(np.square(L)))


def _scml_ours(data: Data) -> Result:
    # the largest penalty of these samples is 0.0099, so this is the 1e-5 of the peer
    return _components(SCML(400, beta=1e-3, random_state=0).fit(data["X"], data["y"]).metric_)


def _scml_peer(data: Data) -> Result:
    from metric_learn import SCML_Supervised

    peer = SCML_Supervised(
        k_genuine=3, k_impostor=10, basis="lda", n_basis=400, beta=1e-5, max_iter=10_000,
        batch_size=10, output_iter=500, random_state=0,
    )  # fmt: skip
    return {"L": peer.fit(data["X"], data["y"]).components_}


def _lmnn_objective(data: Data, result: Result) -> float:
    """Half pull, half push, three targets a row."""
    targets, Z = target_neighbors(data["X"], data["y"]), data["X"] @ result["L"].T
    return lmnn_loss_gradient(Z, targets, impostors(Z, data["y"], targets)).exact


def _lmnn_ours(data: Data) -> Result:
    return _components(LMNN().fit(data["X"], data["y"]).metric_)


def _lmnn_peer(data: Data) -> Result:
    from metric_learn import LMNN as Peer

    peer = Peer(n_neighbors=3, regularization=0.5, random_state=0)
    return {"L": peer.fit(data["X"], data["y"]).components_}


def _lmnn_stops(data: Data) -> Result:
    """The peer's error; a time is not taken."""
    nothing = np.eye(data["X"].shape[1])
    try:
        _lmnn_peer(data)
    except ValueError as error:
        return {"said": str(error), "L": nothing, "seconds": np.nan}
    return {"said": "nothing", "L": nothing}


def _no_worse(ours: Result, peer: Result) -> tuple[bool, str]:
    mine, other = float(ours["value"]), float(peer["value"])
    return mine <= other * (1 + 1e-9), f"objective {mine:.4g}, peer {other:.4g}"


def _runs_alone(ours: Result, peer: Result) -> tuple[bool, str]:
    value, said = float(ours["value"]), str(peer["said"])
    return bool(np.isfinite(value)), f"objective {value:.4g}; the peer says {said!r}"


# ---- what a compiler would win


def _scores_data(quick: bool) -> Data:
    data = _oasis_data(load_isolet_tasks, 20_000)
    return {**data, "gram": data["X"] @ data["X"].T}


def _scores_ours(data: Data) -> Result:
    gram, triplets = data["gram"], data["triplets"]
    steps = oasis._score_form(gram, gram.copy(), triplets, 0.1)[1]
    return {"K": oasis._coefficients(triplets, steps, len(gram))}


def _scores_compiled(data: Data) -> Result:
    gram, triplets = data["gram"], data["triplets"]
    K = np.zeros_like(gram)
    run = loops.compiled(loops.oasis_scores, gram, gram.copy(), triplets, 0.1, K)
    begun = clock()
    run(gram, gram.copy(), triplets, 0.1, K)
    return {"K": K, "seconds": clock() - begun}


def _dense_ours(data: Data) -> Result:
    W = np.eye(data["X"].shape[1])
    return {"K": oasis._dense_form(data["X"], data["triplets"], 0.1, W)[0]}


def _dense_compiled(data: Data) -> Result:
    X, W = np.ascontiguousarray(data["X"]), np.eye(data["X"].shape[1])
    run = loops.compiled(loops.oasis_steps, X, data["triplets"], 0.1, W)
    begun = clock()
    run(X, data["triplets"], 0.1, W)
    return {"K": W, "seconds": clock() - begun}


def _averaging_data(quick: bool) -> Data:
    data = _task_data(load_sentiment_tasks)
    projections = data["X"] @ local_fisher_basis(data["X"], data["y"], 400, None, 0).T
    triplets = nearest_triplets(data["X"], data["y"])
    differences = scml._Differences(projections, triplets)
    draws = np.random.RandomState(0).randint(len(triplets), size=100_000)
    gamma = scml.scaled_gamma(projections, triplets)
    return {"differences": differences, "draws": draws, "gamma": gamma}


def _averaging_ours(data: Data) -> Result:
    differences, draws = data["differences"], data["draws"]
    sums = np.zeros(differences.squares.shape[1])
    for block in gen_batches(len(draws), 2**16 // len(sums) + 1):
        Z = differences.rows(draws[block])
        scml._dual_steps(Z, sums, block.start, 1e-5, data["gamma"])
    return {"K": sums}


def _averaging_compiled(data: Data) -> Result:
    differences = data["differences"]
    near, far = differences.table.near[data["draws"]], differences.table.far[data["draws"]]
    squares, sums = differences.squares, np.zeros(differences.squares.shape[1])
    run = loops.compiled(loops.scml_steps, squares, near, far, sums, 0, 1e-5, data["gamma"])
    begun = clock()
    run(squares, near, far, sums, 0, 1e-5, data["gamma"])
    return {"K": sums, "seconds": clock() - begun}


def _same_result(ours: Result, peer: Result) -> tuple[bool, str]:
    gap = float(np.abs(ours["K"] - peer["K"]).max() / np.abs(ours["K"]).max())
    return gap <= 1e-9, f"largest relative difference {gap:.1e}"


# ---- local Fisher bases


def _fisher_data(quick: bool) -> Data:
    return {**_task_data(load_isolet_tasks), "n_basis": 100 if quick else 500, "scales": (3, 2)}


def _fisher_ours(data: Data) -> Result:
    return {"F": local_fisher_basis(data["X"], data["y"], data["n_basis"], data["scales"], 0)}


def _fisher_full(data: Data) -> Result:
    """The same regions, each by a full eigenproblem of D x D scatter matrices."""
    from lml import fisher

    X, y = data["X"] - data["X"].mean(axis=0), data["y"]
    q, D = int(y.max()), X.shape[1]
    n_regions = -(-data["n_basis"] // (2 * q))
    found = []
    for rows in fisher.local_regions(X, y, n_regions, data["scales"], 0):
        within, between = fisher.class_scatter(X[rows], y[rows])
        ridge = np.trace(within) / D
        _, V = linalg.eigh(between, within + ridge * np.eye(D))
        V = V[:, ::-1][:, :q].T
        found.append(V / np.linalg.norm(V, axis=1, keepdims=True))
    return {"F": np.concatenate(found)[: data["n_basis"]]}


def _same_directions(ours: Result, peer: Result) -> tuple[bool, str]:
    gap = 1.0 - float(np.abs(np.sum(ours["F"] * peer["F"], axis=1)).min())
    return gap < 1e-8, f"directions agree to {max(gap, 0.0):.1e} (1 - |cosine|)"


# ---- coding


def _coding_data(quick: bool, orthonormal: bool) -> Data:
    """A target of rank 200 and a dictionary of 120 rows on 617 features."""
    rng = np.random.default_rng(0)
    F, L = rng.normal(size=(200, 617)) / 25, rng.normal(size=(120, 617)) / 25
    L = np.linalg.qr(L.T)[0].T if orthonormal else L
    target = FactoredMetric(0.0, F, rng.normal(size=200) ** 2)
    return {"L": L, "target": target, "penalty": 0.01}


def _coding_ours(data: Data) -> Result:
    result = code_metric(data["L"], data["target"], data["penalty"])
    scale = np.linalg.norm(data["target"].project(data["L"]))
    return {
        "W": result.code, "objective": result.objective, "n_iter": result.n_iter,
        "certificate": result.kkt_residual / scale,
    }  # fmt: skip


def _coding_lbfgs(data: Data) -> Result:
    """Off-diagonal entries split into two non-negative parts: a smooth problem with bounds."""
    L, strength = data["L"], data["penalty"]
    A, B, d = L @ L.T, data["target"].project(L), len(L)
    B, off = (B + B.T) / 2, ~np.eye(d, dtype=bool)
    constant = 0.5 * data["target"].inner(data["target"])

    def objective(parts: np.ndarray) -> tuple[float, np.ndarray]:
        plus, minus = parts.reshape(2, d, d)
        W = plus - minus
        gradient = A @ W @ A - B
        value = 0.5 * np.sum(W * (gradient - B)) + constant + strength * (plus + minus)[off].sum()
        slopes = np.stack([gradient, -gradient]) + strength * off
        return float(value), slopes.ravel()

    options = {"maxiter": 5000, "maxfun": 10_000, "ftol": 1e-15, "gtol": 1e-9}
    found = optimize.minimize(
        objective, np.zeros(2 * d * d), jac=True, method="L-BFGS-B", options=options,
        bounds=optimize.Bounds(0.0, np.inf),
    )  # fmt: skip
    plus, minus = found.x.reshape(2, d, d)
    return {"W": plus - minus, "objective": found.fun}


def _coded(limit: float, most: int) -> Callable[..., tuple[bool, str]]:
    def check(ours: Result, peer: Result) -> tuple[bool, str]:
        good = ours["certificate"] < limit and ours["n_iter"] <= most
        good &= bool(ours["objective"] <= peer["objective"] * (1 + 1e-10))
        return bool(good), (
            f"certificate {float(ours['certificate']):.1e}, {int(ours['n_iter'])} steps; objective"
            f" {float(ours['objective']):.8g}, peer {float(peer['objective']):.8g}"
        )

    return check


_ITERATIONS = 100


def _iterations_data(quick: bool) -> Data:
    """What `code_metric` hands to its solver: the loss, the penalty, a step size that fits."""
    data = _coding_data(quick, False)
    loss = code_loss(data["L"], data["target"])
    step = float(np.linalg.norm(loss.gram, 2) ** -2)
    return {"loss": loss, "penalty": OffDiagonalL1(data["penalty"]), "step": step}


def _iterations_ours(data: Data) -> Result:
    """A fixed number of proximal steps."""
    loss = data["loss"]
    result = fista(
        loss, data["penalty"], np.zeros_like(loss.gram), data["step"], tol=0.0,
        max_iter=_ITERATIONS, affine_gradient=True,
    )  # fmt: skip
    return {"n": result.n_iter}


def _iterations_products(data: Data) -> Result:
    """Two d x d products an iteration."""
    A, W = data["loss"].gram, data["loss"].projected
    for _ in range(_ITERATIONS):
        out = A @ W @ A
    return {"n": _ITERATIONS, "last": out[0, 0]}


def _as_many(ours: Result, peer: Result) -> tuple[bool, str]:
    return int(ours["n"]) == int(peer["n"]), f"{int(ours['n'])} iterations each, d = 120"


# ---- adding a task


def _twenty_tasks(quick: bool) -> Data:
    """Twenty tasks of Isolet size: five groups of speakers in four random splits."""
    splits = [load_isolet_tasks(random_state=seed) for seed in range(4)]
    return {"tasks": [(f"{t.name}/{seed}", t) for seed, part in enumerate(splits) for t in part]}


def _add_task(base: Any, data: Data) -> Result:
    """The time of the last task only."""
    learner = LifelongMetricLearner(base, random_state=0)
    for name, task in data["tasks"]:
        begun = clock()
        learner.partial_fit(task.X_train, task.y_train, task=name)
    return {"tasks": len(learner.tasks_), "seconds": clock() - begun}


_ROWS = ("X_train", "y_train")


def _retrain(prototype: Any) -> Callable[[Data], Result]:
    def run(data: Data) -> Result:
        X, y = (np.concatenate([getattr(t, part) for _, t in data["tasks"]]) for part in _ROWS)
        names = [name for name, task in data["tasks"] for _ in task.y_train]
        model = prototype.fit(X, y, tasks=names)
        return {"tasks": len(model.tasks_)}

    return run


_ALL_TASKS = {
    "mtSCML on all": _retrain(MultiTaskSCML(random_state=0)),
    "mtLMNN on all": _retrain(MultiTaskLMNN(tol=0.01)),
}


def _same_tasks(ours: Result, peer: Result) -> tuple[bool, str]:
    return int(ours["tasks"]) == int(peer["tasks"]) == 20, "20 tasks known to both"


def _many_tasks(learner: Any, quick: bool) -> Data:
    """Small tasks, so that what grows with their number cannot hide."""
    return {"rng": np.random.default_rng(0), "last": 100 if quick else 1000, "learner": learner}


_MANY_LML = LifelongMetricLearner(OASIS(n_steps=200), n_components=20, random_state=0)
_MANY_PLDA = LifelongPLDA(20, own_weight=0.25, shrinkage=(0.3, 0.0, 0.0), random_state=0)


def _small_task(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    y = np.tile([0, 1, 2], 20)
    return rng.normal(size=(60, 50)) + 2 * rng.normal(size=(3, 50))[y], y


def _late_task(data: Data) -> Result:
    """Seconds of a task around the last one, and around the tenth."""
    seconds = []
    for t in range(data["last"]):
        X, y = _small_task(data["rng"])
        begun = clock()
        data["learner"].partial_fit(X, y, task=t)
        seconds.append(clock() - begun)
    early, late, worst = np.median(seconds[5:15]), np.median(seconds[-10:]), max(seconds[-64:])
    return {"seconds": late, "early": early, "late": late, "worst": worst, "last": data["last"]}


def _flat(ours: Result, peer: Result) -> tuple[bool, str]:
    ratio, worst = (float(ours[name] / ours["early"]) for name in ("late", "worst"))
    said = f"task {int(ours['last'])} takes {ratio:.2f} times task 10"
    return ratio <= 1.5, f"{said}, the worst of the last 64 {worst:.2f} times"


# ---- a visit of the lifelong learner beside a fit of its base learner


def _one_more(base: Any, load: Callable[..., list[Task]], quick: bool) -> Data:
    """A task to learn, and learners that know the others: one is told m, one chooses it."""
    *others, task = load(random_state=0)
    learners = {}
    for sharing in (0.5, "auto"):
        learner = LifelongMetricLearner(base, sharing=sharing, random_state=0)
        for other in others:
            learner.partial_fit(other.X_train, other.y_train, task=other.name)
        learners[sharing] = learner
    return {"base": base, "task": task, "learners": learners}


def _one_more_shared(sharing: float | str, data: Data) -> Result:
    learner = copy.copy(data["learners"][sharing])
    learner.partial_fit(data["task"].X_train, data["task"].y_train, task="one more")
    return {"metrics": len(learner.tasks_)}


def _one_more_alone(data: Data) -> Result:
    metric = clone(data["base"]).fit(data["task"].X_train, data["task"].y_train).metric_
    return {"metrics": metric.n_features}


def _both_learned(ours: Result, peer: Result) -> tuple[bool, str]:
    return int(ours["metrics"]) > 3 and int(peer["metrics"]) > 3, "a metric of the task by both"


# ---- growth with the number of features


def _wide_tasks(D: int, quick: bool) -> Data:
    rng, tasks = np.random.default_rng(0), []
    y = np.tile([0, 1], 100)
    for _ in range(4):
        X = rng.normal(size=(200, D))
        X[:, :20] += 3 * rng.normal(size=(2, 20))[y]
        tasks.append((X / np.sqrt(D), y))
    return {"tasks": tasks}


def _wide_run(data: Data) -> Result:
    learner = LifelongMetricLearner(OASIS(n_steps=5000), n_components=40, random_state=0)
    for t, (X, y) in enumerate(data["tasks"]):
        learner.partial_fit(X, y, task=t)
    return {"tasks": len(learner.tasks_)}


def _ran(ours: Result, peer: Result) -> tuple[bool, str]:
    return int(ours["tasks"]) == 4, "four tasks of 200 dense rows"


# ---- neighbors


def _references(quick: bool) -> Data:
    rng = np.random.default_rng(0)
    n, D, rank = (20_000 if quick else 100_000), 200, 50
    X = rng.normal(size=(n + 1000, D))
    metric = FactoredMetric(0.0, rng.normal(size=(rank, D)) / 14, rng.random(rank))
    return {"queries": X[:1000], "references": X[1000:], "metric": metric}


def _neighbors_ours(data: Data) -> Result:
    nearest, _ = k_nearest(data["metric"], data["queries"], data["references"], "distance", 3)
    return {"nearest": nearest, "units": 1.0}


def _neighbors_callable(data: Data) -> Result:
    from sklearn.neighbors import NearestNeighbors

    distance = data["metric"].distance_function()
    model = NearestNeighbors(n_neighbors=3, algorithm="brute", metric=distance)
    return {"nearest": model.fit(data["references"]).kneighbors(data["queries"][:1])[1],
            "units": 0.001}  # fmt: skip


def _neighbors_embedded(data: Data) -> Result:
    from sklearn.neighbors import NearestNeighbors

    model = NearestNeighbors(n_neighbors=3, algorithm="brute")
    model.fit(data["metric"].embed(data["references"]))
    return {"nearest": model.kneighbors(data["metric"].embed(data["queries"]))[1]}


def _same_neighbors(ours: Result, peer: Result) -> tuple[bool, str]:
    n = len(peer["nearest"])
    return np.array_equal(ours["nearest"][:n], peer["nearest"]), f"same neighbors of {n} queries"


WIDTHS = (256, 1024, 4096, 16_384, 35_846)
ROWS: dict[str, Row] = {
    "oasis-sentiment": Row(
        "OASIS, 20,000 steps, n 800, D 200", lambda q: _oasis_data(load_sentiment_tasks, 20_000),
        _oasis, _same_matrix, {"numpy loop": _oasis_loop}, goal=8),
    "oasis-isolet": Row(
        "OASIS, 20,000 steps, n 156, D 617", lambda q: _oasis_data(load_isolet_tasks, 20_000),
        _oasis, _same_matrix, {"numpy loop": _oasis_loop}, goal=60),
    "oasis-raw": Row(
        "OASIS and LML, four tasks of raw text", _raw_reviews, _lifelong_reviews,
        _learnt_something, seconds=60, megabytes=1500, runs=3),
    "scml-sentiment": Row(
        "SCML, 100,000 triplets, 400 bases", lambda q: _task_data(load_sentiment_tasks),
        _scml_ours, _no_worse, {"metric-learn": _scml_peer}, goal=8, value=_scml_objective),
    "lmnn-usps": Row(
        "LMNN, n 176, D 256", lambda q: _task_data(load_usps_tasks), _lmnn_ours,
        _no_worse, {"metric-learn": _lmnn_peer}, goal=4, value=_lmnn_objective),
    "lmnn-sentiment": Row(
        "LMNN, n 800, D 200", lambda q: _task_data(load_sentiment_tasks), _lmnn_ours,
        _no_worse, {"metric-learn": _lmnn_peer}, goal=40, runs=3, quick=False,
        value=_lmnn_objective),
    "lmnn-isolet": Row(
        "LMNN, n 156, D 617", lambda q: _task_data(load_isolet_tasks), _lmnn_ours,
        _runs_alone, {"metric-learn": _lmnn_stops}, runs=3, value=_lmnn_objective),
    "fisher-isolet": Row(
        "local Fisher bases, D 617, 78 rows a region", _fisher_data, _fisher_ours,
        _same_directions, {"full eigenproblem": _fisher_full}, goal=10, runs=3),
    "coding-orthonormal": Row(
        "coding, d 120, orthonormal rows", lambda q: _coding_data(q, True), _coding_ours,
        _coded(1e-12, 0), {"L-BFGS-B": _coding_lbfgs}, goal=1, runs=3),
    "coding-any": Row(
        "coding, d 120, random rows", lambda q: _coding_data(q, False), _coding_ours,
        _coded(1e-8, 200), {"L-BFGS-B": _coding_lbfgs}, goal=1, runs=3),
    "coding-iteration": Row(
        "an iteration of coding, d 120", _iterations_data, _iterations_ours,
        _as_many, {"two d x d products": _iterations_products}, goal=1 / 1.5),
    "task-20": Row(
        "task 20 of Isolet size, SCML", _twenty_tasks, partial(_add_task, SCML(random_state=0)),
        _same_tasks, _ALL_TASKS, goal=50, runs=3, quick=False),
    "task-20-oasis": Row(
        "task 20 of Isolet size, OASIS", _twenty_tasks, partial(_add_task, OASIS(random_state=0)),
        _same_tasks, _ALL_TASKS, goal=50, runs=3, quick=False),
    "task-1000": Row(
        "task 1,000 against task 10", partial(_many_tasks, _MANY_LML), _late_task, _flat, runs=3),
    "task-1000-plda": Row(
        "task 1,000 against task 10, PLDA", partial(_many_tasks, _MANY_PLDA), _late_task, _flat,
        runs=3),
    **{f"shared-{sharing}-{name}": Row(
        f"a task beside others, m {sharing}, {name}", partial(_one_more, base, load),
        partial(_one_more_shared, 0.5 if sharing == "given" else "auto"), _both_learned,
        {"the base learner alone": _one_more_alone}, goal=1 / most, runs=3)
        for sharing, most in (("given", 1.3), ("chosen", 6.0))
        for name, base, load in (
            ("oasis-sentiment", OASIS(random_state=0), load_sentiment_tasks),
            ("lmnn-isolet", LMNN(max_iter=200, tol=0.01, shrinkage=0.001), load_isolet_tasks))},
    **{f"width-{D}": Row(
        f"lifelong run, D {D}", partial(_wide_tasks, D), _wide_run, _ran, runs=3,
        quick=D <= 4096) for D in WIDTHS},
    "neighbors-callable": Row(
        "3 nearest of 1,000 queries, rank 50", _references, _neighbors_ours, _same_neighbors,
        {"scikit-learn, callable": _neighbors_callable}, goal=100, runs=3),
    "neighbors-embedded": Row(
        "3 nearest of 1,000 queries, rank 50", _references, _neighbors_ours, _same_neighbors,
        {"scikit-learn, embedded": _neighbors_embedded}, goal=0.5, runs=3),
    "compiled-dense": Row(
        "OASIS, Sentiment, the steps alone", lambda q: _oasis_data(load_sentiment_tasks, 20_000),
        _dense_ours, _same_result, {"numba": _dense_compiled}, goal=1 / 3, runs=3),
    "compiled-scores": Row(
        "OASIS, Isolet, the steps alone", _scores_data, _scores_ours, _same_result,
        {"numba": _scores_compiled}, goal=1 / 3, runs=3),
    "compiled-scml": Row(
        "SCML, Sentiment, the steps alone", _averaging_data, _averaging_ours, _same_result,
        {"numba": _averaging_compiled}, goal=1 / 3, runs=3),
}  # fmt: skip
