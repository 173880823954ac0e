"""Failures that differ only in the host are one."""

from __future__ import annotations

import pytest

from kit.errors import KitError, StepError, UnreachableError
from kit.model.failures import SharedFailure, alike, masked


def failure(name: str, address: str | None, message: str, hint: str | None = None) -> KitError:
    error = UnreachableError(message, hint=hint, host=name)
    error.address = address
    return error


def test_failures_that_differ_in_the_address() -> None:
    errors = [
        failure(f"gpu{n}", f"10.0.0.{n}", f"no key for root@10.0.0.{n}:22", f"try: ssh 10.0.0.{n}") for n in (1, 2, 3)
    ]
    assert alike(errors) == (
        SharedFailure(
            hosts=("gpu1", "gpu2", "gpu3"),
            message="no key for root@10.0.0.[1-3]:22",
            hint="try: ssh 10.0.0.1 (and the same for 2 more hosts)",
            exit_code=3,
        ),
    )


def test_other_causes_stay_apart() -> None:
    errors = [
        failure("gpu1", "10.0.0.1", "refused by 10.0.0.1"),
        failure("gpu2", "10.0.0.2", "refused by 10.0.0.9"),
        failure("gpu3", "10.0.0.3", "refused by 10.0.0.3"),
        StepError("refused by 10.0.0.4", host="gpu4"),
    ]
    assert [(shared.hosts, shared.message) for shared in alike(errors)] == [
        (("gpu1", "gpu3"), "refused by 10.0.0.[1,3]"),
        (("gpu2",), "refused by 10.0.0.9"),
        (("gpu4",), "refused by 10.0.0.4"),
    ]


def test_a_failure_of_no_host() -> None:
    assert alike([KitError("no lock")]) == (SharedFailure(hosts=(), message="no lock", hint=None, exit_code=1),)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("root@10.0.0.1:22 refused", "root@\0:22 refused"),
        ("cannot reach 10.0.0.1.", "cannot reach \0."),
        ("10.0.0.12 or 110.0.0.1 or 10.0.0.1.example", "10.0.0.12 or 110.0.0.1 or 10.0.0.1.example"),
        ("gpu1 and gpu10 and my-gpu1", "\0 and gpu10 and my-gpu1"),
    ],
)
def test_a_name_within_a_longer_word_stays(text: str, expected: str) -> None:
    assert masked(text, ("gpu1", "10.0.0.1")) == expected


def test_twenty_thousand_unknown_keys_are_one_short_message() -> None:
    addresses = [f"10.0.{n >> 8}.{n & 255}" for n in range(20_000)]
    errors = [failure(f"n{7919 * n % 99991}", address, f"key of {address}") for n, address in enumerate(addresses)]
    (shared,) = alike(errors)
    assert len(shared.hosts) == 20_000
    assert shared.message == "key of 10.0.0.[0-255],10.0.1.[0-255],10.0.2.[0-255] and 19232 more"
