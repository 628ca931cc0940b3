"""ELLA against brute force, explicit Kronecker products, scikit-learn and odd inputs."""

import copy
import itertools
import pickle
from dataclasses import replace

import numpy as np
import pytest
from scipy import optimize, sparse
from scipy.special import expit
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression

from lml.baselines.ella import (
    ELLA,
    DictionarySums,
    ELLAState,
    code_certificate,
    quadratic_model,
    solve_dictionary,
    sparse_code,
)

NAMES = ("paris", 42, ("a", 1))


def make_task(seed, n=30, D=7, classes=2):
    rng = np.random.default_rng(seed)
    y = np.arange(n) % classes
    return rng.normal(size=(classes, D))[y] + rng.normal(size=(n, D)), y


def learn(learner, names=NAMES, start=0, **shape):
    for number, name in enumerate(names, start=start):
        learner.partial_fit(*make_task(number, **shape), task=name)
    return learner


def make_model(seed=0, n=25, D=6, m=1, C=0.7):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, D)) + 0.5
    scores = X @ rng.normal(size=(D, m)) + rng.normal(size=(n, m))
    return quadratic_model(X, (scores > np.median(scores, axis=0)) + 0, C)  # never one class


def dense(records, codes, penalty):
    """A, b and the dictionary from explicit Kronecker products, with dense Hessians."""
    A = b = T = 0
    for record, S in zip(records, codes, strict=True):
        for c, s in enumerate(S):
            D = weighted_hessian(record.model, c)
            A = A + np.kron(np.outer(s, s), D)
            b = b + np.kron(s, D @ record.model.theta[:, c])
            T += 1
    L = np.linalg.solve(A / T + penalty * np.eye(len(b)), b / T)
    return A, b, L.reshape(len(codes[0][0]), -1).T


def weighted_hessian(model, c):
    """Half the Hessian of the loss profiled over the intercept, from the D + 1 variables."""
    X = model.X.toarray() if sparse.issparse(model.X) else model.X
    p = expit(X @ model.theta[:, c] + model.intercept[c])
    Z = np.column_stack([X, np.ones(len(X))])
    H = (Z.T * (p * (1 - p) / (2 * len(X)))) @ Z
    H[:-1, :-1] += model.ridge * np.eye(len(H) - 1)
    return H[:-1, :-1] - np.outer(H[:-1, -1], H[-1, :-1]) / H[-1, -1]


def same(a, b):
    assert list(a.tasks_) == list(b.tasks_)
    np.testing.assert_array_equal(a.dictionary_, b.dictionary_)
    for name in a.tasks_:
        np.testing.assert_array_equal(a.codes_[name], b.codes_[name])


def test_model_minimises_the_loss_and_is_its_second_order():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(40, 3)) + 1
    y = (X[:, 0] + rng.normal(size=40) > 1).astype(int)
    model = quadratic_model(X, y[:, None], C=0.2)

    def profile(theta):
        def loss(b):
            z = X @ theta + b
            return np.mean(np.logaddexp(0, z) - y * z)

        found = optimize.minimize_scalar(loss, bracket=(-2, 2), tol=1e-12)
        return found.fun + theta @ theta / (2 * 40 * 0.2)

    best = optimize.minimize(profile, np.zeros(3), options={"gtol": 1e-7})
    np.testing.assert_allclose(model.theta[:, 0], best.x, atol=1e-5)
    # second differences of the profile in some directions are those of the model
    for step in 0.02 * np.array([[1.0, -2.0, 0.5], [0.0, 1.0, 1.0], [2.0, 0.0, 0.3]]):
        around = [model.theta + sign * step[:, None] for sign in (1, -1)]
        bend = sum(profile(V[:, 0]) for V in around) - 2 * profile(model.theta[:, 0])
        np.testing.assert_allclose(sum(model.losses(V)[0] for V in around), bend, rtol=5e-3)


def test_products_with_the_hessian_and_intercepts():
    model = make_model(m=3)
    V = np.random.default_rng(2).normal(size=(6, 3))
    D = [weighted_hessian(model, c) for c in range(3)]
    np.testing.assert_allclose(model.curve(V), np.stack([D[c] @ V[:, c] for c in range(3)], 1))
    for c in range(3):
        np.testing.assert_allclose(model.hessian(c), D[c], atol=1e-14)
        e = model.theta[:, c] - V[:, c]
        np.testing.assert_allclose(model.losses(V)[c], e @ D[c] @ e)
        mean = np.average(model.X, axis=0, weights=model.weights[:, c])
        np.testing.assert_allclose(model.intercepts(V)[c], model.intercept[c] + mean @ e)


def test_sparse_rows_give_the_same_model():
    model = make_model(m=2)
    X = sparse.csr_array(model.X)
    targets = (model.X[:, :2] > 0.5) + 0
    a, b = quadratic_model(model.X, targets), quadratic_model(X, targets)
    V = np.random.default_rng(3).normal(size=(6, 2))
    np.testing.assert_allclose(a.curve(V), b.curve(V), atol=1e-4)
    np.testing.assert_allclose(b.hessian(1), weighted_hessian(b, 1), atol=1e-12)
    L = np.random.default_rng(4).normal(size=(6, 3))
    np.testing.assert_allclose(a.code(L, 0.01), b.code(L, 0.01), atol=1e-3)


@pytest.mark.parametrize("share", [0.0, 1e-6, 1e-3, 0.1, 0.5, 0.99, 1.01])
def test_code_by_brute_force(share):
    rng = np.random.default_rng(int(1000 * share))
    for _ in range(10):
        M = rng.normal(size=(7, 4))
        G, q = M.T @ M, M.T @ rng.normal(size=7)
        mu = share * 2 * np.abs(q).max()
        best = 0.0
        for signs in itertools.product((-1, 0, 1), repeat=4):
            on = np.flatnonzero(signs)
            if len(on):
                x = np.linalg.solve(G[np.ix_(on, on)], q[on] - mu / 2 * np.array(signs)[on])
                value = x @ G[np.ix_(on, on)] @ x - 2 * q[on] @ x + mu * np.abs(x).sum()
                best = min(best, value)
        s = sparse_code(G, q, mu)
        assert s @ G @ s - 2 * q @ s + mu * np.abs(s).sum() == pytest.approx(best, abs=1e-9)
        assert code_certificate(s, G, q, mu) < 1e-9 * np.abs(q).max()
        if share > 1:
            assert not s.any()


def test_code_with_parallel_and_zero_columns():
    rng = np.random.default_rng(5)
    for scale in (1e-6, 1.0, 1e6):
        M = scale * rng.normal(size=(9, 5))
        M[:, 1], M[:, 3] = -3 * M[:, 0], 0
        G, q = M.T @ M, M.T @ rng.normal(size=9)
        for mu in (1e-4 * np.abs(q).max(), 0.3 * np.abs(q).max()):
            s = sparse_code(G, q, mu)
            assert code_certificate(s, G, q, mu) < 1e-7 * np.abs(q).max()
            assert s[3] == 0
            assert abs(s[0]) < 1e-6 * np.abs(s).max()  # the longer of two parallel columns
    np.testing.assert_array_equal(sparse_code(np.zeros((3, 3)), np.zeros(3), 0.1), 0)


def test_certificate_is_zero_only_at_the_minimum():
    G, q = np.diag([1.0, 2.0]), np.array([3.0, 0.1])
    assert code_certificate(np.array([2.5, 0.0]), G, q, 1.0) == pytest.approx(0)
    assert code_certificate(np.array([3.0, 0.0]), G, q, 1.0) == pytest.approx(1)
    assert code_certificate(np.array([0.0, 0.0]), G, q, 1.0) == pytest.approx(5)


@pytest.mark.parametrize("D", [3, 6])
def test_both_solvers_by_kronecker_products(D):
    rng = np.random.default_rng(6)
    models = [make_model(seed, D=D, m=m) for seed, m in enumerate((1, 3, 2))]
    codes = [rng.normal(size=(m, 4)) * (rng.random((m, 4)) < 0.7) for m in (1, 3, 2)]
    records = [type("R", (), {"model": model}) for model in models]
    A, b, L = dense(records, codes, 0.01)
    sums = DictionarySums(D, 4)
    for model, S in zip(models, codes, strict=True):
        sums.add(model, S)
    np.testing.assert_allclose(sums.A, A, atol=1e-13)
    np.testing.assert_allclose(sums.b, b, atol=1e-13)
    assert sums.n_problems == 6
    np.testing.assert_allclose(sums.solve(0.01), L, atol=1e-10)
    found = solve_dictionary(models, codes, 0.01, rng.normal(size=(D, 4)))
    np.testing.assert_allclose(found, L, atol=1e-8)


def changed(learner, **parts):
    """A copy of a learner with another state: no visit leads to such a one."""
    other = copy.copy(learner)
    other._state = replace(learner._state, **parts)
    return other


def test_dictionary_is_stationary():
    learner = learn(ELLA(3, 1e-3, 1e-2, random_state=0), classes=3)
    L = learner.dictionary_
    for E in np.random.default_rng(7).normal(size=(6, *L.shape)):
        values = []
        for h in (1e-4, -1e-4):
            values.append(changed(learner, dictionary=L + h * E).objective())
        assert abs(values[0] - values[1]) / 2e-4 < 1e-8
        assert min(values) > learner.objective()


@pytest.mark.parametrize("solver", ["direct", "cg"])
@pytest.mark.parametrize("init", ["random", "tasks"])
def test_stream_with_returning_tasks_is_the_batch(solver, init):
    learner = ELLA(3, 3e-3, 1e-3, solver=solver, init=init, random_state=1)
    for number, name in enumerate((*NAMES, *NAMES[::-1], "new")):
        learner.partial_fit(*make_task(number, D=5, classes=2 + (name == 42)), task=name)
    A, b, L = dense(learner.tasks_.values(), list(learner.codes_.values()), 1e-3)
    np.testing.assert_allclose(learner.dictionary_, L, atol=1e-6)
    if solver == "direct":
        np.testing.assert_allclose(learner.sums_.A, A, atol=1e-13)
        np.testing.assert_allclose(learner.sums_.b, b, atol=1e-13)
        assert learner.sums_.n_problems == 6
    assert [record.n_visits for record in learner.tasks_.values()] == [2, 2, 2, 1]
    rows = [make_task(number, D=5) for number in (0, 5)]
    X, y = np.vstack([r[0] for r in rows]), np.concatenate([r[1] for r in rows])
    once = quadratic_model(X, y[:, None])
    np.testing.assert_allclose(learner.tasks_["paris"].model.theta, once.theta, atol=1e-7)


def test_a_returning_task_may_bring_a_new_class():
    learner = learn(ELLA(3, 1e-3, 1e-3, random_state=0))
    learner.partial_fit(*make_task(9, classes=3), task=42)
    assert learner.codes_[42].shape == (3, 3)
    assert learner.sums_.n_problems == 5
    assert learner.tasks_[42].classes.tolist() == [0, 1, 2]


def test_columns_that_lose_their_task_become_exactly_zero_and_are_filled_again():
    learner = ELLA(2, 1e-3, 1e-4, init="tasks", random_state=0)
    learner.partial_fit(*make_task(0), task="a").partial_fit(*make_task(1), task="b")
    assert learner.codes_["b"].tolist() == [[0.0, 1.0]]
    # as if b had moved over to a's column
    codes = learner.codes_ | {"b": np.array([[1.0, 0.0]])}
    learner = changed(learner, codes=codes, sums=None)
    learner.partial_fit(*make_task(2), task="a")
    unused = ~np.any(np.vstack(list(learner.codes_.values())), axis=0)
    assert not learner.dictionary_[:, unused].any()
    learner.partial_fit(*make_task(3), task="c")
    if unused.any():
        assert learner.dictionary_.any(axis=0).all()


@pytest.mark.parametrize("solver", ["direct", "cg"])
def test_a_large_penalty_empties_the_dictionary_and_life_goes_on(solver):
    learner = learn(ELLA(3, 100.0, 1e-3, solver=solver, random_state=0))
    assert not learner.dictionary_.any()
    X, y = make_task(0)
    p = learner.predict_proba(X, task="paris")
    np.testing.assert_allclose(p, p[:1].repeat(len(p), 0))  # the intercept alone
    learner.set_params(code_penalty=1e-4).partial_fit(X, y, task="again")
    assert learner.dictionary_.any()
    assert learner.score(X, y, task="again") > 0.7


@pytest.mark.parametrize("classes", [2, 3])
def test_without_penalties_it_is_logistic_regression(classes):
    m = 1 if classes == 2 else 3
    learner = learn(ELLA(3 * m, 0.0, 1e-12, init="tasks", random_state=0), classes=classes)
    for number, name in enumerate(NAMES):
        X, y = make_task(number, classes=classes)
        scores = learner.decision_function(X, task=name).reshape(len(X), -1)
        for c, score in enumerate(scores.T):
            alone = LogisticRegression(C=1.0, tol=1e-8).fit(X, y == (c if m > 1 else 1))
            np.testing.assert_allclose(score, alone.decision_function(X), atol=1e-4)


def test_classifiers_depend_on_the_product_of_the_penalties_only():
    a, found = 5.0, []
    first = learn(ELLA(1, init="tasks", random_state=0), NAMES[:1])
    # each atom is a part of the first classifier, whose code needs all: none is drawn anew
    start = first.coefficients(NAMES[0])[0].T * np.eye(3)[np.arange(7) % 3]
    for mu, lam, scale in ((2e-4, 1e-3, 1.0), (a * 2e-4, 1e-3 / a**2, a)):
        learner = ELLA(3, mu, lam, random_state=0)
        learner._state = ELLAState(n_features=7, root=0, dictionary=scale * start)
        found.append(learn(learner))
    for u in NAMES:
        np.testing.assert_allclose(*(one.coefficients(u)[0] for one in found), rtol=1e-5, atol=1e-8)


def test_coding_again_lowers_the_objective():
    learner = learn(ELLA(2, 1e-3, 1e-3, random_state=0), names=range(5))
    values = [learner.objective()]
    losses = []
    for u, record in learner.tasks_.items():
        (code,) = learner.codes_[u]
        (loss,) = record.model.losses(learner.dictionary_ @ code[:, None])
        losses.append(loss + 1e-3 * np.abs(code).sum())
    assert values[0] == pytest.approx(np.mean(losses) + 1e-3 * np.sum(learner.dictionary_**2))
    for _ in range(8):
        values.append(learner.recode().objective())
    assert np.all(np.diff(values) < 1e-12)
    assert values[-1] < values[0] - 1e-4
    A, _, L = dense(learner.tasks_.values(), list(learner.codes_.values()), 1e-3)
    np.testing.assert_allclose(learner.sums_.A, A, atol=1e-13)
    np.testing.assert_allclose(learner.dictionary_, L, atol=1e-9)


def test_rank_is_bounded_by_the_codes():
    learner = ELLA(4, 1e-5, 1e-4, random_state=0)
    for number in range(3):
        learner.partial_fit(*make_task(number), task=number)
        codes = np.vstack(list(learner.codes_.values()))
        rank = np.linalg.matrix_rank(learner.dictionary_, tol=1e-8)
        assert rank <= np.linalg.matrix_rank(codes) <= number + 1


def test_fit_is_the_stream():
    rng = np.random.default_rng(8)
    names = [NAMES[t] for t in rng.integers(3, size=90)]
    X, y = make_task(3, n=90)
    fitted = learn(ELLA(3, random_state=0), names=["gone"]).fit(X, y, tasks=names)
    stream = ELLA(3, random_state=0)
    for name in dict.fromkeys(names):
        rows = [i for i in range(90) if names[i] == name]
        stream.partial_fit(X[rows], y[rows], task=name)
    same(fitted, stream)
    before = pickle.dumps(vars(fitted))
    with pytest.raises(ValueError, match="classes"):
        fitted.fit(X[:2], [0, 0], tasks=["a", "a"])
    assert pickle.dumps(vars(fitted)) == before


@pytest.mark.parametrize(
    "labels",
    [["cat", "dog"], [True, False], [9, 7], ["B", "a"], [1, "1"], [2.5, -1.0], [(0,), "x"]],
)
def test_labels_of_any_type(labels):
    X, y = make_task(0)
    named = [labels[i] for i in y]
    learner = ELLA(2, random_state=0).partial_fit(X, named, task=0)
    plain = ELLA(2, random_state=0).partial_fit(X, y, task=0)
    back = {label: i for i, label in enumerate(labels)}
    predicted = learner.predict(X, task=0).tolist()
    assert [back[label] for label in predicted] == plain.predict(X, task=0).tolist()
    assert learner.score(X, named, task=0) == plain.score(X, y, task=0) > 0.7
    learner.partial_fit(X, named, task=0)
    assert len(learner.tasks_[0].classes) == 2


@pytest.mark.parametrize("classes", [2, 4])
def test_probabilities_and_decisions_agree(classes):
    learner = learn(ELLA(5, random_state=0), classes=classes)
    X, _ = make_task(1, classes=classes)
    p = learner.predict_proba(X, task=42)
    assert p.shape == (len(X), classes)
    np.testing.assert_allclose(p.sum(axis=1), 1)
    np.testing.assert_array_equal(p.argmax(axis=1), learner.predict(X, task=42))
    coefficients, intercepts = learner.coefficients(42)
    scores = learner.decision_function(X, task=42)
    np.testing.assert_allclose(
        scores.reshape(len(X), -1), X @ coefficients.T + intercepts, atol=1e-12
    )
    far = learner.predict_proba(-1e6 * X, task=42)
    assert np.isfinite(far).all()
    np.testing.assert_allclose(far.sum(axis=1), 1)


@pytest.mark.parametrize(
    "form",
    [np.float32, np.asfortranarray, lambda X: X[:, ::-1][:, ::-1], np.ndarray.tolist],
    ids=["float32", "fortran", "view", "list"],
)
def test_forms_of_rows(form):
    X, y = make_task(0)
    X = X.astype(np.float32).astype(float)
    plain = ELLA(2, random_state=0).partial_fit(X, y, task=0)
    given = form(X)
    keep = copy.deepcopy(given)
    other = ELLA(2, random_state=0).partial_fit(given, y, task=0)
    np.testing.assert_allclose(other.dictionary_, plain.dictionary_, atol=1e-9)
    np.testing.assert_array_equal(given, keep)


def test_rows_are_copied():
    X, y = make_task(0)
    learner = ELLA(2, random_state=0).partial_fit(X, y, task=0)
    X[:] = 0
    assert learner.tasks_[0].model.X.any()


def test_csr_rows_by_conjugate_gradients():
    rng = np.random.default_rng(9)
    X = sparse.random(40, 20_000, density=0.01, random_state=0, format="csr")
    y = rng.integers(3, size=40)
    learner = ELLA(3, 1e-4, 1e-5, random_state=0).partial_fit(X, y, task="wide")
    learner.partial_fit(X[:20], y[:20], task="again").partial_fit(X[20:], y[20:], task="again")
    assert learner.sums_ is None
    assert sparse.issparse(learner.tasks_["again"].model.X)
    assert learner.tasks_["again"].model.X.shape == (40, 20_000)
    assert learner.score(X, y, task="wide") > 0.6
    assert sum(learner.state_parts_.values()) < 20_000**2
    small = sparse.csr_array(make_task(0)[0])
    for way in ("auto", "direct"):
        a = ELLA(2, 1e-3, 1e-3, solver=way, random_state=0).partial_fit(
            small, make_task(0)[1], task=0
        )
        assert (a.sums_ is None) == (way == "auto")
        b = ELLA(2, 1e-3, 1e-3, random_state=0).partial_fit(*make_task(0), task=0)
        np.testing.assert_allclose(a.dictionary_, b.dictionary_, atol=1e-4)
    a.partial_fit(*make_task(1), task=0)  # dense rows below sparse ones
    assert a.tasks_[0].model.X.shape == (60, 7)


def test_up_to_a_thousand_numbers_are_solved_for_directly():
    for k, D in ((4, 250), (1, 1001)):
        learner = ELLA(k, random_state=0).partial_fit(*make_task(0, D=D), task="t")
        assert (learner.sums_ is None) == (k * D > 1000)


def test_state_parts():
    learner = learn(ELLA(3, random_state=0), classes=3)
    assert learner.state_parts_ == {
        "dictionary": 8 * 21,
        "codes": 8 * 27,
        "sums": 8 * (21**2 + 21),
        "models": 3 * 8 * (2 * 21 + 90),
        "rows": 3 * 8 * 210,
    }


@pytest.mark.parametrize("solver", ["direct", "cg"])
def test_a_forgotten_task_leaves_the_dictionary_of_the_others(solver):
    learner = learn(ELLA(3, 1e-3, 1e-2, solver=solver, random_state=0), classes=3)
    codes = learner.codes_
    learner.forget(42)
    assert list(learner.tasks_) == list(learner.codes_) == ["paris", ("a", 1)]
    for name in learner.tasks_:
        np.testing.assert_array_equal(learner.codes_[name], codes[name])
    A, _, L = dense(learner.tasks_.values(), list(learner.codes_.values()), 1e-2)
    np.testing.assert_allclose(learner.dictionary_, L, atol=1e-8)
    if solver == "direct":
        np.testing.assert_allclose(learner.sums_.A, A, atol=1e-13)
    with pytest.raises(ValueError, match="42 is not known"):
        learner.predict(np.zeros((1, 7)), task=42)
    learner.forget("paris").forget(("a", 1))
    with pytest.raises(NotFittedError):
        learner.objective()
    assert learner.state_nbytes_ == 0
    same(learn(learner), learn(ELLA(3, 1e-3, 1e-2, solver=solver, random_state=0)))


def spoiled(X, value):
    X[2, 1] = value
    return X


BAD = {
    "nan": (lambda X, y: (spoiled(X, np.nan), y, "t"), "X\\[2, 1\\]"),
    "inf": (lambda X, y: (spoiled(X, np.inf), y, "t"), "X\\[2, 1\\]"),
    "narrow": (lambda X, y: (X[:, :4], y, "t"), "4 features"),
    "short": (lambda X, y: (X, y[:-1], "t"), "29"),
    "one class": (lambda X, y: (X, 0 * y, "t"), "1 classes"),
    "none": (lambda X, y: (X[:0], y[:0], "t"), "0 samples"),
    "unhashable": (lambda X, y: (X, y, ["t"]), "not hashable"),
    "nan task": (lambda X, y: (X, y, float("nan")), "not equal"),
    "no label": (lambda X, y: (X, [None, *y[1:].tolist()], "t"), "None"),
}


@pytest.mark.parametrize("case", BAD)
@pytest.mark.parametrize("solver", ["direct", "cg"])
def test_bad_visits_leave_no_trace(case, solver):
    learner = learn(ELLA(3, solver=solver, random_state=0))
    before = pickle.dumps(vars(learner))
    change, said = BAD[case]
    X, y, task = change(*make_task(5))
    with pytest.raises((ValueError, TypeError), match=said):
        learner.partial_fit(X, y, task=task)
    assert pickle.dumps(vars(learner)) == before
    if case == "one class":  # all visits of the task together have two
        learner.partial_fit(X, y, task="paris")
        return
    with pytest.raises((ValueError, TypeError)):
        learner.partial_fit(X, y, task="paris" if task == "t" else task)
    assert pickle.dumps(vars(learner)) == before


@pytest.mark.parametrize(
    "wrong",
    [
        {"n_components": 0},
        {"n_components": 1.5},
        {"n_components": 4},
        {"code_penalty": -1},
        {"dictionary_penalty": 0},
        {"dictionary_penalty": np.inf},
        {"C": 0},
        {"C": "1"},
        {"init": "zeros"},
        {"multi_class": "ovo"},
        {"solver": "lu"},
    ],
)
def test_bad_parameters_leave_no_trace(wrong):
    learner = learn(ELLA(3, random_state=0)).set_params(**wrong)
    before = pickle.dumps(vars(learner))
    with pytest.raises((ValueError, TypeError), match=next(iter(wrong))):
        learner.partial_fit(*make_task(4), task="t")
    assert pickle.dumps(vars(learner)) == before


def test_binary_only_on_demand():
    learner = learn(ELLA(2, multi_class="binary", random_state=0))
    with pytest.raises(ValueError, match="3 classes"):
        learner.partial_fit(*make_task(0, classes=3), task="three")


def test_unknown_task_and_no_task():
    with pytest.raises(NotFittedError):
        ELLA().predict(np.zeros((1, 7)), task="paris")
    with pytest.raises(NotFittedError):
        ELLA().recode()
    learner = learn(ELLA(2, random_state=0))
    with pytest.raises(ValueError, match="'paris', 42"):
        learner.predict(np.zeros((1, 7)), task="rome")
    with pytest.raises(ValueError, match="5 features"):
        learner.predict(np.zeros((1, 5)), task="paris")
    with pytest.raises(ValueError, match="30"):
        learner.score(*make_task(0)[:1], [0, 1], task="paris")


@pytest.mark.parametrize("solver", ["direct", "cg"])
def test_extreme_rows(solver):
    X, y = make_task(0, n=12)
    constant = X.copy()
    constant[:, 2] = 4.0
    tripled = np.repeat(X, 3, axis=0), np.repeat(y, 3)
    for rows, labels in ((constant, y), tripled, (1e3 * X, y), (0 * X, y), (X[:2], y[:2])):
        learner = ELLA(3, solver=solver, random_state=0).partial_fit(rows, labels, task=0)
        assert np.isfinite(learner.dictionary_).all()
        assert np.isfinite(learner.decision_function(rows, task=0)).all()
    wide = make_task(0, n=6, D=50)
    assert (
        ELLA(3, solver=solver, random_state=0).partial_fit(*wide, task=0).score(*wide, task=0) > 0.9
    )


def test_score_weighs_the_rows():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(40, 3)), rng.integers(2, size=40)
    learner = ELLA(n_components=2, random_state=0).partial_fit(X[:20], y[:20], task="a")
    right = learner.predict(X[20:], task="a") == y[20:]
    weights = np.where(right, rng.integers(2, 5, size=20), rng.integers(0, 2, size=20))
    again = np.repeat(np.arange(20, 40), weights)
    expected = learner.score(X[again], y[again], task="a")
    assert learner.score(X[20:], y[20:], weights, task="a") == pytest.approx(expected)
    assert expected > learner.score(X[20:], y[20:], task="a")


def test_a_missing_label_of_a_second_visit_is_named_by_its_row_of_that_visit():
    X, y = np.random.default_rng(0).normal(size=(8, 3)), ["a", "b"] * 4
    learner = ELLA(n_components=2, random_state=0).partial_fit(X, y, task="t")
    with pytest.raises(ValueError, match=r"y\[2\] is None"):
        learner.partial_fit(X, ["a", "b", None, "b"] * 2, task="t")


def test_learning_leaves_the_global_seed_alone():
    np.random.seed(3)  # noqa: NPY002
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    X, y = np.random.default_rng(0).normal(size=(30, 3)), np.arange(30) % 3
    ELLA(n_components=2, random_state=0).partial_fit(X, y, task="t")
    np.testing.assert_array_equal(np.random.get_state()[1], before)  # noqa: NPY002


@pytest.mark.parametrize("solver", ["direct", "cg"])
@pytest.mark.parametrize("size", [1e3, 1e5, 1e8, 1e9, 1e20, 1e40, 1e50])
def test_samples_of_any_size_are_learned_or_refused_with_what_to_do(size, solver):
    refused = []
    for X, y in (make_task(number, D=5) for number in range(6)):
        try:  # a warning of a solver is an error in these tests
            ELLA(2, solver=solver, random_state=0).partial_fit(size * X, y, task="t")
        except ValueError as error:
            refused.append(str(error))
    assert all("rescale the samples, or " in said for said in refused)
    assert bool(refused) == (size > (1e20 if solver == "cg" else 1e6))


class Hasty(ELLA):
    """Another thread changes the state after each look at it."""

    @property
    def _state(self):
        states = vars(self)["states"]
        return states.pop(0) if len(states) > 1 else states[0]

    def __getstate__(self):  # a copy holds one state
        return {**vars(self), "states": [self._state]}


@pytest.mark.parametrize("name", ["decision_function", "predict", "predict_proba", "score"])
def test_a_reading_is_of_one_state(name):
    old = learn(ELLA(3, random_state=0))
    new = learn(ELLA(3, random_state=0), classes=3, D=5)  # other features, other classes
    given = make_task(0)[: 1 + (name == "score")]
    hasty = Hasty(3)
    hasty.states = [old._state, new._state]
    found, expected = (getattr(one, name)(*given, task=42) for one in (hasty, old))
    np.testing.assert_array_equal(found, expected)
