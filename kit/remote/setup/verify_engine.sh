# Prints the versions of the engine and of Compose, or fails.
engine=$(timeout 20 docker version --format '{{.Server.Version}}' 2>&1) || fail "the engine does not answer: $engine"
compose=$(timeout 20 docker compose version --short 2>&1) || fail "docker compose does not answer: $compose"
echo "$engine $compose"
