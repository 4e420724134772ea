// The questions of `kvcachefs find`, `ls` and `tree` as requests of the control socket, and their
// answers as JSON. The same serves offline, without a socket.
//
//   command   takes                        answers
//   objects   after, model, runtime        {"objects": [OBJECT…]}
//   find      word (a hash), after         {"objects": [OBJECT…]}
//   hashes    word (8 digits or more),     {"hashes": [HASH…]}
//             after
//   session   word (an id), after          {"found": …, "entries": [{"position", "path", "inode",
//                                           "object": OBJECT or null}…]}
//   sessions  after                        {"sessions": [ID…]}
//   chain     block                        {"links": [LINK…]}     towards the root of the prefix
//   children  block                        {"links": [LINK…], "more": …, "partial": …}
//
// "next", where it is there, is the `after` (of chain: the block) to go on with; "damaged" counts
// records that do not read. OBJECT has path, runtime, model, world, rank, group, part, hash, block,
// inode, size, created, last_use: null is what is not known, times are seconds since 1970. LINK has
// block, object (null: no file has it now), parent (a block or null), firm (of the parent).
#pragma once

#include <string>

#include "backend/base/result.h"
#include "fs/control_request.h"
#include "fs/known/order_source.h"
#include "metadata/catalog.h"

namespace kvcachefs {

// One line. Errors: ENOSYS (no such command), EINVAL (a field is missing, or not what "next" was),
// EIO, EBADMSG.
Result<std::string> answer_query(Catalog& catalog, OrderSource& order,
                                 const ControlRequest& request);

}  // namespace kvcachefs
