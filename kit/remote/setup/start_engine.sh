# Starts the engine, and waits until it answers. Arguments: start|restart.
output=$(engine_service "$1" 2>&1)
await_engine 60 && exit 0
printf '%s\n' "$output" >&2
engine_words >&2
fail "the engine does not answer within 60 s"
