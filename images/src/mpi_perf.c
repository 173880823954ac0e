/* mpi_perf measures MPI on the network, for a range of message sizes: latency and bandwidth between hosts, a ring over
 * all links at once, all-reduce, broadcast and all-gather. It checks every result before and after it measures the time.
 *
 * A repeat has as many operations as fit into its share of the time. Its time is that of the slowest rank. Bus bandwidth
 * is what the link of each rank has to carry, as nccl-tests define it, so you can compare it with the link's rate. */
#include <ctype.h>
#include <errno.h>
#include <mpi.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_SIZES = 64, MAX_REPEATS = 1000, HOST = 64, MAX_PAIRS = 64, WINDOW = 64 };
#define LARGEST (1L << 30)
#define WINDOW_BYTES (64L << 20)
#define NCCL "/opt/kit/bin/_nccl_perf"

enum test { LATENCY, BANDWIDTH, RING, ALLREDUCE, BCAST, ALLGATHER, TESTS };
static const char *const NAMES[TESTS] = {"latency", "bandwidth", "ring", "allreduce", "bcast", "allgather"};

static struct {
  int chosen[TESTS], any, sizes, repeats, json;
  long size[MAX_SIZES];
  double seconds;
} ask = {.repeats = 10, .seconds = 3.0};

static int rank, ranks, hosts, *host_of;
static char (*names)[HOST];
static float *out, *in;
static int pair[2] = {-1, -1};

/* End every rank with code 2 before MPI begins. Rank 0 prints why. */
static void wrong(const char *format, ...) {
  const char *mine = getenv("OMPI_COMM_WORLD_RANK");
  if (!mine) mine = getenv("PMI_RANK");
  if (!mine || !strcmp(mine, "0")) {
    va_list rest;
    va_start(rest, format);
    fputs("mpi_perf: ", stderr);
    vfprintf(stderr, format, rest);
    fputc('\n', stderr);
    va_end(rest);
  } else {
    /* mpirun reports the rank that ends first, so that has to be rank 0, which may start later. Then mpirun ends this
       rank. */
    sleep(5);
  }
  exit(2);
}

static const char USAGE[] =
    "usage: mpi_perf [TEST...] [--sizes 8:64M] [--repeats N] [--seconds S] [--through mpi|nccl] [--json]\n"
    "  TEST          latency, bandwidth (between neighboring hosts), ring (each rank to the next, all at once),\n"
    "                allreduce, bcast, allgather (default: all of them)\n"
    "  --sizes       FROM:TO (each four times the last), FROM:TO:FACTOR, or A,B,C; bytes, or with K, M, G\n"
    "  --repeats N   at most N timed repeats of each size (10)\n"
    "  --seconds S   time for each size; after it, mpi_perf stops once there are 3 repeats (3)\n"
    "  --through     mpi, or nccl: all-reduce and broadcast of GPU memory through Horovod\n"
    "  --json        one JSON object on stdout at the end, from rank 0; the table goes to stderr\n";

static long size_of(const char *text, const char **end) {
  char *stop;
  errno = 0;
  long value = strtol(text, &stop, 10);
  long unit = 1;
  switch (toupper((unsigned char)*stop)) {
    case 'K': unit = 1L << 10; stop++; break;
    case 'M': unit = 1L << 20; stop++; break;
    case 'G': unit = 1L << 30; stop++; break;
  }
  if (stop == text || errno || value < 1 || value > LARGEST / unit)
    wrong("--sizes: '%s' is not a size: from 1 to 1G, such as 8, 64K or 64M", text);
  *end = stop;
  return value * unit;
}

static void add_size(long bytes) {
  /* Round up to whole floats. */
  bytes = (bytes + 3) / 4 * 4;
  if (ask.sizes && ask.size[ask.sizes - 1] == bytes) return;
  if (ask.sizes == MAX_SIZES) wrong("--sizes: more than %d sizes", MAX_SIZES);
  ask.size[ask.sizes++] = bytes;
}

static void read_sizes(const char *text) {
  const char *at = text;
  ask.sizes = 0;
  long from = size_of(at, &at), factor = 4;
  if (*at != ':') {
    add_size(from);
    while (*at == ',') {
      at++;
      add_size(size_of(at, &at));
    }
  } else {
    at++;
    long to = size_of(at, &at);
    if (*at == ':') {
      at++;
      factor = size_of(at, &at);
    }
    if (to < from || factor < 2) wrong("--sizes: '%s' is not a range: TO is at least FROM, and FACTOR at least 2", text);
    for (long bytes = from; bytes < to; bytes *= factor) add_size(bytes);
    add_size(to);
  }
  if (*at) wrong("--sizes: '%s' is not FROM:TO, FROM:TO:FACTOR or A,B,C", text);
}

static double number(const char *flag, const char *text, double least, double most) {
  char *stop;
  double value = strtod(text, &stop);
  if (stop == text || *stop || !(value >= least && value <= most))
    wrong("%s: '%s' is not a number from %g to %g", flag, text, least, most);
  return value;
}

static void arguments(int argc, char **argv) {
  const char *through = "mpi";
  read_sizes("8:64M");
  for (int i = 1; i < argc; i++) {
    char *word = argv[i], *value = NULL, *equals;
    if (!strcmp(word, "--json")) {
      ask.json = 1;
      continue;
    }
    if (!strcmp(word, "-h") || !strcmp(word, "--help")) {
      fputs(USAGE, stdout);
      exit(0);
    }
    if (!strncmp(word, "--", 2)) {
      size_t length = strcspn(word, "=");
      static const char *const flags[] = {"--sizes", "--repeats", "--seconds", "--through", NULL};
      int f = 0;
      while (flags[f] && (strncmp(word, flags[f], length) || strlen(flags[f]) != length)) f++;
      if (!flags[f]) wrong("there is no flag %s\n%s", word, USAGE);
      equals = strchr(word, '=');
      value = equals ? equals + 1 : i + 1 < argc ? argv[++i] : NULL;
      if (!value) wrong("%s needs a value", word);
      if (f == 0) read_sizes(value);
      if (f == 1) ask.repeats = (int)number("--repeats", value, 1, MAX_REPEATS);
      if (f == 2) ask.seconds = number("--seconds", value, 0.001, 3600);
      if (f == 3) through = value;
      continue;
    }
    int t = 0;
    while (t < TESTS && strcmp(word, NAMES[t])) t++;
    if (t == TESTS) wrong("there is no test '%s'; there are: latency, bandwidth, ring, allreduce, bcast, allgather", word);
    ask.chosen[t] = ask.any = 1;
  }
  if (!strcmp(through, "nccl")) {
    execv(NCCL, argv);
    wrong("%s cannot be run: %s", NCCL, strerror(errno));
  }
  if (strcmp(through, "mpi")) wrong("--through: there is no '%s'; there are: mpi, nccl", through);
}

static void say(const char *format, ...) {
  if (rank) return;
  va_list rest;
  va_start(rest, format);
  vfprintf(ask.json ? stderr : stdout, format, rest);
  va_end(rest);
  fflush(ask.json ? stderr : stdout);
}

/* Return a small whole number. Floats sum such numbers exactly, in any order. */
static float value_of(int r, long i) { return (float)((r % 64 + 1) * (i % 7 + 1)); }

static void fill(long count) {
  for (long i = 0; i < count; i++) out[i] = value_of(rank, i);
}

static int left(void) { return (rank + ranks - 1) % ranks; }
static int right(void) { return (rank + 1) % ranks; }

/* Do the test's operation this many times, on the ranks that take part in it. */
static void operate(enum test test, long bytes, long operations) {
  int count = (int)(bytes / 4), part = (int)(bytes / 4 / ranks);
  for (long n = 0; n < operations; n++) switch (test) {
      case LATENCY:
        if (rank == pair[0]) {
          MPI_Send(out, count, MPI_FLOAT, pair[1], 1, MPI_COMM_WORLD);
          MPI_Recv(in, count, MPI_FLOAT, pair[1], 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        } else if (rank == pair[1]) {
          MPI_Recv(in, count, MPI_FLOAT, pair[0], 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
          MPI_Send(out, count, MPI_FLOAT, pair[0], 1, MPI_COMM_WORLD);
        }
        break;
      case BANDWIDTH: {
        /* Send a window of messages at once. The receiver replies when it has all of them. */
        MPI_Request asked[WINDOW];
        int window = bytes * WINDOW > WINDOW_BYTES ? (int)(WINDOW_BYTES / bytes) : WINDOW;
        if (window < 2) window = 2;
        if (rank != pair[0] && rank != pair[1]) break;
        for (int w = 0; w < window; w++)
          if (rank == pair[0])
            MPI_Isend(out, count, MPI_FLOAT, pair[1], 1, MPI_COMM_WORLD, &asked[w]);
          else
            MPI_Irecv(in, count, MPI_FLOAT, pair[0], 1, MPI_COMM_WORLD, &asked[w]);
        MPI_Waitall(window, asked, MPI_STATUSES_IGNORE);
        if (rank == pair[0])
          MPI_Recv(in, 0, MPI_FLOAT, pair[1], 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        else
          MPI_Send(out, 0, MPI_FLOAT, pair[0], 2, MPI_COMM_WORLD);
        break;
      }
      case RING:
        MPI_Sendrecv(out, count, MPI_FLOAT, right(), 1, in, count, MPI_FLOAT, left(), 1, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
        break;
      case ALLREDUCE: MPI_Allreduce(out, in, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); break;
      case BCAST: MPI_Bcast(rank ? in : out, count, MPI_FLOAT, 0, MPI_COMM_WORLD); break;
      case ALLGATHER: MPI_Allgather(out, part, MPI_FLOAT, in, part, MPI_FLOAT, MPI_COMM_WORLD); break;
      default: break;
    }
}

/* Return how many messages of `bytes` one operation sends, one after the other. */
static double messages(enum test test, long bytes) {
  if (test == LATENCY) return 2;
  if (test != BANDWIDTH) return 1;
  long window = bytes * WINDOW > WINDOW_BYTES ? WINDOW_BYTES / bytes : WINDOW;
  return window < 2 ? 2 : (double)window;
}

/* Do one operation and check what every rank received. If it is wrong, end all ranks with code 1. */
static void check(enum test test, long bytes) {
  long count = bytes / 4, part = count / ranks, bad = 0, all;
  int receives = test == LATENCY ? rank == pair[0] || rank == pair[1]
                 : test == BANDWIDTH ? rank == pair[1]
                 : test == BCAST ? rank != 0
                                 : 1;
  float weight = 0;
  for (int r = 0; r < ranks; r++) weight += (float)(r % 64 + 1);
  memset(in, 0xff, (size_t)bytes);
  operate(test, bytes, 1);
  for (long i = 0; receives && i < (test == ALLGATHER ? part * ranks : count); i++) {
    float due = test == ALLREDUCE    ? weight * (float)(i % 7 + 1)
                : test == ALLGATHER ? value_of((int)(i / part), i % part)
                : test == RING      ? value_of(left(), i)
                : test == BCAST     ? value_of(0, i)
                                    : value_of(pair[rank == pair[0]], i);
    bad += in[i] != due;
  }
  MPI_Allreduce(&bad, &all, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
  if (!all) return;
  if (bad) fprintf(stderr, "mpi_perf: rank %d on %s: %s of %ld bytes: %ld values are wrong\n", rank,
                   names[host_of[rank]], NAMES[test], bytes, bad);
  MPI_Finalize();
  exit(1);
}

static int by_size(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static double median_of(double *values, int count) {
  qsort(values, (size_t)count, sizeof *values, by_size);
  return count % 2 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}

/* Return the seconds that the slowest rank needs for this many operations. */
static double timed(enum test test, long bytes, long operations) {
  MPI_Barrier(MPI_COMM_WORLD);
  double mine = MPI_Wtime(), all;
  operate(test, bytes, operations);
  mine = MPI_Wtime() - mine;
  MPI_Allreduce(&mine, &all, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return all;
}

/* Store the seconds of one message or collective, one value for each repeat, and return the number of values. All ranks
   return the same number. */
static int measure(enum test test, long bytes, double seconds, double *values) {
  check(test, bytes);
  double once = timed(test, bytes, 1), share = seconds / ask.repeats, spent = 0;
  /* The first operation was the warm-up. Measure short operations several at a time. */
  long some = (long)(share / 10 / (once + 1e-9));
  if (some > 1) once = timed(test, bytes, some) / (double)some;
  long operations = once * 2 > share ? 1 : (long)(share / once);
  int n = 0;
  for (; n < ask.repeats && (n < 3 || spent < seconds); n++) {
    double took = timed(test, bytes, operations);
    spent += took;
    values[n] = took / (double)operations / messages(test, bytes);
  }
  check(test, bytes);
  return n;
}

static double bus_factor(enum test test) {
  return test == ALLREDUCE ? 2.0 * (ranks - 1) / ranks : test == ALLGATHER ? (double)(ranks - 1) / ranks : 1.0;
}

/* The JSON text. Only rank 0 writes it. */
static char *json;
static size_t json_bytes;
static FILE *text;

static const char *rate(double bytes_s) {
  static char shown[4][24];
  static int turn;
  turn = (turn + 1) % 4;
  snprintf(shown[turn], sizeof shown[turn], "%.2f", bytes_s / 1e6);
  return shown[turn];
}

/* Store the pairs of neighbors in the ring of hosts, or ranks 0 and 1 if there is only one host. Return their number. */
static int pairs_of(int pairs[MAX_PAIRS][2]) {
  int first[hosts], n = 0;
  for (int r = ranks - 1; r >= 0; r--) first[host_of[r]] = r;
  if (hosts == 1) return pairs[0][0] = 0, pairs[0][1] = 1, 1;
  for (int h = 0; h < hosts && n < MAX_PAIRS; h++, n++) {
    if (hosts == 2 && h == 1) break;
    pairs[n][0] = first[h];
    pairs[n][1] = first[(h + 1) % hosts];
  }
  return n;
}

static void run(enum test test, int comma) {
  int pairs[MAX_PAIRS][2] = {{-1, -1}}, between = test == LATENCY || test == BANDWIDTH, rows = 0;
  int count = between ? pairs_of(pairs) : 1;
  double *values = malloc(sizeof *values * MAX_REPEATS * (size_t)count), of_pair[MAX_PAIRS];
  if (!values) MPI_Abort(MPI_COMM_WORLD, 1);
  say("\n# %s, %d ranks%s\n", NAMES[test], between ? 2 : ranks,
      !between ? "" : hosts > 1 ? ", between neighboring hosts one pair after the other" : ", within one host");
  say("%12s %14s %14s %14s %8s %12s %12s\n", "bytes", "time us", "min us", "max us", "repeats", "algbw MB/s", "busbw MB/s");
  if (text) fprintf(text, "%s{\"test\": \"%s\", \"ranks\": %d, \"rows\": [", comma ? ", " : "", NAMES[test], between ? 2 : ranks);
  for (int s = 0; s < ask.sizes; s++) {
    long bytes = ask.size[s];
    /* The size of an all-gather is the size of its result, rounded up to whole parts. */
    if (test == ALLGATHER) bytes = (bytes + 4L * ranks - 1) / (4L * ranks) * 4L * ranks;
    if (test == ALLGATHER && s && bytes <= (ask.size[s - 1] + 4L * ranks - 1) / (4L * ranks) * 4L * ranks) continue;
    int n = 0;
    for (int p = 0; p < count; p++) {
      pair[0] = pairs[p][0], pair[1] = pairs[p][1];
      int more = measure(test, bytes, ask.seconds / count, values + n);
      of_pair[p] = median_of(values + n, more);
      n += more;
    }
    double middle = median_of(values, n), algbw = (double)bytes / middle, busbw = algbw * bus_factor(test);
    say("%12ld %14.2f %14.2f %14.2f %8d %12s %12s\n", bytes, middle * 1e6, values[0] * 1e6, values[n - 1] * 1e6, n,
        rate(algbw), rate(busbw));
    if (text) {
      fprintf(text, "%s{\"bytes\": %ld, \"seconds\": %.9g, \"min_s\": %.9g, \"max_s\": %.9g, \"repeats\": %d, "
              "\"algbw\": %.9g, \"busbw\": %.9g, \"samples\": [", rows ? ", " : "", bytes, middle, values[0], values[n - 1],
              n, algbw, busbw);
      for (int v = 0; v < n; v++) fprintf(text, "%s%.9g", v ? ", " : "", values[v]);
      fprintf(text, "]}");
    }
    rows++;
  }
  if (text) fprintf(text, "]");
  if (between && hosts > 1) {
    /* Report which link was the slowest at the last size. */
    int slow = 0;
    for (int p = 1; p < count; p++) slow = of_pair[p] > of_pair[slow] ? p : slow;
    say("slowest at %ld bytes: %s to %s, %.2f us\n", ask.size[ask.sizes - 1], names[host_of[pairs[slow][0]]],
        names[host_of[pairs[slow][1]]], of_pair[slow] * 1e6);
    if (text) fprintf(text, ", \"pairs\": [");
    for (int p = 0; text && p < count; p++)
      fprintf(text, "%s{\"from\": \"%s\", \"to\": \"%s\", \"bytes\": %ld, \"seconds\": %.9g}", p ? ", " : "",
              names[host_of[pairs[p][0]]], names[host_of[pairs[p][1]]], ask.size[ask.sizes - 1], of_pair[p]);
    if (text) fprintf(text, "]");
  }
  if (text) fprintf(text, "}");
  free(values);
}

/* Find out which rank is on which host. Hosts get numbers in the order of their first rank. */
static void place(void) {
  char mine[HOST] = "";
  names = calloc((size_t)ranks, HOST);
  host_of = calloc((size_t)ranks, sizeof *host_of);
  char(*all)[HOST] = calloc((size_t)ranks, HOST);
  if (!names || !host_of || !all) MPI_Abort(MPI_COMM_WORLD, 1);
  gethostname(mine, HOST - 1);
  for (char *c = mine; *c; c++)
    if (*c == '"' || *c == '\\') *c = '?';
  MPI_Allgather(mine, HOST, MPI_CHAR, all, HOST, MPI_CHAR, MPI_COMM_WORLD);
  for (int r = 0; r < ranks; r++) {
    int h = 0;
    while (h < hosts && strcmp(names[h], all[r])) h++;
    if (h == hosts) memcpy(names[hosts++], all[r], HOST);
    host_of[r] = h;
  }
  free(all);
}

int main(int argc, char **argv) {
  arguments(argc, argv);
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (ranks < 2) {
    fputs("mpi_perf: one rank cannot exchange messages: start at least 2 (kit run --np 2)\n", stderr);
    MPI_Finalize();
    return 2;
  }
  place();
  long most = 4096;
  for (int s = 0; s < ask.sizes; s++) most = ask.size[s] > most ? ask.size[s] : most;
  most += 4L * ranks;
  out = malloc((size_t)most), in = malloc((size_t)most);
  int lacking = !out || !in, any;
  MPI_Allreduce(&lacking, &any, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  if (any) {
    if (lacking) fprintf(stderr, "mpi_perf: rank %d: no memory for two buffers of %ld bytes\n", rank, most);
    MPI_Finalize();
    return 1;
  }
  fill(most / 4);
  if (ask.json && !rank && !(text = open_memstream(&json, &json_bytes))) MPI_Abort(MPI_COMM_WORLD, 1);
  say("mpi_perf: %d ranks on %d host%s, through MPI; a repeat is as slow as its slowest rank\n", ranks, hosts,
      hosts == 1 ? "" : "s");
  if (text)
    fprintf(text, "{\"workload\": \"perf\", \"simulated\": false, \"ranks\": %d, \"through\": \"mpi\", \"hosts\": %d, \"tests\": [",
            ranks, hosts);
  for (int t = 0, comma = 0; t < TESTS; t++)
    if (!ask.any || ask.chosen[t]) run((enum test)t, comma++);
  if (text) {
    fprintf(text, "]}");
    fclose(text);
    printf("%s\n", json);
  }
  MPI_Finalize();
  return 0;
}
