"""Makes a package without a compiler: kernels as one image, the rest of the model as bytecode."""

from __future__ import annotations

import json
import platform
import shutil
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

import torch
from torch.utils import _pytree as pytree

from halide_backend.build.kernel_image import KernelImage, kernel_image
from halide_backend.build.loader import C_FUNCTIONS
from halide_backend.build.package_note import line
from halide_backend.build.processor import features
from halide_backend.build.target import Target
from halide_backend.cache_key import NAME
from halide_backend.capture.bound_pipeline import BoundPipeline
from halide_backend.capture.fx_wrapper import NAMES, PIPELINES
from halide_backend.capture.package_targets import package_targets
from halide_backend.errors import PackageError
from halide_backend.launch.model_runtime import runtime_functions
from halide_backend.packages.bytecode.aten_call import unknown
from halide_backend.packages.bytecode.instructions import FORMAT, encoded, fields, records
from halide_backend.packages.bytecode.library import library
from halide_backend.packages.bytecode.translation import Code, translated
from halide_backend.packages.replaced import replaced

#: torch looks for metadata by the name of the library.
_LIBRARY, _METADATA = "model.wrapper.so", "model.wrapper_metadata.json"
#: torch aligns the weights of a package so, in bytes.
_ALIGNMENT = 64
#: torch::aot_inductor::ConstantType.
_PARAMETER, _BUFFER, _TENSOR = 1, 2, 3


def package_without_compiler(exported_program: torch.export.ExportedProgram, path: str) -> None:
    """What `halide_backend.package_without_compiler` says."""
    model = library()
    if not path.endswith(".pt2"):
        raise PackageError("the name of a package ends with .pt2", where=path, cure="Choose another name.")
    with replaced(path) as unfinished, tempfile.TemporaryDirectory() as folder:
        files = _files(exported_program, model, Path(folder))
        from torch.export.pt2_archive._package import package_pt2

        package_pt2(unfinished, aoti_files={"model": [str(file) for file in files]})


def _files(exported: torch.export.ExportedProgram, model: Path, folder: Path) -> list[Path]:
    """Write all files of the package into `folder`."""
    targets = package_targets()
    if len(targets) > 1:
        raise unknown("kernels for several targets")
    ((level, target),) = targets.items()
    if target.architecture != Target.host().architecture:
        raise unknown(f"kernels for {target.architecture}")
    gm = _compiled(exported)
    pipelines = {node: node.meta[PIPELINES] for node in gm.graph.nodes if PIPELINES in node.meta}
    image = _image(pipeline for each in pipelines.values() for pipeline in each)
    code = translated(gm.graph, _input_names(exported), image.functions)
    _check_outputs(exported, gm)
    notes = "\n".join(line(node.args[0], [level or target.cpu], torch.__version__) for node in pipelines)
    constants, weights = _constants(gm)
    metadata = {"AOTI_DEVICE_KEY": "cpu", "AOTI_PLATFORM": sys.platform, "AOTI_MACHINE": platform.machine()}
    contents = {
        "model.bytecode": fields(("halide_backend bytecode", FORMAT, notes))
        + records((name, *numbers) for name, numbers in features(target))
        + _relocations(image)
        + fields(map(pytree.treespec_dumps, (exported.call_spec.in_spec, exported.call_spec.out_spec)))
        + fields((code.inputs, tuple(f"output{number}" for number in range(len(code.outputs)))))
        + constants
        + _code(code),
        "model.kernels": image.data,
        "model.weights": weights,
        _METADATA: json.dumps(metadata).encode(),
    }
    for file, content in contents.items():
        (folder / file).write_bytes(content)
    shutil.copy(model, folder / _LIBRARY)
    return [folder / _LIBRARY, *(folder / file for file in contents)]


def _compiled(exported: torch.export.ExportedProgram) -> torch.fx.GraphModule:
    """What Inductor makes of the program for its FX wrapper."""
    if exported.example_inputs is None:
        raise PackageError("the program has no example inputs", where="exported program", cure="Export it again.")
    arguments, named = exported.example_inputs
    # Assertions about alignment are lines of Python text, which no graph has.
    options = {"cpu_backend": NAME, "fx_wrapper": True, "alignment_asserts": False}
    gm = exported.module(check_guards=False)
    with torch.no_grad():
        compiled = torch._inductor.aot_compile(gm, arguments, named, options=options)
    assert isinstance(compiled, torch.fx.GraphModule)
    return compiled


def _input_names(exported: torch.export.ExportedProgram) -> tuple[str, ...]:
    # Parameters and buffers come first.
    names = [node.name for node in exported.graph.find_nodes(op="placeholder")]
    return tuple(names[len(names) - len(exported.graph_signature.user_inputs) :])


def _image(pipelines: Iterable[BoundPipeline]) -> KernelImage:
    objects = {pipeline.entry: pipeline.artifacts[0].object for pipeline in pipelines}
    image = kernel_image(objects.values())
    known = C_FUNCTIONS | runtime_functions()
    if outside := [name for name, _ in image.imports if name not in known]:
        raise unknown(f"a kernel calls {', '.join(outside)}")
    return image


def _check_outputs(exported: torch.export.ExportedProgram, gm: torch.fx.GraphModule) -> None:
    """Inductor's FX wrapper writes a view of another dtype as if it had the old one."""
    given, (wanted,) = gm.graph.output_node().args[0], exported.graph.output_node().args
    outputs = given if isinstance(given, (list, tuple)) else (given,)
    for output, original in zip(outputs, wanted[len(wanted) - len(outputs) :]):
        dtypes = [node.meta["val"].dtype for node in (output, original)]
        if dtypes[0] != dtypes[1]:
            raise unknown(f"an output is a view of {dtypes[0]} as {dtypes[1]}")


def _relocations(image: KernelImage) -> bytes:
    return encoded(image.executed) + records(image.imports) + records(image.pointers)


def _constants(gm: torch.fx.GraphModule) -> tuple[bytes, bytes]:
    """What the library has to know of each constant, in the order of the graph, and their bytes."""
    described, weights = [], bytearray()
    for node in gm.graph.find_nodes(op="get_attr"):
        tensor = node.meta["val"]
        if tensor.device.type != "cpu" or tensor.layout != torch.strided or tensor.is_quantized:
            raise unknown(f"the constant {node.target} is on {tensor.device}, with the layout {tensor.layout}")
        name = node.target
        kind = _TENSOR if name.startswith("_tensor_constant") else _BUFFER
        kind = _PARAMETER if isinstance(tensor, torch.nn.Parameter) else kind
        storage = tensor.untyped_storage()
        size = -(-storage.nbytes() // _ALIGNMENT) * _ALIGNMENT
        shape, strides = tuple(tensor.shape), tuple(tensor.stride())
        dtype = str(tensor.dtype).removeprefix("torch.")
        where = (tensor.storage_offset(), size, kind, shape, strides)
        described.append((name, gm.meta[NAMES][name], dtype, *where))
        data = torch.empty(0, dtype=torch.uint8).set_(storage).numpy().tobytes()
        weights += data.ljust(size, b"\0")
    return records(described), bytes(weights)


def _code(code: Code) -> bytes:
    return fields((len(code.inputs), code.tensors, code.sizes)) + encoded(code.instructions) + encoded(code.outputs)
