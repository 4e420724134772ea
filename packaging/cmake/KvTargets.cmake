# Flags shared by every target, and the functions that make one target of a folder.

add_library(kv_flags INTERFACE)
target_include_directories(kv_flags INTERFACE ${CMAKE_SOURCE_DIR})
target_compile_options(kv_flags INTERFACE -Wall -Wextra -Wshadow -Wconversion)
target_compile_definitions(kv_flags INTERFACE _FILE_OFFSET_BITS=64
                                              KVCACHEFS_VERSION="${PROJECT_VERSION}")
target_link_libraries(kv_flags INTERFACE Threads::Threads)
if(KVCACHEFS_WERROR)
  target_compile_options(kv_flags INTERFACE -Werror)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  target_compile_options(kv_flags INTERFACE -Wthread-safety)
  if(KVCACHEFS_UNITY)
    # A name of one file shadows that of another here. GCC, which compiles all of them, means variables of functions.
    target_compile_options(kv_flags INTERFACE -Wno-shadow)
  endif()
elseif(KVCACHEFS_UNITY OR KVCACHEFS_SANITIZE)
  # GCC's manual, -fsanitize: false positives, "most notably" of this one; files compiled together show it others.
  # The develop preset warns.
  target_compile_options(kv_flags INTERFACE -Wno-maybe-uninitialized)
endif()

if(KVCACHEFS_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    message(FATAL_ERROR "KVCACHEFS_FUZZ needs clang: cmake --preset fuzz")
  endif()
  # Everything below a fuzz target reports coverage; only the targets carry libFuzzer's main().
  set(kv_sanitize -fsanitize=fuzzer-no-link,address,undefined)
elseif(KVCACHEFS_SANITIZE)
  set(kv_sanitize -fsanitize=${KVCACHEFS_SANITIZE})
endif()
if(kv_sanitize)
  # vptr needs type information of libraries that are built without it.
  target_compile_options(kv_flags INTERFACE ${kv_sanitize} -fno-sanitize=vptr
                                            -fno-sanitize-recover=all -fno-omit-frame-pointer)
  target_link_options(kv_flags INTERFACE ${kv_sanitize} -fno-sanitize=vptr)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND KVCACHEFS_SANITIZE MATCHES "thread")
    target_compile_options(kv_flags INTERFACE -Wno-tsan)
  endif()
endif()

# kv_library(NAME sources... LINK targets...): a static library, or an empty one while its folder has
# no sources.
function(kv_library name)
  cmake_parse_arguments(ARG "" "" "LINK;PRIVATE_LINK" ${ARGN})
  if(ARG_UNPARSED_ARGUMENTS)
    add_library(${name} STATIC ${ARG_UNPARSED_ARGUMENTS})
    target_link_libraries(${name} PUBLIC kv_flags ${ARG_LINK} PRIVATE ${ARG_PRIVATE_LINK})
    kv_unity(${name})
  else()
    add_library(${name} INTERFACE)
    target_link_libraries(${name} INTERFACE kv_flags ${ARG_LINK})
  endif()
endfunction()

# kv_optimise(TARGET LEVEL SANITIZED): the target is compiled with the optimisation LEVEL, and with SANITIZED in a build with
# sanitizers.
function(kv_optimise target level sanitized)
  if(KVCACHEFS_SANITIZE)
    set(level ${sanitized})
  endif()
  target_compile_options(${target} PRIVATE ${level})
endfunction()

# kv_unity(TARGET [AT_A_TIME N]): where KVCACHEFS_UNITY is on, about N files (20) are compiled at a time, for most of what
# the compiler reads are the headers of libraries. Small folders share a unit, and a name in an unnamed namespace is then
# one of its unit. Not CMake's UNITY_BUILD, which includes files by their absolute paths: the compiler cache would serve no
# other clone; and it fills units regardless of folders, so that a new file would change all that follow it.
function(kv_unity target)
  cmake_parse_arguments(ARG "" "AT_A_TIME" "" ${ARGN})
  if(NOT KVCACHEFS_UNITY)
    return()
  endif()
  set(most 20)
  if(ARG_AT_A_TIME)
    set(most ${ARG_AT_A_TIME})
  endif()
  # A folder begins a unit where the last one has half of that.
  math(EXPR half "${most} / 2")
  set(units "")
  set(count 0)
  set(last "")
  get_target_property(sources ${target} SOURCES)
  foreach(source ${sources})
    get_filename_component(source ${source} ABSOLUTE)
    file(RELATIVE_PATH source ${CMAKE_SOURCE_DIR} ${source})
    get_filename_component(folder ${source} DIRECTORY)
    if(NOT folder STREQUAL last AND count GREATER_EQUAL half)
      set(count 0)
    elseif(count GREATER_EQUAL most)
      set(count 0)
    endif()
    set(last ${folder})
    if(count EQUAL 0)
      get_filename_component(unit ${source} NAME_WE)
      string(MAKE_C_IDENTIFIER "${folder}/${unit}" unit)  # named by its first file
      list(APPEND units ${unit})
      set(text_${unit} "")
    endif()
    string(APPEND text_${unit} "#include \"${source}\"\n")
    math(EXPR count "${count} + 1")
  endforeach()
  set(files "")
  foreach(unit ${units})
    set(file ${CMAKE_CURRENT_BINARY_DIR}/unity/${target}/${unit}.cc)
    file(CONFIGURE OUTPUT ${file} CONTENT "${text_${unit}}" @ONLY)  # keeps the time of one that is the same
    list(APPEND files ${file})
  endforeach()
  set_property(TARGET ${target} PROPERTY SOURCES ${files})
endfunction()
