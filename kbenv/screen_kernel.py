"""Custom kernels and what stands in for them: fallbacks, decoys, PyTorch's own operations. For `kbenv.screen`."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator, Set

from kbenv.screen_source import BUILDS, Code, Found, is_self, word_of


def _set(names: str) -> frozenset[str]:
    return frozenset(names.split())


_PRODUCTS = _set(
    "matmul mm bmm addmm baddbmm addbmm mv addmv dot einsum tensordot inner linear bilinear chain_matmul __matmul__ "
    "conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d scaled_dot_product_attention "
    "multiheadattention lstm gru rnn transformerencoderlayer"
)
_OPERATIONS = _PRODUCTS | _set(
    "relu gelu silu sigmoid tanh softmax log_softmax logsumexp softplus elu selu mish leaky_relu leakyrelu hardtanh "
    "hardswish hardsigmoid softsign layer_norm layernorm group_norm groupnorm batch_norm batchnorm1d batchnorm2d "
    "batchnorm3d instance_norm instancenorm2d rms_norm rmsnorm sum mean max min amax amin prod argmax argmin cumsum "
    "cumprod norm var std topk sort clamp exp max_pool1d max_pool2d max_pool3d maxpool1d maxpool2d maxpool3d "
    "avg_pool1d avg_pool2d avg_pool3d avgpool1d avgpool2d avgpool3d cross_entropy crossentropyloss mse_loss mseloss "
    "smooth_l1_loss kl_div cosine_similarity triplet_margin_loss embedding embedding_bag index_select gather bincount "
    "unique rfft fft"
)
_FAMILIES = (
    _set("matmul mm bmm addmm baddbmm addbmm mv addmv dot einsum tensordot inner linear bilinear __matmul__"),
    _set("layer_norm layernorm"), _set("group_norm groupnorm"), _set("rms_norm rmsnorm"),
    _set("batch_norm batchnorm1d batchnorm2d batchnorm3d"), _set("instance_norm instancenorm2d"),
    _set("leaky_relu leakyrelu"), _set("relu clamp"), _set("cross_entropy crossentropyloss"), _set("mse_loss mseloss"),
    _set("max_pool1d maxpool1d"), _set("max_pool2d maxpool2d"), _set("max_pool3d maxpool3d"),
    _set("avg_pool1d avgpool1d"), _set("avg_pool2d avgpool2d"), _set("avg_pool3d avgpool3d"),
)  # fmt: skip
"""Names of one operation; a module's name is its class in lower case."""


def _find_fallbacks(code: Code) -> Iterator[Found]:
    for node in code.nodes:
        if isinstance(node, ast.ExceptHandler):
            inside = [part for child in node.body for part in code.walk(child)]
            if operation := next((part for part in inside if _operation(code, part)), None):
                words = f"{code.text_of(operation)}: PyTorch's operation where the code before fails"
                yield Found("fallback", operation, words)
            elif any(isinstance(part, ast.Assign) and _is_nothing(part.value) for part in inside):
                yield Found("fallback", node, "a failure is noted, and the code goes on without")


def _is_nothing(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value in (None, False)


def _find_decoys(code: Code) -> Iterator[Found]:
    for function in code.functions:
        decorators = [d.func if isinstance(d, ast.Call) else d for d in function.decorator_list]
        if any(code.name_of(d).startswith("triton.") for d in decorators) and _mentions(code, function.name) < 2:
            yield Found("decoy", function, f"{function.name}: a kernel that nothing launches")
    for node, text in code.literals:
        for head in re.findall(r"__global__([^{;]*)", text):
            for name in re.findall(r"\b(\w+)\s*\(", head):
                if name != "__launch_bounds__" and _mentions(code, name) < 2:
                    yield Found("decoy", node, f"{name}: a kernel that nothing launches", name)
    built = {id(value): target for target, value in code.assignments()}
    spoken = {id(node.value) for node in code.nodes if isinstance(node, ast.Expr)}
    registers = _mentions(code, "is_python_module") > 0  # and is called by torch.ops then
    for call in code.calls():
        if re.search(BUILDS, code.name_of(call.func)) and not registers:
            name = word_of(built.get(id(call)))
            if id(call) in spoken or (name and _mentions(code, name) < 2):
                yield Found("decoy", call, f"{name or code.text_of(call)}: built, and nothing uses it")


def _mentions(code: Code, word: str) -> int:
    """How often a word is in the source, comments included."""
    return code.words[word]


def _find_no_model(code: Code) -> Iterator[Found]:
    for node in code.nodes:
        match node:
            case ast.ClassDef(name="ModelNew") | ast.FunctionDef(name="ModelNew") | ast.Name(id="ModelNew"):
                return
            case ast.alias(name=name, asname=other) if "ModelNew" in (name, other) or name == "*":
                return
            case ast.Call(func=ast.Name(id="exec" | "globals" | "setattr")):
                return  # it may come from there
    yield Found("no-model", code.tree, "nothing is called ModelNew")


def _find_problem(code: Code) -> Iterator[Found]:
    for node in code.nodes:
        match node:
            case ast.Import(names=names) if any(alias.name == "problem" for alias in names):
                yield Found("reference-used", node, "the problem's module is imported")
            case ast.ImportFrom(module="problem"):
                yield Found("reference-used", node, "the problem's module is imported")
            case ast.Subscript(value=ast.Attribute(attr="modules"), slice=ast.Constant(value="problem")):
                yield Found("reference-used", node, "the problem's module is looked up")


def operations_of(reference: Code) -> Set[str]:
    """What a reference is about: products if it has any, else all operations of PyTorch's in it."""
    found = {name for node in reference.nodes if (name := _operation(reference, node))}
    found = found & _PRODUCTS or found
    return found.union(*(family for family in _FAMILIES if family & found))


def find_reference_operations(code: Code, asked: Set[str]) -> Iterator[Found]:
    """What the reference is about, and the submission leaves to PyTorch."""
    for node in code.nodes:
        if _operation(code, node) in asked:
            yield Found("reference-operation", node, f"{code.text_of(node)}: PyTorch does what the reference does")


def _operation(code: Code, node: ast.AST) -> str:
    """The name of PyTorch's operation that a node is a call of; "" where it is none."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
        return "__matmul__"
    if not isinstance(node, ast.Call):
        return ""
    name = code.name_of(node.func)
    last = name.rsplit(".", 1)[-1] if name else word_of(node.func)
    if name.startswith("torch.nn.") and not name.startswith("torch.nn.functional."):
        return ""  # a module's construction
    if not name.startswith("torch."):
        if not isinstance(node.func, ast.Attribute) or code.is_imported(node.func):
            return ""
        owner = node.func.value
        if is_self(owner):
            last = code.modules.get(last, "")
        elif word_of(owner) in code.built:
            return ""
    last = last.rstrip("_")
    return last if last in _OPERATIONS else ""


RULES: tuple[Callable[[Code], Iterable[Found]], ...] = (_find_fallbacks, _find_decoys, _find_no_model, _find_problem)
