// The index of the order of eviction, and the table of names, against slow models of themselves.
#include "fs/order/order_index.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

#include "fs/order/name_list.h"
#include "tests/fakes/seed.h"

namespace kvcachefs::order {
namespace {

class Model {
 public:
  explicit Model(std::uint64_t seed) : random_(seed) {}

  NameIndex add(Stamp stamp, Birth birth) {
    const NameIndex index = names_.insert(++last_name_);
    names_[index].set_stamp(stamp);
    names_[index].set_birth(birth);
    index_.insert(index);
    sorted_.insert({index_.position(index), index});
    all_.push_back(index);
    return index;
  }
  void change_one() {
    const NameIndex index = one();
    take_out(index);
    names_[index].set_stamp(some_stamp());
    if (random_() % 4 == 0) names_[index].set_birth(random_() % 100);
    index_.insert(index);
    sorted_.insert({index_.position(index), index});
  }
  void remove_one() {
    const std::size_t at = random_() % all_.size();
    take_out(all_[at]);
    names_.erase(all_[at]);
    all_[at] = all_.back();
    all_.pop_back();
  }
  void remove_lowest() {
    std::vector<NameIndex> lowest;
    index_.lowest(1, nullptr, lowest);
    ASSERT_EQ(1u, lowest.size());
    ASSERT_EQ(sorted_.begin()->second, lowest[0]);
    take_out(lowest[0]);
    std::erase(all_, lowest[0]);
    names_.erase(lowest[0]);
  }
  // In pieces, from the lowest to the highest.
  void compare() {
    std::vector<NameIndex> seen;
    std::vector<NameIndex> some;
    Position after;
    do {
      index_.lowest(1 + random_() % 700, seen.empty() ? nullptr : &after, some);
      seen.insert(seen.end(), some.begin(), some.end());
      if (!seen.empty()) after = index_.position(seen.back());
    } while (!some.empty());
    std::vector<NameIndex> expected;
    for (const auto& [position, index] : sorted_) expected.push_back(index);
    ASSERT_EQ(expected, seen);
    ASSERT_EQ(expected.size(), index_.size());
  }
  std::uint64_t some_stamp() {
    // Mostly the highest yet, as in life; often one of few; sometimes any.
    const auto kind = random_() % 10;
    if (kind < 6) return random_() % 8 == 0 ? ++newest_ : newest_;
    return kind < 9 ? random_() % 20 : random_() % (newest_ + 1);
  }
  std::uint64_t random() { return random_(); }
  std::size_t size() const { return all_.size(); }
  std::size_t bytes() const { return index_.memory_bytes(); }

 private:
  NameIndex one() { return all_[random_() % all_.size()]; }
  void take_out(NameIndex index) {
    sorted_.erase({index_.position(index), index});
    index_.remove(index);
  }

  std::mt19937_64 random_;
  NameTable names_;
  OrderIndex index_{names_};
  std::set<std::pair<Position, NameIndex>> sorted_;
  std::vector<NameIndex> all_;
  std::uint64_t last_name_ = 0;
  std::uint64_t newest_ = 1000;
};

TEST(OrderIndex, AgreesWithASortAfterRandomChanges) {
  Model model(testing::test_seed());
  for (int round = 0; round < 40; ++round) {
    const std::uint64_t mood = model.random() % 4;
    for (int i = 0; i < 1500; ++i) {
      const std::uint64_t kind = model.random() % 10;
      if (model.size() < 10 || (mood == 0 && kind < 7) || kind < 2) {
        model.add(model.some_stamp(), model.random() % 100);
      } else if (mood == 1 && kind < 8) {
        model.remove_one();
      } else if (mood == 2 && kind < 5) {
        ASSERT_NO_FATAL_FAILURE(model.remove_lowest());
      } else {
        model.change_one();
      }
    }
    ASSERT_NO_FATAL_FAILURE(model.compare());
  }
}

TEST(OrderIndex, OneStampForAllIsNoSpecialCase) {
  Model model(testing::test_seed());
  for (std::uint64_t i = 0; i < 5000; ++i) model.add(7, i);
  model.compare();
  for (int i = 0; i < 3000; ++i) ASSERT_NO_FATAL_FAILURE(model.remove_lowest());
  model.compare();
}

TEST(OrderIndex, StaysSmallWhenNamesMoveOn) {
  Model model(testing::test_seed());
  for (std::uint64_t i = 0; i < 20'000; ++i) model.add(model.some_stamp(), i);
  for (int i = 0; i < 100'000; ++i) model.change_one();
  EXPECT_LT(model.bytes(), 60'000u);
}

TEST(NameTable, AgreesWithAMapAfterRandomChanges) {
  std::mt19937_64 random(testing::test_seed());
  NameTable names;
  std::map<std::uint64_t, NameIndex> model;
  for (int i = 0; i < 300'000; ++i) {
    const std::uint64_t name = random() % 40'000;
    const auto found = model.find(name);
    ASSERT_EQ(found == model.end() ? kNoName : found->second, names.find(name));
    if (found == model.end()) {
      const NameIndex index = names.insert(name);
      ASSERT_NE(kNoName, index);
      EXPECT_EQ(name, names[index].name);
      model.emplace(name, index);
    } else if (random() % 3 != 0) {
      names.erase(found->second);
      model.erase(found);
    }
    ASSERT_EQ(model.size(), names.size());
  }
}

TEST(NameTable, ReusesTheMemoryOfErasedNames) {
  NameTable names;
  for (std::uint64_t i = 0; i < 10'000; ++i) names.insert(i);
  const std::size_t bytes = names.memory_bytes();
  for (std::uint64_t i = 0; i < 500'000; ++i) {
    names.erase(names.find(i));
    names.insert(i + 10'000);
  }
  // A segment may have had its share exceeded by chance.
  EXPECT_LT(names.memory_bytes(), bytes * 11 / 10);
}

TEST(NameList, KeepsTheOrderInWhichNamesWereAdded) {
  NameTable names;
  NameList list(names);
  NameIndex indices[4];
  for (std::uint64_t i = 0; i < 4; ++i) list.push_back(indices[i] = names.insert(i));
  list.remove(indices[0]);
  list.remove(indices[2]);
  EXPECT_EQ(indices[1], list.front());
  list.remove(indices[1]);
  EXPECT_EQ(indices[3], list.front());
  list.remove(indices[3]);
  EXPECT_EQ(kNoName, list.front());
  EXPECT_EQ(0u, list.size());
}

}  // namespace
}  // namespace kvcachefs::order
