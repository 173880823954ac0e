# shellcheck shell=bash
# Lets Python's clock be 5 s ahead, as all hosts share this machine's clock.

inject() {
  local folder
  folder=$(python3 -c 'import site; print(site.getsitepackages()[0])')
  mkdir -p "$folder"
  printf 'import time; time.time = (lambda now: lambda: now() + %s)(time.time)\n' "${ARG:-5.0}" >"$folder/kit-lab-clock.pth"
  note path "$folder/kit-lab-clock.pth"
}
mend() {
  local path
  while read -r path; do rm -f "$path"; done < <(noted path)
}
