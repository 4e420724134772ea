// Temporaries: what they will be, and that they are the same block as that.
#include <gtest/gtest.h>

#include "fs/layout/layout.h"
#include "tests/unit/fs/layout/describe.h"

namespace kvcachefs {
namespace {

using testing::describe;

struct TemporaryExample {
  const char* temporary;
  const char* final_name;
};

constexpr TemporaryExample kExamples[] = {
    {"m_1a2b3c4d5e6f_r0/9c4/1d_g0/H.bin_8236401190553280432.tmp",
     "m_1a2b3c4d5e6f_r0/9c4/1d_g0/H.bin"},
    {"o/m/block_size_16_blocks_per_file_1/tp_1_pp_size_1_pcp_size_1/rank_0/half/9c4/1d/"
     "H.bin_3912874410.tmp",
     "o/m/block_size_16_blocks_per_file_1/tp_1_pp_size_1_pcp_size_1/rank_0/half/9c4/1d/H.bin"},
    {"kv/m@1@0@H@bfloat16.data.tmp", "kv/m@1@0@H@bfloat16.data"},
    {"kv/m@1@0@H@bfloat16.tmp", "kv/m@1@0@H@bfloat16.data"},
    {"Llama-3.1-8B@0x01000100@0@H.tmp", "Llama-3.1-8B@0x01000100@0@H.data"},
    {"m@0x01000100@0@H@salt.with.dots.tmp", "m@0x01000100@0@H@salt.with.dots.data"},
    {"m@0x01000100@0@H.data.tmp.17", "m@0x01000100@0@H.data"},
    {"27/12/m%401%400%403f2a11c0de%40half.kvcache.safetensors.tmp0a1b2c3d",
     "27/12/m%401%400%403f2a11c0de%40half.kvcache.safetensors"},
    {"27/12/m%401%400%403f2a11c0de%40half.kvcache.safetensors.metadata.tmp0a1b2c3d",
     "27/12/m%401%400%403f2a11c0de%40half.kvcache.safetensors.metadata"},
    {"m_01000100_0_H.bin.tmp.0123456789abcdef0123456789abcdef", "m_01000100_0_H.bin"},
    {"H_m_0_1.bin.tmp.4711.139872340911872.0123456789abcdef0123456789abcdef", "H_m_0_1.bin"},
    // In a directory that could be a bucket of SGLang's other backend.
    {"a7/H_m_0_1.bin.tmp.4711.139872340911872.0123456789abcdef0123456789abcdef",
     "a7/H_m_0_1.bin"},
    {"aibrix_h0_7_l0_31_c/9c/41/9c41d2a0b3f4e5968778695a4b3c2d1e.tmp",
     "aibrix_h0_7_l0_31_c/9c/41/9c41d2a0b3f4e5968778695a4b3c2d1e"},
    {"prefix/H.tmp", "prefix/H"},
    {"prefix/H.tmp.12", "prefix/H"},
    {"prefix/H.4711.tmp", "prefix/H"},
};

std::string without_final(std::optional<Recognized> file) {
  if (file) {
    file->temporary = false;
    file->final_stem = file->final_suffix = {};
  }
  return describe(file);
}

TEST(Temporary, BecomesTheBlockThatItSaysItIs) {
  for (const TemporaryExample& example : kExamples) {
    const std::string path = testing::replace_all(example.temporary, "H", testing::kHash);
    const std::string final_name =
        testing::replace_all(example.final_name, "H", testing::kHash);
    const auto file = recognize(path);
    ASSERT_TRUE(file.has_value()) << path;
    EXPECT_TRUE(file->temporary) << path;
    EXPECT_TRUE(file->immutable) << path;
    EXPECT_EQ(final_name, final_path(*file));
    const auto finished = recognize(final_name);
    ASSERT_TRUE(finished.has_value()) << final_name;
    EXPECT_FALSE(finished->temporary) << final_name;
    EXPECT_EQ("", final_path(*finished));
    EXPECT_EQ(describe(finished), without_final(file));
    EXPECT_TRUE(may_be_recognized(path.substr(path.rfind('/') + 1))) << path;
  }
}

TEST(Temporary, OfSglangMayNotTellWhatItBecomes) {
  EXPECT_EQ("sglang_file block cache -> ?",
            testing::described("kv/.0123456789abcdef0123456789abcdef.tmp"));
}

TEST(Temporary, NamesAreThoseOfTheForms) {
  for (const TemporaryExample& each : kExamples) {
    const std::string_view path = each.temporary;
    EXPECT_TRUE(is_temporary_name(path.substr(path.rfind('/') + 1))) << path;
    EXPECT_TRUE(has_temporary_name(path)) << path;
    EXPECT_FALSE(has_temporary_name(each.final_name)) << each.final_name;
  }
  for (const char* name :
       {"x.tmp", ".tmp", "nginx.conf.tmp", "x.tmp.1", "x.tmp.1.2.0123456789abcdef",
        "x.tmp-0a1b", "x.tmpl.tmp", "x.tmp0a1b2c3d", "x_17.tmp"})
    EXPECT_TRUE(is_temporary_name(name)) << name;
  for (const char* name :
       {"nginx.conf.tmpl", "x.tmpfiles.d", "x.tmp.bin", "x.tmp.old", "x.tmpdeaf", "tmp",
        "x_tmp", "template", "x.tmp0a1b2c3", "x.tmp0a1b2c3d4", "x.tmp.tar.gz", "x.TMP", ""})
    EXPECT_FALSE(is_temporary_name(name)) << name;
  EXPECT_TRUE(has_temporary_name("a/b.tmp/c"));
  EXPECT_TRUE(has_temporary_name("a/b.tmp"));
  EXPECT_FALSE(has_temporary_name("a.tmpl/b/c"));
}

TEST(Temporary, OfAnotherRuntimesFormIsNone) {
  for (const char* path : {
           "m_1a2b3c4d5e6f_r0/9c4/1d_g0/H.bin.tmp",      // vLLM's ends in a number
           "m_1a2b3c4d5e6f_r0/9c4/1d_g0/H.bin_12x.tmp",  // which this is not
           "m_1a2b3c4d5e6f_r0/9c4/1d_g0/H.bin_.tmp",     //
           "m@1@0@H@bfloat16.pt.tmp",                    // LocalDisk has none
           "m@1@0@H@bfloat16.bin.tmp",                   //
           "H_m_0_1.bin.tmp",                            //
           "H_m_0_1.bin.tmp.1.2.0123456789abcdef",       // a short UUID
           "a7/H_m_0_1.bin.tmp.x",                       // no model of SGLang's nixl
           "x.tmp",                                      //
           ".tmp",                                       //
           "tmp",                                        //
           ".0123456789abcdef.tmp",                      //
           "prefix/.tmp",                                //
       })
    EXPECT_EQ("plain", testing::described(path)) << path;
}

}  // namespace
}  // namespace kvcachefs
