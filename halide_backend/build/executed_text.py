"""A kernel's text as Python runs it: its pipeline, and what it declares about itself."""

from __future__ import annotations

import linecache
import math
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import halide as hl

from halide_backend.errors import HalideCompileError, IllegalPlan, KernelTextError

#: What to do about a schedule that Halide refuses.
REFUSED = "Correct the schedule in the kernel's text, or delete the text to have it made anew."
_INVALID = "A kernel text defines ARGUMENTS and pipeline() -> (inputs, outputs); compare it with the original."

#: Registers that a thread can have.
_MOST_REGISTERS = 255


class ExecutedText:
    """A kernel's text, executed in a namespace of its own; `name` is for messages and tracebacks."""

    def __init__(self, text: str, name: str) -> None:
        self.name = name
        self._file = f"<halide kernel {name}>"
        lines = text.splitlines(keepends=True)
        linecache.cache[self._file] = (len(text), None, lines, self._file)
        self.namespace: dict[str, Any] = {"__name__": f"halide_kernel_{name}"}
        with self.errors_located():
            exec(compile(text, self._file, "exec"), self.namespace)

    def pipeline(self) -> tuple[list[Any], list[Any]]:
        """Call the text's pipeline() and check what it returns."""
        for required in ("ARGUMENTS", "pipeline"):
            if required not in self.namespace:
                raise self._invalid(f"the text does not define {required}")
        with self.errors_located():
            returned = self.namespace["pipeline"]()
        if not (
            isinstance(returned, tuple)
            and len(returned) == 2
            and all(isinstance(part, (list, tuple)) for part in returned)
        ):
            raise self._invalid("pipeline() did not return a pair of lists (inputs, outputs)")
        inputs, outputs = (list(part) if isinstance(part, (list, tuple)) else [] for part in returned)
        for item in inputs:
            if not isinstance(item, (hl.ImageParam, hl.Param)):
                raise self._invalid(f"pipeline() returned the input {item!r}, not a parameter")
        for item in outputs:
            if not isinstance(item, hl.Func):
                raise self._invalid(f"pipeline() returned the output {item!r}, not a Func")
        if not outputs:
            raise self._invalid("pipeline() returned no outputs")
        return inputs, outputs

    def manifest(self, inputs: list[Any], outputs: list[Any]) -> dict[str, Any]:
        """What the launcher must know, as plain JSON.

        "arguments" holds one description per argument of the entry, "checks" what each element of
        the status buffer means, "release_gil" whether the call is long enough to let others run.

        Raises:
            KernelTextError: ARGUMENTS do not fit what pipeline() returned. A launcher that trusted
                them would read wild memory.
        """
        declared = self.namespace["ARGUMENTS"]
        arguments = [argument.to_json() for argument in declared]
        if "ALIGNED" in self.namespace:
            for argument in arguments:
                argument["device"] = "cuda"
                # What begins at an offset is moved in as many bytes as divide it (VectorAccess.of_output).
                vector = math.gcd(16, argument.get("offset", 0))
                argument["alignment"] = vector if argument["name"] in self.namespace["ALIGNED"] else 1
        checks = [
            {"error": error, "message": message}
            for argument in declared
            for error, message in getattr(argument, "checks", ())
        ]
        shapes = [0 if isinstance(item, hl.Param) else item.dimensions() for item in inputs]
        shapes += [func.dimensions() for func in outputs for _ in range(func.outputs())]
        names = [item.name() for item in inputs]
        names += [func.name() for func in outputs for _ in range(func.outputs())]
        if len(shapes) != len(arguments):
            raise self._invalid(
                f"ARGUMENTS has {len(arguments)} entries, but pipeline() returned {len(inputs)} "
                f"inputs and {len(shapes) - len(inputs)} outputs"
            )
        order = [argument["name"] for argument in arguments]
        for argument, dimensions, name in zip(arguments, shapes, names, strict=True):
            told = {"buffer": len(argument.get("dims", ())), "status": 1}.get(argument["kind"], 0)
            if told != dimensions:
                raise self._invalid(
                    f"the argument {argument['name']!r} is declared with {told} dimensions, but "
                    f"has {dimensions} in pipeline()"
                )
            # Halide adds $1 and so on to a name that it has seen before; all elements of a Tuple have its Func's name.
            if (actual := name.split("$")[0]) != argument["name"] and actual in order and names.count(name) == 1:
                raise self._invalid(f"pipeline() returned {actual!r} in the place of {argument['name']!r}")
        return {
            "arguments": arguments,
            "checks": checks,
            "release_gil": bool(self.namespace.get("RELEASE_GIL", True)),
        }

    def variant(self) -> ExecutedText | None:
        """The text's `VARIANT`: another text, with the same arguments, for calls with the sizes `SIZES`. None without.

        Raises:
            KernelTextError: it has other arguments, or `SIZES` names none of them.
        """
        if "VARIANT" not in self.namespace:
            return None
        variant = ExecutedText(self.namespace["VARIANT"], f"{self.name}, VARIANT")
        if _named(self.namespace["ARGUMENTS"]) != _named(variant.namespace.get("ARGUMENTS", ())):
            raise self._invalid("VARIANT has other ARGUMENTS")
        self.variant_numbers()
        return variant

    def variant_numbers(self) -> dict[int, int]:
        """What arguments are in calls that `VARIANT` is for, by their positions.

        Raises:
            KernelTextError: as `variant`.
        """
        positions = {name: position for position, (_, name) in enumerate(_named(self.namespace["ARGUMENTS"]))}
        sizes = self.namespace.get("SIZES")
        if not isinstance(sizes, dict) or not sizes or not sizes.keys() <= positions.keys():
            raise self._invalid(f"SIZES is {sizes!r}, not numbers by the names of sizes")
        return {positions[name]: int(number) for name, number in sizes.items()}

    def registers(self) -> str | float:
        """`REGISTERS` of a text, as `ptxas.assemble` takes it.

        Raises:
            KernelTextError: it is anything else.
        """
        registers = self.namespace.get("REGISTERS", "auto")
        number = type(registers) is int and 0 < registers <= _MOST_REGISTERS
        part = type(registers) is float and 0 < registers < 1
        if registers != "auto" and not number and not part:
            raise KernelTextError(
                f"REGISTERS is {registers!r}",
                where=f"kernel {self.name}",
                cure=f'Use "auto", a number from 1 to {_MOST_REGISTERS}, or a part of the registers between 0 and 1.',
            )
        limit: str | float = registers
        return limit

    @contextmanager
    def errors_located(self) -> Iterator[None]:
        """Turn whatever goes wrong into a typed error that names the kernel and the line."""
        try:
            yield
        except hl.HalideError as error:
            what = str(error).strip().removeprefix("Error: ")
            raise HalideCompileError(what, where=self._place(error), cure=REFUSED) from error
        except IllegalPlan as error:
            raise IllegalPlan(error.what, where=f"kernel {self.name}, {error.where}", cure=error.cure) from error
        except MemoryError:
            raise
        except (Exception, SystemExit) as error:
            what = f"{type(error).__name__}: {error}"
            raise KernelTextError(what, where=self._place(error), cure=_INVALID) from error

    def _place(self, error: BaseException) -> str:
        frames = traceback.extract_tb(error.__traceback__)
        numbers = [frame.lineno for frame in frames if frame.filename == self._file]
        if isinstance(error, SyntaxError) and error.filename == self._file:
            numbers.append(error.lineno)
        if not numbers or numbers[-1] is None:
            return f"kernel {self.name}"
        line = linecache.getline(self._file, numbers[-1]).strip()
        return f"kernel {self.name}, line {numbers[-1]} ({line})"

    def _invalid(self, what: str) -> KernelTextError:
        return KernelTextError(what, where=f"kernel {self.name}", cure=_INVALID)


def _named(arguments: Iterable[Any]) -> list[tuple[type, str]]:
    """The kind and the name of each argument; a status has no name."""
    return [(type(argument), getattr(argument, "name", "")) for argument in arguments]
