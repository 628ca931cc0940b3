# Generated from book/baselines/ella.ipynb and book/baselines/ella_estimator.ipynb by tools/tangle.py: edit the chapter.
"""ELLA: linear classifiers of tasks that arrive one after another, in one shared dictionary.

A task is learned by logistic regression, its loss is replaced by its second-order expansion,
a lasso codes it in the dictionary, and the dictionary solves the normal equations of all
tasks so far. Tasks of more than two classes are taken one class against the rest.
"""

from __future__ import annotations

import contextlib
import copy
import warnings
from collections.abc import Collection, Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, sparse
from scipy.sparse.linalg import LinearOperator, cg
from scipy.special import expit
from sklearn.base import ClassifierMixin, clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import Lasso, LogisticRegression
from sklearn.utils.extmath import safe_sparse_dot
from sklearn.utils.validation import check_is_fitted

from lml.base import COMMON_FIELDS, BaseLifelongLearner, LearnerState, Record
from lml.neighbors import accuracy
from lml.state import (
    LARGEST,
    LARGEST_MEAN,
    ArrayField,
    Field,
    MatrixField,
    OptionalField,
    RecordField,
    SizeField,
    TableField,
    ValueField,
    expect,
)
from lml.utils.linalg import dense, nbytes, stacked
from lml.utils.typing import Floats, Indices, LabelsLike, Matrix, MatrixLike, Seed, WeightsLike
from lml.utils.validation import (
    Rule,
    check_columns,
    check_matrix,
    one_of,
    real,
    seed,
    sort_classes,
    whole,
)

__all__ = [
    "ELLA",
    "DictionarySums",
    "ELLAState",
    "ELLATask",
    "QuadraticModel",
    "code_certificate",
    "quadratic_model",
    "solve_dictionary",
    "sparse_code",
]


# book/baselines/ella.ipynb#a-task-becomes-a-quadratic
@dataclass(frozen=True)
class QuadraticModel(Record):
    """Losses of m binary problems on the same samples, to second order at their minimizers.

    Parameters
    ----------
    X : {ndarray, CSR matrix} of shape (n, D)
        The samples.
    theta : ndarray of shape (D, m)
        Coefficients of the logistic regressions.
    intercept : ndarray of shape (m,)
        Their intercepts.
    weights : ndarray of shape (n, m)
        p (1 - p) / (2 n) of every sample.
    centers : ndarray of shape (D, m)
        Means of the samples under these weights.
    ridge : float
        Half of the ridge of the loss.

    Notes
    -----
    Derived in chapter 30 (baselines/ella), eqs. (ella-taylor), (ella-hessian) and (ella-intercept).
    Problem c has the loss (theta_c - v)' D_c (theta_c - v) above its minimum; D_c is never formed
    unless asked.
    """

    X: Matrix
    theta: Floats
    intercept: Floats
    weights: Floats
    centers: Floats
    ridge: float

    def curve(self, V: Floats) -> Floats:
        """The products D_c v_c for the columns of V (D, m)."""
        P = safe_sparse_dot(self.X, V) - np.sum(self.centers * V, axis=0)
        return safe_sparse_dot(self.X.T, self.weights * P) + self.ridge * V

    def losses(self, V: Floats) -> Floats:
        """The quadratics at the columns of V (D, m), shape (m,)."""
        E = self.theta - V
        return np.sum(E * self.curve(E), axis=0)

    def intercepts(self, V: Floats) -> Floats:
        """The best intercepts for the columns of V (D, m), shape (m,)."""
        return self.intercept + np.sum(self.centers * (self.theta - V), axis=0)

    def hessian(self, c: int = 0) -> Floats:
        """D_c as a dense array (D, D)."""
        Z = dense(self.X) - self.centers[:, c]
        return (Z.T * self.weights[:, c]) @ Z + self.ridge * np.eye(Z.shape[1])

    # book/baselines/ella.ipynb#the-code-is-a-lasso
    def coding_problems(self, dictionary: Floats) -> list[tuple[Floats, Floats]]:
        """L' D_c L and L' D_c theta_c of all m problems, for a dictionary L (D, k)."""
        Z = safe_sparse_dot(self.X, dictionary)
        ridge = self.ridge * dictionary.T @ dictionary
        targets = dictionary.T @ self.curve(self.theta)
        problems = []
        for weights, center, target in zip(self.weights.T, self.centers.T, targets.T):
            P = Z - center @ dictionary
            problems.append(((P.T * weights) @ P + ridge, target))
        return problems

    def code(self, dictionary: Floats, penalty: float) -> Floats:
        """The codes of all m problems, shape (m, k)."""
        problems = self.coding_problems(dictionary)
        return np.array([sparse_code(*problem, penalty) for problem in problems])


# book/baselines/ella.ipynb#a-task-becomes-a-quadratic
@contextlib.contextmanager
def _refusing(warning: type[Warning], said: str, remedy: str) -> Iterator[None]:
    """Turn what a solver warns about, or fails with, into an error that says what to do."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", warning)
        try:
            yield
        except (warning, linalg.LinAlgError):
            raise ValueError(f"{said}: rescale the samples, or {remedy}") from None


# book/baselines/ella.ipynb#a-task-becomes-a-quadratic
def quadratic_model(X: Matrix, targets: NDArray[np.int_], C: float = 1.0) -> QuadraticModel:
    """Logistic regressions of binary targets, as second-order models.

    Parameters
    ----------
    X : {ndarray, CSR matrix} of shape (n, D)
    targets : ndarray of shape (n, m)
        Zeros and ones, both in every column.
    C : float, default=1.0
        Inverse ridge of `sklearn.linear_model.LogisticRegression`.

    Returns
    -------
    QuadraticModel

    Notes
    -----
    Derived in chapter 30 (baselines/ella), eqs. (ella-loss), (ella-hessian) and (ella-intercept).

    Examples
    --------
    >>> import numpy as np
    >>> model = quadratic_model(np.array([[-1.0], [1.0]]), np.array([[0], [1]]))
    >>> round(model.theta.item(), 3), model.losses(model.theta).tolist()
    (0.675, [0.0])
    """
    base = LogisticRegression(C=C, tol=1e-8, max_iter=10_000)
    with _refusing(
        ConvergenceWarning, f"logistic regression with C={C} does not converge", "lower C"
    ):
        fits = [clone(base).fit(X, target) for target in targets.T]
    theta = np.stack([fit.coef_[0] for fit in fits], axis=1)
    intercept = np.array([fit.intercept_[0] for fit in fits])
    p = expit(safe_sparse_dot(X, theta) + intercept)
    weights = np.maximum(p * (1 - p), 1e-12) / (2 * len(p))  # a sum of zero has no mean
    centers = safe_sparse_dot(X.T, weights) / weights.sum(axis=0)
    return QuadraticModel(X, theta, intercept, weights, centers, 1 / (2 * len(p) * C))


# book/baselines/ella.ipynb#the-code-is-a-lasso
def code_certificate(code: Floats, gram: Floats, target: Floats, penalty: float) -> float:
    """Distance of a code from the optimality conditions of its lasso; 0 is optimal.

    Parameters
    ----------
    code : ndarray of shape (k,)
    gram : ndarray of shape (k, k)
        L' D L.
    target : ndarray of shape (k,)
        L' D theta.
    penalty : float
        mu, >= 0.

    Returns
    -------
    float

    Notes
    -----
    Derived in chapter 30 (baselines/ella), eq. (ella-kkt).
    """
    slope = 2 * (gram @ code - target)
    free = np.maximum(np.abs(slope) - penalty, 0)
    return float(np.linalg.norm(np.where(code == 0, free, slope + penalty * np.sign(code))))


# book/baselines/ella.ipynb#the-code-is-a-lasso
def sparse_code(gram: Floats, target: Floats, penalty: float) -> Floats:
    """Minimizer of penalty ||s||_1 + s' gram s - 2 target' s.

    Parameters
    ----------
    gram : ndarray of shape (k, k)
        L' D L, positive semi-definite.
    target : ndarray of shape (k,)
        L' D theta, in the range of gram.
    penalty : float
        mu, >= 0.

    Returns
    -------
    ndarray of shape (k,)

    Notes
    -----
    Derived in chapter 30 (baselines/ella), eqs. (ella-gram) and (ella-kkt).

    Examples
    --------
    >>> import numpy as np
    >>> sparse_code(np.eye(3), np.array([2.0, -1.0, 0.2]), penalty=1.0).round(6).tolist()
    [1.5, -0.5, 0.0]
    """
    k = len(target)
    unit = np.trace(gram) / len(target)
    if unit <= 0:
        return np.zeros(k)
    gram = gram + 1e-12 * unit * np.eye(k)
    R = linalg.cholesky(gram)
    r = linalg.solve_triangular(R, target, trans=1)
    if penalty == 0:
        return linalg.solve_triangular(R, r)
    options = {"tol": 1e-4, "max_iter": 1000, "random_state": 0}  # leave the global seed alone
    lasso = Lasso(penalty / (2 * k), fit_intercept=False, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the next step finishes it
        start = lasso.fit(R, r).coef_
    return _exact_code(start, gram, target, penalty)


# book/baselines/ella.ipynb#the-code-is-a-lasso
def _exact_code(s: Floats, gram: Floats, target: Floats, penalty: float) -> Floats:
    """The exact code from an approximate one: one entry leaves or enters at a time."""
    signs = np.sign(s)
    for _ in range(100 * len(s)):
        # the code that is optimal if these are its signs
        x = np.zeros(len(s))
        on = np.flatnonzero(signs)
        if len(on):
            right = target[on] - penalty / 2 * signs[on]
            x[on] = linalg.solve(gram[np.ix_(on, on)], right, assume_a="pos")
        wrong = np.flatnonzero(x * signs < 0)
        if len(wrong):
            # go there only as far as the first zero of an entry, which leaves
            share = s[wrong] / (s[wrong] - x[wrong])
            leaves = wrong[share.argmin()]
            s = s + share.min() * (x - s)
            s[leaves] = 0.0
            signs[leaves] = 0
            continue
        s = x
        # the entry that violates eq. (ella-kkt) most enters
        slope = 2 * (gram @ s - target) * (signs == 0)
        enters = np.abs(slope).argmax()
        if abs(slope[enters]) <= penalty * (1 + 1e-9):
            break
        signs[enters] = -np.sign(slope[enters])
    return s


# book/baselines/ella.ipynb#the-cost-of-a-visit
def solve_dictionary(
    models: Sequence[QuadraticModel],
    codes: Sequence[Floats],
    penalty: float,
    start: Floats,
    tol: float = 1e-10,
) -> Floats:
    """The dictionary for given codes, by conjugate gradients on the samples.

    Parameters
    ----------
    models : list of QuadraticModel
    codes : list of ndarray (m, k)
        Codes of the m problems of each model.
    penalty : float
        lambda, > 0.
    start : ndarray of shape (D, k)
        Where to begin; columns that no code uses become zero.
    tol : float, default=1e-10
        Residual relative to the right-hand side.

    Returns
    -------
    ndarray of shape (D, k)

    Notes
    -----
    Derived in chapter 30 (baselines/ella), eqs. (ella-normal) and (ella-operator). No (D, D) array
    is formed.
    """
    T = sum(map(len, codes))
    used = np.any(np.vstack(codes), axis=0)

    def product(v: Floats) -> Floats:
        L = v.reshape(start.shape)
        bent = sum(model.curve(L @ S.T) @ S for model, S in zip(models, codes))
        return (bent / T + penalty * L).ravel()

    right = sum((m.curve(m.theta) @ S for m, S in zip(models, codes)), np.zeros_like(start)) / T
    system = LinearOperator((start.size,) * 2, matvec=product, dtype=float)
    L, info = cg(system, right.ravel(), (start * used).ravel(), rtol=tol, maxiter=20 * start.size)
    if info:
        raise ValueError(f"dictionary_penalty={penalty} is too small for {info} steps: raise it")
    return L.reshape(start.shape)


# book/baselines/ella_estimator.ipynb#running-sums
class DictionarySums:
    """The running sums A and b of the normal equations, in blocks.

    Parameters
    ----------
    n_features : int
        D.
    n_components : int
        k, the columns of the dictionary.

    Attributes
    ----------
    A : ndarray of shape (k D, k D)
        Sum of s s' kron D.
    b : ndarray of shape (k D,)
        Sum of s kron D theta.
    n_problems : int
        Binary problems in the sums.

    Notes
    -----
    Derived in chapter 30 (baselines/ella), eqs. (ella-vec) and (ella-sums). The dictionary is
    vectorised by columns.
    """

    def __init__(self, n_features: int, n_components: int) -> None:
        self.shape = (n_features, n_components)
        self.n_problems = 0
        self.A = np.zeros((n_components * n_features,) * 2)
        self.b = np.zeros(n_components * n_features)

    def add(self, model: QuadraticModel, codes: Floats, sign: int = 1) -> None:
        """Add the terms of a model's problems with codes (m, k); sign=-1 takes them out."""
        D = len(model.theta)
        right = model.curve(model.theta)
        for c, s in enumerate(codes):
            hessian = model.hessian(c)
            blocks = {i: slice(i * D, (i + 1) * D) for i in np.flatnonzero(s)}
            for i, rows in blocks.items():
                self.b[rows] += sign * s[i] * right[:, c]
                for j, columns in blocks.items():
                    self.A[rows, columns] += (sign * s[i] * s[j]) * hessian
        self.n_problems += sign * len(codes)

    def solve(self, penalty: float) -> Floats:
        """The dictionary (D, k) that solves (A / T + penalty I) vec L = b / T."""
        system = self.A + self.n_problems * penalty * np.eye(len(self.b))
        said = f"dictionary_penalty={penalty} is too small for samples of this size"
        with _refusing(linalg.LinAlgWarning, said, "raise it, or use solver='cg'"):
            vector = linalg.solve(system, self.b, assume_a="pos")
        return vector.reshape(self.shape, order="F")


# book/baselines/ella_estimator.ipynb#what-is-kept-and-what-a-file-holds
@dataclass(frozen=True, kw_only=True)
class ELLATask(Record):
    """What `ELLA` keeps of a task, its samples included.

    Attributes
    ----------
    number : int
        Position in the order of first appearance.
    n_visits : int
    classes : ndarray
        The labels, sorted where they have an order.
    y : ndarray of shape (n,)
        The class of each sample, all visits.
    model : QuadraticModel
        One problem for two classes, else one a class; it holds the samples.
    """

    number: int
    n_visits: int
    classes: NDArray[Any]
    y: Indices
    model: QuadraticModel


@dataclass(frozen=True, eq=False, kw_only=True)
class ELLAState(LearnerState):
    """What `ELLA` knows after some visits.

    Attributes
    ----------
    dictionary : ndarray of shape (n_features, n_components) or None
        L; None before the first task.
    codes : dict
        Task to its codes (m, n_components).
    sums : DictionarySums or None
        The running sums, with the direct solver.
    """

    dictionary: Any = None
    codes: dict[Any, Floats] = field(default_factory=dict)
    sums: DictionarySums | None = None


# book/baselines/ella_estimator.ipynb#what-is-kept-and-what-a-file-holds
def _restored_task(*, classes: tuple[Any, ...], y: Indices, **parts: Any) -> ELLATask:
    """The record of a task; an error unless its classes fit its samples and problems."""
    table, numbers = sort_classes(classes)
    in_order = len(classes) > 1 and np.array_equal(numbers, np.arange(len(classes)))
    expect(in_order, "classes of a task", classes, "two or more, in order")
    expect(set(y.tolist()) == set(numbers), "classes of samples", set(y.tolist()), len(classes))
    found = parts["model"].theta.shape[1]
    n_problems = 1 if len(classes) == 2 else len(classes)
    expect(found == n_problems, "problems", found, n_problems)
    return ELLATask(classes=table, y=y, **parts)


def _restored_sums(
    n_features: int, n_components: int, n_problems: int, A: Floats, b: Floats
) -> DictionarySums:
    expect(len(b) == n_features * n_components, "size of sums", len(b), n_features * n_components)
    sums = DictionarySums(n_features, n_components)
    sums.n_problems = n_problems
    sums.A = A
    sums.b = b
    return sums


def _restored_state(**parts: Any) -> ELLAState:
    """The state, or an error that says what does not belong together."""
    state = ELLAState(**parts)
    expect(list(state.codes) == list(state.tasks), "tasks of codes", list(state.codes), "the tasks")
    problems = {task: record.model.theta.shape[1] for task, record in state.tasks.items()}
    found = {task: len(codes) for task, codes in state.codes.items()}
    expect(found == problems, "number of codes", found, problems)
    learned = state.dictionary is not None
    expect(learned == bool(problems), "tasks", list(problems), "those of a dictionary")
    if state.sums is not None:
        total = sum(problems.values())
        expect(state.sums.n_problems == total > 0, "problems in sums", state.sums.n_problems, total)
    return state


# book/baselines/ella_estimator.ipynb#what-is-kept-and-what-a-file-holds
_MODEL = RecordField(
    QuadraticModel,
    {
        "weights": ArrayField(("n", "m"), rule=Rule(lambda w: bool((w > 0).all()), "above 0")),
        "X": MatrixField("n", "D"),
        "theta": ArrayField(("D", "m"), largest=LARGEST_MEAN),
        "intercept": ArrayField(("m",)),
        "centers": ArrayField(("D", "m"), largest=LARGEST_MEAN),
        "ridge": ValueField(real(0, LARGEST, above=True)),
    },
)
_TASK = RecordField(
    _restored_task,
    {
        "number": ValueField(whole(0)),
        "n_visits": ValueField(whole(1)),
        "classes": ValueField(Rule(lambda classes: type(classes) is tuple, "a tuple of labels")),
        "y": ArrayField(("n",), int),
        "model": _MODEL,
    },
    lambda record: {**vars(record), "classes": tuple(record.classes.tolist())},
)
_SUMS = RecordField(
    _restored_sums,
    {
        "n_features": SizeField(letter="D"),
        "n_components": SizeField(letter="k"),
        "n_problems": ValueField(whole(1)),
        "A": ArrayField(("kD", "kD")),
        "b": ArrayField(("kD",)),
    },
    lambda sums: {
        "n_features": sums.shape[0],
        "n_components": sums.shape[1],
        "n_problems": sums.n_problems,
        "A": sums.A,
        "b": sums.b,
    },
)


# book/baselines/ella_estimator.ipynb#the-class
class ELLA(ClassifierMixin, BaseLifelongLearner[ELLAState]):
    """Linear classifiers of tasks that arrive one after another, theta_t = L s_t.

    Parameters
    ----------
    n_components : int, default=4
        Columns k of the dictionary.
    code_penalty : float, default=1e-3
        mu, the weight of ||s||_1.
    dictionary_penalty : float, default=1e-5
        lambda > 0, the weight of ||L||^2.
    C : float, default=1.0
        Inverse ridge of the logistic regression of each task.
    init : {"random", "tasks"}, default="random"
        How unused columns are filled before a task is coded: with random numbers, or with the
        task's own coefficients (the task then has this column as its code).
    multi_class : {"ovr", "binary"}, default="ovr"
        Tasks of more than two classes: one problem a class, or an error as in the original.
    solver : {"auto", "direct", "cg"}, default="auto"
        Normal equations from running sums of size (k D)^2, or by conjugate gradients on the
        samples; "auto" is direct for k D <= 1000 and dense samples.
    random_state : int, RandomState or None, default=None

    Attributes
    ----------
    dictionary_ : ndarray of shape (n_features, n_components)
        L. Columns that no task uses are zero.
    codes_ : dict
        Task to its codes, (1, n_components) for two classes, else (n_classes, n_components).
    tasks_ : dict
        Task to its `ELLATask`, in the order of first appearance.
    sums_ : DictionarySums or None
        The running sums, with the direct solver.
    n_features_in_ : int

    Notes
    -----
    Derived in chapter 30 (baselines/ella), eqs. (ella-lasso), (ella-normal) and (ella-sums). Ruvolo
    and Eaton (2013), Algorithm 1; the column "ELLA" of the paper's Table II. The samples of all
    tasks are kept, for tasks that come back. The intercept of a task is its own and not penalised.
    A visit looks at the codes of all tasks, so its time grows with the number of tasks.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> X, y = load_digits(return_X_y=True)
    >>> learner = ELLA(n_components=2, random_state=0)
    >>> for task, digits in {"low": (0, 1), "high": (8, 9)}.items():
    ...     samples = (y == digits[0]) | (y == digits[1])
    ...     learner = learner.partial_fit(X[samples] / 16, y[samples], task=task)
    >>> learner.predict(X[:2] / 16, task="low").tolist()
    [0, 1]
    """

    _state_class = ELLAState
    _kind = "ELLA"
    _parameter_rules: ClassVar[dict[str, Rule]] = {
        "n_components": whole(1),
        "code_penalty": real(0),
        "dictionary_penalty": real(0, above=True),
        "C": real(0, above=True),
        "init": one_of("random", "tasks"),
        "multi_class": one_of("ovr", "binary"),
        "solver": one_of("auto", "direct", "cg"),
        "random_state": seed(),
    }

    def __init__(
        self,
        n_components: int = 4,
        code_penalty: float = 1e-3,
        dictionary_penalty: float = 1e-5,
        *,
        C: float = 1.0,
        init: str = "random",
        multi_class: str = "ovr",
        solver: str = "auto",
        random_state: Seed = None,
    ) -> None:  # fmt: skip
        self.n_components = n_components
        self.code_penalty = code_penalty
        self.dictionary_penalty = dictionary_penalty
        self.C = C
        self.init = init
        self.multi_class = multi_class
        self.solver = solver
        self.random_state = random_state

    # book/baselines/ella_estimator.ipynb#a-visit
    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags._skip_test = True  # scikit-learn's checks name no task
        return tags

    def _check_labels(self, y: Indices, labels: list[Any], task: Hashable, known: bool) -> None:
        """Refuse an empty visit; two classes are asked of all visits of a task together."""
        if not len(y):
            raise ValueError(f"X has 0 samples for task {task!r}: give at least one")

    def _learn_task(
        self, state: ELLAState, X: Matrix, y: Indices, labels: list[Any], task: Hashable
    ) -> ELLAState:
        """The state after a visit of a task."""
        # all samples of the task, old and new, and the class of each; they are copied
        known = state.tasks.get(task)
        if known is None:
            rows = X.copy()
            classes, numbers = sort_classes(labels)
            y = numbers[y]
        else:
            classes, numbers = sort_classes([*known.classes.tolist(), *labels])
            y = np.concatenate([numbers[known.y], numbers[len(known.classes) + y]])
            rows = stacked(known.model.X, X)

        # its losses, to second order
        if len(classes) < 2 or (len(classes) > 2 and self.multi_class == "binary"):
            raise ValueError(
                f"y of task {task!r} has {len(classes)} classes: give two, or use"
                " multi_class='ovr' for more"
            )
        targets = (y[:, None] == np.arange(len(classes))).astype(int)
        model = quadratic_model(rows, targets if len(classes) > 2 else targets[:, 1:], self.C)

        # the codes, and the dictionary that solves for all codes
        L, own = self._filled_dictionary(state, model)
        codes = model.code(L, self.code_penalty)
        codes[: len(own)] = np.eye(self.n_components)[own]
        record = ELLATask(
            number=state.number(task),
            n_visits=1 + (known.n_visits if known else 0),
            classes=classes,
            y=y,
            model=model,
        )
        tasks = {**state.tasks, task: record}
        return self._solved(state, tasks, {**state.codes, task: codes}, L, [task])

    def _filled_dictionary(self, state: ELLAState, model: QuadraticModel) -> tuple[Floats, Indices]:
        """The dictionary with its zero columns filled, and the columns the problems own."""
        k = self.n_components
        D, m = model.theta.shape
        L = np.zeros((D, k)) if state.dictionary is None else np.array(state.dictionary)
        if L.shape[1] != k:
            raise ValueError(
                f"n_components is {k}, but dictionary_ has {L.shape[1]} columns: clone"
            )
        empty = np.flatnonzero(~L.any(axis=0))
        visit = sum(record.n_visits for record in state.tasks.values())
        rng = np.random.default_rng([state.root, visit])  # not state.seeds: see results/
        size = np.sqrt(np.mean(model.theta**2))
        L[:, empty] = size * rng.standard_normal((D, len(empty)))
        own = empty[:m] if self.init == "tasks" else empty[:0]
        L[:, own] = model.theta[:, : len(own)]
        return L, own

    def _solved(
        self,
        state: ELLAState,
        tasks: dict[Any, ELLATask],
        codes: dict[Any, Floats],
        start: Floats,
        changed: Collection[Hashable],
    ) -> ELLAState:
        """The state of these tasks and codes; `changed` are those that are new, or gone."""
        rows = [tasks[task].model.X for task in changed if task in tasks]
        large = start.size > 1000 or any(map(sparse.issparse, rows))
        after = replace(state, tasks=tasks, codes=codes, sums=None)
        if self.solver == "cg" or (self.solver == "auto" and large):
            models = [record.model for record in tasks.values()]
            L = solve_dictionary(models, list(codes.values()), self.dictionary_penalty, start)
        else:
            sums = _moved_sums(state, after, start.shape, changed)
            L = sums.solve(self.dictionary_penalty)
            after = replace(after, sums=sums)
        used = np.any(np.vstack(list(codes.values())), axis=0)
        return replace(after, dictionary=L * used)

    def _forget_task(self, state: ELLAState, task: Hashable) -> ELLAState:
        """The state without a task; the dictionary is solved for the others."""
        left = super()._forget_task(state, task)
        if not left.tasks:
            return replace(left, dictionary=None, sums=None)
        return self._solved(state, left.tasks, left.codes, state.dictionary, [task])

    def recode(self, n_sweeps: int = 1) -> Self:
        """Code all tasks again and solve for the dictionary, n_sweeps times.

        Not part of ELLA. Each sweep lowers `objective`; in the limit codes and dictionary are
        optimal for each other. Needs no samples beyond those that are kept.
        """
        whole(0).check("n_sweeps", n_sweeps)
        with self._lock:
            self._check_parameters()
            check_is_fitted(self)
            state = self._learned_state("dictionary_")
            for _ in range(n_sweeps):
                L = state.dictionary
                codes = {
                    task: record.model.code(L, self.code_penalty)
                    for task, record in state.tasks.items()
                }
                state = self._solved(state, state.tasks, codes, L, state.tasks)
            self._state = state
        return self

    def objective(self) -> float:
        """What ELLA minimizes: the quadratics of all problems and the penalties, a float."""
        check_is_fitted(self)
        state = self._learned_state("dictionary_")
        L = state.dictionary
        losses = [r.model.losses(L @ state.codes[task].T) for task, r in state.tasks.items()]
        codes = np.vstack(list(state.codes.values()))
        loss = np.concatenate(losses) + self.code_penalty * np.abs(codes).sum(1)
        return float(np.mean(loss) + self.dictionary_penalty * np.sum(L * L))

    # book/baselines/ella_estimator.ipynb#reading-a-task
    @property
    def dictionary_(self) -> Floats:
        """L, of shape (n_features, n_components); columns that no task uses are zero."""
        return self._learned_state("dictionary_").dictionary

    @property
    def codes_(self) -> dict[Any, Floats]:
        """Task to its codes, in the order of first appearance; a copy of the table."""
        return dict(self._learned_state("codes_").codes)

    @property
    def sums_(self) -> DictionarySums | None:
        """The running sums, with the direct solver; a copy."""
        return copy.deepcopy(self._learned_state("sums_").sums)

    def coefficients(self, task: Hashable) -> tuple[Floats, Floats]:
        """The classifier of a task now: coefficients (m, n_features), intercepts (m,)."""
        state = self._known_state(task)
        V = state.dictionary @ state.codes[task].T
        return V.T, state.tasks[task].model.intercepts(V)

    def decision_function(self, X: MatrixLike, *, task: Hashable) -> Floats:
        """Scores: (n,), positive for the second class, or (n, n_classes).

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n, n_features)
        task : hashable
            A known task.
        """
        now = copy.copy(self)  # of one state, whatever is learned meanwhile
        coefficients, intercepts = now.coefficients(task)
        check_columns(now, X)
        X = check_matrix(X, n_features=now.n_features_in_)
        scores = safe_sparse_dot(X, coefficients.T) + intercepts
        return scores[:, 0] if scores.shape[1] == 1 else scores

    def predict(self, X: MatrixLike, *, task: Hashable) -> NDArray[Any]:
        """Labels of samples under the classifier of a task, shape (n,)."""
        now = copy.copy(self)
        scores = now.decision_function(X, task=task)
        numbers = (scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1)
        return now.tasks_[task].classes[numbers]

    def predict_proba(self, X: MatrixLike, *, task: Hashable) -> Floats:
        """Probabilities (n, n_classes); one-vs-rest ones are scaled to the sum 1."""
        scores = self.decision_function(X, task=task)
        if scores.ndim == 1:
            return np.stack([expit(-scores), expit(scores)], axis=1)
        log = -np.logaddexp(0, -scores)  # of the probability; finite however small it is
        p = np.exp(log - log.max(axis=1, keepdims=True))
        return p / p.sum(axis=1, keepdims=True)

    def score(
        self,
        X: MatrixLike,
        y: LabelsLike,
        sample_weight: WeightsLike | None = None,
        *,
        task: Hashable,
    ) -> float:
        """Accuracy on samples (n, n_features) of a task, a float in [0, 1]; a weighted mean."""
        return accuracy(self.predict(X, task=task), y, sample_weight)

    @property
    def state_parts_(self) -> dict[str, int]:
        """Bytes kept, by part: dictionary, codes, sums, models, samples."""
        state = self._learned_state("state_parts_")
        L = state.dictionary
        sums = state.sums
        models = [record.model for record in state.tasks.values()]
        return {
            "dictionary": 0 if L is None else L.nbytes,
            "codes": sum(S.nbytes for S in state.codes.values()),
            "sums": 0 if sums is None else sums.A.nbytes + sums.b.nbytes,
            "models": sum(m.theta.nbytes + m.weights.nbytes + m.centers.nbytes for m in models),
            "rows": sum(nbytes(model.X) for model in models),
        }

    @classmethod
    def _fields(cls) -> Field:
        return RecordField(
            _restored_state,
            {
                **COMMON_FIELDS,
                "dictionary": OptionalField(ArrayField(("D", "k"), largest=LARGEST_MEAN)),
                "tasks": TableField(_TASK),
                "codes": TableField(ArrayField((None, "k"), largest=LARGEST_MEAN)),
                "sums": OptionalField(_SUMS),
            },
        )


# book/baselines/ella_estimator.ipynb#a-visit
def _moved_sums(
    before: ELLAState, after: ELLAState, shape: tuple[int, ...], changed: Collection[Hashable]
) -> DictionarySums:
    """The running sums of eq. (ella-sums): old terms of what changed out, new terms in."""
    old = before.tasks
    sums = copy.deepcopy(before.sums)
    if sums is None:  # they begin anew, with all tasks
        sums = DictionarySums(*shape)
        old = {}
        changed = after.tasks
    for task in changed:
        if task in old:
            sums.add(old[task].model, before.codes[task], sign=-1)
        if task in after.tasks:
            sums.add(after.tasks[task].model, after.codes[task])
    return sums
