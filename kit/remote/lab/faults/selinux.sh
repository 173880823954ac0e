# shellcheck shell=bash
# Pretends that SELinux confines containers.

inject() {
  stand_in /sys/fs/selinux/enforce <<<1
  program docker <<'END'
case "$*" in *SecurityOptions*) echo '["name=seccomp,profile=builtin","name=selinux"]'; exit 0 ;; esac
END
}
