"""Help from the table of verbs: for all of kit, a group of verbs or one verb. Also docs/cli.md."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from kit.cli.verbs.options import CLUSTER, GLOBAL, HELP
from kit.cli.verbs.table import VERBS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kit.cli.verbs.grammar import Option, Verb

WIDTH = 100
_INTRO = "kit turns a list of GPU VMs into an MPI cluster and runs Horovod training on it."
_EXITS = (
    ("0", "done"),
    ("1", "something else failed"),
    ("2", "a flag, hosts or kit.yaml is wrong"),
    ("3", "a host or your Docker Engine cannot be reached, or a host key is wrong"),
    ("4", "a step failed on a host"),
    ("5", "the cluster is not ready for this verb"),
    ("6", "an image cannot be built, found or shipped"),
    ("70", "a bug in kit; kit names a file with the details"),
    ("130", "interrupted, after cleaning up"),
)


def text(path: Sequence[str]) -> str:
    """Return help for the words so far: a verb (`image build`), a group (`image`), or all of kit without words."""
    verbs = [verb for verb in VERBS if verb.words[: len(path)] == tuple(path)]
    if not path:
        return _all()
    own = next((verb for verb in verbs if verb.words == tuple(path)), None)
    if own is not None:
        return _verb(own, [verb for verb in verbs if verb is not own])
    rows = [(f"kit {verb.name}", verb.purpose) for verb in verbs]
    group = f"kit {' '.join(path)}"
    return f"{_section(f'{group} …', rows)}\n\nMore: {group} VERB --help"


def _all() -> str:
    parts = [_INTRO, "Usage: kit [global options] VERB [options]"]
    groups = dict.fromkeys(verb.group for verb in VERBS)
    parts += [_section(group, [(v.name, v.purpose) for v in VERBS if v.group == group]) for group in groups]
    parts.append(_section("Global options, before or after the verb", _rows((*GLOBAL, HELP))))
    parts.append("First steps:  kit init;  edit hosts;  kit deploy;  kit run --np 8 --npernode 2")
    parts.append("More: kit VERB --help")
    return "\n\n".join(parts)


def _verb(verb: Verb, longer: Sequence[Verb] = ()) -> str:
    """Return the help of one verb. `longer` are verbs whose words begin with this verb's words."""
    parts = [verb.purpose, f"Usage: {verb.usage}"]
    if verb.notes:
        parts.append(textwrap.fill(verb.notes, WIDTH))
    if verb.operands:
        parts.append(_section("Arguments", [(o.name, o.help) for o in verb.operands]))
    own = [option for option in verb.options if option not in CLUSTER]
    if own:
        parts.append(_section("Options", _rows(own)))
    if len(own) < len(verb.options):
        parts.append(_section("Instead of the settings in kit.yaml", _rows(CLUSTER)))
    parts.append("Global options: kit --help")
    parts.append(_section("Examples", [(example, "") for example in verb.examples]))
    if verb.exits:
        parts.append(_section("Exit codes", verb.exits))
    if longer:
        parts.append(_section("See also", [(f"kit {other.name}", other.purpose) for other in longer]))
    return "\n\n".join(parts)


def _rows(options: Iterable[Option]) -> list[tuple[str, str]]:
    return [(option.spelled, option.help) for option in options]


def _section(title: str, rows: Iterable[tuple[str, str]]) -> str:
    rows = list(rows)
    width = min(max(len(left) for left, _ in rows), 30)
    lines = [f"{title}:"]
    for left, right in rows:
        wrapped = textwrap.wrap(right, WIDTH - width - 4) or [""]
        if len(left) > width and right:
            lines.append(f"  {left}")
            left = ""  # noqa: PLW2901  (a long spelling gets a separate line)
        lines.append(f"  {left:<{width}}  {wrapped[0]}".rstrip())
        lines += [f"  {'':<{width}}  {more}" for more in wrapped[1:]]
    return "\n".join(lines)


def markdown() -> str:
    """Return docs/cli.md."""
    parts = [
        "# The command line",
        "`scripts/docs-cli` writes this page from `kit/cli/verbs`; a test fails if the page is out of date.",
        _INTRO + " Global options work before and after the verb. kit prints results to stdout and progress to stderr.",
        "| verb | what it does |\n|---|---|\n"
        + "\n".join(f"| [`kit {v.name}`](#kit-{'-'.join(v.words)}) | {v.purpose} |" for v in VERBS),
        "## Global options",
        _options(GLOBAL),
        "## Exit codes",
        "\n".join(f"- `{code}`: {meaning}" for code, meaning in _EXITS)
        + "\n\n`kit run`, `local`, `exec` and `ssh` return the exit code of the command that they ran.",
        "## JSON",
        "With `--output json`, kit prints one object per line to stdout. Each has `kit` (1, the version of the format) "
        "and `kind`. The lines of a job are `line` objects (`text`, `stream`, `source`). The result comes last. "
        "`run`, `attach`, `wait` and `stop` print a run in the same shape. Of a run that failed, `headline` says what "
        "failed, and `cause` (`text`, `hint`) why, if kit knows it. Times are RFC 3339 in UTC. "
        "An error is an `error` object (`message`, `hint`, `host`, `exit_code`, `failures`). "
        "For a secret, kit prints only the SHA-256 and the size.",
    ]
    for verb in VERBS:
        parts += _markdown_verb(verb)
    return "\n\n".join(parts) + "\n"


def _markdown_verb(verb: Verb) -> list[str]:
    parts = [f"## kit {verb.name}", f"{verb.purpose}.", f"```\n{verb.usage}\n```"]
    if verb.notes:
        parts.append(verb.notes)
    if verb.operands:
        parts.append("\n".join(f"- `{o.name}`: {o.help}" for o in verb.operands))
    if verb.options:
        parts.append(_options(verb.options))
    parts.append("```bash\n" + "\n".join(verb.examples) + "\n```")
    if verb.exits:
        parts.append("Exit codes: " + "; ".join(f"`{code}` {meaning}" for code, meaning in verb.exits) + ".")
    return parts


def _options(options: Iterable[Option]) -> str:
    return "| option | what it does |\n|---|---|\n" + "\n".join(
        f"| `{option.spelled}` | {option.help} |" for option in options
    )
