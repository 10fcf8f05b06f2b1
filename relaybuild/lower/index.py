"""Integer index arithmetic in a normal form that simplifies before it is printed; knows nothing of buffers or loops.

An `Index` is a polynomial over atoms: loop variables of known range, symbolic extents, quotients and remainders.
All values are non-negative where `//` and `%` are applied, so that C division is the mathematical one. The rules:

    (d*q + r) // d = q   and   (d*q + r) % d = r          for 0 <= r < d
    (e // a) // b = e // (a*b)        (e % (a*b)) % a = e % a
    c*d*(e // d) + c*(e % d) = c*e
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import TypeAlias

from relaybuild.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Axis:
    """A loop variable or a symbolic extent, with the largest value it takes where that is known (the least is 0)."""

    name: str
    last: int | None = None

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Quotient:
    """`value // divisor` that no rule simplified."""

    value: Index
    divisor: int

    def __str__(self) -> str:
        return self._text

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _text(self) -> str:
        return f"{self.value.as_factor()} / {self.divisor}"

    @cached_property
    def _hash(self) -> int:
        return hash((Quotient, self.value, self.divisor))


@dataclass(frozen=True)
class Remainder:
    """`value % divisor` that no rule simplified."""

    value: Index
    divisor: int

    def __str__(self) -> str:
        return self._text

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _text(self) -> str:
        return f"{self.value.as_factor()} % {self.divisor}"

    @cached_property
    def _hash(self) -> int:
        return hash((Remainder, self.value, self.divisor))


@dataclass(frozen=True, slots=True)
class Opaque:
    """An index that is read at run time, as C text of type ptrdiff_t."""

    text: str

    def __str__(self) -> str:
        return self.text


Atom: TypeAlias = Axis | Quotient | Remainder | Opaque
Monomial: TypeAlias = tuple[Atom, ...]
IndexLike: TypeAlias = "Index | int"


def _atom_key(atom: Atom) -> str:
    return f"{type(atom).__name__}:{atom}"


@dataclass(frozen=True)
class Index:
    """A polynomial: `terms` maps sorted products of atoms to non-zero coefficients, sorted; () is the constant."""

    terms: tuple[tuple[Monomial, int], ...]

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash(self.terms)

    @staticmethod
    def of(value: IndexLike | Axis) -> Index:
        """An index from a number, a variable or an index."""
        if isinstance(value, Index):
            return value
        if isinstance(value, Axis):
            return Index((((value,), 1),))
        return Index((((), int(value)),) if value else ())

    @staticmethod
    def opaque(text: str) -> Index:
        """An index that only C code knows."""
        return Index((((Opaque(text),), 1),))

    @cached_property
    def constant(self) -> int | None:
        """The value, where it is a number."""
        if not self.terms:
            return 0
        if len(self.terms) == 1 and self.terms[0][0] == ():
            return self.terms[0][1]
        return None

    @cached_property
    def upper(self) -> int | None:
        """The largest value, where it is known."""
        return self._bound(largest=True)

    @cached_property
    def lower(self) -> int | None:
        """The smallest value, where it is known."""
        return self._bound(largest=False)

    def _bound(self, largest: bool) -> int | None:
        total = 0
        for monomial, coefficient in self.terms:
            if (coefficient > 0) != largest and monomial:
                continue
            value = coefficient
            for atom in monomial:
                last = _last(atom)
                if last is None:
                    return None
                value *= last
            total += value
        return total

    def coefficient(self, axis: Axis) -> int | None:
        """The factor of `axis` where the index is linear in it and the factor is a number; None otherwise."""
        found = 0
        for monomial, coefficient in self.terms:
            if monomial == (axis,):
                found = coefficient
            elif any(_mentions(atom, axis) for atom in monomial):
                return None
        return found

    def mentions(self, axis: Axis) -> bool:
        """Whether `axis` occurs anywhere."""
        return any(_mentions(atom, axis) for monomial, _ in self.terms for atom in monomial)

    def axes(self) -> set[Axis]:
        """All variables that occur."""
        found: set[Axis] = set()
        pending = [atom for monomial, _ in self.terms for atom in monomial]
        while pending:
            atom = pending.pop()
            if isinstance(atom, Axis):
                found.add(atom)
            elif isinstance(atom, (Quotient, Remainder)):
                pending.extend(inner for monomial, _ in atom.value.terms for inner in monomial)
        return found

    def run_time_names(self) -> set[str]:
        """Names of the parts that are read at run time."""
        found: set[str] = set()
        pending = [atom for monomial, _ in self.terms for atom in monomial]
        while pending:
            atom = pending.pop()
            if isinstance(atom, Opaque):
                found.add(atom.text)
            elif isinstance(atom, (Quotient, Remainder)):
                pending.extend(inner for monomial, _ in atom.value.terms for inner in monomial)
        return found

    @cached_property
    def is_linear(self) -> bool:
        """Whether no quotient, remainder or product of variables was left."""
        return all(
            len(monomial) <= 1 and not any(isinstance(atom, (Quotient, Remainder)) for atom in monomial)
            for monomial, _ in self.terms
        )

    def substitute(self, values: Mapping[Axis, IndexLike]) -> Index:
        """The index with variables replaced, simplified anew."""
        if not values:
            return self
        total = Index(())
        for monomial, coefficient in self.terms:
            product = Index.of(coefficient)
            for atom in monomial:
                product = product * _substitute_atom(atom, values)
            total = total + product
        return total

    def __add__(self, other: IndexLike) -> Index:
        right = Index.of(other)
        if not right.terms or not self.terms:
            return self if self.terms else right
        return _from_terms([*self.terms, *right.terms])

    __radd__ = __add__

    def __sub__(self, other: IndexLike) -> Index:
        return self + Index.of(other) * -1

    def __rsub__(self, other: IndexLike) -> Index:
        return Index.of(other) + self * -1

    def __mul__(self, other: IndexLike) -> Index:
        right = Index.of(other)
        for index, factor in ((self, right.constant), (right, self.constant)):
            if factor is not None:
                # in normal form already
                return Index(tuple((monomial, each * factor) for monomial, each in index.terms) if factor else ())
        return _from_terms((tuple(sorted(a + b, key=_atom_key)), x * y) for a, x in self.terms for b, y in right.terms)

    __rmul__ = __mul__

    def __neg__(self) -> Index:
        return self * -1

    def __floordiv__(self, divisor: int) -> Index:
        quotient, rest = self._split(divisor)
        if _within(rest, divisor):
            return quotient
        return quotient + _quotient(rest, divisor)

    def __mod__(self, divisor: int) -> Index:
        _, rest = self._split(divisor)
        if _within(rest, divisor):
            return rest
        return _remainder(rest, divisor)

    def _split(self, divisor: int) -> tuple[Index, Index]:
        """(q, r) with self = divisor * q + r and r never negative; q takes the terms that are multiples of the divisor
        where that is known to leave such an r."""
        multiple: list[tuple[Monomial, int]] = []
        rest: list[tuple[Monomial, int]] = []
        for monomial, coefficient in self.terms:
            if coefficient % divisor == 0:
                multiple.append((monomial, coefficient // divisor))
            elif monomial == ():
                multiple.append(((), coefficient // divisor))
                rest.append(((), coefficient % divisor))
            else:
                rest.append((monomial, coefficient))
        quotient, remaining = _from_terms(multiple), _from_terms(rest)
        least = remaining.lower
        if least is None:
            return Index(()), self
        shift = max(0, -(least // divisor))
        return quotient - shift, remaining + shift * divisor

    def __str__(self) -> str:
        if not self.terms:
            return "0"
        text = ""
        for monomial, coefficient in sorted(self.terms, key=lambda term: term[0] == ()):
            sign = "-" if coefficient < 0 else "+"
            factors = [_factor(atom) for atom in monomial]
            if abs(coefficient) != 1 or not factors:
                factors.append(str(abs(coefficient)))
            body = " * ".join(factors)
            text += f" {sign} {body}" if text else (f"-{body}" if coefficient < 0 else body)
        return text

    def as_factor(self) -> str:
        """The C text, in parentheses where it is a sum or a product."""
        text = str(self)
        return f"({text})" if " " in text else text


def _factor(atom: Atom) -> str:
    text = str(atom)
    return f"({text})" if isinstance(atom, (Quotient, Remainder)) else text


def _last(atom: Atom) -> int | None:
    if isinstance(atom, Axis):
        return atom.last
    if isinstance(atom, Remainder):
        return atom.divisor - 1
    if isinstance(atom, Quotient):
        upper = atom.value.upper
        return None if upper is None else upper // atom.divisor
    return None


def _mentions(atom: Atom, axis: Axis) -> bool:
    if isinstance(atom, (Quotient, Remainder)):
        return atom.value.mentions(axis)
    return atom == axis


def _within(index: Index, divisor: int) -> bool:
    """Whether 0 <= index < divisor is known."""
    lower, upper = index.lower, index.upper
    return lower is not None and upper is not None and lower >= 0 and upper < divisor


def _quotient(value: Index, divisor: int) -> Index:
    if len(value.terms) == 1 and len(value.terms[0][0]) == 1 and value.terms[0][1] == 1:
        atom = value.terms[0][0][0]
        if isinstance(atom, Quotient):
            return atom.value // (atom.divisor * divisor)
        if isinstance(atom, Remainder) and atom.divisor % divisor == 0:
            return (atom.value // divisor) % (atom.divisor // divisor)
    return Index((((Quotient(value, divisor),), 1),))


def _remainder(value: Index, divisor: int) -> Index:
    if len(value.terms) == 1 and len(value.terms[0][0]) == 1 and value.terms[0][1] == 1:
        atom = value.terms[0][0][0]
        if isinstance(atom, Remainder) and atom.divisor % divisor == 0:
            return atom.value % divisor
    return Index((((Remainder(value, divisor),), 1),))


def _substitute_atom(atom: Atom, values: Mapping[Axis, IndexLike]) -> Index:
    if isinstance(atom, Axis):
        return Index.of(values.get(atom, Index.of(atom)))
    if isinstance(atom, Quotient):
        return atom.value.substitute(values) // atom.divisor
    if isinstance(atom, Remainder):
        return atom.value.substitute(values) % atom.divisor
    return Index((((atom,), 1),))


def _from_terms(terms: Iterable[tuple[Monomial, int]]) -> Index:
    sums: dict[Monomial, int] = {}
    for monomial, coefficient in terms:
        sums[monomial] = sums.get(monomial, 0) + coefficient
    _rejoin(sums)
    kept = [(monomial, coefficient) for monomial, coefficient in sums.items() if coefficient]
    kept.sort(key=lambda term: tuple(map(_atom_key, term[0])))
    return Index(tuple(kept))


def _rejoin(sums: dict[Monomial, int]) -> None:
    """Apply c*d*(e // d) + c*(e % d) = c*e, in place, until it applies nowhere."""
    changed = True
    while changed:
        changed = False
        for monomial, coefficient in list(sums.items()):
            for position, atom in enumerate(monomial):
                if not isinstance(atom, Remainder) or not coefficient:
                    continue
                others = monomial[:position] + monomial[position + 1 :]
                found = _matching_quotient(sums, atom, others, coefficient)
                if found is None:
                    continue
                partner, whole = found
                sums[monomial] -= coefficient
                sums[partner] -= coefficient * atom.divisor
                for inner, inner_coefficient in whole.terms:
                    key = tuple(sorted(inner + others, key=_atom_key))
                    sums[key] = sums.get(key, 0) + inner_coefficient * coefficient
                changed = True
                break
            if changed:
                break


def _matching_quotient(
    sums: Mapping[Monomial, int], atom: Remainder, others: Monomial, coefficient: int
) -> tuple[Monomial, Index] | None:
    """The monomial holding `atom.value // atom.divisor` with the coefficient the rule needs, and `atom.value`."""
    partner_index = atom.value // atom.divisor
    if len(partner_index.terms) != 1 or partner_index.terms[0][1] != 1:
        return None
    partner = tuple(sorted(partner_index.terms[0][0] + others, key=_atom_key))
    if sums.get(partner) == coefficient * atom.divisor:
        return partner, atom.value
    return None


def linearize(indices: Iterable[IndexLike], extents: Iterable[int]) -> Index:
    """The row-major position of `indices` in an array of `extents`."""
    total = Index.of(0)
    for position, extent in zip(indices, extents):
        total = total * extent + position
    return total


def delinearize(position: IndexLike, extents: Iterable[int]) -> list[Index]:
    """The indices of a row-major position in an array of `extents`; the inverse of `linearize`."""
    rest = Index.of(position)
    indices: list[Index] = []
    for extent in reversed(list(extents)):
        indices.append(rest % extent if extent > 1 else Index.of(0))
        rest = rest // extent if extent > 1 else rest
    return indices[::-1]
