# Writes OUTPUT, the definition of kVersion, when it has changed. Run by every build.
execute_process(COMMAND git -C ${SOURCE_DIR} rev-parse --short=12 HEAD
  OUTPUT_VARIABLE hash OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
if(failed)
  set(text "${VERSION} (not built from git)")
else()
  execute_process(COMMAND git -C ${SOURCE_DIR} status --porcelain --untracked-files=no
    OUTPUT_VARIABLE changes OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  if(changes)
    set(hash "${hash}+dirty")
  endif()
  set(text "${VERSION} (${hash})")
endif()
file(CONFIGURE OUTPUT ${OUTPUT} @ONLY CONTENT [[
#include "proto/control/version.h"

namespace gpuloom {

const char* const kVersion = "@text@";

}  // namespace gpuloom
]])
