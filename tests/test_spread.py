"""Few long documents: passages stand in for them, spread over the whole, and the notes say so."""

import random
import re

import folders
import pytest

import armillary
from armillary.errors import TextError
from armillary.flow.documents import Documents, from_any, from_dataset, from_path, sample
from armillary.flow.sources.spread import FEW, LEAST, PASSAGES, spread
from armillary.flow.sources.text_files import Lazy
from armillary.flow.tokens import encode

INDEPENDENT = "cut into 20 passages; intervals treat passages as independent"


class Words:
    """A tokenizer whose tokens are words; a word's number is its place in the book."""

    def __call__(self, text, add_special_tokens=True):
        return {"input_ids": [int(word) if word.isdigit() else 0 for word in re.findall(r"\w+", text)]}


class Letters:
    def __call__(self, text, add_special_tokens=True):
        return {"input_ids": [ord(letter) for letter in text]}


def book(words: int, first: int = 1) -> str:
    """Words with their numbers: a sentence every 8, a paragraph every 40."""
    parts = []
    for number in range(first, first + words):
        parts.append(f"{number}{'.' if number % 8 == 0 else ''}" + ("\n\n" if number % 40 == 0 else " "))
    return "".join(parts)


@pytest.mark.parametrize("budget", [400, 1000, 2500, 20_000])
def test_one_long_text(budget):
    text = book(50_000)
    cut = spread(Documents("book", (text,)), Words(), budget)
    corpus = encode(cut, Words(), 10_000, budget)
    assert corpus.documents == PASSAGES and 0.9 * budget <= corpus.tokens <= budget
    assert corpus.notes == (f"1 document was {INDEPENDENT}",)
    # Every passage is a stretch of the text and begins with a paragraph, and each twentieth of the text has its own.
    starts = sorted(window.ids[0] for window in corpus.windows)
    assert all(start % 40 == 1 for start in starts)
    places = [text.index(passage) / len(text) * PASSAGES for passage in cut.texts]
    assert all(number - 0.2 < place < number + 1 for number, place in enumerate(places))
    ids = [number for window in corpus.windows for number in window.ids]
    assert len(set(ids)) == len(ids)


def test_sentences_words_and_letters_where_there_is_nothing_better():
    def starts(text: str, tokenizer) -> list[int]:
        return [text.index(passage) for passage in spread(Documents("t", (text,)), tokenizer, 1000).texts]

    lines = book(5000).replace("\n\n", " ")
    assert all(start == 0 or lines[start - 2 : start] == ". " for start in starts(lines, Words()))
    words = lines.replace(".", "")
    assert all(start == 0 or words[start - 1] == " " for start in starts(words, Words()))
    rng = random.Random(0)
    letters = "".join(rng.choice("abcdefghij") for _ in range(5000))
    assert len(starts(letters, Letters())) == PASSAGES


def test_a_text_shorter_than_the_budget_is_read_whole():
    text = book(1500)
    corpus = encode(spread(Documents("t", (text,)), Words(), 2500), Words(), 1000, 2500)
    assert corpus.documents == PASSAGES
    assert corpus.tokens >= 0.8 * 1500


def test_another_seed_reads_other_passages():
    first, again, other = (tuple(spread(Documents("t", (book(9000),)), Words(), 1000, s).texts) for s in (1, 1, 2))
    assert first == again and len(set(first) & set(other)) < PASSAGES / 2


def test_what_has_documents_enough_stays_as_it_is():
    many = Documents("t", tuple(book(500, 500 * i) for i in range(FEW)))
    assert spread(many, Words(), 1000) is many
    assert spread(sample(), Words(), 2500).texts == tuple(sample().texts)
    # Short documents, and texts too short for passages, too.
    for texts in ((book(40),) * 9, (book(PASSAGES * LEAST - 1),), ("one", " ", "two")):
        documents = spread(Documents("t", texts), Words(), 1000)
        assert (documents.texts, documents.notes) == (texts, ())
    stream = Documents("t", Lazy(lambda: iter([book(30, 30 * i) for i in range(40)])), ordered=True)
    assert list(spread(stream, Words(), 1000).texts) == list(stream.texts)


def test_a_long_stream_is_read_no_further_than_it_must():
    asked = []

    def texts():
        for number in range(10**6):
            asked.append(number)
            yield book(500)

    encode(spread(Documents("t", Lazy(texts), ordered=True), Words(), 1000), Words(), 1000, 1000)
    assert len(asked) <= FEW


def test_a_book_a_folder_and_a_streamed_dataset(tmp_path):
    (tmp_path / "folder").mkdir()
    for number, words in enumerate((8000, 1000, 40)):
        (tmp_path / "folder" / f"{number}.txt").write_text(book(words, 10_000 * number))
    (tmp_path / "line.txt").write_text(book(5000).replace("\n", " "))
    rows = tmp_path / "rows"
    rows.mkdir()
    (rows / "train.jsonl").write_text("".join(f'{{"text": "{book(2000).replace(chr(10), " ")}"}}\n' for _ in range(2)))
    for documents, sentence in (
        (from_path(tmp_path / "line.txt"), "1 document was"),
        (from_any([book(5000).replace("\n", " ")]), "1 document was"),
        (from_path(tmp_path / "folder"), "3 documents were"),
        (from_dataset(str(rows)), "2 documents were"),
    ):
        corpus = encode(spread(documents, Words(), 1000), Words(), 1000, 1000)
        assert corpus.documents == PASSAGES and f"{sentence} {INDEPENDENT}" in corpus.notes
    # Every file has its part, the large one the most.
    texts = spread(from_path(tmp_path / "folder"), Words(), 1000).texts
    files = [int(re.findall(r"\d+", text)[-1]) // 10_000 for text in texts]
    assert [files.count(number) for number in range(3)] == [17, 2, 1]


def test_a_survey_of_one_line_decides_and_resumes(tmp_path):
    model = str(folders.model_folder("gpt2", tmp_path / "gpt2"))
    line = " ".join(" ".join(sample().texts).split())
    settings = {"claims": "sphere.radius", "tokens": 1000, "quick": True, "progress": False, "out": tmp_path / "out"}
    surveyed = armillary.survey(model, [line], **settings)
    assert surveyed.text.documents == PASSAGES and f"1 document was {INDEPENDENT}" in surveyed.text.notes
    assert surveyed["sphere.radius"].verdict == "supported" and surveyed["sphere.radius"].why is None
    again = armillary.survey(model, [line], **settings)
    assert again.text == surveyed.text and again["sphere.radius"].statistic == surveyed["sphere.radius"].statistic
    with pytest.raises(TextError, match="holds no text"):
        armillary.survey(model, [" "], **settings)
