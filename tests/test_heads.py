"""Do read-outs say what a head does: planted truths come back, and every family agrees with its own modules?"""

import csv
import io
import json
import re
from dataclasses import replace

import folders
import numpy as np
import pytest
import torch
import transformers as tr
from command import refused, works
from naive import UNSEEN, WILD, naive, specimen, tokenizer
from rich.cells import cell_len

from armillary import readouts
from armillary.anatomy.read import read
from armillary.errors import ArmillaryError, OutputError, WordError
from armillary.geometry.factored import Factored
from armillary.readouts.head_spectra import Decomposed, folded_at, ties
from armillary.readouts.reader import Reader
from armillary.readouts.singular_vectors import bias_vectors, directions_table
from armillary.results import Column, Table
from armillary.results.disk.cells import as_text, table_csv
from armillary.views.sheets.latex import in_latex, table_latex
from armillary.views.sheets.lists import gathered
from armillary.views.sheets.sheet import sheet_html, sheet_json, sheet_text

FAMILIES = (
    "gpt2",
    "gpt2-layer-scaled",
    "llama",
    "llama-biased-untied",
    "qwen2",
    "qwen3",
    "gemma2",
    "gpt_neox",
    "opt",
    "opt-post",
    "bert",
)


def planted(W_QK: torch.Tensor | None = None, targets: torch.Tensor | None = None):
    """A GPT-2 of one layer and one head as wide as the model, without gains or biases: W_QK as given, and a W_VO that
    writes the embedding of `targets[a]` for word a."""
    d = 128
    config = tr.GPT2Config(n_embd=d, n_layer=1, n_head=1, vocab_size=97, n_positions=16, bos_token_id=1, eos_token_id=2)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = tr.GPT2LMHeadModel(config).eval()
    with torch.no_grad():
        table = torch.randn(97, d, generator=torch.Generator().manual_seed(1))
        table -= table.mean(1, keepdim=True)
        model.transformer.wte.weight.copy_(table)
        z = torch.nn.functional.layer_norm(table, [d])
        parts = [torch.zeros(d, d)] * 3
        parts[0], parts[1] = torch.eye(d) if W_QK is None else W_QK, torch.eye(d)
        if targets is not None:
            parts[2] = torch.linalg.pinv(z) @ table[targets] * 4
        block = model.transformer.h[0]
        block.attn.c_attn.weight.copy_(torch.cat(parts, 1))
        block.attn.c_proj.weight.copy_(torch.eye(d))
    return replace(read(model, "planted"), tokenizer=tokenizer([]))


# Planted heads.


def test_a_head_that_copies_looks_for_the_word_itself():
    frame = readouts.heads(planted(), word="w7", matrix="qk", top=3).to_frame()
    assert frame.key_word[0] == "w7" and frame.query_word[0] == "w7"
    assert (frame.self_rank == 1).all()
    assert list(frame["rank"]) == [1, 2, 3]


def test_a_head_that_maps_words_writes_the_other_word():
    targets = torch.arange(97).roll(-1)
    sheet = readouts.heads(planted(targets=targets), word="w7", matrix="vo", top=2)
    frame = sheet.to_frame()
    assert set(frame["head"]) == {"L0H0", "L0 sum"}
    best = frame[frame["rank"] == 1]
    assert (best.promoted_word == "w8").all() and (best.result_word == "w8").all()
    assert best.length.iloc[0] == pytest.approx(best.relative.iloc[0] * 128**0.5, rel=0.2)


def test_a_head_that_hates_itself_puts_the_word_last():
    """The control: the same head with its sign turned."""
    frame = readouts.heads(planted(-torch.eye(128)), word="w7", matrix="qk", top=1).to_frame()
    assert frame.self_rank[0] == 93, "last of all that can be shown"


def test_singular_vectors_name_the_words_they_were_made_of():
    anatomy = planted()
    reader = Reader.of(anatomy, 1)
    z = reader.vocabulary.directions(0, torch.tensor([10, 20])).values
    # One pair: queries along word 10, keys along word 20; W_VO of the same pair.
    left, right = (torch.nn.functional.normalize(row, dim=0)[:, None] for row in z)
    part = Decomposed(0, "qk", Factored(left[None], 3 * right[None]).svd())
    frame = directions_table(reader, part, [0], 5).to_frame()
    assert list(frame.sign) == ["+", "−"] and list(frame["index"]) == [1, 1]
    assert (frame.left_word[0], frame.right_word[0]) == ("w6", "w16"), "ids 10 and 20, after four special tokens"
    assert frame.sigma[0] == pytest.approx(3)
    assert frame.left_score[0] == pytest.approx(128**0.5, rel=1e-4)


def test_the_sign_is_the_datas_and_a_pair_turns_as_one():
    reader = Reader.of(planted(), 1)
    z = reader.vocabulary.directions(0, torch.tensor([10, 20])).values
    left, right = (torch.nn.functional.normalize(row, dim=0)[:, None] for row in z)
    part = Decomposed(0, "qk", Factored(left[None], right[None]).svd())
    turned = Decomposed(0, "qk", replace(part.svd, left=-part.svd.left, right=-part.svd.right))
    assert directions_table(reader, part, [0], 1) == directions_table(reader, turned, [0], 1)
    half = Decomposed(0, "qk", replace(part.svd, right=-part.svd.right))
    frame = directions_table(reader, half, [0], 1).to_frame()
    assert frame.left_word[0] == "w6" and frame.right_word[1] == "w16", "turned against each other they stay so"


def test_near_ties_are_marked_as_one_span():
    factored = Factored(torch.eye(5)[None], torch.diag(torch.tensor([5.0, 3.0, 2.99, 2.98, 1.0]))[None]).svd()
    assert ties(factored) == [["", "2–4", "2–4", "2–4", ""]]


# Agreement with Hugging Face's own modules, in float64.


def agree(frame, scores: torch.Tensor, side: str) -> None:
    """The words of a list are the best by the naive scores, and their scores are those."""
    best = scores.sort(descending=True).values
    shown = torch.tensor(frame[f"{side}_score"].to_numpy())
    size = float(scores.abs().max())
    assert torch.allclose(shown, scores[torch.tensor(list(frame[f"{side}_id"]))], rtol=0, atol=2e-5 * size)
    assert torch.allclose(shown, best[: len(shown)], rtol=0, atol=2e-5 * size)


@pytest.mark.parametrize("name", FAMILIES)
def test_keys_queries_and_values_agree_with_the_model(name):
    layer, number = 1, 12
    truth = naive(name, layer)
    anatomy = specimen(name)
    with torch.no_grad():
        sheet = readouts.heads(anatomy, layer=layer, word="w8", top=4)
        scores = truth.scores()
        everything = torch.cat((truth.writes, truth.total[None]))[:, number]
        logits = truth.logits(truth.stream[number] + everything)
    keys, values = sheet.to_frame("keys"), sheet.to_frame("values")
    preferred = scores[:, :, number] - scores[:, :, 4:].mean(-1)
    for head in range(4):
        rows = keys[keys["head"] == f"L1H{head}"]
        agree(rows, masked(scores[head, number]), "key")
        if truth.cap is None:
            agree(rows, masked(preferred[head]), "query")
        own = int((scores[head, number, 4:] > scores[head, number, number]).sum()) + 1
        assert set(rows.self_rank) == {own}
    for at, head in enumerate(["L1H0", "L1H1", "L1H2", "L1H3", "L1 sum"]):
        rows = values[values["head"] == head]
        agree(rows, masked(logits[at]), "result")
        assert rows.length.iloc[0] == pytest.approx(float(everything[at].norm()), rel=1e-5)
        assert rows.relative.iloc[0] == pytest.approx(
            float(everything[at].norm() / truth.stream[number].norm()), rel=1e-5
        )


def masked(scores: torch.Tensor) -> torch.Tensor:
    """Special tokens are never listed: far below every other."""
    scores = scores.clone().double()
    scores[:4] = scores[4:].min() - 1e-9
    return scores


@pytest.mark.parametrize("ranking", ["dot", "cosine"])
@pytest.mark.parametrize("name", ["gpt2", "llama", "qwen3", "bert"])
def test_both_ways_of_looking_up_agree(name, ranking):
    """Few words are compared in the model's width, many in a head's: the same lists."""
    from armillary.readouts.lookups import look_up

    reader = Reader.of(specimen(name), 3, ranking)
    many = look_up(reader, 2, torch.arange(10, 30), range(4))
    few = look_up(reader, 2, torch.tensor([17]), range(4))
    assert (many.self_rank[:, 7:8] == few.self_rank).all()
    for side in ("keys", "queries"):
        a, b = getattr(many, side), getattr(few, side)
        assert (a.ids[:, 7:8] == b.ids).all()
        np.testing.assert_allclose(a.scores[:, 7:8], b.scores, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["llama", "llama-yarn", "gpt_neox"])
def test_offsets_turn_queries_and_keys_as_the_model_does(name):
    from transformers.models.llama.modeling_llama import rotate_half

    anatomy, truth = specimen(name), naive(name, 0)
    rotary = anatomy.blocks[0].attention.rotary.module
    cos, sin = (side.double() for side in rotary(torch.zeros(1, 1, 32), torch.tensor([[9, 4]])))

    def turn(q, k):
        n = cos.shape[-1]

        def placed(x, at):
            some, rest = x[..., :n], x[..., n:]
            return torch.cat((some * cos[0, at] + rotate_half(some) * sin[0, at], rest), -1)

        return placed(q, 0), placed(k, 1)

    with torch.no_grad():
        scores = truth.scores(turn)
    frame = readouts.heads(anatomy, layer=0, head=2, word="w8", matrix="qk", offset=5, top=4).to_frame()
    agree(frame, masked(scores[2, 12]), "key")
    still = readouts.heads(anatomy, layer=0, head=2, word="w8", matrix="qk", top=4).to_frame()
    assert list(frame.key_score) != list(still.key_score)


def test_biases_are_the_terms_of_the_score_that_one_side_leaves_alone():
    """score = z W z' + z·(W_Q b_K) + (b_Q W_K)·z' + a constant: differences of the naive scores give either term."""
    anatomy, truth = specimen("gpt2"), naive("gpt2", 1)
    z = Reader.of(anatomy).vocabulary.directions(1).values
    form = folded_at(anatomy, 1, 0).qk()
    with torch.no_grad():
        left = truth.scores() - (z @ form.left) @ (z @ form.right).mT
        for_keys, for_queries = bias_vectors(folded_at(anatomy, 1, 0))
    by_key, by_query = left[:, 3] - left[:, 3, :1], left[:, :, 3] - left[:, :1, 3]
    assert torch.allclose(by_key, for_keys @ (z - z[0]).mT, atol=1e-9)
    assert torch.allclose(by_query, for_queries @ (z - z[0]).mT, atol=1e-9)


def test_models_without_biases_have_none_to_read():
    sheet = readouts.heads(specimen("llama"), layer=0, head=0)
    assert not sheet.tables["biases"].rows
    assert any("No biases" in note for note in sheet.notes)
    assert readouts.heads(specimen("gpt2"), layer=0, head=0).tables["biases"].rows


# The atlas.


@pytest.mark.parametrize("name", ["gpt2", "llama", "bert"])
def test_the_atlas_has_a_row_for_every_head(name):
    anatomy = replace(specimen(name), tokenizer=folders.tokenizer())
    sheet = readouts.heads(anatomy)
    frame = sheet.to_frame()
    assert list(frame["head"]) == [f"L{layer}H{head}" for layer in range(3) for head in range(4)]
    assert (
        frame[["sigma_1_qk", "sigma_1_vo", "entropy", "r2_cosine", "null_query", "null_value"]].notna().all(axis=None)
    )
    assert frame.null_query.between(0, 1).all() and frame.entropy.between(0, 1).all()
    values = np.linalg.svd(folded_at(anatomy, 2, 0).qk().dense()[1].numpy(), compute_uv=False)
    row = frame[frame["head"] == "L2H1"].iloc[0]
    assert row.sigma_1_qk == pytest.approx(values[0])
    assert row.participation_qk == pytest.approx((values**2).sum() ** 2 / (values**4).sum())
    assert {q.axes[-2:] for q in sheet.quantities} == {("layer", "head")}


def test_a_head_that_looks_back_is_called_so():
    """Positions far larger than words, and a W_QK that takes each place to the one before."""
    config = tr.GPT2Config(
        n_embd=128, n_layer=1, n_head=1, vocab_size=97, n_positions=64, bos_token_id=1, eos_token_id=2
    )
    model = tr.GPT2LMHeadModel(config).eval()
    places = torch.linalg.qr(torch.randn(128, 128, generator=torch.Generator().manual_seed(0)))[0]
    with torch.no_grad():
        model.transformer.wte.weight.mul_(0.01)
        model.transformer.wpe.weight.copy_(places[:64])
        back = sum(torch.outer(places[t], places[t - 1]) for t in range(1, 64))
        block = model.transformer.h[0]
        block.attn.c_attn.weight.copy_(torch.cat((20 * back, torch.eye(128), torch.eye(128)), 1))
    sheet = readouts.heads(replace(read(model, "back"), tokenizer=folders.tokenizer()))
    assert sheet.to_frame().role[0] == "previous" and sheet.to_frame().previous[0] > 0.9
    assert "1 of 1 heads attends mostly to the token before" in sheet.title
    with torch.no_grad():
        block.attn.c_attn.weight[:, :128] = 0
    blind = readouts.heads(replace(read(model, "blind"), tokenizer=folders.tokenizer())).to_frame()
    assert blind.role[0] == "mixed" and blind.entropy[0] == pytest.approx(1, abs=1e-3)
    assert blind.participation_qk[0] is None, "a matrix of zeros has no spread"


def test_without_a_tokenizer_weights_are_still_read():
    anatomy = replace(specimen("llama"), tokenizer=None)
    sheet = readouts.heads(anatomy)
    assert "role" not in sheet.to_frame() and "weights alone" in sheet.notes[0]
    sheet = readouts.heads(anatomy, layer=1, head=2)
    assert "directions" not in sheet.tables and "came without a tokenizer" in sheet.notes[0]
    assert sheet.to_frame("spectra").sigma_1.gt(0).all()
    with pytest.raises(WordError, match=r"came without a tokenizer.*singular values, spectra and the atlas need none"):
        readouts.heads(anatomy, word="w8")


# What is asked for.


def test_what_cannot_be_answered_is_refused():
    rotary, plain = specimen("llama"), specimen("gpt2")
    for asked, message in (
        ({"layer": 3}, r"layer 3 was asked for, but gpt2 has 3 of them; choose one from 0 to 2"),
        ({"layer": "-1"}, r"layer -1 was asked for"),
        ({"layer": "nine"}, r"there is no layer 'nine'; give numbers from 0 to 2, or first, middle, last, all"),
        ({"head": 4}, r"head 4 was asked for, but every layer of gpt2 has 4 of them; choose one from 0 to 3"),
        ({"top": 0}, r"--top 0 would list no word; give at least 1"),
        ({"directions": 0, "layer": 0}, r"--directions 0 would read no direction; give at least 1"),
        ({"matrix": "kq"}, r"there is no matrix 'kq'; choose qk or vo"),
        ({"ranking": "cosin"}, r"there is no ranking 'cosin'; did you mean 'cosine'"),
        (
            {"offset": 2},
            r"--offset 2 was given, but gpt2 does not rotate queries and keys \(its positions are learned\)",
        ),
        ({"word": " "}, r"' ' is not a word; give one with a letter in it"),
    ):
        with pytest.raises(ArmillaryError, match=message):
            readouts.heads(plain, **asked)
    for asked, message in (
        ({"offset": 64}, r"--offset 64 lies beyond the context of 64 tokens; give less than 64"),
        ({"offset": -1}, r"--offset -1 puts the key after its query, which a causal model cannot attend to"),
        ({"offset": 1, "matrix": "vo"}, r"--offset 1 was given with W_VO, which does not depend on positions"),
    ):
        with pytest.raises(ArmillaryError, match=message):
            readouts.heads(rotary, **asked)


def test_layers_by_place():
    from armillary.readouts.settings import pick_layers

    anatomy = specimen("gpt2")
    assert pick_layers("first,middle,last", anatomy) == (0, 1, 2)
    assert pick_layers("2, 0,2", anatomy) == (2, 0)
    assert pick_layers("all", anatomy) == pick_layers(None, anatomy) == (0, 1, 2)
    assert pick_layers(1, anatomy) == (1,)


def test_ov_is_vo():
    a, b = (readouts.heads(specimen("gpt2"), layer=0, head=0, matrix=name) for name in ("OV", "vo"))
    assert a.tables == b.tables
    assert set(a.to_frame("spectra").matrix) == {"W_VO"}


# Words of every kind, in every format.


@pytest.fixture(scope="module")
def wild():
    """Every word of a wild vocabulary, listed."""
    return readouts.heads(specimen("gpt2", [*WILD, *UNSEEN]), layer=0, head=1, top=97)


def test_only_words_that_can_be_shown_are_listed(wild):
    words = set(wild.to_frame().left_word)
    assert set(WILD) <= words
    assert not set(UNSEEN) & words
    assert not {"<pad>", "<s>", "</s>", "<unk>"} & words


def test_csv_comes_back(wild):
    for table in wild.tables.values():
        rows = list(csv.reader(io.StringIO(table_csv(table), newline="")))
        assert rows[0] == [column.name for column in table.columns]
        assert rows[1:] == [["" if cell is None else str(as_text(cell)) for cell in row] for row in table.rows]


def test_json_comes_back(wild):
    record = json.loads(sheet_json(wild))
    assert set(record["tables"]) == set(wild.tables)
    for name, table in wild.tables.items():
        assert [tuple(row) for row in record["tables"][name]["rows"]] == list(table.rows)
    assert record["about"]["settings"]["ranking"] == "dot"
    assert record["about"]["model"]["family"] == "gpt2"


BACK = {
    r"\textbackslash{}": "\\", r"\{": "{", r"\}": "}", r"\$": "$", r"\&": "&", r"\#": "#", r"\%": "%", r"\_": "_",
    r"\textasciicircum{}": "^", r"\textasciitilde{}": "~", r"\textless{}": "<", r"\textgreater{}": ">",
    r"\textbar{}": "|", r"\textquotedbl{}": '"', r"\textquotesingle{}": "'", r"\textasciigrave{}": "`", "{-}": "-",
    r"\textvisiblespace{}": " ",
}  # fmt: skip


def unlatex(text: str) -> str:
    return re.sub("|".join(re.escape(key) for key in BACK), lambda match: BACK[match[0]], text)


def test_latex_comes_back(wild):
    text = table_latex(wild.tables["directions"], "a caption\nof two lines")
    body = [line for line in text.splitlines() if line.startswith("0 & ")]
    listed = gathered(wild.tables["directions"])
    assert len(body) == len(listed.cells)
    for line, lists in zip(body, listed.words, strict=True):
        cells = line.removesuffix(r" \\").split(" & ")
        for cell, words in zip(cells[-2:], lists, strict=True):
            shown = [unlatex(word) for word in re.findall(r"\\texttt\{(.*?)\}(?= \\quad |$)", cell)]
            assert shown == list(words)
    assert text.splitlines()[0] == "% a caption⏎of two lines"
    for line in body:
        bare = re.sub(r"\\[\\{}$&#%_]", "", line)
        assert bare.count("{") == bare.count("}")
        assert not re.search(r"[%#~^_$]", bare.replace("$-$", "")), bare


@pytest.mark.parametrize("text", [*WILD, *UNSEEN, "100% & $5 #1 {a} ~b^c \\d_e <f>|g", "←"])
def test_latex_escapes(text):
    escaped = in_latex(text)
    assert unlatex(escaped) == text
    assert not re.search(r"(?<!\\)[#$%&_]|(?<!\\)[~^]", escaped)


def test_html_is_inert(wild, tmp_path):
    page = wild.save(tmp_path / "x.html").read_text("utf-8")
    for text in (sheet_html(wild), page):
        assert "<script>alert" not in text
        assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
    assert "\u202e" not in page and "\x1b" not in page


def test_the_terminal_is_inert_and_fits(wild):
    for width in (80, 120):
        shown = sheet_text(wild, width)
        assert max(map(cell_len, shown.splitlines())) <= width
        assert not re.search("[\x00-\x09\x0b-\x1f\x7f\u202e]", shown)
        assert len(shown.splitlines()) <= 50


@pytest.mark.parametrize(
    "asked", [{}, {"layer": 1}, {"head": 2}, {"layer": 0, "head": 1}, {"word": "w8"}, {"word": "w8", "layer": "all"}]
)
def test_every_sheet_is_whole(asked, tmp_path):
    anatomy = replace(specimen("llama"), tokenizer=folders.tokenizer() if not asked else tokenizer([]))
    sheet = readouts.heads(anatomy, **asked)
    assert sheet.title and sheet.caption and sheet.quantities and sheet.about["settings"]["offset"] == 0
    assert "Δ = 0" in sheet.caption
    assert len(sheet.to_frame()) == len(sheet.table.rows) > 0
    assert all(column.meaning for table in sheet.tables.values() for column in table.columns)
    assert str(sheet).startswith(sheet.title[:20])
    assert len(sheet_text(sheet, 80).splitlines()) <= 60
    assert sheet.plot().layout.height > 100
    assert sheet._repr_html_().startswith("<div class='armillary'>")
    assert sheet.save(tmp_path / "a.tex").read_text("utf-8").count("\\begin{") == len(sheet.tables)
    assert json.loads(sheet.save(tmp_path / "a.json").read_text("utf-8"))["name"] == sheet.name
    with pytest.raises(OutputError, match=r"choose one of .html .svg .pdf .png .csv .tex .json"):
        sheet.save(tmp_path / "a.gif")
    with pytest.raises(KeyError, match="no table 'nonsense' here; known: "):
        sheet.to_frame("nonsense")


def test_rows_that_differ_by_rank_are_one_line():
    columns = tuple(Column(name, "m") for name in ("head", "rank", "key_word", "key_id", "key_score"))
    assert gathered(Table(columns[:1], (("L0H0",),))) is None
    assert gathered(Table(columns, ())).cells == ()


# The command.


@pytest.fixture(scope="module")
def gpt2(tmp_path_factory):
    return folders.model_folder("gpt2", tmp_path_factory.mktemp("models") / "tiny-gpt2")


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    return folders.model_folder("llama", tmp_path_factory.mktemp("models") / "tiny-llama")


def test_heads_in_every_format(gpt2, tmp_path):
    asked = ("heads", gpt2, "--layer", 1, "--head", 2, "--matrix", "ov", "--out", tmp_path / "out")
    printed = works(*asked).stdout
    assert "W_VO of L1H2 spreads over" in printed and "W_QK" not in printed
    assert f"Files: {tmp_path / 'out'}" in printed.replace("\n", "")
    written = sorted(str(path.relative_to(tmp_path / "out")) for path in (tmp_path / "out").rglob("*.*"))
    assert {"README.md", "heads.json", "figures/heads.html", "tables/heads.directions.csv"} <= set(written)
    assert not [name for name in written if name.endswith(".part")]
    text = works(*asked[:-2], "--format", "csv").stdout
    assert text == (tmp_path / "out" / "tables" / "heads.directions.csv").read_text("utf-8")
    assert json.loads(works(*asked[:-2], "--format", "json").stdout) == json.loads(
        (tmp_path / "out" / "heads.json").read_text("utf-8")
    )
    assert works(*asked[:-2], "--format", "latex").stdout.count(r"\begin{tabular}") == 3
    readme = (tmp_path / "out" / "README.md").read_text("utf-8")
    assert "fingerprint" in readme and "ranking dot" in readme and "figures/heads.html" in readme


def test_the_atlas_and_a_word_in_the_terminal(llama):
    printed = works("heads", llama).stdout
    assert re.search(r"L2 +\d", printed) and "heads that stand out" in printed and "\x1b" not in printed
    printed = works("heads", llama, "--word", "th", "--layer", "last", "--offset", 3, "--ranking", "cosine").stdout
    printed = " ".join(printed.split())  # a long path wraps the line
    assert "Δ = 3" in printed and "ranked by cosine" in printed and "L2 sum" in printed


def test_refusals_on_the_command_line(gpt2, llama, tmp_path):
    split = r"'thorough' is \d tokens here \('th' · .*\), but must be one; choose one of them"
    refused(split, "heads", gpt2, "--word", "thorough")
    refused("'жж' is not a word of this vocabulary; none is spelled like it", "heads", gpt2, "--word", "жж")
    refused("layer 7 was asked for", "heads", gpt2, "--layer", 7)
    refused("head 9 was asked for", "heads", gpt2, "--layer", 0, "--head", 9)
    refused("--offset 64 lies beyond the context", "heads", llama, "--offset", 64)
    refused("does not rotate queries and keys", "heads", gpt2, "--offset", 1)
    missing = tmp_path / "none"
    refused("--top 0 would list no word", "heads", missing, "--top", 0)
    refused("there is no format 'latx'; did you mean 'latex'", "heads", missing, "--format", "latx")
    refused("there is no matrix 'q'; choose qk or vo", "heads", missing, "--matrix", "q")
    file = tmp_path / "file"
    file.write_text("")
    refused("cannot be written: a file stands where a folder should be", "heads", missing, "--out", file)
    bare = folders.spoilt(gpt2, tmp_path / "bare")
    for path in bare.glob("tokenizer*"):
        path.unlink()
    refused("came without a tokenizer, so nothing can be shown in words", "heads", bare, "--word", "th")
    assert "weights alone" in works("heads", bare).stdout
