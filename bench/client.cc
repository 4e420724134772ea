// The load generator of the benchmarks: makes the calls that runtimes make on a directory, for
// a given time, and prints one JSON line with the rate and the latencies. It knows nothing of
// kvcachefs.
//
//   kvcachefs_bench OPERATION DIRECTORY [size=BYTES] [threads=N] [mode=buffered|direct|mmap]
//                   [names=N] [seconds=S] [first=N] [layout=flat|one_each]

#include <dirent.h>
#include <fcntl.h>
#include <linux/stat.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace kvcachefs {
namespace {

constexpr size_t kAlignment = 4096;
// A bound on the bytes that one measurement may leave in the page cache, and on its names.
constexpr uint64_t kMaxStoredBytes = 1ull << 30;
constexpr uint64_t kMaxNames = 20'000;
constexpr uint64_t kMaxSliceEnd = 10'000'000;
// Fewer would be chance, however long one takes.
constexpr uint64_t kMinSteps = 5;

enum class Mode { kBuffered, kDirect, kMmap };

struct Options {
  std::string operation;
  std::string directory;
  size_t size = 1 << 20;
  unsigned threads = 1;
  Mode mode = Mode::kBuffered;
  unsigned names = 1000;
  double seconds = 0.5;
  uint64_t first = 0;     // Of a slice of numbered names.
  bool one_each = false;  // A slice's names each in a directory of its own.
};

[[noreturn]] void die(const std::string& what, const std::string& on) {
  std::fprintf(stderr, "kvcachefs_bench: %s: %s: %s\n", what.c_str(), on.c_str(),
               std::strerror(errno));
  std::exit(1);
}

uint64_t now_ns() {
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                   std::chrono::steady_clock::now().time_since_epoch())
                                   .count());
}

class Fd {
 public:
  Fd(const std::string& path, int flags) : fd_(::open(path.c_str(), flags, 0644)) {
    if (fd_ < 0) die("open", path);
  }
  Fd(const Fd&) = delete;
  Fd& operator=(const Fd&) = delete;
  ~Fd() { ::close(fd_); }
  int get() const { return fd_; }

 private:
  int fd_;
};

// Memory that has been touched, so that no measurement pays for its first use.
class Buffer {
 public:
  explicit Buffer(size_t size) : size_(size) {
    void* memory = ::mmap(nullptr, size, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (memory == MAP_FAILED) die("mmap", "buffer");
    data_ = static_cast<char*>(memory);
    uint64_t state = 0x9e3779b97f4a7c15ull;
    for (size_t i = 0; i + sizeof state <= size; i += sizeof state) {
      state = state * 6364136223846793005ull + 1442695040888963407ull;
      std::memcpy(data_ + i, &state, sizeof state);
    }
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() { ::munmap(data_, size_); }
  char* data() const { return data_; }

 private:
  size_t size_;
  char* data_ = nullptr;
};

std::string file_name(const Options& o, const char* stem, uint64_t number) {
  return o.directory + "/" + stem + std::to_string(number);
}

void write_file(const std::string& path, int extra_flags, const Options& o,
                const Buffer& data) {
  const int direct = o.mode == Mode::kDirect ? O_DIRECT : 0;
  const int access = o.mode == Mode::kMmap ? O_RDWR : O_WRONLY;
  Fd fd(path, access | O_CREAT | O_CLOEXEC | direct | extra_flags);
  if (o.mode == Mode::kMmap) {
    if (::ftruncate(fd.get(), static_cast<off_t>(o.size)) != 0) die("ftruncate", path);
    void* window = ::mmap(nullptr, o.size, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
    if (window == MAP_FAILED) die("mmap", path);
    std::memcpy(window, data.data(), o.size);
    ::munmap(window, o.size);
    return;
  }
  for (size_t done = 0; done < o.size;) {
    const ssize_t n =
        ::pwrite(fd.get(), data.data() + done, o.size - done, static_cast<off_t>(done));
    if (n <= 0) die("write", path);
    done += static_cast<size_t>(n);
  }
}

void read_file(const std::string& path, const Options& o, Buffer& data) {
  Fd fd(path, O_RDONLY | O_CLOEXEC | (o.mode == Mode::kDirect ? O_DIRECT : 0));
  if (o.mode == Mode::kMmap) {
    void* window = ::mmap(nullptr, o.size, PROT_READ, MAP_SHARED, fd.get(), 0);
    if (window == MAP_FAILED) die("mmap", path);
    std::memcpy(data.data(), window, o.size);
    ::munmap(window, o.size);
    return;
  }
  for (size_t done = 0; done < o.size;) {
    const ssize_t n =
        ::pread(fd.get(), data.data() + done, o.size - done, static_cast<off_t>(done));
    if (n <= 0) die("read", path);
    done += static_cast<size_t>(n);
  }
}

// Runs `step(thread, number)` in every thread until the time or `limit` steps per thread are
// over.
struct Result {
  uint64_t operations = 0;
  double seconds = 0;
  std::vector<uint64_t> latencies_ns;
};

using Step = std::function<void(unsigned thread, uint64_t number)>;

Result measure(const Options& o, uint64_t limit, const Step& prepare, const Step& step) {
  std::vector<std::vector<uint64_t>> latencies(o.threads);
  std::vector<uint64_t> busy_ns(o.threads);
  std::atomic<unsigned> ready{0};
  std::vector<std::thread> threads;
  const auto budget_ns = static_cast<uint64_t>(o.seconds * 1e9);
  for (unsigned t = 0; t < o.threads; ++t) {
    threads.emplace_back([&, t] {
      latencies[t].reserve(1 << 16);
      ready.fetch_add(1);
      while (ready.load() < o.threads) std::this_thread::yield();
      uint64_t number = 0;
      // What prepares a step is not part of it, in time either.
      while (number < limit && (number < kMinSteps || busy_ns[t] < budget_ns)) {
        if (prepare) prepare(t, number);
        const uint64_t begin = now_ns();
        step(t, number++);
        const uint64_t took = now_ns() - begin;
        busy_ns[t] += took;
        latencies[t].push_back(took);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  Result result;
  for (unsigned t = 0; t < o.threads; ++t) {
    result.operations += latencies[t].size();
    result.seconds = std::max(result.seconds, static_cast<double>(busy_ns[t]) / 1e9);
    result.latencies_ns.insert(result.latencies_ns.end(), latencies[t].begin(),
                               latencies[t].end());
  }
  std::sort(result.latencies_ns.begin(), result.latencies_ns.end());
  return result;
}

void print(const Options& o, const Result& r) {
  const auto at = [&](double share) {
    if (r.latencies_ns.empty()) return 0.0;
    const auto last = static_cast<double>(r.latencies_ns.size() - 1);
    return static_cast<double>(r.latencies_ns[static_cast<size_t>(last * share)]) / 1e3;
  };
  const double rate = r.seconds > 0 ? static_cast<double>(r.operations) / r.seconds : 0;
  std::printf(
      "{\"operation\":\"%s\",\"operations\":%llu,\"per_second\":%.3f,\"bytes_per_second\":"
      "%.0f,\"p50_us\":%.3f,\"p99_us\":%.3f}\n",
      o.operation.c_str(), static_cast<unsigned long long>(r.operations), rate,
      rate * static_cast<double>(o.size), at(0.5), at(0.99));
}

// --- operations -----------------------------------------------------------------------------

// Enough files that one is not read from the processor's cache, few enough to stay in memory.
uint64_t file_count(const Options& o) {
  return std::clamp<uint64_t>((256ull << 20) / o.size, 2, 64);
}

std::string load_name(const Options& o, uint64_t number) {
  return file_name(o, ("load-" + std::to_string(o.size) + "-").c_str(), number);
}

// Prepares what `load` reads; once per directory.
void prepare_load(const Options& o) {
  Options plain = o;
  plain.mode = Mode::kBuffered;
  const Buffer data(o.size);
  for (uint64_t i = 0; i < file_count(o); ++i) {
    const std::string tmp = load_name(o, i) + ".tmp";
    write_file(tmp, O_TRUNC, plain, data);
    if (::rename(tmp.c_str(), load_name(o, i).c_str()) != 0) die("rename", tmp);
  }
  ::sync();
}

// Whole files; with `first_touch` each once, in a mount that has just been started.
Result load(const Options& o, bool first_touch) {
  std::vector<std::unique_ptr<Buffer>> buffers;
  for (unsigned t = 0; t < o.threads; ++t) buffers.push_back(std::make_unique<Buffer>(o.size));
  const auto name = [&](unsigned t, uint64_t n) {
    return load_name(o, (n + t * 7) % file_count(o));
  };
  if (!first_touch) {  // Warm: every file was read once.
    for (uint64_t i = 0; i < file_count(o); ++i) read_file(load_name(o, i), o, *buffers[0]);
  }
  return measure(o, first_touch ? file_count(o) : UINT64_MAX, nullptr,
                 [&](unsigned t, uint64_t n) { read_file(name(t, n), o, *buffers[t]); });
}

// As runtimes publish: a temporary name, the bytes, close, rename.
Result store(const Options& o) {
  const Buffer data(o.size);
  const uint64_t limit = std::clamp<uint64_t>(kMaxStoredBytes / o.size / o.threads, 2, 2000);
  const auto name = [&](unsigned t, uint64_t n) {
    return file_name(o, "store-", t * 10'000 + n);
  };
  Result result = measure(o, limit, nullptr, [&](unsigned t, uint64_t n) {
    const std::string path = name(t, n);
    const std::string tmp = path + ".tmp";
    write_file(tmp, O_EXCL, o, data);
    if (::rename(tmp.c_str(), path.c_str()) != 0) die("rename", tmp);
  });
  for (unsigned t = 0; t < o.threads; ++t) {
    for (uint64_t n = 0; n < limit && ::unlink(name(t, n).c_str()) == 0; ++n) {
    }
  }
  return result;
}

void make_names(const Options& o, const char* stem, uint64_t count) {
  for (uint64_t i = 0; i < count; ++i) {
    Fd fd(file_name(o, stem, i), O_WRONLY | O_CREAT | O_CLOEXEC);
  }
}

void remove_names(const Options& o, const char* stem, uint64_t count) {
  for (uint64_t i = 0; i < count; ++i) ::unlink(file_name(o, stem, i).c_str());
}

Result stat_names(const Options& o, bool hit) {
  if (hit) make_names(o, "name-", o.names);
  const char* stem = hit ? "name-" : "missing-";
  std::vector<std::string> paths;
  for (uint64_t i = 0; i < o.names; ++i) paths.push_back(file_name(o, stem, i));
  const auto stat_one = [&](unsigned, uint64_t n) {
    struct stat st;
    const bool found = ::stat(paths[n % paths.size()].c_str(), &st) == 0;
    if (found != hit) die("stat", paths[n % paths.size()]);
  };
  for (uint64_t i = 0; i < o.names; ++i) stat_one(0, i);  // The kernel's caches are filled.
  return measure(o, UINT64_MAX, nullptr, stat_one);
}

Result open_close(const Options& o) {
  make_names(o, "name-", o.names);
  return measure(o, UINT64_MAX, nullptr, [&](unsigned t, uint64_t n) {
    Fd fd(file_name(o, "name-", (n + t * 7) % o.names), O_RDONLY | O_CLOEXEC);
  });
}

// A call that no cache of the kernel may answer: one round trip to the daemon.
Result round_trip(const Options& o) {
  make_names(o, "name-", 1);
  const std::string path = file_name(o, "name-", 0);
  return measure(o, UINT64_MAX, nullptr, [&](unsigned, uint64_t) {
    struct statx st;
    if (::statx(AT_FDCWD, path.c_str(), AT_STATX_FORCE_SYNC, STATX_BASIC_STATS, &st) != 0) {
      die("statx", path);
    }
  });
}

Result create(const Options& o) {
  Result result = measure(o, kMaxNames / o.threads, nullptr, [&](unsigned t, uint64_t n) {
    Fd fd(file_name(o, "new-", t * kMaxNames + n), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC);
  });
  remove_names(o, "new-", kMaxNames * o.threads);
  return result;
}

Result rename_names(const Options& o) {
  make_names(o, "old-", o.names);
  // To and fro, every name once before any name again.
  Result result = measure(o, UINT64_MAX, nullptr, [&](unsigned, uint64_t n) {
    const bool forth = (n / o.names) % 2 == 0;
    const std::string a = file_name(o, "old-", n % o.names);
    const std::string b = file_name(o, "moved-", n % o.names);
    if (::rename((forth ? a : b).c_str(), (forth ? b : a).c_str()) != 0) die("rename", a);
  });
  remove_names(o, "old-", o.names);
  remove_names(o, "moved-", o.names);
  return result;
}

Result unlink_names(const Options& o) {
  const uint64_t count = std::min<uint64_t>(kMaxNames, o.names * 5ull);
  make_names(o, "gone-", count);
  Result result = measure(o, count, nullptr, [&](unsigned, uint64_t n) {
    const std::string path = file_name(o, "gone-", n);
    if (::unlink(path.c_str()) != 0) die("unlink", path);
  });
  remove_names(o, "gone-", count);
  return result;
}

// One operation is the listing of the whole directory, as scandir and os.listdir do it.
Result list_names(const Options& o) {
  Options inner = o;
  inner.directory += "/listed";
  ::mkdir(inner.directory.c_str(), 0755);
  struct stat st;
  if (::stat(file_name(inner, "name-", o.names - 1).c_str(), &st) != 0) {
    make_names(inner, "name-", o.names);
  }
  const auto list = [&](unsigned, uint64_t) {
    DIR* directory = ::opendir(inner.directory.c_str());
    if (directory == nullptr) die("opendir", inner.directory);
    unsigned found = 0;
    while (::readdir(directory) != nullptr) ++found;
    ::closedir(directory);
    if (found != o.names + 2) die("readdir found " + std::to_string(found), inner.directory);
  };
  list(0, 0);
  return measure(o, UINT64_MAX, nullptr, list);
}

// Names first .. first + names - 1 of a tree that grows slice by slice: in one directory, or
// each in a directory of its own.
std::string slice_name(const Options& o, uint64_t number, std::string* parent) {
  std::string directory = o.directory;
  if (o.one_each) directory += "/d" + std::to_string(number);
  if (parent != nullptr) *parent = directory;
  return directory + "/" + std::to_string(number);
}

Result create_slice(const Options& o) {
  Options all = o;
  all.seconds = 1e6;
  return measure(all, o.names, nullptr, [&](unsigned, uint64_t n) {
    std::string parent;
    const std::string path = slice_name(o, o.first + n, &parent);
    if (o.one_each && ::mkdir(parent.c_str(), 0755) != 0) die("mkdir", parent);
    Fd fd(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC);
  });
}

// In an order that no read-ahead knows; every name once.
Result lookup_slice(const Options& o) {
  constexpr uint64_t kPrime = 1'000'003;
  Options all = o;
  all.seconds = 1e6;
  return measure(all, o.names, nullptr, [&](unsigned, uint64_t n) {
    const std::string path = slice_name(o, o.first + n * kPrime % o.names, nullptr);
    struct stat st;
    if (::stat(path.c_str(), &st) != 0) die("stat", path);
  });
}

// --- command line ---------------------------------------------------------------------------

Options parse(int argc, char** argv) {
  Options o;
  o.operation = argv[1];
  o.directory = argv[2];
  for (int i = 3; i < argc; ++i) {
    const std::string word = argv[i];
    const size_t equals = word.find('=');
    const std::string key = word.substr(0, equals);
    const std::string value = equals == std::string::npos ? "" : word.substr(equals + 1);
    if (key == "size") {
      o.size = std::strtoull(value.c_str(), nullptr, 10);
    } else if (key == "threads") {
      o.threads = static_cast<unsigned>(std::strtoul(value.c_str(), nullptr, 10));
    } else if (key == "names") {
      o.names = static_cast<unsigned>(std::strtoul(value.c_str(), nullptr, 10));
    } else if (key == "first") {
      o.first = std::strtoull(value.c_str(), nullptr, 10);
    } else if (key == "layout" && (value == "flat" || value == "one_each")) {
      o.one_each = value == "one_each";
    } else if (key == "seconds") {
      o.seconds = std::strtod(value.c_str(), nullptr);
    } else if (key == "mode" && (value == "buffered" || value == "direct" || value == "mmap")) {
      o.mode = value == "buffered" ? Mode::kBuffered
                                   : (value == "direct" ? Mode::kDirect : Mode::kMmap);
    } else {
      std::fprintf(stderr, "kvcachefs_bench: unknown option: %s\n", word.c_str());
      std::exit(2);
    }
  }
  const bool slice = o.operation == "create_slice" || o.operation == "lookup_slice";
  if (slice && o.names > 0 && o.first + o.names <= kMaxSliceEnd) return o;
  if (o.size == 0 || o.size % kAlignment != 0 || o.threads == 0 || o.threads > 64 ||
      o.names == 0 || o.names > kMaxNames) {
    std::fprintf(stderr,
                 "kvcachefs_bench: size in multiples of 4096, threads 1-64, names 1-%llu\n",
                 static_cast<unsigned long long>(kMaxNames));
    std::exit(2);
  }
  return o;
}

int run(int argc, char** argv) {
  const std::map<std::string, std::function<Result(const Options&)>> operations = {
      {"load", [](const Options& o) { return load(o, false); }},
      {"load_first_touch", [](const Options& o) { return load(o, true); }},
      {"store", store},
      {"open_close", open_close},
      {"stat_hit", [](const Options& o) { return stat_names(o, true); }},
      {"stat_miss", [](const Options& o) { return stat_names(o, false); }},
      {"round_trip", round_trip},
      {"create", create},
      {"rename", rename_names},
      {"unlink", unlink_names},
      {"readdir", list_names},
      {"create_slice", create_slice},
      {"lookup_slice", lookup_slice},
  };
  if (argc < 3 || (std::string(argv[1]) != "prepare_load" && operations.count(argv[1]) == 0)) {
    std::fprintf(stderr,
                 "usage: kvcachefs_bench OPERATION DIRECTORY [KEY=VALUE]...\n  prepare_load");
    for (const auto& [name, function] : operations) std::fprintf(stderr, " %s", name.c_str());
    std::fprintf(stderr, "\n");
    return 2;
  }
  const Options o = parse(argc, argv);
  if (o.operation == "prepare_load") {
    prepare_load(o);
    return 0;
  }
  print(o, operations.at(o.operation)(o));
  return 0;
}

}  // namespace
}  // namespace kvcachefs

int main(int argc, char** argv) { return kvcachefs::run(argc, argv); }
