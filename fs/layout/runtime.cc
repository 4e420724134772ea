#include <array>

#include "fs/layout/layout.h"

namespace kvcachefs {
namespace {

// In the order of the enumerators.
constexpr std::array<std::string_view, kRuntimeCount> kNames = {
    "none",          "vllm",
    "llmd",          "lmcache_disk",
    "lmcache_fs",    "lmcache_mp",
    "lmcache_gds",   "lmcache_nixl",
    "sglang_file",   "sglang_nixl",
    "mooncake_file", "mooncake_bucket",
    "vllm_example",  "tensorrt_example",
    "aibrix",        "llama_cpp",
    "native"};
static_assert(kNames[static_cast<std::size_t>(Runtime::kNative)] == "native");
constexpr std::array<std::string_view, 4> kPolicyNames = {"cache", "process", "keep", "pin"};
static_assert(kPolicyNames[static_cast<std::size_t>(FilePolicy::kPin)] == "pin");

}  // namespace

std::string_view name_of(Runtime runtime) noexcept {
  return kNames[static_cast<std::size_t>(runtime)];
}

std::string_view name_of(FilePolicy policy) noexcept {
  return kPolicyNames[static_cast<std::size_t>(policy)];
}

std::optional<FilePolicy> parse_policy(std::string_view name) noexcept {
  for (std::size_t at = 0; at < kPolicyNames.size(); ++at)
    if (kPolicyNames[at] == name) return static_cast<FilePolicy>(at);
  return std::nullopt;
}

std::optional<Runtime> parse_runtime(std::string_view name) noexcept {
  for (std::size_t at = 0; at < kNames.size(); ++at)
    if (kNames[at] == name) return static_cast<Runtime>(at);
  return std::nullopt;
}

}  // namespace kvcachefs
