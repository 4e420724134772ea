// What libnfs alone makes of a server: whole files read or written with so many connections and requests under way.
//
//   kvcachefs_raw_nfs URL CONNECTIONS DEPTH
//
// Reads lines from standard input, "read SIZE PATH..." or "write SIZE PATH...", PATH as on the export; files are taken
// by the connections in turn, each transferred in requests of 1 MiB, DEPTH of them under way. Answers each line with the
// nanoseconds from the first call to the last answer. A write makes the file, and ends with a COMMIT.
#include <fcntl.h>
#include <nfsc/libnfs.h>
#include <poll.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace {

constexpr std::uint64_t kRequest = 1 << 20;

[[noreturn]] void give_up(const std::string& what) {
  std::fprintf(stderr, "kvcachefs_raw_nfs: %s\n", what.c_str());
  std::_Exit(1);
}

class Connection {
 public:
  Connection(const std::string& url, std::uint64_t depth) : depth_(depth), buffer_(64 << 20) {
    nfs_ = nfs_init_context();
    nfs_url* parsed = nfs_ == nullptr ? nullptr : nfs_parse_url_dir(nfs_, url.c_str());
    if (parsed == nullptr || nfs_mount(nfs_, parsed->server, parsed->path) != 0)
      give_up(url + ": " + nfs_get_error(nfs_));
    nfs_destroy_url(parsed);
    std::memset(buffer_.data(), 7, buffer_.size());
  }
  ~Connection() { nfs_destroy_context(nfs_); }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  void transfer(bool writes, const std::string& path, std::uint64_t size) {
    if (size > buffer_.size()) give_up("files of 64 MiB at most");
    const int opened = writes ? nfs_creat(nfs_, path.c_str(), 0644, &file_)
                              : nfs_open(nfs_, path.c_str(), O_RDONLY, &file_);
    if (opened != 0) give_up(path + ": " + nfs_get_error(nfs_));
    writes_ = writes;
    size_ = size;
    next_ = moved_ = under_way_ = 0;
    do {
      while (under_way_ < depth_ && next_ < size_) start();
      pollfd poll_fd{nfs_get_fd(nfs_), static_cast<short>(nfs_which_events(nfs_)), 0};
      if (::poll(&poll_fd, 1, 30000) <= 0) give_up(path + ": no answer");
      if (nfs_service(nfs_, poll_fd.revents) < 0) give_up(path + ": " + nfs_get_error(nfs_));
    } while (under_way_ > 0 || next_ < size_);
    if (moved_ != size_) give_up(path + ": a short transfer");
    if (writes && nfs_fsync(nfs_, file_) != 0) give_up(path + ": " + nfs_get_error(nfs_));
    nfs_close(nfs_, file_);
  }

 private:
  struct Piece {
    Connection* connection;
    std::uint64_t at;
  };

  void start() {
    auto* piece = new Piece{this, next_};
    const std::uint64_t count = std::min(kRequest, size_ - next_);
    const int started = writes_ ? nfs_pwrite_async(nfs_, file_, next_, count,
                                                   buffer_.data() + next_, answer, piece)
                                : nfs_pread_async(nfs_, file_, next_, count, answer, piece);
    if (started != 0) give_up(nfs_get_error(nfs_));
    next_ += count;
    ++under_way_;
  }

  static void answer(int moved, nfs_context*, void* data, void* of_piece) {
    const std::unique_ptr<Piece> piece(static_cast<Piece*>(of_piece));
    Connection& own = *piece->connection;
    if (moved < 0) give_up(std::string("a request failed: ") + std::strerror(-moved));
    if (!own.writes_)
      std::memcpy(own.buffer_.data() + piece->at, data, static_cast<std::size_t>(moved));
    own.moved_ += static_cast<std::uint64_t>(moved);
    --own.under_way_;
  }

  nfs_context* nfs_ = nullptr;
  nfsfh* file_ = nullptr;
  const std::uint64_t depth_;
  std::vector<char> buffer_;
  bool writes_ = false;
  std::uint64_t size_ = 0;
  std::uint64_t next_ = 0;
  std::uint64_t moved_ = 0;
  std::uint64_t under_way_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) give_up("URL CONNECTIONS DEPTH");
  std::vector<std::unique_ptr<Connection>> connections;
  for (int i = 0; i < std::atoi(argv[2]); ++i)
    connections.push_back(
        std::make_unique<Connection>(argv[1], static_cast<std::uint64_t>(std::atoi(argv[3]))));
  std::string line;
  while (std::getline(std::cin, line)) {
    std::istringstream words(line);
    std::string verb, path;
    std::uint64_t size = 0;
    words >> verb >> size;
    if (verb != "read" && verb != "write") give_up("not a command: " + line);
    std::vector<std::string> paths;
    while (words >> path) paths.push_back(path);
    std::atomic<std::size_t> taken{0};
    const auto work = [&](Connection& connection) {
      for (std::size_t i = taken++; i < paths.size(); i = taken++)
        connection.transfer(verb == "write", paths[i], size);
    };
    const auto begin = std::chrono::steady_clock::now();
    std::vector<std::thread> others;
    for (std::size_t i = 1; i < std::min(connections.size(), paths.size()); ++i)
      others.emplace_back([&, i] { work(*connections[i]); });
    work(*connections.front());
    for (std::thread& other : others) other.join();
    const std::chrono::nanoseconds took = std::chrono::steady_clock::now() - begin;
    std::cout << took.count() << std::endl;
  }
  return 0;
}
