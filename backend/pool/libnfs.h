// libnfs's headers in the order in which they stand on their own.
#pragma once

#include <sys/stat.h>
#include <sys/time.h>

// clang-format off
#include <nfsc/libnfs.h>
#include <nfsc/libnfs-raw.h>
#include <nfsc/libnfs-raw-mount.h>
#include <nfsc/libnfs-raw-nfs.h>
// clang-format on
