#include "backend/pool/pool_uri.h"

#include <gtest/gtest.h>

#include <string>

#include "backend/pool/pool_path.h"
#include "tests/fakes/expect_result.h"

namespace kvcachefs {
namespace {

TEST(PoolUri, TakesWhatIsDocumented) {
  Result<PoolUri> uri = parse_pool_uri("dir:///mnt/lustre//kv/");
  ASSERT_OK(uri);
  EXPECT_EQ(PoolUri::Kind::kDirectory, uri->kind);
  EXPECT_EQ("/mnt/lustre/kv", uri->path);

  uri = parse_pool_uri(
      "nfs://filer-1.example/export/kv%20cache?nfsport=2049&uid=7&gid=8&mountport=20048");
  ASSERT_OK(uri);
  EXPECT_EQ(PoolUri::Kind::kNfs, uri->kind);
  EXPECT_EQ("filer-1.example", uri->host);
  EXPECT_EQ("/export/kv cache", uri->path);
  EXPECT_EQ(2049, uri->nfs_port);
  EXPECT_EQ(20048, uri->mount_port);
  EXPECT_EQ(7u, uri->uid);
  EXPECT_EQ(8u, uri->gid);

  uri = parse_pool_uri("nfs://[fe80::1%eth0]/e?version=3");
  ASSERT_OK(uri);
  EXPECT_EQ("fe80::1%eth0", uri->host);
  EXPECT_EQ("/e", uri->path);
  EXPECT_FALSE(uri->uid.has_value());
}

TEST(PoolUri, RefusesTheRest) {
  for (const char* text : {"",
                           "/mnt",
                           "smb://h/e",
                           "dir://relative",
                           "dir://",
                           "dir:///a/../b",
                           "dir:///a/./b",
                           "nfs://",
                           "nfs:///export",
                           "nfs://h",
                           "nfs://h?x=1",
                           "nfs://h:2049/e",
                           "nfs://h h/e",
                           "nfs://[::1/e",
                           "nfs://[]/e",
                           "nfs://h/e?",
                           "nfs://h/e?nfsport",
                           "nfs://h/e?nfsport=",
                           "nfs://h/e?nfsport=0",
                           "nfs://h/e?nfsport=65536",
                           "nfs://h/e?nfsport=1x",
                           "nfs://h/e?version=4",
                           "nfs://h/e?other=1",
                           "nfs://h/e?uid=-1",
                           "nfs://h/e?uid=1&",
                           "nfs://h/e%2",
                           "nfs://h/e%zz",
                           "nfs://h/a%2e%2e%2f..",
                           "nfs://h/a%00b"})
    EXPECT_ERROR(EINVAL, parse_pool_uri(text)) << text;
  EXPECT_ERROR(EINVAL, parse_pool_uri("nfs://h/" + std::string(256, 'a')));
  EXPECT_ERROR(EINVAL, parse_pool_uri("nfs://" + std::string(254, 'a') + "/e"));
}

TEST(PoolPath, IsSplitAtItsLastSlash) {
  using Pair = std::pair<std::string_view, std::string_view>;
  EXPECT_EQ(Pair("a/b", "c"), split_pool_path("a/b/c"));
  EXPECT_EQ(Pair("", "a"), split_pool_path("a"));
}

}  // namespace
}  // namespace kvcachefs
