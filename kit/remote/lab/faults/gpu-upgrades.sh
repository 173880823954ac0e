# shellcheck shell=bash
# Pretends that unattended upgrades may replace the driver.

inject() {
  local file=/etc/apt/apt.conf.d/99kit-lab-gpu-upgrades
  make_file "$file" <<<'APT::Periodic::Unattended-Upgrade "1";'
  program dpkg-query <<'END'
case "$*" in *nvidia*) echo "install nvidia-driver-550"; exit 0 ;; esac
END
}
