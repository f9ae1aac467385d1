# SPDX-License-Identifier: Apache-2.0
# Writes OUTPUT, the definition of kVersion, when it has changed. Run by every build. The commit is git's word; where
# there is no git, as in the image's build, that of GPULOOM_COMMIT in the environment.
set(git git -c safe.directory=${SOURCE_DIR} -C ${SOURCE_DIR})  # whoever owns the folder
execute_process(COMMAND ${git} rev-parse --short=12 HEAD
  OUTPUT_VARIABLE hash OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
if(failed)
  set(hash "$ENV{GPULOOM_COMMIT}")
  if(NOT hash MATCHES "^[0-9A-Za-z.+_-]+$")
    set(hash "commit unknown")
  endif()
else()
  execute_process(COMMAND ${git} status --porcelain --untracked-files=no
    OUTPUT_VARIABLE changes OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  if(changes)
    set(hash "${hash}+dirty")
  endif()
endif()
set(text "${VERSION} (${hash})")
file(CONFIGURE OUTPUT ${OUTPUT} @ONLY CONTENT [[
#include "proto/control/version.h"

namespace gpuloom {

const char* const kVersion = "@text@";

}  // namespace gpuloom
]])
