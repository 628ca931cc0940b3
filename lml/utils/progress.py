# Generated from book/large.ipynb by tools/tangle.py: edit the chapter.
"""A bar that shows how far a fit has come."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["progress"]


# book/large.ipynb#a-fit-that-says-how-far-it-is
@contextmanager
def progress(name: str, total: int, verbose: bool) -> Iterator[Callable[[int], object]]:
    """Show a bar while a fit runs, if it is to be verbose.

    Parameters
    ----------
    name : str
        What the bar is called.
    total : int
        Number of steps of the whole fit.
    verbose : bool
        Whether a bar is shown. Without one tqdm is not imported.

    Yields
    ------
    advance : callable
        ``advance(n)`` says that so many steps more are done.

    Raises
    ------
    ModuleNotFoundError
        If a bar is to be shown and tqdm is not installed.

    Examples
    --------
    >>> with progress("LMNN", 10, verbose=False) as advance:
    ...     advance(1)
    """
    if not verbose:
        yield lambda n: None
        return
    try:
        from tqdm import tqdm
    except ModuleNotFoundError:
        said = "verbose=True shows a bar of tqdm: install it, or this package's extra progress"
        raise ModuleNotFoundError(said) from None
    with tqdm(total=total, desc=name) as bar:
        yield bar.update
