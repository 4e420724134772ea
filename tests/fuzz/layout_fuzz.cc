// Names come from any user: recognising one never crashes, what it tells is in the name, and a
// temporary is the block that it will be.
//
// The first byte chooses what was told. The rest is the path; after an odd second byte it edits a
// path of the kind that is recognised, in triples of what to do, where, and a byte.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>

#include "fs/layout/layout.h"

namespace {

using namespace kvcachefs;

void require(bool holds) {
  if (!holds) std::abort();
}

constexpr std::string_view kHash =
    "9c41d2a0b3f4e5968778695a4b3c2d1e0f9e8d7c6b5a49382716050403020100";

// "H" is a hash, "U" a UUID.
constexpr std::string_view kSeeds[] = {
    "m_1a2b3c4d5e6f_r0/9c4/1d_g0/H.bin_8236401190553280432.tmp",
    "m_1a2b3c4d5e6f/.o_direct_probe_1.tmp",
    "m_1a2b3c4d5e6f/config.json",
    "o/m/block_size_16_blocks_per_file_1/tp_2_pp_size_3_pcp_size_1/rank_0/half/9c4/1d/"
    "H.bin_3.tmp",
    "m@8@3@-3f2a11c0de@bfloat16@31@a%b.pt",
    "m@8@3@H@half.tmp",
    "m@0x08070403@1f@H@tenant.1.data.tmp.17",
    "27/12/m%401%400%403f2a11c0de%40half%4012.kvcache.safetensors.metadata.tmp0a1b2c3d",
    "obj_12345_00aa.bin",
    "m_01000100_0_H@salt.bin.tmp.U",
    "m_2_1_H_bfloat16_31",
    "H.mamba_m_3_8_2_1_cp1_2_tp4_dcp0_2_page64.bin.tmp.4711.139872340911872.U",
    ".U.tmp",
    "hicache.3.bin",
    "a7/H_m_0_4_mamba_conv_3",
    "a/p/H_0_k",
    "c/d/m@1@0@3f2a11c0de@bfloat16",
    "7226212741120.bucket",
    "aibrix_h0_7_l0_31_c/9c/41/9c41d2a0b3f4e5968778695a4b3c2d1e.tmp",
    "prefix/H.tmp",
    "session/chat/12",
};

std::string seed(std::size_t number) {
  std::string path;
  for (const char c : kSeeds[number % std::size(kSeeds)]) {
    if (c == 'H')
      path += kHash;
    else if (c == 'U')
      path += kHash.substr(0, 32);
    else
      path += c;
  }
  return path;
}

std::string edited_seed(const std::uint8_t* data, std::size_t size) {
  std::string path = seed(data[0]);
  for (std::size_t at = 1; at + 3 <= size; at += 3) {
    const std::size_t place = data[at + 1] % (path.size() + 1);
    const char byte = static_cast<char>(data[at + 2]);
    if (data[at] % 3 == 0)
      path.insert(place, 1, byte);
    else if (data[at] % 3 == 1 && place < path.size())
      path.erase(place, data[at + 2] % 8u + 1);
    else if (place < path.size())
      path[place] = byte;
  }
  return path;
}

void require_inside(std::string_view view, std::string_view path) {
  require(view.empty() || (view.data() >= path.data() &&
                           view.data() + view.size() <= path.data() + path.size()));
}

bool same_block(const Recognized& one, const Recognized& other) {
  return one.runtime == other.runtime && one.kind == other.kind && one.policy == other.policy &&
         one.immutable == other.immutable && one.model == other.model &&
         one.prefix_hash == other.prefix_hash && one.part == other.part &&
         one.world == other.world && one.rank == other.rank && one.group == other.group &&
         one.session == other.session && one.position == other.position;
}

void check(std::string_view path, const Recognized& file, std::optional<Runtime> told) {
  for (const std::string_view view :
       {file.model, file.prefix_hash, file.part, file.session, file.final_stem})
    require_inside(view, path);
  require(file.runtime != Runtime::kNone && (!told || file.runtime == *told));
  std::string_view hash = file.prefix_hash;
  if (hash.starts_with('-')) hash.remove_prefix(1);
  require(hash.size() <= 128 && (hash.empty() == file.prefix_hash.empty()));
  require(hash.find_first_not_of("0123456789abcdef") == std::string_view::npos);
  require(parse_runtime(name_of(file.runtime)) == file.runtime);

  const std::size_t slash = path.rfind('/');
  const std::string_view name = slash == std::string_view::npos ? path : path.substr(slash + 1);
  require(told || may_be_recognized(name));

  require(file.temporary || file.final_stem.empty());
  const std::string final_name = final_path(file);
  if (final_name.empty()) return;
  const auto finished = recognize(final_name, told);
  require(finished && same_block(file, *finished));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 3) return 0;
  // Most of what is known is known untold.
  std::optional<Runtime> told;
  if (data[0] < kRuntimeCount) told = static_cast<Runtime>(data[0]);
  const std::string path = data[1] % 2 == 0
                               ? std::string(reinterpret_cast<const char*>(data) + 2, size - 2)
                               : edited_seed(data + 2, size - 2);
  if (const auto file = recognize(path, told)) check(path, *file, told);
  return 0;
}
