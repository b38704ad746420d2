"""Einsum by transposition, MatMul and sums."""

from __future__ import annotations

from collections.abc import Sequence
from string import ascii_letters

import numpy as np

from convert.lowering.rules.elementwise import greatest
from convert.lowering.site import Refuse, Site, room_for
from convert.lowering.table import down

Term = tuple[str, str]
"""A value and one letter per dimension."""


@down("Einsum", version=12)
def einsum_by_matmul(site: Site) -> None:
    """Two terms at a time."""
    terms, result = parse(site.attr("equation"), [site.rank(name) for name in site.node.input])
    values = [_diagonal(site, name, letters) for name, letters in zip(site.node.input, terms, strict=True)]
    while len(values) > 1:
        left, right = values[0], values[1]
        later = set(result).union(*(letters for _, letters in values[2:]))
        values = [_product(site, left, right, later), *values[2:]]
    name, letters = _summed(site, values[0], set(result))
    order = [letters.index(letter) for letter in result]
    if order != list(range(len(order))):
        name = site.op("Transpose", name, perm=order)
    site.end_as(name)


def parse(equation: str, ranks: Sequence[int]) -> tuple[list[str], str]:
    """One letter per dimension of every input, and of the result; an ellipsis gets letters of its own."""
    equation = equation.replace(" ", "")
    left, arrow, right = equation.partition("->")
    terms = left.split(",")
    if len(terms) != len(ranks):
        raise Refuse(f"the equation '{equation}' has {len(terms)} terms for {len(ranks)} inputs")
    spare = [letter for letter in ascii_letters if letter not in equation]
    widths = [rank - len(t.replace("...", "")) if "..." in t else 0 for t, rank in zip(terms, ranks, strict=True)]
    dots = spare[: max(widths, default=0)]
    full = [t.replace("...", "".join(dots[len(dots) - w :])) for t, w in zip(terms, widths, strict=True)]
    if any(len(t) != rank for t, rank in zip(full, ranks, strict=True)):
        raise Refuse(f"the equation '{equation}' does not fit the ranks of the inputs")
    if arrow:
        return full, right.replace("...", "".join(dots))
    letters = "".join(full)
    once = sorted(letter for letter in set(letters) if letters.count(letter) == 1 and letter not in dots)
    return full, "".join([*dots, *once])


def _diagonal(site: Site, name: str, letters: str) -> Term:
    """Dimensions of one letter twice become one: by sums against a unit matrix."""
    while len(set(letters)) < len(letters):
        letter = next(x for x in letters if letters.count(x) > 1)
        first = letters.index(letter)
        second = letters.index(letter, first + 1)
        size = site.scope.shape(name)
        count = size[first] if size is not None else None
        if count is None:
            raise Refuse("a diagonal needs a fixed size")
        order = [i for i in range(len(letters)) if i not in (first, second)] + [first, second]
        turned = site.op("Transpose", name, perm=order)
        room_for(count, count)
        unit = site.cast(site.tensor(np.eye(count, dtype=np.float32)), site.dtype(site.inp(0)))
        name = site.reduce("ReduceSum", site.op("Mul", turned, unit), [-1], keepdims=0)
        letters = "".join(letters[i] for i in order[:-1])
        if len(set(letters)) < len(letters):
            raise Refuse("several diagonals in one input")
    return name, letters


def _summed(site: Site, term: Term, kept: set[str]) -> Term:
    name, letters = term
    axes = [i for i, letter in enumerate(letters) if letter not in kept]
    if axes:
        name = site.reduce("ReduceSum", name, axes, keepdims=0)
    return name, "".join(letter for letter in letters if letter in kept)


def _product(site: Site, left: Term, right: Term, later: set[str]) -> Term:
    """Two terms: letters in both are rows of a batch where needed later, else summed over by MatMul."""
    left = _summed(site, left, later | set(right[1]))
    right = _summed(site, right, later | set(left[1]))
    both = [letter for letter in left[1] if letter in right[1]]
    batch = [letter for letter in both if letter in later]
    inner = [letter for letter in both if letter not in later]
    rows = [letter for letter in left[1] if letter not in both]
    columns = [letter for letter in right[1] if letter not in both]
    if not inner:
        return _spread_product(site, left, right, [*batch, *rows, *columns])
    one = _matrix(site, left, batch, rows, inner)
    two = _matrix(site, right, batch, inner, columns)
    name = site.op("MatMul", one, two)
    sizes = [greatest(site, _size(site, left, letter), _size(site, right, letter)) for letter in batch]
    sizes += [_size(site, left, letter) for letter in rows] + [_size(site, right, letter) for letter in columns]
    shape = site.op("Concat", *sizes, axis=0) if sizes else site.tensor_of_no_dims()
    return site.op("Reshape", name, shape), "".join([*batch, *rows, *columns])


def _size(site: Site, term: Term, letter: str) -> str:
    shape = site.op("Shape", term[0])
    return site.op("Gather", shape, site.longs(term[1].index(letter)), axis=0)


def _matrix(site: Site, term: Term, batch: list[str], first: list[str], second: list[str]) -> str:
    """A term as [batch…, first, second], the two groups each in one dimension."""
    name, letters = term
    order = [letters.index(letter) for letter in (*batch, *first, *second)]
    if order != list(range(len(order))):
        name = site.op("Transpose", name, perm=order)
    if len(first) == len(second) == 1:
        return name
    sizes = [_size(site, term, letter) for letter in batch]
    for group in (first, second):
        size = site.longs(1)
        for letter in group:
            size = site.op("Mul", size, _size(site, term, letter))
        sizes.append(size)
    return site.op("Reshape", name, site.op("Concat", *sizes, axis=0))


def _spread_product(site: Site, left: Term, right: Term, letters: list[str]) -> Term:
    """No letter is summed over: an outer product by broadcasting."""
    sides = []
    for name, own in (left, right):
        present = [letter for letter in letters if letter in own]
        order = [own.index(letter) for letter in present]
        turned = site.op("Transpose", name, perm=order) if order != list(range(len(order))) else name
        missing = [i for i, letter in enumerate(letters) if letter not in own]
        sides.append(site.unsqueeze(turned, *missing) if missing else turned)
    return site.op("Mul", *sides), "".join(letters)
