"""The cpu image on this machine's engine: what is in it, what is not, and what it does. Built when missing."""

from __future__ import annotations

import base64
import contextlib
import io
import json
import os
import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from kit.errors import ImageError
from kit.events import Event, HostStep, Silent
from kit.flows.image.base import bring_bases
from kit.flows.image.build import ImageResult, build_image
from kit.flows.image.lock_bases import ask_registries
from kit.flows.image.sbom import sbom
from kit.model.image import ImageContent
from kit.model.spec import ClusterSpec, ImageSpec
from kit.plan.bases import LOCK, lock_text
from kit.plan.image import image_content, needed_bases
from kit.remote.engine.build import BuildStep
from kit.remote.engine.client import Engine
from kit.remote.engine.hiccups import insist
from kit.remote.machine.assets import read_images
from tests.integration.conftest import missing
from tests.integration.image_layers import layers, leaks
from tests.integration.private_registry import USER, binary, running
from tests.integration.rig import until
from tests.integration.spawn import SPAWN

SIZE_LIMIT = 1_900_000_000


@pytest.fixture(scope="session")
def layer(client: Any, image: ImageResult) -> Iterator[ImageResult]:
    """The ssh layer on a base that has Horovod and whose root is locked: kit's own image, changed so."""
    locked = "kit-test:locked-root"
    change = "passwd -l root; rm /opt/kit/bin/kit-fork /etc/openmpi/openmpi-mca-params.conf"
    container = client.containers.create(image.tag, ["sh", "-ec", change])
    container.start()
    container.wait()
    repository, tag = locked.split(":")
    container.commit(repository, tag)
    container.remove()
    result = build_image(ClusterSpec(image=ImageSpec(flavour="ssh-layer", base=locked)), reporter=Silent())
    yield result
    client.images.remove(result.tag, force=True)
    client.images.remove(locked, force=True)


def run(client: Any, tag: str, argv: Sequence[str], **options: Any) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of a command in a new container of the image."""
    container = client.containers.create(tag, list(argv), network_mode="none", shm_size="1g", **options)
    try:
        insist(container.start)
        code = container.wait(timeout=600)["StatusCode"]
        stdout, stderr = (container.logs(stdout=out, stderr=not out).decode() for out in (True, False))
        return code, stdout, stderr
    finally:
        container.remove(force=True)


def test_image_is_within_its_size(image: ImageResult) -> None:
    assert image.size_bytes <= SIZE_LIMIT


def test_building_again_finds_it(image: ImageResult) -> None:
    steps: list[Event] = []

    class Reporter:
        def report(self, event: Event) -> None:
            steps.append(event)

    again = build_image(ClusterSpec(), reporter=Reporter())
    assert not again.built
    assert (again.tag, again.image_id) == (image.tag, image.image_id)
    assert not [event for event in steps if isinstance(event, HostStep)]


def test_the_bill_of_materials_names_what_is_inside(client: Any, image: ImageResult) -> None:
    first, second = (sbom(ClusterSpec(), reporter=Silent(), environ={}) for _ in range(2))
    assert first.document == second.document
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(first.document) is None
    parts = {part["name"]: part for part in json.loads(first.document)["components"]}
    versions = {
        name: parts[name]["version"] for name in ("openmpi-bin", "python3", "horovod", "tensorflow-cpu", "mxnet")
    }
    # The image itself, asked in another way.
    debian = run(client, image.tag, ["dpkg-query", "-W", "-f", "${Version} ", "openmpi-bin", "python3"])[1].split()
    assert versions == {
        "openmpi-bin": debian[0],
        "python3": debian[1],
        "horovod": "0.28.1",
        "tensorflow-cpu": "2.15.1",
        "mxnet": "1.9.1",
    }
    assert parts["openmpi-bin"]["purl"].startswith("pkg:deb/debian/openmpi-bin@4.1.4")
    sums = run(client, image.tag, ["sha256sum", "/opt/kit/bin/mpi_perf"])[1].split()
    assert parts["/opt/kit/bin/mpi_perf"]["hashes"] == [{"alg": "SHA-256", "content": sums[0]}]
    assert first.unreadable == ()
    # NCCL opens InfiniBand through these. Open MPI's packages bring them.
    assert {"libibverbs1", "ibverbs-providers"} <= parts.keys()


def test_a_locked_base_is_the_one_of_its_digest_even_if_its_tag_moves(
    client: Any, image: ImageResult, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = binary(tmp_path)
    if program is None:
        missing("docker-registry is not here", "apt-get install docker-registry")
    # Engines accept any certificate of a registry on their own machine.
    with running(program, tmp_path, "127.0.0.1", "for-a-base") as server, contextlib.ExitStack() as undo:
        repository = f"{server.address}/debian"
        name = f"{repository}:bookworm-slim"
        login = base64.b64encode(f"{USER}:for-a-base".encode()).decode()
        (tmp_path / "config.json").write_text(json.dumps({"auths": {server.address: {"auth": login}}}))
        monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
        engine = undo.enter_context(contextlib.closing(Engine.connect()))

        def push(content: bytes) -> str:
            """Let the registry's tag mean a small image with `content`. Return its ID."""
            archive = io.BytesIO()
            with tarfile.open(fileobj=archive, mode="w") as tar:
                entry = tarfile.TarInfo("content")
                entry.size = len(content)
                tar.addfile(entry, io.BytesIO(content))
            engine.api.import_image_from_data(archive.getvalue(), repository=repository, tag="bookworm-slim")
            list(engine.api.push(repository, tag="bookworm-slim", stream=True))
            found = engine.image(name)
            assert found is not None
            engine.api.remove_image(name, force=True)
            return found.image_id

        first = push(b"one")
        locked = ask_registries((name,))
        push(b"another")
        assert ask_registries((name,)) != locked

        templates = {**read_images(), LOCK: lock_text(locked).encode()}
        spec = ImageSpec(flavour="ssh-layer", base=name)
        (base,) = needed_bases(image_content(spec, templates))
        assert base == f"{name}@{locked[name]}"
        undo.callback(engine.api.remove_image, base, noprune=True, force=True)
        bring_bases(engine, [base], task="image", reporter=Silent(), consent=None)
        present = engine.image(base)
        assert present is not None
        assert present.image_id == first
        # A builder starts from it, by the same name.
        small = ImageContent(
            repository="kit-test", flavour="locked", files={"Dockerfile": f"FROM {base}\nENV A=1\n".encode()}
        )
        undo.callback(client.images.remove, small.tag, force=True)
        engine.build(small, beside={}, arguments={}, on_step=lambda step: None)
        layers = client.images.get(small.tag).attrs["RootFS"]["Layers"]
        assert layers == client.images.get(first).attrs["RootFS"]["Layers"]


def test_one_more_package_changes_the_last_layer_alone(client: Any, image: ImageResult, tmp_path: Path) -> None:
    """kit deploy sends layers, so this is what hosts receive: tabulate, and not TensorFlow once more."""
    file = tmp_path / "requirements.txt"
    layers: list[list[str]] = []
    tags: list[str] = []
    try:
        for packages in ("iniconfig==2.0.0\n", "iniconfig==2.0.0\ntabulate==0.9.0\n"):
            file.write_text(packages)
            built = build_image(ClusterSpec(requirements=str(file)), reporter=Silent())
            tags.append(built.tag)
            layers.append(client.images.get(built.tag).attrs["RootFS"]["Layers"])
        assert len(set(tags)) == 2
        assert layers[0][:-1] == layers[1][:-1]
        assert layers[0][-1] != layers[1][-1]
        assert client.api.history(tags[1])[0]["Size"] < 1_000_000
        # The packages work beside those that kit locks, and bring their commands.
        script = (
            "tabulate --help >/dev/null && python3 -c 'import tabulate, iniconfig, numpy; print(numpy.__version__)'"
        )
        output = client.containers.run(tags[1], ["sh", "-c", script], remove=True)
        assert output.decode().strip() == "1.23.5"
    finally:
        for tag in tags:
            client.images.remove(tag, force=True)


def test_a_package_that_the_locks_forbid_is_named(image: ImageResult, tmp_path: Path) -> None:
    file = tmp_path / "requirements.txt"
    file.write_text("numpy==1.26.4\n")
    with pytest.raises(ImageError) as caught:
        build_image(ClusterSpec(requirements=str(file)), reporter=Silent())
    assert "numpy" in caught.value.message
    assert "another version of one that kit locks" in str(caught.value.hint)


def test_no_layer_holds_a_key_or_a_certificate_of_this_machine(client: Any, image: ImageResult, tmp_path: Path) -> None:
    names, leaked = leaks(client, image.tag, tmp_path)
    assert names > 10_000
    assert leaked == []


def test_the_search_for_keys_finds_one(tmp_path: Path, client: Any) -> None:
    """The test above would be worth nothing if it walked past what it looks for."""
    context = {"Dockerfile": b"FROM debian:bookworm-slim\nCOPY k /etc/ssh/ssh_host_x\nRUN rm /etc/ssh/ssh_host_x\n"}
    content = ImageContent(repository="kit-test", flavour="leak", files={**context, "k": b"key"})
    engine = Engine.connect()
    engine.build(content, beside={}, arguments={}, on_step=lambda step: None)
    try:
        assert "etc/ssh/ssh_host_x" in [path for path, _ in layers(client, content.tag, tmp_path)]
    finally:
        client.images.remove(content.tag, force=True)
        engine.close()


def test_versions(client: Any, image: ImageResult) -> None:
    program = (
        "import json, tensorflow, mxnet, horovod, numpy, tensorboard;"
        "from tensorflow.keras.applications import ResNet50;"
        "print(json.dumps([m.__version__ for m in (tensorflow, mxnet, horovod, numpy)]))"
    )
    code, stdout, stderr = run(client, image.tag, ["python3", "-c", program])
    assert code == 0, stderr
    assert json.loads(stdout) == ["2.15.1", "1.9.1", "0.28.1", "1.23.5"]
    code, stdout, _ = run(client, image.tag, ["mpirun", "--version"])
    assert "(Open MPI) 4.1." in stdout


@pytest.mark.parametrize("framework", ["tensorflow", "mxnet"])
def test_two_ranks_sum_right(framework: str, client: Any, image: ImageResult) -> None:
    argv = ["hvd-local.sh", "2", "hvd_check", "--framework", framework, "--json"]
    code, stdout, stderr = run(client, image.tag, argv)
    assert code == 0, stderr
    result = json.loads(stdout)
    assert (result["sum"], result["average"], result["ranks"], result["right"]) == (3, 1.5, 2, True)
    assert [(rank["rank"], rank["local_rank"]) for rank in result["placement"]] == [(0, 0), (1, 1)]


QUICK = ["--batch-size", "2", "--num-warmup", "1", "--num-iters", "2", "--num-batches-per-iter", "1", "--json"]


@pytest.mark.parametrize(("command", "model"), [("mxnet_benchmark", "resnet18_v1"), ("tf_benchmark", "mobilenet")])
def test_benchmark_reports_both_rates(command: str, model: str, client: Any, image: ImageResult) -> None:
    argv = ["hvd-local.sh", "2", command, "--model", model, "--image-size", "64", *QUICK]
    code, stdout, stderr = run(client, image.tag, argv)
    assert code == 0, stderr
    result = json.loads(stdout)
    assert result["ranks"] == 2
    assert len(result["iters"]) == 2
    assert result["img_sec_total"] == pytest.approx(2 * result["img_sec_per_rank"])
    assert "total images/sec on 2 ranks:" in stderr


# Images are of one size, so that both ranks get the same number of them.
RECORDS = """
data_shards --kind recordio --files 3 --images 8 --size 40 --classes 10 --distinct 1 /tmp/made-up >&2 || exit
hvd-local.sh 2 mxnet_benchmark --data made-up "$@" || exit
hvd-local.sh 2 mxnet_benchmark --data made-up --first-label 3 "$@" >&2
echo $?
mxnet_train --network lenet --data-train made-up --batch-size 4 --num-epochs 2 --num-warmup 1 --num-batches-per-iter 5
"""
# What each rank reads, beside what kit_shards deals to it.
SHARES = """
import sys
import mxnet, kit_shards
shards = kit_shards.find([sys.argv[1]], "recordio", {})
for rank in range(4):
    source = mxnet.io.ImageRecordIter(
        path_imgrec=";".join(shards.paths), data_shape=(3, 8, 8), resize=8, batch_size=1, part_index=rank, num_parts=4,
        round_batch=False, verbose=False)
    print(sum(1 for _ in source), sum(piece.size for piece in kit_shards.deal(shards, rank, 4)))
"""


def test_mxnet_reads_epochs_of_a_data_set(client: Any, image: ImageResult) -> None:
    words = ["--model", "mobilenet0.25", "--image-size", "32", "--classes", "5", "--epochs", "2", *QUICK]
    environ = {"KIT_DATA_MADE_UP": "/tmp/made-up"}
    code, stdout, stderr = run(client, image.tag, ["bash", "-c", RECORDS, "records", *words], environment=environ)
    assert code == 0, stderr
    line, second, *trained = stdout.splitlines()
    result = json.loads(line)
    assert (result["epoch_steps"], result["epoch_images"], len(result["iters"])) == (6, 24, 2)
    assert result["img_sec_total"] == result["iters"][1]
    assert "Images: 24 in RecordIO files (3), 12 a rank, 6 steps an epoch" in stderr
    assert second == "2"
    assert "label 0 is not within 3 to 7: --first-label says where labels begin" in stderr
    # All three files: 24 images of two epochs are 12 steps, so two times 5 after the first.
    assert [line for line in trained if "Epoch[1] Train-accuracy=" in line]
    assert trained[-1].startswith("total samples/sec on 1 workers: ")


def test_mxnet_splits_files_as_kit_counts_them(client: Any, image: ImageResult) -> None:
    make = (
        'data_shards --kind recordio --files 3 --images 30 --size 50 /tmp/made-up >&2 && python3 -c "$0" /tmp/made-up'
    )
    code, stdout, stderr = run(client, image.tag, ["bash", "-c", make, SHARES])
    assert code == 0, stderr
    pairs = [tuple(map(int, line.split())) for line in stdout.splitlines()]
    assert all(read == dealt for read, dealt in pairs), pairs
    assert sum(read for read, _ in pairs) == 90


@pytest.mark.parametrize("command", ["tf_benchmark", "mxnet_benchmark"])
def test_benchmark_lists_models_for_a_wrong_name(command: str, client: Any, image: ImageResult) -> None:
    code, _, stderr = run(client, image.tag, [command, "--model", "resnet51"])
    assert code == 2
    assert "resnet152" in stderr
    assert "Traceback" not in stderr


@pytest.mark.parametrize(
    "argv",
    [["hvd-local.sh"], ["hvd-local.sh", "x"], ["hvd-local.sh", "0"], ["hvd-distribute.sh", "8"]],
)
def test_scripts_refuse_wrong_arguments(argv: list[str], client: Any, image: ImageResult) -> None:
    code, _, stderr = run(client, image.tag, argv)
    assert code == 2
    assert "Usage:" in stderr


def test_start_without_keys_says_what_is_missing(client: Any, image: ImageResult) -> None:
    code, _, stderr = run(client, image.tag, ["start.sh"])
    assert code == 78
    assert "/etc/kit/ssh/host_ed25519 is missing" in stderr
    assert "kit deploy" in stderr


# Makes what deploy makes: the node's folder, with keys, hosts and ssh's configuration for one node, 127.0.0.1.
KEYS = """
mkdir -p /k/ssh && cd /k/ssh
ssh-keygen -q -t ed25519 -N '' -f host_ed25519
ssh-keygen -q -t ed25519 -N '' -f id_ed25519
ssh-keygen -q -t ed25519 -N '' -f other_ed25519
cp id_ed25519.pub authorized_keys
echo "[127.0.0.1]:$PORT $(cut -d' ' -f1,2 host_ed25519.pub)" >known_hosts
printf 'Host *\\n  Port %s\\n  IdentityFile /etc/kit/ssh/id_ed25519\\n  StrictHostKeyChecking yes\\n' "$PORT" >config
printf '  UserKnownHostsFile /etc/kit/ssh/known_hosts\\n' >>config
echo '127.0.0.1 slots=2' >/k/hosts
chmod 600 /k/ssh/*_ed25519
"""

ENV = {
    "PLAIN": "plain",
    "SPACES": "two  words ",
    "QUOTES": "a \"double\" and a 'single'",
    "BACKSLASHES": r"\back \\slash\" end\\",
    "DOLLAR": "$HOME `date` #x %h",
    "EMPTY": "",
    "LINES": "one\ntwo",
}


@pytest.fixture(params=["cpu", "ssh-layer on a locked root"])
def node(request: pytest.FixtureRequest, client: Any, image: ImageResult) -> Iterator[Any]:
    tag = image.tag if request.param == "cpu" else request.getfixturevalue("layer").tag
    volume = client.volumes.create()
    port = "3333"
    mounted = {volume.name: {"bind": "/k", "mode": "rw"}}
    code, _, stderr = run(client, tag, ["bash", "-ec", KEYS], environment={"PORT": port}, volumes=mounted)
    assert code == 0, stderr
    container = client.containers.run(
        tag,
        detach=True,
        init=True,
        network_mode="none",
        environment={**ENV, "SSH_PORT": port, "KIT_NETWORK": "127.0.0.0/8"},
        volumes={volume.name: {"bind": "/etc/kit", "mode": "ro"}},
    )
    try:

        def listens() -> bool:
            container.reload()
            assert container.status == "running", container.logs().decode()
            return b"listening on" in container.logs()

        until("its sshd listens", listens)
        yield container
    finally:
        container.remove(force=True)
        volume.remove()


def test_node(node: Any) -> None:
    def inside(*argv: str) -> tuple[int, str]:
        code, output = node.exec_run(list(argv))
        return code, output.decode()

    # Through /etc/ssh/ssh_config alone: key, host key and port.
    program = "import json, os; print(json.dumps(dict(os.environ)))"
    code, output = inside("ssh", "127.0.0.1", f"python3 -c '{program}'")
    assert code == 0, output
    session = json.loads(output)
    for name in ENV.keys() - {"LINES"}:
        assert session[name] == ENV[name], name
    assert "LINES" not in session
    assert session["PATH"].startswith("/opt/kit/bin:")
    assert session["HOME"] == "/root"

    locked = (Path(__file__).parents[2] / "images/requirements/rclone.txt").read_text().split("==")[1].split()[0]
    code, output = inside("/opt/kit/rclone/rclone", "--config", "", "version")
    assert code == 0, output
    assert output.split()[:2] == ["rclone", f"v{locked}"]
    # A user's own rclone stays the one in PATH.
    assert inside("sh", "-c", "command -v rclone")[0] != 0

    _, configuration = inside("ssh", "-G", "127.0.0.1")
    exchange = configuration.partition("\nkexalgorithms ")[2].partition(",")[0]
    assert exchange in {"curve25519-sha256", "mlkem768x25519-sha256"}

    other = ("-o", "IdentitiesOnly=yes", "-o", "StrictHostKeyChecking=no", "-i", "/etc/kit/ssh/other_ed25519")
    code, output = inside("ssh", "-F", "none", "-p", "3333", *other, "127.0.0.1", "true")
    assert code == 255
    assert "(publickey)" in output
    code, output = inside("ssh", "-o", "PreferredAuthentications=password,keyboard-interactive", "127.0.0.1", "true")
    assert code == 255
    assert "(publickey)" in output
    code, output = inside("ssh", "-o", "ExitOnForwardFailure=yes", "-W", "127.0.0.1:3333", "127.0.0.1")
    assert code != 0
    code, output = inside("ssh", "-p", "3333", "-o", "UserKnownHostsFile=/dev/null", "-F", "none",
                          "-o", "StrictHostKeyChecking=yes", "127.0.0.1", "true")  # fmt: skip
    assert code == 255
    assert "Host key verification failed" in output

    code, configuration = inside("/usr/sbin/sshd", "-T", "-f", "/run/kit/sshd_config")
    assert code == 0, configuration
    lines = set(configuration.splitlines())
    assert {"permitrootlogin without-password", "allowtcpforwarding no", "x11forwarding no", "permittunnel no",
            "allowagentforwarding no", "allowstreamlocalforwarding no", "passwordauthentication no", "usepam no",
            "listenaddress 127.0.0.1:3333", "authenticationmethods publickey"} <= lines  # fmt: skip

    code, output = inside("hvd-distribute.sh", "2", "2", "hvd_check", "--framework", "mxnet")
    assert code == 0, output
    assert "all-reduce of 2 ranks: sum 3 (expected 3)" in output
    code, output = inside("hvd-distribute.sh", "1", "1", "true")
    assert code == 0, output
    assert "--map-by ppr:1:node" in output
    code, output = inside("hvd-distribute.sh", "3", "2", "true")
    assert code == 2
    assert "fewer than 3" in output


def test_the_daemon_starts_nothing_but_the_run(node: Any) -> None:
    code, output = node.exec_run(["mpirun", "--allow-run-as-root", "-np", "1", "python3", "-c", SPAWN, "localhost"])
    text = output.decode()
    assert "kit refuses MPI_Comm_spawn" in text, text
    assert code != 0
    assert node.exec_run(["cat", "/tmp/spawned"])[0] != 0


def small(*lines: str) -> ImageContent:
    dockerfile = "\n".join(("FROM debian:bookworm-slim", *lines, ""))
    return ImageContent(repository="kit-test", flavour="small", files={"Dockerfile": dockerfile.encode()})


def test_ctrl_c_leaves_no_container(client: Any) -> None:
    before = {container.id for container in client.containers.list(all=True, ignore_removed=True)}

    def on_step(step: BuildStep) -> None:
        if step.number == 2:
            raise KeyboardInterrupt

    engine = Engine.connect()
    with pytest.raises(KeyboardInterrupt):
        engine.build(small("RUN sleep 1000"), beside={}, arguments={}, on_step=on_step, fresh=True)
    engine.close()

    def left() -> list[Any]:
        # The engine removes it meanwhile: between the list and the look at each.
        containers = client.containers.list(all=True, ignore_removed=True)
        return [c for c in containers if c.id not in before and "sleep 1000" in str(c.attrs)]

    until("no container of the build is left", lambda: not left())


def test_a_failing_step_is_named_with_its_lines(client: Any) -> None:
    engine = Engine.connect()
    with pytest.raises(ImageError) as caught:
        engine.build(small("RUN echo the cause; exit 3"), beside={}, arguments={}, on_step=lambda step: None)
    engine.close()
    assert "step 2/2" in caught.value.message
    assert "exit code 3" in caught.value.message
    assert "the cause" in caught.value.message


def test_a_network_with_a_proxy_and_one_without_share_cached_steps(client: Any) -> None:
    content = small(f"RUN echo {os.getpid()} && date +%s%N >/made")
    with contextlib.closing(Engine.connect()) as engine:
        built = {
            engine.build(content, beside={}, arguments=arguments, on_step=lambda step: None).image_id
            for arguments in ({}, {"https_proxy": "http://10.0.0.9:3128"}, {"all_proxy": "socks5://10.0.0.9:1080"}, {})
        }
    for image_id in built:
        client.images.remove(image_id, force=True)
    assert len(built) == 1


def test_a_base_that_cannot_be_had_says_how_to_get_it(client: Any) -> None:
    with pytest.raises(ImageError) as caught:
        build_image(ClusterSpec(image=ImageSpec(flavour="ssh-layer", base="localhost:1/none:1")), reporter=Silent())
    assert "docker load" in str(caught.value.hint)
