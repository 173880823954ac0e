"""Only kit/model/names.py spells a cluster's names in kit's Python, and the scripts for VMs agree with it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import kit
from kit.model import names

KIT = Path(kit.__file__).parent
HOME = KIT / "model" / "names.py"
CONSTANTS = {name: value for name, value in vars(names).items() if name.isupper()}
LABELS = {value for name, value in CONSTANTS.items() if name.startswith("LABEL_")}
PORTS = {value for value in CONSTANTS.values() if isinstance(value, int)}
FOLDERS = {names.ROOT, names.MOUNT, names.STATE_MOUNT, names.SECRETS_MOUNT}
# Words that mean other things as well (hosts, network, var) are not looked for.
FILES = {names.COMPOSE_FILE, names.STACK_FILE, names.NODE_ENV, names.RECORD, names.CLIENT_KEY, names.HOST_KEY,
         names.AUTHORIZED_KEYS, names.KNOWN_HOSTS, names.SSH_CONFIG, names.RUNS,
         names.HEAD, names.NODE}  # fmt: skip
# Examples in the help write these files into the user's own folder.
ALLOWED = {("cli/verbs/cluster.py", names.COMPOSE_FILE), ("cli/verbs/cluster.py", names.STACK_FILE)}


def texts(tree: ast.AST) -> Iterator[str]:
    """Every string and number of a module but docstrings."""
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and id(node) not in docstrings and isinstance(node.value, str | int):
            yield str(node.value)


def spelled(text: str) -> set[str]:
    """The names of a cluster that a text spells."""
    words = {*LABELS, *FOLDERS, *FILES, *map(str, PORTS)}
    return {word for word in words if re.search(rf"(?<![\w.-]){re.escape(word)}(?![\w-])", text)}


# What runs on VMs, without the rest of kit. Shell and Python.
SCRIPTS = sorted(path for path in (KIT / "remote" / "scripts").glob("*.*") if path.name != "__init__.py")
MODULES = sorted({*KIT.rglob("*.py")} - {HOME, *SCRIPTS})


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(KIT)))
def test_only_one_module_spells_the_names_of_a_cluster(path: Path) -> None:
    where = str(path.relative_to(KIT))
    tree = ast.parse(path.read_text(encoding="utf-8"))
    spelled_here = {(where, word) for text in texts(tree) for word in spelled(text)}
    assert spelled_here <= ALLOWED


def test_the_search_finds_what_it_looks_for() -> None:
    tree = ast.parse('"""/opt/kit"""\nA = f"{x}/stack.yaml"\nB = {"kit.cluster": 2377}\nC = "/opt/kit/bin"')
    assert set.union(*map(spelled, texts(tree))) == {"stack.yaml", "kit.cluster", "2377", "/opt/kit"}


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_scripts_spell_labels_and_folders_in_the_same_way(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert (
        set(re.findall(r"kit\.(?:cluster|service|spec|image|role|public|bench|data|plugin|host-key)\b", text)) <= LABELS
    )
    roots = set(re.findall(r"/(?:opt|etc|var/lib)/kit\b", text))
    assert roots <= FOLDERS
    assert set(re.findall(r"\b(?:node|stack|compose|cluster)\.(?:env|yaml|json)\b", text)) <= FILES


def test_names_are_made_from_the_clusters_name() -> None:
    assert names.folder("lab") == "/opt/kit/lab"
    assert names.lock_file("lab") == "/opt/kit/.lock/lab"
    assert names.audit_file("lab") == "/opt/kit/.audit/lab"
    assert names.container("lab", names.HEAD) == "kit-lab-mpihead"
    assert names.swarm_service("lab", names.NODE) == "kit-lab_mpinode"
    assert names.node_label("lab") == "kit.lab"
    assert names.data_container("lab", "web-text") == "kit-lab-data-web-text"
    assert names.data_variable("web-text") == "KIT_DATA_WEB_TEXT"
    assert names.data_split_variable("web-text") == "KIT_DATA_WEB_TEXT_SPLIT"
