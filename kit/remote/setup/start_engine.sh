# Starts the engine, and waits until it answers. Arguments: start|restart.
output=$(engine_service "$1" 2>&1)
if await_engine 60; then
  # An engine that ran already has not read its settings again by a start.
  if [ "$1" = restart ]; then finish engine; fi
  exit 0
fi
printf '%s\n' "$output" >&2
engine_words >&2
fail "the engine does not answer within 60 s"
