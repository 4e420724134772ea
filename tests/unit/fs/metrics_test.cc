// Where metrics are served, and their labels; the text as a whole is tested on a mount.
#include "fs/metrics_address.h"
#include "fs/metrics_text.h"
#include "fs/stats.h"
#include "tests/fakes/expect_result.h"

namespace kvcachefs {
namespace {

TEST(MetricsAddress, IsTheLoopbackUnlessAHostIsGiven) {
  const auto port = parse_metrics_address("9100");
  ASSERT_TRUE(port.has_value());
  EXPECT_EQ("127.0.0.1", port->host);
  EXPECT_EQ(9100, port->port);
  EXPECT_EQ("0.0.0.0", parse_metrics_address("0.0.0.0:1")->host);
  EXPECT_EQ("::1", parse_metrics_address("[::1]:65535")->host);
  EXPECT_EQ(65535, parse_metrics_address("[::1]:65535")->port);
  for (const char* wrong :
       {"", "0", "65536", "-1", "host", "host:", ":1", "::1:9", "[]:9", "9x"})
    EXPECT_FALSE(parse_metrics_address(wrong).has_value()) << wrong;
}

TEST(MetricsText, LabelsAreAscii) {
  EXPECT_EQ("a b", label_text("a b"));
  EXPECT_EQ("\\\"\\\\", label_text("\"\\"));
  EXPECT_EQ("%0A%C3%BC%7F", label_text("\n\xc3\xbc\x7f"));
}

TEST(MetricsText, NoSeriesComesTwice) {
  StatusReport report;
  for (const char* model : {"\xff", "%FF", "other"}) {
    Use use;
    use.runtime = "vllm";
    use.model = model;
    use.loads = 1;
    report.uses.push_back(use);
  }
  const std::string text = metrics_text(report);
  const std::string sample = "kvcachefs_block_loads_total{runtime=\"vllm\",model=\"%FF\"} 1\n";
  const std::size_t first = text.find(sample);
  ASSERT_NE(std::string::npos, first) << text;
  EXPECT_EQ(std::string::npos, text.find(sample, first + 1));
}

TEST(LatencyBounds, CountAllThatIsBelow) {
  Stats stats;
  stats.record(Operation::kOpen, 0, 1000, false);       // 1 us
  stats.record(Operation::kOpen, 0, 100'000, false);    // 100 us
  stats.record(Operation::kOpen, 0, 1'000'000, false);  // 1 ms
  const auto all = stats.snapshot(0);
  ASSERT_EQ(1u, all.size());
  EXPECT_DOUBLE_EQ(1.101e-3, all[0].seconds);
  EXPECT_DOUBLE_EQ(1.024e-6, latency_bound_s(0));
  EXPECT_EQ(1u, all[0].below[0]);
  EXPECT_EQ(1u, all[0].below[2]);  // 16 us
  EXPECT_EQ(2u, all[0].below[4]);  // 262 us
  EXPECT_EQ(3u, all[0].below[5]);  // 1.05 ms
  EXPECT_EQ(3u, all[0].below[kLatencyBounds - 1]);
}

}  // namespace
}  // namespace kvcachefs
