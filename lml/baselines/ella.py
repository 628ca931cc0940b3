# Generated from book/baselines/ella.ipynb by tools/tangle.py: edit the chapter.
"""ELLA: linear classifiers of tasks that arrive one after another, in one shared dictionary.

A task is learned by logistic regression, its loss is replaced by its second-order expansion,
a lasso codes it in the dictionary, and the dictionary solves the normal equations of all
tasks so far. Tasks of more than two classes are taken one class against the rest.
"""

import copy
import warnings
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, sparse
from scipy.sparse.linalg import LinearOperator, cg
from scipy.special import expit
from sklearn.base import BaseEstimator, clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.linear_model import Lasso, LogisticRegression
from sklearn.utils import check_random_state
from sklearn.utils.extmath import safe_sparse_dot
from sklearn.utils.validation import validate_data

from lml.baselines.pooled import split_tasks
from lml.lifelong import _check_choice, _check_name, _check_number
from lml.neighbors import _class_numbers, _hit_share, _labels, _sorted_classes
from lml.triplets import _check_rows
from lml.utils.typing import Floats, Indices, LabelsLike, Matrix, MatrixLike, Seed, WeightsLike

__all__ = [
    "ELLA",
    "DictionarySums",
    "ELLATask",
    "QuadraticModel",
    "code_certificate",
    "quadratic_model",
    "solve_dictionary",
    "sparse_code",
]


# book/baselines/ella.ipynb#a-task-becomes-a-quadratic
@dataclass(frozen=True)
class QuadraticModel:
    """Losses of m binary problems on the same rows, to second order at their minimisers.

    Parameters
    ----------
    X : {ndarray, CSR matrix} of shape (n, D)
        The rows.
    theta : ndarray of shape (D, m)
        Coefficients of the logistic regressions.
    intercept : ndarray of shape (m,)
        Their intercepts.
    weights : ndarray of shape (n, m)
        p (1 - p) / (2 n) of every row.
    centres : ndarray of shape (D, m)
        Means of the rows under these weights.
    ridge : float
        Half of the ridge of the loss.

    Notes
    -----
    Derived in chapter 29 (baselines/ella), eqs. (ella-taylor), (ella-hessian) and (ella-intercept).
    Problem c has the loss (theta_c - v)' D_c (theta_c - v) above its minimum; D_c is never formed
    unless asked.
    """

    X: Matrix
    theta: Floats
    intercept: Floats
    weights: Floats
    centres: Floats
    ridge: float

    def curve(self, V: Floats) -> Floats:
        """The products D_c v_c for the columns of V (D, m)."""
        P = safe_sparse_dot(self.X, V) - np.sum(self.centres * V, axis=0)
        return safe_sparse_dot(self.X.T, self.weights * P) + self.ridge * V

    def losses(self, V: Floats) -> Floats:
        """The quadratics at the columns of V (D, m), shape (m,)."""
        E = self.theta - V
        return np.sum(E * self.curve(E), axis=0)

    def intercepts(self, V: Floats) -> Floats:
        """The best intercepts for the columns of V (D, m), shape (m,)."""
        return self.intercept + np.sum(self.centres * (self.theta - V), axis=0)

    def hessian(self, c: int = 0) -> Floats:
        """D_c as a dense array (D, D)."""
        Z = (self.X.toarray() if sparse.issparse(self.X) else self.X) - self.centres[:, c]
        return (Z.T * self.weights[:, c]) @ Z + self.ridge * np.eye(Z.shape[1])

    # book/baselines/ella.ipynb#the-code-is-a-lasso
    def coding_problems(self, dictionary: Floats) -> list[tuple[Floats, Floats]]:
        """L' D_c L and L' D_c theta_c of all m problems, for a dictionary L (D, k)."""
        Z = safe_sparse_dot(self.X, dictionary)
        ridge = self.ridge * dictionary.T @ dictionary
        targets = dictionary.T @ self.curve(self.theta)
        problems = []
        for weights, centre, target in zip(self.weights.T, self.centres.T, targets.T):
            P = Z - centre @ dictionary
            problems.append(((P.T * weights) @ P + ridge, target))
        return problems

    def code(self, dictionary: Floats, penalty: float) -> Floats:
        """The codes of all m problems, shape (m, k)."""
        problems = self.coding_problems(dictionary)
        return np.array([sparse_code(*problem, penalty) for problem in problems])


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
    Derived in chapter 29 (baselines/ella), eqs. (ella-loss), (ella-hessian) and (ella-intercept).

    Examples
    --------
    >>> import numpy as np
    >>> model = quadratic_model(np.array([[-1.0], [1.0]]), np.array([[0], [1]]))
    >>> round(model.theta.item(), 3), model.losses(model.theta).tolist()
    (0.675, [0.0])
    """
    base = LogisticRegression(C=C, tol=1e-8, max_iter=10_000)
    fits = [clone(base).fit(X, target) for target in targets.T]
    theta = np.stack([fit.coef_[0] for fit in fits], axis=1)
    intercept = np.array([fit.intercept_[0] for fit in fits])
    p = expit(safe_sparse_dot(X, theta) + intercept)
    weights = np.maximum(p * (1 - p), 1e-12) / (2 * len(p))  # a sum of zero has no mean
    centres = safe_sparse_dot(X.T, weights) / weights.sum(axis=0)
    return QuadraticModel(X, theta, intercept, weights, centres, 1 / (2 * len(p) * C))


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
    Derived in chapter 29 (baselines/ella), eq. (ella-kkt).
    """
    slope = 2 * (gram @ code - target)
    free = np.maximum(np.abs(slope) - penalty, 0)
    return float(np.linalg.norm(np.where(code == 0, free, slope + penalty * np.sign(code))))


# book/baselines/ella.ipynb#the-code-is-a-lasso
def sparse_code(gram: Floats, target: Floats, penalty: float) -> Floats:
    """Minimiser of penalty ||s||_1 + s' gram s - 2 target' s.

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
    Derived in chapter 29 (baselines/ella), eqs. (ella-gram) and (ella-kkt).

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
    return _finished(start, gram, target, penalty)


# book/baselines/ella.ipynb#the-code-is-a-lasso
def _finished(s: Floats, gram: Floats, target: Floats, penalty: float) -> Floats:
    """The exact code from an approximate one: one entry leaves or enters at a time."""
    signs = np.sign(s)
    for _ in range(100 * len(s)):
        s, gone = _toward(s, _on_support(signs, gram, target, penalty), signs)
        if gone is not None:
            signs[gone] = 0
            continue
        slope = 2 * (gram @ s - target) * (signs == 0)
        enters = np.abs(slope).argmax()
        if abs(slope[enters]) <= penalty * (1 + 1e-9):
            break
        signs[enters] = -np.sign(slope[enters])
    return s


# book/baselines/ella.ipynb#the-code-is-a-lasso
def _on_support(signs: Floats, gram: Floats, target: Floats, penalty: float) -> Floats:
    """The code that is optimal if these are its signs."""
    x = np.zeros(len(signs))
    on = np.flatnonzero(signs)
    if len(on):
        right = target[on] - penalty / 2 * signs[on]
        x[on] = linalg.solve(gram[np.ix_(on, on)], right, assume_a="pos")
    return x


def _toward(s: Floats, x: Floats, signs: Floats) -> tuple[Floats, np.intp | None]:
    """From s to x, but not past the first zero of an entry; the new code and that entry."""
    wrong = np.flatnonzero(x * signs < 0)
    if not len(wrong):
        return x, None
    share = s[wrong] / (s[wrong] - x[wrong])
    gone = wrong[share.argmin()]
    s = s + share.min() * (x - s)
    s[gone] = 0.0
    return s, gone


# book/baselines/ella.ipynb#what-it-costs-and-what-it-must-not-cost
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
    Derived in chapter 29 (baselines/ella), eqs. (ella-vec) and (ella-sums). The dictionary is
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
        try:
            vector = linalg.solve(system, self.b, assume_a="pos")
        except linalg.LinAlgError:
            raise ValueError(
                f"dictionary_penalty={penalty} is too small for rows of this size, the normal"
                " equations are singular: rescale the rows, raise it, or use solver='cg'"
            ) from None
        return vector.reshape(self.shape, order="F")


# book/baselines/ella.ipynb#what-it-costs-and-what-it-must-not-cost
def solve_dictionary(
    models: Sequence[QuadraticModel],
    codes: Sequence[Floats],
    penalty: float,
    start: Floats,
    tol: float = 1e-10,
) -> Floats:
    """The dictionary for given codes, by conjugate gradients on the rows.

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
    Derived in chapter 29 (baselines/ella), eqs. (ella-normal) and (ella-operator). No (D, D) array
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


# book/baselines/ella.ipynb#the-class
@dataclass(frozen=True)
class ELLATask:
    """What `ELLA` keeps of a task, its rows included.

    Attributes
    ----------
    classes : ndarray
        The labels, sorted where they have an order.
    labels : list
        Label of each row, all visits.
    model : QuadraticModel
        One problem for two classes, else one a class; it holds the rows.
    n_visits : int
    """

    classes: NDArray[Any]
    labels: list[Any]
    model: QuadraticModel
    n_visits: int


# book/baselines/ella.ipynb#the-class
class ELLA(BaseEstimator):
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
        rows; "auto" is direct for k D <= 1000 and dense rows.
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
    Derived in chapter 29 (baselines/ella), eqs. (ella-lasso), (ella-normal) and (ella-sums). Ruvolo
    and Eaton (2013), Algorithm 1; the column "ELLA" of the paper's Table II. The rows of all tasks
    are kept, for tasks that come back. The intercept of a task is its own and not penalised.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> X, y = load_digits(return_X_y=True)
    >>> learner = ELLA(n_components=2, random_state=0)
    >>> for task, digits in {"low": (0, 1), "high": (8, 9)}.items():
    ...     rows = (y == digits[0]) | (y == digits[1])
    ...     learner = learner.partial_fit(X[rows] / 16, y[rows], task=task)
    >>> learner.predict(X[:2] / 16, task="low").tolist()
    [0, 1]
    """

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

    def partial_fit(self, X: MatrixLike, y: LabelsLike, *, task: Hashable) -> Self:
        """Learn one task, or more rows of a known one.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Rows of this visit. They are copied and kept.
        y : array-like of shape (n_samples,)
            Labels of any type, at least two classes in all visits of the task together.
        task : hashable
            Name of the task.

        Returns
        -------
        self

        Raises
        ------
        ValueError, TypeError
            If the rows, the labels, the task or a parameter cannot be used. The learner is
            then exactly what it was before the call.
        """
        self._check_parameters()
        noted = copy.copy(self)
        if not hasattr(self, "n_features_in_"):
            validate_data(noted, X, skip_check_array=True)  # the names of columns
        X, labels = noted._check_visit(X, y, task)
        record = self._learn_task(X, labels, task)
        root, rng = self._seeds()
        L, own = self._start(record.model, rng)
        codes = record.model.code(L, self.code_penalty)
        codes[: len(own)] = np.eye(self.n_components)[own]
        state = self._next_state({task: record}, {task: codes}, L)
        self.__dict__ = {**noted.__dict__, **state, "n_features_in_": X.shape[1], "_root": root}
        return self

    def _check_parameters(self) -> None:
        _check_number("n_components", self.n_components, 1, whole=True)
        _check_number("code_penalty", self.code_penalty, 0)
        for name in ("dictionary_penalty", "C"):
            _check_number(name, getattr(self, name), 0)
            if getattr(self, name) == 0:
                raise ValueError(f"{name} is 0: give a positive number")
        _check_choice("init", self.init, ("random", "tasks"))
        _check_choice("multi_class", self.multi_class, ("ovr", "binary"))
        _check_choice("solver", self.solver, ("auto", "direct", "cg"))

    def _check_visit(
        self, X: MatrixLike, y: LabelsLike, task: Hashable
    ) -> tuple[Matrix, list[Any]]:
        """Rows and labels of one visit, or an error that says what is wrong."""
        _check_name(task, "task")
        X = self._check_features(X).copy()
        labels = _labels(y)
        if len(labels) != X.shape[0]:
            raise ValueError(f"X has {X.shape[0]} rows and y {len(labels)} labels: give one each")
        if not labels:
            raise ValueError(f"X has 0 rows for task {task!r}: give at least one")
        _class_numbers(labels)  # names a row of this visit that has no label
        return X, labels

    def _check_features(self, X: MatrixLike) -> Matrix:
        """The rows in double precision, with the known columns."""
        if hasattr(self, "feature_names_in_"):
            validate_data(self, X, skip_check_array=True, reset=False)
        X = _check_rows(X)
        X = sparse.csr_array(X, dtype=float) if sparse.issparse(X) else np.asarray(X, dtype=float)
        known = getattr(self, "n_features_in_", X.shape[1])
        if X.shape[1] != known:
            raise ValueError(
                f"X has {X.shape[1]} features, but the earlier tasks have"
                f" {known}: all tasks share one dictionary"
            )
        return X

    def _learn_task(self, X: Matrix, labels: list[Any], task: Hashable) -> ELLATask:
        """The record of the task with all its rows, old and new."""
        old = getattr(self, "tasks_", {}).get(task)
        if old is not None:
            X = _stacked(old.model.X, X)
            labels = [*old.labels, *labels]
        classes, numbers = _sorted_classes(labels)
        if len(classes) < 2 or (len(classes) > 2 and self.multi_class == "binary"):
            raise ValueError(
                f"y of task {task!r} has {len(classes)} classes: give two, or use"
                " multi_class='ovr' for more"
            )
        targets = (numbers[:, None] == np.arange(len(classes))).astype(int)
        model = quadratic_model(X, targets if len(classes) > 2 else targets[:, 1:], self.C)
        return ELLATask(classes, labels, model, 1 + (old.n_visits if old else 0))

    def _seeds(self) -> tuple[Any, np.random.Generator]:
        """The root seed and the generator of this visit."""
        root = getattr(self, "_root", None)
        if root is None and self.random_state is None:
            root = np.random.SeedSequence().entropy
        elif root is None:  # a generator is read, not advanced
            root = int(copy.deepcopy(check_random_state(self.random_state)).randint(2**31))
        visit = sum(record.n_visits for record in getattr(self, "tasks_", {}).values())
        return root, np.random.default_rng([root, visit])

    def _start(self, model: QuadraticModel, rng: np.random.Generator) -> tuple[Floats, Indices]:
        """The dictionary with its zero columns filled, and the columns the problems own."""
        k = self.n_components
        (D, m) = model.theta.shape
        L = np.array(getattr(self, "dictionary_", np.zeros((D, k))))
        if L.shape[1] != k:
            raise ValueError(
                f"n_components is {k}, but dictionary_ has {L.shape[1]} columns: clone"
            )
        empty = np.flatnonzero(~L.any(axis=0))
        size = np.sqrt(np.mean(model.theta**2)) or 1.0
        L[:, empty] = size * rng.standard_normal((D, len(empty)))
        own = empty[:m] if self.init == "tasks" else empty[:0]
        L[:, own] = model.theta[:, : len(own)]
        return L, own

    def _next_state(
        self, new: dict[Hashable, ELLATask], new_codes: dict[Hashable, Floats], L: Floats
    ) -> dict[str, Any]:
        """The attributes once some tasks have new records and codes, as new objects."""
        tasks = {**getattr(self, "tasks_", {}), **new}
        codes = {**getattr(self, "codes_", {}), **new_codes}
        sums = self._next_sums(new, tasks, codes, L.shape)
        if sums is None:
            models = [record.model for record in tasks.values()]
            L = solve_dictionary(models, list(codes.values()), self.dictionary_penalty, L)
        else:
            L = sums.solve(self.dictionary_penalty)
        used = np.any(np.vstack(list(codes.values())), axis=0)
        return {"dictionary_": L * used, "codes_": codes, "tasks_": tasks, "sums_": sums}

    def _next_sums(
        self,
        new: dict[Hashable, ELLATask],
        tasks: dict[Hashable, ELLATask],
        codes: dict[Hashable, Floats],
        shape: tuple[int, ...],
    ) -> DictionarySums | None:
        """The running sums: old terms of the new records out, new terms in; or None."""
        large = shape[0] * shape[1] > 1000 or any(sparse.issparse(r.model.X) for r in new.values())
        if self.solver == "cg" or (self.solver == "auto" and large):
            return None
        sums = copy.deepcopy(getattr(self, "sums_", None))
        changed = tasks if sums is None else new
        sums = DictionarySums(*shape) if sums is None else sums
        for task in changed:
            if changed is new and task in self.tasks_:
                sums.add(self.tasks_[task].model, self.codes_[task], sign=-1)
            sums.add(tasks[task].model, codes[task])
        return sums

    def recode(self, n_sweeps: int = 1) -> Self:
        """Code all tasks again and solve for the dictionary, n_sweeps times.

        Not part of ELLA. Each sweep lowers `objective`; in the limit codes and dictionary are
        optimal for each other. Needs no rows beyond those that are kept.
        """
        _check_number("n_sweeps", n_sweeps, 0, whole=True)
        self._check_parameters()
        self._check_known(next(iter(getattr(self, "tasks_", {})), None))
        for _ in range(n_sweeps):
            L = self.dictionary_
            mu = self.code_penalty
            codes = {u: record.model.code(L, mu) for u, record in self.tasks_.items()}
            self.__dict__.update(self._next_state(self.tasks_, codes, L))
        return self

    def objective(self) -> float:
        """What ELLA minimises: the quadratics of all problems and the penalties, a float."""
        self._check_known(next(iter(getattr(self, "tasks_", {})), None))
        L = self.dictionary_
        S = self.codes_
        parts = [record.model.losses(L @ S[u].T) for u, record in self.tasks_.items()]
        codes = np.vstack(list(S.values()))
        loss = np.concatenate(parts) + self.code_penalty * np.abs(codes).sum(1)
        return float(np.mean(loss) + self.dictionary_penalty * np.sum(L * L))

    def _check_known(self, task: Hashable) -> None:
        if not getattr(self, "tasks_", None):
            raise NotFittedError("no task has been learned: call partial_fit(X, y, task=...)")
        try:
            known = task in self.tasks_
        except TypeError:
            raise TypeError(f"task={task!r} is not hashable: use a string or tuple") from None
        if not known:
            raise ValueError(f"task {task!r} is not known; known tasks: {list(self.tasks_)}")

    def __sklearn_is_fitted__(self) -> bool:
        return bool(getattr(self, "tasks_", None))

    def coefficients(self, task: Hashable) -> tuple[Floats, Floats]:
        """The classifier of a task now: coefficients (m, n_features), intercepts (m,)."""
        self._check_known(task)
        V = self.dictionary_ @ self.codes_[task].T
        return V.T, self.tasks_[task].model.intercepts(V)

    def decision_function(self, X: MatrixLike, *, task: Hashable) -> Floats:
        """Scores: (n,), positive for the second class, or (n, n_classes).

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n, n_features)
        task : hashable
            A known task.
        """
        coefficients, intercepts = self.coefficients(task)
        scores = safe_sparse_dot(self._check_features(X), coefficients.T) + intercepts
        return scores[:, 0] if scores.shape[1] == 1 else scores

    def predict(self, X: MatrixLike, *, task: Hashable) -> NDArray[Any]:
        """Labels of rows under the classifier of a task, shape (n,)."""
        scores = self.decision_function(X, task=task)
        numbers = (scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1)
        return self.tasks_[task].classes[numbers]

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
        """Accuracy on rows (n, n_features) of a task, a float in [0, 1]; a weighted mean."""
        return _hit_share(self.predict(X, task=task), y, sample_weight)

    def fit(self, X: MatrixLike, y: LabelsLike, *, tasks: Iterable[Hashable]) -> Self:
        """Forget everything and learn a table of rows, task by task.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
        tasks : sequence of length n_samples
            Task of each row. Tasks are learned in the order of their first row.

        Returns
        -------
        self
        """
        fresh = clone(self)
        for name, rows, labels in split_tasks(X, y, tasks):
            fresh.partial_fit(rows, labels, task=name)
        validate_data(fresh, X, skip_check_array=True)  # the names of columns
        parameters = self.get_params(deep=False)
        self.__dict__.update({k: v for k, v in fresh.__dict__.items() if k not in parameters})
        return self

    @property
    def state_parts_(self) -> dict[str, int]:
        """Bytes kept, by part: dictionary, codes, sums, models, rows."""
        self._check_known(next(iter(getattr(self, "tasks_", {})), None))
        models = [record.model for record in self.tasks_.values()]
        sums = self.sums_
        return {
            "dictionary": self.dictionary_.nbytes,
            "codes": sum(S.nbytes for S in self.codes_.values()),
            "sums": 0 if sums is None else sums.A.nbytes + sums.b.nbytes,
            "models": sum(m.theta.nbytes + m.weights.nbytes + m.centres.nbytes for m in models),
            "rows": sum(sum(part.nbytes for part in _parts(m.X)) for m in models),
        }


# book/baselines/ella.ipynb#the-class
def _parts(X: Matrix) -> tuple[NDArray[Any], ...]:
    """The arrays that hold the rows."""
    return (X.data, X.indices, X.indptr) if sparse.issparse(X) else (X,)


def _stacked(old: Matrix, new: Matrix) -> Matrix:
    """Old rows above new ones; CSR if either is."""
    if sparse.issparse(old) or sparse.issparse(new):
        return sparse.vstack([sparse.csr_array(old), sparse.csr_array(new)], format="csr")
    return np.vstack([old, new])
