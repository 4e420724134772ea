// The names that are known: one row a kind of name, the first row that matches counts. To teach the
// filesystem another runtime, add a Runtime in layout.h and its rows here, and examples to the tests.
//
// Read before adding a row: a name that is recognised by mistake may be evicted although an
// application cannot do without it. A row that is not kToldOnly needs something that nothing else has
// by chance: a hash twice in the path, a word that only this runtime writes, several fields around a hash.
#pragma once

#include <cstdint>
#include <string_view>

#include "fs/layout/layout.h"
#include "fs/layout/pattern.h"

namespace kvcachefs::layout {

// How a runtime names the temporary of a file. Bits of Row::temporaries.
enum TemporaryForm : unsigned {
  kNoTemporary = 0,
  kAppended = 1 << 0,
  kReplaced = 1 << 1,
  kRandom = 1 << 2,
  kCounter = 1 << 3,
  kUuid = 1 << 4,
  kThread = 1 << 5,
  kShort = 1 << 6,
  kDotted = 1 << 7,
};

struct FormRow {
  TemporaryForm form;
  std::string_view pattern;     // {any} is what the final name begins with, …
  std::string_view completion;  // … and this is the rest of it
};

inline constexpr FormRow kForms[] = {
    {kRandom, "{any}_{digits:1-20}.tmp", ""},
    {kDotted, "{any}.{digits:1-20}.tmp", ""},
    {kAppended, "{any}.tmp", ""},
    // Python's Path.with_suffix, C++'s path::replace_extension: "x.data" is written as "x.tmp".
    {kReplaced, "{any}.tmp", ".data"},
    {kCounter, "{any}.tmp.{digits:1-20}", ""},
    {kUuid, "{any}.tmp.{hex:32}", ""},
    {kThread, "{any}.tmp.{digits:1-10}.{digits:1-20}.{hex:32}", ""},
    {kShort, "{any}.tmp{hex:8}", ""},
};

// Bits of Row::flags.
enum RowFlag : unsigned {
  kPlain = 0,
  kImmutable = 1 << 0,
  kTemporary = 1 << 1,  // a temporary whose name does not tell what it becomes
  kToldOnly = 1 << 2,   // too generic to be recognised where nobody said so
};

struct Row {
  Runtime runtime;
  NameKind kind;
  std::string_view pattern;
  unsigned temporaries;
  FilePolicy policy;
  unsigned flags;
  std::string_view source;  // owner/repository path:function @commit
};

// Files that are published by rename, named by a hash of their contents' meaning, are kCache and
// kImmutable. Written in place under their final name, they are kCache alone. A runtime that keeps an
// index of its own files in memory loses its head when one goes: kProcess when a restart forgets the
// index, kKeep when it reads the directory again.
inline constexpr Row kRows[] = {
    // This filesystem's own names. Whoever stores there chooses how to name temporaries.
    {Runtime::kNative, NameKind::kBlock, "/prefix/{hashhex:16-128}",
     kAppended | kRandom | kCounter | kUuid | kThread | kShort | kDotted, FilePolicy::kCache,
     kImmutable, "kvcachefs itself"},
    {Runtime::kNative, NameKind::kSession, "/session/{session}/{position}", kNoTemporary,
     FilePolicy::kCache, kImmutable, "kvcachefs itself"},

    {Runtime::kVllm, NameKind::kBlock,
     "{model}_{config:12}_r{rank}/{hash[0:3]}/{hash[3:5]}_g{group}/{hash:16-128}.bin", kRandom,
     FilePolicy::kCache, kImmutable,
     "vllm-project/vllm vllm/v1/kv_offload/file_mapper.py:get_file_name, "
     "tiering/fs/io.py:_get_tmp_suffix @017e9f4"},
    {Runtime::kVllm, NameKind::kFanOut, "{model}_{config:12}_r{rank}/{hex:3}", kNoTemporary,
     FilePolicy::kCache, kPlain, "as its blocks"},
    {Runtime::kVllm, NameKind::kFanOut, "{model}_{config:12}_r{rank}/{hex:3}/{hex:2}_g{group}",
     kNoTemporary, FilePolicy::kCache, kPlain, "as its blocks"},
    // A few hundred bytes that say what the directory of the same name holds.
    {Runtime::kVllm, NameKind::kCompanion, "{model}_{config:12}/config.json", kNoTemporary,
     FilePolicy::kKeep, kPlain,
     "vllm-project/vllm vllm/v1/kv_offload/file_mapper.py:get_config_file_path @017e9f4"},
    {Runtime::kVllm, NameKind::kCompanion,
     "{model}_{config:12}/.o_direct_probe_{digits:1-20}.tmp", kNoTemporary, FilePolicy::kCache,
     kTemporary,
     "vllm-project/vllm vllm/v1/kv_offload/tiering/fs/io.py:probe_o_direct @017e9f4"},

    {Runtime::kLlmd, NameKind::kBlock,
     "{model/}/block_size_{digits}_blocks_per_file_{digits}/"
     "tp_{ways}_pp_size_{ways}_pcp_size_{ways}/rank_{rank}/{any}/"
     "{hash[0:3]}/{hash[3:5]}/{hash:16-128}.bin",
     kRandom, FilePolicy::kCache, kImmutable,
     "llm-d/llm-d-kv-cache kv_connectors/llmd_fs_backend/llmd_fs_backend/file_mapper.py:"
     "get_file_name, csrc/storage/backends/fs_io/file_io.cpp:tmp_file_suffix @7be76e1"},
    {Runtime::kLlmd, NameKind::kFanOut,
     "{model/}/block_size_{digits}_blocks_per_file_{digits}/"
     "tp_{ways}_pp_size_{ways}_pcp_size_{ways}/rank_{rank}/{any}/{hex:3}",
     kNoTemporary, FilePolicy::kCache, kPlain, "as its blocks"},
    {Runtime::kLlmd, NameKind::kFanOut,
     "{model/}/block_size_{digits}_blocks_per_file_{digits}/"
     "tp_{ways}_pp_size_{ways}_pcp_size_{ways}/rank_{rank}/{any}/{hex:3}/{hex:2}",
     kNoTemporary, FilePolicy::kCache, kPlain, "as its blocks"},
    // Newer ones use vLLM's names; untold these are taken for vLLM's, which is the same in all else.
    {Runtime::kLlmd, NameKind::kBlock,
     "{model}_{config:12}_r{rank}/{hash[0:3]}/{hash[3:5]}_g{group}/{hash:16-128}.bin", kRandom,
     FilePolicy::kCache, kImmutable | kToldOnly,
     "llm-d/llm-d-kv-cache kv_connectors/llmd_fs_backend @7be76e1"},
    {Runtime::kLlmd, NameKind::kFanOut, "{model}_{config:12}_r{rank}/{hex:3}", kNoTemporary,
     FilePolicy::kCache, kToldOnly, "as its blocks"},
    {Runtime::kLlmd, NameKind::kFanOut, "{model}_{config:12}_r{rank}/{hex:3}/{hex:2}_g{group}",
     kNoTemporary, FilePolicy::kCache, kToldOnly, "as its blocks"},
    {Runtime::kLlmd, NameKind::kCompanion, "{model}_{config:12}/config.json", kNoTemporary,
     FilePolicy::kKeep, kToldOnly,
     "llm-d/llm-d-kv-cache kv_connectors/llmd_fs_backend @7be76e1"},

    // Its index is in memory only: the files are orphans after a restart.
    {Runtime::kLmcacheDisk, NameKind::kBlock,
     "{model@}@{world}@{rank}@{hashint:1-64}@{dtype}{tail@}.pt", kNoTemporary,
     FilePolicy::kProcess, kPlain,
     "LMCache/LMCache lmcache/v1/storage_backend/local_disk_backend.py:_key_to_path, "
     "lmcache/utils.py:CacheEngineKey.to_string @9f5cee0"},
    // Until 2025 a key began with the engine's name.
    {Runtime::kLmcacheDisk, NameKind::kBlock,
     "vllm@{model@}@{world}@{rank}@{hashint:1-64}{tail@}.pt", kNoTemporary,
     FilePolicy::kProcess, kPlain,
     "LMCache/LMCache lmcache/v1/token_database.py:_make_key_by_hash @00e744e"},

    {Runtime::kLmcacheMp, NameKind::kBlock,
     "{model@}@0x{packed}@{groupx}@{hash:8-128}{tail@}.data", kAppended | kReplaced | kCounter,
     FilePolicy::kCache, kImmutable,
     "LMCache/LMCache lmcache/v1/distributed/l2_adapters/fs_l2_adapter.py:"
     "_object_key_to_filename, _key_to_file_and_tmp_path @9f5cee0; "
     "csrc/storage_backends/nixl/storage.cpp:make_temporary_path @0473539"},
    // Before there were object groups.
    {Runtime::kLmcacheMp, NameKind::kBlock, "{model@}@0x{packed}@{hash:16-128}{tail@}.data",
     kAppended | kReplaced, FilePolicy::kCache, kImmutable,
     "LMCache/LMCache csrc/storage_backends/fs/connector.cpp:key_to_filename @121206a"},

    {Runtime::kLmcacheFs, NameKind::kBlock,
     "{model@}@{world}@{rank}@{hashint:1-64}@{dtype}{tail@}.data", kAppended | kReplaced,
     FilePolicy::kCache, kImmutable,
     "LMCache/LMCache lmcache/v1/storage_backend/connector/fs_connector.py:"
     "_get_file_and_tmp_path @9f5cee0"},
    {Runtime::kLmcacheFs, NameKind::kBlock,
     "vllm@{model@}@{world}@{rank}@{hashint:1-64}{tail@}.data", kAppended | kReplaced,
     FilePolicy::kCache, kImmutable,
     "LMCache/LMCache lmcache/v1/token_database.py:_make_key_by_hash @00e744e"},

    {Runtime::kLmcacheGds, NameKind::kBlock,
     "{decimal[0:2]}/{decimal[2:4]}/{model%}%40{world}%40{rank}%40{hashint:1-64}%40{dtype}"
     "{tail%}.kvcache.safetensors",
     kShort, FilePolicy::kCache, kImmutable,
     "LMCache/LMCache lmcache/v1/storage_backend/gds_backend.py:_key_to_path @9f5cee0"},
    {Runtime::kLmcacheGds, NameKind::kCompanion,
     "{decimal[0:2]}/{decimal[2:4]}/{model%}%40{world}%40{rank}%40{hashint:1-64}%40{dtype}"
     "{tail%}.kvcache.safetensors.metadata",
     kShort, FilePolicy::kCache, kImmutable,
     "LMCache/LMCache lmcache/v1/storage_backend/gds_backend.py:save_metadata @9f5cee0"},
    {Runtime::kLmcacheGds, NameKind::kBlock,
     "{decimal[0:2]}/{decimal[2:4]}/{model%}%40{world}%40{rank}%40{hashint:1-64}%40{dtype}"
     "{tail%}.weka1",
     kShort, FilePolicy::kCache, kImmutable,
     "LMCache/LMCache lmcache/v1/storage_backend/gds_backend.py:_key_to_path @9f5cee0"},
    {Runtime::kLmcacheGds, NameKind::kCompanion,
     "{decimal[0:2]}/{decimal[2:4]}/{model%}%40{world}%40{rank}%40{hashint:1-64}%40{dtype}"
     "{tail%}.weka1.metadata",
     kShort, FilePolicy::kCache, kImmutable,
     "LMCache/LMCache lmcache/v1/storage_backend/gds_backend.py:save_metadata @9f5cee0"},

    {Runtime::kLmcacheNixl, NameKind::kPool, "obj_{digits:1-9}_{hex:4}.bin", kNoTemporary,
     FilePolicy::kProcess, kPlain,
     "LMCache/LMCache lmcache/v1/storage_backend/nixl_storage_backend.py:NixlFilePool, "
     "lmcache/v1/distributed/l2_adapters/nixl_store_l2_adapter.py @9f5cee0"},
    {Runtime::kLmcacheNixl, NameKind::kBlock, "{model}_{packed}_{groupx}_{hash:16-128}.bin",
     kUuid, FilePolicy::kCache, kImmutable,
     "LMCache/LMCache lmcache/v1/distributed/l2_adapters/nixl_store_agents/"
     "dynamic_nixl_store_agent.py:_object_key_to_filename @0dd4485, "
     "file_dynamic_nixl_store_agent.py:dynamic_store @17d24d7"},
    {Runtime::kLmcacheNixl, NameKind::kBlock,
     "{model}_{packed}_{groupx}_{hash:16-128}@{salt}.bin", kUuid, FilePolicy::kCache,
     kImmutable,
     "LMCache/LMCache lmcache/v1/distributed/l2_adapters/nixl_store_agents/"
     "dynamic_nixl_store_agent.py:_object_key_to_filename @0dd4485"},
    // No extension, so the hash has to be long: one in 256 of Python's own hashes is not.
    {Runtime::kLmcacheNixl, NameKind::kBlock,
     "{model}_{world}_{rank}_{hashint:15-64}_{dtype}[!_{digits:1-4}]", kNoTemporary,
     FilePolicy::kCache, kPlain,
     "LMCache/LMCache lmcache/v1/storage_backend/nixl_storage_backend.py:_format_object_key "
     "@016953b"},

    {Runtime::kSglangFile, NameKind::kBlock,
     "{hash:64}[!.{pool}]_{model}[_{rank}_{world}][_{stages}_{stage}][!_cp{digits}_{digits}]"
     "[!_tp{digits}_dcp{digits}_{digits}_page{digits}].bin",
     kThread, FilePolicy::kCache, kImmutable,
     "sgl-project/sglang python/sglang/srt/mem_cache/hicache_storage.py:HiCacheFile @d55f1c2, "
     "and of sglang 0.5.23"},
    {Runtime::kSglangFile, NameKind::kBlock, ".{hex:32}.tmp", kNoTemporary, FilePolicy::kCache,
     kTemporary,
     "sglang 0.5.23 python/sglang/srt/mem_cache/hicache_storage.py:HiCacheFile.set"},
    // The default of its path; the metadata server that knows the offsets is another process.
    {Runtime::kSglangFile, NameKind::kPool, "hicache.{rank}.bin", kNoTemporary,
     FilePolicy::kProcess, kPlain,
     "sglang 0.5.23 python/sglang/srt/mem_cache/storage/hf3fs/storage_hf3fs.py"},

    {Runtime::kSglangNixl, NameKind::kBlock,
     "{hex:2}/{hash:64}_{model}[_{rank}_{world}][!_{pool}][!_{half}][!_{pool}_{digits:1-4}]",
     kNoTemporary, FilePolicy::kCache, kPlain,
     "sgl-project/sglang python/sglang/srt/mem_cache/storage/nixl/hicache_nixl.py:"
     "_get_suffixed_key, nixl_routing.py:route_key @d55f1c2"},

    // Its keys are those of the engine before it: SGLang's, LMCache's.
    {Runtime::kMooncakeFile, NameKind::kBlock, "{a-p}/{a-p}/{hash:64}_{part}", kNoTemporary,
     FilePolicy::kKeep, kPlain,
     "kvcache-ai/Mooncake mooncake-store/src/utils.cpp:ResolvePathFromKey @3b5a594; sglang "
     "0.5.23 "
     "python/sglang/srt/mem_cache/storage/mooncake_store/mooncake_store.py"},
    // Newer ones put the tenant before the key; "default" unless there are several.
    {Runtime::kMooncakeFile, NameKind::kBlock, "{a-p}/{a-p}/{word}_{hash:64}_{part}",
     kNoTemporary, FilePolicy::kKeep, kPlain,
     "mooncake-transfer-engine-non-cuda 0.3.13.post1, as it was seen to write"},
    {Runtime::kMooncakeFile, NameKind::kBlock,
     "{a-p}/{a-p}/default_{model@}@{world}@{rank}@{hashint:1-64}@{dtype}{tail@}", kNoTemporary,
     FilePolicy::kKeep, kPlain,
     "mooncake-transfer-engine-non-cuda 0.3.13.post1, as it was seen to write"},
    {Runtime::kMooncakeFile, NameKind::kBlock,
     "{a-p}/{a-p}/{model@}@{world}@{rank}@{hashint:1-64}@{dtype}{tail@}", kNoTemporary,
     FilePolicy::kKeep, kPlain,
     "kvcache-ai/Mooncake mooncake-store/src/utils.cpp:ResolvePathFromKey @3b5a594; "
     "LMCache/LMCache lmcache/utils.py:CacheEngineKey.to_string @9f5cee0"},
    {Runtime::kMooncakeFile, NameKind::kBlock, "{a-p}/{a-p}/{any}", kNoTemporary,
     FilePolicy::kKeep, kToldOnly,
     "kvcache-ai/Mooncake mooncake-store/src/utils.cpp:ResolvePathFromKey @3b5a594"},

    // An id is a time in seconds shifted by 12 bits, so it has 13 digits.
    {Runtime::kMooncakeBucket, NameKind::kPool, "{digits:13-20}.bucket", kNoTemporary,
     FilePolicy::kKeep, kImmutable,
     "kvcache-ai/Mooncake mooncake-store/src/storage_backend.cpp:GetBucketDataPath @3b5a594"},
    {Runtime::kMooncakeBucket, NameKind::kCompanion, "{digits:13-20}.meta", kNoTemporary,
     FilePolicy::kKeep, kImmutable,
     "kvcache-ai/Mooncake mooncake-store/src/storage_backend.cpp:GetBucketMetadataPath "
     "@3b5a594"},
    {Runtime::kMooncakeBucket, NameKind::kPool, "{digits:1-12}.bucket", kNoTemporary,
     FilePolicy::kKeep, kImmutable | kToldOnly,
     "kvcache-ai/Mooncake mooncake-store/src/storage_backend.cpp:GetBucketDataPath @3b5a594"},
    {Runtime::kMooncakeBucket, NameKind::kCompanion, "{digits:1-12}.meta", kNoTemporary,
     FilePolicy::kKeep, kImmutable | kToldOnly,
     "kvcache-ai/Mooncake mooncake-store/src/storage_backend.cpp:GetBucketMetadataPath "
     "@3b5a594"},
    // Written by several servers at offsets that do not overlap.
    {Runtime::kMooncakeBucket, NameKind::kPool, "dfs_shard_{digits:1-9}.data", kNoTemporary,
     FilePolicy::kKeep, kPlain,
     "kvcache-ai/Mooncake mooncake-store/src/storage/distributed @3b5a594"},

    {Runtime::kVllmExample, NameKind::kBlock, "{hash:32-128}/{part}.safetensors", kNoTemporary,
     FilePolicy::kCache, kToldOnly,
     "vllm-project/vllm vllm/distributed/kv_transfer/kv_connector/v1/example_connector.py:"
     "_generate_filename_debug @017e9f4"},

    {Runtime::kVllmExample, NameKind::kDirectory, "{hash:32-128}", kNoTemporary,
     FilePolicy::kCache, kToldOnly,
     "vllm-project/vllm vllm/distributed/kv_transfer/kv_connector/v1/example_connector.py:"
     "_found_match_for_prompt (os.path.exists of the directory) @017e9f4"},

    // Older ones name the file by a decimal number; both are digits.
    {Runtime::kTensorrtExample, NameKind::kBlock, "{hashint:1-64}.pt", kNoTemporary,
     FilePolicy::kCache, kImmutable | kToldOnly,
     "NVIDIA/TensorRT-LLM examples/llm-api/llm_kv_cache_connector.py:_file_path @03fa470"},
    {Runtime::kTensorrtExample, NameKind::kBlock, "tmp{any}", kNoTemporary, FilePolicy::kCache,
     kTemporary | kToldOnly,
     "NVIDIA/TensorRT-LLM examples/llm-api/llm_kv_cache_connector.py:wait_for_save (Python's "
     "NamedTemporaryFile)"},

    // The directory above is the connection: <namespace>_h<heads>_l<layers>_<signatures>. Without it
    // this is how many a store of MD5 sums looks.
    {Runtime::kAibrix, NameKind::kBlock,
     "{any}_h{digits:1-4}_{digits:1-4}_l{digits:1-4}_{digits:1-4}[_{word}][_{word}][_{word}]/"
     "{hash[0:2]}/{hash[2:4]}/{hash:32}",
     kAppended, FilePolicy::kCache, kImmutable,
     "vllm-project/aibrix python/aibrix_kvcache/aibrix_kvcache/l2/connectors/shfs.py:"
     "_key_to_filepath @6baddd3, connector.py:create @03a2b54"},
    {Runtime::kAibrix, NameKind::kBlock, "{hash[0:2]}/{hash[2:4]}/{hash:8-128}", kAppended,
     FilePolicy::kCache, kImmutable | kToldOnly,
     "vllm-project/aibrix python/aibrix_kvcache/aibrix_kvcache/l2/connectors/shfs.py:"
     "_key_to_filepath @6baddd3"},

    // A user's name for a user's session, rewritten in place.
    {Runtime::kLlamaCpp, NameKind::kBlock, "{any}", kNoTemporary, FilePolicy::kKeep, kToldOnly,
     "ggml-org/llama.cpp tools/server: --slot-save-path; --prompt-cache"},
};

}  // namespace kvcachefs::layout
