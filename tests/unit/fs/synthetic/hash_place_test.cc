#include "fs/synthetic/hash_place.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "tests/fakes/seed.h"

namespace kvcachefs {
namespace {

std::vector<HashPlace> places_of(const std::vector<std::string>& hashes) {
  std::vector<HashPlace> places;
  HashPlace place;
  for (const std::string& hash : hashes) {
    place.advance(hash);
    places.push_back(place);
  }
  return places;
}

TEST(HashPlace, ACookieLeadsBackToIt) {
  const std::vector<std::string> hashes = {"-",
                                           "-1",
                                           "0",
                                           "00",
                                           "01",
                                           "0123456789a",
                                           "0123456789ab",
                                           "0123456789ab0",
                                           "0123456789ab00",
                                           "a",
                                           "f",
                                           std::string(HashPlace::kBeginning, 'f'),
                                           std::string(kLongestHash, 'f')};
  std::uint64_t last = 0;
  for (const HashPlace& place : places_of(hashes)) {
    EXPECT_GT(place.cookie(), last);
    EXPECT_LT(place.cookie(), std::uint64_t{1} << 63);
    last = place.cookie();
    const HashPlace again = HashPlace::of_cookie(last);
    EXPECT_EQ(place.beginning, again.beginning);
    EXPECT_EQ(place.number, again.number);
  }
}

TEST(HashPlace, ThoseThatBeginAlikeAreCounted) {
  const std::vector<HashPlace> places =
      places_of({"0123456789ab", "0123456789ab0", "0123456789ab1", "0123456789ac"});
  EXPECT_EQ(1u, places[0].number);
  EXPECT_EQ(2u, places[1].number);
  EXPECT_EQ(3u, places[2].number);
  EXPECT_EQ(1u, places[3].number);
}

TEST(HashPlace, TheOrderOfCookiesIsTheOrderOfHashes) {
  std::mt19937_64 random{testing::test_seed()};
  std::vector<std::string> hashes(2000);
  for (std::string& hash : hashes) {
    hash.resize(1 + random() % 20);
    for (char& c : hash)
      c = kHashCharacters[random() % (random() % 2 == 0 ? 2 : kHashCharacters.size())];
  }
  std::sort(hashes.begin(), hashes.end());
  hashes.erase(std::unique(hashes.begin(), hashes.end()), hashes.end());
  std::uint64_t last = 0;
  for (const HashPlace& place : places_of(hashes)) {
    ASSERT_GT(place.cookie(), last);
    last = place.cookie();
  }
}

TEST(HashPlace, AnyNumberIsAPlace) {
  std::mt19937_64 random{testing::test_seed()};
  for (int i = 0; i < 10'000; ++i) {
    const HashPlace place = HashPlace::of_cookie(random() >> (random() % 64));
    ASSERT_LE(place.beginning.size(), HashPlace::kBeginning);
    ASSERT_LE(place.number, HashPlace::kMostAlike);
    ASSERT_TRUE(place.beginning.empty() || is_hash(place.beginning));
  }
}

}  // namespace
}  // namespace kvcachefs
