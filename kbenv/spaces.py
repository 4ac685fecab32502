"""A Gymnasium space of arbitrary text: what a model reads and writes.

Gymnasium's own `Text` has a fixed character set and length, and so rejects a compiler's typographic quotes. This space
bounds nothing but what it samples; limits on an answer's size are the evaluator's.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from gymnasium import Space

SAMPLE_CHARACTERS = "abcdefghijklmnopqrstuvwxyz0123456789 \n_=+-*/()[]:.,‘’“”é→λ漢🙂"
"""What `sample` draws from: enough beyond ASCII that code which assumes ASCII is noticed."""


class TextSpace(Space[str]):
    """Every Python string, the empty one included.

    A lone surrogate (a JSON answer may carry one as an escape) is a Python string and hence a member, although it has
    no UTF-8 form: whoever encodes must replace it, as `kbenv.extraction.extract_code` does. `sample` never draws one.

    Batching works through Gymnasium's fallbacks for custom spaces: a vector environment's observations and actions are
    tuples of strings. `AsyncVectorEnv` needs `shared_memory=False`, because text has no fixed size.

    Example:
        >>> space = TextSpace(seed=1)
        >>> "error: expected ‘;’" in space, b"bytes" in space
        (True, False)
    """

    def __init__(self, max_sample_length: int = 64, seed: int | np.random.Generator | None = None) -> None:
        """Makes the space.

        Args:
            max_sample_length: most characters in a sample; members may be longer.
            seed: seed, or generator, of `sample`.

        Raises:
            ValueError: `max_sample_length` is negative.
        """
        if max_sample_length < 0:
            raise ValueError(f"max_sample_length must be at least 0; found {max_sample_length}")
        self.max_sample_length = max_sample_length
        super().__init__(dtype=str, seed=seed)

    @property
    def is_np_flattenable(self) -> bool:
        """False: text of any length has no fixed-size array."""
        return False

    def sample(self, mask: Any | None = None, probability: Any | None = None) -> str:
        """Text of 0 to `max_sample_length` characters; neither valid Python nor a plausible answer.

        Raises:
            ValueError: `mask` or `probability` is given; free text has neither.
        """
        if mask is not None or probability is not None:
            raise ValueError("TextSpace.sample takes neither mask nor probability; pass None for both")
        length = int(self.np_random.integers(0, self.max_sample_length, endpoint=True))
        indices = self.np_random.integers(0, len(SAMPLE_CHARACTERS), size=length)
        return "".join(SAMPLE_CHARACTERS[int(index)] for index in indices)

    def contains(self, x: Any) -> bool:
        """True for every `str`."""
        return isinstance(x, str)

    def to_jsonable(self, sample_n: Iterable[str]) -> list[str]:
        """The strings as they are; `json.dumps` escapes what needs it, lone surrogates included."""
        return list(sample_n)

    def from_jsonable(self, sample_n: list[Any]) -> list[str]:
        """The strings of `to_jsonable`.

        Raises:
            TypeError: an element is no string.
        """
        for sample in sample_n:
            if not isinstance(sample, str):
                raise TypeError(f"a TextSpace holds strings; found {type(sample).__name__}")
        return list(sample_n)

    def __repr__(self) -> str:
        return f"TextSpace(max_sample_length={self.max_sample_length})"

    def __eq__(self, other: object) -> bool:
        """Spaces with the same members are equal, whatever they sample."""
        return isinstance(other, TextSpace)

    def __hash__(self) -> int:
        return hash(TextSpace)
