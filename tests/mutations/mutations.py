"""Faults that the gate has to find: one for each promise of the design, and for the pool, leases, the order of evictions,
checksums and recovery. Each is a small change of the product that compiles, and would pass a review by somebody in a hurry."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutation:
    name: str
    subject: str       # "promise N", or the part of the product
    what: str          # the fault, in words
    file: str
    before: str        # stands once in the file
    after: str
    # Tests of the gate of which at least one has to fail: path::function, or Suite.Name in C++.
    found_by: tuple


MUTATIONS = (
    Mutation("wrong-bytes", "promise 1", "an open serves a file whose bytes differ from its seal",
             "fs/life/verify.cc",
             "  if (compared.ok() && compared->equal) {\n",
             "  if (compared.ok()) {\n",
             ("Verify.ADamagedFileIsAMissSetAsideAndCounted",
              "tests/mount/verify/test_damage.py::test_damaged_files_are_misses")),
    Mutation("endless-load", "promise 2", "a load from a pool that does not answer has no deadline to speak of",
             "fs/pool/pool_files.cc",
             "  return called + kOpenDeadline + std::chrono::milliseconds(size / (kOpenRate / 1000));\n",
             "  return called + 20 * kOpenDeadline + std::chrono::milliseconds(size / (kOpenRate / 1000));\n",
             ("tests/mount/pool/test_sharing.py::test_a_server_that_stops_costs_hits_and_nothing_else",
              "tests/mount/pool/test_lying_server.py::test_what_a_server_does_wrong_is_a_miss")),
    Mutation("lease-ignored", "promise 3", "a file with a lease may be evicted",
             "fs/budget/leases.cc",
             "  return at != leases_.end() && at->second.until_ns > now_ns;\n",
             "  return at != leases_.end() && at->second.until_ns < now_ns;\n",
             ("Leases.HoldExactlyAsLongAsSaid", "Evictor.PassesOverWhatIsOpenLeasedOrKept",
              "tests/mount/budget/test_leases.py::test_an_open_file_and_a_looked_up_one_outlast_a_flood")),
    Mutation("budget-doubled", "promise 4", "files may take twice the budget",
             "fs/budget/room.cc",
             "  if (used) room.bytes = std::min(room.bytes, minus(room.budget, ours));\n",
             "  if (used) room.bytes = std::min(room.bytes, minus(2 * room.budget, ours));\n",
             ("Evictor.KeepsTheBudgetAndTheNewest",
              "tests/mount/budget/test_never_full.py::test_many_times_the_capacity")),
    Mutation("rename-publishes-nothing", "promise 5", "a rename of a file that is open does not publish it",
             "fs/names/rename.cc",
             "  if (!is_unsealed(inode.record.state)) return {};\n",
             "  if (is_unsealed(inode.record.state)) return {};\n",
             ("Rename.PublishesAnOpenFile", "Rename.IsOneCommit")),
    Mutation("daemon-serves-some", "promise 6", "who loads with O_RDWR, as runtimes do, is served by the daemon",
             "fs/data/files.cc",
             "  if (core_.passthrough() && !is_excluded) {\n",
             "  if (core_.passthrough() && !is_excluded && (flags & O_ACCMODE) != O_RDWR) {\n",
             ("tests/mount/data_path/test_local_bytes.py::test_reads_and_writes_of_local_files",)),
    Mutation("seal-without-sync", "promise 7", "the seal does not wait for the disk",
             "fs/life/sync_files.cc",
             "  if (!synced.ok()) return false;\n  if (::fdatasync(any.fd) == 0) return true;\n",
             "  if (!synced.ok()) return false;\n  if (any.fd >= 0) return true;\n",
             ("tests/crash/test_power_cut.py::test_power_cut",
              "tests/crash/test_power_cut.py::test_what_is_kept_is_there_when_its_close_has_returned")),
    Mutation("flood-ends-all-leases", "promise 8", "the lookups of one user end the leases of the others",
             "fs/budget/leases.cc",
             "tenant.holders.at(tenant.by_weight.rbegin()->second);\n",
             "tenant.holders.at(tenant.by_weight.begin()->second);\n",
             ("Leases.AFloodEndsItsOwnOldestFirst",
              "tests/mount/budget/test_leases.py::test_a_flood_of_lookups_ends_its_own_leases_first")),
    Mutation("pool-unverified", "the pool", "what comes from a pool is not compared with its checksums",
             "backend/pool/pool_transfer.cc",
             "      if (expected != nullptr && sums_[chunk] != expected[chunk]) return false;\n",
             "      if (expected == nullptr && sums_[chunk] != expected[chunk]) return false;\n",
             ("PoolTransfer.DamageOnThePoolIsNoticed", "SharedVolumes.ADamagedFileOfThePoolIsAMiss",
              "tests/mount/pool/test_lying_server.py::test_what_a_server_does_wrong_is_a_miss")),
    Mutation("lookup-weakens-an-open", "leases", "a lookup turns the lease of an open into that of a lookup",
             "fs/budget/leases.cc",
             "    granted.opened = granted.opened || at->second.answer.opened;\n",
             "    granted.opened = granted.opened && at->second.answer.opened;\n",
             ("Leases.WhatWasOpenedStaysAndALookupDoesNotWeakenIt",)),
    Mutation("oldest-birth-first", "the order of evictions", "of one burst the oldest goes first, an ancestor before its descendants",
             "fs/order/order_index.h",
             "    if (a.birth != b.birth) return b.birth <=> a.birth;\n",
             "    if (a.birth != b.birth) return a.birth <=> b.birth;\n",
             ("Learner.EvictionTakesAPrefixFromItsEnd", "Learner.VictimsGoOnAfterOneThatStays")),
    Mutation("last-chunk-unchecked", "checksums", "the last chunk of a file is not compared",
             "fs/life/compare.cc",
             "    for (std::uint64_t at = 0; at < length; at += kChecksumChunk) {\n",
             "    for (std::uint64_t at = 0; at + kChecksumChunk <= length; at += kChecksumChunk) {\n",
             ("Verify.ADamagedFileIsAMissSetAsideAndCounted",
              "tests/mount/verify/test_damage.py::test_damaged_files_are_misses")),
    Mutation("changed-file-survives", "recovery", "after a kill a file that was written on since its close passes for published",
             "fs/life/recover.cc",
             "    return stamp_of(*backing) == record.stamp ? Verdict::kKeep : Verdict::kDrop;\n",
             "    return stamp_of(*backing) == record.stamp ? Verdict::kKeep : Verdict::kKeep;\n",
             ("Recovery.DaemonCrashDropsWhatChangedAfterItsFlush",)),
)
