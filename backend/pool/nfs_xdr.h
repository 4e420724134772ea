// Bounds for what an NFS server says.
//
// libnfs 4.0.0 (lib/libnfs-zdr.c) believes the lengths in an answer: one that is made up has it write through a pointer
// that nobody set, copy from behind the answer, or use up the stack. Its decoders call each other as any program may
// call them, through symbols that the executable can define, too; nfs_xdr.cc has those of <nfsc/libnfs-zdr.h> that read
// lengths, and those that read enumerations. They look at the number first (RFC 4506) and then call libnfs's own. An
// answer that does not hold is none: libnfs ends the connection.
//
// It works for the shared library that Debian ships; the unit test says whether it does for the one at hand.
#pragma once

#include <cstdint>

namespace kvcachefs {

// Has them linked; to be called before the first connection. Any thread.
void bound_xdr() noexcept;

// How often one of them was called by this thread, by whomever: for tests.
[[nodiscard]] std::uint64_t xdr_calls() noexcept;

}  // namespace kvcachefs
