"""kit schema: print the JSON schema of kit.yaml."""

from __future__ import annotations


def schema() -> str:
    """Return the text of the schema, with a newline at its end."""
    from kit.config.schema import schema_text  # noqa: PLC0415  (only for the verb that needs it)

    return schema_text()
