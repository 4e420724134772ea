// The inputs that the fuzzers have found, and those that the product itself writes, on every
// build.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "tests/fakes/tests_dir.h"
#include "tests/fuzz/target.h"

namespace kvcachefs {
namespace {

namespace fs = std::filesystem;

// In the order of their names: a failure comes again.
std::vector<fs::path> corpus_of(const fuzz::Target& target) {
  const fs::path folder =
      fs::path(testing::tests_dir()) / "fuzz/corpus" / (std::string(target.name) + "_fuzz");
  std::vector<fs::path> files;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) files.push_back(entry.path());
  EXPECT_FALSE(error) << folder << ": " << error.message();
  std::sort(files.begin(), files.end());
  return files;
}

class FuzzCorpus : public ::testing::TestWithParam<fuzz::Target> {
 protected:
  ~FuzzCorpus() override { fuzz::replaying(""); }
};

// Copied to the heap, so that AddressSanitizer sees a read behind its end.
std::vector<char> bytes_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file.is_open()) << path;
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

std::vector<std::string> seeds_of(const fuzz::Target& target) {
  std::vector<std::string> inputs;
  for (fuzz::Seed& seed : fuzz::seeds())
    if (seed.target == target.name) inputs.push_back(std::move(seed.input));
  return inputs;
}

// An input that breaks what the target requires ends the process, which names the input.
TEST_P(FuzzCorpus, IsReplayed) {
  std::size_t accepted = 0;
  for (const fs::path& path : corpus_of(GetParam())) {
    const std::vector<char> bytes = bytes_of(path);
    fuzz::replaying(path.string());
    if (GetParam().run(std::string_view(bytes.data(), bytes.size()))) ++accepted;
  }
  // It has grown from the seeds: where fewer are accepted, a format has changed, and the corpus
  // is noise.
  EXPECT_GE(accepted, seeds_of(GetParam()).size()) << "grow it anew: tests/fuzz/README.md";
}

TEST_P(FuzzCorpus, HasSeedsThatAreAccepted) {
  const std::vector<std::string> seeds = seeds_of(GetParam());
  EXPECT_FALSE(seeds.empty());
  for (std::size_t i = 0; i < seeds.size(); ++i) {
    fuzz::replaying("seed " + std::to_string(i));
    EXPECT_TRUE(GetParam().run(seeds[i])) << "seed " << i << ": " << seeds[i];
  }
}

INSTANTIATE_TEST_SUITE_P(Target, FuzzCorpus,
                         ::testing::ValuesIn(fuzz::targets().begin(), fuzz::targets().end()),
                         [](const auto& target) { return std::string(target.param.name); });

}  // namespace
}  // namespace kvcachefs
