"""What the keeper decided, as JSON: .state.json in the line's folder (kitqueue.line)."""

from typing import Any, Dict, Mapping, Optional, Sequence

from kitqueue import order

# The most runs that a reason names.
MOST_NAMED = 16


def state_of(made: order.Decision, why_out: Mapping[str, str], hosts: Mapping[str, Sequence[str]]) -> Dict[str, Any]:
    """Return a decision as JSON. `hosts` are those that each run may have."""
    first = made.reservation
    reserved = first and {
        "id": first.id,
        "slots": {host: sorted(numbers) for host, numbers in first.slots.items()},
        "at": first.at,
        "holders": list(first.holders),
    }
    reasons = {}
    for run_id, reason in made.reasons.items():
        fields: Dict[str, Any] = {"kind": reason.kind, "ids": list(reason.ids[:MOST_NAMED]), "at": reason.at}
        if len(reason.ids) > MOST_NAMED:
            fields["more"] = len(reason.ids) - MOST_NAMED
        if reason.kind in ("hosts", "gone"):
            fields["out"] = {host: why_out[host] for host in hosts[run_id] if host in why_out}
        reasons[run_id] = fields
    return {"reservation": reserved, "reasons": reasons}


def reservation_of(value: object) -> Optional[order.Reservation]:
    """Read what `state_of` wrote; None for anything else."""
    if not isinstance(value, dict):
        return None
    try:
        slots = {host: frozenset(numbers) for host, numbers in value["slots"].items()}
        return order.Reservation(value["id"], slots, value["at"], tuple(value["holders"]))
    except (AttributeError, KeyError, TypeError):
        return None
