// write_seeds DIR: writes each target's seeds to DIR/NAME_fuzz/. README.md says how the corpora
// grow from them.
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <string_view>

#include "tests/fuzz/target.h"

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: write_seeds DIR\n");
    return 2;
  }
  std::map<std::string_view, int> written;
  for (const auto& [target, input] : kvcachefs::fuzz::seeds()) {
    const std::filesystem::path folder =
        std::filesystem::path(argv[1]) / (std::string(target) + "_fuzz");
    std::filesystem::create_directories(folder);
    std::ofstream file(folder / ("seed-" + std::to_string(written[target]++)),
                       std::ios::binary);
    file.write(input.data(), static_cast<std::streamsize>(input.size()));
    if (!file.flush()) {
      std::fprintf(stderr, "write_seeds: %s cannot be written\n", folder.c_str());
      return 1;
    }
  }
  return 0;
}
