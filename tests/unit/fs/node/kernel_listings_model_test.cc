// KernelListings against a model of the kernel's listings: readers, changes and messages in any
// order, a step at a time. Each listing has all that was there before it began and after it
// ended, and nothing that had gone before it began.
//
// The model follows fs/fuse/readdir.c of the kernel, function by function; what the two do not
// see of each other is what the model is for.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "fs/node/kernel_listings.h"
#include "tests/fakes/seed.h"

namespace kvcachefs {
namespace {

constexpr InodeNumber kDirectory = 7;
constexpr std::size_t kPage = 3;    // names of a page of the kernel
constexpr std::size_t kAnswer = 4;  // names of an answer
constexpr std::size_t kReaders = 4;
constexpr int kSteps = 300;

using Cookie = std::uint64_t;

// The kernel's memory of the directory (struct fuse_inode, rdc).
struct Remembered {
  std::vector<Cookie> names;
  std::vector<bool> has_page;
  bool is_complete = false;
  std::uint64_t version = 0;
  std::uint64_t directory_version = 0;

  [[nodiscard]] Cookie end() const { return names.empty() ? 0 : names.back(); }
  void reset() {
    names.clear();
    has_page.clear();
    is_complete = false;
    ++version;
  }
  void add(Cookie name, Cookie position) {
    if (is_complete || position != end()) return;
    const std::size_t page = names.size() / kPage;
    if (names.size() % kPage == 0) {
      has_page.resize(page + 1);
      has_page[page] = true;
    } else if (!has_page[page]) {
      return;
    }
    names.push_back(name);
  }
};

struct Name {
  int made = 0;   // the step at which its making was over; 0: it is not
  int going = 0;  // at which its removal began
  int gone = 0;   // at which that was over
  bool by_daemon = false;
};

struct Change {
  Cookie name = 0;
  bool removes = false;
  int stage = 0;
  std::unique_ptr<KernelListings::Change> of_daemon;
};

enum class At {
  kClosed,
  kOpening,
  kOpen,
  kAsked,
  kWaits,
  kLists,
  kEndWaits,
  kAnswered,
  kClosing
};

struct Reader {
  At at = At::kClosed;
  ListingReader daemon;
  bool is_granted = false;
  // The kernel's (struct fuse_file, readdir; dir_context).
  Cookie position = 0;
  Cookie stream_position = 0;
  std::size_t stream_offset = 0;
  std::uint64_t stream_version = 0;
  std::vector<Cookie> answer;
  bool is_empty_answer = false;
  // The listing.
  std::vector<Cookie> seen;
  int opened = 0;
  int began = 0;
  bool has_asked = false;
};

class World : public KernelNotifications {
 public:
  explicit World(unsigned seed)
      : random_(seed), changes_one_in_(2 + random_() % 30), listings_(this) {
    for (Cookie name = 1; name <= 5; ++name) names_[name].made = ++now_, present_.insert(name);
  }

  void invalidate_entry(InodeNumber, std::string) override {}
  void invalidate_attributes(InodeNumber) override {}
  void invalidate_attributes_at_once(InodeNumber) override {}
  void invalidate_data(InodeNumber) override {}
  void drop_listing(InodeNumber, std::uint64_t ticket) override { messages_.push_back(ticket); }

  void run() {
    for (int step = 0; step < kSteps && wrong_.empty(); ++step) {
      ++now_;
      // One is slow now and then: others go on in between.
      if (chance(20)) slow_ = random_() % (kReaders + 3);
      const std::size_t who = random_() % (kReaders + 2);
      if (who == slow_) continue;
      if (who < kReaders) {
        step_of(readers_[who]);
      } else if (who == kReaders) {
        step_of_changes();
      } else {
        step_of_messages();
      }
    }
    is_calm_ = true;
    for (int turn = 0; turn < 2 * kSteps; ++turn) {
      ++now_;
      step_of_changes();
      step_of_messages();
      for (Reader& reader : readers_)
        if (reader.at != At::kClosed) step_of(reader);
    }
  }

  // A reader that is alone. True: the daemon has not been asked.
  bool list_alone() {
    Reader& reader = readers_.front();
    const int unseen = unseen_;
    do {
      ++now_;
      step_of_messages();
      step_of(reader);
    } while (reader.at != At::kClosed);
    return unseen_ != unseen;
  }

  [[nodiscard]] const std::string& wrong() const { return wrong_; }
  [[nodiscard]] int listed() const { return listed_; }
  [[nodiscard]] int unseen() const { return unseen_; }

 private:
  bool chance(std::uint_fast32_t one_in) { return random_() % one_in == 0; }

  // ---- names ----

  void step_of_changes() {
    if (!is_calm_ && changes_.size() < 2 && chance(changes_one_in_)) begin_change();
    if (changes_.empty()) return;
    const std::size_t which = random_() % changes_.size();
    Change& change = changes_[which];
    Name& name = names_[change.name];
    switch (change.stage++) {
      case 0:  // the commit
        if (change.removes) {
          present_.erase(change.name);
        } else {
          present_.insert(change.name);
        }
        return;
      case 1:
        ++counted_;
        change.of_daemon.reset();
        if (name.by_daemon && change.removes) name.gone = now_;
        return;
      default:  // the kernel has the answer
        if (!(name.by_daemon && change.removes)) {
          ++directory_version_;
          (change.removes ? name.gone : name.made) = now_;
        }
        changes_.erase(changes_.begin() + static_cast<std::ptrdiff_t>(which));
    }
  }

  void begin_change() {
    Change change;
    std::vector<Cookie> removable;
    for (const auto& [cookie, name] : names_)
      if (name.made != 0 && name.going == 0) removable.push_back(cookie);
    change.removes = removable.size() > 3 && chance(2);
    if (change.removes) {
      change.name = removable[random_() % removable.size()];
      Name& name = names_[change.name];
      name.going = now_;
      name.by_daemon = chance(4);
      if (name.by_daemon)
        change.of_daemon = std::make_unique<KernelListings::Change>(listings_, kDirectory);
    } else {
      change.name = names_.rbegin()->first + 1;
      names_[change.name] = {};
    }
    changes_.push_back(std::move(change));
  }

  // ---- messages ----

  void step_of_messages() {
    if (dropped_ != 0) {
      listings_.dropped(kDirectory, dropped_);
      dropped_ = 0;
    } else if (!messages_.empty()) {
      dropped_ = messages_.front();
      messages_.pop_front();
      if (!kernel_.has_page.empty()) kernel_.has_page[0] = false;
    }
  }

  // ---- readers ----

  void step_of(Reader& reader) {
    switch (reader.at) {
      case At::kClosed:
        reader = {};
        reader.opened = now_;
        reader.at = At::kOpening;
        return;
      case At::kOpening:
        reader.is_granted =
            listings_.opened(reader.daemon, kDirectory, counted_, now_).remembers;
        reader.at = At::kOpen;
        return;
      case At::kOpen:
        return getdents(reader);
      case At::kAsked:
        reader.has_asked = true;
        reader.at = listings_.reads(reader.daemon, reader.position, counted_, now_)
                        ? At::kLists
                        : At::kWaits;
        return;
      case At::kWaits:
        if (listings_.may_begin(reader.daemon, now_)) reader.at = At::kLists;
        return;
      case At::kLists:
        return list(reader);
      case At::kEndWaits:
        return end_at(reader, listings_.end_now(reader.daemon, now_));
      case At::kAnswered:
        return take_answer(reader);
      case At::kClosing:
        listings_.closed(reader.daemon);
        reader.at = At::kClosed;
        return;
    }
  }

  void list(Reader& reader) {
    reader.answer.clear();
    for (auto name = present_.upper_bound(reader.position);
         name != present_.end() && reader.answer.size() < kAnswer; ++name)
      reader.answer.push_back(*name);
    reader.at = At::kAnswered;
    if (reader.answer.empty()) end_at(reader, listings_.ended(reader.daemon, counted_, now_));
  }

  static void end_at(Reader& reader, ListingEnd end) {
    reader.is_empty_answer = end == ListingEnd::kEmpty;
    reader.at = end == ListingEnd::kWaits ? At::kEndWaits : At::kAnswered;
  }

  // fuse_readdir_uncached(), after the answer.
  void take_answer(Reader& reader) {
    reader.at = At::kOpen;
    if (reader.answer.empty()) {
      if (reader.is_granted && reader.is_empty_answer && kernel_.end() == reader.position)
        kernel_.is_complete = true;
      return end_listing(reader);
    }
    for (const Cookie name : reader.answer) {
      if (reader.is_granted) kernel_.add(name, reader.position);
      reader.seen.push_back(name);
      reader.position = name;
    }
    if (!is_calm_ && chance(20)) give_up(reader);
  }

  void getdents(Reader& reader) {
    if (reader.position == 0) {
      reader.seen.clear();
      reader.began = now_;
      reader.has_asked = false;
    }
    if (!reader.is_granted || !read_remembered(reader)) {
      reader.at = At::kAsked;
    } else if (!is_calm_ && chance(20)) {
      give_up(reader);
    }
  }

  // fuse_readdir_cached(); false: the daemon is asked.
  bool read_remembered(Reader& reader) {
    if (reader.stream_position != reader.position)
      reader.stream_position = reader.stream_offset = 0;
    bool has_found = false;
    while (true) {
      if (kernel_.is_complete && reader.position == 0 &&
          kernel_.directory_version != directory_version_)
        kernel_.reset();
      if (!kernel_.is_complete) {
        if (reader.position == 0 && kernel_.names.empty())
          kernel_.directory_version = directory_version_;
        return false;
      }
      if (reader.stream_version != kernel_.version)
        reader.stream_position = reader.stream_offset = 0;
      if (reader.stream_position == 0) reader.stream_version = kernel_.version;
      if (reader.stream_offset >= kernel_.names.size()) {
        if (reader.position != kernel_.end()) return false;
        end_listing(reader);
        return true;
      }
      if (!kernel_.has_page[reader.stream_offset / kPage]) {
        kernel_.reset();
        continue;
      }
      const std::size_t end =
          std::min(kernel_.names.size(), (reader.stream_offset / kPage + 1) * kPage);
      for (; reader.stream_offset < end; ++reader.stream_offset) {
        const Cookie name = kernel_.names[reader.stream_offset];
        if (reader.stream_position == reader.position) {
          reader.seen.push_back(name);
          reader.position = name;
          has_found = true;
        }
        reader.stream_position = name;
      }
      if (has_found && chance(2)) return true;  // The caller's buffer is full.
    }
  }

  void end_listing(Reader& reader) {
    ++listed_;
    if (!reader.has_asked) ++unseen_;
    check(reader);
    if (!is_calm_ && chance(4)) {
      reader.position = 0;
    } else {
      reader.at = At::kClosing;
    }
  }
  void give_up(Reader& reader) {
    if (!is_calm_ && chance(2)) {
      reader.position = 0;
    } else {
      reader.at = At::kClosing;
    }
  }

  void check(const Reader& reader) {
    const std::set<Cookie> seen(reader.seen.begin(), reader.seen.end());
    if (seen.size() != reader.seen.size()) wrong_ = "a name came twice";
    for (const auto& [cookie, name] : names_) {
      const bool must = name.made != 0 && name.made < reader.began && name.going == 0;
      // Of what the daemon removes those hear who open the directory after it.
      const int since = name.by_daemon ? reader.opened : reader.began;
      const bool must_not = name.gone != 0 && name.gone < since;
      if (must && seen.count(cookie) == 0) wrong_ = "missing " + std::to_string(cookie);
      if (must_not && seen.count(cookie) != 0) wrong_ = "gone " + std::to_string(cookie);
    }
  }

  std::mt19937 random_;
  const std::uint_fast32_t changes_one_in_;
  int now_ = 0;
  std::size_t slow_ = kReaders + 2;  // nobody
  bool is_calm_ = false;             // no new changes, and readers read to the end and close
  std::string wrong_;
  int listed_ = 0;
  int unseen_ = 0;
  // The daemon's.
  KernelListings listings_;
  std::set<Cookie> present_;
  std::uint64_t counted_ = 0;
  // The kernel's.
  Remembered kernel_;
  std::uint64_t directory_version_ = 0;
  // On their way.
  std::deque<std::uint64_t> messages_;
  std::uint64_t dropped_ = 0;
  std::vector<Change> changes_;
  std::map<Cookie, Name> names_;
  std::vector<Reader> readers_ = std::vector<Reader>(kReaders);
};

TEST(KernelListingsModel, EachListingHasWhatWasThere) {
  const auto seed = static_cast<unsigned>(testing::test_seed());
  int listed = 0;
  int unseen = 0;
  int stuck = 0;
  for (unsigned run = 0; run < 20'000; ++run) {
    World world(seed + run);
    world.run();
    for (int again = 0; again < 3; ++again) world.list_alone();
    if (!world.list_alone()) ++stuck;
    ASSERT_EQ("", world.wrong()) << "KVCACHEFS_SEED=" << seed + run;
    listed += world.listed();
    unseen += world.unseen();
  }
  // The kernel never completes a listing that has lost its last page, or whose last name went
  // before the next one was added. Pages of three names make that frequent.
  EXPECT_LT(stuck, 20'000 / 10);
  EXPECT_GT(unseen, listed / 20) << "of " << listed << ": the kernel remembers nothing";
}

}  // namespace
}  // namespace kvcachefs
