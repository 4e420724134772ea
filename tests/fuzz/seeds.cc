#include <dirent.h>
#include <sys/stat.h>

#include <array>
#include <cstring>
#include <initializer_list>
#include <utility>

#include "backend/pool/nfs_xdr.h"
#include "backend/pool/pool_format.h"
#include "backend/superblock.h"
#include "fs/control_request.h"
#include "fs/device_list.h"
#include "fs/layout/layout.h"
#include "fs/status.h"
#include "metadata/record.h"
#include "tests/fuzz/catalog.h"
#include "tests/fuzz/nfs_reply.h"
#include "tests/fuzz/target.h"

namespace kvcachefs::fuzz {
namespace {

constexpr std::string_view kHash =
    "9c41d2a0b3f4e5968778695a4b3c2d1e0f9e8d7c6b5a49382716050403020100";

class Seeds {
 public:
  explicit Seeds(std::string_view target) : target_(target) {}
  void add(std::string input) { all_.push_back({target_, std::move(input)}); }
  void add(unsigned reader, std::string_view rest) { add(chosen(reader, false, rest)); }
  void add_all(unsigned reader, std::initializer_list<std::string_view> inputs) {
    for (const std::string_view input : inputs) add(reader, input);
  }
  [[nodiscard]] std::vector<Seed> take() { return std::move(all_); }

 private:
  std::string_view target_;
  std::vector<Seed> all_;
};

// ---- acl

struct AclPart {
  std::uint16_t tag;
  std::uint16_t perm;
  std::uint32_t id = UINT32_MAX;
};

std::string acl_value(std::initializer_list<AclPart> parts) {
  std::string value("\2\0\0\0", 4);
  const auto put = [&value](std::uint32_t number, int bytes) {
    for (int i = 0; i < bytes; ++i) value += static_cast<char>(number >> (8 * i) & 0xff);
  };
  for (const AclPart& part : parts) {
    put(part.tag, 2);
    put(part.perm, 2);
    put(part.id, 4);
  }
  return value;
}

std::vector<Seed> acl_seeds() {
  Seeds seeds("acl");
  seeds.add(acl_value({}));
  seeds.add(acl_value({{1, 7}, {4, 5}, {32, 0}}));
  seeds.add(acl_value({{1, 6}, {2, 4, 1000}, {2, 7, 1001}, {4, 4}, {16, 6}, {32, 4}}));
  seeds.add(acl_value({{1, 7}, {4, 5}, {8, 7, 50}, {8, 1, 51}, {16, 7}, {32, 5}}));
  return seeds.take();
}

// ---- records, on the disk and on the pool

std::vector<Seed> record_seeds() {
  Seeds seeds("record");
  InodeRecord inode;
  inode.mode = S_IFREG | 0640;
  inode.nlink = 1;
  inode.state = DataState::kSealed;
  inode.object = 2;
  inode.previous_object = 3;
  inode.previous_state = DataState::kSealed;
  inode.stamp = {.size = 4, .mtime = 5, .ctime = 6};
  inode.writer = {.boot = 1, .number = 2, .began = 3};
  seeds.add(0, encode(inode));
  InodeRecord other;
  other.mode = S_IFLNK | 0777;
  other.target = "to/there";
  seeds.add(0, encode(other));
  other = {};
  other.mode = S_IFBLK | 0600;
  other.rdev = 0x801;
  seeds.add(0, encode(other));
  ObjectRecord object;
  object.inode = 1;
  seeds.add(1, encode(object));
  object.sealed = {.size = 300'000, .mtime = 5, .ctime = 6};
  object.chunk_crc32c = {1, 2};
  seeds.add(1, encode(object));
  seeds.add(2, encode(DentryRecord{.inode = 1, .type = DT_REG, .cookie = 2}));
  seeds.add(3, encode(BlockRecord{.inode = 1, .birth = 4, .stamp = 5, .hash = "ab"}));
  seeds.add(3, encode(BlockRecord{
                   .inode = 1, .has_parent = true, .hinted = true, .parent = 2, .hash = "-f"}));
  const std::string superblock = encode_superblock({.device = {1}, .catalog = {2}});
  seeds.add(4, superblock);
  seeds.add(chosen(4, true, superblock.substr(0, superblock.rfind("crc32c"))));
  const PoolCopy copy{.fileid = 1, .path_hash = 2, .size = 3, .mtime = 4, .keep = true};
  seeds.add(5, encode(copy));
  std::string older = encode(copy);
  older.front() = 1;
  older.pop_back();
  seeds.add(5, older);
  seeds.add(6, encode(Tombstone{.fileid = 1, .is_directory = true}));
  seeds.add(7,
            encode(OwnerChange{.fileid = 1, .uid = 2, .gid = 3, .mode = 0640, .keep = true}));
  seeds.add(7, encode(OwnerChange{.fileid = 1, .keep = false}));
  seeds.add(7, encode(OwnerChange{.fileid = 1, .told = 5}));
  seeds.add(8, encode_device_list({"/nvme0/kv", "/odd\nname\\n"}));
  return seeds.take();
}

std::vector<Seed> pool_seeds() {
  Seeds seeds("pool");
  const Uuid node = *parse_uuid("01234567-89ab-cdef-0123-456789abcdef");
  const auto add_text = [&seeds](unsigned reader, const std::string& text) {
    seeds.add(reader, text);
    seeds.add(chosen(reader, true, text.substr(0, text.rfind("crc32c"))));
  };
  const auto add_bytes = [&seeds](unsigned reader, const std::string& bytes) {
    seeds.add(reader, bytes);
    seeds.add(chosen(reader, true, bytes.substr(0, bytes.size() - 4)));
  };
  add_text(0, encode_pool_superblock({.pool = node}));
  add_text(7, encode_pool_told(
                  {.fileid = 1, .path_hash = 2, .words = {{"layout", "vllm"}, {"ttl", "-"}}}));
  add_text(1, encode_pool_node({.node = node,
                                .incarnation = {2},
                                .lease = std::chrono::minutes{1},
                                .log = 7,
                                .size = 1 << 30,
                                .used = 1 << 20,
                                .share = 3}));
  for (const PoolChange change :
       {PoolChange::kPublished, PoolChange::kRemoved, PoolChange::kEvicted})
    add_bytes(2, encode_pool_log_record({.change = change,
                                         .path_hash = pool_path_hash("a/b.bin"),
                                         .fileid = 12,
                                         .size = 1 << 20,
                                         .sequence = 1}));
  PoolSums sums;
  sums.fileid = 1;
  sums.mtime = 3;
  sums.uid = 4;
  sums.mode = 0640;
  add_bytes(3, encode_pool_sums(sums));
  sums.size = kPoolChunk + 1;
  add_bytes(3, encode_pool_sums(sums));
  sums.keep = true;
  sums.chunk_crc32c = {6, 7};
  add_bytes(3, encode_pool_sums(sums));
  seeds.add_all(
      4, {"dir:///mnt/lustre/kv", "nfs://10.0.0.5/export/kv?nfsport=2049&mountport=20048",
          "nfs://[fe80::1%25eth0]/e%20x?uid=0&gid=0&version=3"});
  seeds.add_all(5, {"", "a", "models/m@1@0@ff@half.pt", ".kvcachefs/pool"});
  for (const std::string& path :
       {pool_log_path(node, 7), pool_trash_path(1'700'000'000 * kNanosPerSecond, node, 3)})
    seeds.add(6, path.substr(path.rfind('/') + 1));
  seeds.add(6, "472222");
  return seeds.take();
}

std::vector<Seed> catalog_seeds() {
  Seeds seeds("catalog");
  seeds.add(chosen(0, false, encode_rows(sample_rows())));
  seeds.add(chosen(0, true, ""));
  for (Row row : sample_rows()) {
    seeds.add(chosen(0, true, encode_rows({row})));
    // Without its format, its numbers or its mark of the last run a database is refused.
    if (row.table == Table::kMeta) continue;
    row.is_delete = true;
    row.value.clear();
    seeds.add(chosen(0, true, encode_rows({row})));
  }
  return seeds.take();
}

// ---- what a server of NFS says

post_op_attr attributes_of(ftype3 type) {
  post_op_attr out{};
  out.attributes_follow = 1;
  fattr3& to = out.post_op_attr_u.attributes;
  to.type = type;
  to.mode = 0640;
  to.nlink = 1;
  to.size = to.used = 4096;
  to.fileid = 12;
  to.mtime = {.seconds = 1'700'000'000, .nseconds = 5};
  return out;
}

nfs_fh3 handle() {
  static std::array<char, 16> bytes{1, 2, 3};
  nfs_fh3 out{};
  out.data.data_len = bytes.size();
  out.data.data_val = bytes.data();
  return out;
}

post_op_fh3 handle_that_follows() {
  post_op_fh3 out{};
  out.handle_follows = 1;
  out.post_op_fh3_u.handle = handle();
  return out;
}

template <class Value>
void add_reply(Seeds& seeds, NfsReply reader, std::uint32_t (*code)(ZDR*, Value*),
               Value value) {
  seeds.add(static_cast<unsigned>(reader), encode_xdr(code, value, 4096));
}

// The good answer, and the one of a server that refuses.
template <class Value>
void add_both(Seeds& seeds, NfsReply reader, std::uint32_t (*code)(ZDR*, Value*), Value value) {
  add_reply(seeds, reader, code, value);
  Value refused;
  std::memset(static_cast<void*>(&refused), 0, sizeof refused);
  refused.status = NFS3ERR_STALE;
  add_reply(seeds, reader, code, refused);
}

void add_listings(Seeds& seeds) {
  char first[] = "a.bin";
  char second[] = ".kvcachefs";
  READDIR3res names{};
  entry3 last{.fileid = 3, .name = second, .cookie = 2, .nextentry = nullptr};
  entry3 begin{.fileid = 2, .name = first, .cookie = 1, .nextentry = &last};
  names.READDIR3res_u.resok.dir_attributes = attributes_of(NF3DIR);
  names.READDIR3res_u.resok.reply = {.entries = &begin, .eof = 1};
  add_both(seeds, NfsReply::kReaddir, zdr_READDIR3res, names);
  READDIRPLUS3res more{};
  entryplus3 last_plus{};
  last_plus.fileid = 3;
  last_plus.name = second;
  last_plus.cookie = 2;
  entryplus3 begin_plus{};
  begin_plus.fileid = 2;
  begin_plus.name = first;
  begin_plus.cookie = 1;
  begin_plus.name_attributes = attributes_of(NF3REG);
  begin_plus.name_handle = handle_that_follows();
  begin_plus.nextentry = &last_plus;
  more.READDIRPLUS3res_u.resok.dir_attributes = attributes_of(NF3DIR);
  more.READDIRPLUS3res_u.resok.reply = {.entries = &begin_plus, .eof = 0};
  add_both(seeds, NfsReply::kReaddirplus, zdr_READDIRPLUS3res, more);
}

void add_data(Seeds& seeds) {
  char bytes[] = "some bytes";
  READ3res read{};
  read.READ3res_u.resok.file_attributes = attributes_of(NF3REG);
  read.READ3res_u.resok.count = 10;
  read.READ3res_u.resok.eof = 1;
  read.READ3res_u.resok.data.data_len = 10;
  read.READ3res_u.resok.data.data_val = bytes;
  add_both(seeds, NfsReply::kRead, zdr_READ3res, read);
  WRITE3res write{};
  write.WRITE3res_u.resok.file_wcc.after = attributes_of(NF3REG);
  write.WRITE3res_u.resok.count = 10;
  write.WRITE3res_u.resok.committed = FILE_SYNC;
  add_both(seeds, NfsReply::kWrite, zdr_WRITE3res, write);
  COMMIT3res commit{};
  commit.COMMIT3res_u.resok.file_wcc.after = attributes_of(NF3REG);
  add_both(seeds, NfsReply::kCommit, zdr_COMMIT3res, commit);
}

void add_names(Seeds& seeds) {
  GETATTR3res getattr{};
  getattr.GETATTR3res_u.resok.obj_attributes = attributes_of(NF3DIR).post_op_attr_u.attributes;
  add_both(seeds, NfsReply::kGetattr, zdr_GETATTR3res, getattr);
  LOOKUP3res lookup{};
  lookup.LOOKUP3res_u.resok.object = handle();
  lookup.LOOKUP3res_u.resok.obj_attributes = attributes_of(NF3REG);
  lookup.LOOKUP3res_u.resok.dir_attributes = attributes_of(NF3DIR);
  add_both(seeds, NfsReply::kLookup, zdr_LOOKUP3res, lookup);
  CREATE3res create{};
  create.CREATE3res_u.resok.obj = handle_that_follows();
  create.CREATE3res_u.resok.obj_attributes = attributes_of(NF3REG);
  create.CREATE3res_u.resok.dir_wcc.after = attributes_of(NF3DIR);
  add_both(seeds, NfsReply::kCreate, zdr_CREATE3res, create);
  MKDIR3res mkdir{};
  mkdir.MKDIR3res_u.resok.obj = handle_that_follows();
  add_both(seeds, NfsReply::kMkdir, zdr_MKDIR3res, mkdir);
  REMOVE3res remove{};
  remove.REMOVE3res_u.resok.dir_wcc.after = attributes_of(NF3DIR);
  add_both(seeds, NfsReply::kRemove, zdr_REMOVE3res, remove);
  RENAME3res rename{};
  rename.RENAME3res_u.resok.fromdir_wcc.after = attributes_of(NF3DIR);
  add_both(seeds, NfsReply::kRename, zdr_RENAME3res, rename);
  LINK3res link{};
  link.LINK3res_u.resok.file_attributes = attributes_of(NF3REG);
  add_both(seeds, NfsReply::kLink, zdr_LINK3res, link);
  SETATTR3res setattr{};
  setattr.SETATTR3res_u.resok.obj_wcc.after = attributes_of(NF3REG);
  add_both(seeds, NfsReply::kSetattr, zdr_SETATTR3res, setattr);
}

void put_words(std::string& bytes, std::initializer_list<std::uint32_t> words) {
  for (const std::uint32_t word : words)
    for (const int shift : {24, 16, 8, 0}) bytes += static_cast<char>(word >> shift & 0xff);
}

std::vector<Seed> nfs_reply_seeds() {
  bound_xdr();
  Seeds seeds("nfs_reply");
  add_names(seeds);
  add_data(seeds);
  add_listings(seeds);
  FSSTAT3res fsstat{};
  fsstat.FSSTAT3res_u.resok.obj_attributes = attributes_of(NF3DIR);
  fsstat.FSSTAT3res_u.resok.tbytes = 1 << 30;
  add_both(seeds, NfsReply::kFsstat, zdr_FSSTAT3res, fsstat);
  FSINFO3res fsinfo{};
  fsinfo.FSINFO3res_u.resok.rtmax = fsinfo.FSINFO3res_u.resok.wtmax = 1 << 20;
  add_both(seeds, NfsReply::kFsinfo, zdr_FSINFO3res, fsinfo);
  std::array<char, 16> root{1};
  std::array<int, 2> flavors{AUTH_UNIX, AUTH_NONE};
  mountres3 mount{};
  mount.mountres3_u.mountinfo.fhandle.fhandle3_len = root.size();
  mount.mountres3_u.mountinfo.fhandle.fhandle3_val = root.data();
  mount.mountres3_u.mountinfo.auth_flavors.auth_flavors_len = flavors.size();
  mount.mountres3_u.mountinfo.auth_flavors.auth_flavors_val = flavors.data();
  add_reply(seeds, NfsReply::kMount, zdr_mountres3, mount);
  // Number, REPLY, accepted with a verifier of AUTH_NONE, SUCCESS; accepted, PROG_MISMATCH;
  // denied, AUTH_ERROR.
  for (const auto& words : {std::initializer_list<std::uint32_t>{7, 1, 0, 0, 0, 0},
                            {7, 1, 0, 0, 0, 2, 3, 3},
                            {7, 1, 1, 1, 5}}) {
    std::string header;
    put_words(header, words);
    seeds.add(static_cast<unsigned>(NfsReply::kHeader), header);
  }
  return seeds.take();
}

// ---- names

// In a pattern "H" is a hash, "U" a UUID.
std::string path_of(std::string_view pattern) {
  std::string path;
  for (const char c : pattern) {
    if (c == 'H')
      path += kHash;
    else if (c == 'U')
      path += kHash.substr(0, 32);
    else
      path += c;
  }
  return path;
}

std::vector<Seed> layout_seeds() {
  Seeds seeds("layout");
  for (const char* pattern :
       {"m_1a2b3c4d5e6f_r0/9c4/1d_g0/H.bin_8236401190553280432.tmp",
        "m_1a2b3c4d5e6f_r17/9c4",
        "m_1a2b3c4d5e6f/.o_direct_probe_1.tmp",
        "m_1a2b3c4d5e6f/config.json",
        "gpt2/block_size_16_blocks_per_file_16/tp_4_pp_size_2_pcp_size_1/rank_5/float16/9c4/1d/"
        "H.bin",
        "o/m/block_size_16_blocks_per_file_1/tp_2_pp_size_3_pcp_size_1/rank_0/half/9c4/1d/"
        "H.bin_3.tmp",
        "m@8@3@-3f2a11c0de@bfloat16@31@a%b.pt",
        "m@8@3@H@half.tmp",
        "Llama-3.1-8B@0x01000100@0@H.data",
        "m@0x08070403@1f@H@tenant.1.data.tmp.17",
        "27/12/m%401%400%403f2a11c0de%40half%4012.kvcache.safetensors.metadata.tmp0a1b2c3d",
        "27/12/m%401%400%403f2a11c0de%40half.kvcache.safetensors",
        "-2/71/m%401%400%40-3f2a11c0de%40bfloat16.weka1",
        "obj_12345_00aa.bin",
        "m_01000100_0_H@salt.bin.tmp.U",
        "m_2_1_H_bfloat16_31",
        "H_m_3_8_2_1.bin",
        "H.mamba_m_3_8_2_1_cp1_2_tp4_dcp0_2_page64.bin.tmp.4711.139872340911872.U",
        ".U.tmp",
        "hicache.3.bin",
        "a7/H_m_0_4_mamba_conv_3",
        "a/p/H_0_k",
        "c/d/m@1@0@3f2a11c0de@bfloat16",
        "7226212741120.bucket",
        "dfs_shard_007.data",
        "kv/H/model.layers.0.self_attn.attn.safetensors",
        "kv/8236401190553280432.pt",
        "aibrix_h0_7_l0_31_c/9c/41/9c41d2a0b3f4e5968778695a4b3c2d1e.tmp",
        "prefix/H",
        "prefix/H.tmp",
        "session/chat/12"}) {
    const std::string path = path_of(pattern);
    if (recognize(path)) seeds.add(0, path);
    // Where a directory was told so, a name may be of another kind, and more are known.
    for (unsigned runtime = 0; runtime < kRuntimeCount; ++runtime)
      if (recognize(path, static_cast<Runtime>(runtime))) seeds.add(1 + runtime, path);
  }
  seeds.add(1 + static_cast<unsigned>(Runtime::kLlamaCpp), "slot-3.bin");
  return seeds.take();
}

std::vector<Seed> text_seeds() {
  Seeds seeds("text");
  seeds.add_all(0, {"python3", ") R 1 (vllm", "a b) S 1 2 3 4 5 6 7"});
  seeds.add(chosen(0, true,
                   "815 (cat) R 732 815 732 34816 815 4194304 105 0 0 0 0 0 0 0 20 0 1 0 86124 "
                   "5885952 232 18446744073709551615"));
  seeds.add_all(1, {"plain", "\x1b[2J", "back\\slash \"quoted\"",
                    "\xc3\xa9\xe2\x80\xae\xf0\x9f\x98\x80", "\xff\xfe"});
  return seeds.take();
}

// ---- what people and programs write

std::vector<Seed> units_seeds() {
  Seeds seeds("units");
  seeds.add_all(0, {"4096", "1.5 GiB", "500GB", "80%", "90s", "250ms", "1h", "9100",
                    "127.0.0.1:9100", "[::1]:9100", "01234567-89ab-cdef-0123-456789abcdef"});
  seeds.add(chosen(0, true, "MiB"));
  seeds.add(1, "vllm");
  for (const char* policy : {"cache", "process", "keep", "pin"}) seeds.add(2, policy);
  seeds.add_all(3, {"90s", "7d"});
  seeds.add_all(4, {"25%", "200GiB"});
  seeds.add(5, "500GiB");
  seeds.add_all(6, {"pass", "refuse"});
  seeds.add_all(7, {"all", "reused", "off"});
  return seeds.take();
}

std::vector<Seed> config_seeds() {
  Seeds seeds("config");
  seeds.add_all(0, {"nvme = [\"/nvme0:80%\", \"/nvme1:2TiB\"]\nallow_other = true\n"
                    "stop_timeout = \"3s\"\noptions = \"ro,noexec\"\n",
                    "# a comment\npool = 'nfs://10.0.0.5/kv'\nlease = 60\nmetrics = 9100\n"
                    "state = \"\"\"/x\\u0041\"\"\"\n",
                    "options = [\"nvme=/a\", \"log-level=debug\"]\npolicy = \"keep\"\n"});
  seeds.add_all(1, {"nvme=/a:2TiB,allow_other,dev,context=\"a,b\",state=/x\\,y,x-foo=1",
                    "defaults,_netdev,nofail,ro,noatime,nodiratime,sync,dirsync,suid,exec",
                    "pool=dir:///p,pool-size=1TiB,lease=60s,verify=always"});
  seeds.add_all(2, {"/nvme0:500GB", "80%", "60s", "dir:///mnt/p", "debug", "true", "0", "9100",
                    "keep", "auto", "root:0640", "1000:1000:0600"});
  seeds.add(3,
            "30 21 0:57 / /mnt/kv rw,nosuid shared:7 - fuse.kvcachefs /nvme/a\\040b rw\n"
            "21 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw,errors=remount-ro\n"
            "31 30 0:57 /sub /mnt/bind ro master:7 propagate_from:2 - fuse.kvcachefs none ro");
  seeds.add_all(4, {"/nvme\n/mnt/kv", "/nv,me\\\"\n/mnt/kv\n-sfnv\n-o\nrw,lease=60s\n-t\nfuse",
                    "none\n/mnt/kv\n-oro\n-N/proc/1/ns/mnt\n-r"});
  seeds.add_all(5,
                {"remount,ro\nrw,nosuid,nodev,relatime", "remount,rw,noexec,x-a=b,lease=60s"});
  return seeds.take();
}

ControlRequest request_of(std::string command, std::string word = {}, std::string after = {}) {
  ControlRequest request;
  request.command = std::move(command);
  request.word = std::move(word);
  request.after = std::move(after);
  return request;
}

// Of the tools; `a…` is a hash of the target's catalog.
std::vector<Seed> control_request_seeds() {
  Seeds seeds("control_request");
  const std::string hash(16, 'a');
  for (const char* command : {"status", "objects", "sessions", "hashes", "flush", "evict"})
    seeds.add(encode(request_of(command)));
  seeds.add(encode(request_of("find", hash)));
  seeds.add(encode(request_of("find", hash, "000000000000000261")));
  seeds.add(encode(request_of("hashes", "a", hash)));
  seeds.add(encode(request_of("session", "chat")));
  ControlRequest request = request_of("objects", "", "00ff00ff00ff00ff");
  request.model = "llama";
  request.runtime = "native";
  seeds.add(encode(request));
  request = request_of("explain");
  request.path = "dir/na\xffme";
  seeds.add(encode(request));
  for (const char* command : {"chain", "children"}) {
    request = request_of(command);
    request.block = UINT64_MAX;
    seeds.add(encode(request));
  }
  return seeds.take();
}

std::vector<Seed> answers_seeds() {
  Seeds seeds("answers");
  StatusReport report;
  report.pid = 3;
  report.mountpoint = "/mnt/kv";
  report.phase = "serving";
  TierStatus& tier = report.tiers.emplace_back();
  tier.kind = "nvme";
  tier.path = "/n";
  tier.capacity = 1 << 30;
  tier.free = 1 << 20;
  report.operations.push_back({.name = "open", .count = 1});
  report.pool.emplace().uri = "dir:///p";
  seeds.add(0, status_json(report));
  seeds.add_all(1,
                {R"({"objects":[{"path":"prefix/a","runtime":"native","model":"m","hash":"ff",)"
                 R"("rank":0,"world":2,"group":1,"part":"k","size":5}],"next":"00ff"})",
                 R"({"links":[{"block":"00ff00ff00ff00ff","object":null,"firm":true}]})",
                 R"({"found":true,"entries":[{"position":null,"path":"session/a/1"}]})",
                 R"({"hashes":["aa","bb"],"damaged":3})", R"({"error":"no such file"})"});
  return seeds.take();
}

}  // namespace

std::vector<Seed> metrics_seeds() {
  Seeds seeds("metrics");
  for (const char* method : {"GET", "HEAD"})
    for (const char* headers : {"\r\n",
                                "Host: 127.0.0.1:9100\r\nUser-Agent: Prometheus/3.0\r\nAccept: "
                                "text/plain;q=0.5\r\n\r\n",
                                "Accept-Encoding: gzip\r\nConnection: keep-alive\r\n\r\n"})
      seeds.add(std::string(method) + " /metrics HTTP/1.1\r\n" + headers);
  seeds.add("GET /metrics?name=x HTTP/1.0\r\n\r\n");
  return seeds.take();
}

std::vector<Seed> seeds() {
  std::vector<Seed> all;
  for (const auto& make : {acl_seeds, answers_seeds, catalog_seeds, config_seeds,
                           control_request_seeds, layout_seeds, metrics_seeds, nfs_reply_seeds,
                           pool_seeds, record_seeds, text_seeds, units_seeds})
    for (Seed& seed : make()) all.push_back(std::move(seed));
  return all;
}

}  // namespace kvcachefs::fuzz
