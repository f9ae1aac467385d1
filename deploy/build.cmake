# SPDX-License-Identifier: Apache-2.0
# Flags and helper functions that every folder uses.

# Everything of ours includes from the repository's root: #include "proto/wire/ring.h".
add_library(gpuloom_flags INTERFACE)
target_include_directories(gpuloom_flags INTERFACE ${PROJECT_SOURCE_DIR})
target_compile_options(gpuloom_flags INTERFACE -Wall -Wextra -Wpedantic)
# g++ 12 sees overlapping copies in std::string's operator+ at -O3 where there are none (GCC bug 105651, mended in 13).
target_compile_options(gpuloom_flags INTERFACE
  $<$<AND:$<CXX_COMPILER_ID:GNU>,$<VERSION_LESS:$<CXX_COMPILER_VERSION>,13>>:-Wno-restrict>)

# cuda.h from the toolkit, as a system header, and nothing else of it: libcuda is always loaded at run time.
add_library(gpuloom_cuda_headers INTERFACE)
target_include_directories(gpuloom_cuda_headers SYSTEM INTERFACE ${CUDAToolkit_ROOT}/include)

# What a test does itself is not worth the time that optimising takes. What it tests is.
function(gpuloom_compile_fast name)
  if(NOT CMAKE_BUILD_TYPE STREQUAL "Release")
    target_compile_options(${name} PRIVATE -O0)
  endif()
endfunction()

# gpuloom_test(NAME [UNSANITIZED] [OPTIMISED] SOURCES a.cc … LIBS x y …): one GoogleTest executable, known to ctest as NAME.
# What sanitizers are in the way of is UNSANITIZED: built with them for the compiler's warnings, but not run. A test of
# memory shared without locks that stands in headers is OPTIMISED, as the code in libraries is.
function(gpuloom_test name)
  cmake_parse_arguments(T "UNSANITIZED;OPTIMISED" "" "SOURCES;LIBS" ${ARGN})
  add_executable(${name} ${T_SOURCES})
  target_link_libraries(${name} PRIVATE gpuloom_flags ${T_LIBS} GTest::gmock GTest::gtest_main Threads::Threads)
  if(NOT T_OPTIMISED)
    gpuloom_compile_fast(${name})
  endif()
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  if(T_UNSANITIZED AND CMAKE_CXX_FLAGS MATCHES "-fsanitize")
    return()
  endif()
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES TIMEOUT 600)  # for one that hangs; nothing is measured
  gpuloom_test_results(${name})
endfunction()

# gpuloom_test_results(NAME [VARIABLE=value …]): a GoogleTest run leaves its cases in results/NAME.xml, which
# tests/count_results.py adds up. For tests registered by hand; the variables join the test's environment.
function(gpuloom_test_results name)
  set_tests_properties(${name} PROPERTIES
    ENVIRONMENT "GTEST_OUTPUT=xml:${CMAKE_BINARY_DIR}/results/${name}.xml;${ARGN}")
endfunction()

# gpuloom_test_with_grpc(NAME): ThreadSanitizer leaves alone what gRPC, which is not instrumented, has the C library do.
# tests/tsan.supp has the rest.
function(gpuloom_test_with_grpc name)
  set_tests_properties(${name} PROPERTIES
    ENVIRONMENT_MODIFICATION "TSAN_OPTIONS=string_append: ignore_noninstrumented_modules=1")
endfunction()

# gpuloom_fuzzer(NAME SOURCES a.cc … LIBS x …): a libFuzzer target; the corpus lies in tests/fuzz/NAME/.
function(gpuloom_fuzzer name)
  if(NOT GPULOOM_FUZZ)
    return()
  endif()
  cmake_parse_arguments(T "" "" "SOURCES;LIBS" ${ARGN})
  add_executable(${name} ${T_SOURCES})
  target_link_libraries(${name} PRIVATE gpuloom_flags ${T_LIBS})
  target_link_options(${name} PRIVATE -fsanitize=fuzzer)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/fuzz)
endfunction()
