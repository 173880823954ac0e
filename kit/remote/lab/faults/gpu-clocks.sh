# shellcheck shell=bash
# Pretends application clocks below the maximum.

inject() {
  nvidia_smi 's|^\([ \t]*\)<max_clocks>|\1<applications_clocks><graphics_clock>900 MHz</graphics_clock></applications_clocks>\n&|'
}
