"""Ids and names: what may be one, and how derived ones are made."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.model.errors import InvalidId
from perdure.model.ids import MAX_NAME, MAX_RUN_ID, check_name, check_run_id, child_id, fan_id, next_link, step_id


@pytest.mark.parametrize(
    "text", ["a", "order:42", "p~1", "a b", "Bestellung-ä-\U0001f600", "'; drop table runs; --", "<script>", "%s"]
)
def test_printable_text_is_an_id(text: str) -> None:
    assert check_run_id(text) == text
    assert check_name(text) == text


@pytest.mark.parametrize("text", ["", " ", "\t\n", "\u2003"])
def test_f5_empty_and_blank_ids_are_refused(text: str) -> None:
    with pytest.raises(InvalidId, match="a run id is empty; give one with at least one visible character"):
        check_run_id(text)
    with pytest.raises(InvalidId, match="a tag is empty"):
        check_name(text, "a tag")


@pytest.mark.parametrize("text", ["a\0b", "a\nb", "a\ud800", "\x1b[31m", "a\u200bb", "a\u2028b", "a\x7f"])
def test_characters_that_some_store_or_page_could_not_carry_are_refused_and_shown_escaped(text: str) -> None:
    with pytest.raises(InvalidId, match="not printable") as caught:
        check_run_id(text)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("value", [None, 3, b"a", ["a"]])
def test_other_types_are_no_ids(value: Any) -> None:
    with pytest.raises(InvalidId, match=f"a run id must be a string, not {type(value).__name__}"):
        check_run_id(value)


def test_ids_and_names_have_a_greatest_length() -> None:
    assert check_run_id("x" * MAX_RUN_ID)
    assert check_name("x" * MAX_NAME)
    with pytest.raises(InvalidId, match=f"has 513 characters, more than the {MAX_RUN_ID} allowed: 'xxx"):
        check_run_id("x" * 513)
    with pytest.raises(InvalidId, match=f"has 256 characters, more than the {MAX_NAME} allowed"):
        check_name("x" * 256)


@given(st.text())
def test_f5_any_text_is_an_id_as_it_is_or_refused(text: str) -> None:
    try:
        assert check_run_id(text) is text
    except InvalidId:
        assert not text.strip() or not text.isprintable() or len(text) > MAX_RUN_ID  # either way is right
    else:
        assert text.encode("utf-8")
        assert "\0" not in text


def test_can_02_the_links_of_a_chain_count_up() -> None:
    links = ["p"]
    for _ in range(12):
        links.append(next_link(links[-1]))
    assert links[:4] == ["p", "p~1", "p~2", "p~3"]
    assert links[-1] == "p~12"


@pytest.mark.parametrize(
    ("run_id", "link"),
    [
        ("a~b", "a~b~1"),
        ("a~1~", "a~1~~1"),
        ("p.child.0", "p.child.0~1"),
        ("a~9", "a~10"),
        ("~", "~~1"),
        ("a~1~7", "a~1~8"),
        ("7", "7~1"),
    ],
)
def test_can_02_only_a_number_at_the_end_is_counted(run_id: str, link: str) -> None:
    assert next_link(run_id) == link


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1), st.integers(1, 30))
def test_can_02_no_link_of_a_chain_has_the_id_of_another(run_id: str, links: int) -> None:
    seen = [run_id]
    for _ in range(links):
        seen.append(next_link(seen[-1]))
    assert len(set(seen)) == len(seen)


def test_derived_ids_are_made_from_their_parts_alone() -> None:
    assert child_id("p", 3) == "p.child.3"
    assert fan_id("p", 5, 0) == "p.all.5.0"
    assert step_id("p", 7, 2) == "p:7:2"
    assert child_id(next_link("p"), 0) == "p~1.child.0"


def test_f5_a_name_of_more_bytes_than_an_index_takes_is_refused() -> None:
    assert check_name("\U0001f600" * 200) == "\U0001f600" * 200
    with pytest.raises(InvalidId, match="a token has 804 bytes as UTF-8, more than the 800 allowed"):
        check_name("\U0001f600" * 201, "a token")
    assert check_name("語" * MAX_NAME)
