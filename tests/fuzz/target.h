// The fuzz targets: each reads bytes that come from outside, and ends the process when what it
// promises does not hold.
//
// A target is compiled twice. The fuzz preset makes a program of it, NAME_fuzz (libfuzzer.cc).
// Every other preset replays the inputs of tests/fuzz/corpus/NAME_fuzz in unit_tests
// (tests/unit/fuzz/corpus_test.cc).
//
// The first byte of an input chooses a reader where a target has several. Formats that end in a
// checksum can be given without it: the target adds the right one, because no fuzzer guesses
// it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace kvcachefs::fuzz {

// Ends the process unless `holds`; says where, and of which input (replaying()).
void require(bool holds, const char* file = __builtin_FILE(),
             int line = __builtin_LINE()) noexcept;
// Names the input for require().
void replaying(std::string_view input);

// Returns true when the input was accepted: it decoded, parsed or was recognised.
using Run = bool (*)(std::string_view input);
bool acl(std::string_view input);
bool answers(std::string_view input);
bool catalog(std::string_view input);
bool config(std::string_view input);
bool control_request(std::string_view input);
bool layout(std::string_view input);
bool metrics(std::string_view input);
bool nfs_reply(std::string_view input);
bool pool(std::string_view input);
bool record(std::string_view input);
bool text(std::string_view input);
bool units(std::string_view input);

struct Target {
  std::string_view name;
  Run run;
};
[[nodiscard]] std::span<const Target> targets() noexcept;

// Inputs as the product, a user, a tool or a server writes them; the corpora have grown from
// these. Each is accepted.
struct Seed {
  std::string_view target;
  std::string input;
};
[[nodiscard]] std::vector<Seed> seeds();

// ---- for the targets and the seeds

// The first byte, which chooses among `readers`, or a flag and one of `readers`. An empty input
// chooses 0.
struct Choice {
  unsigned reader;
  bool flag;
  std::string_view rest;
};
[[nodiscard]] Choice choose(std::string_view input, unsigned readers) noexcept;
// The input that chooses so.
[[nodiscard]] std::string chosen(unsigned reader, bool flag, std::string_view rest);

// The text and the line "crc32c XXXXXXXX" of it.
[[nodiscard]] std::string with_crc_line(std::string_view text);
// The bytes and their CRC32C, 4 bytes, little-endian.
[[nodiscard]] std::string with_crc(std::string_view bytes);

}  // namespace kvcachefs::fuzz
