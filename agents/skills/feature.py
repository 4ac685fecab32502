"""What is known of an answer, as named features: of its problem, of its source, of how it ran. Deterministic.

Features of text are read off its syntax or its words, and are as good as that; features of a run are those that an
agent may be told (see `kbenv.profile`): of an answer that is not right there are none but its status.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence

from kbenv.backends import find_backend
from kbenv.feedback import is_hidden
from kbenv.machine_code import MULTIPROCESSORS, KernelCode, Occupancy, occupancy
from kbenv.problems.problem import parse_source
from kbenv.profile import MOST_LAUNCHES, Counters, Roof, code_of, counters_of, find_limit, list_kernels, measure_roof
from kbenv.provenance import defined_kernels, detect_backend
from kbenv.verdict import Status, Verdict

Feature = bool | int | float | str
Features = Mapping[str, Feature]

_ELEMENTWISE = frozenset({
    "relu", "gelu", "silu", "sigmoid", "tanh", "exp", "log", "sqrt", "rsqrt", "abs", "pow", "square", "mul", "add",
    "sub", "div", "clamp", "where", "masked_fill", "softplus", "hardtanh", "leaky_relu", "mish", "elu", "neg",
    "reciprocal",
})  # fmt: skip
_REDUCTIONS = frozenset({
    "softmax", "log_softmax", "sum", "mean", "amax", "amin", "max", "min", "argmax", "argmin", "norm", "var", "std",
    "logsumexp", "layer_norm", "rms_norm", "group_norm", "batch_norm", "cumsum", "LayerNorm", "GroupNorm",
    "BatchNorm2d", "RMSNorm",
})  # fmt: skip
_PRODUCTS = frozenset({
    "matmul", "mm", "bmm", "linear", "addmm", "baddbmm", "einsum", "scaled_dot_product_attention",
})  # fmt: skip
_CONVOLUTIONS = re.compile(r"\b(?:nn\.Conv|F\.conv|torch\.conv|conv\d?d)", re.IGNORECASE)
_CUDA_WORDS = {
    "vector_access": r"\b(?:float[24]|int4|uint4|double2|half2|__nv_bfloat162)\b",
    "shared_memory": r"__shared__",
    "barriers": r"__syncthreads\(",
    "shuffles": r"__shfl\w*\(|__reduce_\w+_sync\(",
    "atomics": r"\b(?:atomic[A-Z]\w*|tl\.atomic_\w+)\s*\(",
    "double": r"\bdouble\b|(?<![\w.])(?:erf|exp|sqrt|tanh|log|pow)\(",
    "chunks": r"threadIdx\.x\)\s*\*\s*\d+",
    "serial_rows": r"\brow = blockIdx\.x \* blockDim\.x \+ threadIdx\.x",
    "column_reads": r"\w+\[(?:x|tx|threadIdx\.x)\]\[(?:i|k|t|kk)\]",
    "padded": r"__shared__[^;]*\[(?:17|33|65|129)\]",
    "register_tile": r"\b\w+\[\d+\]\[\d+\]\s*=\s*\{",
    "tensor_cores": r"\bwmma::|\bmma\.sync|\bwgmma\b|mma_sync",
}
"""Of a thread's C++, by feature."""
_C_WORDS = {
    "library_functions": r"\b(?:expf|erff|tanhf|logf|powf)\(",
    "strided_loop": r"for \(\w+ (\w+) = [^)]*\)[^;{]*\w+ \+= [^;]*\[\1 \* ",
    "register_sums": r"\bsums\[\w+\](?:\[\w+\])? \+= \w+\[[^;]*\* ",
    "lanes": r"\bLANES\b",
}
"""Of C for a CPU."""
USUAL_THREADS = 256


def problem_features(source: str) -> dict[str, Feature]:
    """Of a reference's source: kinds of operations, their number, and the sizes of its first input."""
    try:
        tree = parse_source(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return {}
    names = list(_operations(tree))
    products = sum(name in _PRODUCTS or name == "@" or name == "Linear" for name in names)
    features: dict[str, Feature] = {
        "problem.products": products,
        "problem.convolutions": len(_CONVOLUTIONS.findall(source)),
        "problem.elementwise": sum(name in _ELEMENTWISE or name in ("+", "*", "/", "-") for name in names),
        "problem.reduction": any(name in _REDUCTIONS for name in names),
        "problem.normalisation": any("norm" in name.lower() for name in names) or {"mean", "rsqrt"} <= set(names),
        "problem.softmax": "softmax" in names,
        "problem.attention": ("softmax" in names and products >= 2) or "scaled_dot_product_attention" in names,
    }
    if shape := _first_input(tree):
        features["problem.row_length"] = shape[-1]
        features["problem.rows"] = _product(shape[:-1])
    return features


def source_features(source: str) -> dict[str, Feature]:
    """Of an answer's source: its backend, what its kernels use, and what it leaves to PyTorch's operators."""
    name = detect_backend(source)
    backend = find_backend(name)
    dialect = backend.dialect if backend is not None else None
    features: dict[str, Feature] = {"source.backend": name, "source.kernels": _count_kernels(source)}
    features |= _forward_features(source)
    if dialect == "threads":
        features |= {f"source.{name}": bool(re.search(word, source)) for name, word in _CUDA_WORDS.items()}
        features["source.own_product"] = bool(re.search(r"\+= [^;]*\w\[[^;]*\* ?[^;]*\w\[|\+= p\[\w\] \* q\[", source))
        features["source.threads"] = _threads(source)
    if dialect == "tiles":
        features |= _triton_features(source)
    if dialect == "loops":
        features |= {f"source.{name}": bool(re.search(word, source)) for name, word in _C_WORDS.items()}
        features["source.optimised"] = "-O3" in source and "-march=native" in source
        features["source.whole_passes"] = len(re.findall(r"for \(\w+ \w+ = 0; \w+ < rows(?: \* columns)?;", source))
    return features


def profile_features(verdict: Verdict, source: str) -> dict[str, Feature]:
    """Of a run, as far as an agent may know it."""
    if is_hidden(verdict):
        return {"profile.status": Status.WRONG_HIDDEN.value}
    features: dict[str, Feature] = {"profile.status": verdict.status.value}
    if verdict.status not in (Status.PASSED, Status.NO_CUSTOM_KERNEL):
        return features
    if verdict.speedup is not None:
        features["profile.speedup"] = verdict.speedup.value
    if (roof := measure_roof(verdict)) is not None:
        features |= roof_features(roof)
    if verdict.memory is not None:
        features["profile.memory_ratio"] = verdict.memory.ratio
    if verdict.provenance is not None:
        rows = list_kernels(verdict.provenance, source)
        shares = {kind: sum(row.percent for row in rows if row.kind == kind) / 100 for kind in ("library", "copy")}
        elementwise = sum(row.percent for row in rows if row.kind == "library" and "elementwise" in row.name) / 100
        features |= {
            "profile.library_share": shares["library"], "profile.copy_share": shares["copy"],
            "profile.elementwise_share": elementwise,
        }  # fmt: skip
        if verdict.hardware is not None and verdict.hardware.device.startswith("cuda"):
            launches = sum(row.launches or MOST_LAUNCHES + 1 for row in rows)
            features["profile.launches"] = min(launches, MOST_LAUNCHES + 1)
    return features | _code_features(code_of(verdict), source) | _counter_features(counters_of(verdict), source)


def roof_features(roof: Roof) -> dict[str, Feature]:
    """Of a call's time against the device's ceilings."""
    features: dict[str, Feature] = {
        "profile.bound": roof.bound, "profile.wants": roof.wants, "profile.latency_ms": roof.latency_ms,
        "profile.bandwidth_share": roof.bandwidth_share,
    }  # fmt: skip
    return features | ({} if roof.rate_share is None else {"profile.rate_share": roof.rate_share})


def extract_features(problem_source: str, source: str | None, verdict: Verdict | None = None) -> dict[str, Feature]:
    """All of it; of an answer without code only the problem's."""
    features = problem_features(problem_source)
    if source is not None:
        features |= source_features(source)
        if verdict is not None:
            features |= profile_features(verdict, source)
    return features


def _code_features(code: Sequence[KernelCode], source: str) -> dict[str, Feature]:
    """Of the machine code of the source's own kernels, the worst of them each."""
    own = [kernel for kernel in code if kernel.short_name in defined_kernels(source)]
    if not own:
        return {}
    loads = sum(kernel.instructions.get("global_load", 0) for kernel in own)
    wide = sum(kernel.instructions.get("global_load_128", 0) for kernel in own)
    features: dict[str, Feature] = {
        "code.spills": any(kernel.spills for kernel in own),
        "code.registers": max(kernel.registers for kernel in own),
        "code.tensor_cores": any(kernel.instructions.get("tensor_core", 0) for kernel in own),
        "code.double": any(kernel.instructions.get("fp64", 0) for kernel in own),
        "code.wide_loads": wide / loads if loads else 0.0,
    }
    held = min(_occupancies(own, _block(source)), key=lambda found: found.share, default=None)
    return features if held is None else features | {"code.occupancy": held.share, "code.occupancy_limit": held.limit}


def _occupancies(kernels: Sequence[KernelCode], threads: int) -> Iterator[Occupancy]:
    """Of each kernel whose device is known, by registers and static shared memory: what a launch adds is not known."""
    for kernel in kernels:
        if kernel.capability in MULTIPROCESSORS:
            yield occupancy(kernel.capability, threads, kernel.registers, kernel.shared_bytes)


def _block(source: str) -> int:
    """Threads of a block, where the source says so in numbers; else a usual number of them."""
    known = source_features(source)
    threads = 32 * int(known.get("source.warps", 0)) or int(known.get("source.threads", 0))
    return threads if 1 <= threads <= 1024 else USUAL_THREADS


def _counter_features(counters: Sequence[Counters], source: str) -> dict[str, Feature]:
    """Of the longest launch of one of the source's own kernels."""
    defined = defined_kernels(source)
    own = [item for item in counters if set(re.findall(r"\w+", item.kernel)) & defined]
    longest = max(own, key=lambda item: item.values.get("duration", 0.0), default=None)
    limit = find_limit(longest) if longest is not None else None
    if longest is None or limit is None:
        return {}
    features: dict[str, Feature] = {"counters.resource": limit.resource, "counters.percent": limit.percent}
    if "occupancy" in longest.values:
        features["counters.occupancy"] = longest.values["occupancy"] / 100
    return features | {f"counters.{cause}": True for cause in limit.causes}


# -- reading sources --------------------------------------------------------------------------------------------------


def _operations(tree: ast.AST) -> Iterator[str]:
    """Names that are called, and operators."""
    signs: dict[type[ast.operator], str] = {ast.MatMult: "@", ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/"}
    functions = [
        node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name in ("forward", "__init__")
    ]
    for function in functions:
        for node in ast.walk(function):
            if isinstance(node, ast.Call):
                name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
                yield str(name)
            elif isinstance(node, ast.BinOp) and function.name == "forward":
                yield signs.get(type(node.op), "")


def _first_input(tree: ast.Module) -> list[int] | None:
    """The shape of the first tensor that `get_inputs` draws, where it is of literals and module constants."""
    constants = {
        target.id: node.value.value
        for node in tree.body if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, int)
    }  # fmt: skip
    inputs = next((n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == "get_inputs"), None)
    for call in ast.walk(inputs) if inputs is not None else ():
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr in ("rand", "randn"):
            sizes = [
                arg.value if isinstance(arg, ast.Constant) else constants.get(getattr(arg, "id", ""))
                for arg in call.args
            ]
            whole = [size for size in sizes if isinstance(size, int)]
            return whole if whole and len(whole) == len(sizes) else None
    return None


def _product(sizes: Sequence[int]) -> int:
    total = 1
    for size in sizes:
        total *= size
    return total


def _count_kernels(source: str) -> int:
    return len(re.findall(r"@\s*(?:triton\.)?jit\b|\b__global__\b", source))


def _forward_features(source: str) -> dict[str, Feature]:
    """What `ModelNew.forward`, and the methods beside it, leave to PyTorch."""
    try:
        tree = parse_source(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return {}
    model = next((n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == "ModelNew"), None)
    if model is None:
        return {}
    forward = next((n for n in model.body if isinstance(n, ast.FunctionDef) and n.name == "forward"), None)
    if forward is None:
        return {}
    linears = set(re.findall(r"self\.(\w+) = (?:torch\.)?nn\.Linear", source))
    names = list(_operations(forward))
    text = ast.unparse(forward)
    products = sum(name in _PRODUCTS or name == "@" or name in linears for name in names)
    return {
        "source.elementwise_operators": sum(n in _ELEMENTWISE for n in names) + _tensor_arithmetic(forward),
        "source.library_products": products,
        "source.library_convolution": bool(re.search(r"self\.conv\w*\(|F\.conv|torch\.conv", text)),
        "source.library_reductions": sum(n in _REDUCTIONS for n in names),
        "source.scores_in_memory": "softmax" in names and products >= 2,
        "source.copies": len(re.findall(r"\.t\(\)\.contiguous|transpose\([^)]*\)\.contiguous|\.clone\(\)", text)),
        "source.second_tensor": bool(
            re.search(r"(\w+) = self\.\w+\(\w+\)(?:\.contiguous\(\))?\n\s*\w+ = torch\.empty_like\(\1\)", text)
        ),
    }


def _tensor_arithmetic(forward: ast.FunctionDef) -> int:
    """Sums and products of what calls, parameters or the arguments yield, and not of sizes."""
    arguments = {argument.arg for argument in forward.args.args}

    def is_tensor(node: ast.AST) -> bool:
        if isinstance(node, ast.Call):
            return not (isinstance(node.func, ast.Attribute) and node.func.attr in ("size", "numel", "stride", "cdiv"))
        if isinstance(node, ast.BinOp):
            return is_tensor(node.left) or is_tensor(node.right)
        return isinstance(node, ast.Name) and node.id in arguments

    return sum(
        isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub | ast.Mult | ast.Div) and is_tensor(node)
        for node in ast.walk(forward)
    )  # fmt: skip


def _threads(source: str) -> int:
    """Of the smallest launch whose block is written in numbers; 0 when there is none."""
    sizes = []
    for block in re.findall(r"<<<[^;]*?,\s*(dim3\([^)]*\)|\d+)\s*(?:,[^;]*?)?>>>", source):
        sizes.append(_product([int(number) for number in re.findall(r"(?<!dim)\b\d+", block.removeprefix("dim3"))]))
    return min(sizes, default=0)


def _triton_features(source: str) -> dict[str, Feature]:
    try:
        tree = parse_source(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return {}
    kernels = [
        node for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and any("jit" in ast.unparse(mark) for mark in node.decorator_list)
    ]  # fmt: skip
    text = "\n".join(ast.unparse(kernel) for kernel in kernels)
    options = {name: int(value) for name, value in re.findall(r"\b(num_warps|num_stages)\s*=\s*(\d+)", source)}
    tiles = [int(size) for size in re.findall(r"\b(?:BLOCK_|BLOCK_SIZE_)?[MN]\s*=\s*(\d+)", source)]
    precision = re.search(r"input_precision\s*=\s*['\"](\w+)", text)
    features: dict[str, Feature] = {
        "source.dot": "tl.dot(" in text,
        "source.own_product": "tl.dot(" in text and "tl.exp(" not in text,
        "source.loops": sum(isinstance(node, ast.For) for kernel in kernels for node in ast.walk(kernel)),
        "source.row_in_registers": "next_power_of_2" in source,
        "source.tile_of_rows": "[:, None]" in text,
        "source.online_softmax": bool(re.search(r"tl\.maximum\(\w+, tl\.max\(", text)) and "tl.dot(" in text,
        "source.bounded_loop": bool(re.search(r"in range\([^\n]*program_id", text)),
        "source.warps": options.get("num_warps", 4),
        "source.stages": options.get("num_stages", 3),
        "source.tensor_cores": "tl.dot(" in text and (precision is None or precision.group(1) != "ieee"),
        "source.atomics": "tl.atomic_" in text,
    }
    return features | ({"source.tile": min(tiles)} if tiles else {})
