# shellcheck shell=bash
# Pretends that persistence mode is off.

inject() { nvidia_smi 's|<persistence_mode>Enabled<|<persistence_mode>Disabled<|'; }
