#include "fs/control.h"

#include <fcntl.h>
#include <nlohmann/json.hpp>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <thread>

#include "fs/state_dir.h"
#include "tests/fakes/expect_result.h"
#include "tests/fakes/temp_dir.h"

namespace kvcachefs {
namespace {

using testing::TempDir;

class ControlTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto server = ControlServer::open(dir_.path(),
                                      [](const ControlRequest& request) -> Result<std::string> {
                                        const std::string& command = request.command;
                                        if (command == "echo")
                                          return std::string{R"({"said":"echo"})"};
                                        if (command == "big")
                                          return "\"" + std::string(300'000, 'x') + "\"";
                                        return fail(EINVAL, "no such command");
                                      });
    ASSERT_OK(server);
    server_ = std::move(*server);
    server_->start();
  }
  UniqueFd connect() {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    const std::string path = control_path_of(dir_.path());
    std::memcpy(address.sun_path, path.data(), path.size());
    UniqueFd fd{::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    EXPECT_EQ(0,
              ::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address));
    return fd;
  }
  // What comes until the server closes; at most some seconds.
  static std::string read_all(const UniqueFd& fd) {
    std::string all;
    char buffer[4096];
    pollfd readable{fd.get(), POLLIN, 0};
    while (::poll(&readable, 1, 20'000) == 1) {
      const ssize_t got = ::recv(fd.get(), buffer, sizeof buffer, 0);
      if (got <= 0) return all;
      all.append(buffer, static_cast<std::size_t>(got));
    }
    ADD_FAILURE() << "the server keeps the connection";
    return all;
  }
  std::string say(const std::string& text) {
    const UniqueFd fd = connect();
    EXPECT_EQ(static_cast<ssize_t>(text.size()),
              ::send(fd.get(), text.data(), text.size(), MSG_NOSIGNAL));
    return read_all(fd);
  }

  TempDir dir_;
  std::unique_ptr<ControlServer> server_;
};

TEST_F(ControlTest, AnswersOneLineWithOneLine) {
  const auto answer = control_request(dir_.path(), "echo");
  ASSERT_OK(answer);
  EXPECT_EQ(R"({"said":"echo"})", *answer);
  EXPECT_EQ("{\"said\":\"echo\"}\n", say("{\"command\":\"echo\"}\n"));
}

TEST_F(ControlTest, IsForTheOwnerAlone) {
  struct stat status {};
  ASSERT_EQ(0, ::stat(control_path_of(dir_.path()).c_str(), &status));
  EXPECT_TRUE(S_ISSOCK(status.st_mode));
  EXPECT_EQ(0600u, status.st_mode & 07777);
}

TEST_F(ControlTest, WhatIsNoRequestGetsAnError) {
  for (const char* text : {"\n", "hello\n", "{}\n", "[]\n", "{\"command\":3}\n",
                           "{\"command\":\"\xff\"}\n", "{\"command\":\"unknown\"}\n"}) {
    const auto answer = nlohmann::json::parse(say(text), nullptr, false);
    EXPECT_TRUE(answer.is_object() && answer.contains("error")) << text;
  }
  const auto answer =
      nlohmann::json::parse(say(std::string(kControlRequestLimit + 1000, 'x')), nullptr, false);
  EXPECT_TRUE(answer.is_object() && answer.contains("error"));
}

TEST_F(ControlTest, ALongAnswerArrivesWhole) {
  const auto answer = control_request(dir_.path(), "big");
  ASSERT_OK(answer);
  EXPECT_EQ(300'002u, answer->size());
}

TEST_F(ControlTest, SilentClientsHoldNobodyUp) {
  std::vector<UniqueFd> silent;
  for (std::size_t i = 0; i < kControlClients; ++i) silent.push_back(connect());
  // All places are taken until their time is over.
  EXPECT_OK(control_request(dir_.path(), "echo", std::chrono::seconds{30}));
  EXPECT_EQ("", read_all(silent[0]));
}

TEST_F(ControlTest, ADeadDaemonsSocketIsReplaced) {
  server_.reset();
  EXPECT_FALSE(std::filesystem::exists(control_path_of(dir_.path())));
  EXPECT_ERROR(ENOENT, control_request(dir_.path(), "echo"));
  {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    const std::string path = control_path_of(dir_.path());
    std::memcpy(address.sun_path, path.data(), path.size());
    const UniqueFd fd{::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    ASSERT_EQ(0, ::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address));
  }
  EXPECT_ERROR(ECONNREFUSED, control_request(dir_.path(), "echo"));
  SetUp();
  EXPECT_OK(control_request(dir_.path(), "echo"));
}

TEST(Control, APathMayBeLongerThanASocketAddress) {
  const TempDir dir;
  const std::string state = dir / std::string(180, 'd');
  std::filesystem::create_directory(state);
  const auto server = ControlServer::open(
      state, [](const ControlRequest&) -> Result<std::string> { return std::string{"1"}; });
  ASSERT_OK(server);
  (*server)->start();
  const auto answer = control_request(state, "any");
  ASSERT_OK(answer);
  EXPECT_EQ("1", *answer);
}

}  // namespace
}  // namespace kvcachefs
