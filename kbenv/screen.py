"""What a submission's source says, place by place: telemetry for people, which decides nothing.

A pure function of text, by the syntax tree and by a few words looked for in C and CUDA sources that are string
literals. Honest code has findings (a compiler is a process, a workspace is kept), and who hides a name behind string
pasting or `exec` has fewer: behaviour is judged, not text. Only that there is no `ModelNew` is a verdict, and that is
the runner's, which has looked for it.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from kbenv.verdict import ScreenFinding

MOST_FINDINGS = 100
MOST_CHARACTERS = 500_000
_TEXT_CHARACTERS, _NAME_CHARACTERS = 160, 100

_Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Found:
    """`within`: what to look for in the node's own text, for a narrower span."""

    rule: str
    node: ast.AST
    words: str
    within: str | None = None


_NAMES: tuple[tuple[str, str, str], ...] = (
    ("environment", r"os\.(?:environ|environb|getenv|putenv|unsetenv)", "environment variables"),
    ("thread", r"threading\.(?:Thread|Timer)|_thread\.|concurrent\.futures\.|multiprocessing\.|asyncio\.", "a thread"),
    ("process", r"os\.(?:fork|forkpty|system|popen|kill|killpg|setsid|exec\w+|spawn\w+|posix_spawnp?)$", "a process"),
    ("process", r"subprocess\.(?!DEVNULL|PIPE|STDOUT|CalledProcessError|TimeoutExpired)", "a process"),
    ("raw-memory", r"ctypes\.(?:memmove|memset|string_at|cast)$|mmap\.mmap$|torch\.frombuffer$", "memory by address"),
    ("exit", r"(?:os\.(?:_exit|abort)|sys\.exit|exit|quit|SystemExit)$", "the end of the process"),
    ("exit", r"atexit\.|signal\.(?:signal|raise_signal|alarm|setitimer)$", "what happens when the process ends"),
    ("introspection", r"gc\.(?:get_\w+|freeze)|sys\.(?:_getframe|_current_frames|settrace|setprofile|modules)"
     r"|inspect\.(?:stack|currentframe|trace|get(?:inner|outer)frames)|globals$", "the process that runs it"),
    ("dynamic-code", r"(?:exec|eval|compile|__import__)$|importlib\.import_module|types\.(?:CodeType|FunctionType)"
     r"|(?:base64|zlib|codecs|marshal|pickle)\.(?:\w*decode|decompress|loads)$", "code that is not in the text"),
    ("clock", r"time\.(?!struct_time)\w+$|torch\.utils\.benchmark|triton\.testing\.do_bench", "a clock"),
    ("reseed", r"torch\.(?:manual_seed|seed|set_rng_state|(?:cuda|random)\.\w*(?:seed|rng_state)\w*)$", "a seed"),
    ("global-state", r"torch\.(?:set_\w+|use_deterministic_algorithms)$|os\.umask|resource\.setrlimit", "global state"),
    ("descriptor", r"os\.(?:write|close|closerange|dup\w*|set_blocking|pwrite|sendfile|open)$|fcntl\.", "descriptors"),
    ("network", r"socket\.|urllib\.|http\.client|requests\.", "the network"),
    ("precision", r"torch\.(?:half|float16|bfloat16|autocast)|torch\.(?:cuda\.)?amp\.|triton\.language\.b?float16$"
     r"|triton\.language\.float8", "half precision"),
)  # fmt: skip
"""By the full name of what is called or used."""
_ATTRIBUTES = {
    "introspection": frozenset(
        {"f_back", "f_locals", "f_globals", "f_code", "__globals__", "__closure__", "cell_contents", "__subclasses__"}
    ),
    "raw-memory": frozenset({"from_address", "from_buffer", "mprotect", "mmap", "untyped_storage", "set_"}),
    "precision": frozenset({"half", "bfloat16"}),
    "clock": frozenset({"elapsed_time"}),
    "cuda-memory": frozenset({"cuMemSetAccess", "cuMemRetainAllocationHandle", "cuMemMap"}),
}
_WORDS_IN_C = (
    ("thread", r"\bpthread_create\b|\bstd::(?:thread|async)\b|\btimer_create\b|\bcudaLaunchHostFunc\b", "a thread"),
    ("process", r"\bfork\s*\(|\bexecv\w*\s*\(|\bptrace\b|\bprocess_vm_\w+", "a process"),
    ("raw-memory", r"\bmprotect\b|\bmmap\s*\(|/proc/", "memory by its address"),
    ("cuda-memory", r"\bcuMem(?:SetAccess|RetainAllocationHandle|Map)\b", "how device memory is mapped"),
    ("clock", r"\bclock_gettime\b|\bstd::chrono\b|\bclock64\b|%globaltimer", "a clock"),
    ("precision", r"\b__half2?\b|\b__nv_bfloat16\w*\b|\bat::Half\b|\bhalf2?\b(?=\s*[*&\w])", "half precision"),
    ("library-call", r"\bcublas\w+\s*\(|\bcudnn\w+\s*\(|\bat::(?:mm|matmul|addmm|conv\w*|bmm|linear)\b"
     r"|\btorch::(?:mm|matmul|addmm|conv\w*|bmm|linear)\b|\bcblas_\w+\s*\(", "a library's operation"),
)  # fmt: skip
_COMPILERS = frozenset({"cc", "c++", "gcc", "g++", "clang", "clang++", "nvcc"})
_SYSTEM_LIBRARY = re.compile(r"^lib(?:c|m|dl|pthread|cuda|cudart|nvrtc)\.so")
_SYSTEM_PATH = re.compile(r"^/(?:proc|sys|dev|etc|root|home|var|run|tmp|boot)(?:/|$)(?!null$)")
_MODES = frozenset({"torch.overrides.TorchFunctionMode", "torch.utils._python_dispatch.TorchDispatchMode"})


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
_WEIGHTS = frozenset({"weight", "bias", "gamma", "beta", "running_mean", "running_var", "scale", "shift"})
_TO_HOST = frozenset({"item", "tolist", "all", "any", "equal", "allclose", "isclose", "is_nonzero", "count_nonzero"})
_BUILDS = r"(?:^|\.)(?:load_inline|RawKernel|RawModule|_compile_kernel)$|cpp_extension\.load$|ctypes\.(?:CDLL|PyDLL)$"


def screen(source: str, *, reference: str = "", precision: str = "fp32") -> tuple[ScreenFinding, ...]:
    """Findings in the order of the source, at most 100.

    Args:
        reference: the problem's source, whose operations the submission may have left to PyTorch.
        precision: of the task; half precision is worth a word only in "fp32".
    """
    source = source.removeprefix("\ufeff")
    if len(source) > MOST_CHARACTERS:
        return (_finding("unreadable", (1, 0, 1, 0), f"more than {MOST_CHARACTERS} characters: not looked at"),)
    tree = _parse(source)
    if isinstance(tree, Exception):
        line = max(1, getattr(tree, "lineno", None) or 1)
        return (_finding("unreadable", (line, 0, line, 0), f"the source cannot be parsed: {tree}"),)
    code = _Code(source, tree)
    asked = _Code(reference, parsed) if isinstance(parsed := _parse(reference), ast.Module) else None
    found = {
        (item.rule, code.span(item.node, item.within), item.words)
        for item in _all_found(code, asked)
        if item.rule != "precision" or precision == "fp32"
    }
    ordered = sorted(found, key=lambda item: (item[1], item[0], item[2]))
    return tuple(_finding(*item) for item in ordered[:MOST_FINDINGS])


def _parse(source: str) -> ast.Module | Exception:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a source's invalid escapes are its own affair
            return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as e:
        return e


def _finding(rule: str, span: tuple[int, int, int, int], words: str) -> ScreenFinding:
    line, column, end_line, end_column = span
    text = " ".join("".join(c if c.isprintable() else " " for c in words).split())[:_TEXT_CHARACTERS]
    return ScreenFinding(
        rule=rule, line=line, column=column, end_line=end_line, end_column=end_column, text=text
    )  # fmt: skip


def _all_found(code: _Code, asked: _Code | None) -> Iterator[Found]:
    for rule in _RULES:
        yield from rule(code)
    if asked is not None:
        yield from _find_reference_operations(code, asked)


@dataclass
class _Code:
    """A source with its tree, and what names mean in it."""

    source: str
    tree: ast.Module
    nodes: list[ast.AST] = field(default_factory=list)
    imported: dict[str, str] = field(default_factory=dict)
    functions: list[_Function] = field(default_factory=list)
    literals: list[tuple[ast.Constant, str]] = field(default_factory=list)
    """Strings that are no docstrings."""
    modules: dict[str, str] = field(default_factory=dict)
    """Classes of torch.nn by the attribute of self that holds one, in lower case."""
    built: set[str] = field(default_factory=set)
    """Names and attributes that hold a library, an extension, or what a function of the source's own returned."""

    def __post_init__(self) -> None:
        self.nodes = list(ast.walk(self.tree))
        self.words = Counter(re.findall(r"\w+", self.source))
        self._lines = re.split(r"\r\n|\r|\n", self.source)
        spoken = {id(node.value) for node in self.nodes if isinstance(node, ast.Expr)}
        for node in self.nodes:
            if isinstance(node, ast.Import):
                for alias in node.names:
                    self.imported[alias.asname or alias.name.split(".")[0]] = (
                        alias.name if alias.asname else alias.name.split(".")[0]
                    )
            elif isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    self.imported[alias.asname or alias.name] = f"{node.module or ''}.{alias.name}"
            elif isinstance(node, _Function):
                self.functions.append(node)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in spoken:
                self.literals.append((node, node.value))
        own = {function.name for function in self.functions}
        for target, value in self.assignments():
            if isinstance(target, ast.Attribute | ast.Name) and isinstance(value, ast.Call):
                name = self.name_of(value.func)
                if isinstance(target, ast.Attribute) and name.startswith("torch.nn."):
                    self.modules[target.attr] = name.rsplit(".", 1)[-1].lower()
                elif name in own or re.search(_BUILDS, name):
                    self.built.add(_word(target))

    def assignments(self) -> Iterator[tuple[ast.expr, ast.expr]]:
        """Targets and values of plain assignments."""
        for node in self.nodes:
            if isinstance(node, ast.Assign):
                for target in node.targets:
                    yield target, node.value
            elif isinstance(node, ast.AnnAssign) and node.value is not None:
                yield node.target, node.value

    def calls(self, below: ast.AST | None = None) -> Iterator[ast.Call]:
        for node in self.nodes if below is None else ast.walk(below):
            if isinstance(node, ast.Call):
                yield node

    def name_of(self, node: ast.AST) -> str:
        """The full name of a name or a chain of attributes, imports resolved: "torch.nn.functional.relu"; else ""."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name):
            return ""
        parts.append(self.imported.get(node.id, node.id))
        return ".".join(reversed(parts))

    def is_imported(self, node: ast.AST) -> bool:
        """Whether a chain of attributes begins at something imported."""
        while isinstance(node, ast.Attribute):
            node = node.value
        return isinstance(node, ast.Name) and node.id in self.imported

    def text_of(self, node: ast.AST) -> str:
        """The beginning of a node's own text."""
        line, column, end_line, end_column = self.span(node)
        lines = self._lines[line - 1 : min(end_line, line + 3)]
        if end_line == line + len(lines) - 1:
            lines[-1] = lines[-1][:end_column]
        lines[0] = lines[0][column:]
        return " ".join(" ".join(lines)[:400].split())[:80]

    def span(self, node: ast.AST, within: str | None = None) -> tuple[int, int, int, int]:
        """Lines from 1 and columns, in characters, from 0; of `within` where the text holds it."""
        line, end_line = getattr(node, "lineno", 1), getattr(node, "end_lineno", None) or 1
        column = self._column(line, getattr(node, "col_offset", 0))
        end_column = self._column(end_line, getattr(node, "end_col_offset", None) or 0)
        for number in range(line, end_line + 1) if within is not None else ():
            pattern = re.compile(rf"(?<!\w){re.escape(within or '')}(?!\w)")
            if match := pattern.search(self._lines[number - 1], column if number == line else 0):
                return number, match.start(), number, match.end()
        return line, column, end_line, end_column

    def _column(self, line: int, offset: int) -> int:
        """Characters, where the tree counts bytes of UTF-8."""
        text = self._lines[line - 1] if line <= len(self._lines) else ""
        return len(text.encode("utf-8", "replace")[:offset].decode("utf-8", "ignore"))


# -- by name ----------------------------------------------------------------------------------------------------------


def _find_names(code: _Code) -> Iterator[Found]:
    inner = {id(node.value) for node in code.nodes if isinstance(node, ast.Attribute)}
    compiles = any(text in _COMPILERS for _, text in code.literals)
    for node in code.nodes:
        if not isinstance(node, ast.Name | ast.Attribute) or id(node) in inner or not isinstance(node.ctx, ast.Load):
            continue
        name = code.name_of(node)[:_NAME_CHARACTERS]
        for rule, pattern, words in _NAMES:
            if re.match(pattern, name):
                compiler = name.startswith("subprocess.") and compiles
                yield Found("compiler" if compiler else rule, node, f"{name}: {'a compiler' if compiler else words}")
                break


def _find_attributes(code: _Code) -> Iterator[Found]:
    for node in code.nodes:
        if isinstance(node, ast.Attribute):
            for rule, names in _ATTRIBUTES.items():
                if node.attr in names:
                    yield Found(rule, node, f"{code.text_of(node)}: {node.attr}")


def _find_libraries(code: _Code) -> Iterator[Found]:
    for call in code.calls():
        name = code.name_of(call.func)
        if name.startswith("ctypes.") and name.endswith(("CDLL", "PyDLL", "LoadLibrary")):
            path = call.args[0].value if call.args and isinstance(call.args[0], ast.Constant) else ""
            if path is None or (isinstance(path, str) and _SYSTEM_LIBRARY.match(path)):
                yield Found("system-library", call, f"{name} of {path or 'the process itself'}")
            else:
                yield Found("native-library", call, f"{name}: a library of its own")


def _find_paths(code: _Code) -> Iterator[Found]:
    for node, text in code.literals:
        if _SYSTEM_PATH.match(text) and "\n" not in text:
            yield Found("system-path", node, f"{text[:60]}: a path of the system's")


def _find_words_in_c(code: _Code) -> Iterator[Found]:
    for node, text in code.literals:
        for rule, pattern, words in _WORDS_IN_C:
            if "\n" in text and (match := re.search(pattern, text)):
                word = match[0].strip(" (")
                yield Found(rule, node, f"{word}: {words}", word)


# -- state that is not the submission's -------------------------------------------------------------------------------


def _find_patches(code: _Code) -> Iterator[Found]:
    for node in code.nodes:
        targets: Sequence[ast.expr] = ()
        if isinstance(node, ast.Assign | ast.Delete):
            targets = node.targets
        elif isinstance(node, ast.AugAssign | ast.AnnAssign):
            targets = (node.target,)
        for target in targets:
            place = target.value if isinstance(target, ast.Subscript) else target
            name = code.name_of(place)
            if not (isinstance(place, ast.Attribute) and code.is_imported(place)) or name == "os.environ":
                continue
            if name.startswith("torch.backends."):
                yield Found("global-state", target, f"{name} is set")
            else:
                yield Found("patch", target, f"{name} is replaced")
    for call in code.calls():
        name, (owner, attribute, *_) = code.name_of(call.func), (*call.args, call, call)
        computed = not isinstance(attribute, ast.Constant)
        if name in ("setattr", "delattr") and (code.is_imported(owner) or (computed and not _is_self(owner))):
            yield Found("patch", call, f"{code.text_of(call)}: an attribute is replaced")
        elif name == "getattr" and computed and code.is_imported(owner):
            yield Found("dynamic-code", call, f"{code.text_of(call)}: a computed name")


def _is_self(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id in ("self", "cls")


def _find_tensor_classes(code: _Code) -> Iterator[Found]:
    for node in code.nodes:
        if isinstance(node, ast.ClassDef):
            bases = {code.name_of(base) for base in node.bases}
            if "torch.Tensor" in bases or bases & _MODES:
                yield Found(
                    "tensor-subclass", node, f"class {node.name}: sees and may change what others do with tensors"
                )


# -- what forward does ------------------------------------------------------------------------------------------------


def _find_caches(code: _Code) -> Iterator[Found]:
    for function in code.functions:
        names: dict[str, tuple[str, ast.AST]] = {}
        for node in ast.walk(function):
            if isinstance(node, ast.Assign) and (key := _identity_in(node.value)):
                names.update({target.id: key for target in node.targets if isinstance(target, ast.Name)})
        for used in _keys(function):
            key = _identity_in(used) or next(
                (names[n.id] for n in ast.walk(used) if isinstance(n, ast.Name) and n.id in names), None
            )
            if key is not None:
                rule, node = key
                yield Found(rule, node, f"{code.text_of(node)}: something is looked up by it")


def _keys(function: _Function) -> Iterator[ast.expr]:
    """Expressions that something is looked up by, or compared with what was kept."""
    for node in ast.walk(function):
        match node:
            case ast.Subscript(slice=key):
                yield key
            case ast.Compare(left=left, ops=ops, comparators=others):
                if isinstance(ops[0], ast.In | ast.NotIn):
                    yield left
                elif any(isinstance(side, ast.Attribute) and _is_self(side.value) for side in (left, *others)):
                    yield from (left, *others)
            case ast.Call(func=ast.Attribute(attr="get" | "setdefault" | "pop"), args=[key, *_]):
                yield key


def _identity_in(node: ast.AST) -> tuple[str, ast.AST] | None:
    """By what an expression tells tensors apart: where they are, or what they hold."""
    for part in ast.walk(node):
        match part:
            case ast.Call(func=ast.Attribute(attr="data_ptr")) | ast.Call(func=ast.Name(id="id")):
                return "cache-by-identity", part
            case ast.Attribute(attr="_version"):
                return "cache-by-identity", part
            case ast.Call(func=ast.Attribute(attr="tobytes" | "tolist")) | ast.Call(func=ast.Name(id="hash" | "float")):
                return "cache-by-content", part
    return None


def _find_counters(code: _Code) -> Iterator[Found]:
    compared = {
        part.attr
        for node in code.nodes
        if isinstance(node, ast.Compare)
        for part in ast.walk(node)
        if isinstance(part, ast.Attribute)
    }
    for node in code.nodes:
        match node:
            case ast.AugAssign(target=ast.Attribute(attr=name), value=ast.Constant()) if name in compared:
                yield Found("call-counter", node, f"{code.text_of(node)}: counts, and something depends on the count")


def _find_branches_on_data(code: _Code) -> Iterator[Found]:
    for function in code.functions:
        if function.name == "__init__":
            continue
        for node in ast.walk(function):
            if isinstance(node, ast.If | ast.IfExp | ast.While) and (part := _reads_values(code, node.test)):
                weights = any(isinstance(p, ast.Attribute) and p.attr in _WEIGHTS for p in ast.walk(node.test))
                rule, words = ("weights-inspected", "weights") if weights else ("content-dispatch", "values")
                yield Found(rule, part, f"{code.text_of(part)}: a branch on {words}")
    for target, value in code.assignments():
        part = _reads_values(code, value)
        if part and any(isinstance(p, ast.Attribute) and p.attr in _WEIGHTS for p in ast.walk(value)):
            yield Found("weights-inspected", part, f"{code.text_of(target)} is found out from weights")


def _reads_values(code: _Code, node: ast.AST) -> ast.AST | None:
    """The part of an expression that brings a tensor's values to the host."""
    for call in code.calls(node):
        match call.func:
            case ast.Attribute(attr=name) if name in _TO_HOST:
                return call
            case ast.Name(id="float" | "bool") if any(isinstance(arg, ast.Call | ast.Subscript) for arg in call.args):
                return call
    return None


def _find_returns(code: _Code) -> Iterator[Found]:
    for function in code.functions:
        if function.name not in ("forward", "__call__"):
            continue
        given = {a.arg for a in (*function.args.posonlyargs, *function.args.args)} - {"self"}
        nodes = list(ast.walk(function))
        kept = given - {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        for node in nodes:
            match node:
                case ast.Return(value=ast.Name(id=name)) if name in kept:
                    yield Found("input-returned", node, f"{name}: the input itself is returned")
                case ast.Return(value=ast.Attribute(value=owner)) if not code.is_imported(owner):
                    yield Found("kept-output", node, f"{code.text_of(node)}: what an earlier call may have left")
                case ast.Return(value=ast.Subscript(value=ast.Attribute())):
                    yield Found("kept-output", node, f"{code.text_of(node)}: what an earlier call may have left")
                case ast.Return(value=ast.Call() as call):
                    yield from _find_in_returned(code, node, call)
                case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=method)) if name in kept:
                    if method.endswith("_") and not method.startswith("_") and method != "requires_grad_":
                        yield Found("input-mutation", node, f"{code.text_of(node)}: the input is written to")
                case ast.Call(func=ast.Attribute() as called, args=[ast.Name(id=name), *_]) if name in kept:
                    if re.fullmatch(r"torch\.(?:nn\.functional\.)?[a-z]\w*_", code.name_of(called)):
                        yield Found("input-mutation", node, f"{code.text_of(node)}: the input is written to")


def _find_in_returned(code: _Code, node: ast.Return, call: ast.Call) -> Iterator[Found]:
    last = _word(call.func)
    if last in ("empty", "empty_like", "new_empty", "empty_strided"):
        yield Found("uninitialised-output", node, f"{code.text_of(node)}: memory as it was found")
    elif last in ("zeros", "zeros_like", "ones", "ones_like", "full", "full_like", "new_zeros", "new_full", "expand"):
        yield Found("constant-output", node, f"{code.text_of(node)}: one value for all elements")


def _find_endless_loops(code: _Code) -> Iterator[Found]:
    for node in code.nodes:
        if isinstance(node, ast.While) and isinstance(node.test, ast.Constant) and node.test.value:
            inside = [part for child in node.body for part in ast.walk(child)]
            if not any(isinstance(part, ast.Break | ast.Return | ast.Raise) for part in inside):
                yield Found("endless-loop", node.test, "a loop without an end")


def _find_streams(code: _Code) -> Iterator[Found]:
    """A stream that nobody waits for: `wait_stream` of something else waits for the other one."""
    if any(
        isinstance(call.func, ast.Attribute)
        and (call.func.attr in ("wait_event", "record_event") or code.name_of(call.func) == "torch.cuda.synchronize")
        for call in code.calls()
    ):
        return
    waited = {
        code.name_of(call.args[0])
        for call in code.calls()
        if isinstance(call.func, ast.Attribute) and call.func.attr == "wait_stream" and call.args
    } | {
        code.name_of(call.func.value)
        for call in code.calls()
        if isinstance(call.func, ast.Attribute) and call.func.attr == "synchronize"
    }
    held = {id(value): code.name_of(target) for target, value in code.assignments()}
    for call in code.calls():
        if code.name_of(call.func) in ("torch.cuda.Stream", "torch.Stream") and held.get(id(call)) not in waited - {""}:
            yield Found("stream-unjoined", call, f"{code.text_of(call)}: a stream that nothing waits for")


# -- custom kernels and what stands in for them -----------------------------------------------------------------------


def _find_fallbacks(code: _Code) -> Iterator[Found]:
    for node in code.nodes:
        if isinstance(node, ast.ExceptHandler):
            inside = [part for child in node.body for part in ast.walk(child)]
            if operation := next((part for part in inside if _operation(code, part)), None):
                words = f"{code.text_of(operation)}: PyTorch's operation where the code before fails"
                yield Found("fallback", operation, words)
            elif any(isinstance(part, ast.Assign) and _is_nothing(part.value) for part in inside):
                yield Found("fallback", node, "a failure is noted, and the code goes on without")


def _is_nothing(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value in (None, False)


def _find_decoys(code: _Code) -> Iterator[Found]:
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
        if re.search(_BUILDS, code.name_of(call.func)) and not registers:
            name = _word(built.get(id(call)))
            if id(call) in spoken or (name and _mentions(code, name) < 2):
                yield Found("decoy", call, f"{name or code.text_of(call)}: built, and nothing uses it")


def _word(node: ast.AST | None) -> str:
    """The last name of a name or of a chain of attributes; else ""."""
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def _mentions(code: _Code, word: str) -> int:
    """How often a word is in the source, comments included."""
    return code.words[word]


def _find_no_model(code: _Code) -> Iterator[Found]:
    for node in code.nodes:
        match node:
            case ast.ClassDef(name="ModelNew") | ast.FunctionDef(name="ModelNew") | ast.Name(id="ModelNew"):
                return
            case ast.alias(name=name, asname=other) if "ModelNew" in (name, other) or name == "*":
                return
            case ast.Call(func=ast.Name(id="exec" | "globals" | "setattr")):
                return  # it may come from there
    yield Found("no-model", code.tree, "nothing is called ModelNew")


def _find_problem(code: _Code) -> Iterator[Found]:
    for node in code.nodes:
        match node:
            case ast.Import(names=names) if any(alias.name == "problem" for alias in names):
                yield Found("reference-used", node, "the problem's module is imported")
            case ast.ImportFrom(module="problem"):
                yield Found("reference-used", node, "the problem's module is imported")
            case ast.Subscript(value=ast.Attribute(attr="modules"), slice=ast.Constant(value="problem")):
                yield Found("reference-used", node, "the problem's module is looked up")


def _find_reference_operations(code: _Code, asked: _Code) -> Iterator[Found]:
    """What the reference is about, and the submission leaves to PyTorch: products if it has any, else all."""
    wanted = {name for node in asked.nodes if (name := _operation(asked, node))}
    wanted = wanted & _PRODUCTS or wanted
    wanted |= {name for family in _FAMILIES if family & wanted for name in family}
    for node in code.nodes:
        name = _operation(code, node)
        if name in wanted:
            yield Found("reference-operation", node, f"{code.text_of(node)}: PyTorch does what the reference does")


def _operation(code: _Code, node: ast.AST) -> str:
    """The name of PyTorch's operation that a node is a call of; "" where it is none."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
        return "__matmul__"
    if not isinstance(node, ast.Call):
        return ""
    name = code.name_of(node.func)
    last = name.rsplit(".", 1)[-1] if name else _word(node.func)
    if name.startswith("torch.nn.") and not name.startswith("torch.nn.functional."):
        return ""  # a module's construction
    if not name.startswith("torch."):
        if not isinstance(node.func, ast.Attribute) or code.is_imported(node.func):
            return ""
        owner = node.func.value
        if _is_self(owner):
            last = code.modules.get(last, "")
        elif _word(owner) in code.built:
            return ""
    last = last.rstrip("_")
    return last if last in _OPERATIONS else ""


_RULES: Sequence[Callable[[_Code], Iterable[Found]]] = (
    _find_names, _find_attributes, _find_libraries, _find_paths, _find_words_in_c, _find_patches,
    _find_tensor_classes, _find_caches, _find_counters, _find_branches_on_data, _find_returns, _find_endless_loops,
    _find_streams, _find_fallbacks, _find_decoys, _find_no_model, _find_problem,
)  # fmt: skip
