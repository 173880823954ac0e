"""Completion: what a shell can offer after some words, the scripts for the shells, and Tab in a real bash."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kit.cli import recent
from kit.cli.complete import answer, script
from kit.cli.main import main
from kit.cli.verbs.table import VERBS
from kit.plan.bench.cases import PRESETS
from tests.shells import cases, typed

HOSTS = "10.0.0.1 name=alpha1\n10.0.0.2 name=alpha2\n10.0.0.3 name=beta1\n"
RUN = "20261121-101500-3fa2"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "hosts").write_text(HOSTS)
    session = tmp_path / "bench" / "20261121-101500-egs"
    session.mkdir(parents=True)
    (session / "session.json").write_text("{}")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def offered(line: str, shell: str = "fish", **environ: str) -> list[str]:
    """Return what is offered for the last word of the line, without descriptions."""
    lines = answer(shell, line.split(" "), environ).splitlines()
    return [text.partition("\t")[0] for text in lines]


OFFERS = [
    ("dep", ["deploy"]),
    ("ru", ["run", "runs"]),
    ("image ", ["build", "push", "tag", "render", "sbom"]),
    ("image ta", ["tag"]),
    ("bench re", ["report"]),
    ("-q lock st", ["status"]),
    ("run --retr", ["--retries", "--retry-on"]),
    ("run --retry-on ", ["any", "lost-host"]),
    ("run --retry-on=", ["--retry-on=any", "--retry-on=lost-host"]),
    ("--out", ["--output"]),
    ("ps --output j", ["json"]),
    # lab up has its own --hosts, with a number; the global one takes a file.
    ("lab up --hosts ", []),
    ("--hosts ", [":files"]),
    ("-C ", [":folders"]),
    ("deploy --ssh-key=", [":files"]),
    ("run --code ", [":folders"]),
    ("ssh ", ["alpha1", "alpha2", "beta1"]),
    ("ssh alpha1 ", []),
    ("exec beta1,al", ["beta1,alpha1", "beta1,alpha2"]),
    ("run -H alpha1,alpha1,", ["alpha1,alpha1,alpha2", "alpha1,alpha1,beta1"]),
    ("--hosts elsewhere ssh ", []),
    ("-C nowhere ssh ", []),
    ("run ", [":files"]),
    ("run python --ep", [":files"]),
    ("exec -- ", [":files"]),
    ("bench --preset ", list(PRESETS)),
    ("bench --session ", ["20261121-101500-egs"]),
    ("bench compare 2026", ["20261121-101500-egs"]),
    ("predict --model resnet5", ["resnet50"]),
    ("doctor --explain own", ["own-name"]),
    ("doctor --pairs ", ["all", "quick", "none"]),
    ("predict --library ", ["nccl", "mpi"]),
    ("completion ", ["bash", "zsh", "fish"]),
    # Words that kit would refuse.
    ("nosuch ", []),
    ("run --nosuch ", []),
    ("ps -- ", []),
]


@pytest.mark.parametrize(("line", "words"), OFFERS, ids=[line for line, _ in OFFERS])
def test_what_is_offered(folder: Path, line: str, words: list[str]) -> None:
    assert offered(line) == words


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_quote_of_the_last_word_may_be_open(folder: Path, shell: str) -> None:
    for quote in ("'", '"'):
        assert offered(f"ssh {quote}be", shell) == ["beta1"]


def test_bash_takes_words_apart_at_the_equals_sign(folder: Path) -> None:
    for line in ("run --retry-on = l", "run --retry-on=l"):
        assert offered(line, "bash") == ["lost-host"]
    assert offered("run --retry-on =", "bash") == ["any", "lost-host"]


def test_a_verb_and_an_option_are_offered_with_what_they_do() -> None:
    assert answer("zsh", ["depl"], {}) == f"deploy\t{next(v.purpose for v in VERBS if v.name == 'deploy')}"
    assert "--dry-run\tPrint the plan" in answer("zsh", ["deploy", "--dry"], {})


def test_the_hosts_file_of_the_environment(folder: Path) -> None:
    (folder / "mine").write_text("10.0.0.9 name=gamma\n")
    assert offered("ssh ", KIT_HOSTS="mine") == ["gamma"]
    assert offered("--hosts hosts ssh b", KIT_HOSTS="mine") == ["beta1"]


def test_the_folder_of_a_flag_wins_over_files_of_the_environment(folder: Path) -> None:
    (folder / "mine").write_text("10.0.0.9 name=gamma\n")
    (folder / "mine.yaml").write_text("data:\n  theirs: {from: 's3://b/', to: /data/t}\n")
    (folder / "kit.yaml").write_text("data:\n  ours: {from: 's3://b/', to: /data/o}\n")
    assert offered("-C . ssh b", KIT_HOSTS="mine") == ["beta1"]
    assert offered("data stage ", KIT_CONFIG="mine.yaml") == ["theirs"]
    assert offered("-C . data stage ", KIT_CONFIG="mine.yaml") == ["ours"]


def test_runs_are_those_that_kit_showed_for_this_folder(folder: Path) -> None:
    cache = str(folder / "cache")
    assert offered("attach ", XDG_CACHE_HOME=cache) == []
    recent.remember(["20261120-101500-aaaa", RUN], Path(), {"XDG_CACHE_HOME": cache})
    assert offered("attach ", XDG_CACHE_HOME=cache) == [RUN, "20261120-101500-aaaa"]
    assert offered("logs ", XDG_CACHE_HOME=cache) == ["alpha1", "alpha2", "beta1", RUN, "20261120-101500-aaaa"]
    assert offered("-C bench attach ", XDG_CACHE_HOME=cache) == []
    recent.remember((f"20271121-101500-{n:04}" for n in range(50)), folder, {"XDG_CACHE_HOME": cache})
    assert len(offered("stop 2027", XDG_CACHE_HOME=cache)) == recent.KEPT


def test_a_cache_that_cannot_be_written_is_no_error(folder: Path) -> None:
    (folder / "file").write_text("")
    for environ in ({}, {"HOME": str(folder / "file")}):
        recent.remember([RUN], folder, environ)
        assert offered("attach ", **environ) == []


def test_the_hidden_verb_never_fails(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "hosts").write_text("\x00 nonsense [")
    for words in ([], ["fish"], ["fish", ""], ["fish", "ssh", ""], ["fish", "run", "--np", "x", ""], ["zsh", "=", "="]):
        assert main(["__complete", *words], environ={}) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert "deploy\t" in out


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_scripts(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell], environ={}) == 0
    assert capsys.readouterr().out == f"{script(shell)}\n"
    assert main(["completion", shell, "--json"], environ={}) == 0
    assert json.loads(capsys.readouterr().out)["script"] == script(shell)
    assert f"__complete {shell} " in script(shell)


def test_tab_in_bash(tmp_path: Path) -> None:
    lines = cases(tmp_path)
    assert {line: typed("bash", line, tmp_path) for line, _ in lines} == dict(lines)


def test_data_sets_of_kit_yaml_are_offered(folder: Path) -> None:
    assert offered("data stage ") == []
    (folder / "kit.yaml").write_text(
        "data:\n  images: {from: s3://b/images, to: /data/images}\n  labels: {from: s3://b/labels, to: /data/labels}\n"
    )
    for words in ("data stage ", "data verify ", "data rm ", "data stop ", "run --data "):
        assert offered(words) == ["images", "labels"], words
    assert offered("data stage images la") == ["labels"]
    (folder / "kit.yaml").rename(folder / "other.yaml")
    assert offered("data stage la") == []
    assert offered("--config other.yaml data stage la") == ["labels"]
    (folder / "kit.yaml").write_text("data: 3\n")
    assert offered("data stage ") == []
