// Words that runtimes put between underscores, where a list is needed to know them from a model's
// name. A word stands before each word it ends or begins with.
#pragma once

#include <string_view>

namespace kvcachefs::layout {

// LMCache/LMCache lmcache/utils.py:TORCH_DTYPE_TO_STR_DTYPE @0353be8.
inline constexpr std::string_view kTypeNames[] = {
    "bfloat16", "half",  "float", "double",       "uint8",      "int8",         "int16",
    "int32",    "int64", "bool",  "fp8_e4m3fnuz", "fp8_e4m3fn", "fp8_e5m2fnuz", "fp8_e5m2"};

// sglang 0.5.23 python/sglang/srt/mem_cache/hicache_storage.py:PoolName.
inline constexpr std::string_view kPoolNames[] = {"deepseek_v4_c128_rope",
                                                  "deepseek_v4_c128_state",
                                                  "deepseek_v4_c128",
                                                  "deepseek_v4_c1_indexer_scale",
                                                  "deepseek_v4_c1_indexer",
                                                  "deepseek_v4_c1",
                                                  "deepseek_v4_c2_indexer_scale",
                                                  "deepseek_v4_c2_indexer",
                                                  "deepseek_v4_c2",
                                                  "deepseek_v4_c4_indexer_scale",
                                                  "deepseek_v4_c4_indexer_state",
                                                  "deepseek_v4_c4_indexer",
                                                  "deepseek_v4_c4_rope",
                                                  "deepseek_v4_c4_state",
                                                  "deepseek_v4_c4",
                                                  "auxiliary_swa",
                                                  "draft_indexer",
                                                  "draft_swa",
                                                  "draft",
                                                  "indexer",
                                                  "mamba",
                                                  "swa",
                                                  "kv"};

// …/storage/nixl/hicache_nixl.py:_get_hybrid_component_keys; besides them, conv_<n>.
inline constexpr std::string_view kHalfNames[] = {"temporal", "k", "v"};

}  // namespace kvcachefs::layout
