"""Do the paper's experiments, on any model, say what the model's own modules say?"""

import csv
import json
import re
from dataclasses import replace
from pathlib import Path

import folders
import numpy as np
import pytest
import torch
from command import refused, works
from naive import UNSEEN, WILD, naive, specimen, tokenizer
from tiny import tiny

from armillary import readouts
from armillary.anatomy.vocabulary import Vocabulary
from armillary.errors import WordError
from armillary.lab.required_words import NOUNS
from armillary.readouts.experiments.nouns import find_nouns

SOME = NOUNS[:12]
SHEETS = ("E1-distances", "E2-extremes", "E3-keys", "E4-values", "E5-directions", "E6-biases", "E7-spectra")
SHEETS += ("E8-trajectory", "E9-schematic", "E10-approach")


def paper_of(name: str, **asked):
    return readouts.paper(specimen(name, SOME), **asked)


@pytest.fixture(scope="module")
def gpt2():
    return paper_of("gpt2")


def test_every_experiment_is_there(gpt2):
    assert tuple(sheet.name for sheet in gpt2) == SHEETS
    assert gpt2["E3"] is gpt2["E3-keys"]
    assert gpt2.about["layers"] == {"read": "0, 1, 2", "of": 3}
    with pytest.raises(KeyError, match="no sheet 'E11' here; known: E1-distances"):
        gpt2["E11"]
    for sheet in gpt2:
        assert sheet.title and sheet.quantities and sheet.table.rows
        assert sheet.plot().layout.height > 100


def test_distances_are_those_of_layer_norm(gpt2):
    e = tiny("gpt2").transformer.wte.weight.detach().double()
    z = torch.nn.functional.layer_norm(e, [32], eps=1e-5)
    centred = e - e.mean(-1, keepdim=True)
    factor = 32**0.5 / e.norm(dim=-1).mean()
    frame = gpt2["E1"].to_frame().set_index("variant")
    for name, x in {"E": e, "E centred": centred, "E scaled": e * factor, "E both": centred * factor}.items():
        distance, cosine = (x - z).norm(dim=-1), torch.nn.functional.cosine_similarity(x, z, dim=-1)
        assert frame.loc[name, "distance"] == pytest.approx(float(distance.mean()))
        assert frame.loc[name, "distance_sd"] == pytest.approx(float(distance.std(correction=0)))
        assert frame.loc[name, "cosine"] == pytest.approx(float(cosine.mean()))
    assert frame.loc["E centred", "cosine"] == pytest.approx(1, abs=1e-4)
    assert (frame.tokens == 97).all()


def test_extreme_tokens_are_those_of_the_output_vectors(gpt2):
    model = tiny("gpt2")
    e, norm = model.lm_head.weight.detach().double(), model.transformer.ln_f
    scaled, shift = (e * norm.weight.detach()).norm(dim=-1), e @ norm.bias.detach().double()
    frame = gpt2["E2"].to_frame()
    truths = {
        "‖e‖": e.norm(dim=-1),
        "‖γ⊙e‖": scaled,
        "‖e‖ + β·e": e.norm(dim=-1) + shift,
        "‖γ⊙e‖ + β·e": scaled + shift,
    }
    assert set(frame.measure) == set(truths)
    for name, values in truths.items():
        for end, sign in (("highest", -1), ("lowest", 1)):
            rows = frame[(frame.measure == name) & (frame.among == "all") & (frame.end == end)]
            assert list(rows.token_id) == (sign * values).argsort()[:5].tolist()
            np.testing.assert_allclose(rows.token_score, values[torch.tensor(list(rows.token_id))])
        words = frame[(frame.measure == name) & (frame.among == "words")]
        assert (words.token_id >= 4).all(), "special tokens are no words"


@pytest.mark.parametrize("name", ["gpt2", "llama", "qwen3", "gemma2", "opt-post", "bert"])
def test_keys_and_values_agree_with_the_models_own_modules(name):
    paper, truth = paper_of(name, layers="last", top=3), naive(name, 2)
    keys, values = paper["E3"].to_frame(), paper["E4"].to_frame()
    assert list(dict.fromkeys(keys.noun)) == list(SOME)
    scores = truth.scores()
    everything = torch.cat((truth.writes, truth.total[None]))
    for n in (0, 7):
        number = 4 + n
        logits = truth.logits(truth.stream[number] + everything[:, number])
        for head in range(4):
            rows = keys[(keys["head"] == f"L2H{head}") & (keys.noun == SOME[n])]
            best = scores[head, number, 4:].topk(3)
            assert list(rows.key_id) == (best.indices + 4).tolist()
            np.testing.assert_allclose(rows.key_score, best.values, rtol=1e-4, atol=1e-5)
        for at, head in enumerate([*(f"L2H{i}" for i in range(4)), "L2 sum"]):
            rows = values[(values["head"] == head) & (values.noun == SOME[n])]
            best = logits[at, 4:].topk(3)
            assert list(rows.result_id) == (best.indices + 4).tolist()
            np.testing.assert_allclose(rows.result_score, best.values, rtol=1e-4, atol=1e-4)
            assert rows.length.iloc[0] == pytest.approx(float(everything[at, number].norm()), rel=1e-5)


def test_forgetting_the_shift_would_show():
    """The mutation: the same read-out without β names other keys."""
    anatomy = specimen("gpt2", SOME)
    blocks = tuple(replace(b, ln1=replace(b.ln1, shift=None)) for b in anatomy.blocks)
    right, wrong = (
        readouts.paper(a, layers="last")["E3"].to_frame() for a in (anatomy, replace(anatomy, blocks=blocks))
    )
    assert (right.key_id != wrong.key_id).mean() > 0.2


def test_directions_are_twenty_at_most_and_on_both_sides(gpt2):
    for matrix in ("W_QK", "W_VO"):
        frame = gpt2["E5"].to_frame(matrix)
        assert set(frame["index"]) == set(range(1, 9)), "a head of width 8 has no more"
        assert len(frame) == 3 * 4 * 8 * 2 * 5
        assert set(frame.sign) == {"+", "−"} and set(frame.matrix) == {matrix}


def test_cumulative_singular_values_are_those_of_the_dense_matrix(gpt2):
    from armillary.anatomy.folded import fold

    dense = fold(specimen("gpt2"), 1).vo().dense()[2].numpy()
    values = np.linalg.svd(dense, compute_uv=False)[:8]
    frame = gpt2["E7"].to_frame("singular-values")
    rows = frame[(frame["head"] == "L1H2") & (frame.matrix == "W_VO")]
    np.testing.assert_allclose(rows.sigma, values, rtol=1e-9)
    np.testing.assert_allclose(rows.cumulative, values.cumsum() / values.sum(), rtol=1e-9)
    heads = gpt2["E7"].to_frame()
    row = heads[(heads["head"] == "L1H2") & (heads.matrix == "W_VO")].iloc[0]
    assert row.n99 == int((values.cumsum() / values.sum() < 0.99).sum()) + 1
    assert row.participation == pytest.approx((values**2).sum() ** 2 / (values**4).sum())


def test_biases_of_a_model_that_has_none():
    sheet = paper_of("llama", layers="first")["E6"]
    assert sheet.title.startswith("No biases") and not sheet.table.rows
    assert all((quantity.values == 0).all() for quantity in sheet.quantities)


def test_what_replaces_a_missing_unembedding_is_said():
    paper = paper_of("bert", layers="first")
    assert "the norm after attention, then the embedding (there is no unembedding)" in paper.notes[0]
    assert any("No unembedding" in note for note in paper["E2"].notes)
    assert "W_QK at Δ = 0" in paper_of("llama", layers="first").notes[0]


# The nouns.


def known(words) -> Vocabulary:
    return Vocabulary.of(specimen("gpt2", words))


def test_nouns_with_a_space_before_them_and_without():
    words = [*(f" {noun}" for noun in NOUNS[:3]), *NOUNS[2:5]]
    spaced, bare = find_nouns(known(words)), find_nouns(known(words), bare=True)
    assert list(spaced.ids) == list(NOUNS[:3]) and list(bare.ids) == list(NOUNS[2:5])
    assert spaced.ids["people"] != bare.ids["people"]
    assert spaced.note.startswith("3 of the 100 nouns are single tokens here, with a leading space; left out: way (")
    assert bare.note.startswith("3 of the 100 nouns are single tokens here, as bare strings; left out: time (")
    table = spaced.table(known(words))
    assert len(table.rows) == 100
    assert table.rows[0] == ("time", " time", 4, "")
    assert table.rows[3][:3] == ("way", "", None) and table.rows[3][3]


def test_a_vocabulary_without_spaces_is_read_bare_and_says_so():
    nouns = find_nouns(known(SOME))
    assert list(nouns.ids) == list(SOME)
    assert "as bare strings (this vocabulary has no tokens that begin with a space)" in nouns.note
    assert "no tokens that begin" not in find_nouns(known(SOME), bare=True).note


def test_no_noun_at_all():
    with pytest.raises(WordError, match=r"none of the 100 nouns is a single token of gpt2.*armillary heads reads"):
        readouts.paper(specimen("gpt2"))


def test_without_a_tokenizer_numbers_are_left():
    paper = readouts.paper(replace(specimen("gpt2"), tokenizer=None), layers="first")
    assert [sheet.name for sheet in paper] == ["E1-distances", "E7-spectra", "E9-schematic"]
    assert "E2 to E6, E8 and E10 need words, and were left out" in paper.notes[1]


# Files.


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    words = [*SOME, *WILD, *UNSEEN]
    anatomy = replace(specimen("gpt2"), name="a|b <i>model</i> 50%", tokenizer=tokenizer(words))
    return readouts.paper(anatomy, "0,2", top=12).save(tmp_path_factory.mktemp("paper"))


def test_the_folder_is_whole_and_its_index_names_every_file(folder):
    readme = (folder / "README.md").read_text("utf-8")
    linked = set(re.findall(r"\]\(([^)]+)\)", readme))
    files = {str(path.relative_to(folder)) for path in folder.rglob("*.*")} - {"README.md"}
    assert linked <= files
    assert all(re.search(r"\.L\d\.tex$", name) for name in files - linked)
    assert "a\\|b \\<i\\>model\\</i\\> 50%" in readme and "<i>" not in readme.replace("\\<i", "")
    assert "ranking dot" in readme and "12 of the 100 nouns" in readme
    for name in SHEETS:
        assert f"| {name} |" in readme


def test_tables_come_back_from_csv(folder):
    for path in (folder / "tables").glob("*.csv"):
        with path.open(encoding="utf-8", newline="") as stream:
            head, *rows = csv.reader(stream)
        assert rows and all(len(row) == len(head) for row in rows), path
    with (folder / "tables" / "E2-extremes.csv").open(encoding="utf-8", newline="") as stream:
        words = {row["token_word"] for row in csv.DictReader(stream)}
    record = json.loads((folder / "E2-extremes.json").read_text("utf-8"))["tables"]["extremes"]
    at = [column["name"] for column in record["columns"]].index("token_word")
    assert words == {row[at] for row in record["rows"]}


def test_pages_and_tables_are_inert(folder):
    for path in folder.rglob("*.html"):
        text = path.read_text("utf-8")
        assert "<script>alert" not in text and "<i>model" not in text and "\u202e" not in text
        assert "Content-Security-Policy" in text
    for path in folder.rglob("*.tex"):
        for line in path.read_text("utf-8").splitlines():
            # At a line's end it hides nothing; a row of a table ends otherwise.
            assert line.startswith("%") or not re.search(r"(?<!\\)%.", line), (path, line)
            assert not re.search("[\x00-\x08\x0b-\x1f\u202e]", line)


def test_the_command(tmp_path):
    model, out = tmp_path / "model", tmp_path / "out"
    tiny("llama").save_pretrained(model)
    tokenizer([f" {noun}" for noun in SOME]).save_pretrained(model)
    printed = works("paper", model, "--out", out, "--layers", "0,2", "--top", 2).stdout
    for name in SHEETS:
        assert name in printed
    assert "12 of the 100 nouns are single tokens here, with a leading space" in " ".join(printed.split())
    assert "Δ = 0" in printed and f"Files: {out}" in printed.replace("\n", "")
    with (out / "tables" / "E3-keys.keys.csv").open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert {row["layer"] for row in rows} == {"0", "2"} and len(rows) == 2 * 4 * 12 * 2
    assert (out / "tables" / "E3-keys.keys.L2.tex").exists()
    refused("layer 5 was asked for", "paper", model, "--out", out, "--layers", "0,5")
    refused("none of the 100 nouns is a single token", "paper", model, "--out", out, "--bare")


def test_refusals_come_before_the_model(tmp_path):
    file = tmp_path / "file"
    file.write_text("")
    missing = tmp_path / "none"
    refused("cannot be written: a file stands where a folder should be", "paper", missing, "--out", file)
    refused("--top 0 would list no word", "paper", missing, "--out", tmp_path / "out", "--top", 0)
    refused("there is no ranking 'dott'; did you mean 'dot'", "paper", missing, "--out", tmp_path, "--ranking", "dott")
    assert Path(file).read_text() == ""


def test_a_tokenizer_of_letters_names_what_it_lacks(tmp_path):
    model = folders.model_folder("gpt2", tmp_path / "model")
    refused("none of the 100 nouns is a single token of .*model", "paper", model, "--out", tmp_path / "out")


def test_the_package_offers_functions_not_modules_of_the_same_name():
    import armillary.readouts.experiments.paper
    import armillary.readouts.head_sheet

    assert readouts.paper is armillary.readouts.experiments.paper.paper
    assert readouts.heads is armillary.readouts.head_sheet.heads
    with pytest.raises(AttributeError, match="no attribute 'papers'"):
        readouts.papers  # noqa: B018
