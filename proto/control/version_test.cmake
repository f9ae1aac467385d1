# SPDX-License-Identifier: Apache-2.0
# What the version says of the commit where there is no git, as in the image's build.
#   cmake -DFOLDER=... -P version_test.cmake   FOLDER: is made anew, outside every git repository
file(REMOVE_RECURSE ${FOLDER})
file(MAKE_DIRECTORY ${FOLDER})
set(ENV{GIT_CEILING_DIRECTORIES} ${FOLDER}/..)

function(expect_version commit expected)
  set(ENV{GPULOOM_COMMIT} "${commit}")
  execute_process(COMMAND ${CMAKE_COMMAND} -DSOURCE_DIR=${FOLDER} -DVERSION=1.2.3 -DOUTPUT=${FOLDER}/version.cc
    -P ${CMAKE_CURRENT_LIST_DIR}/version.cmake COMMAND_ERROR_IS_FATAL ANY)
  file(READ ${FOLDER}/version.cc text)
  string(FIND "${text}" "kVersion = \"${expected}\";" found)
  if(found EQUAL -1)
    message(SEND_ERROR "GPULOOM_COMMIT='${commit}': no ${expected} in ${text}")
  endif()
endfunction()

expect_version("0123456789ab" "1.2.3 (0123456789ab)")
expect_version("" "1.2.3 (commit unknown)")
expect_version("\"; system(\"true\"" "1.2.3 (commit unknown)")  # not what a commit looks like
