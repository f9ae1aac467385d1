// SPDX-License-Identifier: Apache-2.0
#include "agent/node/set_aside.h"

#include <sys/stat.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

namespace gpuloom {

std::string SetAside(const std::string& path, const std::string& base) {
  const auto is_taken = [](const std::string& name) {
    struct stat ignored;
    return lstat(name.c_str(), &ignored) == 0;
  };
  std::string aside = base + ".bad";
  for (int i = 2; i <= kMostSetAside && is_taken(aside); ++i)
    aside = base + "." + std::to_string(i) + ".bad";
  const bool replaces = is_taken(aside);
  if (rename(path.c_str(), aside.c_str()) != 0) {
    return "it stays there, because it cannot be set aside as " + aside + ": " + strerror(errno);
  }
  if (!replaces) return "set aside as " + aside;
  return "set aside as " + aside +
         ", in place of the one before it: " + std::to_string(kMostSetAside) +
         " lie there; delete those that nobody needs";
}

}  // namespace gpuloom
