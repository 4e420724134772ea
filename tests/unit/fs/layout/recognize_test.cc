// Names as runtimes write them. "H" is a hash of 64 digits that begins with 9c41d2.
#include <gtest/gtest.h>

#include "fs/layout/layout.h"
#include "tests/unit/fs/layout/describe.h"

namespace kvcachefs {
namespace {

using testing::described;

struct Example {
  const char* path;
  const char* expected;
};

// Both directories above and none must do: a runtime's root may be the mount's root or below it.
void expect_all(std::initializer_list<Example> examples) {
  for (const Example& example : examples) {
    EXPECT_EQ(example.expected, described(example.path)) << example.path;
    EXPECT_EQ(example.expected, described("kv/run 7/" + std::string(example.path)))
        << "below: " << example.path;
    const std::string path = testing::replace_all(example.path, "H", testing::kHash);
    EXPECT_TRUE(may_be_recognized(path.substr(path.rfind('/') + 1))) << path;
  }
}

TEST(Recognize, VllmBlocks) {
  expect_all({
      {"meta-llama_Llama-3.1-8B_1a2b3c4d5e6f_r0/9c4/1d_g0/H.bin",
       "vllm block cache immutable model=meta-llama_Llama-3.1-8B hash=H rank=0 group=0"},
      {"m_1a2b3c4d5e6f_r17/9c4/1d_g12/H.bin",
       "vllm block cache immutable model=m hash=H rank=17 group=12"},
      // A name that looks like the end of the directory's own.
      {"a_r1_1a2b3c4d5e6f_r2_1a2b3c4d5e6f_r3/9c4/1d_g0/H.bin",
       "vllm block cache immutable model=a_r1_1a2b3c4d5e6f_r2 hash=H rank=3 group=0"},
      {"m_1a2b3c4d5e6f_r0/9c4/1d_g0/9c41d2a0b3f4e596.bin",
       "vllm block cache immutable model=m hash=9c41d2a0b3f4e596 rank=0 group=0"},
  });
}

TEST(Recognize, VllmFanOut) {
  expect_all({
      {"m_1a2b3c4d5e6f_r17/9c4", "vllm fan-out cache model=m rank=17"},
      {"m_1a2b3c4d5e6f_r17/9c4/1d_g12", "vllm fan-out cache model=m rank=17 group=12"},
  });
  for (const char* other : {"m_1a2b3c4d5e6f/9c4", "m_1a2b3c4d5e6f_r17/9c", "9c4",
                            "m_r0/9c4/1d_g0", "m_1a2b3c4d5e6f_r17/9c4/1d"})
    EXPECT_EQ("plain", described(other)) << other;
}

TEST(Recognize, LlmdFanOut) {
  const std::string above =
      "gpt2/block_size_16_blocks_per_file_16/tp_4_pp_size_2_pcp_size_1/rank_5/float16/";
  EXPECT_EQ("llmd fan-out cache model=gpt2 world=8 rank=5", described(above + "9c4"));
  EXPECT_EQ("llmd fan-out cache model=gpt2 world=8 rank=5", described(above + "9c4/1d"));
  EXPECT_EQ("llmd fan-out cache model=m rank=0 group=1",
            described("m_1a2b3c4d5e6f_r0/9c4/1d_g1", Runtime::kLlmd));
}

TEST(Recognize, VllmCompanions) {
  expect_all({
      {"meta-llama_Llama-3.1-8B_1a2b3c4d5e6f/config.json",
       "vllm companion keep model=meta-llama_Llama-3.1-8B"},
      {"m_1a2b3c4d5e6f/.o_direct_probe_8236401190553280432.tmp",
       "vllm companion cache model=m -> ?"},
  });
}

TEST(Recognize, LlmdBlocks) {
  const std::string below =
      "block_size_16_blocks_per_file_16/tp_4_pp_size_2_pcp_size_1/rank_5/float16/9c4/1d/H.bin";
  const std::string found = "llmd block cache immutable model=";
  EXPECT_EQ(found + "meta-llama/Llama-3.1-8B hash=H world=8 rank=5",
            described("meta-llama/Llama-3.1-8B/" + below));
  EXPECT_EQ(found + "meta-llama/Llama-3.1-8B hash=H world=8 rank=5",
            described("shared/kv/meta-llama/Llama-3.1-8B/" + below));
  EXPECT_EQ(found + "gpt2 hash=H world=8 rank=5", described("gpt2/" + below));
  EXPECT_EQ("plain", described(below));
}

TEST(Recognize, LmcacheKeys) {
  expect_all({
      {"meta-llama-Llama-3.1-8B-Instruct@8@3@3f2a11c0de@bfloat16.pt",
       "lmcache_disk block process model=meta-llama-Llama-3.1-8B-Instruct hash=3f2a11c0de "
       "world=8 rank=3"},
      // Layerwise; Python's hash is a signed number without leading zeros.
      {"m@1@0@-3f2a11c0d@half@31.pt",
       "lmcache_disk block process model=m hash=-3f2a11c0d part=31 world=1 rank=0"},
      {"vllm@m@2@1@3f2a.pt", "lmcache_disk block process model=m hash=3f2a world=2 rank=1"},
      {"meta-llama-SEP-Llama-3.1-8B@1@0@H@bfloat16.data",
       "lmcache_fs block cache immutable model=meta-llama-SEP-Llama-3.1-8B hash=H world=1 "
       "rank=0"},
      {"m@1@0@3f2a@fp8_e4m3fn@tenant%a.b@x%y.data",
       "lmcache_fs block cache immutable model=m hash=3f2a part=tenant%a.b@x%y world=1 rank=0"},
  });
}

TEST(Recognize, LmcacheMultiProcess) {
  expect_all({
      {"meta-llama-SEP-Llama-3.1-8B@0x01000100@0@H.data",
       "lmcache_mp block cache immutable model=meta-llama-SEP-Llama-3.1-8B hash=H world=1 "
       "rank=0 group=0"},
      {"m@0x08070403@1f@H@tenant.1.data",
       "lmcache_mp block cache immutable model=m hash=H part=tenant.1 world=8 rank=7 group=31"},
      {"9c/41/m@0x02010201@0@H.data",
       "lmcache_mp block cache immutable model=m hash=H world=2 rank=1 group=0"},
      {"m@0x01000100@H.data", "lmcache_mp block cache immutable model=m hash=H world=1 rank=0"},
  });
}

TEST(Recognize, LmcacheGds) {
  // 0x3f2a11c0de is 271282979038, 0x1e is 30.
  expect_all({
      {"27/12/meta-llama%2FLlama-3.1-8B%401%400%403f2a11c0de%40bfloat16.kvcache.safetensors",
       "lmcache_gds block cache immutable model=meta-llama%2FLlama-3.1-8B hash=3f2a11c0de "
       "world=1 rank=0"},
      {"27/12/m%401%400%403f2a11c0de%40bfloat16%4012.kvcache.safetensors.metadata",
       "lmcache_gds companion cache immutable model=m hash=3f2a11c0de part=12 world=1 rank=0"},
      {"-2/71/m%401%400%40-3f2a11c0de%40bfloat16.weka1",
       "lmcache_gds block cache immutable model=m hash=-3f2a11c0de world=1 rank=0"},
  });
  EXPECT_EQ("plain", described("27/13/m%401%400%403f2a11c0de%40half.kvcache.safetensors"));
  EXPECT_EQ("plain", described("m%401%400%403f2a11c0de%40half.kvcache.safetensors"));
}

TEST(Recognize, LmcacheNixl) {
  expect_all({
      {"obj_0_4f1e.bin", "lmcache_nixl pool process"},
      {"obj_12345_00aa.bin", "lmcache_nixl pool process"},
      {"meta-llama--Llama-3.1-8B_01000100_0_H.bin",
       "lmcache_nixl block cache immutable model=meta-llama--Llama-3.1-8B hash=H world=1 "
       "rank=0 group=0"},
      {"9c/41/m_02010201_a_H@salt.bin",
       "lmcache_nixl block cache immutable model=m hash=H part=salt world=2 rank=1 group=10"},
      {"meta-llama_Llama-3.1-8B_2_1_H_bfloat16",
       "lmcache_nixl block cache model=meta-llama_Llama-3.1-8B hash=H world=2 rank=1"},
      {"m_1_0_-3f2a11c0de3f2a11_fp8_e5m2_31",
       "lmcache_nixl block cache model=m hash=-3f2a11c0de3f2a11 part=31 world=1 rank=0"},
  });
}

TEST(Recognize, SglangFiles) {
  expect_all({
      {"H_meta-llama-Llama-3.1-8B_0_1.bin",
       "sglang_file block cache immutable model=meta-llama-Llama-3.1-8B hash=H world=1 rank=0"},
      {"H_m_3_8.bin", "sglang_file block cache immutable model=m hash=H world=8 rank=3"},
      // MLA: one file for all ranks.
      {"H_deepseek-ai-DeepSeek-V3.bin",
       "sglang_file block cache immutable model=deepseek-ai-DeepSeek-V3 hash=H"},
      // A pipeline: stages, then the stage.
      {"H_m_3_8_2_1.bin", "sglang_file block cache immutable model=m hash=H world=16 rank=11"},
      {"H_deepseek_2_1.bin",
       "sglang_file block cache immutable model=deepseek hash=H world=2 rank=1"},
      {"H_m_0_4_cp1_2.bin",
       "sglang_file block cache immutable model=m hash=H part=cp1_2 world=4 rank=0"},
      {"H_m_0_4_tp4_dcp0_2_page64.bin",
       "sglang_file block cache immutable model=m hash=H part=tp4_dcp0_2_page64 world=4 "
       "rank=0"},
      {"H.mamba_m_1_2.bin",
       "sglang_file block cache immutable model=m hash=H part=mamba world=2 rank=1"},
      {"H.deepseek_v4_c4_indexer_deepseek-ai-DeepSeek-V4.bin",
       "sglang_file block cache immutable model=deepseek-ai-DeepSeek-V4 hash=H "
       "part=deepseek_v4_c4_indexer"},
      {"H.newpool_m_0_1.bin",
       "sglang_file block cache immutable model=m hash=H part=newpool world=1 rank=0"},
      {"hicache.3.bin", "sglang_file pool process rank=3"},
  });
}

TEST(Recognize, SglangNixl) {
  expect_all({
      {"a7/H_meta-llama-Llama-3.1-8B_0_4_k",
       "sglang_nixl block cache model=meta-llama-Llama-3.1-8B hash=H part=k world=4 rank=0"},
      {"a7/H_m_0_4", "sglang_nixl block cache model=m hash=H world=4 rank=0"},
      {"a7/H_deepseek-ai-DeepSeek-V3",
       "sglang_nixl block cache model=deepseek-ai-DeepSeek-V3 hash=H"},
      {"a7/H_m_0_4_swa_v", "sglang_nixl block cache model=m hash=H part=swa_v world=4 rank=0"},
      {"a7/H_m_0_4_mamba_conv_3",
       "sglang_nixl block cache model=m hash=H part=mamba_conv_3 world=4 rank=0"},
      {"a7/H_m_0_4_swa_2", "sglang_nixl block cache model=m hash=H part=swa_2 world=4 rank=0"},
  });
}

TEST(Recognize, Mooncake) {
  expect_all({
      {"a/p/H_0_k", "mooncake_file block keep hash=H part=0_k"},
      {"file_per_key_dir/a/p/default_H_0_k", "mooncake_file block keep hash=H part=0_k"},
      {"a/p/default_m@1@0@3f2a11c0de@bfloat16",
       "mooncake_file block keep model=m hash=3f2a11c0de world=1 rank=0"},
      {"c/d/m@1@0@3f2a11c0de@bfloat16",
       "mooncake_file block keep model=m hash=3f2a11c0de world=1 rank=0"},
      {"7226212741120.bucket", "mooncake_bucket pool keep immutable"},
      {"7226212741120.meta", "mooncake_bucket companion keep immutable"},
      {"dfs_shard_007.data", "mooncake_bucket pool keep"},
  });
}

TEST(Recognize, Aibrix) {
  const std::string hash = "9c41d2a0b3f4e5968778695a4b3c2d1e";
  const std::string found = "aibrix block cache immutable hash=" + hash;
  EXPECT_EQ(found, described("aibrix_h0_7_l0_31/9c/41/" + hash));
  EXPECT_EQ(found, described("kv/dp_0_h0_7_l0_31_LCND16bf16roll_xxhc/9c/41/" + hash));
  // How many a store of MD5 sums looks, unless somebody says what it is.
  EXPECT_EQ("plain", described("images/9c/41/" + hash));
  EXPECT_EQ(found, described("images/9c/41/" + hash, Runtime::kAibrix));
}

TEST(Recognize, NativeNamesAreAtTheRoot) {
  EXPECT_EQ("native block cache immutable hash=H", described("prefix/H"));
  EXPECT_EQ("native block cache immutable hash=9c41d2a0b3f4e596a",
            described("prefix/9c41d2a0b3f4e596a"));
  EXPECT_EQ("native session cache immutable session=chat 7 position=12",
            described("session/chat 7/12"));
  for (const char* path : {"kv/prefix/H", "kv/session/a/1", "prefix/a/H", "prefix/9c41d2",
                           "prefix/-9c41d2a0b3f4e596", "session/a/b/1", "session/a/x",
                           "session/a/01", "session//1"})
    EXPECT_EQ("plain", described(path)) << path;
}

TEST(Recognize, GenericNamesOnlyWhereTold) {
  struct Told {
    Runtime runtime;
    const char* path;
    const char* expected;
  };
  const Told examples[] = {
      {Runtime::kLlamaCpp, "slots/user0.bin", "llama_cpp block keep"},
      {Runtime::kLlamaCpp, "slots/\xff\n", "llama_cpp block keep"},
      {Runtime::kTensorrtExample, "kv/H.pt", "tensorrt_example block cache immutable hash=H"},
      {Runtime::kTensorrtExample, "kv/8236401190553280432.pt",
       "tensorrt_example block cache immutable hash=8236401190553280432"},
      {Runtime::kTensorrtExample, "kv/tmpa8_0kq2w", "tensorrt_example block cache -> ?"},
      {Runtime::kVllmExample, "kv/H/model.layers.0.self_attn.attn.safetensors",
       "vllm_example block cache hash=H part=model.layers.0.self_attn.attn"},
      {Runtime::kVllmExample, "kv/H", "vllm_example directory cache hash=H"},
      {Runtime::kMooncakeFile, "a/b/README", "mooncake_file block keep"},
      {Runtime::kMooncakeBucket, "x/12.bucket", "mooncake_bucket pool keep immutable"},
      {Runtime::kMooncakeBucket, "x/12.meta", "mooncake_bucket companion keep immutable"},
  };
  for (const Told& example : examples) {
    EXPECT_EQ("plain", described(example.path)) << example.path;
    EXPECT_EQ(example.expected, described(example.path, example.runtime)) << example.path;
  }
}

TEST(Recognize, WhatWasToldCountsAlone) {
  const char* vllm = "m_1a2b3c4d5e6f_r0/9c4/1d_g0/H.bin";
  EXPECT_EQ("vllm block cache immutable model=m hash=H rank=0 group=0",
            described(vllm, Runtime::kVllm));
  EXPECT_EQ("llmd block cache immutable model=m hash=H rank=0 group=0",
            described(vllm, Runtime::kLlmd));
  EXPECT_EQ("llama_cpp block keep", described(vllm, Runtime::kLlamaCpp));
  EXPECT_EQ("plain", described(vllm, Runtime::kSglangFile));
  EXPECT_EQ("plain", described(vllm, Runtime::kNone));
}

TEST(Recognize, ViewsAreOfThePathThatWasGiven) {
  const std::string path = "m_1a2b3c4d5e6f_r0/9c4/1d_g0/" + testing::kHash + ".bin";
  const auto file = recognize(path);
  ASSERT_TRUE(file.has_value());
  EXPECT_EQ(path.data(), file->model.data());
  EXPECT_EQ(path.data() + path.rfind('/') + 1, file->prefix_hash.data());
}

TEST(Runtime, NamesAreReadAsTheyAreWritten) {
  for (std::size_t at = 0; at < kRuntimeCount; ++at) {
    const auto runtime = static_cast<Runtime>(at);
    EXPECT_EQ(runtime, parse_runtime(name_of(runtime))) << name_of(runtime);
  }
  for (const char* name : {"", "VLLM", "vllm ", "lmcache"})
    EXPECT_EQ(std::nullopt, parse_runtime(name)) << name;
}

}  // namespace
}  // namespace kvcachefs
