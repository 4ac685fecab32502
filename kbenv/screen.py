"""What a submission's source says, place by place: telemetry for people, which decides nothing.

A pure function of text, by the syntax tree and by a few words looked for in C and CUDA sources that are string
literals. Honest code has findings (a compiler is a process, a workspace is kept), and who hides a name behind string
pasting or `exec` has fewer: behaviour is judged, not text. Only that there is no `ModelNew` is a verdict, and that is
the runner's, which has looked for it.
"""

from __future__ import annotations

import ast
import functools
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence, Set

from kbenv import screen_forward, screen_kernel
from kbenv.screen_source import Code, Found, is_self
from kbenv.verdict import ScreenFinding

MOST_FINDINGS = 100
MOST_CHARACTERS = 500_000
_TEXT_CHARACTERS, _NAME_CHARACTERS = 160, 100

_NAMES = tuple((rule, re.compile(pattern), words) for rule, pattern, words in (
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
))  # fmt: skip
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
    code = Code(source, tree)
    found = {
        (item.rule, code.span(item.node, item.within), item.words)
        for item in _all_found(code, _operations_of(reference))
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


def _all_found(code: Code, asked: Set[str]) -> Iterator[Found]:
    for rule in _RULES:
        yield from rule(code)
    yield from screen_kernel.find_reference_operations(code, asked)


@functools.lru_cache(maxsize=64)  # every answer to a problem is held against the same one
def _operations_of(reference: str) -> Set[str]:
    tree = _parse(reference)
    return screen_kernel.operations_of(Code(reference, tree)) if isinstance(tree, ast.Module) else frozenset()


# -- by name ----------------------------------------------------------------------------------------------------------


def _find_names(code: Code) -> Iterator[Found]:
    inner = {id(node.value) for node in code.nodes if isinstance(node, ast.Attribute)}
    compiles = any(text in _COMPILERS for _, text in code.literals)
    for node in code.nodes:
        if not isinstance(node, ast.Name | ast.Attribute) or id(node) in inner or not isinstance(node.ctx, ast.Load):
            continue
        name = code.name_of(node)[:_NAME_CHARACTERS]
        for rule, pattern, words in _NAMES:
            if pattern.match(name):
                compiler = name.startswith("subprocess.") and compiles
                yield Found("compiler" if compiler else rule, node, f"{name}: {'a compiler' if compiler else words}")
                break


def _find_attributes(code: Code) -> Iterator[Found]:
    for node in code.nodes:
        if isinstance(node, ast.Attribute):
            for rule, names in _ATTRIBUTES.items():
                if node.attr in names:
                    yield Found(rule, node, f"{code.text_of(node)}: {node.attr}")


def _find_libraries(code: Code) -> Iterator[Found]:
    for call in code.calls():
        name = code.name_of(call.func)
        if name.startswith("ctypes.") and name.endswith(("CDLL", "PyDLL", "LoadLibrary")):
            path = call.args[0].value if call.args and isinstance(call.args[0], ast.Constant) else ""
            if path is None or (isinstance(path, str) and _SYSTEM_LIBRARY.match(path)):
                yield Found("system-library", call, f"{name} of {path or 'the process itself'}")
            else:
                yield Found("native-library", call, f"{name}: a library of its own")


def _find_paths(code: Code) -> Iterator[Found]:
    for node, text in code.literals:
        if _SYSTEM_PATH.match(text) and "\n" not in text:
            yield Found("system-path", node, f"{text[:60]}: a path of the system's")


def _find_words_in_c(code: Code) -> Iterator[Found]:
    for node, text in code.literals:
        for rule, pattern, words in _WORDS_IN_C:
            if "\n" in text and (match := re.search(pattern, text)):
                word = match[0].strip(" (")
                yield Found(rule, node, f"{word}: {words}", word)


# -- state that is not the submission's -------------------------------------------------------------------------------


def _find_patches(code: Code) -> Iterator[Found]:
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
        if name in ("setattr", "delattr") and (code.is_imported(owner) or (computed and not is_self(owner))):
            yield Found("patch", call, f"{code.text_of(call)}: an attribute is replaced")
        elif name == "getattr" and computed and code.is_imported(owner):
            yield Found("dynamic-code", call, f"{code.text_of(call)}: a computed name")


def _find_tensor_classes(code: Code) -> Iterator[Found]:
    for node in code.nodes:
        if isinstance(node, ast.ClassDef):
            bases = {code.name_of(base) for base in node.bases}
            if "torch.Tensor" in bases or bases & _MODES:
                yield Found(
                    "tensor-subclass", node, f"class {node.name}: sees and may change what others do with tensors"
                )


_RULES: Sequence[Callable[[Code], Iterable[Found]]] = (
    _find_names, _find_attributes, _find_libraries, _find_paths, _find_words_in_c, _find_patches,
    _find_tensor_classes, *screen_forward.RULES, *screen_kernel.RULES,
)  # fmt: skip
