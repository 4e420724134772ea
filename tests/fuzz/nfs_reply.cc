// Answers of an NFS server, as libnfs decodes them behind backend/pool/nfs_xdr.h: a value that
// means the same when it is written and read again, or none.
#include "tests/fuzz/nfs_reply.h"

#include <cstring>
#include <memory>
#include <string>
#include <string_view>

#include "backend/pool/nfs_answers.h"
#include "backend/pool/nfs_file.h"
#include "backend/pool/nfs_xdr.h"
#include "tests/fuzz/target.h"

namespace kvcachefs::fuzz {
namespace {

// More than an answer of ours has; libnfs takes lengths for signed numbers.
constexpr std::size_t kLongest = 1 << 20;

void check_attributes(const post_op_attr& attributes) {
  const auto status = status_of(attributes);
  require(status.has_value() == (attributes.attributes_follow != 0));
  require(!status || status->mode <= 07777);
}

// libnfs does not look whether a handle is too long.
void check_handle(const nfs_fh3& handle) {
  const auto taken = handle_of(handle);
  require(taken.ok() ? !taken->empty() && taken->size() <= NFS3_FHSIZE
                     : taken.error().code > 0);
}

void check_value(const GETATTR3res& answer) {
  if (answer.status == NFS3_OK)
    require(status_of(answer.GETATTR3res_u.resok.obj_attributes).mode <= 07777);
}
void check_value(const LOOKUP3res& answer) {
  if (answer.status != NFS3_OK)
    return check_attributes(answer.LOOKUP3res_u.resfail.dir_attributes);
  const LOOKUP3resok& found = answer.LOOKUP3res_u.resok;
  check_handle(found.object);
  check_attributes(found.obj_attributes);
  check_attributes(found.dir_attributes);
}
void check_value(const READ3res& answer) {
  if (answer.status != NFS3_OK)
    return check_attributes(answer.READ3res_u.resfail.file_attributes);
  const auto& data = answer.READ3res_u.resok.data;
  require(data.data_len <= kLongest);
  // All of it can be read: a sanitizer says otherwise.
  const std::string copy(data.data_val, data.data_len);
  require(copy.size() == data.data_len);
}
void check_entry(const entry3&) {}
void check_entry(const entryplus3& entry) {
  check_attributes(entry.name_attributes);
  if (entry.name_handle.handle_follows != 0)
    check_handle(entry.name_handle.post_op_fh3_u.handle);
}
// libnfs does not align what it allocates for a list.
template <class Entry>
void check_entries(const Entry* next) {
  Entry entry{};
  for (std::size_t entries = 0; next != nullptr; next = entry.nextentry) {
    std::memcpy(&entry, static_cast<const void*>(next), sizeof entry);
    require(++entries <= kLongest);
    require(entry.name == nullptr || std::strlen(entry.name) <= kLongest);
    check_entry(entry);
  }
}
void check_value(const READDIR3res& answer) {
  if (answer.status != NFS3_OK) return;
  check_attributes(answer.READDIR3res_u.resok.dir_attributes);
  check_entries(answer.READDIR3res_u.resok.reply.entries);
}
void check_value(const READDIRPLUS3res& answer) {
  if (answer.status != NFS3_OK) return;
  check_attributes(answer.READDIRPLUS3res_u.resok.dir_attributes);
  check_entries(answer.READDIRPLUS3res_u.resok.reply.entries);
}
template <class Value>
void check_value(const Value&) {}

// An answer that is not good is an error that a caller understands.
template <class Value>
void check_status(const Value& answer) {
  if constexpr (requires { answer.status; }) {
    const Result<void> checked = check(answer.status, "fuzz");
    require(checked.ok() == (answer.status == NFS3_OK));
    require(checked.ok() || checked.error().code > 0);
  }
}

// Decodes the bytes; `visit` sees the value as long as what it points to is there.
template <class Value, class Visit>
bool decode(std::string bytes, std::uint32_t (*code)(ZDR*, Value*), Visit visit) {
  const auto out = std::make_unique<Value>();
  std::memset(static_cast<void*>(out.get()), 0, sizeof(Value));
  ZDR xdr{};
  libnfs_zdrmem_create(&xdr, bytes.data(), static_cast<std::uint32_t>(bytes.size()),
                       ZDR_DECODE);
  const bool decoded = code(&xdr, out.get()) != 0;
  if (decoded) visit(*out);
  libnfs_zdr_destroy(&xdr);
  return decoded;
}

template <class Value>
bool reads(std::string_view input, std::uint32_t (*code)(ZDR*, Value*)) {
  std::string written;
  const bool decoded = decode(std::string(input), code, [&](Value& value) {
    check_status(value);
    check_value(value);
    written = encode_xdr(code, value, 2 * input.size() + 4096);
  });
  if (!decoded) return false;
  require(!written.empty());
  std::string again;
  require(decode(written, code,
                 [&](Value& value) { again = encode_xdr(code, value, written.size()); }));
  require(again == written);
  return true;
}

std::uint32_t decode_nothing(ZDR*, void*, ...) { return TRUE; }

bool reads_header(std::string_view input) {
  static rpc_context* const rpc = rpc_init_context();
  require(rpc != nullptr);
  std::string bytes(input);
  ZDR xdr{};
  libnfs_zdrmem_create(&xdr, bytes.data(), static_cast<std::uint32_t>(bytes.size()),
                       ZDR_DECODE);
  rpc_msg message;
  // As libnfs leaves it: with whatever was on the stack.
  std::memset(static_cast<void*>(&message), 0x5a, sizeof message);
  message.body.rbody.reply.areply.reply_data.results.where = nullptr;
  message.body.rbody.reply.areply.reply_data.results.proc = decode_nothing;
  const bool decoded = libnfs_zdr_replymsg(rpc, &xdr, &message) != 0;
  libnfs_zdr_destroy(&xdr);
  return decoded;
}

}  // namespace

bool nfs_reply(std::string_view input) {
  bound_xdr();
  const auto [reader, unused, rest] = choose(input, kNfsReplies);
  if (rest.size() > kLongest) return false;
  switch (static_cast<NfsReply>(reader)) {
    case NfsReply::kGetattr:
      return reads(rest, zdr_GETATTR3res);
    case NfsReply::kLookup:
      return reads(rest, zdr_LOOKUP3res);
    case NfsReply::kRead:
      return reads(rest, zdr_READ3res);
    case NfsReply::kWrite:
      return reads(rest, zdr_WRITE3res);
    case NfsReply::kCreate:
      return reads(rest, zdr_CREATE3res);
    case NfsReply::kMkdir:
      return reads(rest, zdr_MKDIR3res);
    case NfsReply::kRemove:
      return reads(rest, zdr_REMOVE3res);
    case NfsReply::kRename:
      return reads(rest, zdr_RENAME3res);
    case NfsReply::kLink:
      return reads(rest, zdr_LINK3res);
    case NfsReply::kReaddir:
      return reads(rest, zdr_READDIR3res);
    case NfsReply::kReaddirplus:
      return reads(rest, zdr_READDIRPLUS3res);
    case NfsReply::kFsstat:
      return reads(rest, zdr_FSSTAT3res);
    case NfsReply::kFsinfo:
      return reads(rest, zdr_FSINFO3res);
    case NfsReply::kCommit:
      return reads(rest, zdr_COMMIT3res);
    case NfsReply::kSetattr:
      return reads(rest, zdr_SETATTR3res);
    case NfsReply::kMount:
      return reads(rest, zdr_mountres3);
    case NfsReply::kHeader:
      return reads_header(rest);
  }
  return false;
}

}  // namespace kvcachefs::fuzz
