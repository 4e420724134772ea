#include "backend/base/log_writer.h"

#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace kvcachefs {
namespace {

// Takes lines, or holds up who writes one.
struct Place {
  std::mutex mutex;
  std::condition_variable changed;
  bool is_held = false;
  std::vector<std::string> lines;

  void write(std::string_view line) {
    std::unique_lock lock(mutex);
    changed.wait(lock, [this] { return !is_held; });
    lines.emplace_back(line);
    changed.notify_all();
  }
  void set_held(bool held) {
    const std::lock_guard lock(mutex);
    is_held = held;
    changed.notify_all();
  }
  std::vector<std::string> all() {
    const std::lock_guard lock(mutex);
    return lines;
  }
  // So many at least, as soon as they have come.
  std::vector<std::string> all(std::size_t count) {
    std::unique_lock lock(mutex);
    changed.wait_for(lock, std::chrono::seconds{60}, [&] { return lines.size() >= count; });
    return lines;
  }
};

std::unique_ptr<LogWriter> make_writer(const std::shared_ptr<Place>& place) {
  return std::make_unique<LogWriter>(
      [place](std::string_view line) { place->write(line); },
      [](std::uint64_t lines) { return "lost " + std::to_string(lines); });
}

TEST(LogWriter, ALineIsThereWhenItWasPut) {
  const auto place = std::make_shared<Place>();
  const auto writer = make_writer(place);
  for (int i = 0; i < 100; ++i) {
    writer->put(std::to_string(i));
    writer->flush();
    ASSERT_EQ(std::to_string(i), place->all().back());
  }
}

TEST(LogWriter, WhatTakesNoLinesHoldsNobodyUp) {
  const auto place = std::make_shared<Place>();
  const auto writer = make_writer(place);
  place->set_held(true);
  const auto began = std::chrono::steady_clock::now();
  // One is being written, and as many as may wait do; a hundred are lost.
  const std::size_t count = LogWriter::kMost + 101;
  for (std::size_t i = 0; i < count; ++i) writer->put(std::to_string(i));
  // Each but the first would have waited.
  EXPECT_LT(std::chrono::steady_clock::now() - began, count * LogWriter::kPatience / 10);
  EXPECT_TRUE(place->all().empty());
  place->set_held(false);
  writer->put("after");
  const std::vector<std::string> lines = place->all(LogWriter::kMost + 2);
  ASSERT_LE(LogWriter::kMost + 2, lines.size());
  for (std::size_t i = 0; i <= LogWriter::kMost; ++i) ASSERT_EQ(std::to_string(i), lines[i]);
  EXPECT_TRUE(lines[LogWriter::kMost + 1].starts_with("lost 10"))
      << lines[LogWriter::kMost + 1];
}

TEST(LogWriter, ItEndsAlthoughALineIsNotTaken) {
  const auto place = std::make_shared<Place>();
  auto writer = make_writer(place);
  place->set_held(true);
  writer->put("first");
  writer->put("second");
  writer.reset();
  EXPECT_TRUE(place->all().empty());
  place->set_held(false);
  EXPECT_EQ((std::vector<std::string>{"first", "second"}), place->all(2));
}

}  // namespace
}  // namespace kvcachefs
