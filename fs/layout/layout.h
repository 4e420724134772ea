// What the name of a file says about KV cache.
//
// Inference runtimes name their cache files in ways of their own; recognize() reads a path and says
// which runtime it is of, which block of which model it holds, whether it is a temporary, and what may
// be done with the file. table.h has a row for each kind of name and cites where it was read.
//
// Pure: no allocation, no I/O, no locks, no exceptions; any thread. Any bytes are legal input, valid
// UTF-8 or not. The time is linear in the length of the path.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace kvcachefs {

enum class Runtime : std::uint8_t {
  kNone,             // plain files
  kVllm,             // vLLM's filesystem tier
  kLlmd,             // llm-d's filesystem backend: its own layout, and vLLM's
  kLmcacheDisk,      // LMCache LocalDiskBackend
  kLmcacheFs,        // LMCache FSConnector
  kLmcacheMp,        // LMCache multi-process: fs, fs_native, nixl_native
  kLmcacheGds,       // LMCache GdsBackend
  kLmcacheNixl,      // LMCache's NIXL pools, and NIXL with a file a block
  kSglangFile,       // SGLang HiCacheFile, and the pools of its hf3fs
  kSglangNixl,       // SGLang HiCacheNixl
  kMooncakeFile,     // Mooncake FilePerKey
  kMooncakeBucket,   // Mooncake buckets, and the shards of its distributed storage
  kVllmExample,      // vLLM ExampleConnector (SharedStorageConnector)
  kTensorrtExample,  // the KV-connector example of TensorRT-LLM
  kAibrix,           // AIBrix SHFS
  kLlamaCpp,         // llama.cpp's slots and prompt caches
  kNative,           // this filesystem's own prefix/ and session/
};
inline constexpr std::size_t kRuntimeCount = 17;

// What may be done with a file; the stricter, the greater.
enum class FilePolicy : std::uint8_t {
  kCache,    // may be evicted: whoever misses it computes it again
  kProcess,  // as kKeep while the process that wrote it lives; nobody can use it afterwards
  kKeep,     // may move to a slower tier, is never lost: the runtime trusts an index of its own
  kPin,      // stays where it is; of no layout, only told (fs/known/file_policy.h)
};

enum class NameKind : std::uint8_t {
  kBlock,      // the KV of a run of tokens, or a part of it
  kCompanion,  // belongs to blocks and is none: config.json, .metadata, .meta, a probe for O_DIRECT
  kFanOut,  // a directory above blocks, named after the begin of their hashes
  kDirectory,  // one that holds the files of a block alone: where it is the block is, to its runtime
  kPool,       // many blocks, at offsets that only the runtime knows
  kSession,  // an entry of session/<id>/
};

// The views are of the path that was given, as it spells them, and live as long as it does (but
// final_suffix, which is static). Empty, and nullopt: the name does not tell.
struct Recognized {
  Runtime runtime = Runtime::kNone;
  NameKind kind = NameKind::kBlock;
  FilePolicy policy = FilePolicy::kCache;  // unless somebody has said otherwise
  // It will be renamed, or removed; nobody reads it by this name.
  bool temporary = false;
  // Under its final name the runtime does not change the bytes again. One that writes to the final
  // name and may write there once more has mutable files.
  bool immutable = false;

  // With the runtime's own replacement of '/': "meta-llama_Llama-3.1-8B", "meta-llama-SEP-Llama…".
  // Of llm-d, whose models are directories, the last two components.
  std::string_view model;
  // vLLM's hash of what shapes a block besides the model: number types, sizes, ways.
  std::string_view config;
  // Lower-case hex, 1 to 128 digits. LMCache's may have an odd number of digits and a '-' before
  // them: Python's hash() is a signed number. Equal hashes are the same prefix only for the same
  // runtime and model.
  std::string_view prefix_hash;
  // What else tells this file from others of the same block: SGLang's pool, "k" or "v", LMCache's
  // layer, tags and salt, the layer of vLLM's example.
  std::string_view part;
  // How many workers hold a part of the block, and which one this is (below `world`, but for names
  // that somebody made up). Pipeline stages are counted in.
  std::optional<std::uint32_t> world;
  std::optional<std::uint32_t> rank;
  // Of layers with a KV cache of their own (vLLM's KV cache groups, LMCache's object groups).
  std::optional<std::uint32_t> group;
  std::string_view session;  // of session/<id>/<position>
  std::optional<std::uint32_t> position;

  // The path a temporary gets when it is published is final_stem + final_suffix: final_path().
  // Empty for other files, and for temporaries whose names do not tell.
  std::string_view final_stem;
  std::string_view final_suffix;
};

// `path` is relative to the mount's root, without a slash before or behind it. `told` is what the
// directory was told to hold (kToldXattr): then only the names of that runtime are recognised, also
// those that are too generic to be recognised anywhere (llama.cpp's slots are any name), and after
// kNone nothing is. A temporary and the file it becomes give the same answer but for `temporary` and
// final_*; one that is written to a directory for temporaries under its final name (an option of
// LMCache) is not seen as a temporary.
std::optional<Recognized> recognize(std::string_view path,
                                    std::optional<Runtime> told = std::nullopt) noexcept;

// False: recognize() says nullopt of this name in whatever directory, untold. For callers that would have
// to put the path together first; it looks at the ends of the name alone.
bool may_be_recognized(std::string_view name) noexcept;

// Whether the name, of a file or a directory, is one of those under which runtimes and programs
// write what gets its own later: `.tmp` at its end, or before a random number (the forms of
// table.h, of whatever layout).
bool is_temporary_name(std::string_view name) noexcept;
// The same of any part of a path.
bool has_temporary_name(std::string_view path) noexcept;

// Empty when the name does not tell. Allocates.
std::string final_path(const Recognized& file);

// The xattr of a directory that says which layout it holds; the value is a runtime's name.
inline constexpr std::string_view kToldXattr = "user.kvcachefs.layout";

// "none", "vllm", "llmd", "lmcache_disk", …: as the enumerators are spelled.
std::string_view name_of(Runtime runtime) noexcept;
// "cache", "process", "keep", "pin".
std::string_view name_of(FilePolicy policy) noexcept;
std::optional<Runtime> parse_runtime(std::string_view name) noexcept;
std::optional<FilePolicy> parse_policy(std::string_view name) noexcept;

}  // namespace kvcachefs
