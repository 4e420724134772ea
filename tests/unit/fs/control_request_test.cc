#include "fs/control_request.h"

#include <utility>
#include <vector>

#include "tests/fakes/expect_result.h"

namespace kvcachefs {
namespace {

TEST(ControlRequest, IsReadAsItWasWritten) {
  ControlRequest request;
  request.command = "objects";
  request.word = "a \"word\"\n";
  request.after = "00ff";
  request.model = "m/\xc3\xa9";
  request.runtime = "vllm";
  request.block = 0xfedcba9876543210;
  const std::string line = encode(request);
  EXPECT_EQ(std::string::npos, line.find('\n'));
  std::string problem;
  const auto read = parse_control_request(line, problem);
  ASSERT_OK(read);
  EXPECT_EQ(request, *read);
  request = {};
  request.command = "status";
  EXPECT_EQ(R"({"command":"status"})", encode(request));
}

TEST(ControlRequest, OtherFieldsArePassedOver) {
  std::string problem;
  const auto read = parse_control_request(R"({"command":"ls","wish":[1]})", problem);
  ASSERT_OK(read);
  EXPECT_EQ("ls", read->command);
}

TEST(ControlRequest, AWrongFieldIsNamed) {
  const std::string longest(kLongestRequestText, 'x');
  for (const auto& [line, said] : std::vector<std::pair<std::string, std::string>>{
           {"", "command"},
           {"[]", "command"},
           {"{}", "command"},
           {R"({"command":""})", "command"},
           {R"({"command":{}})", "\"command\" is not a string"},
           {R"({"command":"find","word":7})", "\"word\" is not a string"},
           {R"({"command":"find","after":null})", "\"after\" is not a string"},
           {R"({"command":"find","word":")" + longest + R"(x"})", "\"word\" is longer"},
           {R"({"command":"chain","block":5})", "\"block\" is not a string"},
           {R"({"command":"chain","block":""})", "\"block\" is not 16"},
           {R"({"command":"chain","block":"00000000000000g0"})", "\"block\" is not 16"},
           {R"({"command":"chain","block":"-000000000000001"})", "\"block\" is not 16"}}) {
    std::string problem;
    EXPECT_ERROR(EINVAL, parse_control_request(line, problem)) << line;
    EXPECT_NE(std::string::npos, problem.find(said)) << problem;
  }
  std::string problem;
  EXPECT_OK(
      parse_control_request(R"({"command":"find","word":")" + longest + R"("})", problem));
}

}  // namespace
}  // namespace kvcachefs
