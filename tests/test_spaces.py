"""The text space: every string is a member, samples are bounded and repeatable, vector environments can batch it."""

from __future__ import annotations

import copy
import json
import pickle

import pytest
from gymnasium.spaces import Text, Tuple
from gymnasium.vector.utils import batch_space, concatenate, create_empty_array, iterate
from hypothesis import given
from hypothesis import strategies as st

from kbenv.spaces import TextSpace

any_text = st.text(st.characters(exclude_categories=()))


@given(any_text)
def test_contains_every_string(text: str) -> None:
    assert text in TextSpace()


@pytest.mark.parametrize("text", ["", "error: expected ‘;’ before ‘}’", "🙂👩‍👩‍👧", "\ud800", "\0", "x" * 1_000_000])
def test_contains_what_gymnasiums_text_rejects(text: str) -> None:
    assert text in TextSpace()
    assert text not in Text(1000)


@pytest.mark.parametrize("value", [b"bytes", None, 3, ["text"]])
def test_contains_nothing_but_strings(value: object) -> None:
    assert value not in TextSpace()


def test_samples_are_members_of_bounded_length_and_encodable() -> None:
    space = TextSpace(max_sample_length=5, seed=0)
    samples = [space.sample() for _ in range(200)]
    assert {len(sample) for sample in samples} == set(range(6))
    for sample in samples:
        assert sample in space
        sample.encode()
    assert any(not sample.isascii() for sample in samples)


def test_equal_seeds_give_equal_samples() -> None:
    first, second = TextSpace(seed=7), TextSpace()
    second.seed(7)
    assert [first.sample() for _ in range(5)] == [second.sample() for _ in range(5)]


def test_sample_refuses_masks() -> None:
    with pytest.raises(ValueError, match="neither mask nor probability"):
        TextSpace().sample(mask=[1])


def test_negative_sample_length_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 0; found -1"):
        TextSpace(max_sample_length=-1)


def test_equality_is_of_members() -> None:
    assert TextSpace(3) == TextSpace(5)
    assert hash(TextSpace(3)) == hash(TextSpace(5))
    assert TextSpace() != Text(5)


def test_repr_names_the_argument() -> None:
    assert repr(TextSpace(9)) == "TextSpace(max_sample_length=9)"


def test_is_not_flattenable() -> None:
    assert TextSpace().is_np_flattenable is False


@given(st.lists(any_text))
def test_json_round_trip(texts: list[str]) -> None:
    space = TextSpace()
    assert space.from_jsonable(json.loads(json.dumps(space.to_jsonable(texts)))) == texts


def test_from_jsonable_refuses_what_is_no_text() -> None:
    with pytest.raises(TypeError, match="found int"):
        TextSpace().from_jsonable(["a", 1])


def test_copies_and_pickles_keep_the_random_state() -> None:
    space = TextSpace(seed=3)
    space.sample()
    twins = [copy.deepcopy(space), pickle.loads(pickle.dumps(space))]
    expected = space.sample()
    assert [twin.sample() for twin in twins] == [expected, expected]


def test_vector_utilities_batch_to_tuples() -> None:
    space = TextSpace(seed=1)
    batched = batch_space(space, 3)
    assert isinstance(batched, Tuple)
    assert len(batched) == 3
    assert batched.sample() in batched
    items = ("a", "‘b’", "")
    assert concatenate(space, items, create_empty_array(space, 3)) == items
    assert tuple(iterate(batched, items)) == items
