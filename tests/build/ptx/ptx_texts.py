"""Pieces of PTX as the compiler writes them."""

from __future__ import annotations


def kernel(body: str, before: str = "", name: str = "k") -> str:
    """A module with one kernel of the statements `body`; `before` stands in front of it."""
    return f".version 7.1\n.target sm_80\n.address_size 64\n\n{before}.visible .entry {name}(\n)\n{{\n{body}\n}}\n"


def call(function: str, result: str, *arguments: str, bits: int = 32) -> str:
    """The call of `function` with registers or constants, all of `bits` bits."""
    passed = "".join(
        f"\t.param .b{bits} \tparam{k};\n\tst.param.b{bits} \t[param{k}], {argument};\n"
        for k, argument in enumerate(arguments)
    )
    names = ", ".join(f"param{k}" for k in range(len(arguments)))
    return (
        f"\t{{ // callseq 0, 0\n{passed}\t.param .b{bits} \tretval0;\n\tcall.uni (retval0), {function}, ({names});\n"
        f"\tld.param.b{bits} \t{result}, [retval0];\n\t}} // callseq 0\n"
    )


def declaration(function: str) -> str:
    """What the compiler writes of a function of one argument that is defined elsewhere."""
    return f".extern .func  (.param .b32 func_retval0) {function}\n(\n\t.param .b32 {function}_param_0\n)\n;\n"
