# What makes compiling faster and changes nothing else.

# Where ccache is installed, it is used. It finds what another clone has compiled, too.
find_program(ccache ccache)
if(ccache AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # As ccache wants it with precompiled headers.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1
      CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime ${ccache})
  add_compile_options(-fpch-preprocess)
endif()

# Headers that take long to read are read once for all files of a kind. A file still includes what it needs:
# -DDECLOCK_PRECOMPILED=OFF builds without, as tests/packaging/includes does.
option(DECLOCK_PRECOMPILED "Precompile headers" ON)

# A kind: its name, its headers, and with what it is compiled. It has one empty file, since CMake wants one.
function(declock_precompiled_kind name)
  cmake_parse_arguments(ARG "" "" "HEADERS;USES;OPTIONS" ${ARGN})
  set(empty ${CMAKE_BINARY_DIR}/precompiled/${name}.cc)
  file(CONFIGURE OUTPUT ${empty} CONTENT "")
  add_library(precompiled_${name} OBJECT ${empty})
  target_link_libraries(precompiled_${name} PRIVATE ${ARG_USES})
  target_compile_options(precompiled_${name} PRIVATE ${ARG_OPTIONS})
  target_precompile_headers(precompiled_${name} PRIVATE ${ARG_HEADERS})
endfunction()

# A target uses the headers of a kind. REQUIRES: it is compiled with the same options.
function(declock_precompiled target kind)
  if(DECLOCK_PRECOMPILED)
    target_precompile_headers(${target} REUSE_FROM precompiled_${kind})
  endif()
endfunction()

# What is tested is optimised and watched for undefined behaviour; what tests it need not be.
set(test_options -O0 -fno-sanitize=undefined)

set(standard_headers <algorithm> <array> <atomic> <chrono> <coroutine> <cstdint> <deque> <functional> <map> <memory>
    <mutex> <optional> <span> <string> <string_view> <thread> <utility> <vector> <fmt/format.h>)
if(DECLOCK_PRECOMPILED)
  # Of what is precompiled, g++ 12 forgets that it is a system's header, and warns of mistakes in it that are none.
  add_compile_options(-Wno-array-bounds -Wno-restrict -Wno-stringop-overflow -Wno-stringop-overread)
  declock_precompiled_kind(standard HEADERS ${standard_headers} USES fmt::fmt)
  if(DECLOCK_PROGRAM)
    declock_precompiled_kind(program HEADERS ${standard_headers} <nlohmann/json.hpp>
                             USES fmt::fmt nlohmann_json::nlohmann_json)
  endif()
  if(DECLOCK_TESTS)
    declock_precompiled_kind(tests HEADERS ${standard_headers} <fstream> <gtest/gtest.h> <nlohmann/json.hpp>
                             USES fmt::fmt nlohmann_json::nlohmann_json GTest::gtest OPTIONS ${test_options})
  endif()
endif()
