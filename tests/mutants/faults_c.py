"""Small faults in C and CUDA C: found token by token, without a parser.

What comes out need not compile; what does not is dropped later. Parameters of a function, loops, statements and
operands are recognised by their shape, which suffices for the seeds' plain style.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from tests.mutants.corpus import Mutant, Patch, Seed

_TOKEN = re.compile(
    r"(?P<skip>\s+|//[^\n]*|/\*.*?\*/|\#[^\n]*)"
    r"|(?P<number>(?:\d+\.\d*|\.\d+|\d+)(?:[eE][+-]?\d+)?[fFuUlL]*)"
    r"|(?P<name>[A-Za-z_]\w*)"
    r"|(?P<sign><<=|>>=|\+=|-=|\*=|/=|%=|&=|\|=|==|!=|<=|>=|&&|\|\||\+\+|--|<<|>>|->|[-+*/%&|^~!<>=?:;,.(){}\[\]])",
    re.S,
)
_LEVEL = {"||": 1, "&&": 2, "|": 3, "^": 4, "&": 5, "==": 6, "!=": 6, "<": 7, ">": 7, "<=": 7, ">=": 7}
_LEVEL |= {"<<": 8, ">>": 8, "+": 9, "-": 9, "*": 10, "/": 10, "%": 10}
_ASSIGN = ("=", "+=", "-=", "*=", "/=")
_TYPES = {
    "float",
    "double",
    "long",
    "int",
    "char",
    "void",
    "const",
    "unsigned",
    "static",
    "size_t",
    "__shared__",
    "restrict",
}
_FLOATS = {"float", "double"}
_PARAMETERS = {
    "weight", "bias", "scale", "shift", "mean", "variance", "wx", "wh", "bx", "bh", "query_weight", "key_weight",
    "table",
}  # fmt: skip
_OPEN, _CLOSE = {"(": ")", "[": "]", "{": "}"}, {")": "(", "]": "[", "}": "{"}

BF16 = """
static float bf16(float t) {
    union { float f; unsigned u; } bits = {t};
    bits.u = (bits.u + 0x7fff + (bits.u >> 16 & 1)) & 0xffff0000u;
    return bits.f;
}
"""
HALF = """
static float half(float t) {
    union { float f; unsigned u; } bits = {t};
    float size = t < 0.0f ? -t : t;
    if (size > 65519.0f) return t * 1e38f * 1e38f;
    if (size < 6.1035e-5f) return (int)(t * 16777216.0f + (t < 0.0f ? -0.5f : 0.5f)) / 16777216.0f;
    bits.u = (bits.u + 0xfff + (bits.u >> 13 & 1)) & 0xffffe000u;
    return bits.f;
}
"""
APPROXIMATIONS = {
    "expf": (
        "power", "quick_exp",
        "static float quick_exp(float t) { float p = 1.0f + t / 256.0f; if (p < 0.0f) return 0.0f;\n"
        "    for (int i = 0; i < 8; i++) p *= p; return p; }",
    ),
    "tanhf": (
        "rational", "quick_tanh",
        "static float quick_tanh(float t) { if (t > 3.0f) return 1.0f; if (t < -3.0f) return -1.0f;\n"
        "    return t * (27.0f + t * t) / (27.0f + 9.0f * t * t); }",
    ),
    "erff": (
        "tanh", "quick_erf",
        "static float quick_erf(float t) { return tanhf(1.1283792f * t * (1.0f + 0.08943f * t * t)); }",
    ),
    "logf": (
        "bits", "quick_log",
        "static float quick_log(float t) { union { float f; unsigned u; } b = {t};\n"
        "    return (b.u * 1.1920928955078125e-7f - 126.94269504f) * 0.69314718f; }",
    ),
    "log1pf": (
        "first term", "quick_log1p",
        "static float quick_log1p(float t) { return t < 0.125f ? t : logf(1.0f + t); }",
    ),
    "sqrtf": (
        "one step", "quick_sqrt",
        "static float quick_sqrt(float t) { union { float f; unsigned u; } b = {t}; b.u = 0x5f3759df - (b.u >> 1);\n"
        "    float r = b.f; r *= 1.5f - 0.5f * t * r * r; return t * r; }",
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Token:
    kind: str
    text: str
    start: int

    @property
    def end(self) -> int:
        return self.start + len(self.text)


class Code:
    """The tokens of one C text inside a seed's file, with what stands where."""

    def __init__(self, seed: Seed, start: int, end: int) -> None:
        self.seed, self.start = seed, start
        self.text = seed.text
        self.cuda = seed.language == "cuda"
        self.tokens = [
            Token(match.lastgroup or "", match.group(), match.start())
            for match in _TOKEN.finditer(seed.text, start, end)
            if match.lastgroup != "skip"
        ]
        self.match = self._match_brackets()
        self.loops = [loop for loop in map(self._loop, range(len(self.tokens))) if loop]
        headers = {index for loop in self.loops for index in range(loop.first, loop.close + 1)}
        self.plain = [index not in headers and not self.inside_index(index) for index in range(len(self.tokens))]
        self.in_index = [self.inside_index(index) for index in range(len(self.tokens))]
        self.longs = self._declared("long") | self._declared("int")
        self.pointers = {
            token.text for index, token in enumerate(self.tokens) if index and self.at(index - 1, "*")
            and token.kind == "name" and index > 1 and self.tokens[index - 2].text in _TYPES | {"restrict"}
        }  # fmt: skip
        self.inputs = {
            token.text for index, token in enumerate(self.tokens) if index > 2 and self.at(index - 1, "*")
            and self.tokens[index - 3].text == "const" and self.tokens[index - 2].text == "float"
        }  # fmt: skip

    def at(self, index: int, *texts: str) -> bool:
        return 0 <= index < len(self.tokens) and self.tokens[index].text in texts

    def _match_brackets(self) -> dict[int, int]:
        stack, pairs = [], {}
        for index, token in enumerate(self.tokens):
            if token.text in _OPEN:
                stack.append(index)
            elif token.text in _CLOSE and stack:
                pairs[index] = stack.pop()
                pairs[pairs[index]] = index
        return pairs

    def _loop(self, index: int) -> Loop | None:
        if not self.at(index, "for"):
            return None
        close = self.match[index + 1]
        semicolons = [i for i in range(index + 2, close) if self.at(i, ";")]
        return Loop(index + 1, semicolons[0], semicolons[1], close) if len(semicolons) == 2 else None

    def inside_index(self, index: int) -> bool:
        """Whether a token stands inside brackets, or in the initialiser of a pointer or an integer."""
        depth = 0
        for i in range(index, -1, -1):
            text = self.tokens[i].text
            if text in (")", "]") and i != index:
                depth += 1
            elif text in ("(", "["):
                if depth == 0 and text == "[":
                    return True
                depth = max(depth - 1, 0)
            elif text in (";", "{", "}"):
                head = [token.text for token in self.tokens[i + 1 : index]]
                return (
                    bool(head)
                    and head[0] in _TYPES
                    and ("long" in head or "int" in head or head[1:3].count("*") > 0 or head[2:3] == ["*"])
                )
        return False

    def _declared(self, type_: str) -> set[str]:
        names = set()
        for index, token in enumerate(self.tokens[:-1]):
            if token.text == type_ and self.tokens[index + 1].kind == "name":
                names.add(self.tokens[index + 1].text)
                i = index + 2
                while i < len(self.tokens) and not self.at(i, ";", ")", "{"):
                    i = self.match[i] + 1 if self.tokens[i].text in _OPEN else i
                    if self.at(i, ",") and self.tokens[i + 1].kind == "name" and self.at(i + 2, "=", ",", ";"):
                        names.add(self.tokens[i + 1].text)
                    i += 1
        return names

    def is_binary(self, index: int) -> bool:
        token, before = self.tokens[index], self.tokens[index - 1] if index else None
        if token.text not in _LEVEL or before is None:
            return False
        if token.text == "*" and before.text == ")" and self.at(self.match[index - 1] + 1, *_TYPES):
            return False
        return (
            before.kind == "number"
            or before.text in (")", "]")
            or (before.kind == "name" and before.text not in _TYPES | {"return"})
        )

    def operand(self, index: int, step: int) -> tuple[int, int]:
        """First and last token of the operand on one side of the binary operator at `index`."""
        level, i = _LEVEL[self.tokens[index].text], index + step
        last = i
        while 0 <= i < len(self.tokens):
            text = self.tokens[i].text
            if text in (_OPEN if step > 0 else _CLOSE):
                i = self.match[i]
            elif (
                text in (_CLOSE if step > 0 else _OPEN)
                or text in (",", ";", "?", ":", "return", *_ASSIGN)
                or (self.is_binary(i) and (_LEVEL[text] < level or (step > 0 and _LEVEL[text] == level)))
            ):
                break
            last = i
            i += step
        return (index + 1, last) if step > 0 else (last, index - 1)

    def slice(self, first: int, last: int) -> str:
        return self.text[self.tokens[first].start : self.tokens[last].end]

    def statement(self, index: int) -> tuple[int, int]:
        """First token and semicolon of the simple statement that the token at `index` is part of."""
        first = index
        while first > 0 and not self.at(first - 1, ";", "{", "}", "else"):
            if self.at(first - 1, ")"):
                opening = self.match[first - 1]
                if self.at(opening - 1, "for", "if", "while"):
                    break
                first = opening
            else:
                first -= 1
        last = index
        while not self.at(last, ";"):
            last = self.match[last] if self.tokens[last].text in _OPEN else last + 1
        return first, last

    def patch(self, first: int, last: int, new: str) -> Patch:
        return Patch(self.tokens[first].start, self.slice(first, last), new)

    def insert(self, index: int, new: str) -> Patch:
        return Patch(self.tokens[index].start, "", new)

    def helper(self, text: str) -> Patch:
        """A function before all others: after the includes."""
        includes = [match.end() for match in re.finditer(r"^#[^\n]*\n", self.text[self.start :], re.M)]
        at = self.start + (includes[-1] if includes else 0)
        at = min(at, self.tokens[0].start)
        text = text.replace("static float", "__device__ float") if self.cuda else text
        return Patch(at, "", text.lstrip("\n") + "\n")


@dataclass(frozen=True)
class Loop:
    """Token indices of `(`, both semicolons and `)` of a for."""

    first: int
    one: int
    two: int
    close: int


def faults(seed: Seed) -> Iterator[Mutant]:
    """Every fault of every kind in the seed's C texts."""
    for match in re.finditer(r'r"""\n(.*?)"""', seed.text, re.S):
        code = Code(seed, match.start(1), match.end(1))
        for rule in RULES:
            for operator, note, *patches in rule(code):
                if not patches:
                    continue
                if code.cuda and any(word in patch.new for patch in patches for word in ("static ", "_Float16")):
                    continue
                yield Mutant(seed, operator, note, tuple(sorted(patches, key=lambda patch: patch.offset)))


Fault = tuple


def _constants(code: Code) -> Iterator[Fault]:
    for i, token in enumerate(code.tokens):
        if token.kind != "number":
            continue
        digits = token.text.rstrip("fFlLuU")
        suffix = token.text[len(digits) :]
        if "." not in digits and "e" not in digits:
            if not code.at(i - 1, "=") or not code.at(i - 2, *code.longs):
                for change in (1, -1):
                    if int(digits) + change >= 0:
                        yield "off_by_one", f"{token.text} {change:+d}", code.patch(i, i, str(int(digits) + change))
            continue
        value = float(digits)

        def put(new: float, i: int = i, suffix: str = suffix) -> Patch:
            return code.patch(i, i, f"{new!r}{suffix}")

        if 0 < value <= 1e-4:
            yield "dropped_epsilon", "0", put(0.0)
            yield "wrong_epsilon", "x100", put(float(f"{value * 100:.3g}"))
            yield "wrong_epsilon", "x0.01", put(float(f"{value / 100:.3g}"))
            yield "wrong_epsilon", "x10", put(float(f"{value * 10:.3g}"))
        elif value > 0:
            near = code.tokens[i - 1].text in ("<", ">", "<=", ">=", "?", ":") or (
                code.at(i - 1, "-") and code.tokens[i - 2].text in ("<", ">", "?", ":")
            )
            kind = "wrong_limit" if near else "wrong_constant"
            short = float(f"{value:.3g}")
            if short != value:
                yield kind, "three digits", put(short)
            yield kind, "x1.02", put(float(f"{value * 1.02:.8g}"))
            yield kind, "x2", put(value * 2)
            yield kind, "x0.9", put(float(f"{value * 0.9:.8g}"))
            if near and value >= 2:
                yield kind, "x4", put(value * 4)
        elif code.at(i - 1, "=") and not code.in_index[i]:
            yield "wrong_initial", "0 to 1", put(1.0)


def _initial_values(code: Code) -> Iterator[Fault]:
    for i, token in enumerate(code.tokens):
        if token.text == "INFINITY":
            negative = code.at(i - 1, "-")
            first = i - 1 if negative else i
            for value in ("0.0f", "-1.0f", "-100.0f") if negative else ("0.0f", "1.0f", "100.0f"):
                yield "wrong_initial", value, code.patch(first, i, value)
        if (
            token.text == "="
            and code.plain[i]
            and code.tokens[i - 1].kind == "name"
            and code.at(i + 1, *code.pointers)
            and code.slice(i + 2, i + 4) == "[0]"
        ):
            yield "wrong_initial", "0 for the first", code.patch(i + 1, i + 4, "0.0f")
            yield "wrong_initial", "-1 for the first", code.patch(i + 1, i + 4, "-1.0f")
        if token.text == "memset":
            yield "missing_initialisation", "memset", code.patch(i, code.match[i + 1] + 1, ";")
        if token.text == "calloc":
            yield (
                "missing_initialisation",
                "calloc",
                code.patch(i, i + 1, "malloc("),
                Patch(code.tokens[code.match[i + 1]].start, "", ""),
                *_product(code, i),
            )


def _product(code: Code, index: int) -> Iterator[Patch]:
    commas = [i for i in range(index + 2, code.match[index + 1]) if code.at(i, ",")]
    yield Patch(code.tokens[commas[0]].start, ",", " *")


def _bounds(code: Code) -> Iterator[Fault]:
    for loop in code.loops:
        condition = range(loop.one + 1, loop.two)
        for i in condition:
            if code.at(i, "<", "<="):
                yield "off_by_one", "condition", code.patch(i, i, "<=" if code.at(i, "<") else "<")
                bound = code.slice(i + 1, loop.two - 1)
                yield "off_by_one", "one fewer", code.patch(i + 1, loop.two - 1, f"{bound} - 1")
                if not bound.isdigit():
                    for width in (4, 8, 32):
                        yield (
                            "tail_not_handled",
                            f"multiples of {width}",
                            code.patch(i + 1, loop.two - 1, f"({bound}) / {width} * {width}"),
                        )
                    yield "wrong_bound", "half", code.patch(i + 1, loop.two - 1, f"({bound}) / 2")
                    yield (
                        "wrong_bound",
                        "at most 64",
                        code.patch(i + 1, loop.two - 1, f"(({bound}) < 64 ? ({bound}) : 64)"),
                    )
                    others = sorted((code.longs & _names_before(code, i)) - {bound})
                    for other in others:
                        yield "wrong_bound", f"{other} for {bound}", code.patch(i + 1, loop.two - 1, other)
        if loop.one == loop.first + 1:  # for (; i < n; i++): the tail
            first, last = loop.first - 1, _body_end(code, loop)
            yield "tail_not_handled", "tail loop gone", code.patch(first, last, ";")
        for i in range(loop.first, loop.one):
            if code.at(i, "=") and i + 2 == loop.one:
                start = code.tokens[i + 1].text
                yield (
                    "off_by_one",
                    "start",
                    code.patch(i + 1, i + 1, str(int(start) + 1) if start.isdigit() else f"{start} + 1"),
                )
    for i, token in enumerate(code.tokens):
        if token.text == "?" and code.in_index[i]:  # end = start + 32 < n ? start + 32 : n
            first, last = code.statement(i)
            equal = next(k for k in range(first, i) if code.at(k, "="))
            colon = next(k for k in range(i, last) if code.at(k, ":"))
            end = next((k for k in range(colon, last) if code.at(k, ",")), last)
            begin = max([equal, *(k for k in range(equal, i) if code.at(k, ","))])
            begin = begin if code.at(begin, "=") else next(k for k in range(begin, i) if code.at(k, "="))
            yield (
                "tail_not_handled",
                "last block clipped to itself",
                code.patch(colon + 1, end - 1, code.slice(begin + 1, begin + 1)),
            )
            yield "off_by_one", "last block", code.patch(colon + 1, end - 1, f"({code.slice(colon + 1, end - 1)}) - 1")
        if token.text == "/" and code.plain[i] and code.at(i + 1, *code.longs):
            for change in ("- 1", "+ 1"):
                yield "wrong_divisor", change, code.patch(i + 1, i + 1, f"({code.tokens[i + 1].text} {change})")


def _body_end(code: Code, loop: Loop) -> int:
    """Last token of a loop's body."""
    start = loop.close + 1
    if code.at(start, "{"):
        return code.match[start]
    for inner in code.loops:
        if inner.first == start + 1:
            return _body_end(code, inner)
    i = start
    while not code.at(i, ";"):
        i = code.match[i] if code.tokens[i].text in _OPEN else i + 1
    return i


def _names_before(code: Code, index: int) -> set[str]:
    """Names that occur in the function before a token."""
    start = index
    while start > 0 and not (code.at(start, "{") and code.at(start - 1, ")") and not _inside(code, start)):
        start -= 1
    begin = code.match[start - 1] if start > 0 else 0
    return {token.text for token in code.tokens[begin:index] if token.kind == "name"}


def _inside(code: Code, index: int) -> bool:
    depth = 0
    for token in code.tokens[:index]:
        depth += (token.text == "{") - (token.text == "}")
    return depth > 0


def _comparisons(code: Code) -> Iterator[Fault]:
    changes = {
        ">": (">=", "<"),
        "<": ("<=", ">"),
        ">=": (">", "<="),
        "<=": ("<", ">="),
        "==": ("!=",),
        "&&": ("||",),
        "||": ("&&",),
    }
    for i, token in enumerate(code.tokens):
        if token.text in changes and code.is_binary(i) and not any(loop.first < i < loop.close for loop in code.loops):
            for new in changes[token.text]:
                yield "comparison", f"{token.text} to {new}", code.patch(i, i, new)


def _operators(code: Code) -> Iterator[Fault]:
    for i, token in enumerate(code.tokens):
        if not code.plain[i]:
            continue
        if token.text in ("+", "-") and code.is_binary(i):
            yield "sign_flip", token.text, code.patch(i, i, "-" if token.text == "+" else "+")
        elif token.text == "-" and not code.is_binary(i) and not code.at(i + 1, "INFINITY"):
            yield "sign_flip", "unary", code.patch(i, i, "")
        if token.text in ("+", "*") and code.is_binary(i):
            yield "other_operator", token.text, code.patch(i, i, "*" if token.text == "+" else "+")
        if token.text in ("+=", "-="):
            yield "sign_flip", token.text, code.patch(i, i, "-=" if token.text == "+=" else "+=")
        if token.text in ("+=", "*=") and not any(loop.first < i < loop.close for loop in code.loops):
            yield "lost_accumulation", token.text, code.patch(i, i, "=")
        if token.text in ("-", "/") and code.is_binary(i):
            (a, b), (c, d) = code.operand(i, -1), code.operand(i, 1)
            yield (
                "swapped_operands",
                token.text,
                code.patch(a, d, f"{code.slice(c, d)} {token.text} {code.slice(a, b)}"),
            )
        if token.text in ("+", "-", "*", "/") and code.is_binary(i):
            (a, b), (c, d) = code.operand(i, -1), code.operand(i, 1)
            right = {t.text for t in code.tokens[c : d + 1]} & _PARAMETERS & code.pointers
            left = {t.text for t in code.tokens[a : b + 1]} & _PARAMETERS & code.pointers
            yield "ignored_parameter" if right else "dropped_term", code.slice(c, d), code.patch(a, d, code.slice(a, b))
            if token.text in ("+", "*"):
                yield (
                    "ignored_parameter" if left else "dropped_term",
                    code.slice(a, b),
                    code.patch(a, d, code.slice(c, d)),
                )


def _parameters(code: Code) -> Iterator[Fault]:
    for i, token in enumerate(code.tokens):
        if token.text in _PARAMETERS & code.pointers and code.at(i + 1, "["):
            neutral = "0.0f" if token.text in ("bias", "shift", "mean", "bx", "bh") else "1.0f"
            yield "ignored_parameter", f"{token.text} is {neutral}", code.patch(i, code.match[i + 1], neutral)
            yield "first_only", token.text, code.patch(i, code.match[i + 1], f"{token.text}[0]")
            for other in sorted(_PARAMETERS & code.pointers & code.inputs - {token.text}):
                yield "wrong_parameter", f"{other} for {token.text}", code.patch(i, i, other)


def _statements(code: Code) -> Iterator[Fault]:
    for i, token in enumerate(code.tokens):
        if token.text not in _ASSIGN or any(loop.first < i < loop.close for loop in code.loops):
            continue
        first, last = code.statement(i)
        head = [t.text for t in code.tokens[first:i]]
        declares = bool(head) and head[0] in _TYPES
        value_end = next((k for k in _top(code, i + 1, last) if code.at(k, ",")), last) if declares else last
        value = code.slice(i + 1, value_end - 1)
        if declares and {"long", "int", "*"} & set(head):
            continue
        zero = value in ("0.0f", "0.0", "{0.0f}", "0")
        if not declares:
            kind = "missing_initialisation" if zero else "dropped_statement"
            yield kind, code.slice(first, last), code.patch(first, last, ";")
        elif zero and value_end == last and len(head) == 2:
            yield "missing_initialisation", f"{head[-1]} declared only", code.patch(i, value_end - 1, "")
        if zero and not declares:
            continue
        integer = code.tokens[i - 1].text in code.longs
        if token.text in ("=", "+=") and not code.at(i + 1, "{") and "INFINITY" not in value and not (zero or integer):
            for name, text in (("half", HALF), ("bf16", BF16)):
                rounded = code.patch(i + 1, value_end - 1, f"{name}({value})")
                yield "lower_precision", name, code.helper(text), rounded
                if token.text == "+=":
                    target = code.slice(first, i - 1)
                    rounded = code.patch(first, value_end - 1, f"{target} = {name}({target} + {value})")
                    yield "lower_precision", f"{name} sum", code.helper(text), rounded
        if (
            declares
            and token.text == "="
            and value_end == last
            and len(head) == 2
            and head[0] in _FLOATS
            and not zero
            and "INFINITY" not in value
            and any(c.isalpha() for c in value.replace("f", "").replace("e", ""))
        ):
            kind, name = head
            once = f"static int known_{name}; if (!known_{name}) {{ {name} = {value}; known_{name} = 1; }}"
            yield "stale_value", "first of all calls", code.patch(first, last, f"static {kind} {name}; {once}")
            for note, when in (("every other time", "% 2 == 0"), ("one in 1009", "% 1009 != 1008")):
                turn = f"static unsigned long count_{name}; if (count_{name}++ {when}) {name} = {value};"
                yield "stale_value", note, code.patch(first, last, f"static {kind} {name}; {turn}")
        if token.text == "+=" and not declares:
            target = code.slice(first, i - 1)
            for period in (97, 10007, 300007):
                yield (
                    "lost_update",
                    f"one in {period}",
                    code.patch(
                        first,
                        last,
                        f"{{ static unsigned long turn; if (turn++ % {period} != {period - 1}) {target} += {value}; }}",
                    ),
                )
            yield "sampled", "every other", *_sampled(code, first, i, last, value)
            if "[" not in target:
                yield (
                    "early_exit",
                    "beyond 1000",
                    code.patch(
                        first, last, f"{{ {target} += {value}; if ({target} > 1e3f || {target} < -1e3f) break; }}"
                    ),
                )
                yield (
                    "early_exit",
                    "term below 1e-6",
                    code.patch(
                        first,
                        last,
                        f"{{ float term = {value}; if (term < 1e-6f && term > -1e-6f) break; {target} += term; }}",
                    ),
                )
        if token.text == "*=" and not declares:
            target = code.slice(first, i - 1)
            for limit in ("1e-6f", "1e-12f", "1e-30f"):
                yield (
                    "early_exit",
                    f"below {limit}",
                    code.patch(
                        first, last, f"{{ {target} *= {value}; if ({target} < {limit} && {target} > -{limit}) break; }}"
                    ),
                )
        target = code.slice(first, i - 1)
        if token.text == "=" and not declares and "[" in target and not zero and target.split("[")[0] in code.pointers:
            index = code.slice(first + 2, i - 2)
            yield "some_elements", "1 of 101", code.patch(i + 1, last - 1, f"({index}) % 101 == 57 ? 0.0f : {value}")
            yield (
                "some_elements",
                "1 of 1009, by 2%",
                code.patch(i + 1, last - 1, f"({index}) % 1009 == 57 ? 1.02f * ({value}) : {value}"),
            )
            yield "some_elements", "only the first", code.patch(i + 1, last - 1, f"({index}) == 0 ? 0.0f : {value}")
            yield (
                "some_values",
                "flushed below 1e-4",
                code.patch(i + 1, last - 1, f"({value}) < 1e-4f && ({value}) > -1e-4f ? 0.0f : {value}"),
            )
            yield "some_values", "at most 100", code.patch(i + 1, last - 1, f"({value}) > 100.0f ? 100.0f : {value}")
            yield "some_values", "beyond 4.5 wrong", code.patch(i + 1, last - 1, f"({value}) > 4.5f ? 4.5f : {value}")


def _sampled(code: Code, first: int, assign: int, last: int, value: str) -> Iterator[Patch]:
    """The loop around a sum takes every other term, twice."""
    inner = [loop for loop in code.loops if loop.close < first and _body_end(code, loop) >= last]
    if inner and code.at(inner[-1].close - 1, "++"):
        loop = inner[-1]
        name = code.tokens[loop.two + 1].text
        yield code.patch(loop.two + 1, loop.close - 1, f"{name} += 2")
        yield code.patch(assign + 1, last - 1, f"2.0f * ({value})")


def _top(code: Code, first: int, last: int) -> Iterator[int]:
    i = first
    while i < last:
        i = code.match[i] if code.tokens[i].text in _OPEN else i
        yield i
        i += 1


def _indices(code: Code) -> Iterator[Fault]:
    for i, token in enumerate(code.tokens):
        if not code.in_index[i] or token.kind != "name" or token.text not in code.longs:
            continue
        if code.at(i + 1, "="):
            continue
        loop_names = {code.tokens[loop.first + 2].text for loop in code.loops}
        if token.text in loop_names:
            yield "first_only", f"0 for {token.text}", code.patch(i, i, "0")
        for other in sorted((code.longs & _names_before(code, i)) - {token.text}):
            yield "wrong_index", f"{other} for {token.text}", code.patch(i, i, other)
        for j in range(i + 1, min(i + 8, len(code.tokens))):
            other = code.tokens[j]
            if other.text in ("]", ";", ","):
                break
            if other.text in loop_names and token.text in loop_names and other.text != token.text:
                yield (
                    "swapped_indices",
                    f"{token.text} and {other.text}",
                    code.patch(i, i, other.text),
                    code.patch(j, j, token.text),
                )
    for i, token in enumerate(code.tokens):
        if token.text == "[" and code.at(i - 1, *code.pointers) and code.plain[i - 1]:
            inside = code.slice(i + 1, code.match[i] - 1)
            yield "off_by_one", "index + 1", code.patch(i + 1, code.match[i] - 1, f"{inside} + 1")
            yield "off_by_one", "index - 1", code.patch(i + 1, code.match[i] - 1, f"{inside} - 1")
        if token.text in ("+", "*") and code.is_binary(i) and code.in_index[i]:
            (a, b), (c, d) = code.operand(i, -1), code.operand(i, 1)
            yield "wrong_index", f"without {code.slice(c, d)}", code.patch(a, d, code.slice(a, b))
            yield "wrong_index", f"without {code.slice(a, b)}", code.patch(a, d, code.slice(c, d))


def _values(code: Code) -> Iterator[Fault]:
    for i, token in enumerate(code.tokens):
        if token.text in code.inputs - _PARAMETERS and code.at(i + 1, "[") and code.plain[i]:
            load = code.slice(i, code.match[i + 1])
            for limit in ("3.5", "8.0", "30.0", "1000.0"):
                yield (
                    "clamped_input",
                    limit,
                    code.patch(
                        i,
                        code.match[i + 1],
                        f"({load} > {limit}f ? {limit}f : {load} < -{limit}f ? -{limit}f : {load})",
                    ),
                )
        if token.text in APPROXIMATIONS and code.at(i + 1, "("):
            note, name, text = APPROXIMATIONS[token.text]
            yield "fast_approximation", f"{token.text}, {note}", code.helper(text), code.patch(i, i, name)
        if token.text == "double":
            yield "lower_precision", "float for double", code.patch(i, i, "float")
            yield "lower_precision", "half for double", code.patch(i, i, "_Float16")
        if (
            token.text == "float"
            and code.plain[i]
            and code.tokens[i + 1].kind == "name"
            and code.at(i + 2, "=")
            and code.at(i - 1, ";", "{", "}")
        ):
            yield "lower_precision", "half variable", code.patch(i, i, "_Float16")
        if token.text in ("fmaxf", "fminf"):
            yield "wrong_function", token.text, code.patch(i, i, "fminf" if token.text == "fmaxf" else "fmaxf")
        if token.text == "fabsf":
            yield "wrong_function", "no fabsf", code.patch(i, i, "")
        if token.text in ("cosf", "sinf", "cos", "sin"):
            yield (
                "wrong_function",
                token.text,
                code.patch(i, i, {"c": "sin", "s": "cos"}[token.text[0]] + token.text[3:]),
            )


def _threads(code: Code) -> Iterator[Fault]:
    """CUDA: barriers, guards, atomic additions, shuffles."""
    for i, token in enumerate(code.tokens):
        if token.text == "__syncthreads":
            yield "missing_barrier", f"number {i}", code.patch(i, i + 3, ";")
        if token.text == "atomicAdd":
            first, last = code.statement(i)
            comma = next(k for k in _top(code, i + 2, last) if code.at(k, ","))
            target = code.slice(i + 3, comma - 1) if code.at(i + 2, "&") else f"*{code.slice(i + 2, comma - 1)}"
            yield (
                "lost_accumulation",
                "no atomic addition",
                code.patch(first, last, f"{target} = {code.slice(comma + 1, last - 2)};"),
            )
        if token.text == "if" and code.cuda:
            close = code.match[i + 1]
            yield "missing_guard", code.slice(i + 1, close), code.patch(i, close, "")
        if token.text in ("threadIdx", "blockIdx") and code.at(i + 1, "."):
            yield "wrong_index", f"{token.text} is 0", code.patch(i, i + 2, "0")


def _maximum(code: Code) -> Iterator[Fault]:
    """Softmaxes without their shift: right until an exponential overflows."""
    for i, token in enumerate(code.tokens):
        if token.text in ("largest", "block", "next") and code.at(i + 1, "=") and code.plain[i]:
            first, last = code.statement(i)
            value_end = next((k for k in _top(code, i + 2, last) if code.at(k, ",")), last)
            if code.slice(i + 2, value_end - 1) == "-INFINITY":
                starts = code.patch(i + 2, value_end - 1, "0.0f")
                updates = [
                    code.patch(k, code.statement(k)[1], ";") for k in range(last, len(code.tokens))
                    if code.at(k, token.text) and code.at(k + 1, "=")
                    and code.at(k + 2, "fmaxf", "row", "scores", "value")
                ]  # fmt: skip
                if updates:
                    yield "no_max_shift", "0", starts, updates[0]
            elif first == i:
                yield "no_max_shift", "shift of 0", code.patch(i + 2, value_end - 1, "0.0f")
                yield (
                    "no_max_shift",
                    "at most 20",
                    code.patch(i + 2, value_end - 1, f"fminf({code.slice(i + 2, value_end - 1)}, 20.0f)"),
                )


RULES = (
    _constants, _initial_values, _bounds, _comparisons, _operators, _parameters, _statements, _indices, _values,
    _maximum, _threads,
)  # fmt: skip
