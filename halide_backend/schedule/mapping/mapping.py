"""Mapping: what is chosen from a program before its text is written, because the text depends on it."""

from __future__ import annotations

from collections.abc import Mapping as AbstractMapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from halide_backend.errors import IllegalPlan
from halide_backend.schedule.mapping.transposition import Transposition
from halide_backend.schedule.stage import Role
from halide_backend.schedule.tiling import Tiling, TilingKind


@dataclass(frozen=True)
class Mapping:
    """Which values of a program have Funcs of their own, and how its axes lie on the threads of a GPU.

    `funcs` are pairs of a value's position and the role of its Func; every other value is part of the expressions that
    use it. Reductions, outputs and the words of a GPU's vectors have Funcs in any case. `transposition` is how a CPU
    turns transposed operands, if there are any, `tuples` are the positions of reductions that share a Func, `joined` is
    whether all results share one, `narrow` the axis of columns beyond whose last one reductions take nothing, or "".
    `tiling` is None on a CPU, `loads` the cache hint of a GPU's loads as PTX spells it, `divisions` the forms of its
    quotients (`division.py`), `registers` how many registers a thread may have (`registers.py`), `rule` the name of the
    rule for CUDA that made the tiling and chooses the steps.
    """

    funcs: tuple[tuple[int, Role], ...] = ()
    tiling: Tiling | None = None
    loads: str = ""
    divisions: tuple[tuple[int, str], ...] = ()
    registers: str | float = "auto"
    rule: str = ""
    transposition: Transposition | None = None
    tuples: tuple[tuple[int, ...], ...] = ()
    joined: bool = False
    narrow: str = ""

    @property
    def roles(self) -> dict[int, Role]:
        """The role of each value that has a Func."""
        return dict(self.funcs)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON."""
        found: dict[str, Any] = {"funcs": {str(position): role.value for position, role in self.funcs}}
        if self.transposition is not None:
            found["transposition"] = asdict(self.transposition)
        if self.tuples:
            found["tuples"] = [list(group) for group in self.tuples]
        if self.joined:
            found["joined"] = True
        if self.narrow:
            found["narrow"] = self.narrow
        if self.tiling is not None:
            found["tiling"] = {f.name: _plain(getattr(self.tiling, f.name)) for f in fields(Tiling)}
            found["rule"] = self.rule
            found["loads"] = self.loads
            found["registers"] = self.registers
            found["divisions"] = {str(position): form for position, form in self.divisions}
        return found

    @staticmethod
    def from_json(document: AbstractMapping[str, Any]) -> Mapping:
        """The mapping that `to_json` wrote.

        Raises:
            IllegalPlan: it is none.
        """
        try:
            funcs = tuple((int(position), Role(role)) for position, role in document["funcs"].items())
            tiling = document.get("tiling")
            divisions = tuple((int(position), str(form)) for position, form in document.get("divisions", {}).items())
            registers = document.get("registers", "auto")
            tuples = tuple(tuple(map(int, group)) for group in document.get("tuples", ()))
            if tiling is None:
                turned = document.get("transposition")
                turning = Transposition(**turned) if turned else None
                joined, narrow = bool(document.get("joined")), str(document.get("narrow", ""))
                return Mapping(funcs, transposition=turning, tuples=tuples, joined=joined, narrow=narrow)
            return Mapping(
                funcs, _tiling(tiling), document["loads"], divisions, registers, document["rule"], tuples=tuples
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise IllegalPlan(f"not a mapping: {error!r}", where="mapping", cure="dump the plan again") from error


def _plain(value: Any) -> Any:
    return value.value if isinstance(value, TilingKind) else list(value) if isinstance(value, tuple) else value


def _tiling(document: AbstractMapping[str, Any]) -> Tiling:
    found: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in document.items()
    }
    return Tiling(**{**found, "kind": TilingKind(found["kind"])})
