# SPDX-License-Identifier: Apache-2.0
# What qemu-user does not run of the unit tests, by name, where the preset arm64 has it run them: each with its reason, which
# ctest shows as a skipped test NAME_not_by_qemu.

# gpuloom_not_by_qemu(REASON TEST CASE …): cases of TEST, as GoogleTest's filter names them.
function(gpuloom_not_by_qemu reason test)
  set_property(GLOBAL APPEND PROPERTY gpuloom_not_by_qemu_${test} ${ARGN})
  string(JOIN " " cases ${ARGN})
  set_property(GLOBAL APPEND_STRING PROPERTY gpuloom_not_by_qemu_reasons_${test} "${cases}: ${reason}\n")
endfunction()

# The tests that were made to run so. The others are neither built nor run until somebody has looked at them there.
set(gpuloom_by_qemu
  gpuloom_channel_session_stress_test gpuloom_channel_test gpuloom_control_test gpuloom_cuda_driver_api_test gpuloom_cuda_fatbin_test
  gpuloom_executor_unit_test gpuloom_fatbin_unpack_test gpuloom_image_check_test gpuloom_image_hash_test gpuloom_libcuda_graph_test
  gpuloom_libcuda_proc_address_test gpuloom_libcuda_runtime_test gpuloom_node_test gpuloom_nvml_exports_test gpuloom_nvml_test
  gpuloom_run_unit_test gpuloom_shim_exports_test gpuloom_softgpu_driver_test gpuloom_softgpu_grid_test plugin_test
  gpuloom_softgpu_instruction_test gpuloom_sync_test gpuloom_wire_commands_test gpuloom_wire_graph_nodes_test gpuloom_wire_layout_test
  gpuloom_wire_ring_test)
add_custom_target(gpuloom_emulated_tests)
add_test(NAME other_tests_not_by_qemu COMMAND ${CMAKE_COMMAND} -E echo
  "tests that are disabled: nobody has looked yet at whether qemu-user runs them (deploy/emulated.cmake)")
set_tests_properties(other_tests_not_by_qemu PROPERTIES SKIP_REGULAR_EXPRESSION ".")

# Programs that a test starts, itself among them, are the kernel's to hand to qemu-user.
set(GPULOOM_STARTS_EMULATED ON)
if(NOT EXISTS /proc/sys/fs/binfmt_misc/qemu-aarch64)
  set(GPULOOM_STARTS_EMULATED OFF)
  add_test(NAME started_programs_not_by_qemu COMMAND ${CMAKE_COMMAND} -E echo
    "death tests, and tests that start programs for aarch64: this kernel does not hand them to qemu-user; Debian has qemu-user-binfmt for that")
  set_tests_properties(started_programs_not_by_qemu PROPERTIES SKIP_REGULAR_EXPRESSION ".")
endif()

# gpuloom_emulate_test(NAME): called by gpuloom_test for every test of another architecture.
function(gpuloom_emulate_test name)
  if(NOT name IN_LIST gpuloom_by_qemu)
    set_target_properties(${name} PROPERTIES EXCLUDE_FROM_ALL ON)
    set_tests_properties(${name} PROPERTIES DISABLED ON)
    return()
  endif()
  add_dependencies(gpuloom_emulated_tests ${name})
  # Several times slower.
  set_tests_properties(${name} PROPERTIES TIMEOUT 3600)
  # For programs that the test starts.
  set_property(TEST ${name} APPEND PROPERTY ENVIRONMENT QEMU_LD_PREFIX=${CMAKE_SYSROOT})
  get_property(cases GLOBAL PROPERTY gpuloom_not_by_qemu_${name})
  if(NOT GPULOOM_STARTS_EMULATED)
    list(APPEND cases *DeathTest.*)
    get_property(starting GLOBAL PROPERTY gpuloom_starts_programs_${name})
    list(APPEND cases ${starting})
  endif()
  if(NOT cases)
    return()
  endif()
  string(JOIN ":" filter ${cases})
  set_property(TEST ${name} APPEND PROPERTY ENVIRONMENT "GTEST_FILTER=-${filter}")
  get_property(reasons GLOBAL PROPERTY gpuloom_not_by_qemu_reasons_${name})
  if(NOT reasons)
    return()
  endif()
  add_test(NAME ${name}_not_by_qemu COMMAND ${CMAKE_COMMAND} -E echo "${reasons}")
  set_tests_properties(${name}_not_by_qemu PROPERTIES SKIP_REGULAR_EXPRESSION ".")
endfunction()

set(no_seccomp "qemu-user installs no filter of system calls: they are the host's, with other numbers")
gpuloom_not_by_qemu("${no_seccomp}" gpuloom_executor_unit_test
  SystemCalls.* ConfinementTest.AllOfItTogetherLeavesAProcessThatWorks ConfinementTest.WhatIsMissingIsSaidAndNoReasonToFail)
set(no_vfork "its vfork is a fork: posix_spawn is back before the new process is set up, and does not hear of failures")
gpuloom_not_by_qemu("${no_vfork}" gpuloom_node_test
  ProcessTest.IsInAGroupOfItsOwnOrASessionOfItsOwn ProcessTest.WhatCannotBeStartedIsSaid)
gpuloom_not_by_qemu("${no_vfork}" gpuloom_run_unit_test
  DoctorTest.AGoodNodeHasNothingWrongButTheMissingScheduler DoctorTest.TheKubeletAndWhoServesIt
  ExecutorProgram.OneThatIsMissingIsNamed)
gpuloom_not_by_qemu("/proc/self/exe is qemu to whoever opens it" gpuloom_node_test
  ProcessTest.OwnProgramIsTheOneThatRuns)
gpuloom_not_by_qemu("a child of qemu-user gets what MADV_DONTFORK keeps from it" gpuloom_channel_test
  Region.AChildDoesNotInheritIt)
gpuloom_not_by_qemu("qemu-user keeps descriptors that do not fit into the answer" gpuloom_channel_test
  Socket.Malicious_MoreDescriptorsThanWeCanTakeAreClosed)
# Not qemu's doing, and open.
foreach(test gpuloom_shim_exports_test gpuloom_nvml_exports_test)
  gpuloom_not_by_qemu("for aarch64 the linker lists a section without a name among the library's symbols" ${test}
    Library.ShowsExactlyWhatNvidiasShows)
  gpuloom_not_by_qemu("for aarch64 the library has a second function that runs when it is loaded" ${test}
    Library.RunsNothingOfOursWhenItIsLoaded)
endforeach()

# gpuloom_starts_programs(TEST CASE …): what starts programs for aarch64, and is no death test.
function(gpuloom_starts_programs test)
  set_property(GLOBAL APPEND PROPERTY gpuloom_starts_programs_${test} ${ARGN})
endfunction()
gpuloom_starts_programs(gpuloom_softgpu_driver_test DriverTest.MemoryIsSharedWithAnotherProcess)
