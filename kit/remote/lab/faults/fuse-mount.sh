# shellcheck shell=bash
# Leaves a mount of sshfs that has ended; with the value silent, one that does not answer.

inject() { mount_fuse sshfs /mnt/kit-lab-fuse/files; }
