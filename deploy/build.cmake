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

# With sanitizers hardly anything is optimised: that takes most of compiling, and most tests wait for others. These libraries are
# what tests and fuzzers wait for.
function(gpuloom_optimise)
  if(CMAKE_CXX_FLAGS MATCHES "-fsanitize")
    foreach(target ${ARGN})
      target_compile_options(${target} PRIVATE -O1)
    endforeach()
  endif()
endfunction()

# All unit tests: what a build under ThreadSanitizer makes, instead of every program.
add_custom_target(gpuloom_tests)
add_custom_target(gpuloom_long_tests)

# gpuloom_four_together(VARIABLE a.cc …): sources that include four of these each. CMake's own (UNITY_BUILD) name the checkout's
# folder, so that a compiler cache would not know them in another one.
function(gpuloom_four_together variable)
  set(made)
  set(text)
  set(taken 0)
  list(LENGTH ARGN left)
  foreach(source ${ARGN})
    cmake_path(ABSOLUTE_PATH source BASE_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR} NORMALIZE)
    file(RELATIVE_PATH source ${PROJECT_SOURCE_DIR} ${source})
    string(APPEND text "#include \"${source}\"\n")
    math(EXPR taken "${taken} + 1")
    math(EXPR left "${left} - 1")
    if(taken EQUAL 4 OR left EQUAL 0)
      list(LENGTH made number)
      set(together ${CMAKE_CURRENT_BINARY_DIR}/${variable}_${number}.cc)
      file(CONFIGURE OUTPUT ${together} CONTENT "${text}" @ONLY)
      list(APPEND made ${together})
      set(text)
      set(taken 0)
    endif()
  endforeach()
  set(${variable} ${made} PARENT_SCOPE)
endfunction()

# gpuloom_compile_together(TARGET [ALONE a.cc …]): where everything is compiled once more, for a sanitizer or another processor,
# the library's sources are, too, four together, as they are listed. Elsewhere each is compiled by itself, and so has to include
# what it needs. A source that defines a file-local name which a neighbour has too is ALONE.
function(gpuloom_compile_together target)
  if(NOT CMAKE_CXX_FLAGS MATCHES "-fsanitize" AND NOT CMAKE_CROSSCOMPILING)
    return()
  endif()
  cmake_parse_arguments(T "" "" "ALONE" ${ARGN})
  get_target_property(sources ${target} SOURCES)
  set(apart ${sources})
  list(FILTER sources INCLUDE REGEX "\\.cc$")
  list(FILTER sources EXCLUDE REGEX "^${CMAKE_BINARY_DIR}/")  # generated: not there yet
  if(T_ALONE)
    list(REMOVE_ITEM sources ${T_ALONE})
  endif()
  list(REMOVE_ITEM apart ${sources})
  gpuloom_four_together(${target}_together ${sources})
  set_target_properties(${target} PROPERTIES SOURCES "${apart};${${target}_together}")
endfunction()

# gpuloom_test(NAME [UNSANITIZED] [OPTIMISED] [SINGLE_THREADED] SOURCES a.cc … [ALONE b.cc …] LIBS x y …): one GoogleTest
# executable, known to ctest as NAME. Four sources are compiled together, which takes less than half the time: most of it is
# what GoogleTest's headers cost. A source that defines a name which another one has too is compiled ALONE.
# What sanitizers are in the way of is UNSANITIZED: built with them for the compiler's warnings, but not run.
# A test of memory shared without locks that stands in headers is OPTIMISED, as the code in libraries is. Where neither the
# test nor what it tests starts a thread, it is SINGLE_THREADED: nothing for ThreadSanitizer to find, and not built for it.
# Where GPULOOM_LONG_TESTS is on, it is built by the target gpuloom_long_tests and run by ctest -C Long alone.
function(gpuloom_test name)
  cmake_parse_arguments(T "UNSANITIZED;OPTIMISED;SINGLE_THREADED" "" "SOURCES;ALONE;LIBS" ${ARGN})
  gpuloom_four_together(${name}_sources ${T_SOURCES})
  add_executable(${name} ${${name}_sources} ${T_ALONE})
  target_link_libraries(${name} PRIVATE gpuloom_flags ${T_LIBS} GTest::gmock GTest::gtest_main Threads::Threads)
  if(T_OPTIMISED)
    gpuloom_optimise(${name})
  else()
    gpuloom_compile_fast(${name})
  endif()
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  if(T_SINGLE_THREADED AND CMAKE_CXX_FLAGS MATCHES "-fsanitize=thread")
    return()
  endif()
  set(configurations)
  if(GPULOOM_LONG_TESTS)
    set_target_properties(${name} PROPERTIES EXCLUDE_FROM_ALL ON)
    add_dependencies(gpuloom_long_tests ${name})
    set(configurations CONFIGURATIONS Long)
  else()
    add_dependencies(gpuloom_tests ${name})
  endif()
  if(T_UNSANITIZED AND CMAKE_CXX_FLAGS MATCHES "-fsanitize")
    return()
  endif()
  add_test(NAME ${name} ${configurations} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES TIMEOUT 600)  # for one that hangs; nothing is measured
  gpuloom_test_results(${name})
  if(CMAKE_CROSSCOMPILING)
    gpuloom_emulate_test(${name})
  endif()
endfunction()

# gpuloom_test_results(NAME [VARIABLE=value …]): a GoogleTest run leaves its cases in results/NAME.xml, which
# tests/count_results.py adds up. For tests registered by hand; the variables join the test's environment.
function(gpuloom_test_results name)
  set_tests_properties(${name} PROPERTIES
    ENVIRONMENT "GTEST_OUTPUT=xml:${CMAKE_BINARY_DIR}/results/${name}.xml;${ARGN}")
endfunction()

# gpuloom_scripts(TEST …): tests that run nothing of this build. It is enough to run them with one of the builds.
function(gpuloom_scripts)
  set_property(TEST ${ARGN} APPEND PROPERTY LABELS scripts)
endfunction()

# gpuloom_test_with_grpc(NAME): ThreadSanitizer leaves alone what gRPC, which is not instrumented, has the C library do.
# tests/tsan.supp has the rest.
function(gpuloom_test_with_grpc name)
  set_tests_properties(${name} PROPERTIES
    ENVIRONMENT_MODIFICATION "TSAN_OPTIONS=string_append: ignore_noninstrumented_modules=1")
endfunction()

# gpuloom_fuzzer(NAME SOURCES a.cc … LIBS x … COVERS y …): a libFuzzer target; the corpus lies in tests/fuzz/NAME/. What the
# input reaches in the libraries y guides it: only these are compiled to say so, which makes code larger and slower.
function(gpuloom_fuzzer name)
  if(NOT GPULOOM_FUZZ)
    return()
  endif()
  cmake_parse_arguments(T "" "" "SOURCES;LIBS;COVERS" ${ARGN})
  add_executable(${name} ${T_SOURCES})
  target_link_libraries(${name} PRIVATE gpuloom_flags ${T_LIBS})
  target_link_options(${name} PRIVATE -fsanitize=fuzzer)
  gpuloom_optimise(${name} ${T_COVERS})
  foreach(target ${name} ${T_COVERS})
    target_compile_options(${target} PRIVATE -fsanitize=fuzzer-no-link)
  endforeach()
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/fuzz)
endfunction()
