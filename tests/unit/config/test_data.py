"""Tests what `data` of kit.yaml means, and the messages about what it cannot mean."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kit.config import datasource
from kit.config.kinds import FieldError
from kit.config.settings import load_spec as load_folder
from kit.config.validate import spec_from, values_of
from kit.config.yaml import load_spec
from kit.errors import InputError, InputErrors
from kit.model.data import DataSource, DataSpec


def problems(text: str) -> list[tuple[int | None, str, str]]:
    with pytest.raises(InputErrors) as caught:
        load_spec(text, source="kit.yaml")
    assert all(p.file == "kit.yaml" and p.exit_code == 2 for p in caught.value.problems)
    return [(p.line, p.message, p.hint or "") for p in caught.value.problems]


def test_a_whole_section_is_read_in_its_order() -> None:
    spec = load_spec(
        """\
data:
  web-text:
    from: s3://corpus/web/2026
    to: /data//web/
    stage: ram
    size: 60gb
    split: hosts
    write: yes
  images:
    from: nfs://10.0.0.9/exports/images
    to: /data/images
    stage: none
    options: nfsvers=3,nolock
    dir:
  labels: {from: gpu1:/nvme/labels, to: /data/labels, dir: /nvme/}
""",
        source="kit.yaml",
    )
    assert spec.data == (
        DataSpec(
            name="web-text",
            source=DataSource(kind="store", text="s3://corpus/web/2026", scheme="s3", place="corpus", path="web/2026"),
            to="/data/web",
            stage="ram",
            size="60gb",
            split="hosts",
            write=True,
        ),
        DataSpec(
            name="images",
            source=DataSource(
                kind="nfs", text="nfs://10.0.0.9/exports/images", place="10.0.0.9", path="/exports/images"
            ),
            to="/data/images",
            stage="none",
            options="nfsvers=3,nolock",
        ),
        DataSpec(
            name="labels",
            source=DataSource(kind="host", text="gpu1:/nvme/labels", place="gpu1", path="/nvme/labels"),
            to="/data/labels",
            dir="/nvme",
        ),
    )
    assert spec_from(values_of(spec)) == spec


@pytest.mark.parametrize(
    ("text", "kind", "scheme", "place", "path"),
    [
        ("s3://bucket/imagenet/", "store", "s3", "bucket", "imagenet"),
        ("s3://bucket/", "store", "s3", "bucket", ""),
        ("oss://bucket/a/b", "store", "oss", "bucket", "a/b"),
        ("gs://bucket/a b", "store", "gs", "bucket", "a b"),
        ("azure://container/a", "store", "azure", "container", "a"),
        ("rclone:my box:a/b/", "store", "rclone", "my box", "a/b"),
        ("rclone:box:", "store", "rclone", "box", ""),
        ("rclone:box:/srv/", "store", "rclone", "box", "/srv"),
        ("rclone:box:/", "store", "rclone", "box", "/"),
        ("https://data.example.com/cifar.tgz", "http", "", "data.example.com", "/cifar.tgz"),
        ("https://data.example.com:8443/", "http", "", "data.example.com:8443", "/"),
        ("nfs://fs-1.efs.us-east-1.amazonaws.com/", "nfs", "", "fs-1.efs.us-east-1.amazonaws.com", "/"),
        ("nfs://10.0.0.9:2050/a/b/", "nfs", "", "10.0.0.9:2050", "/a/b"),
        ("lustre://10.0.0.5@tcp/fs/images", "lustre", "", "10.0.0.5@tcp", "fs/images"),
        ("lustre://10.0.0.5@o2ib:10.0.0.6@o2ib/fs", "lustre", "", "10.0.0.5@o2ib:10.0.0.6@o2ib", "fs"),
        ("/data/imagenet", "here", "", "", "/data/imagenet"),
        ("./data", "here", "", "", "./data"),
        ("~/data", "here", "", "", "~/data"),
        ("gpu1:/data//imagenet/", "host", "", "gpu1", "/data/imagenet"),
        ("10.0.0.11:/data", "host", "", "10.0.0.11", "/data"),
    ],
)
def test_a_source_is_taken_apart(text: str, kind: str, scheme: str, place: str, path: str) -> None:
    found = datasource.source(text)
    assert (found.kind, found.scheme, found.place, found.path, found.text) == (kind, scheme, place, path, text)


@pytest.mark.parametrize(
    ("text", "message", "write"),
    [
        ("s4://bucket/x", "there is no scheme s4://", "did you mean s3://?"),
        ("gcs://bucket/x", "there is no scheme gcs://", "did you mean gs://?"),
        ("azur://bucket/x", "there is no scheme azur://", "did you mean azure://?"),
        ("wombat://bucket/x", "there is no scheme wombat://", "write s3://BUCKET/FOLDER"),
        ("ftp://host/x", "rclone may know it", "rclone:REMOTE:PATH"),
        ("file:///data", "a URL of a folder", "/FOLDER or ./FOLDER"),
        ("http://host/x", "protects no byte", "write https://"),
        ("s3://", "has no name of a bucket after s3://", "s3://BUCKET/FOLDER"),
        ("azure:///x", "has no name of a container", "azure://CONTAINER/FOLDER"),
        ("s3://a b/x", "has no possible bucket", "s3://BUCKET/FOLDER"),
        ("s3://bucket", "has no path after the bucket", "s3://bucket/ for all of it"),
        ("s3://bucket/../x", "this path has .. in it", "without .."),
        ("https://host", "has no path after the host", "https://host/"),
        ("https:///x", "has no possible host", "https://HOST/PATH"),
        ("https://host/x?X-Amz-Signature=secret", "has a ? in it", "such as s3://"),
        ("nfs://host", "has no export after the server", "nfs://host/EXPORT"),
        ("nfs://host/a,soft", "no option of a mount can have", "without them"),
        ("lustre://fs.example.com@tcp/fs", "no server of Lustre", "10.0.0.5@tcp/FSNAME"),
        ("lustre://10.0.0.5@tcp", "has no name of a file system", "10.0.0.5@tcp/FSNAME"),
        ("rclone:box", "does not name a remote", "rclone:REMOTE:PATH"),
        ("rclone:s3,secret_access_key=x:bucket", "does not name a remote", "rclone:REMOTE:PATH"),
        ("gpu1:data", "no whole path follows", "gpu1:/FOLDER"),
        ("gpu1:/opt/kit/lab", "kit's own folder", "gpu1:/data"),
        ("gpu1:/", "kit's own folder", "gpu1:/data"),
        ("gpu1:/opt/", "kit's own folder", "gpu1:/data"),
        ("data/web", "is neither a URL nor a path", "write ./data/web"),
        ("//", "is this whole machine", "./data"),
        (" ", "is empty", "write s3://"),
        ("s3://bucket/a\tb", "an unprintable character", "write s3://"),
        ("s3://bucket/" + "a" * 1024, "longer than 1,024 characters", "write s3://"),
    ],
)
def test_a_wrong_source_says_what_to_write(text: str, message: str, write: str) -> None:
    with pytest.raises(FieldError) as caught:
        datasource.source(text)
    assert message in str(caught.value)
    assert write in (caught.value.write or "")


@pytest.mark.parametrize(
    "source",
    [
        "https://ann:hunter2@host/x",
        "s3://KEY:hunter2@bucket/x",
        "s3a://KEY:hunter2@bucket/x",
        "wombat://ann:hunter2@host/x",
        "nfs://ann:hunter2@host/x",
        "lustre://ann:hunter2@host/x",
        "ann:hunter2@host/x",
        "https://host/x?sig=hunter2",
        "rclone:s3,secret_access_key=hunter2:bucket",
        "https://ann:hunter2@host/../x",
    ],
)
def test_no_message_repeats_a_password(source: str) -> None:
    found = problems(f'data: {{web: {{from: "{source}", to: /data/web}}}}')
    assert found
    assert not any("hunter2" in part for _, message, hint in found for part in (message, hint))


NFS = "data:\n  web:\n    from: nfs://10.0.0.9/web\n    to: /data/web\n"
WEB = "data:\n  web:\n    from: s3://bucket/web\n    to: /data/web\n"
PAGES = "data:\n  pages:\n    from: https://data.example.com/pages/\n    to: /data/pages\n"


@pytest.mark.parametrize(
    ("text", "line", "message", "hint"),
    [
        ("data: [web]", 1, "data: a list is not NAME: sections", "data: {imagenet: {from: s3://bucket/imagenet"),
        ("data:\n  web:", 2, "data.web: the data set web needs from and to", "web: {from: s3://bucket/web"),
        ("data:\n  web: s3://b/c", 2, "the data set web needs from and to", "{from: s3://b/c, to: /data/web}"),
        ("data:\n  web:\n    from:\n    to: /a", 2, "the data set web has no from", "from: s3://bucket/imagenet"),
        ("data:\n  web:\n    from: s3://b/c", 2, "the data set web has no to", "to: /data/imagenet"),
        ("data:\n  Web: {from: s3://b/c, to: /a}", 2, "'Web' is not a name of a data set", "lower-case letters"),
        ("data:\n  mpinode: {from: s3://b/c, to: /a}", 2, "mpinode is the name of a service", "another name"),
        (f"{WEB}    frm: x", 5, "data.web.frm: there is no setting 'frm'", "did you mean from?"),
        (f"{WEB}    zzz:", 5, "data.web.zzz: there is no setting 'zzz'", "known settings: from, to, stage"),
        (f"{WEB}    stage: disc", 5, "data.web.stage: 'disc' is not none, disk or ram", "did you mean disk?"),
        (f"{WEB}    stage: memory", 5, "'memory' is not none, disk or ram", "write ram, with size:"),
        (f"{WEB}    stage: ram", 5, "ram needs size", "size: 60gb"),
        (
            "data:\n  web:\n    from: ./web\n    to: /data/web\n    stage: none",
            5,
            "none mounts file servers and stores only, and not ",
            "stage: disk",
        ),
        (f"{PAGES}    stage: none\n    write: true", 6, "nothing can be written to https://", "KIT_OUTPUT_DIR"),
        (f"{WEB}    stage: none\n    split: hosts", 6, "hosts needs a copy on each host", "remove split:"),
        (f"{WEB}    size: 60gb", 5, "size belongs to stage: ram, and this is stage: disk", "remove size:"),
        (f"{WEB}    stage: ram\n    size: 60", 6, "data.web.size: '60' is not a size in b, kb, mb or gb", "size: 60gb"),
        (f"{WEB}    stage: ram\n    size: 1gb\n    dir: /nvme", 7, "dir belongs to stage: disk", "remove dir:"),
        (
            f"{WEB}    options: hard",
            5,
            "only nfs:// and lustre:// have options, and not s3://bucket/web",
            "remove options:",
        ),
        (f"{NFS}    options: hard, soft", 5, "' soft' is not an option of a mount", "by commas alone"),
        (f"{NFS}    options: hard,addr=10.0.0.8", 5, "kit itself sets addr", "from: has the server"),
        (f"{NFS}    options: rw", 5, "kit itself sets rw", "write: says"),
        (f"{WEB}    dir: nvme", 5, "data.web.dir: 'nvme' is not a whole path", "/nvme"),
        (f"{WEB}    dir: /opt/kit/x", 5, "/opt/kit/x belongs to the system", "remove dir:"),
        (f"{WEB}    dir: //tmp/x", 5, "/tmp/x belongs to the system", "remove dir:"),
        (f"{WEB}    dir: /nvme:/x", 5, "has .., a colon", "/nvme"),
        (f"{WEB}    split: host", 5, "'host' is not none or hosts", "did you mean hosts?"),
        (f"{WEB}    write: perhaps", 5, "data.web.write: 'perhaps' is not true or false", "write: false"),
        ("data: {web: {from: [a], to: /a}}", 1, "data.web.from: a list is not one piece of text", "from: s3://bucket"),
        ("data: {web: {from: s3://b/c, to: no}}", 1, "data.web.to: YAML reads 'no' as false", 'to: "no"'),
        ("data: {web: {from: s3://b/c, to: web}}", 1, "data.web.to: 'web' is not a whole path", "/data/imagenet"),
        ("data: {web: {from: s3://b/c, to: /a/../etc}}", 1, "has .., a colon", "/data/imagenet"),
        (
            "data:\n  web:\n    from: nfs://h/x\n    to: /a\n    stage: none\n    split: hosts",
            6,
            "data.web.split: hosts needs a copy on each host",
            "remove split:",
        ),
        (
            f"{WEB}  images: {{from: s3://b/c, to: /data/web}}",
            5,
            "data.images.to: /data/web overlaps with /data/web of the data set web",
            "a folder for itself",
        ),
        (
            f"{WEB}  images: {{from: s3://b/c, to: /data}}",
            5,
            "/data overlaps with /data/web of the data set web",
            "a folder for itself",
        ),
        (f"{WEB}volumes: [/x:/data/]", 4, "/data/web overlaps with '/x:/data/' of volumes:", "a folder for itself"),
        (f"{WEB}volumes: [/x:/data/web/a:ro]", 4, "overlaps with '/x:/data/web/a:ro'", "a folder for itself"),
        (
            "data:\n  a: {from: s3://b/c, to: /a, split: hosts}\n  a-split: {from: s3://b/c, to: /b}",
            3,
            "data.a-split: KIT_DATA_A_SPLIT would be the folder of a-split, and says how a is split",
            "another name",
        ),
        (
            "data:\n  a: {from: s3://b/c, to: /a, stage: none, write: true}\n  a-write: {from: s3://b/c, to: /b}",
            3,
            "data.a-write: KIT_DATA_A_WRITE would be the folder of a-write, and says that ranks write to a",
            "another name",
        ),
        (f"{WEB}env: {{KIT_DATA_WEB_SPLIT: x}}", 5, "kit sets KIT_DATA_WEB_SPLIT itself", "remove it here"),
        (f"{WEB}env: {{KIT_DATA_WEB_WRITE: x}}", 5, "kit sets KIT_DATA_WEB_WRITE itself", "remove it here"),
        (
            f"{WEB}env:\n  A: b\n  KIT_DATA_WEB: /x",
            7,
            "env.KIT_DATA_WEB: kit sets KIT_DATA_WEB itself, for the data set web",
            "remove it here",
        ),
    ],
)
def test_what_cannot_be_has_its_line_and_what_to_write(text: str, line: int, message: str, hint: str) -> None:
    found = problems(text)
    assert [(at, message in said, hint in write) for at, said, write in found] == [(line, True, True)], found


@pytest.mark.parametrize(
    "to",
    [
        "/", "//", "/etc", "/etc/kit", "/usr", "/usr/lib/python3", "/opt", "/opt/kit", "/opt/kit/data", "/var",
        "/var/lib/kit", "/var/lib/kit/data", "/tmp", "/root", "/proc", "/proc/1", "/sys/fs", "/dev", "/dev/shm/x",
        "/bin", "/lib64", "/run", "/run/secrets", "/opt/nccl-plugin", "/./etc", "//etc//",
    ],
)  # fmt: skip
def test_no_data_set_hides_what_a_node_needs(to: str) -> None:
    ((_, message, hint),) = problems(f"data: {{web: {{from: s3://b/c, to: {to}}}}}")
    assert "which the nodes need" in message or "hides what the nodes need there" in message
    assert "/data/imagenet" in hint


@pytest.mark.parametrize("to", ["/data", "/mnt", "/opt/data", "/var/data", "/tmp/data", "/root/data", "/etcetera"])
def test_other_folders_are_free(to: str) -> None:
    (one,) = load_spec(f"data: {{web: {{from: s3://b/c, to: {to}}}}}", source="kit.yaml").data
    assert one.to == to


def test_neighbours_do_not_overlap() -> None:
    text = f"{WEB}  webs: {{from: s3://b/c, to: /data/webs}}\nvolumes: [/x:/data/we]"
    assert [one.to for one in load_spec(text, source="kit.yaml").data] == ["/data/web", "/data/webs"]


def test_a_folder_of_this_machine_starts_beside_kit_yaml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ann")
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "kit.yaml").write_text(
        "data:\n  a: {from: ./a, to: /a}\n  b: {from: ../b, to: /b}\n  c: {from: ~/c, to: /c}\n"
        "  d: {from: s3://bucket/d, to: /d}\n  e: {from: ., to: /e}\n"
    )
    spec = load_folder(folder, flags={}, environ={})
    paths = [str(folder / "a"), str(tmp_path / "b"), "/home/ann/c", "d", str(folder)]
    assert [one.source.path for one in spec.data] == paths
    assert spec.data[0].source.text == str(folder / "a")
    # Operators have the same kit.yaml in different folders.
    assert [one.source.origin for one in spec.data] == ["./a", "../b", "~/c", "s3://bucket/d", "."]


WORDS = [
    "s3", "oss", "https", "nfs", "lustre", "rclone", "://", ":", "/", "//", "..", ".", "~", "@", "10.0.0.5@tcp", "gpu1",
    "bucket", "a b", "?", ",", "\x00", "é", "://a", "s3://b/c", "nfs://h/x", "kit",
]  # fmt: skip
SOURCES = st.one_of(st.text(max_size=30), st.lists(st.sampled_from(WORDS), max_size=6).map("".join))
VALUES = st.one_of(SOURCES, st.sampled_from(["none", "disk", "ram", "hosts", "8gb", "/data", "/nvme", True, 3, ["a"]]))
KEYS = st.sampled_from(["from", "to", "stage", "dir", "size", "split", "write", "frm"])
SECTIONS = st.one_of(VALUES, st.dictionaries(KEYS, VALUES, max_size=5))


@given(SOURCES)
def test_any_source_is_read_or_refused_with_what_to_write(text: str) -> None:
    found: DataSource | None = None
    write: str | None = None
    try:
        found = datasource.source(text)
    except FieldError as error:
        write = error.write
    if found is None:
        assert write
        return
    assert found.text == text
    assert "\0" not in found.path
    assert ".." not in found.path.split("/") or found.kind == "here"


NAMES = st.one_of(st.sampled_from(["web", "a-b", "mpihead"]), st.text(max_size=5))


@given(st.dictionaries(NAMES, SECTIONS, max_size=3))
def test_any_data_is_read_or_refused_with_a_hint(values: dict[str, object]) -> None:
    problems: list[InputError] = []
    try:
        spec = spec_from({"data": values})
    except InputErrors as error:
        problems = list(error.problems)
    if problems:
        assert all(problem.hint and problem.message.startswith("data") for problem in problems)
    else:
        assert spec_from(values_of(spec)) == spec
