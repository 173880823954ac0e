"""What a session was measured on, in words."""

from __future__ import annotations

from kit.plan.bench.report.facts import flat


def test_settings_by_dotted_name_and_arguments_as_one_types_them() -> None:
    given = {"settings": {"mpi": {"args": ["--mca", "btl_tcp_links", "2"], "bind_to": "none"}}, "gpus": ["T4", "T4"]}
    assert flat(given) == {
        "settings.mpi.args": "--mca btl_tcp_links 2",
        "settings.mpi.bind_to": "none",
        "gpus": "T4, T4",
    }
