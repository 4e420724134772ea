// Real NFS servers for tests (nfs_server.sh).
#pragma once

#include <arpa/inet.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>

#include "tests/fakes/temp_dir.h"
#include "tests/fakes/tests_dir.h"

namespace kvcachefs::testing {

// Neighbours that nobody has at this moment.
inline std::uint16_t two_free_ports() {
  const auto bound = [](std::uint16_t port) {
    const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(port);
    socklen_t size = sizeof address;
    auto* plain = reinterpret_cast<sockaddr*>(&address);
    const bool is_free = ::bind(fd, plain, size) == 0 && ::getsockname(fd, plain, &size) == 0;
    ::close(fd);
    return is_free ? ntohs(address.sin_port) : std::uint16_t{0};
  };
  for (int i = 0; i < 100; ++i) {
    const std::uint16_t port = bound(0);
    if (port != 0 && port < 65535 && bound(static_cast<std::uint16_t>(port + 1)) != 0)
      return port;
  }
  throw std::runtime_error("no free ports");
}

// `below`: a path on the export.
inline std::string nfs_uri(std::uint16_t port, const std::string& below) {
  return fmt::format("nfs://127.0.0.1/export{}?nfsport={}&mountport={}", below, port, port + 1);
}

// The server of all tests of this process that neither stop nor kill it; each has a directory of its own on it. It starts with
// the first of them, and ends with the process, however that ends: nfs_server.sh reads from a pipe that this process
// alone writes to.
class SharedNfsServer {
 public:
  static SharedNfsServer& get() {
    static SharedNfsServer server;
    return server;
  }
  // What it exports. A test makes its directory in it.
  [[nodiscard]] std::string root() const { return dir_.path() + "/export"; }
  // Of a directory there.
  [[nodiscard]] std::string uri(const std::string& path) const {
    return nfs_uri(port_, path.substr(root().size()));
  }

 private:
  SharedNfsServer() {
    std::filesystem::create_directory(root());
    const std::string work = dir_.path() + "/server";
    // A session of its own: a signal to the tests' process group must not end the script before the server.
    const std::string command =
        fmt::format("exec setsid {}/servers/nfs_server.sh serve {} {} {} {} >/dev/null",
                    tests_dir(), root(), work, port_, dir_.path());
    pipe_ = ::popen(command.c_str(), "we");
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds{60};
    while (!std::filesystem::exists(work + "/ready")) {
      if (pipe_ == nullptr || std::chrono::steady_clock::now() > end)
        throw std::runtime_error("the NFS server did not come up");
      std::this_thread::sleep_for(std::chrono::milliseconds{2});  // How often is looked.
    }
  }
  ~SharedNfsServer() { ::pclose(pipe_); }

  const TempDir dir_;
  const std::uint16_t port_ = two_free_ports();
  FILE* pipe_ = nullptr;
};

// A server for one directory, for a test that stops or kills it.
class NfsServer {
 public:
  // `work` keeps its configuration and log. Throws when it does not come up.
  NfsServer(std::string directory, std::string work)
      : directory_(std::move(directory)), work_(std::move(work)), port_(two_free_ports()) {
    up();
  }
  ~NfsServer() {
    signal_it(SIGCONT);
    static_cast<void>(run("down " + work_));
    std::error_code ignored;
    std::filesystem::remove_all(work_, ignored);
  }
  NfsServer(const NfsServer&) = delete;
  NfsServer& operator=(const NfsServer&) = delete;

  void up() {
    if (run(fmt::format("up {} {} {}", directory_, work_, port_)) != 0)
      throw std::runtime_error("the NFS server did not come up: see " + work_ + "/log");
  }
  void down() { static_cast<void>(run("down " + work_)); }
  // SIGKILL, SIGSTOP, SIGCONT. Once SIGSTOP returns, none of its threads answers any more.
  void signal_it(int signal) const {
    pid_t pid = 0;
    std::ifstream(work_ + "/pid") >> pid;
    if (pid <= 0 || ::kill(pid, signal) != 0 || signal != SIGSTOP) return;
    while (!all_stopped(pid)) std::this_thread::yield();
  }
  [[nodiscard]] std::string uri(const std::string& below = {}) const {
    return nfs_uri(port_, below);
  }

 private:
  // proc(5): the state follows the name, which ends with the last parenthesis.
  static bool all_stopped(pid_t pid) {
    std::error_code gone;
    for (const auto& task :
         std::filesystem::directory_iterator(fmt::format("/proc/{}/task", pid), gone)) {
      std::ifstream stat(task.path() / "stat");
      std::string line;
      std::getline(stat, line);
      const std::size_t name_end = line.rfind(')');
      if (name_end != std::string::npos && line.compare(name_end, 3, ") T") != 0) return false;
    }
    return true;
  }
  static int run(const std::string& arguments) {
    const std::string command =
        std::string(tests_dir()) + "/servers/nfs_server.sh " + arguments + " </dev/null";
    return std::system(
        command.c_str());  // NOLINT(concurrency-mt-unsafe): one thread starts servers
  }

  const std::string directory_;
  const std::string work_;
  const std::uint16_t port_;
};

}  // namespace kvcachefs::testing
