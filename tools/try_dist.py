"""Try an installed ``lml``, away from the repository: ``make dist`` runs this."""

from __future__ import annotations

import pkgutil
from importlib import import_module
from pathlib import Path

import lml

ROOT = Path(__file__).resolve().parent.parent
package = Path(lml.__file__).resolve().parent
assert package != ROOT / "lml", "lml comes from the repository, not from the distribution"
assert (package / "py.typed").is_file(), "py.typed is missing"
names = [module.name for module in pkgutil.walk_packages(lml.__path__, "lml.")]
assert "lml.studies" not in names, "the laboratory is no part of the distribution"
for name in names:
    import_module(name)
X = [[0.0, 0.0], [0.0, 1.0], [5.0, 0.0], [5.0, 1.0]]
learner = lml.OASIS(n_steps=10, random_state=0).fit(X, [0, 0, 1, 1])
assert learner.transform(X).shape == (4, 2)
print(f"{package}: {len(names)} modules import")
