// What kit adds to Horovod: each rank counts what it waits for, and its timeline can be switched on from outside.
//
// If the environment variable KIT_READINESS names a folder, each rank has the file RANK.PID there, of 128 bytes in the
// layout of `Counters`. It maps the file, so counting is a few additions to memory and no system call. Once a second,
// the background thread looks for the file `control` in the folder, with the line
//   ID SECONDS BYTES FOLDER
// For a new ID, the rank writes its timeline to FOLDER/RANK.PID.json for SECONDS, until that file has BYTES, or until
// `control` is gone.
// Without KIT_READINESS, nothing here does anything. Readers: lib/kitwatch/readiness.py, lib/kitwatch/timeline.py.

#ifndef KIT_WATCH_H
#define KIT_WATCH_H

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string>

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace horovod {
namespace common {

class KitWatch {
public:
  enum TimelineState : int64_t { NONE = 0, WRITING = 1, WRITTEN = 2, REFUSED = 3, FAILED = 4 };

  struct Counters {
    char magic[8]; // "KITREADY"
    int32_t version;
    int32_t rank;
    int32_t size; // ranks of the world
    int32_t pid;
    std::atomic<int64_t> opened_ns;     // when this world began (all *_ns moments: CLOCK_REALTIME)
    std::atomic<int64_t> operations;    // begun
    std::atomic<int64_t> tensors;       // begun; one operation may fuse several
    std::atomic<int64_t> wait_ns;       // from enqueue to the begin of the operation, summed over tensors
    std::atomic<int64_t> operation_ns;  // from the begin to the end of operations
    std::atomic<int64_t> bytes;         // of the tensors
    std::atomic<int64_t> last_ns;       // when the last operation ended, or 0
    std::atomic<int64_t> enqueued;      // tensors that the script gave; those not begun wait for other ranks
    std::atomic<int64_t> enqueued_ns;   // when the last one was given, or 0
    std::atomic<int64_t> timeline_id;   // ID of the control file that this rank followed last
    std::atomic<int64_t> timeline_state;
    std::atomic<int64_t> tail_ns; // from the last enqueue to the begin that leaves no tensor waiting, summed
    std::atomic<int64_t> steps;   // how often the same tensor began again
  };
  static_assert(sizeof(Counters) == 128, "the readers know this layout");
  static_assert(ATOMIC_LLONG_LOCK_FREE == 2, "other processes read these numbers");

  static KitWatch& Get() {
    // Never destroyed: threads of a framework may end a tensor while the process exits.
    static KitWatch* watch = new KitWatch();
    return *watch;
  }

  static int64_t Monotonic() { return Clock(CLOCK_MONOTONIC); }

  // Create this rank's file. A world of elastic Horovod may begin after another one in the same process. The background
  // thread calls this, and gets a name: it asks the other ranks without an end, which is no work of the rank.
  void Open(int rank, int size) {
    Close();
    pthread_setname_np(pthread_self(), "horovod");
    const char* folder = std::getenv("KIT_READINESS");
    if (folder == nullptr || folder[0] != '/') {
      return;
    }
    struct stat found;
    // The folder is in /dev/shm, where every user may make files.
    mkdir(folder, 0700);
    if (lstat(folder, &found) != 0 || !S_ISDIR(found.st_mode) || found.st_uid != geteuid()) {
      return;
    }
    folder_ = folder;
    name_ = std::to_string(rank) + "." + std::to_string(getpid());
    path_ = folder_ + "/" + name_;
    unlink(path_.c_str());
    int file = open(path_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (file < 0) {
      return;
    }
    // Reserves the memory: in a full /dev/shm, writing to a mapped hole would end the process with SIGBUS.
    void* mapped = MAP_FAILED;
    if (posix_fallocate(file, 0, sizeof(Counters)) == 0) {
      mapped = mmap(nullptr, sizeof(Counters), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    }
    close(file);
    if (mapped == MAP_FAILED) {
      unlink(path_.c_str());
      return;
    }
    auto counters = static_cast<Counters*>(mapped);
    counters->version = 1;
    counters->rank = rank;
    counters->size = size;
    counters->pid = getpid();
    counters->opened_ns = Clock(CLOCK_REALTIME);
    std::atomic_thread_fence(std::memory_order_release);
    // Last: a reader ignores a file without it.
    std::memcpy(counters->magic, "KITREADY", 8);
    counters_ = counters;
  }

  // Remove the file. The mapping stays, because another thread may be counting.
  void Close() {
    if (counters_.exchange(nullptr) != nullptr) {
      unlink(path_.c_str());
    }
  }

  // Return the moment for Begin (CLOCK_MONOTONIC), or 0 if nothing is counted.
  int64_t Enqueued() {
    auto counters = counters_.load(std::memory_order_relaxed);
    if (counters == nullptr) {
      return 0;
    }
    counters->enqueued.fetch_add(1, std::memory_order_relaxed);
    counters->enqueued_ns.store(Clock(CLOCK_REALTIME), std::memory_order_relaxed);
    int64_t now = Monotonic();
    last_enqueued_.store(now, std::memory_order_relaxed);
    return now;
  }

  // Count an operation that begins. Return the moment for End (CLOCK_MONOTONIC), or 0 if nothing is counted.
  template <class Entries> int64_t Begin(const Entries& entries) {
    auto counters = counters_.load(std::memory_order_relaxed);
    if (counters == nullptr) {
      return 0;
    }
    int64_t now = Monotonic(), wait = 0, bytes = 0, tensors = 0;
    for (auto& e : entries) {
      if (e.kit_enqueued_ns != 0) {
        tensors += 1;
        wait += now - e.kit_enqueued_ns;
        bytes += e.tensor != nullptr ? (int64_t)e.tensor->size() : 0;
        Mark(e.tensor_name, counters);
      }
    }
    counters->operations.fetch_add(1, std::memory_order_relaxed);
    counters->tensors.fetch_add(tensors, std::memory_order_relaxed);
    counters->wait_ns.fetch_add(wait, std::memory_order_relaxed);
    int64_t last = last_enqueued_.load(std::memory_order_relaxed);
    if (tensors != 0 && last != 0 && counters->enqueued.load() == counters->tensors.load()) {
      counters->tail_ns.fetch_add(now - last, std::memory_order_relaxed);
    }
    counters->bytes.fetch_add(bytes, std::memory_order_relaxed);
    return now;
  }

  void End(int64_t begun) {
    auto counters = counters_.load(std::memory_order_relaxed);
    if (counters == nullptr || begun == 0) {
      return;
    }
    counters->operation_ns.fetch_add(Monotonic() - begun, std::memory_order_relaxed);
    counters->last_ns.store(Clock(CLOCK_REALTIME), std::memory_order_relaxed);
  }

  // The background thread calls this in each cycle. `start(path)` returns whether the writer was asked to begin, `stop()`
  // asks it to end, and `finish()` ends it.
  template <class Start, class Stop, class Finish> void Look(Start start, Stop stop, Finish finish) {
    auto counters = counters_.load(std::memory_order_relaxed);
    if (counters == nullptr) {
      return;
    }
    int64_t now = Monotonic();
    if (until_ns_ != 0 && (now >= until_ns_ || full_)) {
      // In each cycle until the state changes: the writer may not have opened the file yet.
      stop();
    }
    if (now < look_ns_) {
      return;
    }
    look_ns_ = now + 1000000000;
    if (begun_ && counters->timeline_state != WRITING) {
      begun_ = false;
      until_ns_ = 0;
      finish();
    }
    struct stat found;
    std::string path = folder_ + "/control";
    bool ordered = lstat(path.c_str(), &found) == 0 && S_ISREG(found.st_mode);
    int64_t changed = ordered ? found.st_mtim.tv_sec * 1000000000LL + found.st_mtim.tv_nsec : 0;
    if (until_ns_ != 0 && changed != changed_ns_) {
      // kit was interrupted, and has removed its order or given another one.
      until_ns_ = now;
    }
    if (!ordered || begun_ || changed == changed_ns_) {
      return;
    }
    changed_ns_ = changed;
    long long id = 0, bytes = 0;
    double seconds = 0;
    char where[1024] = "";
    FILE* file = fopen(path.c_str(), "re");
    if (file == nullptr) {
      return;
    }
    int words = fscanf(file, "%lld %lf %lld %1023s", &id, &seconds, &bytes, where);
    fclose(file);
    if (words != 4 || where[0] != '/' || id == counters->timeline_id.load()) {
      return;
    }
    limit_ = bytes;
    full_ = false;
    counters->timeline_state = NONE;
    counters->timeline_id = id;
    // The state is set before the file is opened, because the writer may be done first.
    SetTimelineState(WRITING);
    if (start(std::string(where) + "/" + name_ + ".json")) {
      begun_ = true;
      until_ns_ = now + (int64_t)(seconds * 1e9);
    } else {
      SetTimelineState(REFUSED);
    }
  }

  void SetTimelineState(TimelineState state) {
    auto counters = counters_.load(std::memory_order_relaxed);
    if (counters != nullptr) {
      counters->timeline_state.store(state);
    }
  }

  // The writer reports how long its file is.
  void Written(int64_t bytes) {
    if (limit_ != 0 && bytes > limit_) {
      full_ = true;
    }
  }

private:
  // Count a step whenever a marked tensor comes again. One that does not come back, as those of a broadcast at the start,
  // gives the mark to another, each time after twice as many tensors: some day these are more than those of a step.
  void Mark(const std::string& name, Counters* counters) {
    if (name == mark_) {
      counters->steps.fetch_add(1, std::memory_order_relaxed);
      since_mark_ = 0;
    } else if (++since_mark_ > patience_) {
      mark_ = name;
      since_mark_ = 0;
      patience_ = patience_ < (1 << 20) ? 2 * patience_ : patience_;
    }
  }

  static int64_t Clock(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
  }

  std::atomic<Counters*> counters_{nullptr};
  std::string folder_, name_, path_;
  // Only the background thread begins operations.
  std::string mark_;
  int since_mark_ = 0, patience_ = 8;
  std::atomic<int64_t> last_enqueued_{0};
  int64_t look_ns_ = 0, until_ns_ = 0, changed_ns_ = 0;
  bool begun_ = false;
  std::atomic<int64_t> limit_{0};
  std::atomic<bool> full_{false};
};

} // namespace common
} // namespace horovod

#endif // KIT_WATCH_H
