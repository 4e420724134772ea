// Names that are nearly those of a runtime, and those of everything else on a disk: plain files.
#include <gtest/gtest.h>

#include "fs/layout/layout.h"
#include "tests/unit/fs/layout/describe.h"

namespace kvcachefs {
namespace {

using testing::described;

TEST(LookAlike, HashesOfAWrongForm) {
  for (const char* path : {
           "m_1a2b3c4d5e6f_r0/9c4/1d_g0/9c41d2a0b3f4e5968.bin",  // an odd number of digits
           "m_1a2b3c4d5e6f_r0/9c4/1d_g0/9c41d2a0.bin",           // too short
           "m_1a2b3c4d5e6f_r0/9c4/1d_g0/HHH.bin",                // too long
           "m_1a2b3c4d5e6f_r0/9C4/1D_g0/9C41D2A0B3F4E596.bin",   // upper case
           "m_1a2b3c4d5e6f_r0/9c4/1d_g0/9c41d2a0b3f4e59g.bin",
           "m@0x01000100@0@9c41d2a0b.data",
           "H0_m_0_1.bin",
           "9c41d2a0b3f4e596_m_0_1.bin",
       })
    EXPECT_EQ("plain", described(path)) << path;
}

TEST(LookAlike, ShardsThatAreNotTheHashes) {
  for (const char* path : {
           "m_1a2b3c4d5e6f_r0/9c5/1d_g0/H.bin",
           "m_1a2b3c4d5e6f_r0/9c4/1e_g0/H.bin",
           "m_1a2b3c4d5e6f_r0/9c/41_g0/H.bin",
           "m_1a2b3c4d5e6f_r0/9c4/1d/H.bin",
           "m_1a2b3c4d5e6f_r0/1d_g0/H.bin",
           "9c4/1d_g0/H.bin",
           "aibrix_h0_7_l0_31/9c/42/9c41d2a0b3f4e5968778695a4b3c2d1e",
           "aibrix_h0_7_l0_31/9c41d2a0b3f4e5968778695a4b3c2d1e",
           "q/b/H_0_k",
       })
    EXPECT_EQ("plain", described(path)) << path;
}

TEST(LookAlike, NumbersOfAWrongForm) {
  for (const char* path : {
           "m_1a2b3c4d5e6f_r/9c4/1d_g0/H.bin",
           "m_1a2b3c4d5e6f_r01/9c4/1d_g0/H.bin",
           "m_1a2b3c4d5e6f_r1000000000/9c4/1d_g0/H.bin",
           "m_1a2b3c4d5e6f_r0/9c4/1d_g99999999999999999999/H.bin",
           "m@99999999999@0@3f2a@half.pt",
           "m@1@-1@3f2a@half.pt",
           "m@0x0100010@0@H.data",
           "m@0x001000100@0@H.data",
           "o/m/block_size_16_blocks_per_file_1/tp_0_pp_size_1_pcp_size_1/rank_0/half/9c4/1d/"
           "H.bin",
           "o/m/block_size_16_blocks_per_file_1/tp_99999999_pp_size_99999999_pcp_size_1/rank_0/"
           "half/9c4/1d/H.bin",
           "obj_x_4f1e.bin",
           "obj_0_4f1.bin",
           "obj_0_4f1e2.bin",
           "123456789012345678901.bucket",
           "2024.meta",
       })
    EXPECT_EQ("plain", described(path)) << path;
}

TEST(LookAlike, EmptyAndMissingComponents) {
  for (const char* path : {
           "",
           "/",
           "//",
           "_1a2b3c4d5e6f_r0/9c4/1d_g0/H.bin",  // no model
           "/m_1a2b3c4d5e6f_r0/9c4/1d_g0/H.bin",
           "kv//m_1a2b3c4d5e6f_r0/9c4/1d_g0/H.bin",
           "m_1a2b3c4d5e6f_r0//9c4/1d_g0/H.bin",
           "m_1a2b3c4d5e6f_r0/9c4/1d_g0/H.bin/",
           "m_1a2b3c4d5e6f_r0/9c4/1d_g0/.bin",
           "@1@0@3f2a@half.pt",
           "m@@0@3f2a@half.pt",
           "m@1@0@@half.pt",
           "m@1@0@3f2a@.pt",
           "m@1@0@3f2a@half@.pt",
           "H_.bin",
           "H.bin",
       })
    EXPECT_EQ("plain", described(path)) << path;
}

TEST(LookAlike, OtherPrograms) {
  for (const char* path : {
           "README",
           "a/b/README",
           "a/b/c",
           ".git/objects/9c/41d2a0b3f4e5968778695a4b3c2d1e0f9e8d7c",
           ".git/objects/pack/pack-9c41d2a0b3f4e5968778695a4b3c2d1e0f9e8d7c.pack",
           ".git/config",
           "hub/models--meta-llama--Llama-3.1-8B/blobs/H",
           "hub/models--meta-llama--Llama-3.1-8B/blobs/H.incomplete",
           "hub/models--meta-llama--Llama-3.1-8B/snapshots/9c41d2a0b3f4e596/config.json",
           "hub/models--gpt2/snapshots/9c41d2a0b3f4e596/model-00001-of-00004.safetensors",
           "model/config.json",
           "model/pytorch_model.bin",
           "model/pytorch_model-00001-of-00002.bin",
           "model_1/model_2.pt",
           "checkpoints/epoch_3_10.pt",
           "docker/overlay2/H/diff",
           "registry/v2/blobs/sha256/9c/H/data",
           "ccache/9/c/41d2a0b3f4e5968778695a4b3c2d1e0fR",
           "data/train_4_0_20240101_float",
           "db/000123.sst",
           "db/MANIFEST-000005",
           "db.sqlite-journal",
           "user@example.com@1.data",
           "ldap/cn@1@0@example@org.data",
           "core.12345",
           "session/2024-01-01/log.txt",
           "dynamo.data",
       })
    EXPECT_EQ("plain", described(path)) << path;
}

TEST(LookAlike, AnyBytesAreLegal) {
  std::string path = "a\nb/\xff\xfe_1a2b3c4d5e6f_r0/9c4/1d_g0/" + testing::kHash + ".bin";
  EXPECT_EQ("vllm block cache immutable model=\xff\xfe hash=H rank=0 group=0",
            testing::describe(recognize(path)));
  path.back() = '\0';
  EXPECT_EQ("plain", testing::describe(recognize(path)));
}

TEST(LookAlike, LengthsAreBounded) {
  const std::string block = "m_1a2b3c4d5e6f_r0/9c4/1d_g0/" + testing::kHash + ".bin";
  std::string deep;
  while (deep.size() + 2 + block.size() <= 4096) deep += "d/";
  EXPECT_TRUE(recognize(deep + block));
  EXPECT_FALSE(recognize(std::string(4097 - block.size(), 'd') + "/" + block));
  const std::string end = "@1@0@3f2a@half.pt";
  EXPECT_TRUE(recognize(std::string(255 - end.size(), 'm') + end));
  EXPECT_FALSE(recognize(std::string(256 - end.size(), 'm') + end));
}

TEST(LookAlike, MostNamesAreKnownWithoutTheirDirectory) {
  for (const char* name : {"README", "log.txt", "a", "", "000123.sst", "Makefile", "x.cc"})
    EXPECT_FALSE(may_be_recognized(name)) << name;
  // By their ends, these could be blocks or temporaries in some directory.
  for (const char* name : {"config.json", "9c41d2a0b3f4e596",
                           "pytorch_model-00001-of-00002.bin", "model.safetensors", "x.tmp"})
    EXPECT_TRUE(may_be_recognized(name)) << name;
}

}  // namespace
}  // namespace kvcachefs
