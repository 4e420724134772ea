// How what nobody waits for yet is read.
#include "backend/pool/patient_reads.h"

#include <gtest/gtest.h>

namespace kvcachefs {
namespace {

using namespace std::chrono_literals;
constexpr std::size_t kMost = 8;
constexpr std::size_t kPiece = PatientReads::kPiece;
constexpr std::size_t kSmall = PatientReads::kSmallPiece;

TEST(PatientReads, FewAreUnderWayWhereMoreWouldWait) {
  PatientReads reads;
  EXPECT_EQ(kPiece, reads.piece());
  const auto now = PatientReads::Clock::now();
  // A way that carries a piece in 800 us, beside 100 us: each waits for those before it.
  std::size_t depth = PatientReads::kFew;
  depth = reads.after(depth, kMost, kPiece, 900us, now);
  for (int i = 0; i < 20; ++i)
    depth = reads.after(depth, kMost, kPiece, 100us + 800us * depth, now);
  EXPECT_EQ(PatientReads::kFew, depth);
  EXPECT_EQ(kSmall, reads.piece());
}

TEST(PatientReads, ALongWayHasMore) {
  PatientReads reads;
  const auto now = PatientReads::Clock::now();
  std::size_t depth = PatientReads::kFew;
  for (int i = 0; i < 20; ++i) depth = reads.after(depth, kMost, kSmall, 1ms, now);
  EXPECT_EQ(kMost, depth);
}

TEST(PatientReads, WhatWasQuickIsForgotten) {
  PatientReads reads;
  auto now = PatientReads::Clock::now();
  static_cast<void>(reads.after(2, kMost, kPiece, 300us, now));
  EXPECT_EQ(kPiece, reads.piece());
  // Another way leads there now. Half a piece counts for a whole one that takes twice as long.
  for (int minute = 0; minute < 2; ++minute)
    static_cast<void>(reads.after(2, kMost, kSmall, 350us, now += 60s));
  EXPECT_EQ(kSmall, reads.piece());
  // What is left over at a file's end says nothing.
  EXPECT_EQ(PatientReads::kFew, reads.after(2, kMost, 1, 5s, now));
}

}  // namespace
}  // namespace kvcachefs
