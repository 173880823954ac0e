/* kit-fork starts the processes of an MPI run for Open MPI's daemons, and refuses those of MPI_Comm_spawn.
 *
 * The daemons run as root, listen on 127.0.0.1, and believe what a process says about its user. So without this, any
 * login of the VM, and any rank of another user, could let them start a program as root of the container. The first job
 * of an mpirun is the one that kit started: its number ends with 1. Later ones come from MPI_Comm_spawn. The daemon
 * itself sets the variable with the number, after those of the request.
 *
 * It is a static program: the request may have LD_PRELOAD, which no loader reads then. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern char **environ;

/* Whether this is the name of a job, such as 3434348545: 16 bits for its mpirun, then 16 for its number there. */
static int is_first(const char *name) {
  char *end;
  errno = 0;
  unsigned long job = strtoul(name, &end, 10);
  return !errno && end != name && !*end && (job & 0xffff) == 1;
}

int main(int argc, char **argv) {
  static const char variable[] = "PMIX_NAMESPACE=";
  int jobs = 0;
  for (char **one = environ; *one; one++) {
    if (strncmp(*one, variable, sizeof variable - 1)) continue;
    jobs++;
    if (is_first(*one + sizeof variable - 1)) continue;
    fputs("kit-fork: kit refuses MPI_Comm_spawn, because any login of the VM could start programs by it. To allow it, write "
          "in kit.yaml: mpi: {args: [--mca, orte_fork_agent, env]}\n", stderr);
    return 126;
  }
  if (!jobs || argc < 2) {
    fputs("kit-fork: only Open MPI's daemons start this\n", stderr);
    return 126;
  }
  execvp(argv[1], argv + 1);
  fprintf(stderr, "kit-fork: cannot start %s: %s\n", argv[1], strerror(errno));
  return errno == ENOENT ? 127 : 126;
}
