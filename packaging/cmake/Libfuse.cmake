# kv_libfuse: the libfuse in use, and what it can do. What it can do is found by compiling and
# linking against it, never by its version.
include(CheckCSourceCompiles)
include(CMakePushCheckState)

# Imported, so that the checks below can link it.
add_library(kv_libfuse INTERFACE IMPORTED GLOBAL)
set(kv_fuse_kind system)

if(KVCACHEFS_FUZZ)
  return()
endif()

if(NOT KVCACHEFS_LIBFUSE MATCHES "^(auto|bundled|system)$")
  message(FATAL_ERROR "KVCACHEFS_LIBFUSE=${KVCACHEFS_LIBFUSE}: say auto, bundled or system")
endif()
if(NOT KVCACHEFS_LIBFUSE STREQUAL "system")
  # Instant when it has been built before, by whatever clone.
  execute_process(COMMAND ${CMAKE_SOURCE_DIR}/packaging/build-libfuse.sh --print-prefix
                  OUTPUT_VARIABLE kv_fuse_prefix OUTPUT_STRIP_TRAILING_WHITESPACE
                  COMMAND_ERROR_IS_FATAL ANY)
  execute_process(COMMAND ${CMAKE_SOURCE_DIR}/packaging/build-libfuse.sh
                  RESULT_VARIABLE kv_fuse_built)
  if(kv_fuse_built EQUAL 0 AND EXISTS ${kv_fuse_prefix}/lib/libfuse3.a)
    set(kv_fuse_kind bundled)
  elseif(KVCACHEFS_LIBFUSE STREQUAL "bundled")
    message(FATAL_ERROR "KVCACHEFS_LIBFUSE=bundled, but packaging/build-libfuse.sh failed")
  endif()
endif()

if(kv_fuse_kind STREQUAL "bundled")
  file(STRINGS ${kv_fuse_prefix}/libs kv_fuse_extra_libs)
  target_include_directories(kv_libfuse INTERFACE ${kv_fuse_prefix}/include/fuse3)
  target_link_libraries(kv_libfuse INTERFACE ${kv_fuse_prefix}/lib/libfuse3.a
                                             ${kv_fuse_extra_libs} Threads::Threads)
  # A rebuilt libfuse is looked at again.
  file(STRINGS ${kv_fuse_prefix}/stamp kv_fuse_stamp)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${kv_fuse_prefix}/stamp)
else()
  pkg_check_modules(FUSE3 REQUIRED IMPORTED_TARGET fuse3)
  target_link_libraries(kv_libfuse INTERFACE PkgConfig::FUSE3 Threads::Threads)
  set(kv_fuse_stamp "libfuse ${FUSE3_VERSION} (installed)")
endif()

if(NOT kv_fuse_checked STREQUAL "${kv_fuse_stamp}")
  foreach(result PASSTHROUGH IO_URING CUSTOM_IO STATX)
    unset(KVCACHEFS_HAVE_${result} CACHE)
  endforeach()
  set(kv_fuse_checked "${kv_fuse_stamp}" CACHE INTERNAL "The libfuse that the checks looked at")
endif()

cmake_push_check_state(RESET)
set(CMAKE_REQUIRED_LIBRARIES kv_libfuse)
set(CMAKE_REQUIRED_DEFINITIONS -D_FILE_OFFSET_BITS=64 -DFUSE_USE_VERSION=312)
check_c_source_compiles("#include <fuse_lowlevel.h>
int main(void) {
  struct fuse_file_info info = {0};
  info.backing_id = (int)FUSE_CAP_PASSTHROUGH;
  return fuse_passthrough_open((fuse_req_t)0, 0) + fuse_passthrough_close((fuse_req_t)0, 0);
}" KVCACHEFS_HAVE_PASSTHROUGH)
check_c_source_compiles("#include <fuse_lowlevel.h>
int main(void) {
  struct fuse_session *session = 0;
  return fuse_session_custom_io(session, (const struct fuse_custom_io *)0, 0);
}" KVCACHEFS_HAVE_CUSTOM_IO)
check_c_source_compiles("#include <fuse_lowlevel.h>
int main(void) {
  struct fuse_lowlevel_ops operations = {0};
  return operations.statx == 0 ? fuse_reply_statx((fuse_req_t)0, 0, (struct statx *)0, 1.0) : 0;
}" KVCACHEFS_HAVE_STATX)
check_c_source_compiles("#include <fuse_lowlevel.h>
#if !defined(FUSE_CAP_OVER_IO_URING)
#error no io_uring transport
#endif
int main(void) { return 0; }" KVCACHEFS_HAVE_IO_URING)
cmake_pop_check_state()
# The header announces it in builds without it, too; our own build says what is inside.
if(kv_fuse_kind STREQUAL "bundled" AND NOT EXISTS ${kv_fuse_prefix}/has_io_uring)
  set(KVCACHEFS_HAVE_IO_URING "" CACHE INTERNAL "")
endif()

foreach(feature PASSTHROUGH IO_URING CUSTOM_IO STATX)
  if(KVCACHEFS_HAVE_${feature})
    target_compile_definitions(kv_libfuse INTERFACE KVCACHEFS_HAVE_${feature}=1)
  endif()
endforeach()
list(GET kv_fuse_stamp 0 kv_fuse_name)
foreach(feature PASSTHROUGH IO_URING)
  set(kv_fuse_${feature} no)
  if(KVCACHEFS_HAVE_${feature})
    set(kv_fuse_${feature} yes)
  endif()
endforeach()
message(STATUS "kvcachefs: ${kv_fuse_name}; passthrough: ${kv_fuse_PASSTHROUGH}, "
               "io_uring: ${kv_fuse_IO_URING}")
