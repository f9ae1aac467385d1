// SPDX-License-Identifier: Apache-2.0
#include "shim/testing/loaded_shim.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

namespace gpuloom {

Driver LoadFreshShim() {
  char copy[] = "/tmp/gpuloom-shim-copy-XXXXXX";
  const channel::UniqueFd out(mkstemp(copy));
  const channel::UniqueFd in(open(GPULOOM_SHIM, O_RDONLY | O_CLOEXEC));
  struct stat status = {};
  fstat(in.get(), &status);
  off_t offset = 0;
  while (offset < status.st_size &&
         sendfile(out.get(), in.get(), &offset, static_cast<size_t>(status.st_size - offset)) > 0) {
  }
  Driver driver;
  std::string error;
  // Asked for its version, the shim would attach before the test has said to what.
  if (!Load(copy, &driver, &error, CUDA_VERSION)) ADD_FAILURE() << error;
  unlink(copy);
  return driver;
}

}  // namespace gpuloom
